"""Which collections and documents a request means by the names in it, as the asker sees them.

A document's name is an id as a hit or a source has it, a citation, a `refdesk://` URI, a path as replies show
it (with its collection or without), the file or the address that a document was ingested from, or a title
that no other document has. No text is read.

What the asker can't read is as unknown as what doesn't exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from rag.access.bindings import bounds
from rag.answers import SearchRequest
from rag.corpus import Principal
from rag.errors import InvalidRequestError, NotFoundError, StoreError
from rag.runtime import concurrently
from rag.search.browse import display_name, display_parts, placed_documents
from rag.search.reply.untrusted import label
from rag.search.view import View
from rag.store.read.stored_rows import SourcePlace
from rag.uris import SCHEME, is_surely_id, named_id, split_id

if TYPE_CHECKING:
    from rag.search.search_plan import SearchPlan

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
NAMED = 5  # unreadable collections in a note, which the request may have any number of


def readable_request(
    request: SearchRequest, views: Mapping[str, View], failing: Sequence[str]
) -> tuple[SearchRequest, list[str]]:
    """The request without the collections that the principal can't read, and a note that names these.

    Unless it can read none of them. It is the same for those that don't exist.
    """
    names = request.collections or ()
    unreadable = [name for name in dict.fromkeys(names) if name not in views and name not in failing]
    readable = tuple(name for name in names if name not in unreadable)
    if not unreadable or not readable:
        return request, []
    note = NOT_READABLE.format(", ".join(map(label, unreadable[:NAMED])), _listed(views))
    return replace(request, collections=readable), [note]


def chosen_views(
    principal: Principal, plan: SearchPlan, views: Mapping[str, View], failing: Sequence[str]
) -> list[View]:
    """The views of the collections that the plan names, or all if it names none, without the excluded.

    Of those that the operator names for all searches, the views of those that the principal can read.
    Tags are searched only if the plan or the principal's bindings name them.

    Raises:
        NotFoundError: the principal can't read one that the request names, or excludes: a misspelt name would
            exclude nothing. Or it can read none of the operator's. The error says nothing of whether there is
            such a collection.
        StoreError: one that the request names is failing, or all of the operator's that are left.
    """
    asked = plan.collections
    if not plan.names_collections:
        asked = tuple(name for name in asked if name in views) or asked
    if not {*asked}.isdisjoint(failing):
        raise StoreError(TABLE_FAILING, for_caller=TABLE_FAILING)
    if not views.keys() >= {*asked, *plan.exclude_collections}:
        is_usual = not plan.names_collections and views.keys() >= {*plan.exclude_collections}
        raise NotFoundError((NO_USUAL if is_usual else UNREADABLE).format(_listed(views)))
    named = (principal.bindings and bounds(principal.bindings).collections) or ()
    usual = (name for name, view in views.items() if not view.table.collection.tag_of or name in named)
    wanted = dict.fromkeys(asked or sorted(usual))
    left = [views[name] for name in wanted if name not in plan.exclude_collections]
    if wanted and not left:
        raise InvalidRequestError("exclude_collections leaves no collection to search.")
    return left


def _listed(views: Iterable[str]) -> str:
    return ", ".join(sorted(views)) or "none"


MOST_LISTED = 5  # documents that an error lists
QUOTED_CHARS = 64  # of a name in a message


class _Candidate(NamedTuple):
    """A readable document, and the names that it has besides its id. Those of a tag need its name."""

    collection: str
    id: str
    path: str
    title: str
    is_of_tag: bool = False

    @property
    def listed(self) -> str:
        return f"{self.id} ({self.collection}/{self.path})"


async def resolve_names(views: Sequence[View], names: Collection[str]) -> dict[str, str]:
    """The ids of the documents, passages or ranges that these names mean, by name; unknown ones are absent.

    Raises:
        InvalidRequestError: several documents have a name; the message lists them.
    """
    ids = await resolve_ids(views, names)
    if places := [name for name in names if name not in ids and not is_surely_id(name)]:
        ids |= await _by_place(views, places)
    if addresses := {name: uri for name in places if name not in ids and (uri := _address(name))}:
        ids |= await _by_address(views, addresses)
    return ids


async def resolve_ids(views: Sequence[View], names: Iterable[str]) -> dict[str, str]:
    """The same of those names that are ids, citations or URIs of ids."""
    labelled: dict[str, tuple[str | None, str]] = {}
    for name in names:
        with suppress(NotFoundError):
            labelled[name] = named_id(name)
    ids: dict[str, str] = {}
    for view in views:
        missing = {name: labelled[name] for name in labelled if name not in ids}
        if not missing:
            break
        stored = await view.table.sources({split_id(id_)[0] for _, id_ in missing.values()})
        for name, (collection, id_) in missing.items():
            source = stored.get(split_id(id_)[0])
            if source and collection in {None, view.table.collection.name} and view.admits(source):
                ids[name] = id_
    return ids


async def _by_place(views: Sequence[View], names: Sequence[str]) -> dict[str, str]:
    """The ids of the documents at these paths or with these titles."""
    places = await concurrently([view.places for view in views])
    return await to_thread.run_sync(_placed, [*zip(views, places, strict=True)], names)


def _placed(groups: Sequence[tuple[View, Sequence[SourcePlace]]], names: Sequence[str]) -> dict[str, str]:
    """One look at each document, however many names there are."""
    words = {name: "/".join(display_parts(name.strip().removeprefix(SCHEME))) for name in names}
    titles = {name: display_name(name) for name in names}
    folded = {word.casefold() for word in (*words.values(), *titles.values()) if word}
    near = [candidate for candidate in _candidates(groups) if folded & {*_folded_names(candidate)}]
    chosen = {name: _meant(near, words[name], titles[name]) for name in names}
    return {name: _only(name, candidates) for name, candidates in chosen.items() if candidates}


def _candidates(groups: Sequence[tuple[View, Sequence[SourcePlace]]]) -> Iterator[_Candidate]:
    for view, places in groups:
        collection = view.table.collection
        for place, document in zip(places, placed_documents(places), strict=True):
            title = display_name(place.title)
            yield _Candidate(collection.name, place.id, document.path, title, bool(collection.tag_of))


def _folded_names(candidate: _Candidate) -> tuple[str, str, str]:
    path = candidate.path.casefold()
    return path, f"{candidate.collection}/{path}", candidate.title.casefold()


def _meant(near: Sequence[_Candidate], path: str, title: str) -> list[_Candidate]:
    """Those with the path, else those with the title; as it is written, else in any letter case."""
    collection, slash, inner = path.partition("/")
    inside = f"{collection.lower()}{slash}{inner}"
    usual = [candidate for candidate in near if not candidate.is_of_tag]
    for among, name, name_asked in (
        (near, lambda candidate: f"{candidate.collection}/{candidate.path}", inside),
        (usual, lambda candidate: candidate.path, path),
        (usual, lambda candidate: candidate.title, title),
    ):
        if name_asked and (same := _alike(among, name, name_asked)):
            return same
    return []


def _alike(
    candidates: Iterable[_Candidate], name: Callable[[_Candidate], str], name_asked: str
) -> list[_Candidate]:
    folded = [candidate for candidate in candidates if name(candidate).casefold() == name_asked.casefold()]
    return [candidate for candidate in folded if name(candidate) == name_asked] or folded


def _address(name: str) -> str:
    """The URI in a name, or that of the absolute path in it; empty if it is neither."""
    address = name.strip()
    if "://" in address:
        return address
    for path in (PurePosixPath(address), PureWindowsPath(address)):
        if path.is_absolute():
            return path.as_uri()
    return ""


async def _by_address(views: Sequence[View], addresses: Mapping[str, str]) -> dict[str, str]:
    """The ids of the documents that were ingested from these addresses, or can be opened there."""
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
    return {name: _only(name, having[uri]) for name, uri in addresses.items() if uri in having}


def _only(name: str, candidates: Sequence[_Candidate]) -> str:
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
    """The note on names that mean nothing which the asker can read."""
    listed = ", ".join(map(quoted_name, names[:MOST_LISTED]))
    and_more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return (
        f"{argument}: nothing readable has this id, path or title: {listed}{and_more}. Use an id or a path "
        "from a search result or a listing; the documents of a folder are found by a filter on path."
    )
