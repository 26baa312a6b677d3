"""The data folder: made with the first write, locked while somebody writes, with its tenants and its key."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from rag.errors import BusyError, ConfigurationError
from rag.store.connection import database_folder
from rag.tenants import FILTERABLE, tenant_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def prepare(data: Path) -> None:
    """Make the folder, if it isn't there, for its owner alone.

    Raises:
        ConfigurationError: it can't be made.
    """
    try:
        for folder in (data, data / "locks", data / "tenants", database_folder(data)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"The data folder {data} can't be made: {error.strerror}.") from error


@contextmanager
def locked(data: Path, name: str, *, seconds: float) -> Iterator[None]:
    """Hold the lock of this name, waiting for it so long at most.

    Raises:
        BusyError: another process holds it.
        ConfigurationError: the folder can't be written.
    """
    lock = FileLock(data / "locks" / f"{name}.lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise BusyError(
            f"Another process is writing to {name!r} in {data}. Try again when it has finished."
        ) from error
    except OSError as error:
        raise ConfigurationError(f"The data folder {data} can't be written: {error.strerror}.") from error
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
    """Write a file whole or not at all, for its owner alone."""
    new = file.with_name(f".{file.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(descriptor)
    new.replace(file)


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
