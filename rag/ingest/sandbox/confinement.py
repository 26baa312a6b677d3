"""What a process that parses strangers' files gives up before it reads the first.

| from then on it can't | Linux | macOS | Windows |
|---|---|---|---|
| use more memory than allowed | yes | | |
| open a file, a connection or a pipe | yes | yes | |
| remove, rename or change files by their names | yes, from 5.13 or with user namespaces | | |
| start processes, write larger files than nothing, leave core dumps | yes | yes | |

Time is limited from outside on all of them, and from inside where there are limits at all.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress

NOBODY = 65534
_STANDARD_STREAMS = 3  # the numbers below it are open already, and no other is given out

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
    """Give up what parsing doesn't need, for good; what the system can't take is kept.

    Nothing can be opened afterwards: all modules must have been imported.
    """
    if os.name == "nt":
        return
    import resource  # noqa: PLC0415 not on Windows

    if os.geteuid() == 0:
        _become_nobody()
    if sys.platform == "linux":
        _leave()
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: _STANDARD_STREAMS,
    }
    for limit, most in limits.items():
        with suppress(OSError, ValueError):  # macOS refuses that of memory
            resource.setrlimit(limit, (most, most))


def allow_cpu(seconds: int) -> None:
    """Let the process use so much more time of a processor; what uses more is ended by the system."""
    if os.name == "nt":
        return
    import resource  # noqa: PLC0415 not on Windows

    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + seconds, most))


def _become_nobody() -> None:
    """Root is bound by no limit on processes, and may change every file."""
    with suppress(OSError):  # in a container that knows no such user
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def _leave() -> None:
    """Cut the ways to the network, to files by name, and to other processes, as far as Linux has them cut."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DIE_WITH_PARENT, _SIGKILL, 0, 0, 0)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.unshare(_NEW_USERS | _NEW_NETWORK) == 0:
        with suppress(OSError):
            os.chroot(_EMPTY_FOLDER)
    with suppress(OSError):
        os.chdir("/")
    _forbid_files(libc)


def _forbid_files(libc: ctypes.CDLL) -> None:
    """Landlock: a set of rules that allows nothing of all that this kernel can forbid."""
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
