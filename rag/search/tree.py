"""The documents of a collection as a tree of folders: what stands where, in which order, and page by page.

The tree is made of paths as replies show them: without invisible characters, with markup disarmed, in one
Unicode normal form. So a name that is shown can be given back, and what looks the same is one folder. Parts
of a path mean nothing beyond their name: `..` is a name like any other.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rag.errors import InvalidRequestError
from rag.search.reply.untrusted import MAX_LABEL_CHARS, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rag.corpus import Source
    from rag.store.reader import Place

MAX_ENTRIES = 500  # of a page
MOST_NAMED = 5  # documents in an error
AFTER = "after must be the next_after of an earlier reply."
_DIGITS = re.compile(r"([0-9]+)")
_PLAIN = re.compile(r"[!-;=?-Z\\^-~]+(?: [!-;=?-Z\\^-~]+)*")  # nothing that `label` would change
_Position: TypeAlias = "tuple[bool, tuple[str | int, ...], str, str]"


class Document(NamedTuple):
    """A document in the tree. Without a path it stands at the top, by its title."""

    id: str
    folder: str
    name: str

    @property
    def path(self) -> str:
        """Its path in the collection."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands in a folder: a document with its `source`, or a folder with so many `documents`.

    `title` is that of a collection, which says what it holds.
    """

    name: str
    source: Source | None = None
    documents: int = 1
    title: str = ""

    @property
    def after(self) -> str:
        """Where the page behind this entry begins, whatever is added or removed meanwhile."""
        return Child(self.name, self.source.id if self.source else "").after


@dataclass(frozen=True, slots=True)
class Folder:
    """A page of a folder: folders first, then documents, by their names, numbers in them by their value.

    `path` begins with the collection; it is empty for the list of collections. `documents` counts those in
    the folder and below it. `left` counts the entries behind this page, which begin behind `after`.
    """

    path: str
    documents: int
    entries: tuple[Entry, ...]
    left: int = 0
    after: str | None = None


def documents(places: Iterable[Place]) -> list[Document]:
    """The documents at these places, with what is shown of their paths."""
    placed = []
    for place in places:
        *above, name = shown_parts(place.path) or [shown(place.title) or place.id]
        placed.append(Document(place.id, "/".join(above), name))
    return placed


def shown_parts(path: str) -> list[str]:
    """The names in a path, as they are shown: "a//b c/" -> ["a", "b c"]."""
    return [name for part in path.split("/") if (name := shown(part))]


def shown(name: str) -> str:
    """A name or a title as replies show it, in one Unicode normal form."""
    if len(name) <= MAX_LABEL_CHARS and _PLAIN.fullmatch(name):
        return name
    return _labelled(name)


@lru_cache(1 << 14)
def _labelled(name: str) -> str:
    """Cached, because it takes some 10 us, and a page shows few of the names that it is chosen from."""
    return unicodedata.normalize("NFC", label(name))


def found_at(all_: Sequence[Document], path: str) -> list[Document] | str | None:
    """What is at a path: the documents of this name, or the folder's path; None if nothing is.

    A path that ends in a slash is a folder. Letter case is ignored if nothing has the exact path, and only
    one document or folder has it otherwise.
    """
    parts = shown_parts(path)
    wanted = "/".join(parts)
    if not wanted:
        return "" if all_ else None
    is_folder = path.endswith("/")
    if same := [one for one in all_ if one.path == wanted and not is_folder]:
        return same
    if any(_is_within(one.folder, wanted) for one in all_):
        return wanted
    folded, depth = wanted.casefold(), len(parts)
    alike = [one for one in all_ if one.path.casefold() == folded and not is_folder]
    folders = {
        "/".join(one.folder.split("/")[:depth]) for one in all_ if _is_within(one.folder.casefold(), folded)
    }
    if len(folders) + len(alike) > 1:
        raise InvalidRequestError("Several paths differ from this one in letter case only; give one exactly.")
    return alike or next(iter(folders), None)


def _is_within(folder: str, other: str) -> bool:
    """Whether a folder is another one, or below it."""
    return folder.startswith(other) and folder[len(other) : len(other) + 1] in {"", "/"}


class Child(NamedTuple):
    """What stands in a folder: a document by its id, or a folder, which has none, with so many documents."""

    name: str
    id: str
    documents: int = 1

    @property
    def after(self) -> str:
        """Its name and its id, which say where it stands."""
        return f"{self.name}/{self.id}"


def children(all_: Iterable[Document], folder: str) -> list[Child]:
    """What stands in a folder, in no order."""
    counted: Counter[str] = Counter()
    found = []
    below = f"{folder}/" if folder else ""
    for one in all_:
        if one.folder == folder:
            found.append(Child(one.name, one.id))
        elif one.folder.startswith(below):
            counted[one.folder[len(below) :].partition("/")[0]] += 1
    return found + [Child(name, "", count) for name, count in counted.items()]


def page(all_: Iterable[Child], after: str | None, limit: int) -> tuple[list[Child], int]:
    """The first `limit` children behind `after`, that of a child which may be gone, and how many follow.

    Raises:
        InvalidRequestError: `after` is not of this form.
    """
    name, slash, id_ = (after or "").rpartition("/")
    if after is not None and (not slash or len(name) > MAX_LABEL_CHARS):
        raise InvalidRequestError(AFTER)
    begins = _position(name, id_) if after is not None else None
    placed = [(_position(child.name, child.id), child) for child in all_]
    behind = [one for one in placed if begins is None or one[0] > begins]
    return [child for _, child in nsmallest(limit, behind)], max(0, len(behind) - limit)


def _position(name: str, id_: str) -> _Position:
    """Folders before documents, numbers by their value, letter case and ids last."""
    parts = _DIGITS.split(name.casefold())
    natural = tuple(int(part) if index % 2 else part for index, part in enumerate(parts))
    return bool(id_), natural, name, id_


def several(same: Sequence[Document]) -> InvalidRequestError:
    """The error for a path that several documents have."""
    ids = sorted(one.id for one in same)
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return InvalidRequestError(
        f"Several documents have this path; open one by its id: {', '.join(ids[:MOST_NAMED])}{more}."
    )
