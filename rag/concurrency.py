"""Runs calls concurrently, and counts the available processors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


def cores() -> int:
    """The number of processors that this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


async def concurrently(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of all calls, in order. The first failure cancels the others and is raised as it is."""
    if len(calls) == 1:
        return [await calls[0]()]
    results: dict[int, T] = {}

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        results[index] = await call()

    try:
        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(run, index, call)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [results[index] for index in range(len(calls))]
