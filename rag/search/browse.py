"""The documents of a collection as a tree of folders, for looking around as in a file system.

The tree is made of paths as replies show them: without invisible characters, with markup disarmed, in one
Unicode normal form. So a name that is shown can be given back, and what looks the same is one folder. Parts
of a path mean nothing beyond their name: `..` is a name like any other.

At a path there is a document, or a page of a folder.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from anyio import to_thread

from rag.errors import InvalidRequestError, NotFoundError
from rag.runtime import concurrently
from rag.search.reply.untrusted import MAX_LABEL_CHARS, label
from rag.uris import NOT_FOUND, is_surely_id

if TYPE_CHECKING:
    from rag.corpus import Source
    from rag.search.readable_overview import CollectionOverview
    from rag.search.view import View
    from rag.store.read.stored_rows import SourcePlace

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


def placed_documents(places: Iterable[SourcePlace]) -> list[Document]:
    """The documents at these places, with what is shown of their paths."""
    placed = []
    for place in places:
        *above, name = display_parts(place.path) or [display_name(place.title) or place.id]
        placed.append(Document(place.id, "/".join(above), name))
    return placed


def display_parts(path: str) -> list[str]:
    """The names in a path, as they are shown: "a//b c/" -> ["a", "b c"]."""
    return [name for part in path.split("/") if (name := display_name(part))]


def display_name(name: str) -> str:
    """A name or a title as replies show it, in one Unicode normal form."""
    if len(name) <= MAX_LABEL_CHARS and _PLAIN.fullmatch(name):
        return name
    return _labelled(name)


@lru_cache(1 << 14)
def _labelled(name: str) -> str:
    """Cached, because it takes some 10 us, and a page shows few of the names that it is chosen from."""
    return unicodedata.normalize("NFC", label(name))


def documents_or_folder_at(all_: Sequence[Document], path: str) -> list[Document] | str | None:
    """What is at a path: the documents of this name, or the folder's path; None if nothing is.

    A path that ends in a slash is a folder. Letter case is ignored if nothing has the exact path, and only
    one document or folder has it otherwise.
    """
    parts = display_parts(path)
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


def page_of_children(all_: Iterable[Child], after: str | None, limit: int) -> tuple[list[Child], int]:
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


def ambiguous_path_error(same: Sequence[Document]) -> InvalidRequestError:
    """The error for a path that several documents have."""
    ids = sorted(one.id for one in same)
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return InvalidRequestError(
        f"Several documents have this path; open one by its id: {', '.join(ids[:MOST_NAMED])}{more}."
    )


def collections_page(overview: Sequence[CollectionOverview], after: str | None, limit: int) -> Folder:
    """The collections that the principal of the overview can read."""
    held = {holding.collection.name: holding for holding in overview}
    shown, left = page_of_children([Child(name, "") for name in held], after, limit)
    entries = tuple(
        Entry(name, documents=held[name].sources, title=label(held[name].collection.description))
        for name, _, _ in shown
    )
    return Folder("", sum(holding.sources for holding in overview), entries, left, _next(shown, left))


async def document_or_folder(
    views: Sequence[View], path: str, after: str | None = None, limit: int = MAX_ENTRIES
) -> str | Folder:
    """The id of the document at a path, or a page of the folder; see `Desk.at`."""
    first, _, rest = path.lstrip("/").partition("/")
    first = first.lower()  # as all names of collections are
    found = [one for view in views if _name(view) == first for one in await _found(view, rest, after, limit)]
    if (
        not found and display_parts(path) and not is_surely_id(path)
    ):  # as results show it, without its collection
        present = [view for view in views if not view.table.collection.tag_of]
        groups = await concurrently([partial(_found, view, path, after, limit) for view in present])
        found = [one for group in groups for one in group]
    if len(found) > 1:
        raise InvalidRequestError(
            "Several collections have this path; begin it with the name of one of them."
        )
    if not found:
        raise NotFoundError(NOT_FOUND)
    return found[0]


def _name(view: View) -> str:
    return view.table.collection.name


async def _found(view: View, path: str, after: str | None, limit: int) -> list[str | Folder]:
    """What is at a path of a collection; nothing or one thing."""
    places = await view.places()
    all_ = await to_thread.run_sync(placed_documents, places)
    match await to_thread.run_sync(documents_or_folder_at, all_, path):
        case None:
            return []
        case str() as folder:
            return [await _folder(view, all_, folder, after, limit)]
        case [document]:
            return [document.id]
        case same:
            raise ambiguous_path_error(same)


async def _folder(view: View, all_: Sequence[Document], folder: str, after: str | None, limit: int) -> Folder:
    held = await to_thread.run_sync(children, all_, folder)
    shown, left = await to_thread.run_sync(page_of_children, held, after, limit)
    sources = await view.table.sources(child.id for child in shown if child.id)
    admitted = {id_: stored.source for id_, stored in sources.items() if view.admits(stored)}
    entries = tuple(
        Entry(child.name, admitted.get(child.id), child.documents)
        for child in shown
        if not child.id or child.id in admitted
    )
    path = f"{_name(view)}/{folder}" if folder else _name(view)
    return Folder(path, sum(child.documents for child in held), entries, left, _next(shown, left))


def _next(shown: Sequence[Child], left: int) -> str | None:
    return shown[-1].after if shown and left else None
