"""Warm searches and opened sources, through the server and through the library, against the engine alone."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from anyio import to_thread

from rag.answers import Part, SearchRequest
from rag.config.settings import DEFAULT_COLLECTION, SearchSettings
from rag.corpus import Principal
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.bench.corpus import QUESTIONS
from tests.bench.engine import TENANT, open_engine
from tests.bench.measure import measured
from tests.bench.process import connected
from tests.bench.stock import new_source, paragraphs, stocked
from tests.bench.timing import in_blocks, interleaved, rate, rotated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from rag.answers import Mode
    from tests.bench.engine import Engine
    from tests.bench.measure import Measure
    from tests.bench.process import Server
    from tests.bench.stock import Bench
    from tests.bench.timing import Spent

PRINCIPAL = Principal(TENANT)
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")  # that the engine's own lists are compared with
LEVELS = (1, 4, 16)  # searches at once
HITS = 10  # of the reply that is weighed
SOURCES = 32  # opened
WINDOW = 6_000  # characters that fit into a reply of the usual size
BOOK_SENTENCES = 10  # per chunk: a thousand characters


def desk_on(bench: Bench, data: Path) -> Desk:
    """A desk on a data folder, with the shared embedder."""
    settings = SearchSettings()
    reader = DeskReader(
        data,
        timeout_seconds=settings.timeout_seconds,
        index_cache_bytes=settings.most_cached,
        memory_bytes=settings.bytes_in_memory,
    )
    return Desk(reader, bench.embedder, settings)


async def measure_search(bench: Bench) -> list[Measure]:
    """Searches of each mode, one after another, in collections of several sizes and in two at once."""
    measures = []
    for size in bench.sizes.searched:
        bench.say(f"searching {size:,} chunks")
        measures += await searched(bench, await stocked(bench, size), f"search/{size}")
    return [*measures, *await _two_collections(bench)]


async def searched(bench: Bench, data: Path, name: str) -> list[Measure]:
    """Time and CPU of a search by mode and caller, and the size of a reply with ten hits.

    CPU is that of the process that answers: of this one, or of the server.
    """
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as server:
        for mode in MODES:
            bench.say(f"searching in mode {mode}")
            this_pid, its = os.getpid(), server.process.pid
            calls = _searches(mode, desk, engine, server)
            searches = {by: (call, its if by == "stdio" else this_pid) for by, call in calls.items()}
            spent = await in_blocks(searches, 2 * bench.sizes.searches)
            walls, cpus = [{by: of(seconds) for by, seconds in spent.items()} for of in (_wall, _cpu)]
            measures += against_engine(f"{name}/{mode}", walls, "ms")
            measures += against_engine(f"{name}/{mode}/cpu", cpus, "ms")
        return [*measures, *await _replies(server, name)]


def _wall(spent: Spent) -> list[float]:
    return spent.wall


def _cpu(spent: Spent) -> list[float]:
    return spent.cpu


def _searches(
    mode: Mode, desk: Desk, engine: Engine, server: Server
) -> dict[str, Callable[[str], Awaitable[object]]]:
    async def library(query: str) -> None:
        await desk.search(PRINCIPAL, SearchRequest(query, mode=mode))

    async def stdio(query: str) -> None:
        await server.call("search", query=query, mode=mode)

    return {"library": library, "stdio": stdio, "engine": partial(engine.search, mode)}


def against_engine(name: str, values: Mapping[str, list[float]], unit: str) -> list[Measure]:
    """The library and the server over stdio, against the engine."""
    return [measured(f"{name}/{by}", values[by], unit, values["engine"]) for by in ("library", "stdio")]


async def _replies(server: Server, name: str) -> list[Measure]:
    """Bytes on the wire of replies with up to ten hits, against those of the texts in them, and the hits."""
    sizes, texts, hits = [], [], []
    for query in QUESTIONS:
        reply = await server.call("search", query=query, limit=HITS)
        results = reply.result["structuredContent"]["results"]
        sizes.append(float(reply.size))
        texts.append(float(sum(len((result.get("text") or "").encode()) for result in results)))
        hits.append(float(len(results)))
    return [
        measured(f"{name}/reply of ten", sizes, "bytes", texts),
        measured(f"{name}/hits of ten", hits, "hits"),
    ]


async def _two_collections(bench: Bench) -> list[Measure]:
    """Hybrid searches with a second collection of one passage, against those without it."""
    data = await stocked(bench, bench.sizes.small)
    bench.say("searching two collections")
    desks = {"one": desk_on(bench, data), "two": desk_on(bench, await _with_a_note(bench, data))}
    searches = {name: (partial(_search, desk), os.getpid()) for name, desk in desks.items()}
    spent = await in_blocks(searches, 2 * bench.sizes.searches)
    name = "search/second collection"
    return [
        measured(name, spent["two"].wall, "ms", spent["one"].wall),
        measured(f"{name}/cpu", spent["two"].cpu, "ms", spent["one"].cpu),
    ]


async def _search(desk: Desk, query: str) -> None:
    await desk.search(PRINCIPAL, SearchRequest(query))


async def _with_a_note(bench: Bench, data: Path) -> Path:
    """A copy of a data folder with a second collection, of one passage."""
    copy = bench.folder / "two collections"
    await to_thread.run_sync(shutil.copytree, data, copy)
    second = await ensure_collection(copy, TENANT, "second", bench.embedder.identity)
    (text,) = bench.sentences[:1]
    async with open_writer(copy, second) as writer:
        await writer.replace([new_source(writer, "Note", text, paragraphs([text]), bench.vectors[:1])])
        await writer.finish()
    return copy


async def measure_concurrency(bench: Bench) -> list[Measure]:
    """Hybrid searches per second, several at once. The limit of the server over stdio is the library."""
    data = await stocked(bench, bench.sizes.collection)
    desk, engine = desk_on(bench, data), await open_engine(data, bench.embedder)
    measures = []
    async with connected(data) as server:
        searches = _searches("hybrid", desk, engine, server)
        for level in LEVELS:
            bench.say(f"searching, {level} at once")
            rates: dict[str, list[float]] = {name: [] for name in searches}
            for at in range(bench.sizes.rounds + 1):
                for name, search in rotated(list(searches.items()), at):
                    reached = await rate(search, level, bench.sizes.searches // 2)
                    rates[name] += [reached] if at else []  # the first round is a warm-up
            measures += [
                measured(f"concurrency/{level}/{by}", rates[by], "searches/s", rates[limit])
                for by, limit in (("library", "engine"), ("stdio", "library"))
            ]
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
    async with connected(data) as server:

        async def library(id_: str) -> None:
            await desk.extract(PRINCIPAL, id_, max_chars=WINDOW, part=Part(start))

        async def stdio(id_: str) -> None:
            await server.call("get_source", id=id_, start=start)

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
