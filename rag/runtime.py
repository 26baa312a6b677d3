"""This process: its concurrent calls, its processors, power and memory, and how it was installed.

Also `grouped` and `keep_latest`, for dictionaries anywhere in the program.

glibc makes an arena for each thread that allocates, up to eight for each processor, and memory freed in one
can't be used in others. The engine has dozens of threads. So `allocate_sparingly` limits the arenas, and
makes Arrow allocate from them, too: Arrow's own allocator kept 45 of the 370 MB of a server with 5,500
passages. `return_memory` makes the C library return free memory.

refdesk may come from a checkout, a wheel, a repository or a package index, and be installed by pip, uv or
pipx. `pip install 'refdesk[ocr]'` uses an index, which may lack refdesk, and the first pip on the path, which
may belong to another environment. So `install_command` returns the command that adds an extra here.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, TaskGroup

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """The second parts of pairs by the first: ("a", 1), ("b", 2), ("a", 3) -> {"a": [1, 3], "b": [2]}."""
    groups = defaultdict[K, list[T]](list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


def keep_latest(cache: dict[K, T], key: K, value: T, most: int) -> None:
    """Put a value into a cache of `most` values; if there are more, what was put there first leaves."""
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > most:
        del cache[next(iter(cache))]


OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


LOWEST_PRIORITY = 19  # of nice(2)
_gentle = threading.Event()


def be_gentle() -> None:
    """Leave the machine to others from now on: one processor, and the lowest priority.

    Child processes inherit both. macOS can't bind a process to a processor; there, only code that uses
    `cores` is limited. Call it before threads start.
    """
    import psutil  # noqa: PLC0415 few processes need it

    _gentle.set()
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):
        process.cpu_affinity(process.cpu_affinity()[-1:])
    if sys.platform == "win32":
        process.nice(psutil.IDLE_PRIORITY_CLASS)
    else:
        process.nice(LOWEST_PRIORITY)


def on_battery() -> bool:
    """Whether the machine runs on its battery; False if it has none, or the system doesn't say."""
    import psutil  # noqa: PLC0415 few processes need it

    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False


def cores() -> int:
    """The number of processors that this process may use."""
    if _gentle.is_set():
        return 1
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """The bytes of memory that this process may use; 1 GB where the system doesn't say."""
    limits = [*_limits_of_groups()]
    with suppress(AttributeError, ValueError, OSError):  # Windows doesn't say
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=10**9)


def _limits_of_groups() -> Iterator[int]:
    """The memory limits of the process's control groups on Linux, as of a container or a service."""
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
        cgroup = top / path.lstrip("/")
        for folder in (cgroup, *cgroup.parents):
            with suppress(OSError, ValueError):  # a container doesn't see all; "max" isn't a number
                yield int((folder / name).read_text("ascii"))


FOREIGN_ERRORS = (Exception, SystemExit, asyncio.CancelledError)
"""Exceptions of an operator's or a program's code, which end only this call."""


def raise_own_cancellation(error: BaseException) -> None:
    """Raise a cancellation again if this task is cancelled; otherwise foreign code cancelled its own task."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
        raise error


async def concurrently(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of all calls, in order. The first failure cancels the others and is raised as it is.

    A call that needn't wait gets no task, which would cost some 30 us: a search makes hundreds.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    results: dict[int, T] = {}
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_call_each, deque(enumerate(calls)), results, tasks)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [results[index] for index in range(len(calls))]


async def _call_each(
    remaining: deque[tuple[int, Callable[[], Awaitable[T]]]], results: dict[int, T], tasks: TaskGroup
) -> None:
    """Make the remaining calls. As soon as one waits, another task continues with the next."""
    if remaining:
        tasks.start_soon(_call_each, remaining, results, tasks)
    while remaining:
        index, call = remaining.popleft()
        results[index] = await call()


async def lines_of(stream: ByteReceiveStream) -> AsyncIterator[str]:
    """The lines that a process writes to a stream, without their ends."""
    incomplete = b""
    async for part in stream:
        *whole, incomplete = (incomplete + part).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
    if incomplete:
        yield incomplete.decode(errors="replace")


M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3  # of mallopt(3)
LARGE_BYTES = 1 << 20  # blocks of this size go back to the system as soon as they are freed
ARENAS = 2  # with one, threads would wait for each other


def allocate_sparingly() -> None:
    """Make all threads and Arrow share two arenas, and return large blocks as soon as they are freed.

    Variables of the environment have precedence. By default, glibc takes ever larger blocks from the arenas,
    up to 32 MB, which leave holes. Call it before threads start and Arrow is imported.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for option, value, variable in (
        (M_ARENA_MAX, ARENAS, "MALLOC_ARENA_MAX"),
        (M_MMAP_THRESHOLD, LARGE_BYTES, "MALLOC_MMAP_THRESHOLD_"),
    ):
        if variable not in os.environ:
            with suppress(AttributeError):  # other C libraries have no arenas
                ctypes.CDLL(None).mallopt(option, value)


