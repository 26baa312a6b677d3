"""How far preparing may be ahead of writing: the embedder never waits, and memory stays bounded.

Small documents are prepared ahead by what takes an embedder half a minute, so that it has enough to do while
a large file is parsed and cut, which one core does. Large files are prepared beside the small ones, so that
neither waits for the other. Of large documents, only one at a time is in memory; with the workers of a
cluster, a million characters for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SMALL_CHARACTERS = 4_000_000  # of small documents together: some 5,000 chunks
LARGE_CHARACTERS = 1_000_000  # of one document, or bytes of its file
WORKER_CHARACTERS = 200_000  # more of small documents for each worker of a cluster


def lanes(uris: Iterable[str], sizes: Mapping[str, int]) -> list[list[list[str]]]:
    """Documents in lanes that are prepared at the same time: small files, and large ones with their parts.

    In a lane, each file is together with its parts. A part is behind what contains it, which decides whether
    it may come in.
    """
    both: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for uri in uris:
        outermost = uri.partition("#")[0]
        lane = both[sizes.get(outermost, 0) >= LARGE_CHARACTERS]
        lane.setdefault(outermost, []).append(uri)
    return [[*lane.values()] for lane in both if lane]


class Ahead:
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
        most = self._most_large if size >= LARGE_CHARACTERS else self._most_small
        while not self._open and sum(sizes.values()) > most:
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
