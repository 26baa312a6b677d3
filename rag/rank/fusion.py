"""Fusion of several rankings into one, ties by date, copies and neighbours as one hit, and decay by age.

A cosine has a fixed scale. BM25 is a sum over the query's words: its maximum depends on the query's length
and on the corpus, so the two can't simply be added. Rank-based fusion (RRF) avoids the question, but discards
how sure each list is. Dividing BM25 by its best score makes a chance match look as sure as an exact one.
Calibrated fusion, the default, gives BM25 a scale that depends on the query alone (`WORD` and `WORDS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from math import hypot, sqrt
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NamedTuple

from rag.answers import Hit
from rag.errors import ConfigurationError
from rag.runtime import grouped

if TYPE_CHECKING:
    from rag.config.profiles import MissingDate

WORD = 1.5  # the score of one rare word that matches well, in units of the rarest word's weight
WORDS = 4  # matched rare words that are as strong as a cosine of 1; fewer if the query has fewer
DEVIATIONS = 3  # standard deviations from the mean to either end of the scale
TIE = 0.02  # scores are equal up to this difference
MAX_JOINED_CHARS = 3_200  # of one hit: four usual chunks, so that five such hits fit into a reply of 16,000
FURTHER = 0.7  # of the best score: the least for another hit of a source (rag/evaluate/measuring.md)
NEXT = 0.5  # the least for a chunk next to a hit: it takes room for its text, but no place


def best_scores(scored: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Each item once, with its best score, best first; ties are ordered by item.

    Example: [("b", 0.5), ("a", 0.5), ("b", 0.9)] -> {"b": 0.9, "a": 0.5}.
    """
    best: dict[str, float] = {}
    for item, score in scored:
        if item not in best or score > best[item]:
            best[item] = score
    return _best_first(best)


def ranks(scored: Iterable[tuple[str, float]]) -> dict[str, int]:
    """Each item's rank, 1 for the best; equal scores share a rank, and each item has its best rank only.

    Example: [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)] -> {"a": 1, "b": 2, "c": 2, "d": 4}.
    """
    rank_of: dict[str, int] = {}
    first_rank: dict[float, int] = {}
    for rank, (item, score) in enumerate(best_scores(scored).items(), 1):
        rank_of[item] = first_rank.setdefault(score, rank)
    return rank_of


def reciprocal_rank_fusion(
    rankings: Sequence[Mapping[str, int]], *, weights: Sequence[float] = (), k: int
) -> dict[str, float]:
    """Fuse rankings (item to rank, from 1) into scores in (0, 1], best first.

    The score is the sum over rankings of weight / (k + rank), divided by the maximum, so an item that every
    ranking puts first has the score 1. A ranking adds nothing to items that it lacks. Ties are ordered by
    item. Without weights all rankings weigh the same; a ranking of weight 0 is ignored.
    Example: [{"a": 1, "b": 2}, {"b": 1}] with k=60 -> {"b": (61/62 + 1) / 2, "a": 1/2}.

    Source: Cormack, Clarke & Buettcher, SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    weights = weights or [1.0] * len(rankings)
    whole, scores = sum(weights), dict[str, float]()  # divided by it, so that the best possible score is 1
    for ranking, weight in zip(rankings, weights, strict=True):
        for item, rank in ranking.items() if weight else ():
            scores[item] = scores.get(item, 0.0) + weight / whole * (k + 1) / (k + rank)
    return _best_first(scores)


def distribution_based_fusion(lists: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Fuse lists (item to score) into scores in [0, 1], best first: the mean of the normalized scores.

    Each list is scaled so that three standard deviations below its mean become 0 and three above become 1. An
    item has 0 in a list that lacks it, and 1/2 in a list whose scores are all equal.

    Source: Mazzeschi, Distribution-Based Score Fusion, 2023; Qdrant's `dbsf`.
    """
    scores: dict[str, float] = {}
    for scored in lists:
        for item, score in _normal_scores(scored).items():
            scores[item] = scores.get(item, 0.0) + score / len(lists)
    return _best_first(scores)


def _normal_scores(scores: Mapping[str, float]) -> dict[str, float]:
    if not scores:
        return {}
    mean, span = fmean(scores.values()), 2 * DEVIATIONS * pstdev(scores.values())
    if not span:
        return dict.fromkeys(scores, 0.5)
    return {item: min(1.0, max(0.0, 0.5 + (score - mean) / span)) for item, score in scores.items()}


