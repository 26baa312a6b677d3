"""A file to ingest, and how it is opened: without following a symbolic link in any part of its path.

Checking a path first and opening it then is not enough: a folder can be replaced by a link in between. So the
path is opened part by part, each relative to the one before.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rag.errors import ParseError


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A document to read. It always lies in a file: its own, or a copy in the spool (`read_from`).

    `uri` is the same in every run. `path` is its place for rules, folder rights, moves and messages
    (`rag.ingest.source_paths.place_of`). `name` is the path below the ingested folder or origin, for readers.
    `stated` is the metadata that its container or origin gives, in the keys of a sidecar; it overrides the
    document's own. `container` is the URI of the container of a part, and `requests` the access that the
    sidecars of its containers request. A part that is `as_stored` was not extracted in this run, because its
    container is unchanged; its `read_from` is the container's.
    """

    uri: str
    path: Path
    name: str
    read_from: Path
    stated: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    requests: tuple[Mapping[str, str], ...] = ()
    as_stored: bool = False

    @classmethod
    def local(cls, path: Path, name: str) -> LocalFile:
        """A file that is read where it lies, at an absolute path."""
        return cls(path.as_uri(), path, name, path)


_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
_ENTER: int = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
"""Opens folders that may be entered but not listed, on platforms that distinguish these."""
_FILE: int = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_STEPWISE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_LINKED = {errno.ELOOP, errno.ENOTDIR}


def open_file(path: Path) -> int:
    """A descriptor to read the file at the absolute `path`. A pipe doesn't block.

    Raises:
        FileNotFoundError: the file's folder doesn't contain it.
        OSError: the file can't be opened, or a folder of the path is gone or a link.
    """
    return _opened(path, os.O_RDONLY | _FILE)


def _over_own_limit(_size: int, max_bytes: int) -> ParseError:
    return ParseError(f"it is larger than {max_bytes / 1e3:,.0f} kB, the most for such a file", "too large")


def read(file: LocalFile, max_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        ParseError: the file can't be read, is not a regular file, or is larger than `max_bytes`.
    """
    data = read_if_there(file.read_from, max_bytes, over_limit)
    if data is None:
        raise ParseError(f"it can't be read: {os.strerror(errno.ENOENT)}", "unreadable")
    return data


def read_if_there(
    path: Path, max_bytes: int, limit: Callable[[int, int], ParseError] = _over_own_limit
) -> bytes | None:
    """The bytes of a regular file; None if its folder doesn't contain it. No part of the path may be a link.

    `limit` makes the error for a file that is too large, from its size and `max_bytes`.

    Raises:
        ParseError: as in `read`, or the folder itself is gone.
    """
    try:
        descriptor = open_file(path)
        try:
            return _content(descriptor, max_bytes, limit)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
            return None
        raise ParseError(f"it can't be read: {error.strerror}", "unreadable") from error


def _content(descriptor: int, max_bytes: int, limit: Callable[[int, int], ParseError]) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ParseError("not a regular file", "unreadable")
    if status.st_size > max_bytes:
        raise limit(status.st_size, max_bytes)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        data = file.read(status.st_size + 1)
        if len(data) > status.st_size:  # it grows while it is read
            data += file.read(max_bytes + 1 - len(data))
    if len(data) > max_bytes:
        raise limit(len(data), max_bytes)
    return data


def over_limit(size: int, max_bytes: int) -> ParseError:
    """The error for a file or member over `ingest.max_file_bytes`."""
    return ParseError(
        f"{size / 1e6:,.1f} MB is over the limit of {max_bytes / 1e6:,.1f} MB (ingest.max_file_bytes)",
        "too large",
    )


@contextmanager
def scan_folder(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of the absolute `folder`. The path of an entry may be its name only.

    Raises:
        OSError: the folder can't be listed, or a part of its path is gone or a link.
    """
    if not _STEPWISE:
        with os.scandir(folder) as entries:
            if os.path.realpath(folder) != str(folder):
                raise OSError(errno.ELOOP, "it, or a folder above it, was replaced by a link")
            yield entries
        return
    descriptor = _opened(folder, os.O_RDONLY | _DIRECTORY | _NOFOLLOW)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _opened(path: Path, flags: int) -> int:
    if not _STEPWISE:
        return _opened_and_checked(path, flags)
    above = _entered(path.parent)
    try:
        return os.open(path.name or path.anchor, flags, dir_fd=above)
    except OSError as error:
        if error.errno in _LINKED:
            raise OSError(errno.ELOOP, "it was replaced by a link") from error
        raise
    finally:
        os.close(above)


def _entered(folder: Path) -> int:
    """A descriptor of the folder, reached from the root part by part."""
    at = os.open(folder.anchor, _ENTER | _DIRECTORY)
    for part in folder.parts[1:]:
        try:
            inner = os.open(part, _ENTER | _DIRECTORY | _NOFOLLOW, dir_fd=at)
        except OSError as error:
            # Not FileNotFoundError: that would mean that the file is gone, while only its folder moved.
            if error.errno in {*_LINKED, errno.ENOENT}:
                message = f"the folder {part!r} above it is gone, or was replaced by a link"
                raise NotADirectoryError(errno.ENOTDIR, message) from error
            raise
        finally:
            os.close(at)
        at = inner
    return at


def _opened_and_checked(path: Path, flags: int) -> int:
    """For platforms without `dir_fd`: open, then check that the path still leads to the opened file."""
    descriptor = os.open(path, flags)
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)) and os.path.realpath(path) == str(path):
            return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, "it, or a folder above it, was replaced by a link")
