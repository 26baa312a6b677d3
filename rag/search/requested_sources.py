"""Resolves the names in a request to collections and documents that its principal can read.

A document can be named by its id or a chunk's, a citation, a `refdesk://` URI, a path as replies show it
(with or without the collection), the file or address that it was ingested from, or a unique title. No text is
read.

What the principal can't read is as unknown as what doesn't exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from rag.access.rule import bounds
from rag.answers import SearchRequest
from rag.corpus import Principal
from rag.errors import InvalidRequestError, NotFoundError, StoreError
from rag.runtime import concurrently
from rag.search.browse import display_name, display_parts, placed_documents
from rag.search.reply.untrusted import label
from rag.search.search_plan import SearchPlan
from rag.uris import SCHEME, is_surely_id, named_id, split_citation

if TYPE_CHECKING:
    from rag.search.view import View
    from rag.store.read.schema import SourcePlace

TABLE_FAILING = (
    "A table or a retriever that the operator attached is failing, perhaps the one with what you asked "
    "for. Try again later."
)
UNREADABLE = "The request names a collection that you can't read. Readable collections: {}."
NOT_READABLE = "Not searched, because you can't read them: {}. Readable collections: {}."
NO_USUAL = (
    "You can't read any of the collections that a search covers if it names none. Name others. Readable "
    "collections: {}."
)
NAMED = 5  # unreadable collections in a note; the request may name any number


def readable_request(
    request: SearchRequest, views: Mapping[str, View], failing: Sequence[str]
) -> tuple[SearchRequest, list[str]]:
    """The request without unreadable collections, and a note that names them.

    Unchanged if all are unreadable: then `chosen_views` raises. Missing collections count as unreadable.
    """
    names = request.collections or ()
    unreadable = [name for name in dict.fromkeys(names) if name not in views and name not in failing]
    readable = tuple(name for name in names if name not in unreadable)
    if not unreadable or not readable:
        return request, []
    note = NOT_READABLE.format(", ".join(map(label, unreadable[:NAMED])), _joined_names(views))
    return replace(request, collections=readable), [note]


def chosen_views(
    principal: Principal, plan: SearchPlan, views: Mapping[str, View], failing: Sequence[str]
) -> list[View]:
    """The views of the collections to search: those that the plan names, or all; without the excluded ones.

    Of the operator's default collections, only the readable ones. Tags are searched only if the plan or the
    principal's bindings name them.

    Raises:
        NotFoundError: a named or excluded collection is unreadable (a misspelt name would exclude nothing),
        or
            all of the operator's defaults are. The error doesn't reveal whether it exists.
        StoreError: a named collection is failing, or all of the operator's readable defaults are.
    """
    names = plan.collections
    if not plan.names_collections:
        names = tuple(name for name in names if name in views) or names
    if not {*names}.isdisjoint(failing):
        raise StoreError(TABLE_FAILING, for_caller=TABLE_FAILING)
    if not views.keys() >= {*names, *plan.exclude_collections}:
        is_usual = not plan.names_collections and views.keys() >= {*plan.exclude_collections}
        raise NotFoundError((NO_USUAL if is_usual else UNREADABLE).format(_joined_names(views)))
    bound_names = (principal.bindings and bounds(principal.bindings).collections) or ()
    usual = (name for name, view in views.items() if not view.table.collection.tag_of or name in bound_names)
    chosen = dict.fromkeys(names or sorted(usual))
    views_left = [views[name] for name in chosen if name not in plan.exclude_collections]
    if chosen and not views_left:
        raise InvalidRequestError("exclude_collections leaves no collection to search.")
    return views_left


def _joined_names(views: Iterable[str]) -> str:
    return ", ".join(sorted(views)) or "none"


MOST_LISTED = 5  # documents that an error lists
QUOTED_CHARS = 64  # of a name in a message


class _Candidate(NamedTuple):
    """A readable document and its names besides the id. One of a tag is found only with the tag's name."""

    collection: str
    id: str
    path: str
    title: str
    is_of_tag: bool = False

    @property
    def listed(self) -> str:
        return f"{self.id} ({self.collection}/{self.path})"


async def resolve_names(views: Sequence[View], names: Collection[str]) -> dict[str, str]:
    """The ids of the documents, chunks or ranges that these names mean, by name; unknown names are absent.

    Raises:
        InvalidRequestError: a name is ambiguous; the message lists the documents that have it.
    """
    ids = await resolve_ids(views, names)
    if places := [name for name in names if name not in ids and not is_surely_id(name)]:
        ids |= await _by_place(views, places)
    if addresses := {name: uri for name in places if name not in ids and (uri := _address(name))}:
        ids |= await _by_address(views, addresses)
    return ids


