"""Finds the files to ingest, and rejects those that must not be read."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rag.errors import ParseError
from rag.ingest.parse import is_supported
from rag.ingest.paths import printable
from rag.ingest.report import Outcome
from rag.ingest.unlinked import open_file, scanned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rag.config.settings import IngestSettings
    from rag.ingest.report import LeftOut


SIDECAR_SUFFIX = ".meta.toml"
"""`report.pdf.meta.toml` holds the metadata of `report.pdf`; see `rag.ingest.metadata`."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read. `name` is its path below the ingested folder."""

    path: Path
    name: str

    @property
    def uri(self) -> str:
        """The URI of the source."""
        return self.path.as_uri()


@dataclass(slots=True)
class Discovery:
    """The files to read by URI, the outcomes of rejected ones, and the folders that were walked."""

    found: dict[str, Found] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def discover(paths: Iterable[Path], settings: IngestSettings, *, without: Path | None = None) -> Discovery:
    """Walk files and folders in the order of names, each file once, but not the folder `without`."""
    discovery = Discovery()
    left_out = os.path.realpath(without) if without else None
    for given in paths:
        path = _resolved(given)
        if path and path.is_dir():
            discovery.folders.append(path)
            _walk(path, settings, discovery, left_out)
        elif not path or not os.path.lexists(path):
            discovery.outcomes.append(Outcome(printable(given), "skipped", "no such file or folder"))
        elif not is_supported(path.name) or _is_sidecar(path.name):
            discovery.outcomes.append(Outcome(printable(given), "skipped", _unsupported(path)))
        else:
            _add(Found(path, path.name), discovery)
    return discovery


def read(found: Found, max_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        ParseError: it can't be read, is not a regular file, or is larger than `max_bytes`.
    """
    data = read_if_there(found.path, max_bytes)
    if data is None:
        raise ParseError(f"it can't be read: {os.strerror(errno.ENOENT)}")
    return data


def read_if_there(path: Path, max_bytes: int) -> bytes | None:
    """The bytes of a regular file, None if its folder doesn't contain it. No part of the path may be a link.

    Raises:
        ParseError: as in `read`, and if the folder itself is gone.
    """
    try:
        descriptor = open_file(path)
        try:
            return _content(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
            return None
        raise ParseError(f"it can't be read: {error.strerror}") from error


def _content(descriptor: int, max_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ParseError("not a regular file")
    if status.st_size > max_bytes:
        raise ParseError(
            f"{status.st_size / 1e6:,.1f} MB is over the limit of {max_bytes / 1e6:,.1f} MB "
            "(ingest.max_file_bytes)"
        )
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read()


def _walk(root: Path, settings: IngestSettings, discovery: Discovery, left_out: str | None) -> None:
    waiting = _entries(root, discovery)
    while waiting:
        entry = waiting.pop()
        name = entry.path.relative_to(root).as_posix()
        if _hidden(entry.path.name) and not settings.hidden:
            continue
        if str(entry.path) == left_out or _matches(name, settings.exclude):
            continue
        if entry.is_link:
            discovery.outcomes.append(_link(entry.path, root))
        elif entry.is_folder:
            waiting += _entries(entry.path, discovery)
        elif settings.include and not _matches(name, settings.include):
            continue
        elif not is_supported(entry.path.name) or _is_sidecar(entry.path.name):
            discovery.outcomes.append(_ignored(entry.path))
        else:
            _add(Found(entry.path, name), discovery)


class _Entry(NamedTuple):
    path: Path
    is_link: bool
    is_folder: bool


def _entries(folder: Path, discovery: Discovery) -> list[_Entry]:
    """The entries of a folder, the last name first. An unreadable folder is reported, and has none."""
    try:
        with scanned(folder) as entries:
            return [
                _Entry(folder / entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
                for entry in sorted(entries, key=lambda entry: entry.name, reverse=True)
            ]
    except OSError as error:
        reason = f"the folder can't be read: {error.strerror}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason))
        return []


def _link(link: Path, root: Path) -> Outcome:
    target = _resolved(link)
    if target and target.is_relative_to(root):
        return Outcome(printable(link), "ignored", "a link to another path in the folder")
    return Outcome(printable(link), "skipped", "a link that points outside the folder")


def _resolved(path: Path) -> Path | None:
    """The path without links, None if that can't be resolved, for example because it is being changed."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return None


def _add(found: Found, discovery: Discovery) -> None:
    discovery.found.setdefault(found.uri, found)


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the whole path or its last part; * matches across folders."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _ignored(path: Path) -> Outcome:
    kind: LeftOut = "" if _is_sidecar(path.name) else "unsupported"
    return Outcome(printable(path), "ignored", _unsupported(path), kind=kind)


def _is_sidecar(name: str) -> bool:
    return name.endswith(SIDECAR_SUFFIX)


def _unsupported(path: Path) -> str:
    if _is_sidecar(path.name):
        return f"metadata of {printable(path.name.removesuffix(SIDECAR_SUFFIX))}, read with it"
    return f"unsupported file type ({path.suffix or 'no suffix'})"
