"""The stages of ingestion, each alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from anyio.lowlevel import checkpoint

from rag.bench.engine import TENANT
from rag.bench.stock import new_source
from rag.config.settings import DEFAULT_COLLECTION, ChunkingSettings, IngestSettings
from rag.ingest.chunk import passages
from rag.ingest.discover import discover, read
from rag.ingest.parse import parse
from rag.ingest.run import WAVE_CHUNKS
from rag.store.schema import body
from rag.store.writer import ensure_collection, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rag.bench.stock import Bench
    from rag.corpus import Document, Passage, Vectors

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document and its chunks."""

    document: Document
    passages: Sequence[Passage]

    def texts(self) -> Iterator[str]:
        """What is embedded of each chunk."""
        for one in self.passages:
            yield body(one.context, self.document.text[one.start : one.end])


async def prepared(bench: Bench, folder: Path) -> tuple[list[Chunked], dict[str, list[float]]]:
    """The documents in chunks, and the seconds that each stage took for all of them, several times."""
    found = discover([folder], IngestSettings()).found.values()
    most = IngestSettings().max_file_bytes
    limit = min(ChunkingSettings().max_tokens, bench.embedder.window)
    spans = bench.embedder.token_spans
    files, reading = await _timed(bench, lambda: [(read(one, most), one.name) for one in found])
    documents, parsing = await _timed(bench, lambda: [parse(data, name) for data, name in files])
    chunked, chunking = await _timed(
        bench, lambda: [Chunked(one, passages(one, token_spans=spans, limit=limit)) for one in documents]
    )
    return chunked, {"read": reading, "parse": parsing, "chunk": chunking}


async def _timed(bench: Bench, work: Callable[[], T]) -> tuple[T, list[float]]:
    taken = []
    for _ in range(bench.sizes.rounds):
        await checkpoint()  # an interruption ends it here
        began = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - began)
    return result, taken


async def embedded(bench: Bench, texts: Sequence[str]) -> tuple[float, Vectors]:
    """Chunks a second, and the vectors."""
    bench.say(f"embedding {len(texts):,} chunks")
    began = time.perf_counter()
    vectors = await bench.embedder.embed(texts, "document")
    return len(texts) / (time.perf_counter() - began), vectors


async def written(bench: Bench, chunked: Sequence[Chunked], vectors: Vectors) -> tuple[list[float], float]:
    """Chunks a second of each commit, and of what `finish` does. The vectors are any chunks'."""
    data = bench.folder / "written"
    collection = await ensure_collection(data, TENANT, DEFAULT_COLLECTION, bench.embedder.identity)
    counts = [len(one.passages) for one in chunked]
    parts = np.split(np.resize(vectors, (sum(counts), vectors.shape[1])), np.cumsum(counts)[:-1])
    rates = []
    async with open_writer(data, collection) as writer:
        sources = [
            new_source(writer, f"Document {at}", one.document.text, one.passages, part)
            for at, (one, part) in enumerate(zip(chunked, parts, strict=True))
        ]
        for wave in _waves(sources, counts):
            began = time.perf_counter()
            await writer.replace(wave)
            rates.append(sum(len(one.passages) for one in wave) / (time.perf_counter() - began))
        began = time.perf_counter()
        await writer.finish()
        return rates, sum(counts) / (time.perf_counter() - began)


def _waves(items: Sequence[T], chunks: Sequence[int]) -> Iterator[list[T]]:
    """The items in commits as large as a run's."""
    wave: list[T] = []
    room = WAVE_CHUNKS
    for item, count in zip(items, chunks, strict=True):
        wave.append(item)
        room -= count
        if room <= 0:
            yield wave
            wave, room = [], WAVE_CHUNKS
    if wave:
        yield wave
