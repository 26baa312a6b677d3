"""What is at a path: a document, or a page of a folder. For looking around as in a file system."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.concurrency import concurrently
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.reply.untrusted import label
from rag.search.tree import (
    MAX_ENTRIES,
    Child,
    Entry,
    Folder,
    children,
    documents,
    found_at,
    page,
    several,
    shown_parts,
)
from rag.uris import NOT_FOUND, is_surely_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.search.overview import Holding
    from rag.search.tree import Document
    from rag.search.view import View


def collections_page(overview: Sequence[Holding], after: str | None, limit: int) -> Folder:
    """The collections that the principal of the overview can read."""
    held = {holding.collection.name: holding for holding in overview}
    shown, left = page([Child(name, "") for name in held], after, limit)
    entries = tuple(
        Entry(name, documents=held[name].sources, title=label(held[name].collection.description))
        for name, _, _ in shown
    )
    return Folder("", sum(holding.sources for holding in overview), entries, left, _next(shown, left))


async def at(
    views: Sequence[View], path: str, after: str | None = None, limit: int = MAX_ENTRIES
) -> str | Folder:
    """The id of the document at a path, or a page of the folder; see `Desk.at`."""
    first, _, rest = path.lstrip("/").partition("/")
    first = first.lower()  # as all names of collections are
    found = [one for view in views if _name(view) == first for one in await _found(view, rest, after, limit)]
    if (
        not found and shown_parts(path) and not is_surely_id(path)
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
    all_ = await to_thread.run_sync(documents, places)
    match await to_thread.run_sync(found_at, all_, path):
        case None:
            return []
        case str() as folder:
            return [await _folder(view, all_, folder, after, limit)]
        case [document]:
            return [document.id]
        case same:
            raise several(same)


async def _folder(view: View, all_: Sequence[Document], folder: str, after: str | None, limit: int) -> Folder:
    held = await to_thread.run_sync(children, all_, folder)
    shown, left = await to_thread.run_sync(page, held, after, limit)
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
