"""How much is shown of each hit: the sentence that answers, the passage, or the section around it.

A request that says which replaces the stages of its profile that say it (`neighbors`, `parent`, `compress`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.concurrency import concurrently
from rag.config.profiles import ParentStage
from rag.rank.snippets import shared_rarity, statements
from rag.search.source import between_words, centred
from rag.search.stages.compress import comparing_model, part_of, shown_parts, similarities_by
from rag.search.stages.surroundings import in_sections
from rag.store.terms import MAX_TERMS, query_terms, spelled_out, stop_languages
from rag.text import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.answers import Excerpt, Hit
    from rag.corpus import Language
    from rag.models.embed import Embedders
    from rag.search.recall import Query
    from rag.search.run import Run

MAX_SNIPPET_CHARS = 400  # longer sentences are code, tables and lists
NO_MEANING = (
    "Some snippets are only the first sentences of their passages: they share no word with the query, and "
    "the embedding model failed ({})."
)


async def as_detailed(hits: Sequence[Hit], query: Query, run: Run) -> list[Hit]:
    """The hits as the plan's `detail` wants them shown. Hits whose sections overlap become one.

    Raises:
        BusyError, StoreError: a section couldn't be read.
    """
    if run.plan.detail == "passage" or not hits:
        return list(hits)
    with run.steps.step(run.plan.detail) as step:
        if run.plan.detail == "section":
            shown, warnings = await in_sections(hits, ParentStage(stage="parent"), query.views_by_collection)
        else:
            shown, warnings = await with_snippets(hits, query, run.models.embedders)
        step.warns(*warnings, failed=run.plan.detail == "snippet" and bool(warnings))
        step.left(shown, of=len(hits))
    run.note(warnings)
    return shown


async def with_snippets(
    hits: Sequence[Hit], query: Query, embedders: Embedders
) -> tuple[list[Hit], list[str]]:
    """Each hit with the sentence that answers best as its excerpt; and warnings.

    That is the sentence with the rarest words of the query. Only of hits that share no word with it, the
    embedder of their collection compares the sentences. If that can't be, the first sentence stands.
    """
    views = query.views_by_collection
    parts, best = await to_thread.run_sync(_all_by_words, hits, query)
    wordless: dict[str | None, list[str]] = {}
    for hit in hits:
        id_, view = hit.chunk.id, views[hit.source.collection]
        if id_ not in best and len(parts[id_]) > 1:
            wordless.setdefault(comparing_model(query, view), []).append(id_)
    calls = [
        partial(_by_meaning, model, {id_: parts[id_] for id_ in ids}, query, embedders)
        for model, ids in wordless.items()
    ]
    warnings = []
    for found in await concurrently(calls):
        if isinstance(found, str):
            warnings.append(NO_MEANING.format(found))
        else:
            best |= found
    shown = {hit.chunk.id: best.get(hit.chunk.id) or _first(parts[hit.chunk.id], hit) for hit in hits}
    return [replace(hit, excerpts=(shown[hit.chunk.id],)) for hit in hits], warnings


def _all_by_words(hits: Sequence[Hit], query: Query) -> tuple[dict[str, list[Excerpt]], dict[str, Excerpt]]:
    """The parts of each hit, by its id, and of those that share words with the query the best one."""
    views = query.views_by_collection
    parts = {hit.chunk.id: _statements(hit) for hit in hits}
    by_words = {
        hit.chunk.id: _by_words(
            parts[hit.chunk.id], query.text, stop_languages(views[hit.source.collection].table.collection)
        )
        for hit in hits
    }
    return parts, {id_: part for id_, part in by_words.items() if part}


def _statements(hit: Hit) -> list[Excerpt]:
    return [part_of(part, start, end) for part in shown_parts(hit) for start, end in statements(part.text)]


def _first(parts: Sequence[Excerpt], hit: Hit) -> Excerpt:
    """The first of the parts; of a hit that is nothing but white space, what is shown of it."""
    return _shortened((parts or shown_parts(hit))[0], [])


def _by_words(parts: Sequence[Excerpt], query: str, languages: Sequence[Language]) -> Excerpt | None:
    """The part with the rarest words of the query, None if none has any."""
    terms = spelled_out(" ".join(query_terms(query, languages)[:MAX_TERMS])).split()
    scores = shared_rarity([spelled_out(part.text) for part in parts], terms)
    if not any(scores):
        return None
    return _shortened(parts[scores.index(max(scores))], terms)


async def _by_meaning(
    model: str | None, parts: Mapping[str, Sequence[Excerpt]], query: Query, embedders: Embedders
) -> dict[str, Excerpt] | str:
    """The part of each hit that is most similar to the query, by the ids of the hits; or why there is none.

    Without a model there is no part: a note on that is in the reply already.
    """
    if model is None:
        return {}
    texts = [part.text for ones in parts.values() for part in ones]
    similarities = await similarities_by(model, texts, query, embedders)
    if isinstance(similarities, str):
        return similarities
    return {
        id_: _shortened(max(ones, key=lambda part: similarities[part.text]), [])
        for id_, ones in parts.items()
    }


def _shortened(part: Excerpt, terms: Sequence[str]) -> Excerpt:
    """A part that is too long as a window around the line with most words of the query."""
    if len(part.text) <= MAX_SNIPPET_CHARS:
        return part
    lines = part.text.splitlines(keepends=True)
    scores = shared_rarity(lines, terms)
    at = scores.index(max(scores))
    start = sum(map(len, lines[:at]))
    whole = Span(0, len(part.text))
    line = Span(start, min(start + len(lines[at].rstrip()), start + MAX_SNIPPET_CHARS))
    start, end = between_words(part.text, centred(whole, line, MAX_SNIPPET_CHARS), whole)
    return part_of(part, start, end)
