"""Finds the files to ingest, except links, unreadable files and files that ignore files exclude.

`.gitignore` and `.refdeskignore` have git's syntax and apply to their folder and everything below. A deeper
file overrides those above it; in one folder, `.refdeskignore` overrides `.gitignore`. As with git, nothing in
an ignored folder can be included again. Ignore files above the ingested folder don't apply.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from rag.config.settings import IngestSettings
from rag.corpus import Access
from rag.errors import ParseError
from rag.home import PARTS_OF_DESK
from rag.ingest.parse.decode import unicode_text
from rag.ingest.parse.parsers import is_recognized, is_supported, is_unnamed, may_contain
from rag.ingest.report import NOT_THERE, LeftOut, Outcome
from rag.ingest.source_files import (
    Budget,
    LocalFile,
    is_gone,
    is_local,
    prefix_of,
    prefixes,
    printable,
    read_if_there,
    scan_folder,
)
from rag.originals import SIDECAR_SUFFIX, local_path
from rag.report import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


@dataclass(slots=True)
class Ignoring:
    """The ignore patterns of the folders entered so far, and the paths that they excluded."""

    paths: set[str] = field(default_factory=set)
    _specs: dict[Path, tuple[tuple[Path, GitIgnoreSpec], ...]] = field(default_factory=dict)

    def enter(self, folder: Path, names: Iterable[str], read: Callable[[Path], bytes | None]) -> None:
        """Read the ignore files among `names`. Enter the folder above first: its patterns apply here, too.

        Raises:
            ParseError: an ignore file can't be read, so what it excludes is unknown.
        """
        specs = [*self._specs.get(folder.parent, ())]
        present = set(names)
        if lines := [
            line for name in IGNORE_FILES if name in present for line in _lines(folder / name, read)
        ]:
            specs.append((folder, _spec(lines)))
        self._specs[folder] = tuple(specs)

    def leaves_out(self, path: Path, *, is_folder: bool) -> bool:
        """Whether an entry of an entered folder is ignored; if so, it is recorded in `paths`."""
        for base, spec in reversed(self._specs.get(path.parent, ())):  # the deepest file decides
            name = path.relative_to(base).as_posix()
            included = spec.check_file(f"{name}/" if is_folder else name).include
            if included is not None:
                if included:
                    self.paths.add(str(path))
                return included
        return False

    def covers(self, path: Path) -> bool:
        """Whether a path, or a folder above it, was ignored."""
        return bool(self.paths) and any(str(ancestor) in self.paths for ancestor in (path, *path.parents))


@dataclass(slots=True)
class Discovery:
    """The documents to read, the outcomes of rejected ones, and how completely each place was searched.

    `files` and `remarks` are keyed by the URI of the document, `containers` and `spent` (the CPU seconds of
    opening) by the URI of the container. `folders` were walked. `whole` are the URI prefixes that were
    searched completely: folders ("file:///d/"), containers ("file:///d/x.zip#") and origins ("origin:wiki/").
    `partly` are prefixes within them that could not be searched: their stored sources stay. `barren` are
    walked folders without any file to read, which no ignore file explains. `links` are the targets of paths
    that were named by links, with these paths.

    For an origin: `unchanged` documents need no reading, `retained` ones stay because their state is unknown,
    the origin names `deleted` ones as deleted, `forbidden` says why present ones may not be read, and
    `rights` is the access of documents if the origin decides it.

    `withheld` are containers whose parts' access can't be told.
    `broken` counts parts that crashed or used up their CPU seconds, by the URI of the outermost container.
    """

    files: dict[str, LocalFile] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    links: list[tuple[Path, Path]] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)
    barren: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    retained: set[str] = field(default_factory=set)
    rights: dict[str, Access] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    forbidden: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    containers: dict[str, LocalFile] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    withheld: set[str] = field(default_factory=set)
    broken: Counter[str] = field(default_factory=Counter)
    ignoring: Ignoring = field(default_factory=Ignoring)

    def add(self, file: LocalFile) -> None:
        """Add a document to read, unless it is there already."""
        self.files.setdefault(file.uri, file)

    def budget(self, uri: str, seconds: float) -> Budget:
        """The CPU seconds that a file may still take.

        Each part has its own budget. Every part that crashed or used it up halves the budgets of the parts
        after it, so that an archive of hostile files costs a bounded time.
        """
        outermost, _, inside = uri.partition("#")
        allowed = seconds / 2 ** self.broken[outermost] if inside else seconds
        return Budget(allowed, self.spent.get(uri, 0.0))

    def note_broken(self, uri: str, error: ParseError) -> None:
        """Count a part that crashed or ran out of time."""
        if "#" in uri and error.cause in {"timeout", "crashed"}:
            self.broken[uri.partition("#")[0]] += 1

    def around(self, part: LocalFile) -> Iterator[str]:
        """The URIs of the containers around a part, innermost first; empty for a file that is not a part."""
        outer = part.container
        while outer:
            yield outer
            outer = self.containers[outer].container

    def is_gone(self, uri: str) -> bool:
        """Whether the document at a URI certainly doesn't exist any more. If in doubt, it counts as present.

        A file is gone if its folder doesn't contain it (whether this run walked there or not), if a folder or
        a link is in its place, or if an ignore file excludes it. A part is gone with its container, or if the
        container was searched completely without finding it. A document of an origin is gone if the origin
        was searched completely.
        """
        if self._is_there(uri):
            return False
        file_uri, _, inside = uri.partition("#")
        if is_local(uri):
            path = local_path(file_uri)
            is_folder = os.path.isdir(path)  # noqa: PTH112 Path would raise in an unreadable folder
            if is_gone(path) or is_folder or self.ignoring.covers(Path(path)):
                return True
        elif self._is_missing_in(file_uri, ""):
            return True
        return bool(inside) and self._is_missing_in(uri, file_uri)

    def _is_missing_in(self, uri: str, above: str) -> bool:
        """Whether the innermost searched prefix of a URI, below `above`, was searched without finding it."""
        if self._is_there(uri):
            return False
        nearest = next(
            (prefix for prefix in prefixes(uri, above) if prefix in self.whole or prefix in self.partly), ""
        )
        return nearest in self.whole and nearest not in self.partly

    def _is_there(self, uri: str) -> bool:
        return uri in self.files or uri in self.unchanged or uri in self.retained


def discover(paths: Iterable[Path], settings: IngestSettings, *, without: Path | None = None) -> Discovery:
    """Walk files and folders in order of name, each file once, skipping the folder `without`."""
    discovery = Discovery()
    left_out_folder = os.path.realpath(without) if without else None
    for requested in paths:
        path = _resolved_path(requested)
        if path:
            discovery.links += ((path, link) for link in _names_by_links(requested))
        if path and path.is_dir():
            is_named_already = any(path.is_relative_to(folder) for folder in discovery.folders)
            discovery.folders.append(path)
            discovery.whole.add(prefix_of(path))
            before = len(discovery.files) + len(discovery.outcomes)
            _walk(path, settings, discovery, left_out_folder)
            ignored = [*_about_ignored(discovery.ignoring.paths, path)]
            has_nothing = len(discovery.files) + len(discovery.outcomes) == before
            discovery.notes += ignored
            if has_nothing and not (is_named_already or ignored):
                discovery.barren.add(prefix_of(path))
                discovery.notes.append(_about_barren(path))
        elif not path or not os.path.lexists(path):
            discovery.outcomes.append(_not_there(requested))
        elif not is_wanted(path.name, settings):
            reason = unsupported(path.name)
            discovery.outcomes.append(Outcome(printable(requested), "skipped", reason, cause="unsupported"))
        else:
            discovery.add(LocalFile.local(path, path.name))
    return discovery


def _about_barren(folder: Path) -> str:
    with scan_folder(folder) as entries:
        is_empty = next(entries, None) is None
    name = printable(folder)
    if is_empty:
        return f"The folder {name} is empty."
    return (
        f"The folder {name} holds no file to read: its folders are empty, or its files are hidden or "
        "left out by --include and --exclude."
    )


def _not_there(path: Path) -> Outcome:
    """The outcome of a path that doesn't exist; for a URL, how to ingest web pages instead."""
    name = printable(path)
    if address := re.match(r"([a-z][a-z0-9+.-]+):[/\\]+(?=.)", name):
        name = f"{address[1]}://{name[address.end() :]}"
        reason = (
            "an address, and this takes files and folders. For web pages, repositories and buckets, add a "
            "table [origins.NAME] to the settings and run refdesk-admin sync NAME"
        )
        return Outcome(name, "skipped", reason, cause="unreachable")
    return Outcome(name, "skipped", NOT_THERE, cause="unreachable")