def convex_combination(
    cosines: Mapping[str, float], sparse: Mapping[str, float], *, alpha: float
) -> dict[str, float]:
    """Fuse into alpha * cosine + (1 - alpha) * sparse / best sparse, best first; in [0, 1].

    Alpha 0 gives the ranking of `sparse`, alpha 1 the ranking of `cosines`. Negative cosines and missing
    scores count as 0.

    Source: Bruch, Gai & Ingber, TOIS 2023, doi:10.1145/3596512, without normalizing the cosine.
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
    cosines: Mapping[str, float],
    sparse: Mapping[str, float],
    *,
    words: int,
    unlisted: float = 0.0,
    complete: float = 0.0,
) -> dict[str, float]:
    """Fuse cosines and calibrated BM25 scores into their quadratic mean, in [0, 1], best first.

    `sparse` is in units of the weight of the rarest word possible. One well-matched rare word scores about
    `WORD` units, so the maximum of the scale is `WORD` times the number of the query's `words` (without stop
    words). At most `WORDS` words count, because a good passage needn't contain every word of a long query. A
    higher score in the list becomes the maximum. So does the best score, as far as its passage is `complete`
    (from 0 to 1): a passage with all words, even common ones, can't be matched better. An item that `sparse`
    lacks may score up to `unlisted`.

    The quadratic mean lets one strong signal win over two weak ones, so a list that found nothing relevant
    doesn't drown the other. Missing scores and negative cosines count as 0. Cosines are multiplied by their
    `trust`. Items with the same score are in the order of their cosines, which can all be negative.
    Example: {"a": 0.6}, {"b": 1.0}, words=3 -> {"a": 0.6 / sqrt(2), "b": 1 / 4.5 / sqrt(2)}.
    """
    best = max(sparse.values(), default=0.0)
    # By the number of words, not by the best score, which a chance match may have.
    maximum = max(WORD * min(WORDS, max(words, 1)), best)
    maximum -= complete * (maximum - best) if best else 0.0
    shares = {item: score / maximum for item, score in sparse.items()}
    weight = trust(cosines, shares, unlisted=unlisted / maximum)
    fused = {
        item: hypot(weight * max(cosines.get(item, 0.0), 0.0), shares.get(item, 0.0)) / sqrt(2)
        for item in cosines.keys() | sparse.keys()
    }
    # Negative cosines count as 0, so whole rankings can tie: then their own order says more than ids.
    return dict(sorted(fused.items(), key=lambda pair: (-pair[1], -cosines.get(pair[0], -1.0), pair[0])))


def trust(cosines: Mapping[str, float], shares: Mapping[str, float], *, unlisted: float) -> float:
    """The factor for cosines, from 0 to 1, by how well words support them.

    A model that is weak on a subject gives high cosines to the wrong passages. Then its best passage has few
    of the words of the best passage by words: 1 is reduced by the difference of these two in `shares` (scores
    by words in [0, 1]). Only items with a cosine are compared. If `shares` lacks the one with the highest
    cosine, its share is `unlisted`.
    Example: {"a": 0.7, "b": 0.4}, {"b": 0.8, "a": 0.3} -> 0.5.
    """
    best = max((share for item, share in shares.items() if item in cosines), default=0.0)
    nearest = min(cosines, key=lambda item: (-cosines[item], item), default="")
    return 1 - max(0.0, best - shares.get(nearest, unlisted))


def _best_first(scores: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def newer_first(hits: Sequence[Hit]) -> list[Hit]:
    """`hits` (best first) with newer ones first among ties; hits without a date keep their position.

    Hits tie if both their score and their similarity are within `TIE` of the first of them. Similarity
    counts, too, because scores computed from ranks are always close together.
    """
    starts = [*_ties(hits), len(hits)]
    return [hit for start, end in pairwise(starts) for hit in _by_date(hits[start:end])]


def settled_count(hits: Sequence[Hit], following: float) -> int:
    """The number of first `hits` whose places are final, if the next hits have scores up to `following`.

    The last group of ties is not final while a further hit may belong to it.
    """
    first = max(_ties(hits), default=0)
    is_complete = bool(hits) and hits[first].score - following > TIE
    return len(hits) if is_complete else first


def _ties(hits: Sequence[Hit]) -> list[int]:
    """The indexes at which groups of ties begin; a hit without a tie is a group."""
    starts: list[int] = []
    for index, hit in enumerate(hits):
        # Compared with the first of the group: chained from neighbour to neighbour, ties would drift apart.
        if not starts or not _are_tied(hits[starts[-1]], hit):
            starts.append(index)
    return starts


def _are_tied(first: Hit, second: Hit) -> bool:
    if first.similarity is None or second.similarity is None:
        return first.similarity == second.similarity and abs(first.score - second.score) <= TIE
    return abs(first.score - second.score) <= TIE and abs(first.similarity - second.similarity) <= TIE


def _by_date(ties: Sequence[Hit]) -> list[Hit]:
    dated = [hit for hit in ties if hit.source.date is not None]
    newest_first = iter(sorted(dated, key=lambda hit: hit.source.date, reverse=True))  # type: ignore[arg-type, return-value]  # all have one
    return [hit if hit.source.date is None else next(newest_first) for hit in ties]


def copies_as_one(hits: Sequence[Hit]) -> list[Hit]:
    """The hits (best first); passages that documents share word for word become one hit with `copies`.

    It takes the place of the first of them. Of equally good ones, the hit is of the document that was shown
    first, so that passages of a copied document stay together. Equal passages of one document stay apart.
    Example: a/0, b/0 and b/1, a/1 of a document and its copy -> a/0 and a/1, with the copies b/0 and b/1.
    """
    # The shown texts with single spaces, and the headers of the tables that they continue.
    wordings = [(" ".join(hit.text.split()), hit.chunk.header) for hit in hits]
    equals = grouped(zip(wordings, hits, strict=True))
    places: dict[tuple[str, str], int] = {}  # of the documents that are shown
    done: set[str] = set()
    distinct: list[Hit] = []
    for wording, hit in zip(wordings, hits, strict=True):
        if hit.chunk.id in done:
            continue
        alike = [equal for equal in equals[wording] if equal.chunk.id not in done]
        ties = [equal for equal in alike if (equal.score, equal.similarity) == (hit.score, hit.similarity)]
        chosen = min(ties, key=lambda tie: places.get(_document(tie), len(places)))
        copies = tuple(equal for equal in alike if _document(equal) != _document(chosen))
        done |= {chosen.chunk.id, *(copy.chunk.id for copy in copies)}
        places.setdefault(_document(chosen), len(places))
        distinct.append(replace(chosen, copies=copies) if copies else chosen)
    return distinct


def _document(hit: Hit) -> tuple[str, str]:
    return hit.source.collection, hit.source.id


class HitGroups(NamedTuple):
    """Hits in groups, best first, each with its best hit first; and the number of hits looked at."""

    groups: list[list[Hit]]
    looked_at: int


def neighbours(hits: Sequence[Hit], limit: int, *, selective: bool) -> HitGroups:
    """Up to `limit` groups of `hits` (best first): chunks that follow one another in a source are a group.

    A group has at most `MAX_JOINED_CHARS`; only hits that show exactly their chunk take part, and of a list
    of tickets or articles, chunks of one. It stops at the hit that would begin one group too many. If
    `selective`, a further hit of a source needs `NEXT` of the best score beside a group, and `FURTHER`
    elsewhere; others are dropped, to make room for other sources. Scores must be positive for that.
    Example: limit 2 and chunks a/4, b/0, a/5, a/9, c/1, c/2 -> [[a/4, a/5], [b/0]], if selective and a/9 is
    poor; a/9 would be the third group, and c/1 is it otherwise.
    """
    groups: list[list[Hit]] = []
    of_chunk: dict[tuple[str, str, tuple[str, ...], int], list[Hit]] = {}
    seen_sources: set[tuple[str, str]] = set()
    least = max(hits[0].score, 0.0) if hits and selective else 0.0
    for looked_at, hit in enumerate(hits):
        source, seq = (hit.source.collection, hit.source.id), hit.chunk.seq
        record = _record(hit)
        touched = [of_chunk[key] for at in (seq - 1, seq + 1) if (key := (*source, record, at)) in of_chunk]
        joins = _fitting_groups(touched, hit) if not hit.excerpts else []
        if source in seen_sources and least and hit.score < least * (NEXT if touched else FURTHER):
            continue
        if not joins and len(groups) == limit:
            return HitGroups(groups, looked_at)
        group = _join_groups(hit, sorted(joins, key=groups.index), groups)
        seen_sources |= {source, *((copy.source.collection, copy.source.id) for copy in hit.copies)}
        if not hit.excerpts:
            of_chunk.update({(*source, record, member.chunk.seq): group for member in group})
    return HitGroups(groups, len(hits))


_OF_RECORDS = frozenset(
    {
        *("text/csv", "text/tab-separated-values", "application/json", "application/jsonl"),
        *("application/rss+xml", "application/atom+xml", "application/enex+xml"),
    }
)
"""The types of documents whose outermost sections don't go on in each other.

