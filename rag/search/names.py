"""What a name in a request means: the document, passage or range of passages.

A document can be named by its id or a chunk's, a citation, a `refdesk://` URI, a path as replies show it
(with or without the collection) or as a link in a document writes it, the file or address that it was
ingested from, or a unique title or end of a path, such as the name of its file, with or without the suffix,
or an alias of a note. Lines may follow its name. No text is read. What the principal can't read is as unknown
as what doesn't exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, starmap
from pathlib import PurePosixPath, PureWindowsPath
from posixpath import normpath
from typing import NamedTuple, Self, TypeAlias
from urllib.parse import unquote, urldefrag

from anyio import to_thread

from rag.corpus import FILE_SUFFIX
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.folded_text import folded
from rag.report import names_briefly
from rag.runtime import concurrently
from rag.search.browse import MOST_LISTED, display_parts, placed_documents
from rag.search.reply.reply_parts import cited_title
from rag.search.reply.untrusted import display_name
from rag.search.view import View
from rag.store.read.schema import SourcePlace
from rag.text.plain_text import one_line
from rag.uris import NOT_FOUND, SCHEME, is_surely_id, named_id, split_citation, split_lines, web_address

QUOTED_CHARS = 64  # of a name in a message
NEAR = " Documents with these words in their names: {}."
_PAGES = re.compile(r", (?:pp?\.|slides?) ")
_WORD = re.compile(r"[^\W_]+")
_NOTE_LINK = re.compile(r"!?\[\[([^\[\]|#]++)[^\[\]]*+\]\]")


class _Candidate(NamedTuple):
    """A readable document and its names besides the id. A tag's document needs the tag's name in the path."""

    collection: str
    id: str
    path: str
    title: str
    folder: str = ""
    is_of_tag: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def listed(self) -> str:
        return f"{self.id} ({self.collection}/{self.path})"

    @property
    def folded_names(self) -> tuple[str, ...]:
        """What its names end in, `folded`: its file with and without suffix, title and aliases."""
        file = folded(self.path.rpartition("/")[2])
        return file, file.rpartition(".")[0], folded(self.title), *map(folded, self.aliases)

    @property
    def cited_names(self) -> tuple[str, ...]:
        """What its citations may begin with: its title, and its place where several documents have that."""
        places = "", self.folder, self.path, f"{self.collection}/{self.path}"
        return tuple(cited_title(self.title, place) for place in places)


async def resolve_names(views: Sequence[View], names: Collection[str]) -> dict[str, str]:
    """The ids of the documents, chunks or ranges that these names mean, by name; unknown names are absent.

    Raises:
        InvalidRequestError: a name is ambiguous; the message lists the documents that have it.
    """
    ids = await _resolve(views, names)
    at_lines = {name: split_lines(name)[0] for name in names if name not in ids and split_lines(name)[1]}
    if at_lines:
        files = await _resolve(views, {*at_lines.values()})
        ids |= {name: files[file] for name, file in at_lines.items() if file in files}
    return ids


async def _resolve(views: Sequence[View], names: Collection[str]) -> dict[str, str]:
    """As `resolve_names`, but for names without lines behind them."""
    ids = await resolve_ids(views, names)
    if places := [name for name in names if name not in ids and not is_surely_id(name)]:
        ids |= await to_thread.run_sync(_ids_at, await _placed(views), places)
    # Last, because it reads the summaries of all documents.
    if addresses := {name: forms for name in places if name not in ids and (forms := _addresses(name))}:
        ids |= await _by_address(views, addresses)
    return ids


async def resolve_ids(views: Sequence[View], names: Iterable[str]) -> dict[str, str]:
    """As `resolve_names`, but only for names that are ids, citations or URIs with ids."""
    labelled = {name: labelled_id for name in names if (labelled_id := _labelled_id(name))}
    ids: dict[str, str] = {}
    for view in views:
        missing = {name: labelled[name] for name in labelled if name not in ids}
        if not missing:  # an id is in one collection only
            break
        stored = await view.table.sources({split_citation(id_)[0] for _, id_ in missing.values()})
        for name, (collection, id_) in missing.items():
            source = stored.get(split_citation(id_)[0])
            # What may not be read is unknown: names must not reveal that it exists.
            if source and collection in {None, view.name} and view.admits(source):
                ids[name] = id_
    return ids


def _labelled_id(name: str) -> tuple[str | None, str] | None:
    """The collection and the id in a name. The name may be in capitals, and end in a fragment."""
    for form in (name, name.lower(), _without_fragment(name).lower()):
        with suppress(NotFoundError):
            return named_id(form)
    return None


async def not_found(views: Sequence[View], name: str) -> str:
    """That nothing readable has a name, and which documents have all of its words in a name of theirs."""
    if is_surely_id(name):
        return NOT_FOUND
    near = await to_thread.run_sync(_with_words, await _placed(views), name)
    return NOT_FOUND + (NEAR.format(names_briefly(near, MOST_LISTED)) if near else "")


def _with_words(groups: Sequence[tuple[View, Sequence[SourcePlace]]], name: str) -> list[str]:
    """The documents with all words of a name in their title, file name or an alias, shortest names first.

    A single letter or digit is no word.
    """
    words = frozenset(_WORD.findall(folded(name)))
    words = words if len("".join(words)) > 1 else frozenset()
    near = [
        (min(map(len, having)), candidate.listed)
        for candidate in (named_documents(groups) if words else ())
        if not candidate.is_of_tag
        and (having := [text for text in candidate.folded_names if _has_words(text, words)])
    ]
    return [listed for _, listed in sorted(near)]


def _has_words(text: str, words: frozenset[str]) -> bool:
    # Looking for the letters first is fast, and few names have them.
    return all(map(text.__contains__, words)) and words.issubset(_WORD.findall(text))


async def _placed(views: Sequence[View]) -> list[tuple[View, list[SourcePlace]]]:
    """The views with the places of their documents."""
    return [*zip(views, await concurrently([view.places for view in views]), strict=True)]


def _ids_at(groups: Sequence[tuple[View, Sequence[SourcePlace]]], names: Sequence[str]) -> dict[str, str]:
    """The ids at these paths or titles. Each document is looked at once, however many names there are."""
    forms = {name: _Forms.of(name) for name in names}
    # A first look by file names and titles, which all readings of a name end in: the readings take longer.
    wanted = frozenset(chain.from_iterable(of_name.folded for of_name in forms.values()))
    cited = {folded(of_name.cited) for of_name in forms.values() if of_name.cited}
    near = [
        candidate
        for candidate in named_documents(groups)
        if not wanted.isdisjoint(candidate.folded_names) or (cited and _begins(cited, candidate))
    ]
    # The documents that a name means most surely; exact matches, else in any form.
    readings = {name: starmap(_documents_named, _readings(near, of_name)) for name, of_name in forms.items()}
    matches = {name: next(filter(None, of_name), []) for name, of_name in readings.items()}
    return {name: _unique_id(name, candidates) for name, candidates in matches.items() if candidates}


def _begins(cited: Iterable[str], candidate: _Candidate) -> bool:
    """Whether the title of a document is the beginning of one of these citations."""
    title = folded(cited_title(candidate.title))
    return any(citation.startswith(title) for citation in cited)


class _Forms(NamedTuple):
    """The readings of a name: as paths (best first), as a title, as the title in a citation without an id."""

    paths: tuple[str, ...]
    title: str
    cited: str

    @classmethod
    def of(cls, name: str) -> Self:
        """The forms of a name."""
        paths = _path_in(name), _path_in(unquote(name)), _linked_path(name)  # of a URI, %20 is a space
        return cls(paths, display_name(name), display_name(_cited(one_line(name))))

    @property
    def folded(self) -> Iterator[str]:
        """These names and the names of files, `folded`."""
        for name in (*self.paths, *(path.rpartition("/")[2] for path in self.paths), self.title):
            if name:
                yield folded(name)


def _cited(name: str) -> str:
    """The title in a citation without its id; "" if the name is none, or ends in an id in brackets."""
    if name.endswith("]"):
        return ""
    title, mark, _ = name.partition(" › ")
    if mark:
        return title
    pages = _PAGES.search(name, name.rfind("›") + 1 or 1)
    return name[: pages.start()] if pages else ""


def _path_in(name: str) -> str:
    return "/".join(display_parts(name.strip().removeprefix(SCHEME)))


def _linked_path(name: str) -> str:
    """The path in a link as documents write it: relative, with a fragment, or with the separator of Windows.

    Example: "../hr/./leave%20policy.md#carry-over" -> "hr/leave policy.md", "[[Leave#Sick]]" -> "Leave".
    """
    if note := _NOTE_LINK.fullmatch(name.strip()):
        name = note[1]
    path = _path_in(unquote(_without_fragment(name)).replace("\\", "/"))
    return "/".join(part for part in normpath(path).split("/") if part not in {".", ".."})


def _without_fragment(name: str) -> str:
    """A link without its fragment. In a title, white space stands on one side of the #, so that stays."""
    name = name.strip()
    _, _, last = one_line(name).rpartition(" ")
    at = last.find("#", 1)
    return name[: at - len(last)] if 0 < at < len(last) - 1 else name


