"""What the parts share: sizes, a workbench, and data folders with collections of any size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from rag.config.settings import DEFAULT_COLLECTION
from rag.corpus import Access, Passage, Source
from rag.ingest.prepare import content_digest
from rag.models.embed import unit_rows
from rag.store.write.access_claim import Claim
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import NewSource
from tests.bench.corpus import SEED, GrowingVocabulary
from tests.bench.engine import TENANT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rag.corpus import FieldType, Vectors
    from rag.models.embed import Embedder
    from rag.store.write.collection_writer import CollectionWriter

SOURCE_CHUNKS = 10
FIELDS: Mapping[str, FieldType] = {"number": "integer", "tags": "string list"}
TAGS = ("old", "new")  # each source has one of them
DENIED_GROUP = "guests"  # may not see every tenth source
WAVE_SOURCES = 500  # per commit
FEWEST, MOST = 3, 5  # sentences per chunk
GROWS_FROM = 50_000  # chunks: the words of smaller collections are those of the sentences


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Tests use less."""

    searches: int = 96  # of each kind
    starts: int = 11  # of each server; half as many with many tenants
    rounds: int = 3  # of whatever takes seconds
    small: int = 4_000  # chunks of the collection of an ordinary user
    collection: int = 10_000  # chunks of the collection that most parts use
    large: tuple[int, ...] = ()  # chunks of collections that are searched, too
    index: tuple[int, ...] = (100_000,)  # chunks
    tenants: tuple[int, ...] = (1, 100, 2_000)
    tenant: int = 1_000  # chunks of each tenant
    files: int = 100  # for ingestion
    changes: int = 100  # of one document each
    book: int = 5_000  # chunks of the long source

    @property
    def searched(self) -> tuple[int, ...]:
        """The chunks of each collection in which searches and memory are measured."""
        return (self.small, self.collection, *self.large)

    @property
    def changed(self) -> tuple[int, ...]:
        """The chunks of each collection in which a document is changed."""
        return tuple(dict.fromkeys((self.collection, *self.index)))


LARGE = Sizes(large=(60_000,), index=(100_000, 1_000_000))


@dataclass(frozen=True, slots=True)
class Bench:
    """The workbench of a run: a temporary folder, an embedder, sentences with their vectors.

    `say` prints a line of progress.
    """

    folder: Path
    embedder: Embedder
    sentences: Sequence[str]
    vectors: Vectors
    sizes: Sizes
    say: Callable[[str], None]


async def stocked(bench: Bench, chunks: int) -> Path:
    """A data folder with one collection of so many chunks, made at the first call.

    A chunk is a few real sentences, and its vector is the mean of theirs. In a large collection, the number
    of distinct words grows with the texts, as in a real one (`GrowingVocabulary`). The chunks go through the
    writer, as ingested ones do, so tables and indexes are the real ones.
    """
    data = bench.folder / f"{chunks} chunks"
    if data.exists():
        return data
    bench.say(f"making a collection of {chunks:,} chunks")
    identity = bench.embedder.identity
    collection = await ensure_collection(data, TENANT, DEFAULT_COLLECTION, identity, fields=FIELDS)
    chance = np.random.default_rng(SEED)
    numbers = chance.permutation(chunks // SOURCE_CHUNKS).tolist()
    vocabulary = GrowingVocabulary(bench.sentences, chance) if chunks >= GROWS_FROM else None
    async with open_writer(data, collection) as writer:
        for first in range(0, len(numbers), WAVE_SOURCES):
            wave = numbers[first : first + WAVE_SOURCES]
            await writer.replace(
                [_guarded(_made_up(bench, writer, number, chance, vocabulary), number) for number in wave]
            )
        await writer.finish()
    return data


def _made_up(
    bench: Bench,
    writer: CollectionWriter,
    number: int,
    chance: np.random.Generator,
    vocabulary: GrowingVocabulary | None,
) -> NewSource:
    chosen = [
        chance.integers(0, len(bench.sentences), chance.integers(FEWEST, MOST + 1))
        for _ in range(SOURCE_CHUNKS)
    ]
    texts = [" ".join(bench.sentences[at] for at in some) for some in chosen]
    if vocabulary:
        texts = [vocabulary.grown(text) for text in texts]
    means = np.stack([bench.vectors[some].mean(axis=0) for some in chosen])
    vectors = unit_rows(means)
    return new_source(writer, f"Document {number}", "\n\n".join(texts), paragraphs(texts), vectors)


def _guarded(new: NewSource, number: int) -> NewSource:
    """The source with fields to filter by; every tenth one is denied to guests."""
    denied = frozenset({f"group:{DENIED_GROUP}"} if number % 10 == 9 else ())
    access = Access("tenant", deny=denied)
    return replace(new, claim=Claim(access), fields={"number": number, "tags": (TAGS[number % 2],)})


def paragraphs(texts: Sequence[str]) -> list[Passage]:
    """The passages of these texts joined by blank lines."""
    ends = np.cumsum([len(text) + 2 for text in texts]).tolist()
    return [
        Passage(seq, end - 2 - len(text), end - 2, (), "", None, len(text) // 4)
        for seq, (text, end) in enumerate(zip(texts, ends, strict=True))
    ]


def new_source(
    writer: CollectionWriter, title: str, text: str, passages: Sequence[Passage], vectors: Vectors
) -> NewSource:
    """A source as ingestion passes it to the writer."""
    uri = f"bench:{title}"
    source = Source(
        id=writer.ids.of(uri),
        collection=writer.collection.name,
        uri=uri,
        title=title,
        mime_type="text/markdown",
        digest=content_digest(text.encode()),
        chunk_count=len(passages),
        length=len(text),
        ingested_at=datetime.now(UTC),
    )
    return NewSource(source, text, (), passages, vectors, Claim(Access("tenant")))
