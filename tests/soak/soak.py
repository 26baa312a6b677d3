"""A server under a long mixed load while documents change: wrong answers, leaks, and what it accumulates."""

from __future__ import annotations

import random
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, get_args

import anyio
import psutil
from anyio import to_thread

from rag.answers import Mode, SearchRequest
from rag.errors import RefdeskError
from tests.bench.corpus import QUESTIONS, SEED
from tests.bench.index import GUEST
from tests.bench.measure import measured
from tests.bench.remote import ERAS, connected, listening, make_keys, tool_call
from tests.bench.search import PRINCIPAL, desk_on
from tests.bench.stock import stocked
from tests.bench.timing import interleaved
from tests.soak.load import READER, Canary, Readers, change, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rag.search.desk import Desk
    from tests.bench.measure import Measure
    from tests.bench.remote import Connection, Era, Remote
    from tests.bench.stock import Bench


CLIENTS = 8
SOURCES = 64  # opened
PAUSE_SECONDS = 0.25  # after each check of a change, and before a client reconnects after an error
LOOKING = 0.1  # of the requests are the reader's, for the changing document
LEAVING = 0.02  # of the others disconnect before the answer, half of them before the request is complete
SAMPLES = 200
WARM, END = (0.2, 0.4), (0.8, 1.0)  # the phases of a run that are compared
CHECKED = ("answered", "tool error")  # answers for a document that the reader may see, and may not see
SHOWN = 5  # errors that are printed


