"""Warm searches through the server and through the library, against the engine's own calls."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, get_args

import anyio

from rag.access.rule import predicate
from rag.answers import Mode, SearchRequest
from rag.bench.client import connected
from rag.bench.corpus import QUESTIONS
from rag.bench.engine import TENANT, open_engine
from rag.bench.measure import interleaved, measured, rotated
from rag.bench.memory import cpu_seconds
from rag.bench.stock import stocked
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.search.desk import Desk
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from rag.bench.client import Call
    from rag.bench.engine import Engine
    from rag.bench.measure import Measure
    from rag.bench.stock import Bench

PRINCIPAL = Principal(TENANT)
LEVELS = (1, 4, 16)  # searches at once
BLOCK = 32  # searches between two looks at the CPU, which systems count in steps of up to 16 ms


def desk_on(bench: Bench, data: Path) -> Desk:
    """A desk on a data folder, with the embedder that all share."""
    settings = SearchSettings()
    return Desk(Reader(data, timeout_seconds=settings.timeout_seconds), bench.embedder, settings)


async def measure_search(bench: Bench) -> list[Measure]:
    """Searches of each mode, one after another."""
    data = await stocked(bench, bench.sizes.collection)
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as call:
        for mode in get_args(Mode):
            bench.say(f"searching in mode {mode}")
            searches = _searches(mode, desk, engine, call)
            took = await interleaved(searches, QUESTIONS, bench.sizes.searches)
            measures += against_engine(f"search/{mode}", took, "ms")
    bench.say("searching, and counting the CPU")
    limit = partial(engine.search, "hybrid", where=predicate(PRINCIPAL))
    return [*measures, *await _cpu(bench, {"library": searches["library"], "engine": limit})]


async def _cpu(bench: Bench, searches: Mapping[str, Callable[[str], Awaitable[object]]]) -> list[Measure]:
    """The CPU of a hybrid search of the library, and what comes on top of the engine's and the embedder's.

    Here the engine minds the rights, too, as that is its own work.
    """
    cpu: dict[str, list[float]] = {way: [] for way in searches}
    blocks = max(1, 2 * bench.sizes.rounds * bench.sizes.searches // BLOCK)
    for at in range(blocks + 1):
        for way, search in rotated(list(searches.items()), at):
            _, used = await spent(search, os.getpid())
            cpu[way] += [used] if at else []  # the first round fills the caches
    on_top = [whole - part for whole, part in zip(cpu["library"], cpu["engine"], strict=True)]
    return [
        measured("search/cpu/library", cpu["library"], "ms", cpu["engine"]),
        measured("search/cpu on top/library", on_top, "ms"),
    ]


async def spent(search: Callable[[str], Awaitable[object]], pid: int) -> tuple[list[float], float]:
    """The milliseconds that each search of a block took, and those of CPU that it used on average."""
    before, times = cpu_seconds(pid), []
    for at in range(BLOCK):
        began = time.perf_counter()
        await search(QUESTIONS[at % len(QUESTIONS)])
        times.append((time.perf_counter() - began) * 1000)
    return times, (cpu_seconds(pid) - before) * 1000 / BLOCK


def _searches(
    mode: Mode, desk: Desk, engine: Engine, call: Call
) -> dict[str, Callable[[str], Awaitable[object]]]:
    async def library(query: str) -> None:
        await desk.search(PRINCIPAL, SearchRequest(query, mode=mode))

    async def stdio(query: str) -> None:
        await call("search", query=query, mode=mode)

    return {"library": library, "stdio": stdio, "engine": partial(engine.search, mode)}


def against_engine(name: str, values: Mapping[str, list[float]], unit: str) -> list[Measure]:
    """The program's two ways to do a thing, against the engine's."""
    return [measured(f"{name}/{way}", values[way], unit, values["engine"]) for way in ("library", "stdio")]


async def measure_concurrency(bench: Bench) -> list[Measure]:
    """Hybrid searches a second, so many at once."""
    data = await stocked(bench, bench.sizes.collection)
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as call:
        searches = _searches("hybrid", desk, engine, call)
        for level in LEVELS:
            bench.say(f"searching, {level} at once")
            rates: dict[str, list[float]] = {way: [] for way in searches}
            for at in range(bench.sizes.rounds + 1):
                for way, search in searches.items():
                    reached = await rate(search, level, bench.sizes.searches // 2)
                    rates[way] += [reached] if at else []  # the first round fills the caches
            measures += against_engine(f"concurrency/{level}", rates, "searches/s")
    return measures


async def rate(search: Callable[[str], Awaitable[object]], level: int, times: int) -> float:
    """How many of `times` searches end in a second, with `level` under way at once.

    Raises:
        Exception: what the first search that failed raised.
    """
    queries = (QUESTIONS[at % len(QUESTIONS)] for at in range(times))
    began = time.perf_counter()
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(level):
                tasks.start_soon(_ask_all, search, queries)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return times / (time.perf_counter() - began)


async def _ask_all(search: Callable[[str], Awaitable[object]], queries: Iterator[str]) -> None:
    for query in queries:
        await search(query)
