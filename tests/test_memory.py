"""The arenas of the C library: few, however many threads allocate; what is free goes back to the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import psutil
import pytest

from rag.runtime import ARENAS, return_memory

THREADS = """
import ctypes, threading
from rag.runtime import share_arenas
{first}
libc = ctypes.CDLL(None)
together = threading.Barrier(8)
def allocate():
    together.wait()
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")


def _arenas(first: str, **environment: str) -> int:
    env = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | environment
    command = [sys.executable, "-c", THREADS.format(first=first)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return run.stderr.count("Arena ")


@glibc
def test_all_threads_share_two_arenas_unless_the_environment_says_how_many() -> None:
    assert _arenas("") > ARENAS
    assert _arenas("share_arenas()") == ARENAS
    assert _arenas("share_arenas()", MALLOC_ARENA_MAX="4") == ARENAS + 2


def test_returning_memory_does_no_harm() -> None:
    kept = bytes(1_000_000)
    return_memory()
    assert kept == bytes(1_000_000)


@glibc
def test_free_memory_below_what_is_still_used_goes_back() -> None:
    process = psutil.Process()
    blocks = [bytes(50_000) + b"." for _ in range(2_000)]  # small enough for the heap of the allocator
    full = process.memory_info().rss
    blocks = blocks[-1:]  # the last one keeps the heap from shrinking on its own
    return_memory()
    assert process.memory_info().rss < full - 50_000_000
    assert blocks
