"""Documents by their places, the tree of folders, and all that match a filter, in an order, by pages.

The tree is made of paths as replies show them: without invisible characters, with markup disarmed, in one
Unicode normal form. So a name that is shown can be given back, and what looks the same is one folder. Parts
of a path mean nothing beyond their name: `..` is a name like any other. At a path there is a document, or a
page of a folder. `rag.search.names` has the other names of a document.

No text is read. What the principal can't read is as unknown as what doesn't exist.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from heapq import nlargest, nsmallest
from itertools import product
from operator import gt, itemgetter, lt
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from anyio import to_thread

from rag.corpus import Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.folded_text import folded
from rag.filters.grammar import OF_CHUNKS, OneOf, conditions, is_on_date
from rag.originals import dating
from rag.report import names_briefly
from rag.runtime import concurrently
from rag.search.overview import CollectionOverview
from rag.search.reply.untrusted import display_name, label
from rag.uris import NOT_FOUND, is_surely_id

if TYPE_CHECKING:
    from rag.search.view import View
    from rag.store.read.schema import SourcePlace


Sort = Literal["path", "title", "date"]
"""The order of a list of documents: by path or title, or the newest first and those without a date last."""
MAX_ENTRIES = 500  # of a page
MOST_LISTED = 5  # documents in an error
AFTER = "after must be the next_after of an earlier reply."
MAX_CURSOR_CHARS = 4_096  # as long as paths; Python reads numbers of 4,300 digits at most
_DIGITS = re.compile(r"([0-9]+)")
_ACCENTS = re.compile(r"[\u0300-\u036f]+")
SortPosition: TypeAlias = "tuple[bool, tuple[str | int, ...], str, str]"


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
    """An entry of a folder: a document with `id` and `source`, or a folder with its number of `documents`.

    `documents` is None for a collection that can't list them. `title` is the description of a collection,
    empty for other entries. `sorted_by` is the sort key in a list that isn't sorted by name.
    """

    name: str
    id: str = ""
    source: Source | None = None
    documents: int | None = 1
    title: str = ""
    sorted_by: str | None = None

    @property
    def after(self) -> str:
        """The cursor of the page behind this entry. It stays valid when entries are added or removed."""
        key = self.name if self.sorted_by is None else self.sorted_by
        return f"{key}/{self.id}"


@dataclass(frozen=True, slots=True)
class Folder:
    """A page of a folder: folders first, then documents, by their names, numbers in them by their value.

    `path` begins with the collection; it is empty for the list of collections. `documents` counts those in
    the folder and below it, or in the list. `remaining` entries follow this page, behind `after`.
    """

    path: str
    documents: int
    entries: tuple[Entry, ...]
    remaining: int = 0
    after: str | None = None
    notes: tuple[str, ...] = ()


def placed_documents(places: Iterable[SourcePlace]) -> list[Document]:
    """The documents at these places, with their paths as replies show them."""
    placed = []
    for stored_place in places:
        *above, name = display_parts(stored_place.path) or [
            display_name(stored_place.title) or stored_place.id
        ]
        placed.append(Document(stored_place.id, "/".join(above), name))
    return placed


def display_parts(path: str) -> list[str]:
    """The names in a path, as they are shown: "a//b c/" -> ["a", "b c"]."""
    return [name for part in path.split("/") if (name := display_name(part))]


def documents_or_folder_at(documents: Sequence[Document], path: str) -> list[Document] | str | None:
    """The documents at a path, or the path of the folder there; None if there is neither.

    A path that ends in a slash is a folder. If nothing has the exact path, letter case and width are ignored.

    Raises:
        InvalidRequestError: several paths differ from this one in these only.
    """
    parts = display_parts(path)
    name = "/".join(parts)
    if not name:
        return "" if documents else None
    is_folder = path.endswith("/")
    # A document goes before a folder of its name, and an exact name before one in another case.
    if same_path := [document for document in documents if document.path == name and not is_folder]:
        return same_path
    if any(_is_within(document.folder, name) for document in documents):
        return name
    form, depth = folded(name), len(parts)
    alike = [document for document in documents if folded(document.path) == form and not is_folder]
    folders = {
        "/".join(document.folder.split("/")[:depth])
        for document in documents
        if _is_within(folded(document.folder), form)
    }
    if len(folders) + len(alike) > 1:
        raise InvalidRequestError(
            "Several paths differ from this one in letter case or width only; give one exactly."
        )
    return alike or next(iter(folders), None)


def _is_within(folder: str, above: str) -> bool:
    """Whether a folder is `above` or below it."""
    return folder.startswith(above) and folder[len(above) : len(above) + 1] in {"", "/"}


def children(documents: Iterable[Document], folder: str) -> list[Entry]:
    """The entries of a folder, unordered, without the sources of documents."""
    counts: Counter[str] = Counter()
    direct = []
    below = f"{folder}/" if folder else ""
    for document in documents:
        if document.folder == folder:
            direct.append(Entry(document.name, document.id))
        elif document.folder.startswith(below):
            counts[document.folder[len(below) :].partition("/")[0]] += 1
    return direct + [Entry(name, documents=count) for name, count in counts.items()]


class Page:
    """The first `limit` entries behind the cursor `after`, of all that are added in any order.

    It keeps no others, and counts them. The entry that the cursor was taken from may be gone by now.

    Raises:
        InvalidRequestError: `after` is not a cursor.
    """

    def __init__(self, after: str | None, limit: int, *, newest_first: bool = False) -> None:
        if after is not None and ("/" not in after or len(after) > MAX_CURSOR_CHARS):
            raise InvalidRequestError(AFTER)
        self._begins = None if after is None else sort_position(after)
        self._limit = limit
        self._newest_first = newest_first
        self._first: list[tuple[SortPosition, Entry]] = []
        self._behind = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries."""
        placed = [(sort_position(entry.after), entry) for entry in entries]
        if self._begins is not None:
            is_behind = partial(gt if self._newest_first else lt, self._begins)
            placed = [pair for pair in placed if is_behind(pair[0])]
        self._behind += len(placed)
        first = nlargest if self._newest_first else nsmallest  # without sorting, and holding, all others
        self._first = first(self._limit, [*self._first, *placed], key=itemgetter(0))

    def folder(self, path: str, documents: int, notes: Sequence[str] = ()) -> Folder:
        """The page of a folder or list at this path, with this number of documents."""
        entries = tuple(entry for _, entry in self._first)
        remaining = self._behind - len(entries)
        after = entries[-1].after if entries and remaining else None
        return Folder(path, documents, entries, remaining, after, tuple(notes))


