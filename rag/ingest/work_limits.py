"""Limits of a run: CPU seconds for each file, and how many documents may be prepared ahead of writing.

Opening, parsing and chunking a file draw on the same budget, in whatever process they run. It counts CPU
time, not the clock: a busy machine must not refuse good files.

Preparing ahead keeps the embedder busy while memory stays bounded. Small documents are prepared ahead up to
about half a minute of embedding, enough to cover the parsing of a large file, which takes one core. Large
files have a lane of their own, so that neither kind waits for the other. Only one large document at a time is
in memory; with the workers of a cluster, a million characters for each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import thread_time
from typing import ParamSpec, TypeVar

import anyio
from anyio import to_thread

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 10 if os.name == "posix" else 1
"""A step may take this many times its CPU seconds by the clock: waiting uses no CPU time, and a busy machine
gives a file only a share of a processor. Windows can't limit CPU time, so there the clock counts."""


@dataclass(slots=True)
class Budget:
    """The CPU seconds that a file may take and has taken."""

    seconds: float
    spent: float = 0.0

    @property
    def left(self) -> float:
        """The CPU seconds that its next step may take."""
        return max(0.0, self.seconds - self.spent)

    @property
    def patience(self) -> float:
        """The seconds by the clock after which its next step is ended."""
        return PATIENCE * self.left

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread and charge its CPU time. A thread can't be stopped over the budget."""
        return await to_thread.run_sync(self._run_and_charge, function, args, kwargs)

    def _run_and_charge(
        self, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> T:
        began = thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            self.spent += thread_time() - began


SMALL_CHARACTERS = 4_000_000  # of small documents together: some 5,000 chunks
LARGE_CHARACTERS = 1_000_000  # of one document, or bytes of its file
WORKER_CHARACTERS = 200_000  # more of small documents for each worker of a cluster


def lanes(uris: Iterable[str], sizes: Mapping[str, int]) -> list[list[list[str]]]:
    """The URIs in two lanes that are prepared at the same time: small files, and large ones.

    Each element of a lane is a file followed by its parts, so that the container is admitted or kept out
    before its parts are.
    """
    small_and_large: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for uri in uris:
        outermost = uri.partition("#")[0]
        lane = small_and_large[sizes.get(outermost, 0) >= LARGE_CHARACTERS]
        lane.setdefault(outermost, []).append(uri)
    return [[*lane.values()] for lane in small_and_large if lane]


class BackPressure:
    """Bounds the documents that are being prepared or wait to be written. Sizes are in characters.

    `workers` is the number of processors that prepare documents; each adds to the bound.
    """

    def __init__(self, workers: int = 1) -> None:
        self._most_small = SMALL_CHARACTERS + (workers - 1) * WORKER_CHARACTERS
        self._most_large = (workers - 1) * LARGE_CHARACTERS
        self._small: dict[str, int] = {}
        self._large: dict[str, int] = {}
        self._has_room = anyio.Event()
        self._open = False

    async def enter(self, uri: str, size: int) -> None:
        """Wait for room for a document, then count it. Call it again when its real size is known."""
        self.leave(uri)
        sizes = self._large if size >= LARGE_CHARACTERS else self._small
        limit = self._most_large if size >= LARGE_CHARACTERS else self._most_small
        while not self._open and sum(sizes.values()) > limit:
            if self._has_room.is_set():  # a new event only once: other tasks may already wait for this one
                self._has_room = anyio.Event()
            await self._has_room.wait()
        sizes[uri] = size

    def leave(self, uri: str) -> None:
        """Stop counting a document that was written, or won't be."""
        self._small.pop(uri, 0)
        self._large.pop(uri, 0)
        self._has_room.set()

    def open(self) -> None:
        """Stop blocking: after a failure nothing is written, so nothing would ever leave."""
        self._open = True
        self._has_room.set()
