"""What a tenant's access records tell of the documents that a run meets: where they were, with which rights.

Files are renamed, moved, copied before they are removed, edited meanwhile, and come back from a backup. So a
document is known by its URI, or else by its content, those that it had before included. One that is known by
neither may still be one that is gone: of its folder, or of its name. Where it is open which of several
records is its own, it gets the rights that all of them leave.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from rag.access.rule import is_narrowed
from rag.ingest.discover import printable
from rag.store.writer import HIDDEN, is_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rag.corpus import Access, AccessRecord
    from rag.store.writer import KnownSource


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ids of the records that a source must not be wider than, and why."""

    ids: frozenset[str] = frozenset()
    why: str = ""

    def __or__(self, other: Narrowing) -> Narrowing:
        """Both; the first that has a reason gives it."""
        return Narrowing(self.ids | other.ids, self.why or other.why)


NONE = Narrowing()


class Recorded:
    """The records as they were when the run began. `hidden` is what is kept of a URI that was purged."""

    def __init__(
        self, records: Mapping[str, AccessRecord], hidden: Callable[[str], str] = lambda uri: uri
    ) -> None:
        self.by_id = records
        self._hidden = hidden
        self.folders: dict[str, Access] = {}
        self._known_by: dict[str, list[AccessRecord]] = defaultdict(list)
        self._by_folder: dict[str, list[AccessRecord]] = defaultdict(list)
        self._missing: dict[str, AccessRecord] = {}
        self._new: set[str] = set()
        self._missing_of_name: dict[str, list[AccessRecord]] = defaultdict(list)
        for one in records.values():
            if one.is_folder:
                self.folders |= {one.uri: one.access} if one.access else {}
                continue
            self._by_folder[_folder(one.uri)].append(one)
            for known_by in (one.uri, one.content, *one.former):
                self._known_by[known_by].append(one)

    def same_uri(self, id_: str, uri: str, access: Access | None) -> Narrowing:
        """The other records of this URI, now or before."""
        places = self._known_by[uri] + self._known_by[self._hidden(uri)]
        others = [one for one in places if one.id != id_]
        if not others:
            return NONE
        ids, one = frozenset(one.id for one in others), _narrow_one(others, access)
        if one.uri in {uri, self._hidden(uri)}:
            return Narrowing(ids, f"so it is in the collection {one.collection}")
        return Narrowing(ids, f"{called(one)} had this name before")

    def same_content(self, id_: str, content: str, access: Access | None) -> Narrowing:
        """The other records of this content, now or before: a file of the same words could be any of them."""
        others = [one for one in self._known_by[content] if one.id != id_] if content else []
        if not others:
            return NONE
        ids = frozenset(one.id for one in others)
        return Narrowing(ids, f"its content is or was that of {called(_narrow_one(others, access))}")

    def note_new(self, contents: Iterable[str]) -> None:
        """There are new files with these contents."""
        self._new = {*contents}

    def is_elsewhere(self, record: AccessRecord) -> bool:
        """Whether a new file has what a document said so far: what is in its place may be another one."""
        return record.content in self._new

    def note_missing(self, ids: Iterable[str]) -> None:
        """The files of these sources are gone."""
        self._missing = {id_: self.by_id[id_] for id_ in ids}
        for one in self._missing.values():
            self._missing_of_name[name_of(one.uri)].append(one)

    def moved(self, record: AccessRecord, uri: str) -> None:
        """A document is in another place now: others there are in its company."""
        self._by_folder[_folder(uri)].append(replace(record, uri=uri))

    def could_be(self, uri: str, access: Access | None) -> Narrowing:
        """Those that a new document could be, edited under another name, or else the others of its folder.

        It could be whatever was in its folder and is gone, and whatever of its name is missing anywhere. If
        nothing is, it is like the others of its folder only where all of them have narrower rights than it
        would get.
        """
        folders = {_folder(uri), _folder(self._hidden(uri))}
        here = [one for folder in folders for one in self._by_folder[folder] if one.uri != uri]
        gone = [one for one in here if not one.present or one.id in self._missing]
        gone += self._missing_of_name[name_of(uri)]
        if gone:
            one = _narrow_one(gone, access)
            return Narrowing(frozenset(one.id for one in gone), f"it could be {called(one)}, which is gone")
        if here and all(is_narrowed(one.access, access) for one in here):
            return Narrowing(frozenset(one.id for one in here), "so are all others in its folder")
        return NONE