def sort_position(cursor: str) -> SortPosition:
    """The sort key: folders before documents, numbers by value, then accents and letter case, then ids."""
    name, _, id_ = cursor.rpartition("/")
    folded = name.casefold()
    if not folded.isascii():
        folded = _ACCENTS.sub("", unicodedata.normalize("NFD", folded))
    parts = _DIGITS.split(folded)
    natural = tuple(int(part) if index % 2 else part for index, part in enumerate(parts))
    return bool(id_), natural, name, id_


def collections_page(overview: Sequence[CollectionOverview], after: str | None, limit: int) -> Folder:
    """A page of the list of readable collections."""
    page = Page(after, limit)
    page.add(
        Entry(
            summary.collection.name,
            documents=summary.sources or None,
            title=label(summary.collection.description),
        )
        for summary in overview
    )
    return page.folder("", sum(summary.sources for summary in overview))


async def document_or_folder(views: Sequence[View], path: str, after: str | None, limit: int) -> str | Folder:
    """The id of the document at a path, or a page of the folder; see `Desk.at`."""
    first, _, inner = path.lstrip("/").partition("/")
    first = first.lower()  # as all names of collections are
    if not inner and any(view.name == first and view.table.retrieves for view in views):
        return Folder(first, 0, (), notes=(UNLISTED.format(first),))
    matches = [
        match for view in views if view.name == first for match in await _at_path(view, inner, after, limit)
    ]
    # Results show a path without its collection. Tags repeat documents, so they are named or left out.
    if not matches and display_parts(path) and not is_surely_id(path):
        present = [view for view in views if not view.collection.tag_of]
        groups = await concurrently([partial(_at_path, view, path, after, limit) for view in present])
        matches = [match for group in groups for match in group]
    if len(matches) > 1:
        raise InvalidRequestError(
            "Several collections have this path; begin it with the name of one of them."
        )
    if not matches:
        raise NotFoundError(NOT_FOUND)
    return matches[0]


async def _at_path(view: View, path: str, after: str | None, limit: int) -> list[str | Folder]:
    """The document or folder at a path of a collection: a list of none or one."""
    places = await view.places()
    documents = await to_thread.run_sync(placed_documents, places)
    match await to_thread.run_sync(documents_or_folder_at, documents, path):
        case None:
            return []
        case str() as folder:
            return [await _folder(view, documents, folder, after, limit)]
        case [document]:
            return [document.id]
        case same:
            ids = names_briefly(sorted(document.id for document in same), MOST_LISTED)
            raise InvalidRequestError(f"Several documents have this path; open one by its id: {ids}.")


async def _folder(
    view: View, documents: Sequence[Document], folder: str, after: str | None, limit: int
) -> Folder:
    in_folder = await to_thread.run_sync(children, documents, folder)
    page = Page(after, limit)
    await to_thread.run_sync(page.add, in_folder)
    path = f"{view.name}/{folder}" if folder else view.name
    listed = page.folder(path, sum(entry.documents or 0 for entry in in_folder))
    sources = await view.table.sources(entry.id for entry in listed.entries if entry.id)
    admitted = {id_: stored.source for id_, stored in sources.items() if view.admits(stored)}
    entries = (
        replace(entry, source=admitted.get(entry.id))
        for entry in listed.entries
        if not entry.id or entry.id in admitted
    )
    return replace(listed, entries=tuple(entries))


