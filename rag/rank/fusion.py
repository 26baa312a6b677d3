"""Several rankings into one, and what decides between equals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.records import Hit

RRF_K = 60
TIE = 0.02  # two scores this near say the same


def best_scores(scored: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Each item once, with its best score, best first; equal scores are ordered by item.

    Example: [("b", 0.5), ("a", 0.5), ("b", 0.9)] -> {"b": 0.9, "a": 0.5}.
    """
    best: dict[str, float] = {}
    for item, score in scored:
        best[item] = max(score, best.get(item, score))
    return dict(sorted(best.items(), key=lambda pair: (-pair[1], pair[0])))


def ranks(scored: Iterable[tuple[str, float]]) -> dict[str, int]:
    """Each item's rank, 1 for the best; equal scores share a rank, and an item counts once, at its best.

    Example: [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)] -> {"a": 1, "b": 2, "c": 2, "d": 4}.
    """
    found: dict[str, int] = {}
    first_rank: dict[float, int] = {}
    for place, (item, score) in enumerate(best_scores(scored).items(), 1):
        found[item] = first_rank.setdefault(score, place)
    return found


def reciprocal_rank_fusion(rankings: Sequence[Mapping[str, int]], *, k: int = RRF_K) -> dict[str, float]:
    """Fuse rankings (item to rank, from 1) into scores in (0, 1], best first.

    The score is the sum over rankings of 1 / (k + rank), divided by the best there can be, so
    an item that every ranking puts first has 1. An item missing from a ranking gains nothing
    from it; equal scores are ordered by item.
    Example: [{"a": 1, "b": 2}, {"b": 1}] with k=60 -> {"b": (61/62 + 1) / 2, "a": 1/2}.

    Source: Cormack, Clarke & Buettcher, SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for item, rank in ranking.items():
            scores[item] = scores.get(item, 0.0) + (k + 1) / (k + rank) / len(rankings)
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
