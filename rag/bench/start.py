"""How long a server takes from its start to the first answer, and from there to the first hits."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.bench.corpus import QUESTIONS
from rag.bench.measure import Key, measured, rotated
from rag.bench.process import bare_server, script, served
from rag.bench.stock import stocked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.bench.measure import Measure
    from rag.bench.stock import Bench


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds of one start. The first search begins when the first answer has come."""

    answer: float
    search: float


async def measure_start(bench: Bench) -> list[Measure]:
    """Our server against a bare one, which imports and opens the engine at the first search."""
    data = await stocked(bench, bench.sizes.collection)
    commands = {"ours": script("refdesk", data), "bare": bare_server(data)}
    bench.say(f"starting each server {bench.sizes.starts + 1} times")
    starts = await starts_of(commands, bench.sizes.starts)
    ours, bare = starts["ours"], starts["bare"]
    return [
        measured("start/first answer", answers(ours), "ms", answers(bare)),
        measured("start/first search", searches(ours), "ms", searches(bare)),
    ]


async def starts_of(commands: Mapping[Key, Sequence[str]], times: int) -> dict[Key, list[Start]]:
    """So many starts of each server, in turns; one more before, for the caches of files."""
    starts: dict[Key, list[Start]] = defaultdict(list)
    for at in range(times + 1):
        for name, command in rotated(list(commands.items()), at):
            starts[name].append(await _start(command))
    return {name: some[1:] for name, some in starts.items()}


def answers(starts: Sequence[Start]) -> list[float]:
    """The times to the first answer."""
    return [start.answer for start in starts]


def searches(starts: Sequence[Start]) -> list[float]:
    """The times from there to the first hits."""
    return [start.search for start in starts]


async def _start(command: Sequence[str]) -> Start:
    began = time.perf_counter()
    async with served(command) as server:
        await server.begin()
        answered = time.perf_counter()
        await server.search(QUESTIONS[0])
        found = time.perf_counter()
    return Start((answered - began) * 1000, (found - answered) * 1000)
