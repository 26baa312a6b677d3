"""What a name in a request means: the document, passage or range of passages.

A document can be named by its id or a chunk's, a citation, a `refdesk://` URI, a path as replies show it
(with or without the collection), the file or address that it was ingested from, or a unique title. No text
is read. What the principal can't read is as unknown as what doesn't exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urldefrag

from anyio import to_thread

from rag.errors import InvalidRequestError, NotFoundError
from rag.report.text_and_html import names_briefly
from rag.runtime import concurrently
from rag.search.browse import MOST_LISTED, display_name, display_parts, placed_documents
from rag.uris import SCHEME, is_surely_id, named_id, split_citation, web_address

if TYPE_CHECKING:
    from rag.search.view import View
    from rag.store.read.schema import SourcePlace

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
    if addresses := {name: forms for name in places if name not in ids and (forms := _addresses(name))}:
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
    paths = {name: [_path_in(name), _path_in(unquote(name))] for name in names}  # of a URI, %20 is a space
    titles = {name: display_name(name) for name in names}
    folded = {word.casefold() for word in (*chain(*paths.values()), *titles.values()) if word}
    near = [candidate for candidate in _candidates(groups) if folded & {*_folded_names(candidate)}]
    chosen = {
        name: next(filter(None, (_best_matches(near, path, titles[name]) for path in paths[name])), [])
        for name in names
    }
    return {name: _unique_id(name, candidates) for name, candidates in chosen.items() if candidates}


def _path_in(name: str) -> str:
    return "/".join(display_parts(name.strip().removeprefix(SCHEME)))


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


def _addresses(name: str) -> tuple[str, ...]:
    """The forms of a URI, or the file URI of an absolute path, best first; none if the name is neither.

    Example: "https://a.example/über#top", as a browser shows it -> itself,
    "https://a.example/%C3%BCber#top", and "https://a.example/%C3%BCber".
    """
    address = name.strip()
    if "://" in address:
        encoded = web_address(address) or address
        return address, encoded, urldefrag(encoded).url
    for path in (PurePosixPath(address), PureWindowsPath(address)):
        if path.is_absolute():
            return (path.as_uri(),)
    return ()


async def _by_address(views: Sequence[View], addresses: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The ids of the documents whose URI or URL is one of these forms of an address."""
    asked = {*chain(*addresses.values())}
    having: dict[str, list[_Candidate]] = {}
    for view in views:
        collection = view.table.collection
        if collection.tag_of:
            continue
        async for batch in view.walk():
            for source in (stored.source for stored in batch):
                for address in {source.uri, source.url} & asked:
                    candidate = _Candidate(collection.name, source.id, source.name, source.title)
                    having.setdefault(str(address), []).append(candidate)
    best = {name: next(filter(having.__contains__, forms), None) for name, forms in addresses.items()}
    return {name: _unique_id(name, having[address]) for name, address in best.items() if address}


def _unique_id(name: str, candidates: Sequence[_Candidate]) -> str:
    if len(candidates) == 1:
        return candidates[0].id
    listed = names_briefly(sorted(candidate.listed for candidate in candidates), MOST_LISTED)
    raise InvalidRequestError(
        f"Several documents are called {quoted_name(name)}: {listed}. Give the id of one."
    )


def quoted_name(name: str) -> str:
    """A caller's name in a message, on one line and shortened."""
    line = display_name(name)
    return repr(line if len(line) <= QUOTED_CHARS else f"{line[: QUOTED_CHARS - 1]}…")


def unknown_names_note(argument: str, names: Sequence[str]) -> str:
    """The note on names that resolve to nothing readable."""
    listed = names_briefly([*map(quoted_name, names)], MOST_LISTED)
    return (
        f"{argument}: nothing readable has this id, path or title: {listed}. Use an id or a path "
        "from a search result or a listing; the documents of a folder are found by a filter on path."
    )
