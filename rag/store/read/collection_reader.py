"""Reads the tables of one collection: lists by meaning and by words, chunks, sources, and their access.

Nothing here locks or writes. A query whose table version was pruned meanwhile is repeated once.
"""

from __future__ import annotations

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import log
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread
from lancedb.query import BooleanQuery, FullTextOperator, MatchQuery, Occur

from rag.access.rule import predicate
from rag.corpus import Access, AccessRecord, Chunk, Collection, Heading, Principal, Source, Value
from rag.errors import BusyError, NotReadyError
from rag.filters.evaluators import literal
from rag.store.read import schema
from rag.store.read.access_reader import NAMES_GROUP, AccessReader
from rag.store.read.connection import engine_errors
from rag.store.read.rows_in_memory import (
    MemoryBudget,
    Positions,
    RowsInMemory,
    TableInMemory,
    cosines,
    read_indexes,
    rounded_vectors,
)
from rag.store.read.stored_rows import (
    CHUNK_COLUMNS,
    PLACE_COLUMNS,
    ListedSource,
    Ranking,
    ScoredChunk,
    SourcePlace,
    Statistics,
    StoredChunk,
    StoredSource,
    chunk_of_row,
    places_of,
    stored_chunks,
)
from rag.store.read.word_analysis import (
    MAX_TERMS,
    Word,
    query_languages,
    query_terms,
    query_words,
    search_terms,
)
from rag.uris import page_address

if TYPE_CHECKING:
    import lancedb
    import numpy.typing as npt
    from lancedb.query import FullTextQuery

T = TypeVar("T")


EVERYTHING = "(true)"  # in SQL
REFINED = 2  # times as many are ranked by true distance; with 1, recall@20 is .98 in 100,000
NARROW_FROM, NARROW_SHARE = 200_000, 0.01
"""From so many chunks on, a search of at most this share of them measures each instead of reading the index.

Of a million, 90 take 12 ms of CPU instead of 30, and 9,000 take 35 instead of 45. Of 100,000 it is the same.
"""
SCANNING = ("regexp_like(", "contains(")  # no index answers them: counting would cost what a search does


MAX_LISTED = 2**31 - 1  # all of them
WALKED = 500  # sources that are converted at a time, in 10 ms
SOURCES_KEPT = 10_000  # cached summaries per collection, some 5 MB


@dataclass(slots=True)
class Superseded:
    """How often indexes were made again since the engine's cache was new. It keeps the files of each open."""

    count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)

    def saw(self, table: str, size: int) -> None:
        """Note how large the indexes of a table are now, in bytes."""
        self.count += self.sizes.get(table, size) != size
        self.sizes[table] = size


