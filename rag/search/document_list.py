"""All documents that match a filter, whatever their folders: counted, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing

from anyio import to_thread

from rag.corpus import Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.grammar import is_on_date
from rag.originals import dating
from rag.report.text_and_html import counted
from rag.search.browse import AFTER, Entry, Folder, Sort, display_name, display_parts, sort_position
from rag.search.view import View, filtered_views
from rag.uris import NOT_FOUND

BY_SECTION = (
    "A filter on section chooses passages; documents are listed by date, path, title and declared fields."
)
UNLISTED = "Neither listed nor counted, because they failed or list no documents: {}."
WITHOUT_DATE = "{} state no date, so no filter on date matches them."
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
    entries: list[Entry] = []
    undated = 0
    for view in narrowed:
        counts_undated = view.filter is not None and is_on_date(view.filter)
        async for source, is_match in _documents_below(view, "/".join(display_parts(folder))):
            undated += counts_undated and source.date is None
            entries += [_listed(view, source, sort)] if is_match else []
    page, remaining = await to_thread.run_sync(_page_of_list, entries, sort, after, limit)
    unlisted = [view.table.collection.name for view in narrowed if view.table.failed or view.table.retrieves]
    notes = [UNLISTED.format(", ".join(unlisted))] if unlisted else []
    notes += [WITHOUT_DATE.format(counted(undated, "document"))] if undated else []
    next_page = page[-1].after if page and remaining else None
    return Folder(path.strip("/"), len(entries), tuple(page), remaining, next_page, tuple(notes))


async def _documents_below(view: View, folder: str) -> AsyncIterator[tuple[Source, bool]]:
    """The readable documents of a collection in a folder, and whether each satisfies the view's filter."""
    async with aclosing(view.walk()) as walk:
        async for batch in walk:
            for stored in batch:
                if not folder or _path(stored.source).startswith(f"{folder}/"):
                    yield stored.source, view.admits(stored)


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


def _page_of_list(
    entries: Iterable[Entry], sort: Sort, after: str | None, limit: int
) -> tuple[list[Entry], int]:
    """The first `limit` entries behind the cursor `after`, and how many follow these."""
    newest_first = sort == "date"
    key, slash, id_ = (after or "").rpartition("/")
    if after is not None and not slash:
        raise InvalidRequestError(AFTER)
    begins = sort_position(key, id_) if after is not None else None
    placed = [(sort_position(*entry.after.rpartition("/")[::2]), entry) for entry in entries]
    if begins is not None:
        placed = [pair for pair in placed if (pair[0] < begins if newest_first else pair[0] > begins)]
    placed.sort(key=lambda pair: pair[0], reverse=newest_first)
    return [entry for _, entry in placed[:limit]], max(0, len(placed) - limit)