def moves(
    contents: Mapping[str, str], known: Mapping[str, KnownSource], found: Iterable[str]
) -> dict[str, KnownSource]:
    """Which of the files that are new, given by URI with their content, are known ones that moved.

    A source moved if its own file is gone, and so has one place.
    """
    present, wanted = set(found), {*contents.values()}
    gone: dict[str, list[KnownSource]] = defaultdict(list)
    for uri, one in known.items():
        if one.record.content in wanted and uri not in present and is_gone(local_path(uri)):
            gone[one.record.content].append(one)
    moved: dict[str, KnownSource] = {}
    for content, sources in gone.items():
        left = {one.uri: one for one in sources}
        places = [uri for uri, its in contents.items() if its == content]
        pairs = [(-_common_end(uri, old), uri, old) for uri in places for old in left]
        for _, uri, old in sorted(pairs):  # what stayed the same of a path tells copies apart
            if uri not in moved and old in left:
                moved[uri] = left.pop(old)
    return moved


def renamed_folders(moved: Iterable[tuple[str, str]], folders: Iterable[str]) -> dict[str, str]:
    """Where folders went, as the files tell that moved from one URI to another; only those that are gone."""
    heads = {_heads(before, after) for before, after in moved}
    candidates = {
        folder: after + folder.removeprefix(before)
        for before, after in heads
        for folder in folders
        if f"{folder}/".startswith(f"{before}/")
    }
    return {old: new for old, new in candidates.items() if is_gone(local_path(old))}


def _heads(before: str, after: str) -> tuple[str, str]:
    """Two URIs without the last parts that they have in common."""
    same = _common_end(before, after)
    return before.rsplit("/", same)[0], after.rsplit("/", same)[0]


def content_digest(data: bytes) -> str:
    """What a document's content is known by, whatever it is called and however it is read.

    Byte order mark, line ends and white space at the end don't count: editors and archives change these.
    """
    plain = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").rstrip()
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


def local_path(uri: str) -> str:
    """The path that a file's URI was made from, whatever bytes it holds."""
    path = urlsplit(uri).path
    return url2pathname(path) if os.name == "nt" else os.fsdecode(unquote_to_bytes(path))


def path_of(uri: str) -> str:
    """The path of a file's URI, for people."""
    return printable(local_path(uri))


def is_gone(path: str) -> bool:
    """Whether it is certain that nothing is there: a file in a folder that can't be read may be."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _common_end(one: str, other: str) -> int:
    """How many of the last parts of two URIs are the same."""
    pairs = zip(reversed(one.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _narrow_one(records: Sequence[AccessRecord], access: Access | None) -> AccessRecord:
    """One that keeps out somebody whom `access` lets in, if there is any: people are told of this."""
    return next((one for one in records if is_narrowed(one.access, access)), records[0])


def called(record: AccessRecord) -> str:
    """What people are told that a record is of."""
    return "what was purged" if record.uri.startswith(HIDDEN) else path_of(record.uri)


def name_of(uri: str) -> str:
    """A file's name, as people take it for the same: without letter case, in one normal form."""
    return _alike(uri).rpartition("/")[2]


def _folder(uri: str) -> str:
    return _alike(uri).rpartition("/")[0]


def _alike(uri: str) -> str:
    if not is_uri(uri):
        return uri
    path = unquote(urlsplit(uri).path, errors="surrogateescape")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
