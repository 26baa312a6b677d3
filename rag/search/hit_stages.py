"""The steps of a profile that take hits to hits. None of them adds what was not admitted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import numpy as np

from rag.rank.diversity import diversify
from rag.rank.duplicates import distinct
from rag.rank.likeness import cosine, jaccard
from rag.rank.recency import by_recency
from rag.rank.sentences import words
from rag.settings import DedupeStage, DiversifyStage, RecencyStage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rag.records import Hit
    from rag.search.stages import Stages
    from rag.settings import HitStage


def through_stages(hits: Sequence[Hit], steps: Sequence[HitStage], stages: Stages) -> list[Hit]:
    """The hits after all steps, best first.

    Raises:
        ConfigurationError: a step needs what a hit lacks, and its settings call that an error.
    """
    hits = list(hits)
    for step in steps:
        with stages.stage(step.stage):
            hits = _through(hits, step)
    return hits


def _through(hits: Sequence[Hit], step: HitStage) -> list[Hit]:
    match step:
        case RecencyStage():
            return by_recency(
                hits,
                now=datetime.now(UTC),
                half_life_days=step.half_life_days,
                weight=step.weight,
                missing=step.missing,
            )
        case DiversifyStage():
            return _diverse(hits, step)
        case DedupeStage():
            kept = distinct([hit.chunk.text for hit in hits], threshold=step.threshold).kept
            return [hits[place] for place in kept]


def _diverse(hits: Sequence[Hit], step: DiversifyStage) -> list[Hit]:
    """In the order of maximal marginal relevance."""
    if not hits:
        return []
    if step.by == "words":
        likeness = jaccard([set(words(hit.chunk.text)) for hit in hits])
    else:
        likeness = cosine(np.stack([cast("npt.NDArray[np.float32]", hit.vector) for hit in hits]))
    order = diversify(
        [hit.score for hit in hits],
        likeness,
        lambda_=step.lambda_,
        sources=[hit.source.id for hit in hits],
        penalty=step.source_penalty,
        cap=step.per_source,
    )
    return [hits[place] for place in order]
