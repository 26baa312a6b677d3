"""The desk: what servers and programs ask. Reads only.

desk = await open_desk(settings, os.environ)
answer = await desk.search(Principal("default"), SearchRequest("who invented the pendulum clock?"))
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rag.embed.open import open_embedder
from rag.errors import BusyError, InvalidRequestError, NotFoundError
from rag.records import Answer, Extract
from rag.search.gate import READS, admit
from rag.search.plan import make_plan
from rag.search.recall import recall
from rag.search.uris import NOT_FOUND
from rag.search.window import Span, between_words, centred
from rag.store.catalog import check_embedder
from rag.store.reader import Reader
from rag.store.terms import MAX_TERMS, query_terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.embed import Embedder
    from rag.records import Chunk, Collection, Principal, SearchRequest, Source
    from rag.search.plan import Plan
    from rag.settings import SearchSettings, Settings
    from rag.store.reader import CollectionReader, StoredSource


@asynccontextmanager
async def open_desk(settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Desk]:
    """A desk over the data folder and the embedder that the settings name.

    Raises:
        ConfigurationError: the embedder can't be opened.
    """
    reader = Reader(settings.data, timeout_seconds=settings.search.timeout_seconds)
    async with open_embedder(settings.embedder, environment) as embedder:
        yield Desk(reader, embedder, settings.search)


class Desk:
    """Answers questions from the documents that a principal may read. Safe to share between tasks."""

    def __init__(self, reader: Reader, embedder: Embedder, settings: SearchSettings) -> None:
        self._reader = reader
        self._embedder = embedder
        self._settings = settings

    async def collections(self, principal: Principal) -> tuple[Collection, ...]:
        """The collections that the principal may read."""
        return await self._reader.collections(principal.tenant)

    async def search(self, principal: Principal, request: SearchRequest) -> Answer:
        """The best hits, and notes on what a reader of them must know.

        Raises:
            InvalidRequestError: a value of the request is out of its range.
            NotFoundError: a collection named in the request can't be read.
            NotReadyError: a collection lacks the index that the mode needs.
            ConfigurationError: a collection was made with another embedder.
            ProviderError, StoreError: the embedder or the storage failed.
        """
        plan = make_plan(request, self._settings)
        tables = await self._tables(principal, plan.collections)
        if not tables:
            return Answer((), ("The desk holds no documents yet; an operator ingests them.",))
        for table in tables:
            check_embedder(table.collection, self._embedder.identity)
        (vector,) = await self._embedder.embed([plan.query], "query")
        hits = await admit(await recall(tables, plan, vector), vector, plan.limit)
        return Answer(tuple(hits), tuple(await self._notes(tables, plan, found=bool(hits))))

    async def extract(
        self,
        principal: Principal,
        id_: str,
        *,
        start: int | None = None,
        max_chars: int,
        around: int | None = None,
    ) -> Extract:
        """A window on a source, up to `max_chars` long.

        `id_` names a source or one of its chunks. The window begins at `start`; without one,
        at the beginning of the source, or for a chunk so that the chunk is in its middle.
        `around` takes, for a chunk, just so many chunks before and after it.

        Raises:
            NotFoundError: nothing readable has this id.
            InvalidRequestError: `start` lies behind the end, or `around` comes without a chunk.
            BusyError: the source was replaced as often as it was read.
        """
        source_id, _, seq = id_.partition("/")
        table = await self._home(principal, source_id)
        for _ in range(READS - 1):
            with suppress(BusyError):
                return await _extract(table, source_id, seq, start=start, max_chars=max_chars, around=around)
        return await _extract(table, source_id, seq, start=start, max_chars=max_chars, around=around)

    async def sources(self, principal: Principal, *, after: tuple[str, str], limit: int) -> list[Source]:
        """Up to `limit` readable sources that follow (collection, source id), in that order."""
        page: list[Source] = []
        for table in await self._tables(principal, ()):
            if table.collection.name >= after[0]:
                begin = after[1] if table.collection.name == after[0] else ""
                page += await table.page(begin, limit - len(page))
            if len(page) == limit:
                break
        return page

    async def _tables(self, principal: Principal, names: Sequence[str]) -> list[CollectionReader]:
        """The readable collections of these names, opened; all where none is named."""
        readable = {one.name: one for one in await self._reader.collections(principal.tenant)}
        if not readable.keys() >= set(names):
            raise NotFoundError(
                "A collection that the request names can't be read. "
                f"Readable are: {', '.join(sorted(readable)) or 'none'}."
            )
        chosen = dict.fromkeys(names or sorted(readable))
        return [await self._reader.open(readable[name]) for name in chosen]

    async def _home(self, principal: Principal, source_id: str) -> CollectionReader:
        """The collection that holds a source."""
        for table in await self._tables(principal, ()):
            if await table.sources([source_id]):
                return table
        raise NotFoundError(NOT_FOUND)

    async def _notes(self, tables: Sequence[CollectionReader], plan: Plan, *, found: bool) -> list[str]:
        notes = []
        terms = max(len(query_terms(plan.query, table.collection.language)) for table in tables)
        if plan.mode != "dense" and terms > MAX_TERMS:
            notes.append(f"Only the first {MAX_TERMS} words of the query were searched for as words.")
        if plan.mode != "sparse" and len(self._embedder.token_spans(plan.query)) > self._embedder.window:
            notes.append(f"Only the first {self._embedder.window} tokens of the query count for its meaning.")
        if not found:
            notes.append(await _why_nothing(tables, plan))
        return notes


async def _why_nothing(tables: Sequence[CollectionReader], plan: Plan) -> str:
    names = ", ".join(table.collection.name for table in tables)
    if not any([await table.count() for table in tables]):
        return f"Nothing has been ingested into {names} yet."
    if plan.sources is not None or plan.exclude_sources:
        return "Nothing was found among the sources that the request allows; search without that restriction."
    if plan.mode == "sparse":
        return "No passage holds a word of the query; use other words, or mode hybrid to search by meaning."
    return f"Nothing was found in {names}."


async def _extract(
    table: CollectionReader,
    source_id: str,
    seq: str,
    *,
    start: int | None,
    max_chars: int,
    around: int | None,
) -> Extract:
    found = await table.text(source_id)
    if found is None:
        raise NotFoundError(NOT_FOUND)
    stored, outline, text = found
    chunk = await _chunk(table, stored, seq) if seq else None
    whole, middle = await _wanted(table, stored, chunk, start=start, around=around)
    window = between_words(text, centred(whole, middle, max_chars), whole)
    chunks = await table.touching(stored, window.start, window.end)
    return Extract(stored.source, outline, window.start, window.end, text[window.start : window.end], chunks)


async def _chunk(table: CollectionReader, stored: StoredSource, seq: str) -> Chunk:
    if seq.isascii() and seq.isdecimal() and int(seq) < stored.source.chunk_count:
        for chunk in await table.between(stored, int(seq), int(seq)):
            return chunk
    raise NotFoundError(NOT_FOUND)


async def _wanted(
    table: CollectionReader,
    stored: StoredSource,
    chunk: Chunk | None,
    *,
    start: int | None,
    around: int | None,
) -> tuple[Span, Span]:
    """What is asked for: at most this span, and if it is too long, with that one in its middle."""
    length = stored.source.length
    if around is not None and (chunk is None or start is not None):
        raise InvalidRequestError("around goes with the id of a chunk (source_id/seq), and without start.")
    if around is not None and around < 0:
        raise InvalidRequestError(f"around must be at least 0, not {around}.")
    if start is not None:
        if not 0 <= start < length:
            raise InvalidRequestError(f"start must be from 0 to {length - 1} in this source.")
        return Span(start, length), Span(start, start)
    if chunk is None:
        return Span(0, length), Span(0, 0)
    middle = Span(chunk.start, chunk.end)
    if around is None:
        return Span(0, length), middle
    near = await table.between(stored, chunk.seq - around, chunk.seq + around)
    return Span(near[0].start, near[-1].end), middle
