"""What one changed document costs in collections of different sizes: CPU time, and bytes written."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.bench.engine import TENANT
from rag.bench.measure import measured
from rag.bench.stock import new_source, paragraphs, stocked
from rag.store.collections import open_writer
from rag.store.connection import database_folder
from rag.store.reader import Reader

if TYPE_CHECKING:
    from rag.bench.measure import Measure
    from rag.bench.stock import Bench
    from rag.corpus import Collection

PASSAGES = 4
TIMEOUT_SECONDS = 60


async def measure_change(bench: Bench) -> list[Measure]:
    """Replacing a document of four passages, again and again, from opening the collection to closing it.

    The smaller collection is the limit of the larger one: a change should cost what it weighs. A collection
    is compacted after more changes than these; see `rag/store/README.md`.
    """
    measures: list[Measure] = []
    for size in dict.fromkeys((bench.sizes.collection, bench.sizes.index[0])):
        cpu, written = await _changed(bench, size)
        least = [[one.value] for one in measures[:2]] or [[], []]
        measures += [
            measured(f"change/{size}/cpu", cpu, "ms", least[0]),
            measured(f"change/{size}/written", written, "bytes", least[1]),
        ]
    return measures


async def _changed(bench: Bench, size: int) -> tuple[list[float], list[float]]:
    """The milliseconds of CPU time of each change, and the bytes in files that it added."""
    stock, data = await stocked(bench, size), bench.folder / f"{size} chunks, changed"
    await to_thread.run_sync(shutil.copytree, stock, data)
    (collection,) = await Reader(data, timeout_seconds=TIMEOUT_SECONDS).collections(TENANT)
    bench.say(f"changing a document of {size:,} chunks, {bench.sizes.changes} times")
    cpu, written = [], []
    for number in range(bench.sizes.changes):
        before, began = _files(data), time.process_time()
        await _change(bench, data, collection, number)
        cpu.append(1000 * (time.process_time() - began))
        written.append(float(sum(size for path, size in _files(data).items() if path not in before)))
    await to_thread.run_sync(shutil.rmtree, data)
    return cpu, written


async def _change(bench: Bench, data: Path, collection: Collection, number: int) -> None:
    first = number * PASSAGES % (len(bench.sentences) - PASSAGES)
    texts, vectors = bench.sentences[first : first + PASSAGES], bench.vectors[first : first + PASSAGES]
    async with open_writer(data, collection) as writer:
        source = new_source(writer, "Document 0", "\n\n".join(texts), paragraphs(texts), vectors)
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
