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

    `percentage_distance` is relative to the nearest hit of all collections: 20 keeps hits up to 20 % farther
    away, each in the metric of its own collection. If `max_distance` is stricter, it applies.
    """
    similarities = [hit.similarity for hit in hits if hit.similarity is not None]
    furthest = _furthest(max(similarities, default=0.0), thresholds, set(metrics.values()))
    least = -inf if thresholds.min_similarity is None else thresholds.min_similarity

    def passes(hit: Hit) -> bool:
        if hit.similarity is None:
            return True
        metric = metrics[hit.source.collection]
        return hit.similarity >= least and distance(hit.similarity, metric) <= furthest[metric]

    return [hit for hit in hits if passes(hit)]


def _furthest(
    nearest: float, thresholds: ThresholdSettings, metrics: Iterable[Distance]
) -> dict[Distance, float]:
    """The largest distance by metric; `nearest` is the highest similarity of all hits."""
    most = inf if thresholds.max_distance is None else thresholds.max_distance
    percentage = thresholds.percentage_distance
    if percentage is None:
        return dict.fromkeys(metrics, most)
    return {metric: min(most, distance(nearest, metric) * (1 + percentage / 100)) for metric in metrics}
