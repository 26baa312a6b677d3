"""Whether one tenant notices how many others there are."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.answers import SearchRequest
from rag.bench.corpus import QUESTIONS
from rag.bench.engine import add_tenants
from rag.bench.measure import interleaved, measured
from rag.bench.process import script
from rag.bench.search import PRINCIPAL, desk_on
from rag.bench.start import answers, searches, starts_of
from rag.bench.stock import stocked

if TYPE_CHECKING:
    from pathlib import Path

    from rag.bench.measure import Measure
    from rag.bench.stock import Bench
    from rag.search.desk import Desk


async def measure_tables(bench: Bench) -> list[Measure]:
    """One tenant's searches and the server's start, with ever more tenants in the database."""
    folders = {count: await _tenants(bench, count) for count in bench.sizes.tenants}
    bench.say("searching as one tenant of many")
    desks = {count: partial(_search, desk_on(bench, data)) for count, data in folders.items()}
    took = {"search": await interleaved(desks, QUESTIONS, bench.sizes.searches)}
    times = (bench.sizes.starts + 1) // 2
    bench.say(f"starting the server {times + 1} times with each number of tenants")
    commands = {count: script("refdesk", data) for count, data in folders.items()}
    starts = await starts_of(commands, times)
    took["start"] = {count: answers(some) for count, some in starts.items()}
    took["first search"] = {count: searches(some) for count, some in starts.items()}
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
    one = await stocked(bench, bench.sizes.growth[0])
    bench.say(f"making a database of {count:,} tenants")
    await to_thread.run_sync(shutil.copytree, one, data)
    await add_tenants(data, count - 1)
    return data
