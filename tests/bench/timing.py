"""How times, rates, CPU and memory are taken."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import psutil

from rag.runtime import concurrently
from tests.bench.corpus import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    Search = Callable[[str], Awaitable[object]]

Key = TypeVar("Key", str, int)
Item = TypeVar("Item")
BLOCK = 32  # searches between two readings of the CPU clock, which some systems count in steps of 16 ms
SAMPLE_SECONDS = 0.25  # between memory samples; one takes some milliseconds


async def interleaved(
    calls: Mapping[Key, Search], queries: Sequence[str], times: int
) -> dict[Key, list[float]]:
    """Milliseconds of each call, made `times` times with the queries in turn.

    The calls take turns, and another one goes first each time, so that the machine's other work slows all
    of them alike. A warm-up round, with empty caches, isn't counted.
    """
    took: dict[Key, list[float]] = {name: [] for name in calls}
    warm = min(len(queries), times)
    for at in range(-warm, times):
        for name, call in rotated(list(calls.items()), at):
            began = time.perf_counter()
            await call(queries[at % len(queries)])
            if at >= 0:
                took[name].append((time.perf_counter() - began) * 1000)
    return took


def rotated(items: Sequence[Item], by: int) -> Sequence[Item]:
    """The items rotated to the left: ([a, b, c], 4) -> [b, c, a]."""
    first = by % len(items)
    return [*items[first:], *items[:first]]


async def rate(search: Search, level: int, times: int) -> float:
    """Searches per second: `times` searches, `level` of them at once.

    Raises:
        Exception: the first search's that failed.
    """
    queries = (QUESTIONS[at % len(QUESTIONS)] for at in range(times))
    began = time.perf_counter()
    await concurrently([partial(_ask_all, search, queries)] * level)
    return times / (time.perf_counter() - began)


async def _ask_all(search: Search, queries: Iterator[str]) -> None:
    for query in queries:
        await search(query)


@dataclass(frozen=True, slots=True)
class Spent:
    """The milliseconds of each search, and the mean CPU milliseconds of each block of searches."""

    wall: list[float]
    cpu: list[float]


async def in_blocks(
    searches: Mapping[Key, tuple[Search, int]], times: int, queries: Sequence[str] = QUESTIONS
) -> dict[Key, Spent]:
    """What each search takes, and what the process with the given id uses of the CPU meanwhile.

    The searches take turns, block by block, so that the machine's other work slows all of them alike. Each
    makes about `times` searches, after a first block, with empty caches, that isn't counted.
    """
    spent = {name: Spent([], []) for name in searches}
    block = [queries[at % len(queries)] for at in range(min(BLOCK, times))]
    for at in range(1 + times // len(block)):
        for name, (search, pid) in rotated(list(searches.items()), at):
            wall, cpu = await _block(search, pid, block)
            if at:
                spent[name].wall.extend(wall)
                spent[name].cpu.append(cpu)
    return spent


async def _block(search: Search, pid: int, queries: Sequence[str]) -> tuple[list[float], float]:
    before, times = cpu_seconds(pid), []
    for query in queries:
        began = time.perf_counter()
        await search(query)
        times.append((time.perf_counter() - began) * 1000)
    return times, (cpu_seconds(pid) - before) * 1000 / len(queries)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, all threads; except on Linux in steps of up to 16 ms."""
    if sys.platform == "linux":
        return time.clock_gettime((~pid << 3) | 2)  # its CPU clock, as clock_getcpuclockid(3) names it
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def resident_megabytes(pid: int) -> float:
    """The memory of a process and its children; 0 if it has just ended."""
    try:
        process = psutil.Process(pid)
        return sum(member.memory_info().rss for member in [process, *process.children(recursive=True)]) / 1e6
    except psutil.Error:
        return 0.0


async def watch_memory(pid: int, samples: list[float]) -> None:
    """Append the memory of a process and its children to `samples` until cancelled."""
    while True:
        samples.append(resident_megabytes(pid))
        await anyio.sleep(SAMPLE_SECONDS)
