"""What a run may cost: CPU seconds for each file, and how many documents may be prepared ahead of writing.

Opening a file, parsing it and cutting its text all draw on the same seconds, whatever process they run in.
Time in which others compute doesn't count, or a busy machine would refuse good files.

Preparing ahead keeps the embedder busy while memory stays bounded. Small documents are prepared ahead by what
takes an embedder half a minute, so that it has enough to do while a large file is parsed and cut, which one
core does. Large files are prepared beside the small ones, so that neither waits for the other. Of large
documents, only one at a time is in memory; with the workers of a cluster, a million characters for each.
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
"""How much longer than its CPU seconds a step may take by the clock: what only waits uses none, and on a busy
machine a file gets a share of a processor. Windows limits no CPU time, so there the clock counts."""


@dataclass(slots=True)
class Budget:
    """The CPU seconds that a file may take, and those that are spent."""

    seconds: float
    spent: float = 0.0

    @property
    def left(self) -> float:
        """What its next step may take."""
        return max(0.0, self.seconds - self.spent)

    @property
    def patience(self) -> float:
        """The seconds by the clock after which its next step is ended."""
        return PATIENCE * self.left

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread, at the expense of the file. It is not ended when that is too much."""
        return await to_thread.run_sync(self._charged, function, args, kwargs)

    def _charged(self, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
        began = thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            self.spent += thread_time() - began


SMALL_CHARACTERS = 4_000_000  # of small documents together: some 5,000 chunks
LARGE_CHARACTERS = 1_000_000  # of one document, or bytes of its file
WORKER_CHARACTERS = 200_000  # more of small documents for each worker of a cluster


def lanes(uris: Iterable[str], sizes: Mapping[str, int]) -> list[list[list[str]]]:
    """Documents in lanes that are prepared at the same time: small files, and large ones with their parts.

    In a lane, each file is together with its parts. A part is behind what contains it, which decides whether
    it may come in.
    """
    small_and_large: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for uri in uris:
        outermost = uri.partition("#")[0]
        lane = small_and_large[sizes.get(outermost, 0) >= LARGE_CHARACTERS]
        lane.setdefault(outermost, []).append(uri)
    return [[*lane.values()] for lane in small_and_large if lane]


class BackPressure:
    """The documents of a run that are being prepared or wait to be written. Sizes are in characters.

    `width` is the number of workers that prepare them, 1 on one machine.
    """

    def __init__(self, width: int = 1) -> None:
        self._most_small = SMALL_CHARACTERS + (width - 1) * WORKER_CHARACTERS
        self._most_large = (width - 1) * LARGE_CHARACTERS
        self._small: dict[str, int] = {}
        self._large: dict[str, int] = {}
        self._has_room = anyio.Event()
        self._open = False

    async def enter(self, uri: str, size: int) -> None:
        """Wait until there is room for a document, and note it. `size` is at first that of its file."""
        self.leave(uri)
        sizes = self._large if size >= LARGE_CHARACTERS else self._small
        limit = self._most_large if size >= LARGE_CHARACTERS else self._most_small
        while not self._open and sum(sizes.values()) > limit:
            if self._has_room.is_set():  # others may wait for it, too
                self._has_room = anyio.Event()
            await self._has_room.wait()
        sizes[uri] = size

    def leave(self, uri: str) -> None:
        """Note that a document has been written, or isn't to be."""
        self._small.pop(uri, 0)
        self._large.pop(uri, 0)
        self._has_room.set()

    def open(self) -> None:
        """Let in whatever comes: nothing is written any more."""
        self._open = True
        self._has_room.set()
