"""The stages `rerank`, `recency`, `diversify` and `dedupe`: reorder hits, or drop those that repeat others.

`rerank` rescores the first hits against the query with a reranker or the chat model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import anyio
import numpy as np

from rag.answers import Hit
from rag.config.profiles import DedupeStage, DiversifyStage, RecencyStage, RerankStage
from rag.errors import ConfigurationError, ProviderError
from rag.models.breaker import note_failure
from rag.models.chat import Chat, chat_scores, weighted
from rag.models.rerank import Reranker
from rag.originals import Dating, dating
from rag.rank import diversity, editions
from rag.rank.fusion import by_recency, newer_first
from rag.runtime import grouped
from rag.search.recall import Query
from rag.search.search_state import Models, OpenStep, SearchState
from rag.store.read.word_analysis import query_terms, stop_languages
from rag.text.plain_text import words

if TYPE_CHECKING:
    import numpy.typing as npt

log = logging.getLogger(__name__)

FAILED = "The passages were not reranked ({}); they keep the order of the search."
UNDATED = "Nothing tells which of the passages are newer, so they are in the order of relevance alone."
UNSCORED = "The reranker gave no score to {} of the passages; they come last."
AGING_SHARE = 0.5  # of a score, by `recency`: what is old but fits far better keeps the other half
NEARLY_THE_SAME = 0.5
"""The lowest share of common five-word sequences at which the nDCG@10 of no judged set falls. Passages of 19
words or more that differ in one word are then the same (rag/evaluate/measuring.md)."""


async def rerank(
    hits: Sequence[Hit], stage: RerankStage, query: Query, state: SearchState, step: OpenStep
) -> list[Hit]:
    """The hits by their new scores, ties by date, and hits without a score last.

    The first `candidates` of the stage are scored, or as many as the plan's limit if that is more; the others
    are dropped. If scoring fails, all hits stay as they are, with a warning. Editions that the question asks
    for come first again.
    """
    reranked = await _by_new_scores(hits, stage, query.text, state, step)
    wanted_time = editions.asked_time(query.text, datetime.now(UTC).date())
    # A reranker reads the passages without their dates, so it undoes what the search preferred.
    return editions.prefer_editions(reranked, wanted_time) if wanted_time else reranked


async def _by_new_scores(
    hits: Sequence[Hit], stage: RerankStage, query: str, state: SearchState, step: OpenStep
) -> list[Hit]:
    scored = hits[: max(stage.candidates, state.plan.limit)]  # fewer could not fill the limit
    if not scored:
        return list(hits)
    model = cast("Chat | Reranker", state.models.chat if stage.by == "chat" else state.models.reranker)
    seconds = model.settings.timeout_seconds
    try:
        with anyio.fail_after(seconds):
            scores = await _scores(scored, stage, query, state.models, step)
    except TimeoutError:
        step.add_warnings(FAILED.format(f"no answer within {seconds:g} seconds"), failed=True)
        return list(hits)
    except ProviderError as error:
        note_failure(log, error)
        step.add_warnings(FAILED.format(error.for_caller.rstrip(".")), failed=True)
        return list(hits)
    if missing := scores.count(None):
        step.add_warnings(UNSCORED.format(missing))
    pairs = list(zip(scored, scores, strict=True))
    scored_hits = [replace(hit, score=score) for hit, score in pairs if score is not None]
    # The earlier score is on another scale, and would put them anywhere among the others.
    without = [replace(hit, score=0.0) for hit, score in pairs if score is None]
    return [*newer_first(sorted(scored_hits, key=lambda hit: -hit.score)), *without][: stage.limit]


async def _scores(
    hits: Sequence[Hit], stage: RerankStage, query: str, models: Models, step: OpenStep
) -> list[float | None]:
    texts = [_scored_text(hit) for hit in hits]
    if stage.by == "reranker":
        return await cast("Reranker", models.reranker).with_model(stage.model).scores(query, texts)
    chat = cast("Chat", models.chat).with_model(stage.model)
    semantic = await chat_scores(chat, query, texts, step.add_usage)
    return weighted(semantic, [hit.similarity or 0.0 for hit in hits])


def _scored_text(hit: Hit) -> str:
    """A passage under its heading path, as it was embedded."""
    section = " > ".join(hit.chunk.section) or hit.source.title
    above = f"{section}\n{hit.header}" if hit.header else section
    return f"{above}\n\n{hit.text}"


async def order_by_recency(
    hits: Sequence[Hit], stage: RecencyStage, query: Query, _run: SearchState, step: OpenStep
) -> list[Hit]:
    """The hits ordered by score and date: part of each score decays with the age of its document.

    If the question asks for years, it decays with the distance from these.

    Raises:
        ConfigurationError: the field that the stage names is not of type datetime in a collection.
    """
    for collection in (view.collection for view in query.views):
        kind = collection.fields.get(stage.field, "datetime")
        if kind != "datetime":
            raise ConfigurationError(
                f"The stage recency uses the field {stage.field}, of type {kind} in the collection "
                f"{collection.name}. Name a field of type datetime."
            )
    now = datetime.now(UTC)
    wanted_time = editions.asked_time(query.text) or editions.AskedTime()
    datings = [None if stage.field else dating(hit.source) for hit in hits]
    moments = [
        hit.fields.get(stage.field)
        if stage.field
        else (hit.source.date if dated and dated.by == "document" else dated)
        for hit, dated in zip(hits, datings, strict=True)
    ]
    ages = [
        wanted_time.days_away(moment, now) if isinstance(moment, datetime | Dating) else None
        for moment in moments
    ]
    # With one age for all the stage changes nothing, and nothing else would tell that.
    if len(set(ages)) == 1 and len({hit.source.id for hit in hits}) > 1:
        step.add_warnings(UNDATED)
    return by_recency(
        [replace(hit, dating=dated) for hit, dated in zip(hits, datings, strict=True)],
        ages,
        half_life_days=stage.half_life_days,
        weight=AGING_SHARE,
        missing=stage.missing,
    )


async def diversify_hits(
    hits: Sequence[Hit], stage: DiversifyStage, query: Query, _run: SearchState, _step: OpenStep
) -> list[Hit]:
    """The hits ordered by maximal marginal relevance."""
    if not hits:
        return []
    if stage.by == "words":
        similarities = diversity.jaccard([set(words(hit.text)) for hit in hits])
    else:
        similarities = _cosines(hits, query)
    order = diversity.diversify(
        [hit.score for hit in hits],
        similarities,
        lambda_=stage.lambda_,
        sources=[hit.source.id for hit in hits],
        cap=stage.per_source,
    )
    return [hits[index] for index in order]


def _cosines(hits: Sequence[Hit], query: Query) -> diversity.Likeness:
    """The cosines between hits; 0 where different models made their vectors."""
    models = {view.name: view.collection.embedder for view in query.views}
    by_model = grouped((models[hit.source.collection], index) for index, hit in enumerate(hits))
    similarities = np.zeros((len(hits), len(hits)), np.float32)
    for indexes in by_model.values():
        rows = np.stack([cast("npt.NDArray[np.float32]", hits[index].vector) for index in indexes])
        similarities[np.ix_(indexes, indexes)] = diversity.cosine(rows)
    return similarities


async def drop_duplicates(
    hits: Sequence[Hit], _stage: DedupeStage, query: Query, _run: SearchState, _step: OpenStep
) -> list[Hit]:
    """The hits, except those that nearly repeat a better one. The requested edition is the better one."""
    languages = {language for view in query.views for language in stop_languages(view.collection)}
    asked_words = frozenset(words(" ".join(query_terms(query.text, languages))))
    today = datetime.now(UTC).date()
    # Without a time in the question, the newest of near copies stays.
    wanted_time = editions.asked_time(query.text, today) or editions.AskedTime(today=today)
    return editions.without_copies(hits, asked_words, wanted_time, threshold=NEARLY_THE_SAME)
