"""Finds the files to ingest, and rejects those that must not be read or that ignore files leave out.

`.gitignore` and `.refdeskignore` both have git's patterns, count for the folder that they lie in and below,
and a deeper one goes before those above it. In one folder, `.refdeskignore` goes before `.gitignore`. As with
git, nothing in an ignored folder can be brought back. Ignore files above the ingested folder don't count.
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

from rag.corpus import Access
from rag.errors import ParseError
from rag.ingest.local_files import LocalFile, read_if_there, scanned
from rag.ingest.parse.decode import unicode_text
from rag.ingest.parse.parsers import is_recognized, is_supported, is_unnamed, may_contain
from rag.ingest.report import NOT_THERE, LeftOut, Outcome
from rag.ingest.source_paths import is_gone, is_local, prefix_of, prefixes, printable
from rag.ingest.work_limits import Budget
from rag.originals import SIDECAR_SUFFIX, local_path
from rag.report.text_and_html import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from rag.config.settings import IngestSettings


@dataclass(slots=True)
class Ignoring:
    """The patterns of the folders that were entered, and the paths that these leave out."""

    paths: set[str] = field(default_factory=set)
    _specs: dict[Path, tuple[tuple[Path, GitIgnoreSpec], ...]] = field(default_factory=dict)

    def enter(self, folder: Path, names: Iterable[str], read: Callable[[Path], bytes | None]) -> None:
        """Learn the patterns of a folder with files of these names, after those of the folder above it.

        Raises:
            ParseError: one of its ignore files can't be read: nobody knows what it means to leave out.
        """
        own = [*self._specs.get(folder.parent, ())]
        written = set(names)
        if lines := [
            line for name in IGNORE_FILES if name in written for line in _lines(folder / name, read)
        ]:
            own.append((folder, _spec(lines)))
        self._specs[folder] = tuple(own)

    def leaves_out(self, path: Path, *, is_folder: bool) -> bool:
        """Whether an entry of a folder that was entered is ignored. Then it is noted."""
        for base, spec in reversed(self._specs.get(path.parent, ())):
            name = path.relative_to(base).as_posix()
            included = spec.check_file(f"{name}/" if is_folder else name).include
            if included is not None:
                if included:
                    self.paths.add(str(path))
                return included
        return False

    def covers(self, path: Path) -> bool:
        """Whether a path was left out, or a folder that it lies in."""
        return bool(self.paths) and any(str(one) in self.paths for one in (path, *path.parents))


@dataclass(slots=True)
class Discovery:
    """The documents to read by URI, the outcomes of rejected ones, and what was looked through.

    `folders` are those that were walked. `whole` are the URI prefixes of all that was wholly looked through:
    folders ("file:///d/"), containers ("file:///d/x.zip#") and origins ("origin:wiki/"). `partly` are those
    inside of them that could not be: what is stored from there stays. `containers` are the opened ones, and
    `remarks` are on those found, by URI.

    An origin knows more of its documents: `unchanged` are those that need no reading, `kept` those that stay
    because it couldn't tell, and `rights` is who may see a document, where the origin decides that. `deleted`
    are those that it names as deleted, and `notes` are for the report.

    `spent` are the CPU seconds that opening a container took, by its URI, and `broken` counts the parts of a
    file that cost too much, by the URI of the outermost container.
    """

    files: dict[str, LocalFile] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    rights: dict[str, Access] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    containers: dict[str, LocalFile] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)
    ignoring: Ignoring = field(default_factory=Ignoring)

    def budget(self, uri: str, seconds: float) -> Budget:
        """What is left of the CPU seconds that a file may take.

        A part has seconds of its own: half as many after each part of the same file that used up its own, or
        crashed.
        """
        outermost, _, inside = uri.partition("#")
        allowed = seconds / 2 ** self.broken[outermost] if inside else seconds
        return Budget(allowed, self.spent.get(uri, 0.0))

    def note_broken(self, uri: str, error: ParseError) -> None:
        """Note a part that may have cost all that it was allowed."""
        if "#" in uri and error.cause in {"timeout", "crashed"}:
            self.broken[uri.partition("#")[0]] += 1

    def around(self, found: LocalFile) -> Iterator[str]:
        """The URIs of what contains a part, the innermost first; none for a document of its own."""
        outer = found.container
        while outer:
            yield outer
            outer = self.containers[outer].container

    def is_gone(self, uri: str) -> bool:
        """Whether what was at a URI certainly doesn't exist any more.

        A file is gone if its folder doesn't hold it, whether this run looked there or not, or if an ignore
        file leaves it out. A part is gone with its container, or if the container was looked through without
        finding it. What an origin has is known only if the origin was looked through.
        """
        if self._is_there(uri):
            return False
        place, _, inside = uri.partition("#")
        if is_local(uri):
            path = local_path(place)
            if is_gone(path) or self.ignoring.covers(Path(path)):
                return True
        elif self._is_missing_in(place, ""):
            return True
        return bool(inside) and self._is_missing_in(uri, place)

    def _is_missing_in(self, uri: str, above: str) -> bool:
        """Whether the nearest of what lies around a URI, but inside of `above`, was wholly looked through."""
        if self._is_there(uri):
            return False
        nearest = next((one for one in prefixes(uri, above) if one in self.whole or one in self.partly), "")
        return nearest in self.whole and nearest not in self.partly

    def _is_there(self, uri: str) -> bool:
        return uri in self.files or uri in self.unchanged or uri in self.kept


def discover(paths: Iterable[Path], settings: IngestSettings, *, without: Path | None = None) -> Discovery:
    """Walk files and folders in the order of names, each file once, but not the folder `without`."""
    discovery = Discovery()
    own = os.path.realpath(without) if without else None
    for given in paths:
        path = _resolved(given)
        if path and path.is_dir():
            is_named_already = any(path.is_relative_to(folder) for folder in discovery.folders)
            discovery.folders.append(path)
            discovery.whole.add(prefix_of(path))
            before = len(discovery.files) + len(discovery.outcomes)
            _walk(path, settings, discovery, own)
            ignored = [*_about_ignored(discovery.ignoring.paths, path)]
            has_nothing = len(discovery.files) + len(discovery.outcomes) == before
            is_barren = has_nothing and not is_named_already
            discovery.notes += ignored or ([_about_barren(path)] if is_barren else [])
        elif not path or not os.path.lexists(path):
            discovery.outcomes.append(_not_there(given))
        elif not is_wanted(path.name, settings):
            reason = unsupported(path.name)
            discovery.outcomes.append(Outcome(printable(given), "skipped", reason, cause="unsupported"))
        else:
            _add(LocalFile.local(path, path.name), discovery)
    return discovery


def _about_barren(folder: Path) -> str:
    """The note on a folder in which there is no file to read."""
    with scanned(folder) as entries:
        is_empty = next(entries, None) is None
    shown = printable(folder)
    if is_empty:
        return f"The folder {shown} is empty."
    return (
        f"The folder {shown} holds no file to read: its folders are empty, or its files are hidden or "
        "left out by --include and --exclude."
    )


def _not_there(given: Path) -> Outcome:
    """The outcome of a path at which there is nothing; an address is told where addresses belong."""
    shown = printable(given)
    if address := re.match(r"([a-z][a-z0-9+.-]+):[/\\]+(?=.)", shown):
        shown = f"{address[1]}://{shown[address.end() :]}"
        reason = (
            "an address, and this takes files and folders. For web pages, repositories and buckets, add a "
            "table [origins.NAME] to the settings and run refdesk-admin sync NAME"
        )
        return Outcome(shown, "skipped", reason, cause="unreadable")
    return Outcome(shown, "skipped", NOT_THERE, cause="unreadable")


def _walk(root: Path, settings: IngestSettings, discovery: Discovery, without: str | None) -> None:
    waiting = _entries(root, discovery, settings)
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
        elif settings.include and not _matches(name, settings.include):
            continue
        elif not is_wanted(entry.path.name, settings) and not _is_recognized(entry.path, settings):
            discovery.outcomes.append(_ignored(entry.path))
        else:
            _add(LocalFile.local(entry.path, name), discovery)


class _FolderEntry(NamedTuple):
    path: Path
    is_link: bool
    is_folder: bool


def _entries(folder: Path, discovery: Discovery, settings: IngestSettings) -> list[_FolderEntry]:
    """The entries of a folder, the last name first. An unreadable folder is reported, and has none."""
    try:
        with scanned(folder) as entries:
            found = [
                _FolderEntry(folder / entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
                for entry in sorted(entries, key=lambda entry: entry.name, reverse=True)
            ]
        if settings.ignore_files:
            names = (entry.path.name for entry in found)
            discovery.ignoring.enter(folder, names, lambda path: read_if_there(path, MAX_BYTES))
    except OSError as error:
        reason = f"the folder can't be read: {error.strerror}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason, cause="unreadable"))
        return []
    except ParseError as error:
        reason = f"nothing of the folder was read, because of {error}"
        discovery.outcomes.append(Outcome(printable(folder), "skipped", reason, cause=error.cause))
        return []
    return found


def _about_ignored(paths: Iterable[str], root: Path) -> Iterator[str]:
    if ignored := [one for one in paths if Path(one).is_relative_to(root)]:
        folders = sum(1 for one in ignored if Path(one).is_dir())
        numbers = {"file": len(ignored) - folders, "folder": folders}
        counts = " and ".join(counted(number, what) for what, number in numbers.items() if number)
        yield f"{counts} left out by .gitignore and .refdeskignore files (ingest.ignore_files)."


def _link(link: Path, root: Path) -> Outcome:
    target = _resolved(link)
    if target and target.is_relative_to(root):
        return Outcome(printable(link), "ignored", "a link to another path in the folder")
    return Outcome(printable(link), "skipped", "a link that points outside the folder", cause="unreadable")


def _resolved(path: Path) -> Path | None:
    """The path without links, None if that can't be resolved, for example because it is being changed."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return None


