"""Opening what lies at a path and nothing else: no part of the path may be a link.

A folder can become a link to another place at any moment, so that it was none a moment ago says nothing.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
_ENTER: int = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
"""A folder that one may enter but not list can be passed through, where the platform tells these apart."""
_FILE: int = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_STEPWISE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_LINKED = {errno.ELOOP, errno.ENOTDIR}


def open_file(path: Path) -> int:
    """A descriptor to read the file at `path`, which is absolute; a pipe's other end is not waited for.

    Raises:
        FileNotFoundError: its folder doesn't hold it.
        OSError: it can't be opened, or a part of the path is gone or a link.
    """
    return _opened(path, os.O_RDONLY | _FILE)


@contextmanager
def scanned(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """What is in the folder at `folder`, which is absolute; an entry's own path may be its name alone.

    Raises:
        OSError: it can't be listed, or a part of the path is gone or a link.
    """
    if not _STEPWISE:
        with os.scandir(folder) as entries:
            if os.path.realpath(folder) != str(folder):
                raise OSError(errno.ELOOP, "a link took its place, or that of a folder above it")
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
            raise OSError(errno.ELOOP, "a link took its place") from error
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
            if error.errno in {*_LINKED, errno.ENOENT}:  # not FileNotFoundError: the file may be elsewhere
                message = f"the folder {part!r} above it is gone, or a link took its place"
                raise NotADirectoryError(errno.ENOTDIR, message) from error
            raise
        finally:
            os.close(at)
        at = inner
    return at


def _opened_and_checked(path: Path, flags: int) -> int:
    """The same where parts can't be opened one by one: afterwards, what was opened must lie at the path."""
    descriptor = os.open(path, flags)
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)) and os.path.realpath(path) == str(path):
            return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, "a link took its place, or that of a folder above it")
