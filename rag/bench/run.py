"""A benchmark run: the parts in order, on a temporary workbench."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rag.bench.change import measure_change
from rag.bench.corpus import sentences
from rag.bench.http import measure_http
from rag.bench.index import measure_access, measure_index
from rag.bench.ingestion import measure_ingestion
from rag.bench.search import measure_concurrency, measure_reading, measure_search
from rag.bench.server import measure_memory, measure_start, measure_tables
from rag.bench.stock import Bench, Sizes
from rag.config.settings import EmbedderSettings
from rag.models.embed import open_embedder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from rag.bench.measure import Measure

PARTS: dict[str, Callable[[Bench], Awaitable[list[Measure]]]] = {
    "start": measure_start,
    "search": measure_search,
    "reading": measure_reading,
    "concurrency": measure_concurrency,
    "http": measure_http,
    "memory": measure_memory,
    "ingestion": measure_ingestion,
    "change": measure_change,
    "index": measure_index,
    "access": measure_access,
    "tables": measure_tables,
}


async def run_bench(
    parts: Sequence[str], *, corpus: Path, sizes: Sizes, say: Callable[[str], None]
) -> list[Measure]:
    """The measures of these parts, in order.

    Raises:
        RefdeskError: something that is measured failed.
    """
    async with workbench(corpus, sizes, say) as bench:
        return [measure for part in parts for measure in await PARTS[part](bench)]


@asynccontextmanager
async def workbench(corpus: Path, sizes: Sizes, say: Callable[[str], None]) -> AsyncIterator[Bench]:
    """A workbench on the sentences of the folder `corpus`.

    Everything lies in one temporary folder, which is removed at the end, also after an error. The
    operator's data and settings are not used.
    """
    with tempfile.TemporaryDirectory(prefix="refdesk-bench-") as folder:
        say(f"working in {folder}")
        async with open_embedder(EmbedderSettings(), {}) as embedder:
            some = sentences(corpus)
            vectors = await embedder.embed(some, "document")
            yield Bench(Path(folder), embedder, some, vectors, sizes, say)
