"""A desk small enough for tests: an embedder without a model, sources without files, ingestion with both.

Tests get this module as a fixture. Run as a script it is a writing process of its own, which says
"ready" when it has imported everything and begins at a line on its standard input.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

import rag.ingest.ingest_run
import rag.store.write.locks
from rag.config.settings import IngestSettings
from rag.corpus import Access, Chunking, EmbedderIdentity, Heading, Passage, Source
from rag.home import Bucket, Home
from rag.ingest.ingest_run import Executor, Instructions, ingest
from rag.ingest.report import Progress
from rag.ingest.requested_access import Rights
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget
from rag.models.embed import unit_rows
from rag.store.write.access_claim import Claim, Policy
from rag.store.write.access_writer import access_table, change_access
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import NewSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    import numpy.typing as npt

    from rag.corpus import Vectors
    from rag.ingest.report import Report
    from rag.models.embed import Embedder, TextKind
    from rag.search import Desk
    from rag.store.write.collection_writer import CollectionWriter

DIMENSION = 32
NOBODY = 65534  # the user without rights
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class BagOfWords:
    """Texts that share words are near each other: each word adds a direction of its own."""

    identity: EmbedderIdentity = field(default=EmbedderIdentity("tests", "bag-of-words", DIMENSION))
    window: int = 256

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in _TOKEN.finditer(text)]

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 the protocol's
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 the protocol's
        return vectors(texts)


def vectors(texts: Sequence[str]) -> Vectors:
    """What the bag of words makes of texts."""
    return unit_rows(np.stack([_bag(text) for text in texts]))


def _bag(text: str) -> npt.NDArray[np.float32]:
    words = _TOKEN.findall(text.casefold()) or [""]
    bag: npt.NDArray[np.float32] = np.sum([_direction(word) for word in words], axis=0)
    return bag


@lru_cache(1 << 14)
def _direction(word: str) -> npt.NDArray[np.float32]:
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)


@dataclass(slots=True)
class Counting:
    """An embedder that remembers what it embeds."""

    embedder: Embedder
    texts: list[str] = field(default_factory=list)

    @property
    def identity(self) -> EmbedderIdentity:
        return self.embedder.identity

    @property
    def window(self) -> int:
        return self.embedder.window

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self.embedder.token_spans(text)

    def vocabulary_share(self, text: str) -> float:
        return self.embedder.vocabulary_share(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        self.texts += texts
        return await self.embedder.embed(texts, kind)


async def ingested(  # noqa: PLR0913 what a run takes
    data: Home,
    *paths: Path,
    tenant: str = "default",
    collection: str = "documents",
    embedder: Embedder | None = None,
    settings: IngestSettings | None = None,
    chunking: Chunking | None = None,
    progress: Progress | None = None,
    executor: Executor = Executor(),  # noqa: B008 frozen
) -> Report:
    """Ingest as `refdesk-admin ingest` does, with the bag of words where no embedder is given."""
    embedder = embedder or BagOfWords()
    stored = await ensure_collection(
        data, tenant, collection, embedder.identity, chunking=(chunking,) if chunking else ()
    )
    async with open_writer(data, stored) as writer:
        return await ingest(
            writer,
            embedder,
            paths,
            Instructions(
                settings or IngestSettings(),
                Rights(stored.visibility),
                executor=executor,
            ),
            progress or Progress(),
        )


async def writing(
    data: Home, tenant: str = "default", collection: str = "documents"
) -> AbstractAsyncContextManager[CollectionWriter]:
    """A collection, made if need be, to be opened for writing."""
    return open_writer(data, await ensure_collection(data, tenant, collection, BagOfWords().identity))


def new_source(
    writer: CollectionWriter, name: str, *paragraphs: str, id_: str | None = None, **details: object
) -> NewSource:
    """A source with a passage for each paragraph; the first paragraph is its only heading.

    With a `header`, the paragraphs are rows of the table that it heads.
    """
    context = "\n".join(filter(None, (name, str(details.pop("header", "")))))
    text = "\n\n".join(paragraphs)
    ends = np.cumsum([len(paragraph) + 2 for paragraph in paragraphs])
    passages = [
        Passage(seq, int(end) - 2 - len(paragraph), int(end) - 2, (paragraphs[0],), context, seq + 1, 9)
        for seq, (paragraph, end) in enumerate(zip(paragraphs, ends, strict=True))
    ]
    values: dict[str, object] = {
        "id": id_ or writer.ids.of(name),
        "collection": writer.collection.name,
        "uri": name,
        "title": name,
        "mime_type": "text/plain",
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "chunk_count": len(passages),
        "length": len(text),
        "ingested_at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    }
    access: Any = details.pop("access", Access("tenant"))
    policy = Policy.REPLACE if details.pop("set_access", False) else Policy.KEEP
    chosen = {name: details.pop(name) for name in ("fields",) if name in details}
    source = Source(**values | details)  # type: ignore[arg-type]
    outline = (Heading(paragraphs[0], 1, 0),)
    options: dict[str, Any] = {"claim": Claim(access, policy)} | chosen
    return NewSource(source, text, outline, passages, vectors(paragraphs), **options)


async def put(
    data: Home,
    name: str,
    *paragraphs: str,
    tenant: str = "default",
    collection: str = "documents",
    finishes: bool = False,
    **details: Any,  # noqa: ANN401 as of `new_source`
) -> None:
    """Store a source, as `new_source` makes it, by a writer of its own, which `finishes` its indexes."""
    async with await writing(data, tenant, collection) as writer:
        await writer.replace([new_source(writer, name, *paragraphs, **details)])
        if finishes:
            await writer.finish()


async def rows_in_memory(desk: Desk) -> None:
    """Wait until the rows of the tables that the desk has searched are in memory."""
    for table in desk._reader._open.values():  # noqa: SLF001 what happens behind the searches
        if table.memory and table.memory.copying:
            await table.memory.copying


async def recorded(data: Path, source_id: str, access: Access, tenant: str = "default") -> None:
    """Change who may see a source, and say that the chunks hold it already, which they don't."""
    async with access_table(data, tenant) as table:
        (record,) = (await table.of([source_id])).values()
        revision = record.access.revision if record.access else 0
        await table.put([replace(record, access=replace(access, revision=revision), copied=True)])


