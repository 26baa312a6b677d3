"""Gives memory that nobody uses any more back to the system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def give_back() -> None:
    """Return the free pages of all of the allocator's arenas; each thread's keeps what it once needed.

    That takes some milliseconds, and only glibc can do it.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