async def resolve_ids(views: Sequence[View], names: Iterable[str]) -> dict[str, str]:
    """As `resolve_names`, but only for names that are ids, citations or URIs with ids."""
    labelled: dict[str, tuple[str | None, str]] = {}
    for name in names:
        with suppress(NotFoundError):
            labelled[name] = named_id(name)
    ids: dict[str, str] = {}
    for view in views:
        missing = {name: labelled[name] for name in labelled if name not in ids}
        if not missing:
            break
        stored = await view.table.sources({split_citation(id_)[0] for _, id_ in missing.values()})
        for name, (collection, id_) in missing.items():
            source = stored.get(split_citation(id_)[0])
            if source and collection in {None, view.table.collection.name} and view.admits(source):
                ids[name] = id_
    return ids


async def _by_place(views: Sequence[View], names: Sequence[str]) -> dict[str, str]:
    """The ids of the documents at these paths or with these titles."""
    places = await concurrently([view.places for view in views])
    return await to_thread.run_sync(_ids_at, [*zip(views, places, strict=True)], names)


def _ids_at(groups: Sequence[tuple[View, Sequence[SourcePlace]]], names: Sequence[str]) -> dict[str, str]:
    """The ids at these paths or titles. Each document is looked at once, however many names there are."""
    words = {name: "/".join(display_parts(name.strip().removeprefix(SCHEME))) for name in names}
    titles = {name: display_name(name) for name in names}
    folded = {word.casefold() for word in (*words.values(), *titles.values()) if word}
    near = [candidate for candidate in _candidates(groups) if folded & {*_folded_names(candidate)}]
    chosen = {name: _best_matches(near, words[name], titles[name]) for name in names}
    return {name: _unique_id(name, candidates) for name, candidates in chosen.items() if candidates}


def _candidates(groups: Sequence[tuple[View, Sequence[SourcePlace]]]) -> Iterator[_Candidate]:
    for view, places in groups:
        collection = view.table.collection
        for stored_place, document in zip(places, placed_documents(places), strict=True):
            title = display_name(stored_place.title)
            yield _Candidate(collection.name, stored_place.id, document.path, title, bool(collection.tag_of))


def _folded_names(candidate: _Candidate) -> tuple[str, str, str]:
    path = candidate.path.casefold()
    return path, f"{candidate.collection}/{path}", candidate.title.casefold()


def _best_matches(near: Sequence[_Candidate], path: str, title: str) -> list[_Candidate]:
    """The documents with the path, else those with the title; exact matches, else ignoring letter case."""
    collection, slash, inner = path.partition("/")
    inside = f"{collection.lower()}{slash}{inner}"
    usual = [candidate for candidate in near if not candidate.is_of_tag]
    for among, name, name_asked in (
        (near, lambda candidate: f"{candidate.collection}/{candidate.path}", inside),
        (usual, lambda candidate: candidate.path, path),
        (usual, lambda candidate: candidate.title, title),
    ):
        if name_asked and (matches := _alike(among, name, name_asked)):
            return matches
    return []


def _alike(
    candidates: Iterable[_Candidate], name: Callable[[_Candidate], str], name_asked: str
) -> list[_Candidate]:
    folded = [candidate for candidate in candidates if name(candidate).casefold() == name_asked.casefold()]
    return [candidate for candidate in folded if name(candidate) == name_asked] or folded


def _address(name: str) -> str:
    """The name if it is a URI, or the file URI of an absolute path; empty otherwise."""
    address = name.strip()
    if "://" in address:
        return address
    for path in (PurePosixPath(address), PureWindowsPath(address)):
        if path.is_absolute():
            return path.as_uri()
    return ""


async def _by_address(views: Sequence[View], addresses: Mapping[str, str]) -> dict[str, str]:
    """The ids of the documents whose URI or URL is one of these addresses."""
    having: dict[str, list[_Candidate]] = {}
    for view in views:
        collection = view.table.collection
        if collection.tag_of:
            continue
        async for batch in view.walk():
            for source in (stored.source for stored in batch):
                for address in {source.uri, source.url} & {*addresses.values()}:
                    candidate = _Candidate(collection.name, source.id, source.name, source.title)
                    having.setdefault(str(address), []).append(candidate)
    return {name: _unique_id(name, having[uri]) for name, uri in addresses.items() if uri in having}


def _unique_id(name: str, candidates: Sequence[_Candidate]) -> str:
    if len(candidates) == 1:
        return candidates[0].id
    listed = ", ".join(sorted(candidate.listed for candidate in candidates)[:MOST_LISTED])
    and_more = f" and {len(candidates) - MOST_LISTED} more" if len(candidates) > MOST_LISTED else ""
    raise InvalidRequestError(
        f"Several documents are called {quoted_name(name)}: {listed}{and_more}. Give the id of one."
    )


def quoted_name(name: str) -> str:
    """A caller's name in a message, on one line and shortened."""
    line = display_name(name)
    return repr(line if len(line) <= QUOTED_CHARS else f"{line[: QUOTED_CHARS - 1]}…")


def unknown_names_note(argument: str, names: Sequence[str]) -> str:
    """The note on names that resolve to nothing readable."""
    listed = ", ".join(map(quoted_name, names[:MOST_LISTED]))
    and_more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return (
        f"{argument}: nothing readable has this id, path or title: {listed}{and_more}. Use an id or a path "
        "from a search result or a listing; the documents of a folder are found by a filter on path."
    )
