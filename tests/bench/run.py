"""A benchmark run: the parts in order, on a temporary workbench."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.answers import SearchRequest
from rag.config.model_settings import EmbedderSettings
from rag.errors import RefdeskError
from rag.models.embed import open_embedder
from rag.store.read.connection import database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from tests.bench.corpus import QUESTIONS, sentences
from tests.bench.engine import TENANT
from tests.bench.index import measure_access, measure_index
from tests.bench.ingestion import measure_ingestion
from tests.bench.measure import measured
from tests.bench.remote import ERAS, connected, listening, make_keys, tool_call
from tests.bench.search import PRINCIPAL, desk_on, measure_concurrency, measure_reading, measure_search
from tests.bench.server import measure_memory, measure_start, measure_tables
from tests.bench.stock import SOURCE_CHUNKS, Bench, Sizes, new_source, paragraphs, stocked
from tests.bench.timing import BLOCK, in_blocks, rate, rotated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from rag.corpus import Collection
    from rag.search.desk import Desk
    from tests.bench.measure import Measure
    from tests.bench.remote import Connection

    Search = Callable[[str], Awaitable[None]]
    Clients = Callable[[int], AbstractAsyncContextManager[Search]]

# The cost of HTTP over the library: time and CPU of a search, and the rate of many clients.

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
    if answer.status != 200 or FAILED in answer.body:
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


# What one changed document costs in collections of different sizes: CPU time, and bytes written.

PASSAGES = 4
TIMEOUT_SECONDS = 60


async def measure_change(bench: Bench) -> list[Measure]:
    """Replacing documents of four passages, one by one, each from opening the collection to closing it.

    Now and then a change compacts the collection, so the mean and the worst are told beside the median. The
    smaller collection is the limit of the larger ones: a change should cost what it weighs.
    """
    measures: list[Measure] = []
    for size in bench.sizes.changed:
        cpu, written = await _changed(bench, size)
        of_size = [
            *_told(f"change/{size}/cpu", cpu, "ms"),
            *_told(f"change/{size}/written", written, "bytes"),
        ]
        if least := measures[: len(of_size)]:
            of_size = [
                replace(measure, limit=smaller.value) for measure, smaller in zip(of_size, least, strict=True)
            ]
        measures += of_size
    return measures


def _told(name: str, values: Sequence[float], unit: str) -> list[Measure]:
    return [
        measured(name, values, unit),
        measured(f"{name}/mean", [statistics.fmean(values)], unit),
        measured(f"{name}/worst", [max(values)], unit),
    ]


async def _changed(bench: Bench, size: int) -> tuple[list[float], list[float]]:
    """The milliseconds of CPU time of each change, and the bytes in files that it added."""
    stock, data = await stocked(bench, size), bench.folder / f"{size} chunks, changed"
    await to_thread.run_sync(shutil.copytree, stock, data)
    (collection,) = await DeskReader(data, timeout_seconds=TIMEOUT_SECONDS).collections(TENANT)
    bench.say(f"changing {bench.sizes.changes} documents of {size:,} chunks, one after another")
    cpu, written = [], []
    for number in range(bench.sizes.changes):
        before, began = _files(data), time.process_time()
        await _change(bench, data, collection, size, number)
        cpu.append(1000 * (time.process_time() - began))
        written.append(float(sum(bytes_ for path, bytes_ in _files(data).items() if path not in before)))
    await to_thread.run_sync(shutil.rmtree, data)
    return cpu, written


async def _change(bench: Bench, data: Path, collection: Collection, size: int, number: int) -> None:
    first = number * PASSAGES % (len(bench.sentences) - PASSAGES)
    texts, vectors = bench.sentences[first : first + PASSAGES], bench.vectors[first : first + PASSAGES]
    async with open_writer(data, collection) as writer:
        title = f"Document {number % (size // SOURCE_CHUNKS)}"
        source = new_source(writer, title, "\n\n".join(texts), paragraphs(texts), vectors)
        await writer.replace([source])
        await writer.finish()


def _files(data: Path) -> dict[Path, int]:
    """The sizes of the files of all tables."""
    walked = os.walk(database_folder(data))
    return {
        file: file.stat().st_size
        for above, _, names in walked
        for file in (Path(above, name) for name in names)
    }


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
