"""Ingestion, step by step and as a whole, against the embedder alone, and the disk space it takes."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import numpy as np
from anyio.lowlevel import checkpoint

from rag.config.settings import DEFAULT_COLLECTION, IngestSettings
from rag.errors import RefdeskError
from rag.ingest.chunk import passages
from rag.ingest.discover import discover
from rag.ingest.ingest_run import WAVE_CHUNKS
from rag.ingest.parse.parsers import parse
from rag.ingest.prepare import CHUNK_TOKENS
from rag.ingest.source_files import read
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import body
from tests.bench.corpus import write_documents
from tests.bench.engine import TENANT
from tests.bench.measure import measured
from tests.bench.process import running, script
from tests.bench.stock import new_source
from tests.bench.timing import watch_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rag.corpus import Document, Passage, Vectors
    from tests.bench.measure import Measure
    from tests.bench.stock import Bench

T = TypeVar("T")
EMBEDDED = 500  # texts for the embedder alone, before each whole run and after the last
COPIES = 4  # of the documents are written: enough for a vector index


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the installed command."""

    seconds: float
    peak_memory: float


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document and its chunks."""

    document: Document
    passages: Sequence[Passage]

    def texts(self) -> Iterator[str]:
        """The text of each chunk that is embedded."""
        for passage in self.passages:
            yield body(passage.context, self.document.text[passage.start : passage.end])


async def measure_ingestion(bench: Bench) -> list[Measure]:
    """Each step alone, the whole run including its start, and the same again when nothing has changed."""
    folder = bench.folder / "documents"
    write_documents(folder, bench.sentences, bench.sizes.files)
    bench.say(f"reading, parsing and chunking {bench.sizes.files} documents")
    chunked, seconds = await _prepared(bench, folder)
    texts = [text for part in chunked for text in part.texts()]
    rate, vectors = await embedded(bench, texts[:EMBEDDED])
    alone, runs = [rate], []
    for at in range(bench.sizes.rounds):
        bench.say(f"ingesting {len(texts):,} chunks, {at + 1} of {bench.sizes.rounds}")
        runs.append(await ingested(folder, bench.folder / f"ingested {at}"))
        alone.append((await embedded(bench, texts[:EMBEDDED]))[0])
    data = bench.folder / "ingested 0"
    bench.say("ingesting them again, unchanged")
    again = [(await ingested(folder, data)).seconds for _ in range(bench.sizes.rounds)]
    bench.say("writing and indexing")
    writing, indexing = await _written(bench, chunked * COPIES, vectors)
    rates = {step: [len(texts) / some for some in round_seconds] for step, round_seconds in seconds.items()}
    rates |= {"write": writing, "index": [indexing], "whole run": [len(texts) / run.seconds for run in runs]}
    return [
        *(measured(f"ingest/{step}", some, "chunks/s", alone) for step, some in rates.items()),
        measured("ingest/embed", alone, "chunks/s"),
        measured("ingest/unchanged", again, "s"),
        measured("ingest/peak memory", [run.peak_memory for run in runs], "MB"),
        _disk(data, chunked, vectors),
    ]


async def ingested(folder: Path, data: Path) -> Run:
    """Ingest a folder by the installed command.

    Raises:
        RefdeskError: the command failed.
    """
    memory: list[float] = []
    began = time.perf_counter()
    async with (
        running(script("refdesk-admin", data, "ingest", str(folder)), stdout=subprocess.DEVNULL) as process,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watch_memory, process.pid, memory)
        code = await process.wait()
        seconds = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    if code:
        raise RefdeskError(f"refdesk-admin ingest failed with exit code {code}.")
    return Run(seconds, max(memory))


def _disk(data: Path, chunked: Sequence[Chunked], vectors: Vectors) -> Measure:
    """Bytes per chunk, against the bytes of its text and its vector."""
    chunks = sum(len(part.passages) for part in chunked)
    texts = sum(len(part.document.text.encode()) for part in chunked)
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    return measured("disk/per chunk", [size / chunks], "bytes", [texts / chunks + vectors[0].nbytes])


async def _prepared(bench: Bench, folder: Path) -> tuple[list[Chunked], dict[str, list[float]]]:
    """The documents in chunks, and the seconds of each step for all of them, once per round."""
    discovered = discover([folder], IngestSettings()).files.values()
    most = IngestSettings().max_file_bytes
    limit = min(CHUNK_TOKENS, bench.embedder.window)
    spans = bench.embedder.token_spans
    files, reading = await _timed(bench, lambda: [(read(file, most), file.name) for file in discovered])
    documents, parsing = await _timed(bench, lambda: [parse(data, name) for data, name in files])
    chunked, chunking = await _timed(
        bench,
        lambda: [
            Chunked(document, passages(document, token_spans=spans, limit=limit)) for document in documents
        ],
    )
    return chunked, {"read": reading, "parse": parsing, "chunk": chunking}


async def _timed(bench: Bench, work: Callable[[], T]) -> tuple[T, list[float]]:
    durations = []
    for _ in range(bench.sizes.rounds):
        await checkpoint()  # Ctrl-C takes effect here
        began = time.perf_counter()
        result = work()
        durations.append(time.perf_counter() - began)
    return result, durations


async def embedded(bench: Bench, texts: Sequence[str]) -> tuple[float, Vectors]:
    """Chunks per second of the embedder alone, and the vectors."""
    bench.say(f"embedding {len(texts):,} chunks")
    began = time.perf_counter()
    vectors = await bench.embedder.embed(texts, "document")
    return len(texts) / (time.perf_counter() - began), vectors


async def _written(bench: Bench, chunked: Sequence[Chunked], vectors: Vectors) -> tuple[list[float], float]:
    """Chunks per second of each commit, and of `finish`. Which chunk a vector belongs to doesn't matter."""
    data = bench.folder / "written"
    collection = await ensure_collection(data, TENANT, DEFAULT_COLLECTION, bench.embedder.identity)
    counts = [len(part.passages) for part in chunked]
    parts = np.split(np.resize(vectors, (sum(counts), vectors.shape[1])), np.cumsum(counts)[:-1])
    rates = []
    async with open_writer(data, collection) as writer:
        sources = [
            new_source(
                writer, f"Document {at}", document_in_chunks.document.text, document_in_chunks.passages, part
            )
            for at, (document_in_chunks, part) in enumerate(zip(chunked, parts, strict=True))
        ]
        for wave in _waves(sources, counts):
            began = time.perf_counter()
            await writer.replace(wave)
            rates.append(sum(len(source.passages) for source in wave) / (time.perf_counter() - began))
        began = time.perf_counter()
        await writer.finish()
        return rates, sum(counts) / (time.perf_counter() - began)


def _waves(items: Sequence[T], chunks: Sequence[int]) -> Iterator[list[T]]:
    """The items in batches as large as a run's commits."""
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
