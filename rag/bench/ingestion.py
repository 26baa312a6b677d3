"""Ingestion, stage by stage and as a whole, against the embedder alone; and what it leaves on the disk."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from rag.bench.corpus import write_documents
from rag.bench.measure import measured
from rag.bench.memory import watch_memory
from rag.bench.process import running, script
from rag.bench.stages import embedded, prepared, written
from rag.errors import RefdeskError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.bench.measure import Measure
    from rag.bench.stages import Chunked
    from rag.bench.stock import Bench
    from rag.corpus import Vectors

EMBEDDED = 500  # texts given to the embedder alone, before each whole run and after the last
COPIES = 4  # of the documents are written, enough for a vector index


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the installed command."""

    seconds: float
    peak_memory: float


async def measure_ingestion(bench: Bench) -> list[Measure]:
    """Each stage alone; the whole run with its start; the same again, when nothing has changed."""
    folder = bench.folder / "documents"
    write_documents(folder, bench.sentences, bench.sizes.files)
    bench.say(f"reading, parsing and chunking {bench.sizes.files} documents")
    chunked, seconds = await prepared(bench, folder)
    texts = [text for one in chunked for text in one.texts()]
    rate, vectors = await embedded(bench, texts[:EMBEDDED])
    alone, runs = [rate], []
    for at in range(bench.sizes.rounds):
        bench.say(f"ingesting {len(texts):,} chunks, {at + 1} of {bench.sizes.rounds}")
        runs.append(await _ingested(folder, bench.folder / f"ingested {at}"))
        alone.append((await embedded(bench, texts[:EMBEDDED]))[0])
    data = bench.folder / "ingested 0"
    bench.say("ingesting them again, unchanged")
    again = [(await _ingested(folder, data)).seconds for _ in range(bench.sizes.rounds)]
    bench.say("writing and indexing")
    writing, indexing = await written(bench, chunked * COPIES, vectors)
    rates = {stage: [len(texts) / some for some in taken] for stage, taken in seconds.items()}
    rates |= {"write": writing, "index": [indexing], "whole run": [len(texts) / run.seconds for run in runs]}
    return [
        *(measured(f"ingest/{stage}", some, "chunks/s", alone) for stage, some in rates.items()),
        measured("ingest/embed", alone, "chunks/s"),
        measured("ingest/unchanged", again, "s"),
        measured("ingest/peak memory", [run.peak_memory for run in runs], "MB"),
        _disk(data, chunked, vectors),
    ]


async def _ingested(folder: Path, data: Path) -> Run:
    memory: list[float] = []
    began = time.perf_counter()
    async with (
        running(script("refdesk-admin", data, "ingest", str(folder))) as process,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(watch_memory, process.pid, memory)
        code = await process.wait()
        seconds = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    if code:
        raise RefdeskError(f"refdesk-admin ingest ended with exit code {code}; it can't be measured.")
    return Run(seconds, max(memory))


def _disk(data: Path, chunked: Sequence[Chunked], vectors: Vectors) -> Measure:
    """Bytes for each chunk, against its text and its vector, which have to be stored at least."""
    chunks = sum(len(one.passages) for one in chunked)
    texts = sum(len(one.document.text.encode()) for one in chunked)
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    return measured("disk/per chunk", [size / chunks], "bytes", [texts / chunks + vectors[0].nbytes])