def named_documents(groups: Sequence[tuple[View, Sequence[SourcePlace]]]) -> Iterator[_Candidate]:
    """The documents at the places of each view."""
    for view, places in groups:
        collection = view.collection
        for stored_place, document in zip(places, placed_documents(places), strict=True):
            yield _Candidate(
                collection.name,
                stored_place.id,
                document.path,
                display_name(stored_place.title),
                document.folder,
                is_of_tag=bool(collection.tag_of),
                aliases=tuple(map(display_name, stored_place.aliases)),
            )


_Names: TypeAlias = "Callable[[_Candidate], Sequence[str]]"


def _readings(
    near: Sequence[_Candidate], forms: _Forms
) -> Iterator[tuple[Sequence[_Candidate], _Names, str]]:
    """The readings of a name, surest first: the documents, their names to compare it with, and its form.

    A path goes before a title, and both before the end of a path, one without its suffix, an alias, and the
    title in a citation.
    """
    # A tag repeats names of its original, which would make each of them ambiguous.
    usual = [candidate for candidate in near if not candidate.is_of_tag]
    for path in forms.paths:
        collection, slash, inner = path.partition("/")
        inside = f"{collection.lower()}{slash}{inner}"
        # Tags, too: behind a collection's name, a path is that collection's only.
        yield near, lambda candidate: (f"{candidate.collection}/{candidate.path}",), inside
        yield usual, lambda candidate: (candidate.path,), path
        yield usual, lambda candidate: (candidate.title,), forms.title
    for path in forms.paths:
        yield usual, partial(_ends_of_path, depth=path.count("/") + 1), path
    for path in forms.paths:
        yield usual, partial(_ends_without_suffix, depth=path.count("/") + 1), path
        yield usual, lambda candidate: candidate.aliases, path
    yield usual, lambda candidate: candidate.cited_names, forms.cited


def _ends_of_path(candidate: _Candidate, depth: int) -> Sequence[str]:
    """The last parts of a document's path; none without folders, where its title may stand for the path."""
    return ("/".join(candidate.path.split("/")[-depth:]),) if candidate.folder else ()


def _ends_without_suffix(candidate: _Candidate, depth: int) -> Sequence[str]:
    """The path's ends without the file's suffix, as notes link to each other; also after the collection."""
    path = FILE_SUFFIX.sub("", candidate.path)
    return *_ends_of_path(candidate._replace(path=path), depth), path, f"{candidate.collection}/{path}"


def _documents_named(candidates: Sequence[_Candidate], names: _Names, name: str) -> list[_Candidate]:
    form = folded(name)
    alike = [candidate for candidate in candidates if form and form in map(folded, names(candidate))]
    return [candidate for candidate in alike if name in names(candidate)] or alike


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
    wanted = {*chain(*addresses.values())}
    having: dict[str, list[_Candidate]] = {}
    for view in views:
        collection = view.collection
        if collection.tag_of:
            continue
        async for batch in view.walk():
            for source in (stored.source for stored in batch):
                for address in {source.uri, source.url} & wanted:
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
