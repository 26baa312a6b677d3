"""What a process may use: memory by its control groups, and how the C library gives it back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from rag import runtime
from rag.runtime import ARENAS, keep_latest, return_memory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runtime, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(runtime, "OWN_GROUPS", tmp_path / "own")
    return tmp_path


def _limit(groups: Path, group: str, limits: dict[str, str]) -> int:
    (groups / "own").write_text(group)
    for name, limit in limits.items():
        file = groups / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    return runtime.memory_bytes()


def test_without_groups_it_is_that_of_the_machine(groups: Path) -> None:
    assert not (groups / "own").exists()
    assert runtime.memory_bytes() > 10**8


@pytest.mark.parametrize(
    ("group", "limits"),
    [
        ("0::/\n", {"memory.max": "5000000\n"}),
        ("0::/system.slice/desk.service\n", {"system.slice/desk.service/memory.max": "5000000\n"}),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "5000000\n", "memory.max": "6000000\n"}),
        ("3:cpu:/\n2:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "5000000\n"}),
        ("2:cpu,memory:/unseen\n", {"memory/memory.limit_in_bytes": "5000000\n"}),
    ],
)
def test_the_narrowest_limit_of_a_group_or_of_what_contains_it_counts(
    groups: Path, group: str, limits: dict[str, str]
) -> None:
    assert _limit(groups, group, limits) == 5_000_000


def test_a_group_without_a_limit_has_what_the_machine_has(groups: Path) -> None:
    machine = runtime.memory_bytes()
    assert _limit(groups, "0::/\n", {"memory.max": "max\n"}) == machine
    unlimited = {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}
    assert _limit(groups, "1:memory:/\n", unlimited) == machine


THREADS = """
import ctypes, threading
from rag.runtime import allocate_sparingly
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


@pytest.mark.slow
@glibc
def test_all_threads_share_two_arenas_unless_the_environment_says_how_many() -> None:
    assert _arenas("") > ARENAS
    assert _arenas("allocate_sparingly()") == ARENAS
    assert _arenas("allocate_sparingly()", MALLOC_ARENA_MAX="4") == ARENAS + 2


POOL = """
from rag.runtime import allocate_sparingly
allocate_sparingly()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


@pytest.mark.slow
@glibc
@pytest.mark.parametrize(
    ("environment", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")]
)
def test_arrow_allocates_as_everything_else_unless_the_environment_says_how(
    environment: dict[str, str], pool: str
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", POOL]
    run = subprocess.run(command, env=env | environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == pool


def test_returning_memory_does_no_harm() -> None:
    content = bytes(1_000_000)
    return_memory()
    assert content == bytes(1_000_000)


@glibc
def test_free_memory_below_what_is_still_used_goes_back() -> None:
    process = psutil.Process()
    blocks = [bytes(50_000) + b"." for _ in range(2_000)]  # small enough for the heap of the allocator
    full = process.memory_info().rss
    blocks = blocks[-1:]  # the last one keeps the heap from shrinking on its own
    return_memory()
    assert process.memory_info().rss < full - 50_000_000
    assert blocks


def test_a_cache_keeps_only_so_many_values_and_the_latest() -> None:
    cache: dict[int, str] = {}
    for key, value in ((1, "a"), (2, "b"), (1, "c"), (3, "d")):
        keep_latest(cache, key, value, 2)
    assert cache == {1: "c", 3: "d"}
