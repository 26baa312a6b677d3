"""The locks of a data folder, and who holds each of them. In a bucket, leases stand in for them (`leases`).

The operating system frees a lock when its holder ends, however it ends. A second file names the holder, for
the error of a process that waits in vain. It is read only while the lock is held, and each holder writes its
own, so the name of a killed process is never shown.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from rag.errors import BusyError, ConfigurationError
from rag.home import Bucket, Home
from rag.store.write.desk_folder import unwritable
from rag.store.write.leases import Lease, leased

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock: its command without arguments, and since when, in ISO 8601."""

    command: str
    process: int
    since: str

    def __str__(self) -> str:
        return f"{self.command} (process {self.process}, since {self.since})"


@contextmanager
def locked(data: Home, name: str, *, seconds: float) -> Iterator[Lease | None]:
    """Hold the lock of this name, waiting for it up to `seconds`. In a bucket it is a lease.

    Raises:
        BusyError: another process holds it; the message says which one, and since when.
        ConfigurationError: the folder can't be written, or the object store isn't fit for it.
        StoreError: its disk is full, or the bucket can't be written.
    """
    if isinstance(data, Bucket):
        with leased(data, name, seconds=seconds) as lease:
            yield lease
        return
    lock = FileLock(_file(data, name, "lock"), timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise BusyError(
            f"{_holder(data, name) or 'Another process'} is writing to {name!r} in {data}. "
            "Try again when it has finished."
        ) from error
    except OSError as error:
        raise unwritable(f"The data folder {data} can't be written", error) from error
    try:
        _note_holder(_file(data, name, "holder"))
        yield None
    finally:
        with suppress(OSError):
            _file(data, name, "holder").unlink(missing_ok=True)
        lock.release()


def held_locks(data: Path) -> dict[str, Holder | None]:
    """The locks that are held now, by name; None for an unknown holder.

    In a read-only folder no lock can be tried. There a lock counts as held if its holder's name exists, so
    that the files of a running command aren't taken for leftovers.
    """
    holders: dict[str, Holder | None] = {}
    for file in sorted((data / "locks").glob("*.lock")):
        try:
            with FileLock(file, timeout=0):
                pass
        except Timeout:
            holders[file.stem] = _holder(data, file.stem)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise ConfigurationError(f"The lock {file} can't be read: {error.strerror}.") from error
            if holder := _holder(data, file.stem):
                holders[file.stem] = holder
    return holders


def _file(data: Path, name: str, kind: str) -> Path:
    return data / "locks" / f"{name}.{kind}"


def _note_holder(file: Path) -> None:
    """Name this process as the holder; on a full disk, name nobody rather than the previous holder."""
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
    holder = Holder(command, os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
    with suppress(OSError):
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(asdict(holder), opened)


def _holder(data: Path, name: str) -> Holder | None:
    try:
        return Holder(**json.loads(_file(data, name, "holder").read_bytes()))
    except (OSError, ValueError, TypeError):  # not written, just being written, or by another version
        return None
