"""Which files the given paths mean, and what is refused before it is read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse import is_supported
from rag.ingest.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rag.settings import IngestSettings


SIDECAR_SUFFIX = ".meta.toml"
"""`report.pdf.meta.toml` describes `report.pdf`, and is read with it (`rag.ingest.sidecar`)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read. `name` is how people know it: its path below the folder that was given."""

    path: Path
    name: str

    @property
    def uri(self) -> str:
        """Where the source comes from."""
        return self.path.as_uri()


@dataclass(slots=True)
class Discovery:
    """The files to read, those that are not, and the folders that were walked."""

    found: dict[str, Found] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def discover(paths: Iterable[Path], settings: IngestSettings, *, without: Path | None = None) -> Discovery:
    """Walk `paths` (files and folders), each file once, in the order of names; not the folder `without`."""
    discovery = Discovery()
    left_out = os.path.realpath(without) if without else None
    for given in paths:
        path = Path(os.path.realpath(given))
        if path.is_dir():
            discovery.folders.append(path)
            _walk(path, settings, discovery, left_out)
        elif not os.path.lexists(path):
            discovery.outcomes.append(Outcome(printable(given), "skipped", "there is no such file or folder"))
        elif not is_supported(path.name) or _is_sidecar(path.name):
            discovery.outcomes.append(Outcome(printable(given), "skipped", _unsupported(path)))
        else:
            _add(Found(path, path.name), discovery)
    return discovery


def read(found: Found, max_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        ParseError: it can't be read, is no regular file, or is larger than `max_bytes`.
    """
    try:
        # Not through a link that took the file's place, and without waiting for a pipe's other end.
        descriptor = os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ParseError("no regular file")
            if status.st_size > max_bytes:
                raise ParseError(
                    f"{status.st_size / 1e6:,.1f} MB is over the limit of {max_bytes / 1e6:,.1f} MB "
                    "(ingest.max_file_bytes)"
                )
            return file.read()
    except OSError as error:
        raise ParseError(f"it can't be read: {error.strerror}") from error


def printable(path: Path | str) -> str:
    """A path as valid text on one line, whatever bytes its name holds."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "�" for character in text)


def _walk(root: Path, settings: IngestSettings, discovery: Discovery, left_out: str | None) -> None:
    waiting = _entries(root, discovery)
    while waiting:
        entry = waiting.pop()
        name = Path(entry.path).relative_to(root).as_posix()
        if _hidden(entry.name) and not settings.hidden:
            continue
        if entry.path == left_out or _matches(name, settings.exclude):
            continue
        if entry.is_symlink():
            discovery.outcomes.append(_link(Path(entry.path), root))
        elif entry.is_dir(follow_symlinks=False):
            waiting += _entries(Path(entry.path), discovery)
        elif settings.include and not _matches(name, settings.include):
            continue
        elif not is_supported(entry.name) or _is_sidecar(entry.name):
            discovery.outcomes.append(
                Outcome(printable(entry.path), "ignored", _unsupported(Path(entry.path)))
            )
        else:
            _add(Found(Path(entry.path), name), discovery)


def _entries(folder: Path, discovery: Discovery) -> list[os.DirEntry[str]]:
    """What is in a folder, the last name first; nothing where it can't be read, and that is said."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name, reverse=True)
    except OSError as error:
        reason = f"the folder can't be read: {error.strerror}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason))
        return []


def _link(link: Path, root: Path) -> Outcome:
    if Path(os.path.realpath(link)).is_relative_to(root):
        return Outcome(printable(link), "ignored", "a link to another place in the folder")
    return Outcome(printable(link), "skipped", "a link that leads out of the folder")


def _add(found: Found, discovery: Discovery) -> None:
    discovery.found.setdefault(found.uri, found)


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits the whole path or its last part; * crosses folders."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _is_sidecar(name: str) -> bool:
    return name.endswith(SIDECAR_SUFFIX)


def _unsupported(path: Path) -> str:
    if _is_sidecar(path.name):
        return f"read with {printable(path.name.removesuffix(SIDECAR_SUFFIX))}, which it describes"
    return f"no kind of document that refdesk reads ({path.suffix or 'no suffix'})"
