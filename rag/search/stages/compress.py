"""The stage `compress`: shows only the sentences of a hit that answer the query, verbatim."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from rag.answers import Excerpt
from rag.concurrency import concurrently
from rag.errors import ProviderError
from rag.models.breaker import note_failure
from rag.rank.excerpts import excerpts
from rag.search.vectors import is_remote
from rag.store.terms import query_terms, stop_languages
from rag.text import sentences, with_indent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Hit
    from rag.config.profiles import CompressStage
    from rag.models.embed import Embedders
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run
    from rag.search.view import View

REMOTE_SECONDS = 10.0  # for a remote model; the other stages have such a limit in their settings
UNLIKE = -1.0  # below every threshold
FAILED = "The passages were not compressed ({})."
SOME_FAILED = "Some passages were not compressed ({})."

log = logging.getLogger(__name__)


async def compressed(
    hits: Sequence[Hit], stage: CompressStage, query: Query, embedders: Embedders
) -> tuple[list[Hit], list[str]]:
    """The hits with the sentences that answer as their excerpts. Hits without such a sentence are dropped.

    The sentences are taken from what is shown of a hit: each of its excerpts, or its chunk if it has none.
    `share` and `max_chars` apply to each of these. A sentence answers if it contains a word of the query that
    is no stop word, or if its similarity to the query reaches the threshold, by the model of its collection;
    without a meaning of the query for that model, only by its words. Each excerpt is
    `source.text[start:end]`, as the text that it is taken from.

    Hits of a model that fails stay whole. Also returns why, for each such model.
    """
    models = {view.table.collection.name: comparing_model(query, view) for view in query.views}
    by_model: dict[str | None, list[Hit]] = {}
    for hit in hits:
        by_model.setdefault(models[hit.source.collection], []).append(hit)
    calls = [
        partial(similarities_by, name, _all_sentences(theirs), query, embedders)
        for name, theirs in by_model.items()
    ]
    similarities = dict(zip(by_model, await concurrently(calls), strict=True))
    languages = {view.table.collection.name: stop_languages(view.table.collection) for view in query.views}
    kept: list[Hit] = []
    for hit in hits:
        theirs = similarities[models[hit.source.collection]]
        if isinstance(theirs, str):
            kept.append(hit)
            continue
        terms = query_terms(query.text, languages[hit.source.collection])
        answering = [one for part in shown_parts(hit) for one in _answering(part, terms, stage, theirs)]
        if answering:
            kept.append(replace(hit, excerpts=tuple(answering), tokens=None))
    return kept, [cause for cause in similarities.values() if isinstance(cause, str)]


def comparing_model(query: Query, view: View) -> str | None:
    """The name of the embedder that compares sentences of a view with the query; None if none does."""
    meaning = query.meaning_in(view)
    return view.table.collection.embedder_name if meaning and not meaning.given else None


def shown_parts(hit: Hit) -> tuple[Excerpt, ...]:
    """The parts of its source that are shown of a hit."""
    return hit.excerpts or (Excerpt(hit.chunk.start, hit.chunk.end, hit.chunk.text),)


async def similarities_by(
    model: str | None, texts: Iterable[str], query: Query, embedders: Embedders
) -> Mapping[str, float] | str:
    """The similarity to the query of each text, or why the model failed; `UNLIKE` of all without a model."""
    unique = list(dict.fromkeys(texts))
    if model is None or not unique:
        return dict.fromkeys(unique, UNLIKE)
    embedder = embedders.opened[model]
    try:
        with anyio.fail_after(REMOTE_SECONDS if is_remote(embedder) else None):
            vectors = await embedder.embed(unique, "document")
    except TimeoutError:
        return f"no answer within {REMOTE_SECONDS:g} seconds"
    except ProviderError as error:
        note_failure(log, error)
        return error.for_caller.rstrip(".")
    return dict(zip(unique, query.meanings[model].similarities(vectors).tolist(), strict=True))


def _all_sentences(hits: Iterable[Hit]) -> list[str]:
    return [sentence for hit in hits for part in shown_parts(hit) for sentence in _sentences(part.text)]


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def _answering(
    part: Excerpt, terms: Sequence[str], stage: CompressStage, similarities: Mapping[str, float]
) -> list[Excerpt]:
    spans = excerpts(
        part.text,
        terms,
        [similarities[sentence] for sentence in _sentences(part.text)],
        threshold=stage.threshold,
        share=stage.share,
        max_chars=stage.max_chars,
    )
    return [part_of(part, start, end) for start, end in spans]


def part_of(excerpt: Excerpt, start: int, end: int) -> Excerpt:
    """`excerpt.text[start:end]` as an excerpt, with the indentation of its first line."""
    start = with_indent(excerpt.text, start)
    return Excerpt(excerpt.start + start, excerpt.start + end, excerpt.text[start:end])


async def compress(
    hits: Sequence[Hit], stage: CompressStage, query: Query, run: Run, step: OpenStep
) -> list[Hit]:
    """The stage `compress`; see `compressed`. A warning says which model failed."""
    kept, causes = await compressed(hits, stage, query, run.models.embedders)
    unchanged = kept == list(hits)
    for cause in dict.fromkeys(causes):
        step.warns((FAILED if unchanged else SOME_FAILED).format(cause), failed=unchanged)
    if causes:
        run.degraded.append(stage.stage)
    return kept
