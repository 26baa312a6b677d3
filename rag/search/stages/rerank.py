"""The stage `rerank`: rescores the first hits against the query with a reranker or the chat model."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import anyio

from rag.errors import ProviderError
from rag.models.breaker import note_failure
from rag.models.rerank.chat import chat_scores, weighted
from rag.rank.fusion import newer_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit
    from rag.config.profiles import RerankStage
    from rag.models.chat import Chat
    from rag.models.rerank import Reranker
    from rag.search.recall import Query
    from rag.search.run import Models, OpenStep, Run

log = logging.getLogger(__name__)

FAILED = "The passages were not reranked ({}); they keep the order of the search."
UNSCORED = "The reranker gave no score to {} of the passages; they come last."


async def reranked(
    hits: Sequence[Hit], stage: RerankStage, query: str, models: Models, step: OpenStep, *, limit: int
) -> list[Hit]:
    """The hits by their new scores, newer first among equals, and those without a score last.

    Hits that were not sent to the model are dropped.
    The first `candidates` of the stage are sent, or the first `limit` if that is more. If scoring fails, all
    hits stay as they are, with a warning.
    """
    scored = hits[: max(stage.candidates, limit)]
    if not scored:
        return list(hits)
    try:
        with anyio.fail_after(stage.timeout_seconds):
            scores = await _scores(scored, stage, query, models, step)
    except TimeoutError:
        step.warns(FAILED.format(f"no answer within {stage.timeout_seconds:g} seconds"), failed=True)
        return list(hits)
    except ProviderError as error:
        note_failure(log, error)
        step.warns(FAILED.format(error.for_caller.rstrip(".")), failed=True)
        return list(hits)
    if missing := scores.count(None):
        step.warns(UNSCORED.format(missing))
    pairs = list(zip(scored, scores, strict=True))
    given = [replace(hit, score=score) for hit, score in pairs if score is not None]
    without = [replace(hit, score=0.0) for hit, score in pairs if score is None]
    return [*newer_first(sorted(given, key=lambda hit: -hit.score)), *without][: stage.limit]


async def _scores(
    hits: Sequence[Hit], stage: RerankStage, query: str, models: Models, step: OpenStep
) -> list[float | None]:
    texts = [_scored_text(hit) for hit in hits]
    if stage.by == "reranker":
        return await cast("Reranker", models.reranker).scores(query, texts)
    semantic = await chat_scores(cast("Chat", models.chat), query, texts, step.uses)
    return weighted(semantic, [hit.similarity or 0.0 for hit in hits], stage.weights)


def _scored_text(hit: Hit) -> str:
    """A passage under its heading path, as it was embedded."""
    section = " > ".join(hit.chunk.section) or hit.source.title
    above = f"{section}\n{hit.header}" if hit.header else section
    return f"{above}\n\n{hit.text}"


async def rerank(
    hits: Sequence[Hit], stage: RerankStage, query: Query, run: Run, step: OpenStep
) -> list[Hit]:
    """The stage `rerank`; see `reranked`."""
    return await reranked(hits, stage, query.text, run.models, step, limit=run.plan.limit)
