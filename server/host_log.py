"""Standard error for a host that may never read it: what finds no room is dropped, so that nobody waits.

A host may ignore standard error, whose pipe is full after 64 KiB. Waiting there would hold every answer up. A
module of its own, because a bridge imports little else, and no logging.
"""

from __future__ import annotations

import json
import os
import select
import sys

LOST = "Nobody read this log for a while, so lines of it were dropped here: {}."
PIECE = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe with any room takes at once


class HostLog:
    """Lines for the host."""

    def __init__(self, file: int = 2) -> None:
        self._file = file
        self._dropped = 0
        self._is_torn = False

    def write(self, line: str) -> None:
        """Write a line, or drop it; the first one after dropped lines comes after their number.

        Raises:
            OSError: the host has closed its end.
        """
        if self._dropped and self._writes(
            json.dumps({"level": "warning", "message": LOST.format(self._dropped)})
        ):
            self._dropped = 0
        if self._dropped or not self._writes(line):
            self._dropped += 1

    def _writes(self, line: str) -> bool:
        """Write a line as far as there is room. Returns whether there was room for all of it."""
        text = f"\n{line}\n" if self._is_torn else f"{line}\n"
        rest = text.encode(errors="backslashreplace")
        while rest and self._has_room():
            rest = rest[os.write(self._file, rest[:PIECE]) :]
            self._is_torn = bool(rest)
        return not rest

    def _has_room(self) -> bool:
        return sys.platform == "win32" or bool(select.select([], [self._file], [], 0)[1])
