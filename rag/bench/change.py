"""What one changed document costs in collections of different sizes: CPU time, and bytes written."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.bench.engine import TENANT
from rag.bench.measure import measured
from rag.bench.stock import SOURCE_CHUNKS, new_source, paragraphs, stocked
from rag.store.collections import open_writer
from rag.store.connection import database_folder
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.bench.measure import Measure
    from rag.bench.stock import Bench
    from rag.corpus import Collection

PASSAGES = 4
TIMEOUT_SECONDS = 60


async def measure_change(bench: Bench) -> list[Measure]:
    """Replacing documents of four passages, one by one, each from opening the collection to closing it.

    Now and then a change compacts the collection, so the mean and the worst are told beside the median. The
    smaller collection is the limit of the larger ones: a change should cost what it weighs.
    """
    measures: list[Measure] = []
    for size in bench.sizes.changed:
        cpu, written = await _changed(bench, size)
        made = [*_told(f"change/{size}/cpu", cpu, "ms"), *_told(f"change/{size}/written", written, "bytes")]
        if least := measures[: len(made)]:
            made = [replace(one, limit=other.value) for one, other in zip(made, least, strict=True)]
        measures += made
    return measures


def _told(name: str, values: Sequence[float], unit: str) -> list[Measure]:
    return [
        measured(name, values, unit),
        measured(f"{name}/mean", [statistics.fmean(values)], unit),
        measured(f"{name}/worst", [max(values)], unit),
    ]


async def _changed(bench: Bench, size: int) -> tuple[list[float], list[float]]:
    """The milliseconds of CPU time of each change, and the bytes in files that it added."""
    stock, data = await stocked(bench, size), bench.folder / f"{size} chunks, changed"
    await to_thread.run_sync(shutil.copytree, stock, data)
    (collection,) = await Reader(data, timeout_seconds=TIMEOUT_SECONDS).collections(TENANT)
    bench.say(f"changing {bench.sizes.changes} documents of {size:,} chunks, one after another")
    cpu, written = [], []
    for number in range(bench.sizes.changes):
        before, began = _files(data), time.process_time()
        await _change(bench, data, collection, size, number)
        cpu.append(1000 * (time.process_time() - began))
        written.append(float(sum(bytes_ for path, bytes_ in _files(data).items() if path not in before)))
    await to_thread.run_sync(shutil.rmtree, data)
    return cpu, written


async def _change(bench: Bench, data: Path, collection: Collection, size: int, number: int) -> None:
    first = number * PASSAGES % (len(bench.sentences) - PASSAGES)
    texts, vectors = bench.sentences[first : first + PASSAGES], bench.vectors[first : first + PASSAGES]
    async with open_writer(data, collection) as writer:
        title = f"Document {number % (size // SOURCE_CHUNKS)}"
        source = new_source(writer, title, "\n\n".join(texts), paragraphs(texts), vectors)
        await writer.replace([source])
        await writer.finish()


def _files(data: Path) -> dict[Path, int]:
    """The sizes of the files of all tables."""
    walked = os.walk(database_folder(data))
    return {
        file: file.stat().st_size
        for above, _, names in walked
        for file in (Path(above, one) for one in names)
    }
