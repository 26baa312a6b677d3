"""References between documents: searches for what is related to a passage, and the stage `graph`.

A related search begins at a passage (the seed) instead of a question; its vector finds similar passages.
Documents that it refers to, and those that name its document, come first: where a question needs two
passages, one is among the first five found for the other in 80 % of the cases, and in 54 % by similarity
alone (hotpotqa100; rag/evaluate/measuring.md).

The stage `graph` follows the references of the best hits, because a question that needs two documents often
describes only the first, which names the second. It goes one step, and shows the passage there that suits the
query best. rag/evaluate/measuring.md has the measurements, also of longer walks.

A text refers to the documents that it names by their titles, word for word, or links to by their paths. That
needs no model and no index of names. Only readable sources take part, nothing is cached between searches, and
how common a name is counts over readable passages only, so unreadable ones can't change what is found.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from rag.answers import Hit, SearchRequest
from rag.config.profiles import GraphStage
from rag.corpus import FILE_SUFFIX
from rag.errors import BusyError, InvalidRequestError
from rag.runtime import concurrently
from rag.search.recall import Query, admit, fuse, recall
from rag.search.search_state import OpenStep, SearchState
from rag.search.source_window import check_passages
from rag.search.stages.thresholds import near_hits
from rag.search.view import View
from rag.store.read.schema import StoredChunk, StoredSource
from rag.text.plain_text import one_line, words

LEAST_BYTES = 4  # of a name; shorter titles stand in texts by chance. Two Chinese characters are six bytes.
_QUALIFIER = re.compile(r"\s+\([^()]*\)$")
_FIRST_WORD = re.compile(r"[A-Za-z0-9]+")
_NOTE_ID = re.compile(r" [0-9a-f]{32}(?=[./]|\Z)")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
_NOTE_LINK = re.compile(r"\[\[([^\[\]|#]{1,200})")


def name_of(title: str) -> str:
    """How texts call a document of this title: without what distinguishes it from others of the same name.

    Example: "Steve Johnson (footballer, born 1956)" -> "Steve Johnson".
    """
    return one_line(_QUALIFIER.sub("", title) if title.endswith(")") else title)


def names_in(text: str, names: Iterable[str]) -> set[str]:
    """The names that stand in the text as whole words, in any letter case.

    A name of one word must have the letter case of the text: "Charmed" is a title, "charmed" a word. Blank
    names, and names of less than `LEAST_BYTES`, are never found.
    Example: "See Parental leave, and charmed." names "parental Leave", but not "Charmed" or "Rental Leave".
    """
    text = unicodedata.normalize("NFC", text)
    of_text = words(text)
    vocabulary, folded, spaced = set(of_text), one_line(text.casefold()), f" {' '.join(of_text)} "
    matches = set()
    for name in names:
        first = _FIRST_WORD.search(name) if name.isascii() else None
        if (first and first[0].casefold() not in vocabulary) or name.casefold() not in folded:
            continue  # as for nearly all names, at 0.7 us each
        of_name = words(name)
        if f" {' '.join(of_name)} " in spaced and _is_name(name, of_name, text):
            matches.add(name)
    return matches


def _is_name(name: str, of_name: Sequence[str], text: str) -> bool:
    return len(name.encode()) >= LEAST_BYTES and bool(of_name) and (len(of_name) > 1 or name in text)


def linked_ids(text: str, path: str, paths: Mapping[str, str]) -> set[str]:
    """The ids of `paths` that the Markdown links of a text lead to; `path` is the text's own path.

    Links are relative to the folder of the text, or to the top if they begin with a slash. What follows `#`
    or `?` is left out, and so are the ids that Notion appends to names. Notes link to the end of a path.
    Example: in "handbook/rules/hours.md", "[Leave](../leave.md#sick)" and "[[Leave|that]]" lead to
    "handbook/leave.md".
    """
    notes = {posixpath.normpath(note.strip().casefold()) for note in _NOTE_LINK.findall(text)}
    depths = {note.count("/") + 1 for note in notes}
    targets = {_target(link, path) for link in _LINK.findall(text)}
    if not (targets or notes):
        return set()
    return {
        id_
        for id_, target in paths.items()
        if _NOTE_ID.sub("", target) in targets or not notes.isdisjoint(_note_names(target, depths))
    }


def _note_names(path: str, depths: Iterable[int]) -> Iterator[str]:
    """The ends of a path, with and without the suffix, of as many parts as the `depths` say."""
    for whole in (path.casefold(), FILE_SUFFIX.sub("", path.casefold())):
        parts = whole.split("/")
        yield from ("/".join(parts[-depth:]) for depth in depths if depth <= len(parts))


def _target(link: str, path: str) -> str:
    target = unquote(re.split(r"[#?]", link, maxsplit=1)[0])
    if not target or ":" in target.partition("/")[0]:
        return ""  # a place in the same text, or a URL
    folder = "" if target.startswith("/") else posixpath.dirname(path)
    return _NOTE_ID.sub("", posixpath.normpath(posixpath.join(folder, target.lstrip("/"))))


EXCLUSIVE = "A request has related or vector, not both. Leave one out."
NOT_EXACT = (
    "mode exact finds what is written, not what is related. Leave related out, or choose another mode."
)
NO_VECTOR = "This passage has no vector, so nothing can be compared with it. Search for its words instead."


async def seed_hit(stored: StoredSource, seq: int, view: View) -> Hit:
    """A passage of a readable source, as the seed of a related search.

    Raises:
        NotFoundError: the source has fewer passages.
        BusyError: it was replaced since it was read.
        InvalidRequestError: the passage has no vector.
    """
    check_passages(stored.id, range(seq, seq + 1), stored.source.chunk_count)
    rows = await view.table.chunks([f"{stored.id}/{seq}"], view.where)
    row = next((row for row in rows if row.generation == stored.generation), None)
    if row is None:
        raise BusyError("The document is being replaced. Search again.")
    if not row.vector.any():
        raise InvalidRequestError(NO_VECTOR)
    return Hit(row.chunk, stored.source, 1.0, None, row.vector, stored.fields)


def request_from_seed(request: SearchRequest, seed: Hit) -> SearchRequest:
    """The request with the seed's vector, and without its document among the results.

    Raises:
        InvalidRequestError: the request has a vector of its own, or mode exact.
    """
    if request.vector is not None:
        raise InvalidRequestError(EXCLUSIVE)
    if request.mode == "exact":
        raise InvalidRequestError(NOT_EXACT)
    vector = None if seed.vector is None else seed.vector.tolist()
    return replace(request, vector=vector, exclude_sources=(*request.exclude_sources, seed.source.id))


HUB = 10  # a name in more passages is a common phrase, such as "Examples", and is not followed
MOST_RELATED = 3  # passages by references, shown before the similar ones
SEEDS, AFTER, PLACES = 2, 3, 2
"""The stage graph follows the first `SEEDS` hits and puts up to `PLACES` passages behind the first `AFTER`
(measured: rag/evaluate/measuring.md)."""


async def graph(
    hits: Sequence[Hit], _stage: GraphStage, query: Query, state: SearchState, _step: OpenStep
) -> list[Hit]:
    """The hits, with up to `PLACES` passages of documents that the first ones refer to.

    They follow the first `AFTER` hits, each with its score for the query. Documents among the first hits are
    not repeated.

    Raises:
        StoreError: a collection could not be read.
    """
    first = hits[:AFTER]
    weights = await referred_sources(first[:SEEDS], query.views)
    for hit in first:
        weights.pop(hit.source.id, None)  # it is shown already
    passages = await _best_passages(weights, hits, query, state)
    return [*first, *_in_front(passages[:PLACES], hits[AFTER:])]


async def with_related(hits: Sequence[Hit], query: Query, state: SearchState) -> list[Hit]:
    """The hits, after up to `MOST_RELATED` passages of documents that the seed refers to, or that name it.

    Raises:
        StoreError: a collection could not be read.
    """
    seed = state.plan.seed
    if seed is None:
        return list(hits)
    with state.steps.step("related") as step:
        weights = await referred_sources([seed], query.views)
        for id_ in await _sources_mentioning(name_of(seed.source.title), query.views):
            weights[id_] = weights.get(id_, 0.0) + 1.0
        weights.pop(seed.source.id, None)
        passages = await _best_passages(weights, hits, query, state)
        related = _in_front(passages[:MOST_RELATED], hits)
        step.record_hits(related, of=len(hits))
    return related


def _in_front(passages: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    ids = {hit.chunk.id for hit in passages}
    return [*passages, *(hit for hit in hits if hit.chunk.id not in ids)]


async def _best_passages(
    weights: Mapping[str, float], hits: Sequence[Hit], query: Query, state: SearchState
) -> list[Hit]:
    """The best passage of each source for the query; ordered by the source's weight, then by score."""
    best: dict[str, Hit] = {}
    for hit in [*hits, *await _passages(weights.keys() - {hit.source.id for hit in hits}, query, state)]:
        if hit.source.id in weights:
            best.setdefault(hit.source.id, hit)
    return sorted(best.values(), key=lambda hit: (-weights[hit.source.id], -hit.score, hit.chunk.id))


