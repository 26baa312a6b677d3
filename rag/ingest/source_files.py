"""The files of sources: their URIs and paths, opening them safely, and their budgets of CPU time.

A file has the URI of its path. A part of a file has that URI, "#" and its percent-encoded path inside:
file:///d/mails.zip#june/a.eml/report.pdf is an attachment of a mail in an archive. A document of another
origin has origin:NAME/PATH.

No symbolic link is followed. Checking a path first and opening it then is not enough: a folder can be
replaced by a link in between. So the path is opened part by part, each relative to the one before.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath
from time import thread_time
from typing import ParamSpec, TypeVar
from urllib.parse import quote, unquote

from anyio import to_thread

from rag.corpus import AccessRecord
from rag.errors import ParseError
from rag.originals import local_path
from rag.store.write.desk_folder import PURGED, is_uri
from rag.text.plain_text import JOINERS, without_hidden


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A document to read. It always lies in a file: its own, or a copy in the spool (`read_from`).

    `uri` is the same in every run. `path` is its place for rules, folder rights, moves and messages
    (`place_of`). `name` is the path below the (outermost) ingested folder or origin, for readers.
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


def printable(path: Path | str) -> str:
    """A path as valid text on one line, whatever its bytes."""
    text = os.fsencode(path).decode("utf-8", "replace")
    signs = (sign if sign.isprintable() or sign in JOINERS else "�" for sign in text)
    return without_hidden("".join(signs))


def is_local(uri: str) -> bool:
    """Whether a URI names a local file, or a part of one."""
    return uri.startswith("file:")


def place_of(uri: str) -> Path:
    """The place of a source as an absolute path, which rules match. A container counts as a folder.

    Example: file:///d/mails.zip#june/a.eml -> /d/mails.zip/june/a.eml; origin:wiki/a.md -> /origin:wiki/a.md.
    """
    outer, _, inside = uri.partition("#")
    at = Path(local_path(outer)) if is_local(uri) else Path("/", unquote(outer, errors="surrogateescape"))
    return at / unquote(inside, errors="surrogateescape") if inside else at


def container_places(uri: str) -> tuple[Path, ...]:
    """The places of the containers of a part, outermost first; empty for a document that is not a part.

    Example: file:///d/a.zip#b/c.eml -> /d/a.zip, /d/a.zip/b.
    """
    outer, _, inside = uri.partition("#")
    if not inside:
        return ()
    inner = PurePosixPath(unquote(inside, errors="surrogateescape"))
    return (place_of(outer), *(place_of(outer) / folder for folder in reversed(inner.parents[:-1])))


def path_of(uri: str) -> str:
    """The place of a source, for people: a path, or the name of an origin and a path."""
    path = printable(place_of(uri))
    return path if is_local(uri) else path.removeprefix("/")


def document_name(record: AccessRecord) -> str:
    """The document of a record, for people."""
    return "a purged source" if record.uri.startswith(PURGED) else path_of(record.uri)


def part_uri(container: str, path: str) -> str:
    """The URI of a part with this relative path in a container, which may be a part itself.

    Example: (file:///d/a.zip, "x y.eml") -> file:///d/a.zip#x%20y.eml, and for "b" in that one,
    file:///d/a.zip#x%20y.eml/b.
    """
    inside = quote(path, safe="/", errors="surrogateescape")
    return f"{parts_prefix(container)}{inside}"


def parts_prefix(container: str) -> str:
    """The prefix of the URIs of all parts of a container."""
    return f"{container}/" if "#" in container else f"{container}#"


def prefixes(uri: str, above: str = "") -> Iterator[str]:
    """The prefixes of a URI that end in "/" or "#" and are longer than `above`, longest first.

    Example: (file:///d/a.zip#b/c, file:///d/a.zip) -> file:///d/a.zip#b/, file:///d/a.zip#.
    """
    ends = [at + 1 for at, character in enumerate(uri) if character in "/#" and at + 1 > len(above)]
    return (uri[:end] for end in reversed(ends))


def prefix_of(folder: Path) -> str:
    """The prefix of the URIs of all files below a folder."""
    return folder.as_uri().rstrip("/") + "/"


def is_gone(path: str) -> bool:
    """Whether the path certainly doesn't exist, or leads through a link, which is never followed.

    A file in an unreadable folder may exist, so it isn't gone.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return os.path.realpath(path) != path


def name_of(uri: str) -> str:
    """A file's name for comparing: case-folded, in NFC."""
    return _fold(uri).rpartition("/")[2]


def folder_of(uri: str) -> str:
    """A file's folder for comparing, as in `name_of`. It works for purged URIs, too."""
    return _fold(uri).rpartition("/")[0]


def _fold(uri: str) -> str:
    if not is_uri(uri):
        return uri
    path = str(place_of(uri))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def renamed_folders(moved: Iterable[tuple[str, str]], folders: Iterable[str]) -> dict[str, str]:
    """New URIs of folders by their old ones, inferred from files that moved from one URI to another.

    A folder that still exists was not renamed: files were moved out of it.
    """
    heads = {_heads(before, after) for before, after in moved}
    candidates = {
        folder: after + folder.removeprefix(before)
        for before, after in heads
        for folder in folders
        if f"{folder}/".startswith(f"{before}/")
    }
    return {old: new for old, new in candidates.items() if is_gone(local_path(old))}


def _heads(before: str, after: str) -> tuple[str, str]:
    """Two URIs without their common end: ("a/x/1.md", "b/x/1.md") -> ("a", "b")."""
    pairs = zip(reversed(before.split("/")), reversed(after.split("/")), strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return before.rsplit("/", length)[0], after.rsplit("/", length)[0]


_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
_ENTER: int = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
"""Opens folders that may be entered but not listed, on platforms that distinguish these."""
_FILE: int = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NOT_REGULAR = "not a regular file"
_STEPWISE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_LINKED = {errno.ELOOP, errno.ENOTDIR}


def open_file(path: Path) -> int:
    """A descriptor to read the file at the absolute `path`. A pipe doesn't block.

    Raises:
        FileNotFoundError: the file's folder doesn't contain it.
        OSError: the file can't be opened, or a folder of the path is gone or a link.
    """
    return _open_descriptor(path, os.O_RDONLY | _FILE)


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
        raise ParseError(NOT_REGULAR, "unreadable")
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
    descriptor = _open_descriptor(folder, os.O_RDONLY | _DIRECTORY | _NOFOLLOW)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _open_descriptor(path: Path, flags: int) -> int:
    if not _STEPWISE:
        return _open_and_check(path, flags)
    above = _open_folder(path.parent)
    try:
        return os.open(path.name or path.anchor, flags, dir_fd=above)
    except OSError as error:
        if error.errno in _LINKED:
            raise OSError(errno.ELOOP, "it was replaced by a link") from error
        raise
    finally:
        os.close(above)


def _open_folder(folder: Path) -> int:
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


def _open_and_check(path: Path, flags: int) -> int:
    """For platforms without `dir_fd`: open, then check that the path still leads to the opened file."""
    descriptor = os.open(path, flags)
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)) and os.path.realpath(path) == str(path):
            return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, "it, or a folder above it, was replaced by a link")


# The budget of a file.
#
# Opening, parsing and chunking a file share one budget, in any process. It counts CPU time, not wall-clock
# time: a busy machine must not refuse good files.

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 10 if os.name == "posix" else 1
"""A step may take this many times its CPU seconds by the clock: waiting uses no CPU time, and a busy machine
gives a file only a share of a processor. Windows can't limit CPU time, so there the clock counts."""


@dataclass(slots=True)
class Budget:
    """The CPU seconds that a file may take and has taken."""

    seconds: float
    spent: float = 0.0

    @property
    def left(self) -> float:
        """The CPU seconds that its next step may take."""
        return max(0.0, self.seconds - self.spent)

    @property
    def patience(self) -> float:
        """The wall-clock seconds after which its next step is ended."""
        return PATIENCE * self.left

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread and charge its CPU time. A thread can't be stopped over the budget."""
        return await to_thread.run_sync(self._run_and_charge, function, args, kwargs)

    def _run_and_charge(
        self, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> T:
        began = thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            self.spent += thread_time() - began