def _add(found: LocalFile, discovery: Discovery) -> None:
    discovery.files.setdefault(found.uri, found)


def left_out(name: str, settings: IngestSettings) -> bool:
    """Whether a path below a folder or container is hidden or excluded, or lies in a folder that is."""
    return any(_left_out_here(part, settings) for part in (name, *map(str, PurePosixPath(name).parents[:-1])))


def _left_out_here(name: str, settings: IngestSettings) -> bool:
    hidden = name.rpartition("/")[2].startswith(".") and not settings.hidden
    return hidden or _matches(name, settings.exclude)


def is_wanted(name: str, settings: IngestSettings) -> bool:
    """Whether a file of this name is read."""
    if _is_sidecar(name):
        return False
    return is_supported(name, with_ocr=settings.ocr != "off") or may_contain(name, archives=settings.archives)


def _is_recognized(path: Path, settings: IngestSettings) -> bool:
    """Whether a file whose name tells nothing is a document by its content. Only such a file is read."""
    if not is_unnamed(path.name):
        return False
    try:
        data = read_if_there(path, settings.max_file_bytes)
    except ParseError:
        return False
    return is_recognized(data or b"", path.name)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the whole path or its last part; * matches across folders."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _ignored(path: Path) -> Outcome:
    kind: LeftOut = "" if _is_sidecar(path.name) else "unsupported"
    return Outcome(printable(path), "ignored", unsupported(path.name), kind=kind)