BY_SECTION = (
    "A filter on section chooses passages; documents are listed by date, path, title and declared fields."
)
UNLISTED = "Neither listed nor counted, because they failed or list no documents: {}."
WITHOUT_DATE = (
    "Documents left out because their metadata has no date: {:,}. With sort=date and no filter on date, a "
    "list goes by the dates of texts, paths and files, too."
)
UNDATED = "0"  # before every date


async def document_list(
    views: Sequence[View],
    path: str,
    *,
    filter_: Mapping[str, object] | None,
    sort: Sort,
    after: str | None,
    limit: int,
) -> Folder:
    """A page of all documents below a path that match a filter.

    `path` is empty or begins with a collection. Without it, tags are left out: they repeat documents.

    Raises:
        NotFoundError: no readable collection has this name.
        InvalidRequestError: the filter or `after` is not valid.
    """
    # Imported here, because a server lists its tools before it imports numpy.
    from rag.search.view import filtered_views, joined_names, path_notes  # noqa: PLC0415

    collection, _, folder = path.strip("/").partition("/")
    named_views = _views_of(views, collection)
    narrowed = named_views if filter_ is None else await filtered_views(named_views, filter_)
    if any(view.is_by_section for view in narrowed):
        raise InvalidRequestError(BY_SECTION)
    page = Page(after, limit, newest_first=sort == "date")
    count = undated = 0
    for view in narrowed:
        counts_undated = view.filter is not None and is_on_date(view.filter)
        async for sources in _documents_below(view, "/".join(display_parts(folder))):
            undated += counts_undated * sum(not (source.date or is_match) for source, is_match in sources)
            matching = [_entry(view, source, sort) for source, is_match in sources if is_match]
            count += len(matching)
            page.add(matching)
    unlisted = [view.name for view in narrowed if view.table.failed or view.table.retrieves]
    notes = [UNLISTED.format(joined_names(unlisted))] if unlisted else []
    notes += [WITHOUT_DATE.format(undated)] if undated else []
    if not count:
        notes += path_notes(narrowed) or await _case_notes(narrowed)
    return page.folder(path.strip("/"), count, notes)


OTHER_CASE = "No document has the {} of the filter in this letter case or width; there is: {}."


async def _case_notes(views: Sequence[View]) -> list[str]:
    """A note for each condition of a filter whose value readable documents have in another form alone.

    It names no other values of documents, because a note is read as our own words. Attached tables and
    retrievers get no note: all their rows would have to be read, or can't be known.
    """
    if any(view.collection.attached or view.table.retrieves or view.table.failed for view in views):
        return []
    wanted = {
        leaf.field: {value for value in leaf.values if isinstance(value, str)}
        for view in views
        for leaf in (conditions(view.filter) if view.filter else ())
        if isinstance(leaf, OneOf) and leaf.field != OF_CHUNKS
    }
    return [
        OTHER_CASE.format(name, ", ".join(sorted(map(label, texts))))
        for name, texts in (await _alike_values(views, wanted)).items()
        if texts and texts.isdisjoint(wanted[name])
    ]


async def _alike_values(views: Sequence[View], wanted: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What readable documents have of these values in any form, by field or attribute."""
    forms = {name: {*map(folded, values)} for name, values in wanted.items() if values}
    alike: dict[str, set[str]] = {name: set() for name in forms}
    for view in views if forms else ():
        async with aclosing(view.walk()) as walk:
            async for batch in walk:
                for values, name in product(map(view.values, batch), forms):
                    value = values.get(name, ())
                    singles = value if isinstance(value, tuple | list) else (value,)
                    texts = (text for text in singles if isinstance(text, str))
                    alike[name].update(text for text in texts if folded(text) in forms[name])
    return alike


def _views_of(views: Sequence[View], collection: str) -> list[View]:
    if not collection:
        return [view for view in views if not view.collection.tag_of]
    if not (named := [view for view in views if view.name == collection.lower()]):
        raise NotFoundError(NOT_FOUND)
    return named


async def _documents_below(view: View, folder: str) -> AsyncIterator[list[tuple[Source, bool]]]:
    """The readable documents of a collection in a folder, in batches, and whether the filter admits each."""
    # `walk` ignores the filter, so that documents that it leaves out for want of a date can be counted.
    async with aclosing(view.walk()) as walk:
        async for batch in walk:
            yield [
                (stored.source, view.admits(stored))
                for stored in batch
                if not folder or _path(stored.source).startswith(f"{folder}/")
            ]


def _path(source: Source) -> str:
    """The path of a document in its collection, as it is shown."""
    return "/".join(display_parts(source.name)) or display_name(source.title) or source.id


def _entry(view: View, source: Source, sort: Sort) -> Entry:
    name = f"{view.name}/{_path(source)}"
    return Entry(name, source.id, source, sorted_by=_sort_key(source, sort))


def _sort_key(source: Source, sort: Sort) -> str | None:
    match sort:
        case "path":
            return None
        case "title":
            return display_name(source.title)
        case "date":
            dated = dating(source)
            return dated.first.isoformat() if dated else UNDATED