async def referred_sources(seeds: Sequence[Hit], views: Sequence[View]) -> dict[str, float]:
    """The readable sources that the seeds refer to, by id, with the weight of the references.

    A reference weighs its seed's score; one by name is divided by the number of other passages with the name.
    """
    weights: dict[str, float] = defaultdict(float)
    for in_view in await concurrently([partial(_referred_in_view, seeds, view) for view in views]):
        for id_, weight in in_view:
            weights[id_] += weight
    return dict(weights)


async def _referred_in_view(seeds: Sequence[Hit], view: View) -> list[tuple[str, float]]:
    """The sources of a view that the seeds refer to, with the weight of each reference."""
    attributes = await view.table.attributes()
    if not attributes:
        return []  # a retriever: its sources are unknown
    names = {id_: name_of(str(values["title"])) for id_, values in attributes.items()}
    paths = {id_: str(values["path"]) for id_, values in attributes.items() if "path" in values}
    by_name: list[tuple[float, str, str]] = []
    by_link: list[tuple[float, str]] = []
    for seed in seeds:
        weight, seed_id, text = max(seed.score, 0.0), seed.source.id, seed.chunk.text
        mentioned = names_in(text, set(names.values()) - {name_of(seed.source.title)})
        by_name += [
            (weight, id_, name) for id_, name in names.items() if name in mentioned and id_ != seed_id
        ]
        if seed.source.collection == view.name:
            leads_to = linked_ids(text, seed.source.metadata.get("path", ""), paths) - {seed_id}
            by_link += [(weight, id_) for id_ in leads_to]
    sources = await view.table.sources({*(id_ for _, id_, _ in by_name), *(id_ for _, id_ in by_link)})
    admitted = {id_ for id_, source in sources.items() if view.admits(source)}
    # Counted only after the access check, so that unreadable documents change nothing, not even time.
    counts = await _counts({name for _, id_, name in by_name if id_ in admitted}, view)
    return [
        *((id_, weight) for weight, id_ in by_link if id_ in admitted),
        *(
            (id_, weight / max(1, counts[name] - 1))  # without the seed's own passage
            for weight, id_, name in by_name
            if id_ in admitted and counts[name] <= HUB
        ),
    ]