def _is_sidecar(name: str) -> bool:
    return name.endswith(SIDECAR_SUFFIX)


def unsupported(name: str) -> str:
    """Why a file of this name is no document."""
    if _is_sidecar(name):
        return f"metadata of {printable(name.removesuffix(SIDECAR_SUFFIX))}, read with it"
    if may_contain(name, archives=True):
        return "an archive, which is opened only with --archives"
    return f"unsupported file type ({PurePath(name).suffix or 'no suffix'})"


IGNORE_FILES = (".gitignore", ".refdeskignore")
MAX_BYTES = 1_000_000
MAX_PATTERN = 1000  # characters
MAX_STARS = 3  # in a pattern: with more, a hostile one takes minutes to match a name
MAX_DEEP = 2  # "**/" in a pattern: with 3, one takes 26 seconds to match 2,000 folders in each other
MAX_COST = 20_000
"""Of all patterns of a file: each is matched with each path, and each star takes ten times as long."""
_STARS = re.compile(r"\*+")


def _lines(file: Path, read: Callable[[Path], bytes | None]) -> list[str]:
    try:
        lines = unicode_text(read(file) or b"", "surrogateescape").splitlines()  # names can be any bytes
    except ParseError as error:
        raise ParseError(f"its {file.name}: {error}", error.cause) from error
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    if any(len(one) > MAX_PATTERN or _stars(one) > MAX_STARS or _deep(one) > MAX_DEEP for one in patterns):
        raise ParseError(f"its {file.name} has a pattern that is too long or has too many stars", "too large")
    if sum(10 ** max(1, _stars(one)) for one in patterns) > MAX_COST:
        reason = "has too many patterns, or too many with several stars: leave some out"
        raise ParseError(f"its {file.name} {reason}", "too large")
    return patterns


def _stars(pattern: str) -> int:
    """The stars that take time; what a pattern begins with means nothing in most."""
    return len(_STARS.findall(pattern.removeprefix("!").removeprefix("**/")))


def _deep(pattern: str) -> int:
    return pattern.count("**/")


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The patterns. One that git would pass over as invalid is passed over here, too."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 only where there is an ignore file

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        valid.append(line)
    return GitIgnoreSpec.from_lines(valid)
