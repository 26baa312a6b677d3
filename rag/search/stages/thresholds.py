"""Similarity thresholds: which hits are near enough to the query, and whether they are evidence at all."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Hit
    from rag.config.profiles import ThresholdSettings
    from rag.corpus import Distance

MEASURED_EVIDENCE = 0.29
"""The least evidence with the built-in model: at most 2 % of the answerable questions of a judged set have
less (rag/evaluate/measuring.md). Similarities of other models have other scales, so these have no default."""
UNGROUNDED = "No sufficiently grounded information found."
DISTANT = "less similar to the query than the thresholds require"


def distance(similarity: float, metric: Distance) -> float:
    """The distance between a passage and the query in the metric of the passage's collection.

    Vectors have unit length, so all metrics order alike: cosine and dot are 1 - similarity, euclidean is
    sqrt(2 - 2 * similarity).
    """
    away = max(0.0, 1.0 - similarity)
    return sqrt(2 * away) if metric == "euclidean" else away


def near_enough(
    hits: Sequence[Hit], thresholds: ThresholdSettings, metrics: Mapping[str, Distance]
) -> list[Hit]:
    """The hits that meet all thresholds, in their order. `metrics` maps collections to their metrics.

    Hits without a similarity stay: no threshold can be applied to them.

    `percentage_distance` is relative to the nearest hit of a metric: 20 keeps hits up to 20 % farther than
    the nearest. If `max_distance` is stricter, it applies.
    """
    known = {
        hit.chunk.id: (metric, distance(hit.similarity, metric))
        for hit, metric in ((hit, metrics[hit.source.collection]) for hit in hits)
        if hit.similarity is not None
    }
    furthest = _furthest(known.values(), thresholds)
    least = -inf if thresholds.min_similarity is None else thresholds.min_similarity

    def passes(hit: Hit) -> bool:
        if hit.similarity is None:
            return True
        metric, away = known[hit.chunk.id]
        return hit.similarity >= least and away <= furthest[metric]

    return [hit for hit in hits if passes(hit)]


def _furthest(
    measured: Iterable[tuple[Distance, float]], thresholds: ThresholdSettings
) -> dict[Distance, float]:
    nearest: dict[Distance, float] = {}
    for metric, far in measured:
        nearest[metric] = min(far, nearest.get(metric, inf))
    most = inf if thresholds.max_distance is None else thresholds.max_distance
    share = thresholds.percentage_distance
    if share is None:
        return dict.fromkeys(nearest, most)
    return {metric: min(most, far * (1 + share / 100)) for metric, far in nearest.items()}