def _walk(root: Path, settings: IngestSettings, discovery: Discovery, without: str | None) -> None:
    waiting = _entries(root, discovery, settings)  # last name first: `pop` takes the first
    while waiting:
        entry = waiting.pop()
        name = entry.path.relative_to(root).as_posix()
        if str(entry.path) == without or _left_out_here(name, settings):
            continue
        if discovery.ignoring.leaves_out(entry.path, is_folder=entry.is_folder):
            continue
        if entry.is_link:
            discovery.outcomes.append(_link(entry.path, root))
        elif entry.is_folder:
            waiting += _entries(entry.path, discovery, settings)
        elif settings.include and not fits(name, settings.include):
            continue
        elif not is_wanted(entry.path.name, settings) and not _is_recognized(entry.path, settings):
            discovery.outcomes.append(_ignored_outcome(entry.path))
        else:
            discovery.add(LocalFile.local(entry.path, name))


class _FolderEntry(NamedTuple):
    path: Path
    is_link: bool
    is_folder: bool


def _entries(folder: Path, discovery: Discovery, settings: IngestSettings) -> list[_FolderEntry]:
    """The entries of a folder, last name first. An unreadable folder is reported, and yields none.

    Nor does a data folder, as if it were excluded: its files hold documents of other users.
    """
    try:
        with scan_folder(folder) as entries:
            folder_entries = [
                _FolderEntry(folder / entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
                for entry in sorted(entries, key=lambda entry: entry.name, reverse=True)
            ]
        if settings.ignore_files:
            names = (entry.path.name for entry in folder_entries)
            discovery.ignoring.enter(folder, names, lambda path: read_if_there(path, MAX_BYTES))
        if {entry.path.name for entry in folder_entries} >= PARTS_OF_DESK:
            return []
    except OSError as error:
        reason = f"the folder can't be read: {error.strerror}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason, cause="unreadable"))
        return []
    except ParseError as error:  # an ignore file can't be read: excluded files would be ingested
        reason = f"nothing of the folder was read, because of {error}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason, cause=error.cause))
        return []
    return folder_entries


def _about_ignored(paths: Iterable[str], root: Path) -> Iterator[str]:
    if ignored := [path for path in paths if Path(path).is_relative_to(root)]:
        folders = sum(1 for path in ignored if Path(path).is_dir())
        numbers = {"file": len(ignored) - folders, "folder": folders}
        counts = " and ".join(counted(number, noun) for noun, number in numbers.items() if number)
        yield f"{counts} left out by .gitignore and .refdeskignore files (ingest.ignore_files)."


LINK_INSIDE = "a link to another path in the folder"
LINK_OUTSIDE = "a link that points outside the folder"


def _link(link: Path, root: Path) -> Outcome:
    target = _resolved_path(link)
    if target and target.is_relative_to(root):
        return Outcome(printable(link), "ignored", LINK_INSIDE)
    return Outcome(printable(link), "ignored", LINK_OUTSIDE, kind="link")


def _resolved_path(path: Path) -> Path | None:
    """The path without links; None if it can't be resolved, for example because it is being changed."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return None


MOST_LINKS = 40  # as many as the kernel follows


def _names_by_links(requested: Path) -> Iterator[Path]:
    """The path with one more of its links resolved each time, up to the path without links."""
    path = Path(os.path.abspath(requested))  # noqa: PTH100 without ".."; Path would follow the links
    for _ in range(MOST_LINKS):
        link = next((above for above in (*reversed(path.parents), path) if above.is_symlink()), None)
        if link is None:
            return
        yield path
        target = os.path.join(link.parent, os.readlink(link), path.relative_to(link))  # noqa: PTH115, PTH118
        path = Path(os.path.abspath(target))  # noqa: PTH100 as above


def is_left_out(name: str, settings: IngestSettings) -> bool:
    """Whether a path below a folder or container, or a folder above it, is hidden or excluded."""
    return any(_left_out_here(part, settings) for part in (name, *map(str, PurePosixPath(name).parents[:-1])))


def _left_out_here(name: str, settings: IngestSettings) -> bool:
    hidden = name.rpartition("/")[2].startswith(".") and not settings.hidden
    return hidden or fits(name, settings.exclude)


def is_wanted(name: str, settings: IngestSettings) -> bool:
    """Whether a file with this name is ingested."""
    if _is_sidecar(name):
        return False
    return is_supported(name, with_ocr=settings.ocr != "off") or may_contain(name, archives=settings.archives)


def _is_recognized(path: Path, settings: IngestSettings) -> bool:
    """Whether a file whose name doesn't tell its type is a document by its content."""
    if not is_unnamed(path.name):
        return False
    try:
        data = read_if_there(path, settings.max_file_bytes)
    except ParseError:
        return False
    return is_recognized(data or b"", path.name)


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the whole path or its last part; * matches across folders."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _ignored_outcome(path: Path) -> Outcome:
    kind: LeftOut = "" if _is_sidecar(path.name) else "unsupported"
    return Outcome(printable(path), "ignored", unsupported(path.name), kind=kind)


def _is_sidecar(name: str) -> bool:
    return name.endswith(SIDECAR_SUFFIX)


def unsupported(name: str) -> str:
    """The reason why a file with this name is not ingested."""
    if _is_sidecar(name):
        return f"metadata of {printable(name.removesuffix(SIDECAR_SUFFIX))}, read with it"
    if may_contain(name, archives=True):
        return "an archive, which is opened only with --archives"
    return f"unsupported file type ({PurePath(name).suffix or 'no suffix'})"


IGNORE_FILES = (".gitignore", ".refdeskignore")
MAX_BYTES = 1_000_000
MAX_PATTERN = 1000  # characters
MAX_STARS = 3  # in a pattern: with more, a hostile one takes minutes to match a name
MAX_DEEP = 2  # "**/" in a pattern: with 3, one takes 26 seconds to match 2,000 nested folders
MAX_COST = 20_000
"""Limit for all patterns of a file: each is matched with each path, and each star takes ten times as long."""
_STARS = re.compile(r"\*+")


def _lines(file: Path, read: Callable[[Path], bytes | None]) -> list[str]:
    try:
        lines = unicode_text(read(file) or b"", "surrogateescape").splitlines()  # names can be any bytes
    except ParseError as error:
        raise ParseError(f"its {file.name}: {error}", error.cause) from error
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    if any(
        len(pattern) > MAX_PATTERN or _stars(pattern) > MAX_STARS or pattern.count("**/") > MAX_DEEP
        for pattern in patterns
    ):
        raise ParseError(f"its {file.name} has a pattern that is too long or has too many stars", "too large")
    if sum(10 ** max(1, _stars(pattern)) for pattern in patterns) > MAX_COST:
        reason = "has too many patterns, or too many with several stars: leave some out"
        raise ParseError(f"its {file.name} {reason}", "too large")
    return patterns


def _stars(pattern: str) -> int:
    """The number of stars that cost time: a leading ! or **/ costs none."""
    return len(_STARS.findall(pattern.removeprefix("!").removeprefix("**/")))


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The compiled patterns; like git, it skips invalid ones."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 only where there is an ignore file

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        valid.append(line)
    return GitIgnoreSpec.from_lines(valid)
