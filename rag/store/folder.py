"""The data folder: made with the first write, locked while somebody writes, with its tenants and its key.

It keeps a reserve: a few MiB of disk that hold nothing. What takes rights away is written into their room
where the disk is full otherwise (`spending_reserve`). Without a whole reserve nothing begins that brings in
documents or gives rights: it could not be taken back.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from rag.access.tenants import FILTERABLE, tenant_file
from rag.errors import BusyError, ConfigurationError, RefdeskError, StoreError
from rag.store.connection import database_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

RESERVE_BYTES = 4 << 20  # keys and access records take some KiB, what the engine writes anew of a source more
RESERVE_STEP = 64 << 10  # bytes; so much of a disk's last room at most stays outside the reserve
FULL = (errno.ENOSPC, errno.EDQUOT)


def prepare(data: Path) -> None:
    """Make the folder, if it isn't there, for its owner alone, with its reserve.

    Raises:
        ConfigurationError: it can't be made.
        StoreError: the disk has no room for the reserve.
    """
    try:
        for folder in (data, data / "locks", data / "tenants", database_folder(data)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot(f"The data folder {data} can't be made", error) from error
    try:
        _make_reserve(reserve_file(data))
    except OSError as error:
        raise cannot(f"The data folder's reserve, {reserve_file(data)}, can't be made", error) from error


def reserve_file(data: Path) -> Path:
    """Where the reserve is."""
    return data / "reserve"


def _make_reserve(file: Path) -> None:
    """Make the reserve, or what lacks of it, as far as there is room.

    Raises:
        OSError: there isn't room for all of it, or the folder can't be written.
    """
    if file.exists() and _held(file) >= RESERVE_BYTES:
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    try:
        for start in range(0, RESERVE_BYTES, RESERVE_STEP):
            _allocate(descriptor, start)
    finally:
        os.close(descriptor)


def _held(file: Path) -> int:
    """The bytes of disk that a file really takes: those of a copy can be holes."""
    status = file.stat()
    blocks: int | None = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else blocks * 512  # as POSIX counts them


def _allocate(descriptor: int, start: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, RESERVE_STEP)
        return
    os.lseek(descriptor, start, os.SEEK_SET)
    if os.write(descriptor, secrets.token_bytes(RESERVE_STEP)) < RESERVE_STEP:  # zeros would be compressed
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def spending_reserve(data: Path) -> Iterator[AbstractContextManager[None]]:
    """Attempts at a small write that a full disk must not stop: `for attempt in …: with attempt: …`.

    Where the first fails for want of room, also by an error of ours that this caused, the reserve is freed
    and there is a second; then the reserve is made again as far as there is room. The write must be one that
    can be begun anew. Any other failure, and the second, is raised as it is.
    """
    again = False

    @contextmanager
    def first() -> Iterator[None]:
        nonlocal again
        try:
            yield
        except (OSError, RefdeskError) as error:
            if not is_full(error):
                raise
            again = True
            with suppress(OSError):  # then the second says what is wrong
                reserve_file(data).unlink(missing_ok=True)

    @contextmanager
    def second() -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(OSError):  # what it lacks then, `prepare` asks for
                _make_reserve(reserve_file(data))

    yield first()
    if again:
        yield second()


def is_full(error: BaseException | None) -> bool:
    """Whether it failed because the disk, or what its user may have of it, is full.

    The engine says so only in the text of an error, from which a `StoreError` was raised.
    """
    while error:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if any(os.strerror(code) in str(error) for code in FULL):
            return True
        error = error.__cause__
    return False


def cannot(what: str, error: OSError) -> RefdeskError:
    """The error to raise where the data folder can't be written; `what` says which part of it can't be."""
    if error.errno in FULL:
        return StoreError(f"{what}: {error.strerror}. Free some room on its disk, and try again.")
    return ConfigurationError(f"{what}: {error.strerror}.")


@contextmanager
def locked(data: Path, name: str, *, seconds: float) -> Iterator[None]:
    """Hold the lock of this name, waiting for it so long at most.

    Raises:
        BusyError: another process holds it.
        ConfigurationError: the folder can't be written.
        StoreError: its disk is full.
    """
    lock = FileLock(data / "locks" / f"{name}.lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise BusyError(
            f"Another process is writing to {name!r} in {data}. Try again when it has finished."
        ) from error
    except OSError as error:
        raise cannot(f"The data folder {data} can't be written", error) from error
    try:
        yield
    finally:
        lock.release()


def note_tenant(data: Path, tenant: str, *, filterable: bool = False) -> None:
    """Make a tenant, if it isn't there; `filterable` if a collection of theirs declares fields."""
    file = tenant_file(data, tenant)
    if not file.exists() or (filterable and not file.stat().st_size):
        write_whole(file, FILTERABLE if filterable else b"")


def forget_tenant(data: Path, tenant: str) -> None:
    """End a tenant that has no collections any more."""
    tenant_file(data, tenant).unlink()


def make_key(data: Path) -> None:
    """32 random bytes, once per data folder; whoever has them can compute source ids."""
    if not (data / "key").exists():
        write_whole(data / "key", secrets.token_bytes(32))


def write_whole(file: Path, content: bytes) -> None:
    """Write a file whole or not at all, for its owner alone.

    Raises:
        ConfigurationError: it can't be written.
        StoreError: the disk is full.
    """
    new = file.with_name(f".{file.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        new.replace(file)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise cannot(f"{file} can't be written", error) from error
    flush_folder(file.parent)


def flush_folder(folder: Path) -> None:
    """Bring the names in a folder to disk: a power failure must not bring back the keys of before.

    Not every system can, and then they come a little later.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_key(data: Path) -> bytes:
    """The key that `make_key` made.

    Raises:
        ConfigurationError: it is gone.
    """
    try:
        return (data / "key").read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The data folder's key, {data / 'key'}, can't be read ({error.strerror}), and ids are made "
            "with it. Restore it, or ingest into a new data folder."
        ) from error