They are tickets, articles, entries of a feed, days of a chat, and keys of settings in JSON.
"""


def _record(hit: Hit) -> tuple[str, ...]:
    """The heading of the record that a chunk is in: one ticket doesn't answer for another."""
    return hit.chunk.section[:1] if hit.source.mime_type in _OF_RECORDS else ()


def _fitting_groups(touched: Sequence[list[Hit]], hit: Hit) -> Sequence[list[Hit]]:
    """The groups that a hit joins: both that it touches, or one of them if both would be too long."""
    for chosen in (touched, touched[:1], touched[1:]):
        chunks = [hit.chunk, *(member.chunk for group in chosen for member in group)]
        if max(chunk.end for chunk in chunks) - min(chunk.start for chunk in chunks) <= MAX_JOINED_CHARS:
            return chosen
    return []


def _join_groups(hit: Hit, joins: Sequence[list[Hit]], groups: list[list[Hit]]) -> list[Hit]:
    """The group that the hit is in now: a new one of `groups`, or the first that it joins, with others."""
    if not joins:
        groups.append([hit])
        return groups[-1]
    first, *absorbed = joins
    for group in absorbed:
        first += group
        groups.remove(group)
    first.append(hit)
    return first


DAY = timedelta(days=1)


def decay(age_days: float, half_life_days: float) -> float:
    """The factor, in (0, 1], after `age_days` with a half-life of `half_life_days` (> 0); 1 for future dates.

    Example: 60 days at a half-life of 30 -> 0.25.
    """
    return float(0.5 ** (max(0.0, age_days) / half_life_days))


