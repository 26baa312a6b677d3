"""Keeps the C library from holding on to memory that is free.

For each thread that allocates, glibc makes an arena of its own, up to eight for each processor, and what is
freed in one is of no use to the others. The engine has dozens of threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

M_ARENA_MAX = -8  # of mallopt(3)
ARENAS = 2  # with one, threads would wait for each other


def share_arenas() -> None:
    """Have all threads share two arenas, unless the environment says how many. Call it before they start."""
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError):  # other C libraries have no arenas
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def return_memory() -> None:
    """Return to the system what the process has freed and glibc would keep."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # other C libraries have no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)