class CollectionReader:
    """The tables of one collection, opened for reading. `scans` limits the scans that run at once.

    Without a full-text index, an attached table is not searched `by_words`. If reading one fails, searches go
    on without it, and `failed` is true; our own tables raise instead. If it `retrieves`, a retriever of the
    operator's makes its list (`rag.search.retrievers`).
    """

    by_words = True
    failed = False
    retrieves = False

    def __init__(  # noqa: PLR0913 what the readers of a data folder share
        self,
        collection: Collection,
        chunks: lancedb.AsyncTable,
        sources: lancedb.AsyncTable,
        access: AccessReader,
        *,
        timeout_seconds: float,
        scans: anyio.CapacityLimiter,
        url: str = "",
        memory: MemoryBudget | None = None,
        in_bucket: bool = False,
        superseded: Superseded | None = None,
    ) -> None:
        self.collection = collection
        self.scans = scans
        self.timeout_seconds = timeout_seconds
        self._url = url
        self._chunks = chunks
        self._sources = sources
        self._access = access
        self._timeout = timedelta(seconds=timeout_seconds)
        self._summaries: dict[str, StoredSource | None] = {}
        self._attributes: Mapping[str, Mapping[str, Value]] | None = None
        self._chunk_count: int | None = None
        self._expiries: Mapping[str, datetime] | None = None
        self._version = -1, -1
        self._words: tuple[int, str] = (-1, "")
        self.index_bytes = 0
        self._superseded = superseded
        self.memory = TableInMemory(chunks, CHUNK_COLUMNS, memory, in_bucket=in_bucket) if memory else None

    async def warm(self) -> None:
        """Read what searches of tables in a bucket would wait for: rows, indexes and access records."""
        await self.uncopied_records()
        await self.expiries()
        await self.has_any(NAMES_GROUP)  # any predicate on labels
        with engine_errors("reading indexes"):
            await read_indexes(self._sources)
            first = await self._rows(self._sources.query().select(["id"]).limit(1))
            await self.sources(row["id"] for row in first)  # where a file has what, for the sources to come
            if self.memory:
                await self.memory.wait_until_filled()
            else:
                await read_indexes(self._chunks)

    async def dense(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> Ranking:
        """The chunks nearest to `vector`, with their cosine similarity.

        Exact where the table's rows are in memory. Otherwise, if there is a vector index, all its parts are
        read, and the true distance of `REFINED` times as many chunks is measured; of a narrow part of a large
        collection, that of each chunk.
        """
        with engine_errors("searching by meaning"):
            if self.memory and (copy := await self._kept(where, await self._chunks.version())):
                rows, among = copy
                return _listed(rows, *await rows.nearest(vector, limit, among))
            query = self._chunks.query().nearest_to(vector).distance_type("cosine")  # all metrics agree
            # Refined, because a quantized index returns approximate distances.
            # All parts of the index: with some, a filter or narrow rights would starve the search.
            query = query.maximum_nprobes(0).refine_factor(REFINED)
            if await self._is_narrow(where):
                query = query.bypass_vector_index()
            columns = [*CHUNK_COLUMNS, "vector", "_distance", *(["_rowid"] if self.memory else [])]
            hits = await self._table(query.where(where).select(columns).limit(limit))
        if self.memory:
            return _measured(hits, vector)
        return _scored(stored_chunks(hits), 1.0 - hits["_distance"].to_numpy())

    async def _is_narrow(self, where: str) -> bool:
        """Whether so few chunks satisfy a predicate that measuring each takes less than reading the index."""
        if await self._count() < NARROW_FROM or any(function in where for function in SCANNING):
            return False
        return await self._chunks.count_rows(where) <= await self._count() * NARROW_SHARE

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:
        """The chunks that contain words of `text`, with their BM25 score relative to the rarest word.

        With `every`, those that contain all of the words that count.

        The rarest word is in one chunk only; its weight is about the logarithm of the number of chunks.
        Scores divided by it are comparable between tables, within one query. Stop words don't count, nor do
        words beyond the first `MAX_TERMS`.

        Raises:
            NotReadyError: the collection has no full-text index.
        """
        column = await self.words_column()
        version = self._words[0]  # the newest: it was just asked for
        languages = query_languages(self.collection)
        if column == schema.TERMS:
            words = await to_thread.run_sync(query_words, text, languages)
            terms, match = search_terms(words), matching(words, every=every)
        else:  # an attached table, whose words the engine analyses
            terms, match = [], words_in(column, query_terms(text, languages)[:MAX_TERMS], every=every)
        with engine_errors("searching by words"):
            rarest = await self._rarest()
            if copy := await self._kept(where, version):
                rows, among = copy
                reads_all = len(among) == len(rows)  # the words of other rows must not show in the time taken
                if not len(among) or (reads_all and terms and rows.has_none_of(terms)):
                    return []
                condition = EVERYTHING if reads_all else where
                hits = await self._by_words(match, limit, condition, ["_rowid", "_score"])
                positions = rows.positions(hits["_rowid"].to_numpy())
                if positions is not None:  # otherwise a commit came meanwhile
                    return _listed(rows, positions, hits["_score"].to_numpy() / rarest)
            hits = await self._by_words(match, limit, where, [*CHUNK_COLUMNS, "vector", "_score"])
        scores = hits["_score"].to_numpy() / rarest
        return _scored(self._stored_chunks(hits), scores)

    async def _by_words(self, match: FullTextQuery, limit: int, where: str, columns: list[str]) -> pa.Table:
        query = self._chunks.query().nearest_to_text(match)
        return await self._table(query.where(where).select(columns).limit(limit))

    async def _kept(self, where: str, version: int) -> tuple[RowsInMemory, Positions] | None:
        """The table's rows in memory and those among them that satisfy the predicate, None without a copy."""
        return await self.memory.selection(where, version, self._table) if self.memory else None

    async def _rarest(self) -> float:
        """The weight of a word that only one chunk contains."""
        return log(max(await self._count(), 2))

    async def _count(self) -> int:
        """How many chunks there are; cached like the summaries."""
        if self._chunk_count is None:
            self._chunk_count = await self._chunks.count_rows()
        return self._chunk_count

    async def chunks(self, ids: Sequence[str], where: str) -> list[StoredChunk]:
        """The chunks of these ids that exist, of any generation, in no order."""
        if not ids:
            return []
        rows = await self.chunk_rows(
            lambda query: query.where(f"{schema.one_of('id', ids)} AND {where}").select(
                [*CHUNK_COLUMNS, "vector"]
            )
        )
        return self._stored_chunks(rows)

    def _stored_chunks(self, rows: pa.Table) -> list[StoredChunk]:
        return stored_chunks(rows, rounded_vectors(schema.vectors_of(rows)) if self.memory else None)

    async def chunk_rows(self, build: Callable[[lancedb.AsyncQuery], object]) -> pa.Table:
        """The rows of a query of the chunk table, which `build` makes from a blank one."""
        with engine_errors("reading chunks"):
            return await self._table(build(self._chunks.query()))

    async def bodies(self) -> list[str]:
        """What is embedded of each chunk, of any generation, in no order. There is no time limit."""
        with engine_errors("reading chunks"):
            rows = await self._chunks.query().select(["body"]).to_arrow()
        return cast("list[str]", rows["body"].to_pylist())

    async def attempt(self, reading: Awaitable[T], nothing: T) -> T:  # noqa: ARG002 of attached tables
        """The result of a reading. Attached tables have `nothing` if it fails."""
        return await reading

    async def source_count(self) -> int:
        """The number of sources, whoever may see them."""
        with engine_errors("counting"):
            return await self._sources.count_rows()

    async def source_batches(
        self, where: str, columns: list[str], rows: int
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Sources that satisfy the predicate, in batches of at most so many rows, as they are read.

        There is no time limit: one of the engine's would lose what was read before. If the table version was
        pruned meanwhile, it begins anew: a source can then come twice.
        """
        with engine_errors("reading sources"):
            try:
                async for batch in await self._stream(where, columns, rows):
                    yield batch
            except RuntimeError as error:
                if "Not found" not in str(error):
                    raise
                await self._sources.checkout_latest()  # type: ignore[no-untyped-call]
                async for batch in await self._stream(where, columns, rows):
                    yield batch

    async def _stream(self, where: str, columns: list[str], rows: int) -> AsyncIterator[pa.RecordBatch]:
        query = self._sources.query().where(where).select(columns)
        return cast(
            "AsyncIterator[pa.RecordBatch]",
            await query.to_batches(max_batch_length=rows),
        )

    async def chunks_touching(
        self, source: StoredSource, start: int, end: int, where: str
    ) -> tuple[Chunk, ...]:
        """The visible chunks of a source that touch its text[start:end], in order.

        Raises:
            BusyError: the source was replaced since it was read.
        """
        return await self._visible(source, f"(start < {end:d}) AND (end > {start:d}) AND {where}")

    async def chunks_between(
        self, source: StoredSource, first: int, last: int, where: str
    ) -> tuple[Chunk, ...]:
        """The visible chunks of a source whose seq is from `first` to `last`, both included, in order.

        Raises:
            BusyError: the source was replaced since it was read.
        """
        return await self._visible(source, f"(seq >= {first:d}) AND (seq <= {last:d}) AND {where}")

    async def _visible(self, source: StoredSource, condition: str) -> tuple[Chunk, ...]:
        visible = f"(source_id = {literal(source.source.id)}) AND (generation = {literal(source.generation)})"
        with engine_errors("reading chunks"):
            rows = await self._rows(
                self._chunks.query().where(f"{visible} AND {condition}").select(CHUNK_COLUMNS)
            )
        if not rows and await self._is_replaced(source):
            raise BusyError("The source is being replaced. Try again.")
        return tuple(sorted((chunk_of_row(row) for row in rows), key=lambda chunk: chunk.seq))

    async def _is_replaced(self, source: StoredSource) -> bool:
        now = (await self.sources([source.source.id])).get(source.source.id)
        return now is None or now.generation != source.generation

    async def sources(self, ids: Iterable[str]) -> dict[str, StoredSource]:
        """The sources of these ids that exist now, each with who may see it now.

        Summaries are cached until the next commit to sources or rights, of any process: asking for the
        versions costs 0.2 ms, reading eight rows 1.8 ms. Missing ids are cached, too: otherwise the response
        time would distinguish them from sources that the caller may not see.
        """
        with engine_errors("reading sources"):
            await self._forget_if_changed()
            cache = self._summaries
            chosen = set(ids)
            if missing := chosen - cache.keys():
                query = self._sources.query().where(schema.one_of("id", missing))
                rows = await self._rows(query.select(schema.SUMMARY_COLUMNS).limit(len(missing)))
                cache |= dict.fromkeys(missing) | await self._with_access(rows)
        return {id_: source for id_ in chosen if (source := cache[id_])}

    async def text(self, source_id: str) -> tuple[StoredSource, tuple[Heading, ...], str] | None:
        """A source with its outline and whole text, None if it doesn't exist."""
        with engine_errors("reading a source"):
            query = self._sources.query().where(schema.one_of("id", [source_id]))
            rows = await self._rows(query.select(schema.SOURCES_SCHEMA.names).limit(1))
        if not rows:
            return None
        (row,) = rows
        await self._access.refresh()  # after reading the text, so that a right taken away meanwhile counts
        stored = (await self._with_access(rows))[source_id]
        return stored, schema.outline_record(row["outline"]), row["text"]

    async def attributes(self) -> Mapping[str, Mapping[str, Value]] | None:
        """What can be filtered by without being declared, of every source by id: title, path and date.

        None if the sources are not known before a search.

        Cached until the next commit to sources or rights, for up to `SOURCES_KEPT` sources.
        """
        with engine_errors("reading sources"):
            await self._forget_if_changed()
            if (attributes := self._attributes) is None:
                columns = ["id", "title", "date", "metadata"]
                rows = await self._rows(self._sources.query().select(columns))
                attributes = {
                    row["id"]: schema.attributes(
                        row["title"], json.loads(row["metadata"]).get("path"), row["date"]
                    )
                    for row in rows
                }
                self._attributes = attributes if len(attributes) <= SOURCES_KEPT else None
        return attributes

    async def expiries(self) -> Mapping[str, datetime]:
        """When those sources expire that do, by id. Cached until the next commit to sources or rights."""
        with engine_errors("reading sources"):
            await self._forget_if_changed()
            if (expiries := self._expiries) is None:
                query = self._sources.query().select(["id", "metadata", "date", "fields", "ingested_at"])
                keep_days, rows = self.collection.keep_days, await self._rows(query)
                expiries = self._expiries = {
                    row["id"]: expiry for row in rows if (expiry := schema.expiry_of(row, keep_days))
                }
        return expiries

    async def listing(self) -> list[Source]:
        """All sources, ordered by id."""
        return [stored.source for stored in await self.all_sources()]

    async def all_sources(self) -> list[StoredSource]:
        """All sources, ordered by id, with who may see them; not those whose removal is in force."""
        with engine_errors("listing sources"):
            rows = await self._rows(self._sources.query().select(schema.SUMMARY_COLUMNS))
        await self._access.refresh()
        removed = await self._access.tombstones()
        stored = (await self._with_access([row for row in rows if row["id"] not in removed])).values()
        return sorted(stored, key=lambda source: source.id)

    async def page(self, after: str, limit: int, where: str) -> list[ListedSource]:
        """Up to `limit` sources whose ids follow `after` and whose labels satisfy the predicate, in order.

        Fewer only if there are no more: a record whose source has just been removed doesn't count.
        """
        await self._access.refresh()
        page: list[ListedSource] = []
        while missing := limit - len(page):
            chosen = await self._access.page(self.collection.name, after, missing, where)
            sources = await self.sources(chosen)
            page += [
                ListedSource(source, source.generation, revision)
                for id_, revision in chosen.items()
                if (source := sources.get(id_))
            ]
            if len(chosen) < missing:
                break
            *_, after = chosen
        return page

    async def matching_sources(
        self, where: str, *, after: str = "", first: int | None = None, rows: int | None = None
    ) -> list[ListedSource]:
        """The sources whose ids follow `after` and whose first chunk satisfies the predicate, in order.

        With `first`, so many of them; with `rows`, those of any so many chunks.
        """
        condition = f"(seq = 0) AND (source_id > {literal(after)}) AND {where}"

        def first_chunks(query: lancedb.AsyncQuery) -> object:
            selected = query.where(condition).select(["source_id", "generation", "revision"])
            return selected if rows is None else selected.limit(rows)

        chosen = (await self.chunk_rows(first_chunks)).to_pylist()
        ids = {*sorted({row["source_id"] for row in chosen})[:first]}
        sources = await self.sources(ids)
        listed = [
            ListedSource(source, row["generation"], row["revision"])
            for row in chosen
            if (source := sources.get(row["source_id"]))
        ]
        # While a source is replaced, it has first chunks of two generations.
        listed.sort(key=lambda one: one.generation == one.stored.generation)
        by_id = {entry.stored.source.id: entry for entry in listed}
        return [by_id[id_] for id_ in sorted(by_id)]

    async def walk(self, where: str, beginning: str | None = None) -> AsyncIterator[list[StoredSource]]:
        """All sources whose labels satisfy the predicate, some at a time, in no order.

        With a `beginning`, in lower case, only those whose id, title or path has it, whatever its case.
        """
        await self._access.refresh()
        chosen = list(await self._access.page(self.collection.name, "", MAX_LISTED, where))
        with engine_errors("listing sources"):
            rows = await self._table(self._sources.query().select(schema.SUMMARY_COLUMNS))
        rows = rows.filter(pc.is_in(rows["id"], pa.array(chosen, pa.string())))
        if beginning is not None:
            rows = rows.filter(schema.begin_with(rows, beginning))
        for start in range(0, rows.num_rows, WALKED):
            yield [*(await self._with_access(rows.slice(start, WALKED).to_pylist())).values()]
            await anyio.lowlevel.checkpoint()  # converting a row takes 20 us, during which nobody else runs

    async def sizes(self, ids: Iterable[str]) -> dict[str, int]:
        """The lengths of the texts of sources in bytes of UTF-8, by id; the engine counts them."""
        query = self._sources.query().where(schema.one_of("id", ids))
        with engine_errors("measuring sources"):
            rows = await self._rows(query.select({"id": "id", "size": "octet_length(text)"}))
        return {row["id"]: row["size"] for row in rows}

    async def version(self) -> tuple[int, int]:
        """Changes with every commit to the sources or to the rights of the tenant."""
        with engine_errors("reading sources"):
            return await self._sources.version(), await self._access.refresh()

    async def places(self, where: str) -> list[SourcePlace]:
        """Where all sources stand whose labels satisfy the predicate, in no order.

        It reads only what that takes: 9 us a source, where a summary takes 25.
        """
        with engine_errors("listing sources"):
            rows = await self._table(self._sources.query().select(PLACE_COLUMNS))
        await self._access.refresh()
        access = await self._access.matching_records(self.collection.name, where)
        return await to_thread.run_sync(places_of, rows, access, self.collection.fields)

    async def open_documents(self) -> int:
        """How many sources everybody in the tenant may see who isn't denied them."""
        await self._access.refresh()
        return len(
            await self._access.matching_records(
                self.collection.name, predicate(Principal(self.collection.tenant))
            )
        )

    async def has_any(self, where: str) -> bool:
        """Whether any source's labels satisfy the predicate, as of the tenant's last `DeskReader.refresh`."""
        return await self._access.has_any(self.collection.name, where)

    async def uncopied_records(self) -> tuple[AccessRecord, ...]:
        """The access records of sources whose chunks have stale labels, or wait for their deletion: few.

        As of the tenant's last `DeskReader.refresh`.
        """
        name = self.collection.name
        return tuple(record for record in await self._access.uncopied_records() if record.collection == name)

    async def _forget_if_changed(self) -> None:
        version = await self._sources.version(), await self._access.refresh()
        if version != self._version or len(self._summaries) > SOURCES_KEPT:
            self._summaries, self._version = {}, version
            self._attributes = self._chunk_count = self._expiries = None

    async def statistics(self) -> Statistics:
        """Numbers for operators."""
        with engine_errors("counting"):
            indexes = await self._chunks.list_indices()
            rows = await self._rows(self._sources.query().select(["digest"]))
            return Statistics(
                sources=len(rows),
                chunks=await self._chunks.count_rows(),
                without_vector=sum(schema.split_digest(row["digest"])[1] for row in rows),
                indexes=tuple(sorted(f"{index.columns[0]} ({index.index_type})" for index in indexes)),
                unindexed=max((index.num_unindexed_rows or 0 for index in indexes), default=0),
            )

    async def _with_access(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, StoredSource]:
        """The sources of rows, by id, with their access records."""
        access = await self._access.records(row["id"] for row in rows)
        return {row["id"]: self._stored(row, access[row["id"]]) for row in rows}

    def _stored(self, row: Mapping[str, Any], access: Access | None) -> StoredSource:
        fields = schema.fields_record(row["fields"], self.collection.fields)
        return StoredSource(self._source(row), row["generation"], access, fields)

    def _source(self, row: Mapping[str, Any]) -> Source:
        source = schema.source_record(row, self.collection.name)
        if source.url or not self._url:
            return source
        return replace(source, url=page_address(self._url, source.metadata.get("path", "")))

    async def _rows(self, query: Any) -> list[dict[str, Any]]:  # noqa: ANN401 as below
        return (await self._table(query)).to_pylist()

    async def _table(self, query: Any) -> pa.Table:  # noqa: ANN401 the engine's query classes share no base
        """Run a query; repeat it once if its table version was pruned meanwhile."""
        try:
            return cast("pa.Table", await query.to_arrow(timeout=self._timeout))
        except RuntimeError as error:
            if "Not found" not in str(error):
                raise
            for table in (self._chunks, self._sources):
                await table.checkout_latest()  # type: ignore[no-untyped-call]
            return cast("pa.Table", await query.to_arrow(timeout=self._timeout))

    async def words_column(self) -> str:
        """The column that the full-text index is on.

        Without an index, the engine would silently scan the texts, with other rules for words.

        Raises:
            NotReadyError: there is none.
        """
        await self.look_at_indexes()
        if not self._words[1]:
            raise NotReadyError(
                f"The collection {self.collection.name!r} has no full-text index, so it can't be searched in "
                "mode sparse or hybrid. Run refdesk-admin ingest again to build it, or use mode dense.",
                for_caller=f"The collection {self.collection.name!r} can't be searched by words yet. "
                "Use mode dense.",
            )
        return self._words[1]

    async def look_at_indexes(self) -> None:
        """Note which indexes the newest version has, and in `index_bytes` how large they are together."""
        with engine_errors("listing indexes"):
            version = await self._chunks.version()
            if self._words[0] != version:
                indexes = await self._chunks.list_indices()
                indexed = {name for index in indexes for name in index.columns}
                self._words = version, schema.TERMS if schema.TERMS in indexed else ""
                self.index_bytes = sum(index.size_bytes or 0 for index in indexes)
                if self._superseded:
                    self._superseded.saw(self._chunks.name, self.index_bytes)


def words_in(column: str, words: Iterable[str], *, every: bool) -> MatchQuery:
    """The engine's query for rows that have any of these words in a column, or every one."""
    operator = FullTextOperator.AND if every else FullTextOperator.OR
    return MatchQuery(" ".join(words), column, operator=operator)  # type: ignore[call-arg]  # the rest defaults


def matching(words: Sequence[Word], *, every: bool) -> FullTextQuery:
    """The engine's query for chunks that have any of these words in any form, or every one in some form."""
    if not every:
        return words_in(schema.TERMS, search_terms(words), every=False)
    words = words[:MAX_TERMS]
    if all(len(word.forms) == 1 for word in words):
        return words_in(schema.TERMS, (term for word in words for term in word.forms[0]), every=True)
    return BooleanQuery([(Occur.MUST, _in_any_form(word)) for word in words])


def _in_any_form(word: Word) -> FullTextQuery:
    forms = [words_in(schema.TERMS, form, every=True) for form in word.forms]
    return BooleanQuery([(Occur.SHOULD, query) for query in forms])


def _listed(rows: RowsInMemory, positions: Positions, scores: npt.NDArray[np.floating]) -> Ranking:
    return _scored(stored_chunks(rows.columns.take(positions), rows.vectors(positions)), scores)


def _measured(rows: pa.Table, vector: npt.NDArray[np.float32]) -> Ranking:
    """The list that there would be of rows in memory."""
    vectors = rounded_vectors(schema.vectors_of(rows))
    similarities = cosines(vectors, vector)
    order = np.lexsort((rows["_rowid"].to_numpy(), -similarities))
    return _scored(stored_chunks(rows.take(order), vectors[order]), similarities[order])


def _scored(chunks: Iterable[StoredChunk], scores: npt.NDArray[np.floating]) -> Ranking:
    return [ScoredChunk(stored, score) for stored, score in zip(chunks, scores.tolist(), strict=True)]
