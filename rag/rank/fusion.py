"""Several rankings into one, and what decides between equals."""

from __future__ import annotations

from math import hypot, sqrt
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Hit

WORD = 1.5  # times the unit of a sparse list: what a word that is rare and well matched comes to
WORDS = 4  # so many such words say as much as a cosine of 1; all of them, if the query has fewer
DEVIATIONS = 3  # from the mean to either end of a distribution's scale
TIE = 0.02  # two scores this near say the same


def best_scores(scored: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Each item once, with its best score, best first; equal scores are ordered by item.

    Example: [("b", 0.5), ("a", 0.5), ("b", 0.9)] -> {"b": 0.9, "a": 0.5}.
    """
    best: dict[str, float] = {}
    for item, score in scored:
        if item not in best or score > best[item]:
            best[item] = score
    return _best_first(best)


def ranks(scored: Iterable[tuple[str, float]]) -> dict[str, int]:
    """Each item's rank, 1 for the best; equal scores share a rank, and an item counts once, at its best.

    Example: [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)] -> {"a": 1, "b": 2, "c": 2, "d": 4}.
    """
    found: dict[str, int] = {}
    first_rank: dict[float, int] = {}
    for place, (item, score) in enumerate(best_scores(scored).items(), 1):
        found[item] = first_rank.setdefault(score, place)
    return found


def reciprocal_rank_fusion(
    rankings: Sequence[Mapping[str, int]], *, weights: Sequence[float] = (), k: int
) -> dict[str, float]:
    """Fuse rankings (item to rank, from 1) into scores in (0, 1], best first.

    The score is the sum over rankings of weight / (k + rank), divided by the best there can be, so
    an item that every ranking puts first has 1. An item missing from a ranking gains nothing
    from it; equal scores are ordered by item. Without weights all rankings count alike; one of weight
    0 doesn't count at all.
    Example: [{"a": 1, "b": 2}, {"b": 1}] with k=60 -> {"b": (61/62 + 1) / 2, "a": 1/2}.

    Source: Cormack, Clarke & Buettcher, SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    weights = weights or [1.0] * len(rankings)
    whole, scores = sum(weights), dict[str, float]()
    for ranking, weight in zip(rankings, weights, strict=True):
        for item, rank in ranking.items() if weight else ():
            scores[item] = scores.get(item, 0.0) + weight / whole * (k + 1) / (k + rank)
    return _best_first(scores)


def distribution_based_fusion(lists: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Fuse lists (item to score) into scores in [0, 1], best first: the mean of where each puts an item.

    A list's scale goes from three standard deviations below the mean of its scores, 0, to three above,
    1. An item missing from a list has 0 there; in a list whose scores are all equal, each has 1/2.

    Source: Mazzeschi, Distribution-Based Score Fusion, 2023; Qdrant's `dbsf`.
    """
    scores: dict[str, float] = {}
    for one in lists:
        for item, place in _on_own_scale(one).items():
            scores[item] = scores.get(item, 0.0) + place / len(lists)
    return _best_first(scores)


def _on_own_scale(scores: Mapping[str, float]) -> dict[str, float]:
    if not scores:
        return {}
    mean, span = fmean(scores.values()), 2 * DEVIATIONS * pstdev(scores.values())
    if not span:
        return dict.fromkeys(scores, 0.5)
    return {item: min(1.0, max(0.0, 0.5 + (score - mean) / span)) for item, score in scores.items()}


def convex_combination(
    cosines: Mapping[str, float], sparse: Mapping[str, float], *, alpha: float
) -> dict[str, float]:
    """Cosine * alpha + share of the best sparse score * (1 - alpha), best first; in [0, 1].

    With alpha 0 the ranking is that of `sparse`, with 1 that of `cosines`. A cosine below 0 counts 0, as does
    what is missing.

    Source: Bruch, Gai & Ingber, TOIS 2023, doi:10.1145/3596512, with the cosine as it is.
    """
    best = max(sparse.values(), default=1.0) or 1.0
    items = (cosines.keys() if alpha else set[str]()) | (sparse.keys() if alpha < 1 else set[str]())
    return _best_first(
        {
            item: alpha * max(cosines.get(item, 0.0), 0.0) + (1 - alpha) * sparse.get(item, 0.0) / best
            for item in items
        }
    )


def calibrated_fusion(
    cosines: Mapping[str, float], sparse: Mapping[str, float], *, words: int, known: float = 1.0
) -> dict[str, float]:
    """Fuse two scores that each say how sure they are into their quadratic mean, in [0, 1], best first.

    A cosine says so by itself. BM25 adds up how rare the words are that match, so `words`, the query's words
    that count, give it a scale: `sparse` is in units of the rarest word there can be. The best score
    of the list as its scale would make chance matches as sure as true ones; squares let one strong sign
    win over two weak ones, so that a list that is lost doesn't drown the other. `known` is the share of
    the query that the embedding model has words for; it weighs the cosines. What is missing counts 0.
    Example: {"a": 0.6}, {"b": 1.0}, words=3 -> {"a": 0.6 / sqrt(2), "b": 1 / 4.5 / sqrt(2)}.
    """
    most = max(WORD * min(WORDS, max(words, 1)), max(sparse.values(), default=0.0))
    return _best_first(
        {
            item: hypot(known * max(cosines.get(item, 0.0), 0.0), sparse.get(item, 0.0) / most) / sqrt(2)
            for item in cosines.keys() | sparse.keys()
        }
    )


def _best_first(scores: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def newer_first(hits: Sequence[Hit], *, within: float = TIE) -> list[Hit]:
    """`hits` (best first) with the newer date first among equals; hits without a date keep their place.

    Equal are hits whose score and similarity both lie within `within` of the first of them. The
    similarity counts because scores made from ranks are near each other whatever the evidence.
    """
    ordered: list[Hit] = []
    equals: list[Hit] = []
    for hit in hits:
        if equals and not _equal(equals[0], hit, within):
            ordered += _by_date(equals)
            equals = []
        equals.append(hit)
    return ordered + _by_date(equals)


def _equal(first: Hit, other: Hit, within: float) -> bool:
    return abs(first.score - other.score) <= within and abs(first.similarity - other.similarity) <= within


def _by_date(equals: Sequence[Hit]) -> list[Hit]:
    dated = [hit for hit in equals if hit.source.date is not None]
    newest_first = iter(sorted(dated, key=lambda hit: hit.source.date, reverse=True))  # type: ignore[arg-type, return-value]  # all have one
    return [hit if hit.source.date is None else next(newest_first) for hit in equals]
