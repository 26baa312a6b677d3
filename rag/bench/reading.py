"""Reading a window of a source: an ordinary one, and one as long as a book, of 5 MB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rag.bench.client import connected
from rag.bench.engine import TENANT, open_engine
from rag.bench.measure import interleaved
from rag.bench.search import PRINCIPAL, against_engine, desk_on
from rag.bench.stock import new_source, paragraphs, stocked
from rag.config.settings import DEFAULT_COLLECTION
from rag.store.writer import ensure_collection, open_writer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.bench.measure import Measure
    from rag.bench.stock import Bench

SOURCES = 32
WINDOW = 6_000  # characters that a reply of the usual size has room for
BOOK_SENTENCES = 10  # of a chunk: a thousand characters


async def measure_reading(bench: Bench) -> list[Measure]:
    """`get_source`, from the beginning of ordinary sources and from the middle of the book."""
    bench.say("reading sources")
    ordinary, shelf = await stocked(bench, bench.sizes.collection), await _book(bench)
    sources = await desk_on(bench, ordinary).sources(PRINCIPAL, after=("", ""), limit=SOURCES)
    (book,) = await desk_on(bench, shelf).sources(PRINCIPAL, after=("", ""), limit=1)
    return [
        *await _measured(bench, ordinary, "get_source", [source.id for source in sources], 0),
        *await _measured(bench, shelf, "get_source/5 MB", [book.id], book.length // 2),
    ]


async def _measured(bench: Bench, data: Path, name: str, ids: Sequence[str], start: int) -> list[Measure]:
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    async with connected(data) as call:

        async def library(id_: str) -> None:
            await desk.extract(PRINCIPAL, id_, start=start, max_chars=WINDOW)

        async def stdio(id_: str) -> None:
            await call("get_source", id=id_, start=start)

        async def limit(id_: str) -> None:
            await engine.window(id_, start, start + WINDOW)

        calls = {"library": library, "stdio": stdio, "engine": limit}
        took = await interleaved(calls, ids, bench.sizes.searches)
    return against_engine(name, took, "ms")


async def _book(bench: Bench) -> Path:
    """A data folder with one source, a long one."""
    data = bench.folder / "book"
    collection = await ensure_collection(data, TENANT, DEFAULT_COLLECTION, bench.embedder.identity)
    texts = [" ".join(bench.sentences[:BOOK_SENTENCES])] * bench.sizes.book
    vectors = np.resize(bench.vectors, (len(texts), bench.vectors.shape[1]))
    async with open_writer(data, collection) as writer:
        await writer.replace([new_source(writer, "Book", "\n\n".join(texts), paragraphs(texts), vectors)])
        await writer.finish()
    return data
