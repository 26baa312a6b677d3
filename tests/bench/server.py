"""The server process: its start, its memory, and whether many tenants in one database slow it down."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.answers import SearchRequest
from tests.bench.corpus import QUESTIONS
from tests.bench.engine import add_tenants
from tests.bench.measure import measured
from tests.bench.process import bare_server, script, served
from tests.bench.search import PRINCIPAL, desk_on
from tests.bench.stock import stocked
from tests.bench.timing import Key, cpu_seconds, interleaved, resident_megabytes, rotated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rag.search.desk import Desk
    from tests.bench.measure import Measure
    from tests.bench.process import Server
    from tests.bench.stock import Bench

SETTLE_SECONDS = 0.4  # a process that used no CPU for so long has settled


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds of one start: to the first answer, and from there to the first hits."""

    answer: float
    search: float


async def measure_start(bench: Bench) -> list[Measure]:
    """Our server against a bare one, which imports and opens the engine at the first search."""
    return await started(bench, await stocked(bench, bench.sizes.collection), "start")


async def started(bench: Bench, data: Path, name: str) -> list[Measure]:
    """The starts on a data folder."""
    commands = {"ours": script("refdesk", data, "--alone"), "bare": bare_server(data)}
    bench.say(f"starting each server {bench.sizes.starts + 1} times")
    starts = await _starts(commands, bench.sizes.starts)
    ours, bare = starts["ours"], starts["bare"]
    return [
        measured(f"{name}/first answer", _answers(ours), "ms", _answers(bare)),
        measured(f"{name}/first search", _searches(ours), "ms", _searches(bare)),
    ]


async def _starts(commands: Mapping[Key, Sequence[str]], times: int) -> dict[Key, list[Start]]:
    """`times` starts of each server, in turns, after one more that fills the file system's cache."""
    starts: dict[Key, list[Start]] = defaultdict(list)
    for at in range(times + 1):
        for name, command in rotated(list(commands.items()), at):
            starts[name].append(await _start(command))
    return {name: some[1:] for name, some in starts.items()}


async def _start(command: Sequence[str]) -> Start:
    began = time.perf_counter()
    async with served(command) as server:
        await server.begin()
        answered = time.perf_counter()
        await server.call("search", query=QUESTIONS[0])
        hits_at = time.perf_counter()
    return Start((answered - began) * 1000, (hits_at - answered) * 1000)


def _answers(starts: Sequence[Start]) -> list[float]:
    return [start.answer for start in starts]


def _searches(starts: Sequence[Start]) -> list[float]:
    return [start.search for start in starts]


async def measure_memory(bench: Bench) -> list[Measure]:
    """Resident memory of our server, idle and after searches, against a bare one with the engine open.

    And the disk that a chunk of each collection takes.
    """
    measures = []
    for size in bench.sizes.searched:
        bench.say(f"holding {size:,} chunks")
        data = await stocked(bench, size)
        measures += await held(bench, data, f"memory/{size}")
        disk = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
        measures.append(measured(f"disk/{size}/per chunk", [disk / size], "bytes"))
    return measures


async def held(bench: Bench, data: Path, name: str) -> list[Measure]:
    """The memory of servers on a data folder."""
    values: dict[str, list[float]] = {state: [] for state in ("idle", "working", "bare", "bare working")}
    for at in range(bench.sizes.rounds):
        bench.say(f"watching the servers' memory, {at + 1} of {bench.sizes.rounds}")
        async with served(script("refdesk", data, "--alone")) as server:
            await server.begin()
            values["idle"].append(await _settled(server))
            values["working"].append(await _worked(server, bench))
        async with served(bare_server(data)) as server:
            await server.begin()
            await server.call("search", query=QUESTIONS[0])
            values["bare"].append(await _settled(server))
            values["bare working"].append(await _worked(server, bench))
    return [
        measured(f"{name}/{state}", values[state], "MB", values[limit])
        for state, limit in (("idle", "bare"), ("working", "bare working"))
    ]


async def _settled(server: Server) -> float:
    """Memory when the server no longer uses the CPU."""
    pid = server.process.pid
    before = -1.0
    while (now := round(cpu_seconds(pid), 1)) != before:  # idle threads that poll use less than that
        before = now
        await anyio.sleep(SETTLE_SECONDS)
    return resident_megabytes(pid)


async def _worked(server: Server, bench: Bench) -> float:
    """Memory after searches."""
    for at in range(bench.sizes.searches):
        await server.call("search", query=QUESTIONS[at % len(QUESTIONS)])
    return resident_megabytes(server.process.pid)


async def measure_tables(bench: Bench) -> list[Measure]:
    """One tenant's searches and the server's start, with more and more tenants in the database."""
    folders = {count: await _tenants(bench, count) for count in bench.sizes.tenants}
    bench.say("searching as one tenant of many")
    desks = {count: partial(_search, desk_on(bench, data)) for count, data in folders.items()}
    took = {"search": await interleaved(desks, QUESTIONS, bench.sizes.searches)}
    times = (bench.sizes.starts + 1) // 2
    bench.say(f"starting the server {times + 1} times with each number of tenants")
    commands = {count: script("refdesk", data, "--alone") for count, data in folders.items()}
    starts = await _starts(commands, times)
    took["start"] = {count: _answers(some) for count, some in starts.items()}
    took["first search"] = {count: _searches(some) for count, some in starts.items()}
    fewest = min(folders)
    return [
        measured(f"tables/{count}/{what}", times[count], "ms", times[fewest])
        for what, times in took.items()
        for count in folders
    ]


async def _search(desk: Desk, query: str) -> None:
    await desk.search(PRINCIPAL, SearchRequest(query))


async def _tenants(bench: Bench, count: int) -> Path:
    data = bench.folder / f"{count} tenants"
    original = await stocked(bench, bench.sizes.tenant)
    bench.say(f"making a database of {count:,} tenants")
    await to_thread.run_sync(shutil.copytree, original, data)
    await add_tenants(data, count - 1)
    return data