def generation(number: int) -> list[str]:
    """The paragraphs of a text that tells its generation in each, and has more or fewer of them."""
    return [f"pendulum of generation{number} part{part}" for part in range(2 + number % 5)]


@contextmanager
def without_rights(folder: Path) -> Iterator[Path]:
    """A folder in which permissions count: root gives up its rights meanwhile, and gets another folder."""
    if os.geteuid():
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY, NOBODY)
        codecs.lookup("utf-8-sig")  # Python itself may lie in a folder of root's
        os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


async def started_parser() -> None:
    """Start the parser process of this event loop, with the rights of before `without_rights`.

    Python itself may lie in a folder of root's.
    """
    user = os.geteuid()
    os.seteuid(os.getuid())
    try:
        await parse_safely(b"text", "a.txt", budget=Budget(60))
    finally:
        os.seteuid(user)


def _home(data: str) -> Home:
    """A data folder, or the bucket that the environment says how to reach."""
    if "://" not in data:
        return Path(data)
    options = {
        name.removeprefix("REFDESK_STORAGE_OPTIONS_").lower(): value
        for name, value in os.environ.items()
        if name.startswith("REFDESK_STORAGE_OPTIONS_")
    }
    return Bucket(data, options, local=Path(os.environ["REFDESK_DATA"]))


async def _ingest(data: str, *paths: str) -> None:
    rag.ingest.ingest_run.WAVE_CHUNKS = 5  # many commits, to be killed between
    rag.store.write.locks.LEASE_SECONDS = 1.0  # that the next one must wait after a kill
    await ingested(_home(data), *map(Path, paths))


async def _write(data: str, name: str, *paragraphs: str) -> None:
    async with await writing(_home(data)) as writer:
        await writer.replace([new_source(writer, name, *paragraphs)])


async def _replace(data: str, name: str, times: str) -> None:
    async with await writing(_home(data)) as writer:
        unchanged = [new_source(writer, str(number), *(["word " * 99] * 9)) for number in range(99)]
        for number in range(int(times)):
            await writer.replace([new_source(writer, name, *generation(number)), *unchanged])
        await writer.finish()


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201 the parent waits for it
    sys.stdin.readline()
    os.fsync = lambda fd: None  # noqa: ARG005 as in the tests themselves
    work: dict[str, Callable[..., Awaitable[None]]]
    work = {"ingest": _ingest, "write": _write, "replace": _replace}
    anyio.run(work[sys.argv[1]], *sys.argv[2:])


async def set_access(writer: CollectionWriter, records: Mapping[str, Access]) -> None:
    """Set the access of sources, as `refdesk-admin access set` does."""
    for id_, access in records.items():
        await change_access(writer.data, writer.collection.tenant, [id_], partial(_to, access))
    await writer.copy_labels()


def _to(access: Access, _before: Access | None) -> Access:
    return access


async def access_in(writer: CollectionWriter, ids: Iterable[str]) -> dict[str, Access | None]:
    """Who may see these sources; those that don't exist are left out."""
    records = await writer.records()
    return {id_: record.access for id_ in ids if (record := records.get(id_)) and record.present}