async def _counts(names: set[str], view: View) -> dict[str, int]:
    ordered = sorted(names)
    rows = await concurrently([partial(_passages_with_name, name, view) for name in ordered])
    return {name: len(having) if having else HUB + 1 for name, having in zip(ordered, rows, strict=True)}


async def _passages_with_name(name: str, view: View) -> list[StoredChunk]:
    """The readable passages with all words of a name; empty if there are more than `HUB`."""
    if not name or not view.table.by_words:
        return []
    rows = [scored.stored for scored in await view.table.sparse(name, HUB + 1, view.where, every=True)]
    if len(rows) > HUB:
        return []
    sources = await view.table.sources({row.chunk.source_id for row in rows})
    return [row for row in rows if (of_row := sources.get(row.chunk.source_id)) and view.admits(of_row)]


async def _sources_mentioning(name: str, views: Sequence[View]) -> set[str]:
    """The readable sources with a name in a passage; empty for a common phrase."""
    rows = await concurrently([partial(_passages_with_name, name, view) for view in views])
    return {row.chunk.source_id for having in rows for row in having if names_in(row.body, [name])}


async def _passages(sources: set[str], query: Query, state: SearchState) -> list[Hit]:
    """The passages of these sources that the query finds, best first."""
    if not sources:
        return []
    # Narrower views keep what the request's have: rights, filter and texts.
    views = tuple(replace(view, sources=tuple(sorted(sources))) for view in query.views)
    narrowed = [replace(query, views=views)]
    candidates = fuse(narrowed, await recall(narrowed, state.plan), state.plan)
    hits = await admit(candidates, query, len(candidates), state.alarm)
    return near_hits(hits, state.plan, views) if state.plan.drops_distant else hits
