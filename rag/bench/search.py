"""Warm searches and opened sources, through the server and through the library, against the engine alone."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rag.access.rule import predicate
from rag.answers import Part, SearchRequest
from rag.bench.corpus import QUESTIONS
from rag.bench.engine import TENANT, open_engine
from rag.bench.measure import measured
from rag.bench.process import connected
from rag.bench.stock import new_source, paragraphs, stocked
from rag.bench.timing import BLOCK, interleaved, rate, rotated, spent
from rag.config.settings import DEFAULT_COLLECTION, SearchSettings
from rag.corpus import Principal
from rag.search.desk import Desk
from rag.store.collections import ensure_collection, open_writer
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from rag.answers import Mode
    from rag.bench.engine import Engine
    from rag.bench.measure import Measure
    from rag.bench.process import Call
    from rag.bench.stock import Bench

PRINCIPAL = Principal(TENANT)
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")  # that the engine's own lists are compared with
LEVELS = (1, 4, 16)  # searches at once
SOURCES = 32  # opened
WINDOW = 6_000  # characters that fit into a reply of the usual size
BOOK_SENTENCES = 10  # per chunk: a thousand characters


def desk_on(bench: Bench, data: Path) -> Desk:
    """A desk on a data folder, with the shared embedder."""
    settings = SearchSettings()
    reader = Reader(
        data,
        timeout_seconds=settings.timeout_seconds,
        index_cache_bytes=settings.most_cached,
        memory_bytes=settings.bytes_in_memory,
    )
    return Desk(reader, bench.embedder, settings)


async def measure_search(bench: Bench) -> list[Measure]:
    """Searches of each mode, one after another."""
    data = await stocked(bench, bench.sizes.collection)
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as call:
        for mode in MODES:
            bench.say(f"searching in mode {mode}")
            searches = _searches(mode, desk, engine, call)
            took = await interleaved(searches, QUESTIONS, bench.sizes.searches)
            measures += against_engine(f"search/{mode}", took, "ms")
    bench.say("searching, and counting the CPU")
    limit = partial(engine.search, "hybrid", where=predicate(PRINCIPAL))
    return [*measures, *await _cpu(bench, {"library": searches["library"], "engine": limit})]


async def _cpu(bench: Bench, searches: Mapping[str, Callable[[str], Awaitable[object]]]) -> list[Measure]:
    """CPU time of a hybrid search in the library, and how much of it the engine and the embedder don't use.

    The engine filters by access rights here, too: that is its own work.
    """
    cpu: dict[str, list[float]] = {name: [] for name in searches}
    blocks = max(1, 2 * bench.sizes.rounds * bench.sizes.searches // BLOCK)
    for at in range(blocks + 1):
        for name, search in rotated(list(searches.items()), at):
            _, used = await spent(search, os.getpid())
            cpu[name] += [used] if at else []  # the first round is a warm-up
    on_top = [whole - part for whole, part in zip(cpu["library"], cpu["engine"], strict=True)]
    return [
        measured("search/cpu/library", cpu["library"], "ms", cpu["engine"]),
        measured("search/cpu on top/library", on_top, "ms"),
    ]


def _searches(
    mode: Mode, desk: Desk, engine: Engine, call: Call
) -> dict[str, Callable[[str], Awaitable[object]]]:
    async def library(query: str) -> None:
        await desk.search(PRINCIPAL, SearchRequest(query, mode=mode))

    async def stdio(query: str) -> None:
        await call("search", query=query, mode=mode)

    return {"library": library, "stdio": stdio, "engine": partial(engine.search, mode)}


def against_engine(name: str, values: Mapping[str, list[float]], unit: str) -> list[Measure]:
    """The library and the server over stdio, against the engine."""
    return [measured(f"{name}/{by}", values[by], unit, values["engine"]) for by in ("library", "stdio")]


async def measure_concurrency(bench: Bench) -> list[Measure]:
    """Hybrid searches per second, several at once."""
    data = await stocked(bench, bench.sizes.collection)
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as call:
        searches = _searches("hybrid", desk, engine, call)
        for level in LEVELS:
            bench.say(f"searching, {level} at once")
            rates: dict[str, list[float]] = {name: [] for name in searches}
            for at in range(bench.sizes.rounds + 1):
                for name, search in searches.items():
                    reached = await rate(search, level, bench.sizes.searches // 2)
                    rates[name] += [reached] if at else []  # the first round is a warm-up
            measures += against_engine(f"concurrency/{level}", rates, "searches/s")
    return measures


async def measure_reading(bench: Bench) -> list[Measure]:
    """`get_source`: a window at the start of ordinary sources, and one in the middle of a 5 MB source."""
    bench.say("reading sources")
    ordinary, shelf = await stocked(bench, bench.sizes.collection), await _book(bench)
    sources = await desk_on(bench, ordinary).sources(PRINCIPAL, after=("", ""), limit=SOURCES)
    (book,) = await desk_on(bench, shelf).sources(PRINCIPAL, after=("", ""), limit=1)
    return [
        *await _read(bench, ordinary, "get_source", [source.id for source in sources], 0),
        *await _read(bench, shelf, "get_source/5 MB", [book.id], book.length // 2),
    ]


async def _read(bench: Bench, data: Path, name: str, ids: Sequence[str], start: int) -> list[Measure]:
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    async with connected(data) as call:

        async def library(id_: str) -> None:
            await desk.extract(PRINCIPAL, id_, max_chars=WINDOW, part=Part(start))

        async def stdio(id_: str) -> None:
            await call("get_source", id=id_, start=start)

        async def limit(id_: str) -> None:
            await engine.window(id_, start, start + WINDOW)

        calls = {"library": library, "stdio": stdio, "engine": limit}
        took = await interleaved(calls, ids, bench.sizes.searches)
    return against_engine(name, took, "ms")


async def _book(bench: Bench) -> Path:
    """A data folder with one long source."""
    data = bench.folder / "book"
    collection = await ensure_collection(data, TENANT, DEFAULT_COLLECTION, bench.embedder.identity)
    texts = [" ".join(bench.sentences[:BOOK_SENTENCES])] * bench.sizes.book
    vectors = np.resize(bench.vectors, (len(texts), bench.vectors.shape[1]))
    async with open_writer(data, collection) as writer:
        await writer.replace([new_source(writer, "Book", "\n\n".join(texts), paragraphs(texts), vectors)])
        await writer.finish()
    return data
