"""The stages `recency`, `diversify` and `dedupe`: reorder hits, or drop those that repeat others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import numpy as np

from rag.errors import ConfigurationError
from rag.rank import duplicates
from rag.rank.diversity import cosine, diversify, jaccard
from rag.rank.recency import by_recency
from rag.text import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rag.answers import Hit
    from rag.config.profiles import DedupeStage, DiversifyStage, RecencyStage
    from rag.corpus import EmbedderIdentity
    from rag.rank.diversity import Likeness
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run


async def newer(
    hits: Sequence[Hit], stage: RecencyStage, query: Query, _run: Run, _step: OpenStep
) -> list[Hit]:
    """The hits ordered by score and date: part of each score decays with the age of its document.

    Raises:
        ConfigurationError: the field that the stage names is not of type datetime in a collection.
    """
    for collection in (view.table.collection for view in query.views):
        kind = collection.fields.get(stage.field, "datetime")
        if kind != "datetime":
            raise ConfigurationError(
                f"The stage recency uses the field {stage.field}, of type {kind} in the collection "
                f"{collection.name}. Name a field of type datetime."
            )
    return by_recency(
        hits,
        now=datetime.now(UTC),
        half_life_days=stage.half_life_days,
        weight=stage.weight,
        missing=stage.missing,
        field=stage.field,
    )


async def diverse(
    hits: Sequence[Hit], stage: DiversifyStage, query: Query, _run: Run, _step: OpenStep
) -> list[Hit]:
    """The hits ordered by maximal marginal relevance."""
    if not hits:
        return []
    if stage.by == "words":
        similarities = jaccard([set(words(hit.text)) for hit in hits])
    else:
        similarities = _cosines(hits, query)
    order = diversify(
        [hit.score for hit in hits],
        similarities,
        lambda_=stage.lambda_,
        sources=[hit.source.id for hit in hits],
        penalty=stage.source_penalty,
        cap=stage.per_source,
    )
    return [hits[index] for index in order]


def _cosines(hits: Sequence[Hit], query: Query) -> Likeness:
    """The cosine of each two hits; 0 if different models made their vectors."""
    models = {view.table.collection.name: view.table.collection.embedder for view in query.views}
    by_model: dict[EmbedderIdentity, list[int]] = {}
    for index, hit in enumerate(hits):
        by_model.setdefault(models[hit.source.collection], []).append(index)
    similarities = np.zeros((len(hits), len(hits)), np.float32)
    for indexes in by_model.values():
        rows = np.stack([cast("npt.NDArray[np.float32]", hits[index].vector) for index in indexes])
        similarities[np.ix_(indexes, indexes)] = cosine(rows)
    return similarities


async def distinct(
    hits: Sequence[Hit], stage: DedupeStage, _query: Query, _run: Run, _step: OpenStep
) -> list[Hit]:
    """The hits without those that nearly repeat a better one."""
    kept = duplicates.distinct([hit.text for hit in hits], threshold=stage.threshold).kept
    return [hits[index] for index in kept]
