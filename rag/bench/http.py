"""The cost of HTTP over the library: time and CPU of a search, and the rate of many clients."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from rag.answers import SearchRequest
from rag.bench.corpus import QUESTIONS
from rag.bench.measure import measured
from rag.bench.remote import ERAS, connected, listening, make_keys, tool_call
from rag.bench.search import PRINCIPAL, desk_on
from rag.bench.stock import stocked
from rag.bench.timing import BLOCK, in_blocks, rate, rotated
from rag.errors import RefdeskError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from rag.bench.measure import Measure
    from rag.bench.remote import Connection
    from rag.bench.stock import Bench
    from rag.search.desk import Desk

    Search = Callable[[str], Awaitable[None]]
    Clients = Callable[[int], AbstractAsyncContextManager[Search]]

CLIENTS = 16
LIBRARY = "library"
FAILED = b'"isError":true'


async def measure_http(bench: Bench) -> list[Measure]:
    """Hybrid searches in both protocol eras, by one client and by many, against the library's."""
    data = await stocked(bench, bench.sizes.collection)
    key = make_keys(data, {"ann": frozenset()})["ann"]
    async with listening(data) as remote:
        clients_of: dict[str, Clients] = {LIBRARY: partial(_in_library, desk_on(bench, data))}
        for era in ERAS:
            calls = {
                query: remote.request(era, key, *tool_call("search", query=query)) for query in QUESTIONS
            }
            clients_of[era] = partial(_over_http, remote.port, calls)
        bench.say("searching over HTTP")
        measures = await _one_by_one(bench, clients_of, remote.pid)
        bench.say(f"searching over HTTP, {CLIENTS} at once")
        return measures + await _rates(bench, clients_of)


@asynccontextmanager
async def _in_library(desk: Desk, _clients: int) -> AsyncIterator[Search]:
    async def search(query: str) -> None:
        await desk.search(PRINCIPAL, SearchRequest(query))

    yield search


@asynccontextmanager
async def _over_http(port: int, requests: Mapping[str, bytes], clients: int) -> AsyncIterator[Search]:
    """A search by whichever client is idle. Each keeps its connection open."""
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(connected(port)) for _ in range(clients)]
        yield partial(_ask, idle, requests)


async def _ask(idle: list[Connection], requests: Mapping[str, bytes], query: str) -> None:
    connection = idle.pop()
    answer = await connection.ask(requests[query])
    if answer.status != 200 or FAILED in answer.body:  # noqa: PLR2004 OK
        raise RefdeskError(f"The HTTP server answered a search with {answer.status}: {answer.body!r}")
    idle.append(connection)


async def _one_by_one(bench: Bench, clients_of: Mapping[str, Clients], server: int) -> list[Measure]:
    """Time of a search, and CPU time in the process that answers it."""
    async with AsyncExitStack() as stack:
        searches = {
            name: (await stack.enter_async_context(clients(1)), os.getpid() if name == LIBRARY else server)
            for name, clients in clients_of.items()
        }
        spent = await in_blocks(searches, bench.sizes.rounds * bench.sizes.searches)
    library, measures = spent[LIBRARY], []
    for era in ERAS:
        on_top = [whole - part for whole, part in zip(spent[era].cpu, library.cpu, strict=True)]
        measures.append(measured(f"http/search/{era}", spent[era].wall, "ms", library.wall))
        measures.append(measured(f"http/cpu/{era}", spent[era].cpu, "ms", library.cpu))
        measures.append(measured(f"http/cpu on top/{era}", on_top, "ms"))
    return measures


async def _rates(bench: Bench, clients_of: Mapping[str, Clients]) -> list[Measure]:
    """Searches per second, many at once."""
    rates: dict[str, list[float]] = defaultdict(list)
    for at in range(bench.sizes.rounds + 1):
        for name, clients in rotated(list(clients_of.items()), at):
            async with clients(CLIENTS) as search:
                reached = await rate(search, CLIENTS, bench.sizes.searches if at else BLOCK)
            rates[name] += [reached] if at else []
    library = rates[LIBRARY]
    return [measured(f"http/{CLIENTS} at once/{era}", rates[era], "searches/s", library) for era in ERAS]
