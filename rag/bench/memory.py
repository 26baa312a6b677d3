"""How much memory processes hold, in MB (resident)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import anyio
import psutil

from rag.bench.corpus import QUESTIONS
from rag.bench.measure import measured
from rag.bench.process import bare_server, script, served
from rag.bench.stock import stocked

if TYPE_CHECKING:
    from rag.bench.measure import Measure
    from rag.bench.process import Server
    from rag.bench.stock import Bench

PAUSE_SECONDS = 0.4  # between two looks; a process that used no CPU meanwhile has settled
SAMPLE_SECONDS = 0.25  # to look at all processes takes some milliseconds


async def measure_memory(bench: Bench) -> list[Measure]:
    """Our server, when it has opened its desk and after searches, against a bare one with the engine open."""
    data = await stocked(bench, bench.sizes.collection)
    values: dict[str, list[float]] = {name: [] for name in ("idle", "working", "bare", "bare working")}
    for at in range(bench.sizes.rounds):
        bench.say(f"watching the servers' memory, {at + 1} of {bench.sizes.rounds}")
        async with served(script("refdesk", data)) as server:
            await server.begin()
            values["idle"].append(await _settled(server))
            values["working"].append(await _worked(server, bench.sizes.searches))
        async with served(bare_server(data)) as server:
            await server.begin()
            await server.search(QUESTIONS[0])
            values["bare"].append(await _settled(server))
            values["bare working"].append(await _worked(server, bench.sizes.searches))
    return [
        measured(f"memory/{name}", values[name], "MB", values[limit])
        for name, limit in (("idle", "bare"), ("working", "bare working"))
    ]


async def watch_memory(pid: int, seen: list[float]) -> None:
    """Note what a process and its children hold, again and again, until cancelled."""
    while True:
        seen.append(_held(pid))
        await anyio.sleep(SAMPLE_SECONDS)


async def _settled(server: Server) -> float:
    pid = server.process.pid
    before = -1.0
    while (now := round(cpu_seconds(pid), 1)) != before:  # threads that only look around use less
        before = now
        await anyio.sleep(PAUSE_SECONDS)
    return _held(pid)


async def _worked(server: Server, searches: int) -> float:
    for at in range(searches):
        await server.search(QUESTIONS[at % len(QUESTIONS)])
    return _held(server.process.pid)


def cpu_seconds(pid: int) -> float:
    """What a process has used, its threads together; but on Linux, in steps of up to 16 ms."""
    if sys.platform == "linux":
        return time.clock_gettime((~pid << 3) | 2)  # its CPU clock, as clock_getcpuclockid(3) names it
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _held(pid: int) -> float:
    """The sum over a process and its children; 0 when it has just ended."""
    try:
        process = psutil.Process(pid)
        return sum(one.memory_info().rss for one in [process, *process.children(recursive=True)]) / 1e6
    except psutil.Error:
        return 0.0
