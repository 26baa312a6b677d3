"""The steps of a profile that take hits to hits. What one of them adds has passed the gate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import numpy as np

from rag.config.profiles import (
    CompressStage,
    CustomStage,
    DedupeStage,
    DiversifyStage,
    NeighborsStage,
    ParentStage,
    RecencyStage,
    RerankStage,
)
from rag.errors import ConfigurationError
from rag.rank.diversity import cosine, diversify, jaccard
from rag.rank.duplicates import distinct
from rag.rank.recency import by_recency
from rag.search.stages.compress import compressed
from rag.search.stages.custom import custom_hits
from rag.search.stages.expand import in_sections, with_neighbors
from rag.search.stages.rerank import reranked
from rag.text import words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from rag.answers import Hit
    from rag.config.profiles import HitStage
    from rag.search.pipeline import Pipeline
    from rag.search.recall import Query
    from rag.search.trace import Step
    from rag.search.view import View

SHOWN_ONLY = (NeighborsStage, ParentStage, CompressStage)
"""Stages about what is shown of a hit: the limit cuts before them."""
REPEATING = "{} more passages repeat these or come from the same documents."
NOTHING_SAID = "{} more passages hold no sentence that answers."


async def through_stages(hits: Sequence[Hit], query: Query, search: Pipeline) -> list[Hit]:
    """The hits after all steps, best first and not more than the limit; why there are fewer is noted.

    Raises:
        ConfigurationError: a step needs what a hit lacks, and its settings call that an error.
        BusyError, StoreError: what a step adds couldn't be read.
    """
    limit = search.plan.limit
    hits = list(hits)
    for stage in search.plan.hit_stages:
        if isinstance(stage, SHOWN_ONLY):
            hits = _cut(hits, search)
        before = len(hits)
        with search.stages.stage(stage.stage) as step:
            hits = await _through(hits, stage, query, search, step)
            step.left(hits, of=before)
        search.notes.extend(step.stage.warnings)
        if note := _note(stage, min(limit, before) - len(hits)):
            search.notes.append(note.format(before - len(hits)))
    return _cut(hits, search)


def _cut(hits: list[Hit], search: Pipeline) -> list[Hit]:
    """Not more hits than the limit; a stage of its own in a trace."""
    limit, left = search.plan.limit, search.stages.last_left
    if left > limit:
        with search.stages.stage("limit") as step:
            step.left(hits[:limit], of=left)
    return hits[:limit]


def _note(stage: HitStage, missing: int) -> str | None:
    """What to say where a stage leaves fewer hits than were asked for."""
    match stage:
        case DiversifyStage() | DedupeStage() if missing > 0:
            return REPEATING
        case CompressStage() if missing > 0:
            return NOTHING_SAID
    return None


async def _through(hits: list[Hit], stage: HitStage, query: Query, search: Pipeline, step: Step) -> list[Hit]:
    models, limit = search.models, search.plan.limit
    views = {view.table.collection.name: view for view in query.views}
    match stage:
        case RerankStage():
            hits = await reranked(hits, stage, query.text, models, step, limit=limit)
        case NeighborsStage():
            hits = await with_neighbors(hits, stage.count, views)
        case ParentStage():
            hits, warnings = await in_sections(hits, stage, views)
            step.warns(*warnings)
        case RecencyStage():
            hits = _newer(hits, stage, views)
        case DiversifyStage():
            hits = _diverse(hits, stage)
        case DedupeStage():
            kept = distinct([hit.text for hit in hits], threshold=stage.threshold).kept
            hits = [hits[place] for place in kept]
        case CompressStage():
            hits = await compressed(hits, stage, query, models.embedder)
        case CustomStage():
            hits = await custom_hits(hits, stage, query.text, step)
    return hits


def _newer(hits: Sequence[Hit], stage: RecencyStage, views: Mapping[str, View]) -> list[Hit]:
    """Newer ones first."""
    for name, view in views.items():
        kind = view.table.collection.fields.get(stage.field, "datetime")
        if kind != "datetime":
            raise ConfigurationError(
                f"The stage recency goes by the field {stage.field}, which holds a {kind} in the collection "
                f"{name}; name one that holds a datetime."
            )
    return by_recency(
        hits,
        now=datetime.now(UTC),
        half_life_days=stage.half_life_days,
        weight=stage.weight,
        missing=stage.missing,
        field=stage.field,
    )


def _diverse(hits: Sequence[Hit], stage: DiversifyStage) -> list[Hit]:
    """In the order of maximal marginal relevance."""
    if not hits:
        return []
    if stage.by == "words":
        likeness = jaccard([set(words(hit.text)) for hit in hits])
    else:
        likeness = cosine(np.stack([cast("npt.NDArray[np.float32]", hit.vector) for hit in hits]))
    order = diversify(
        [hit.score for hit in hits],
        likeness,
        lambda_=stage.lambda_,
        sources=[hit.source.id for hit in hits],
        penalty=stage.source_penalty,
        cap=stage.per_source,
    )
    return [hits[place] for place in order]
