"""Confines a process of a parser, or of pages, before it reads the first file.

| from then on it can't | Linux | macOS | Windows |
|---|---|---|---|
| use more memory than allowed | yes | | |
| open a file, a connection or a pipe | yes | yes | |
| remove, rename or change files by name | yes, from 5.13 or with user namespaces | | |
| start processes, write to files, leave core dumps | yes | yes | |

Its parent limits the time on all platforms. On Linux and macOS the system limits CPU time, too. This module
imports the standard library alone: both processes import it when they start.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress

NOBODY = 65534
_STANDARD_STREAMS = 3  # descriptors below it are open already; no others can be opened

# From <sched.h> and <linux/prctl.h>.
_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000
_DIE_WITH_PARENT, _NO_NEW_PRIVILEGES = 1, 38
_SIGKILL = 9
_EMPTY_FOLDER = "/proc/self/fdinfo"

# From <linux/landlock.h>: system calls, the same on every processor, and what each version can forbid.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_CONNECTIONS_SINCE, _SCOPES_SINCE = 4, 6


def confine(memory_bytes: int) -> None:
    """Drop all rights that parsing doesn't need, for good, if the platform supports it.

    No file can be opened afterwards, so all modules must have been imported.
    """
    if os.name == "nt":
        return
    import resource  # noqa: PLC0415 not on Windows

    if os.geteuid() == 0:
        _become_nobody()  # the limits below don't apply to root
    if sys.platform == "linux":
        _leave()
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: _STANDARD_STREAMS,
    }
    for limit, maximum in limits.items():
        with suppress(OSError, ValueError):  # macOS refuses the memory limit
            resource.setrlimit(limit, (maximum, maximum))


def allow_cpu(seconds: int) -> None:
    """Let the process use this much more CPU time; the system kills it if it uses more."""
    if os.name == "nt":
        return
    import resource  # noqa: PLC0415 not on Windows

    with suppress(OSError, ValueError):
        _, maximum = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + seconds, maximum))


def _become_nobody() -> None:
    """Drop root: no process limit applies to it, and it may change every file."""
    with suppress(OSError):  # in a container without that user
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def _leave() -> None:
    """Cut off the network, files by name and other processes, if this Linux supports it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DIE_WITH_PARENT, _SIGKILL, 0, 0, 0)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # Landlock demands it
    if libc.unshare(_NEW_USERS | _NEW_NETWORK) == 0:  # root of its own users may chroot
        with suppress(OSError):
            os.chroot(_EMPTY_FOLDER)
    with suppress(OSError):
        os.chdir("/")
    _forbid_files(libc)


def _forbid_files(libc: ctypes.CDLL) -> None:
    """Landlock: a ruleset that allows nothing that this kernel can forbid."""
    number = ctypes.c_long
    version = libc.syscall(number(_CREATE_RULESET), None, number(0), number(1))
    if version < min(_FILE_RIGHTS):
        return
    rights = max(count for since, count in _FILE_RIGHTS.items() if since <= version)
    forbidden = [(1 << rights) - 1]
    forbidden += [0b11] * (version >= _CONNECTIONS_SINCE) + [0b11] * (version >= _SCOPES_SINCE)
    attributes = (ctypes.c_uint64 * len(forbidden))(*forbidden)
    size = number(ctypes.sizeof(attributes))
    ruleset = libc.syscall(number(_CREATE_RULESET), attributes, size, number(0))
    if ruleset >= 0:
        libc.syscall(number(_RESTRICT_SELF), number(ruleset), number(0))
        os.close(ruleset)
