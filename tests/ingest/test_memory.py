"""What is free goes back to the system."""

from __future__ import annotations

import platform

import psutil
import pytest

from rag.runtime import return_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can give memory back")
def test_free_memory_below_what_is_still_used_goes_back() -> None:
    process = psutil.Process()
    blocks = [bytes(50_000) + b"." for _ in range(2_000)]  # small enough for the heap of the allocator
    full = process.memory_info().rss
    blocks = blocks[-1:]  # the last one keeps the heap from shrinking on its own
    return_memory()
    assert process.memory_info().rss < full - 50_000_000
    assert blocks
