"""All documents that match a filter, whatever their folders: counted, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from rag.corpus import Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.grammar import is_on_date
from rag.originals import dating
from rag.search.browse import (
    AFTER,
    Entry,
    Folder,
    Sort,
    SortPosition,
    display_name,
    display_parts,
    sort_position,
)
from rag.search.view import View, filtered_views, joined_names, path_notes
from rag.uris import NOT_FOUND

BY_SECTION = (
    "A filter on section chooses passages; documents are listed by date, path, title and declared fields."
)
UNLISTED = "Neither listed nor counted, because they failed or list no documents: {}."
WITHOUT_DATE = "Documents that state no date, and don't match: {:,}."
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
    first, _, folder = path.strip("/").partition("/")
    chosen = [
        view
        for view in views
        if view.table.collection.name == first.lower() or (not first and not view.table.collection.tag_of)
    ]
    if first and not chosen:
        raise NotFoundError(NOT_FOUND)
    narrowed = chosen if filter_ is None else await filtered_views(chosen, filter_)
    if any(view.is_by_section for view in narrowed):
        raise InvalidRequestError(BY_SECTION)
    page = _Page(sort, limit, after)
    undated = 0
    for view in narrowed:
        counts_undated = view.filter is not None and is_on_date(view.filter)
        async for sources in _documents_below(view, "/".join(display_parts(folder))):
            undated += counts_undated * sum(not (source.date or is_match) for source, is_match in sources)
            page.add([_listed(view, source, sort) for source, is_match in sources if is_match])
    unlisted = [view.table.collection.name for view in narrowed if view.table.failed or view.table.retrieves]
    notes = [UNLISTED.format(joined_names(unlisted))] if unlisted else []
    notes += [WITHOUT_DATE.format(undated)] if undated else []
    listed = page.folder(path.strip("/"), notes)
    return listed if listed.documents else replace(listed, notes=(*listed.notes, *path_notes(narrowed)))


async def _documents_below(view: View, folder: str) -> AsyncIterator[list[tuple[Source, bool]]]:
    """The readable documents of a collection in a folder, in batches, and whether the filter admits each."""
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


def _listed(view: View, source: Source, sort: Sort) -> Entry:
    return Entry(f"{view.table.collection.name}/{_path(source)}", source, sorted_by=_sort_key(source, sort))


def _sort_key(source: Source, sort: Sort) -> str | None:
    match sort:
        case "path":
            return None
        case "title":
            return display_name(source.title)
        case "date":
            dated = dating(source)
            return dated.first.isoformat() if dated else UNDATED


class _Page:
    """The entries of a page behind a cursor. It keeps those alone of all that are added, and counts the rest.

    Raises:
        InvalidRequestError: `after` is not a cursor.
    """

    def __init__(self, sort: Sort, limit: int, after: str | None) -> None:
        key, slash, id_ = (after or "").rpartition("/")
        if after is not None and not slash:
            raise InvalidRequestError(AFTER)
        self._newest_first = sort == "date"
        self._limit = limit
        self._begins = sort_position(key, id_) if after is not None else None
        self._first: list[Entry] = []
        self._documents = self._behind = 0

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries, in any order."""
        behind = [entry for entry in entries if self._is_behind(entry)]
        self._documents += len(entries)
        self._behind += len(behind)
        ranked = sorted([*self._first, *behind], key=_position, reverse=self._newest_first)
        self._first = ranked[: self._limit]

    def _is_behind(self, entry: Entry) -> bool:
        if self._begins is None:
            return True
        return _position(entry) < self._begins if self._newest_first else _position(entry) > self._begins

    def folder(self, path: str, notes: Iterable[str]) -> Folder:
        """What was added, as a page of a folder."""
        remaining = self._behind - len(self._first)
        after = self._first[-1].after if self._first and remaining else None
        return Folder(path, self._documents, tuple(self._first), remaining, after, tuple(notes))


def _position(entry: Entry) -> SortPosition:
    key, _, id_ = entry.after.rpartition("/")
    return sort_position(key, id_)