def return_memory() -> None:
    """Return memory to the system that the process has freed and glibc would keep."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # other C libraries have no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


PACKAGE = "refdesk"
MODULES = {"cloud": "obstore", "ocr": "rapidocr", "otel": "opentelemetry.exporter.otlp.proto.http"}
"""A module that an extra brings, for extras that settings need."""


def named_object(path: str, where: str) -> Any:  # noqa: ANN401 the operator's own
    """What an operator's setting names: "package.module:name".

    Raises:
        ConfigurationError: the module can't be imported, or lacks the name. `where` begins the message.
    """
    module_name, _, name = path.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        why = f"importing its module raised {type(error).__name__}"  # whose message may hold anything
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            why = f"there is no module {error.name} in refdesk's environment"
        raise ConfigurationError(f"{where} {path}, but {why}.") from error
    if not hasattr(module, name):
        raise ConfigurationError(f"{where} {path}, but that module has no {name}.")
    return getattr(module, name)


def installed_command(name: str) -> str:
    """The path of a command of this installation.

    Raises:
        ConfigurationError: it is missing.
    """
    scripts = sysconfig.get_path("scripts")
    if path := shutil.which(name, path=scripts):
        return path
    raise ConfigurationError(f"The command {name} is missing from {scripts}. Install refdesk again.")


def has_extra(extra: str) -> bool:
    """Whether an extra of `MODULES` is installed."""
    with suppress(ModuleNotFoundError):  # a package above it
        return find_spec(MODULES[extra]) is not None
    return False


def extra_needed(extra: str, needed_by: str) -> str:
    """That something needs an extra which isn't installed, and the command that installs it, in sentences."""
    return f"{needed_by} needs the extra {extra}, which is not installed. Run: {install_command(extra)}"


def install_command(extra: str = "") -> str:
    """The command that installs refdesk again in this environment, from the same origin, with an extra.

    Example: /srv/desk/.venv/bin/python -m pip install '/home/ann/refdesk[ocr]'.
    """
    extras = f"[{extra}]" if extra else ""
    words = [*_installer_command(), *_requirement(extras)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _installer_command() -> list[str]:
    """The install command of the tool that made this environment, without the requirement."""
    prefix = Path(sys.prefix)
    if (prefix / "uv-receipt.toml").exists():
        return ["uv", "tool", "install", "--force"]
    if (prefix / "pipx_metadata.json").exists():
        return ["pipx", "install", "--force"]
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]


def _requirement(extras: str) -> list[str]:
    """The requirement: the origin of this refdesk, or its name if that was an index."""
    origin = _origin()
    url = str(origin.get("url", ""))
    if vcs := origin.get("vcs_info"):
        commit = f"@{vcs['commit_id']}" if vcs.get("commit_id") else ""
        return [f"{PACKAGE}{extras} @ {vcs['vcs']}+{url}{commit}"]
    if "dir_info" in origin and url.startswith("file:"):
        folder = url2pathname(urlsplit(url).path) + extras
        return ["--editable", folder] if origin["dir_info"].get("editable") else [folder]
    return [f"{PACKAGE}{extras} @ {url}" if url else PACKAGE + extras]


def _origin() -> dict[str, Any]:
    """The package's origin by PEP 610; empty if it was an index or isn't recorded."""
    try:
        noted = metadata.distribution(PACKAGE).read_text("direct_url.json")
        return dict(json.loads(noted or "{}"))
    except (metadata.PackageNotFoundError, ValueError):
        return {}