@dataclass(frozen=True, slots=True)
class Length:
    """How long a run lasts: at least so many requests, and at least so many seconds."""

    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What the server held at this progress of the run."""

    progress: float
    requests: int
    megabytes: float
    descriptors: int
    threads: int


async def measure_soak(bench: Bench, *, requests: int = 600, seconds: float = 0) -> list[Measure]:
    """Requests of all kinds: at least `requests`, for at least `seconds`."""
    data = bench.folder / "soaked"
    await to_thread.run_sync(shutil.copytree, await stocked(bench, bench.sizes.collection), data)
    keys = make_keys(data, {"ann": frozenset(), "bob": GUEST.groups, READER: frozenset()})
    some = await desk_on(bench, data).sources(GUEST, after=("", ""), limit=SOURCES)
    readers = Readers((keys["ann"], keys["bob"]), [source.id for source in some], bench.sizes.collection)
    bench.say("serving mixed requests over HTTP while documents change")
    async with listening(data) as remote:
        soak = Soak(bench, remote, readers, keys[READER], Length(requests, seconds))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(soak.operate, data)
            for number in range(CLIENTS):
                tasks.start_soon(soak.ask, random.Random(SEED + number))  # noqa: S311 repeatable, not secret
        return soak.measures()


class Soak:
    """A run in progress, and its counts."""

    def __init__(self, bench: Bench, remote: Remote, readers: Readers, key: str, length: Length) -> None:
        self._bench = bench
        self._remote = remote
        self._readers = readers
        self._key = key
        self._length = length
        self._server = psutil.Process(remote.pid)
        self._canary = Canary()
        self._began = time.monotonic()
        self._asked = self._errors = self._leaks = 0
        self._samples: list[Sample] = []

    async def operate(self, data: Path) -> None:
        """Change documents, at least one, until the run is over, and check what their reader finds."""
        documents = 0
        while not documents or self._progress() < 1:
            documents += 1
            try:
                await change(self._bench, data, self._canary, f"canary{documents}", self._look_again)
            except RefdeskError as error:
                self._wrong(f"a change failed: {error}")

    async def ask(self, chance: random.Random) -> None:
        """Act as one client after the other until the run is over."""
        while self._progress() < 1:
            try:
                async with connected(self._remote.port) as connection:
                    await self._converse(connection, chance)
            except (RefdeskError, OSError) as error:
                self._count()
                self._wrong(str(error))
                await anyio.sleep(PAUSE_SECONDS)

    async def _converse(self, connection: Connection, chance: random.Random) -> None:
        """Send one request after the other until the run is over, or disconnect in the middle of one."""
        while self._progress() < 1:
            if chance.random() < LOOKING:
                await self._look(connection, chance.choice(ERAS))
            ask = self._readers.draw(self._remote, chance)
            if chance.random() < LEAVING:
                await connection.stream.send(ask.request[: len(ask.request) // chance.randint(1, 2)])
                self._count()
                return
            answer = await connection.ask(ask.request)
            self._count()
            if kind_of(answer) != ask.expected:
                self._wrong(f"{ask.name}: {answer.status} {answer.body[:200]!r}")

    async def _look_again(self) -> None:
        async with connected(self._remote.port) as connection:
            for era in ERAS:
                await self._look(connection, era)
        await anyio.sleep(PAUSE_SECONDS)

    async def _look(self, connection: Connection, era: Era) -> None:
        """Search and open the document as its reader, who must find it if and only if they may see it."""
        state = self._canary.state
        if state is None:
            return
        for call in (tool_call("search", query=state.word), tool_call("get_source", id=state.id)):
            answer = await connection.ask(self._remote.request(era, self._key, *call))
            self._count()
            kind = kind_of(answer)
            is_found = kind == "answered" and state.id.encode() in answer.body
            if self._canary.state is state and is_found and not state.visible:
                self._leaks += 1
            elif (self._canary.state is state and is_found != state.visible) or kind not in CHECKED:
                self._wrong(f"the changing document: {answer.status} {answer.body[:200]!r}")

    def _progress(self) -> float:
        """The completed share of the run, 1 at its end."""
        seconds = self._length.seconds
        passed = (time.monotonic() - self._began) / seconds if seconds else 1
        return min(1, passed, self._asked / self._length.requests)

    def _count(self) -> None:
        self._asked += 1
        progress = self._progress()
        if progress >= len(self._samples) / SAMPLES:
            with suppress(psutil.Error):
                self._samples.append(self._sample(progress))

    def _sample(self, progress: float) -> Sample:
        with self._server.oneshot():
            megabytes = self._server.memory_info().rss / 1e6
            threads = self._server.num_threads()
            return Sample(progress, self._asked, megabytes, _descriptors(self._server), threads)

    def _wrong(self, what: str) -> None:
        self._errors += 1
        if self._errors <= SHOWN:
            self._bench.say(f"wrong answer: {what}")

    def measures(self) -> list[Measure]:
        """What the server held at the end against what it held when warm, and the counts.

        Raises:
            RefdeskError: the server exited.
        """
        if not self._server.is_running() or self._server.status() == psutil.STATUS_ZOMBIE:
            raise RefdeskError("The HTTP server exited under load.")
        warm, end = self._between(*WARM), self._between(*END)

        def held(name: str, unit: str, of: Callable[[Sample], float]) -> Measure:
            return measured(
                f"soak/{name}", [of(sample) for sample in end], unit, [of(sample) for sample in warm]
            )

        thousands = (
            median(sample.requests for sample in end) - median(sample.requests for sample in warm)
        ) / 1000
        memory = held("memory", "MB", lambda sample: sample.megabytes)
        grown = (memory.value - (memory.limit or 0)) * 1000 / thousands
        rate = self._asked / (time.monotonic() - self._began)
        return [
            memory,
            measured("soak/memory per 1,000 requests", [grown], "kB"),
            held("descriptors", "descriptors", lambda sample: sample.descriptors),
            held("threads", "threads", lambda sample: sample.threads),
            measured("soak/requests", [self._asked], "requests"),
            measured("soak/rate", [rate], "requests/s"),
            measured("soak/changes", [self._canary.changes], "changes"),
            measured("soak/errors", [self._errors], "requests"),
            measured("soak/leaks", [self._leaks], "requests"),
        ]

    def _between(self, start: float, end: float) -> list[Sample]:
        """The samples of a phase; the nearest one if a busy machine left none in a short run."""
        samples = [sample for sample in self._samples if start <= sample.progress <= end]
        return samples or [min(self._samples, key=lambda sample: abs(sample.progress - start))]


def _descriptors(process: psutil.Process) -> int:
    if sys.platform == "win32":
        return process.num_handles()
    return process.num_fds()


async def measure_growth(bench: Bench, sizes: Sequence[int]) -> list[Measure]:
    """Warm searches of each mode in collections of so many chunks each."""
    desks = {size: desk_on(bench, await stocked(bench, size)) for size in sizes}
    measures = []
    for mode in get_args(Mode):
        bench.say(f"searching collections of every size in mode {mode}")
        searches = {size: partial(_search, desk, mode) for size, desk in desks.items()}
        took = await interleaved(searches, QUESTIONS, bench.sizes.searches)
        measures += [
            measured(f"growth/{mode}/{size} chunks", times, "ms", took[min(took)])
            for size, times in took.items()
        ]
    return measures


async def _search(desk: Desk, mode: Mode, query: str) -> None:
    await desk.search(PRINCIPAL, SearchRequest(query, mode=mode))
