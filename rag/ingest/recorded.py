"""What a tenant's access records tell of the documents that a run meets: where they were, with which rights.

Names are no evidence: files are renamed, moved, copied before they are removed, and edited meanwhile. So a
document is known by its URI, or else by its content. Where that leaves it open which of several records is
its own, it gets the rights that all of them leave.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from rag.access import is_narrowed
from rag.ingest.discover import printable
from rag.store.writer import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rag.records import Access, AccessRecord
    from rag.store.writer import KnownSource


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ids of the records that a source must not be wider than, and why."""

    ids: frozenset[str] = frozenset()
    why: str = ""


NONE = Narrowing()


class Recorded:
    """The records as they were when the run began; `missing` are the ids of sources whose files are gone.

    `hidden` is what is kept of a URI that was purged.
    """

    def __init__(
        self, records: Mapping[str, AccessRecord], hidden: Callable[[str], str] = lambda uri: uri
    ) -> None:
        self.by_id = records
        self._hidden = hidden
        self.folders: dict[str, Access] = {}
        self._by_content: dict[str, list[AccessRecord]] = defaultdict(list)
        self._by_uri: dict[str, list[AccessRecord]] = defaultdict(list)
        self._by_folder: dict[str, list[AccessRecord]] = defaultdict(list)
        self.missing: set[str] = set()
        for one in records.values():
            if one.is_folder:
                self.folders |= {one.uri: one.access} if one.access else {}
                continue
            self._by_uri[one.uri].append(one)
            self._by_folder[_folder(one.uri)].append(one)
            if one.content:
                self._by_content[one.content].append(one)

    def alike(self, id_: str, uri: str, content: str) -> Narrowing:
        """The other records of this content, or of this URI in other collections."""
        places = self._by_uri[uri] + self._by_uri[self._hidden(uri)]
        same_uri = [one for one in places if one.id != id_]
        same_content = [one for one in self._by_content[content] if one.id != id_]
        if not same_uri and not same_content:
            return NONE
        ids = frozenset(one.id for one in (*same_uri, *same_content))
        if same_content:
            return Narrowing(ids, f"its content is that of {_called(same_content[0])}")
        return Narrowing(ids, f"so it was in the collection {same_uri[0].collection}")

    def folder_others(self, uri: str, access: Access | None) -> Narrowing:
        """Those of its folder that a new document could be under another name, or else all that are there.

        It could be whatever was there and is gone. If nothing is, it is like the others of its folder only
        where all of them have narrower rights than it would get.
        """
        folders = {_folder(uri), _folder(self._hidden(uri))}
        here = [one for folder in folders for one in self._by_folder[folder] if one.uri != uri]
        gone = [one for one in here if not one.present or one.id in self.missing]
        if gone:
            return Narrowing(
                frozenset(one.id for one in gone), f"it could be {_called(gone[0])}, which is gone"
            )
        if here and all(is_narrowed(one.access, access) for one in here):
            return Narrowing(frozenset(one.id for one in here), "so are all others in its folder")
        return NONE


def moves(
    contents: Mapping[str, str], known: Mapping[str, KnownSource], found: Iterable[str]
) -> dict[str, tuple[KnownSource, frozenset[str]]]:
    """Which of the files that are new, given by URI with their content, are known ones that moved.

    A source moved if its own file is gone, and so has one place. With each comes which other sources of the
    same content are gone as well: it could be any of these.
    """
    present, wanted = set(found), {*contents.values()}
    gone: dict[str, list[KnownSource]] = defaultdict(list)
    for uri, one in known.items():
        if one.record.content in wanted and uri not in present and is_gone(local_path(uri)):
            gone[one.record.content].append(one)
    moved: dict[str, tuple[KnownSource, frozenset[str]]] = {}
    for content, sources in gone.items():
        ids = frozenset(one.id for one in sources)
        left = {one.uri: one for one in sources}
        places = [uri for uri, its in contents.items() if its == content]
        pairs = [(-_common_end(uri, old), uri, old) for uri in places for old in left]
        for _, uri, old in sorted(pairs):  # what stayed the same of a path tells copies apart
            if uri not in moved and old in left:
                moved[uri] = left.pop(old), ids
    return moved


def content_digest(data: bytes) -> str:
    """What a document's content is known by, whatever it is called and however it is read."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


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


def _called(record: AccessRecord) -> str:
    return "what was purged" if record.uri.startswith(HIDDEN) else path_of(record.uri)


def _folder(uri: str) -> str:
    return uri.rpartition("/")[0]
