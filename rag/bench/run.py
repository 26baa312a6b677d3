"""A run: the parts in order, on a workbench that is gone afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rag.bench.access import measure_access
from rag.bench.corpus import sentences
from rag.bench.growth import measure_growth
from rag.bench.http import measure_http
from rag.bench.index import measure_index
from rag.bench.ingestion import measure_ingestion
from rag.bench.memory import measure_memory
from rag.bench.reading import measure_reading
from rag.bench.search import measure_concurrency, measure_search
from rag.bench.soak import measure_soak
from rag.bench.start import measure_start
from rag.bench.stock import Bench, Sizes
from rag.bench.tables import measure_tables
from rag.config.settings import EmbedderSettings
from rag.models.embed import open_embedder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rag.bench.measure import Measure

PARTS: dict[str, Callable[[Bench], Awaitable[list[Measure]]]] = {
    "start": measure_start,
    "search": measure_search,
    "reading": measure_reading,
    "concurrency": measure_concurrency,
    "http": measure_http,
    "soak": measure_soak,
    "memory": measure_memory,
    "ingestion": measure_ingestion,
    "growth": measure_growth,
    "index": measure_index,
    "access": measure_access,
    "tables": measure_tables,
}


async def run_bench(
    parts: Sequence[str], *, corpus: Path, sizes: Sizes, say: Callable[[str], None]
) -> list[Measure]:
    """The measures of these parts; `say` is told what is being done.

    Everything is made of the sentences in the folder `corpus` and lies in one temporary folder, which is
    removed at the end, also after an error. Nobody's data and settings are touched.

    Raises:
        RefdeskError: something that was to be measured failed.
    """
    with tempfile.TemporaryDirectory(prefix="refdesk-bench-") as folder:
        say(f"working in {folder}")
        async with open_embedder(EmbedderSettings(), {}) as embedder:
            some = sentences(corpus)
            vectors = await embedder.embed(some, "document")
            bench = Bench(Path(folder), embedder, some, vectors, sizes, say)
            return [measure for part in parts for measure in await PARTS[part](bench)]
