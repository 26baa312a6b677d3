"""Runs calls concurrently, and counts the processors and the memory that this process may use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

T = TypeVar("T")

OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cores() -> int:
    """The number of processors that this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int:
    """The bytes of memory that this process may use; 1 GB where the system doesn't say."""
    limits = [*_limits_of_groups()]
    with suppress(AttributeError, ValueError, OSError):  # Windows doesn't say
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=10**9)


def _limits_of_groups() -> Iterator[int]:
    """The limits of the control groups of Linux that the process is in: of a container or a service, say."""
    groups = ""
    with suppress(OSError):
        groups = OWN_GROUPS.read_text("utf-8")
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = GROUPS, "memory.max"
        elif "memory" in controllers.split(","):  # the first version
            top, name = GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            with suppress(OSError, ValueError):  # a container doesn't see all; "max" is no number
                yield int((folder / name).read_text("ascii"))


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