def aged_score(score: float, factor: float, *, weight: float) -> float:
    """`score` after its share `weight` (in [0, 1]) is multiplied by `factor`; negative scores don't change.

    Example: 0.8 with factor 0.25 and weight 0.5 -> 0.8 * 0.5 + 0.8 * 0.5 * 0.25 = 0.5.
    """
    return score if score < 0 else score * (1 - weight) + score * weight * factor


def by_recency(
    hits: Sequence[Hit],
    ages: Sequence[float | None],
    *,
    half_life_days: float,
    weight: float,
    missing: MissingDate,
) -> list[Hit]:
    """`hits` with their scores aged by these `ages` in days, best first; ties stay in the given order.

    A hit overtakes no earlier hit that is as new. Editions are in order already, whatever their scores, and
    the scores of documents that are years old hardly differ once they are aged.

    Raises:
        ConfigurationError: a hit has no age, and `missing` is "error".
    """
    factors = [_factor(hit, age, half_life_days, missing) for hit, age in zip(hits, ages, strict=True)]
    scores: list[float] = []
    for hit, age, factor in zip(hits, ages, factors, strict=True):
        newer = (score for score, before in zip(scores, ages, strict=False) if _is_as_new(before, age))
        scores.append(min([aged_score(hit.score, factor, weight=weight), *newer]))
    new = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    return sorted(new, key=lambda hit: -hit.score)


def _is_as_new(age: float | None, than: float | None) -> bool:
    return age is not None and than is not None and age <= than


def _factor(hit: Hit, age_days: float | None, half_life_days: float, missing: MissingDate) -> float:
    if age_days is not None:
        return decay(age_days, half_life_days)
    match missing:
        case "ignore":
            return 1.0
        case "penalize":
            return 0.0
        case "error":
            raise ConfigurationError(
                f"The stage recency found no date for {hit.chunk.id}. Give its source a date, "
                'or set missing = "ignore" or "penalize" for the stage.'
            )
