"""Fusion of rankings, the tie-break by date, and scores that decay with the age of documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import hypot, sqrt
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Hit
from rag.config.profiles import MissingDate
from rag.corpus import Chunk, Source
from rag.errors import ConfigurationError
from rag.rank.editions import AskedTime
from rag.rank.fusion import (
    TIE,
    aged_score,
    best_scores,
    by_recency,
    calibrated_fusion,
    convex_combination,
    decay,
    distribution_based_fusion,
    newer_first,
    ranks,
    reciprocal_rank_fusion,
    settled_count,
    trust,
)

ITEMS = st.sampled_from("abcdefgh")
SCORED = st.lists(st.tuples(ITEMS, st.floats(-1, 1).map(lambda score: round(score, 1))))
LIST = st.dictionaries(ITEMS, st.floats(0.01, 1).map(lambda score: round(score, 2)))
LISTS = st.lists(LIST, min_size=1, max_size=3)
RANKINGS = st.lists(SCORED.map(ranks), min_size=1, max_size=4)
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
SOURCE = Source("s", "documents", "file:///s", "S", "text/plain", "d", 1, 1, EARLIEST)


def _hit(name: str, score: float, *, similarity: float = 0.5, day: int | None = None) -> Hit:
    date = None if day is None else EARLIEST + timedelta(days=day)
    return Hit(Chunk(name, name, 0, 0, 1, "x"), replace(SOURCE, id=name, date=date), score, similarity)


def _names(hits: list[Hit]) -> str:
    return "".join(hit.chunk.id for hit in hits)


DAYS = st.none() | st.integers(0, 5)
SCORES = st.floats(0, 1)
HITS = st.lists(st.tuples(SCORES, SCORES, DAYS), max_size=12).map(
    lambda rows: [
        _hit(f"{place}.", score, similarity=similarity, day=day)
        for place, (score, similarity, day) in enumerate(sorted(rows, key=lambda row: -row[0]))
    ]
)


def test_equal_scores_share_a_rank_and_the_next_rank_counts_them_all() -> None:
    assert ranks([("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)]) == {"a": 1, "b": 2, "c": 2, "d": 4}


@given(SCORED)
def test_an_item_that_comes_twice_counts_once_at_its_best(scored: list[tuple[str, float]]) -> None:
    best = best_scores(scored)
    assert best == {item: max(score for name, score in scored if name == item) for item, _ in scored}
    assert list(best.items()) == sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))


@given(SCORED)
def test_a_rank_is_one_more_than_the_number_of_better_items(scored: list[tuple[str, float]]) -> None:
    best = best_scores(scored)
    assert ranks(scored) == {
        item: 1 + sum(better > score for better in best.values()) for item, score in best.items()
    }


@given(SCORED, st.randoms())
def test_the_order_in_which_items_were_found_does_not_matter(
    scored: list[tuple[str, float]], random: Random
) -> None:
    shuffled = random.sample(scored, len(scored))
    assert list(ranks(shuffled).items()) == list(ranks(scored).items())


def test_fusion_gives_what_one_computes_by_hand() -> None:
    fused = reciprocal_rank_fusion([{"a": 1, "b": 2}, {"b": 1}], k=60)
    assert fused == {"b": pytest.approx((61 / 62 + 1) / 2), "a": pytest.approx(1 / 2)}
    assert list(fused) == ["b", "a"]


def test_of_items_with_equal_scores_the_smaller_id_comes_first() -> None:
    rankings = [{"b": 1, "c": 2}, {"c": 1, "b": 2}, {"a": 1}]
    assert list(reciprocal_rank_fusion(rankings, k=60)) == ["b", "c", "a"]
    assert list(reciprocal_rank_fusion([{"z": 1}, {"y": 1}], k=60)) == ["y", "z"]


@given(RANKINGS, st.permutations(range(4)))
def test_the_order_of_the_rankings_does_not_matter(rankings: list[dict[str, int]], order: list[int]) -> None:
    permuted = [rankings[place] for place in order if place < len(rankings)]
    assert reciprocal_rank_fusion(permuted, k=60) == pytest.approx(reciprocal_rank_fusion(rankings, k=60))


@given(RANKINGS)
def test_fused_scores_lie_in_the_unit_interval_and_fall(rankings: list[dict[str, int]]) -> None:
    scores = list(reciprocal_rank_fusion(rankings, k=60).values())
    assert all(0 < score <= 1 + 1e-12 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(RANKINGS, st.data())
def test_a_better_rank_never_lowers_a_score(rankings: list[dict[str, int]], data: st.DataObject) -> None:
    choices = [(at, item) for at, ranking in enumerate(rankings) for item in ranking]
    if not choices:
        return
    at, item = data.draw(st.sampled_from(choices))
    better = data.draw(st.integers(1, rankings[at][item]))
    raised = [*rankings[:at], rankings[at] | {item: better}, *rankings[at + 1 :]]
    before, after = (reciprocal_rank_fusion(lists, k=60)[item] for lists in (rankings, raised))
    assert after >= before


def test_first_everywhere_is_the_score_one_and_nothing_fused_is_nothing() -> None:
    assert reciprocal_rank_fusion([{"a": 1}, {"a": 1}, {"a": 1}], k=60)["a"] == pytest.approx(1)
    assert reciprocal_rank_fusion([{}, {}], k=60) == {}


def test_a_ranking_counts_as_much_as_its_weight() -> None:
    rankings = [{"a": 1, "b": 2}, {"b": 1, "c": 2}]
    assert list(reciprocal_rank_fusion(rankings, weights=[5, 1], k=1)) == ["a", "b", "c"]
    assert reciprocal_rank_fusion(rankings, weights=[0, 1], k=60) == {"b": 1, "c": pytest.approx(61 / 62)}
    alike = reciprocal_rank_fusion(rankings, weights=[3, 3], k=60)
    assert alike == pytest.approx(reciprocal_rank_fusion(rankings, k=60))


def test_a_distribution_s_scale_goes_from_three_deviations_below_its_mean_to_three_above() -> None:
    assert distribution_based_fusion([{"a": 4.0, "b": 2.0}]) == pytest.approx({"a": 4 / 6, "b": 2 / 6})
    fused = distribution_based_fusion([{"a": 4.0, "b": 2.0}, {"b": 7.0}])
    assert fused == pytest.approx({"b": (2 / 6 + 1 / 2) / 2, "a": 4 / 6 / 2})
    far = {str(number): 0.0 for number in range(99)} | {"out": 1.0}
    assert distribution_based_fusion([far])["out"] == 1
    assert distribution_based_fusion([{}, {}]) == {}


@given(LISTS, st.floats(0.1, 9), st.floats(-9, 9))
def test_a_distribution_s_unit_and_zero_do_not_matter(
    lists: list[dict[str, float]], unit: float, zero: float
) -> None:
    rescaled = [{item: score * unit + zero for item, score in scores.items()} for scores in lists]
    assert distribution_based_fusion(rescaled) == pytest.approx(distribution_based_fusion(lists), abs=1e-6)


@given(LIST, LIST)
def test_a_convex_combination_s_ends_are_its_lists(
    cosines: dict[str, float], sparse: dict[str, float]
) -> None:
    assert list(convex_combination(cosines, sparse, alpha=1)) == list(best_scores(cosines.items()))
    assert list(convex_combination(cosines, sparse, alpha=0)) == list(best_scores(sparse.items()))


def test_a_convex_combination_is_what_one_computes_by_hand() -> None:
    fused = convex_combination({"a": 0.6, "b": 0.4}, {"b": 8.0, "c": 4.0}, alpha=0.25)
    assert fused == pytest.approx({"b": 0.85, "c": 0.375, "a": 0.15})


def test_calibrated_scores_are_what_one_computes_by_hand() -> None:
    fused = calibrated_fusion({"a": 0.6, "b": -0.2}, {"b": 1.5, "a": 0.5}, words=2)
    weight = 1 - (1.5 - 0.5) / 3  # a, which the cosines like best, has so much less of the words than b
    expected = {"a": hypot(0.6 * weight, 0.5 / 3) / sqrt(2), "b": 0.5 / sqrt(2)}
    assert fused == pytest.approx(expected)
    assert calibrated_fusion({}, {"a": 99.0}, words=2) == pytest.approx({"a": 1 / sqrt(2)})
    assert calibrated_fusion({}, {"a": 3.0}, words=9) == pytest.approx({"a": 3 / 6 / sqrt(2)})
    for complete, maximum in ((0.0, 6), (0.5, 4.5), (1.0, 3)):
        alone = calibrated_fusion({}, {"a": 3.0, "b": 1.5}, words=9, complete=complete)
        assert alone == pytest.approx({"a": 3 / maximum / sqrt(2), "b": 1.5 / maximum / sqrt(2)})
    unrelated = calibrated_fusion({"a": -0.3, "b": -0.1, "c": -0.2}, {"d": 0.0}, words=2)
    assert [*unrelated] == ["b", "c", "a", "d"]


@given(LIST, LIST, st.integers(0, 12), st.floats(0, 9), st.floats(0, 1))
def test_a_calibrated_score_lies_in_the_unit_interval_and_keeps_the_order_of_a_list_alone(
    cosines: dict[str, float], sparse: dict[str, float], words: int, unlisted: float, complete: float
) -> None:
    scores = calibrated_fusion(cosines, sparse, words=words, unlisted=unlisted, complete=complete)
    assert all(0 <= score <= 1 + 1e-12 for score in scores.values())
    assert scores.keys() == cosines.keys() | sparse.keys()
    for alone, listed in ((cosines, sparse), (sparse, cosines)):
        order = [item for item in best_scores(alone.items()) if item not in listed]
        assert all(scores[better] >= scores[next_] for better, next_ in pairwise(order))


def test_meaning_counts_less_where_what_it_likes_best_lacks_the_words_that_another_passage_has() -> None:
    cosines, words = {"a": 0.7, "b": 0.4}, {"b": 0.8, "a": 0.3}
    assert trust(cosines, words, unlisted=0) == pytest.approx(0.5)
    assert trust({"a": 0.7, "b": 0.4}, {"b": 0.8}, unlisted=0) == pytest.approx(0.2)
    assert trust({"a": 0.7, "b": 0.4}, {"b": 0.8}, unlisted=0.6) == pytest.approx(0.8)  # a may have as much


def test_meaning_counts_in_full_where_words_find_nothing_or_like_the_same_passage() -> None:
    assert trust({"a": 0.2}, {}, unlisted=0) == 1
    assert trust({}, {"a": 0.9}, unlisted=0) == pytest.approx(1)
    assert trust({"a": 0.7, "b": 0.6}, {"a": 0.9, "b": 0.8}, unlisted=0) == 1


def test_passages_without_a_vector_say_nothing_about_meaning() -> None:
    assert trust({"a": 0.7}, {"other model's": 0.9, "a": 0.5}, unlisted=0) == 1


@given(LIST, LIST, st.floats(0, 1))
def test_trust_lies_in_the_unit_interval(
    cosines: dict[str, float], shares: dict[str, float], unlisted: float
) -> None:
    assert 0 <= trust(cosines, shares, unlisted=unlisted) <= 1


def test_of_equal_hits_the_newer_comes_first() -> None:
    assert (
        _names(newer_first([_hit("a", 0.51, day=1), _hit("b", 0.5, day=3), _hit("c", 0.495, day=2)])) == "bca"
    )


def test_undated_hits_keep_their_place_among_equals() -> None:
    hits = [_hit("a", 0.5), _hit("b", 0.5, day=1), _hit("c", 0.5), _hit("d", 0.5, day=9), _hit("e", 0.5)]
    assert _names(newer_first(hits)) == "adcbe"


def test_hits_of_one_date_keep_their_order() -> None:
    assert _names(newer_first([_hit(name, 0.5, day=4) for name in "cab"])) == "cab"


def test_a_clearly_better_hit_stays_before_a_newer_one() -> None:
    assert _names(newer_first([_hit("a", 0.55, day=1), _hit("b", 0.5, day=9)])) == "ab"


def test_hits_of_near_rank_but_unlike_evidence_are_no_equals() -> None:
    hits = [_hit("a", 0.99, similarity=0.8, day=1), _hit("b", 0.98, similarity=0.3, day=9)]
    assert _names(newer_first(hits)) == "ab"


def test_equality_is_measured_from_the_first_so_that_it_does_not_creep() -> None:
    hits = [_hit("a", 0.50, day=1), _hit("b", 0.485, day=2), _hit("c", 0.47, day=3)]
    assert _names(newer_first(hits)) == "bac"


@given(HITS)
def test_ordering_by_date_loses_no_hit_and_moves_none_past_a_better_one(hits: list[Hit]) -> None:
    ordered = newer_first(hits)
    assert Counter(hit.chunk.id for hit in ordered) == Counter(hit.chunk.id for hit in hits)
    for before, after in pairwise(ordered):
        assert after.score - before.score <= TIE + 1e-9


@given(HITS)
def test_ordering_by_date_leaves_undated_hits_in_place(hits: list[Hit]) -> None:
    ordered = newer_first(hits)
    assert [hit for hit in zip(range(12), ordered, strict=False) if hit[1].source.date is None] == [
        hit for hit in zip(range(12), hits, strict=False) if hit[1].source.date is None
    ]


def test_the_last_ties_are_settled_where_nothing_that_follows_can_belong_to_them() -> None:
    hits = [_hit("a", 0.9), _hit("b", 0.5), _hit("c", 0.49), _hit("d", 0.485)]
    assert [settled_count([], score) for score in (1.0, -1.0)] == [0, 0]
    assert [settled_count(hits, score) for score in (0.485, 0.481, 0.479, -1.0)] == [1, 1, 4, 4]


@given(HITS, st.integers(0, 12))
def test_what_is_settled_stays_whatever_follows(hits: list[Hit], count: int) -> None:
    hits = sorted(hits, key=lambda hit: -hit.score)
    following = max((hit.score for hit in hits[count:]), default=-1.0)
    first = settled_count(hits[:count], following)
    assert newer_first(hits)[:first] == newer_first(hits[:count])[:first]


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)

SOURCE_OF_NOW = Source("s", "documents", "file:///s", "S", "text/plain", "d", 1, 1, NOW)

SHARES = st.floats(0, 1)
AGES = st.floats(-1000, 100_000)
HALF_LIVES = st.floats(0.1, 10_000)


def _hit_of_age(name: str, score: float, age: float | None = None) -> Hit:
    date = None if age is None else NOW - timedelta(days=age)
    return Hit(Chunk(f"{name}/0", name, 0, 0, 1, "x"), replace(SOURCE_OF_NOW, id=name, date=date), score, 0.5)


def _ages(hits: Sequence[Hit]) -> list[float | None]:
    dates = [hit.source.date for hit in hits]
    return [None if date is None else AskedTime().days_away(date, NOW) for date in dates]


def _aged(*hits: Hit, weight: float = 0.5, missing: MissingDate = "ignore") -> list[tuple[str, Any]]:
    new = by_recency(hits, _ages(hits), half_life_days=30, weight=weight, missing=missing)
    return [(hit.source.id, pytest.approx(hit.score)) for hit in new]


@pytest.mark.parametrize(("age", "share"), [(0, 1), (30, 0.5), (60, 0.25), (15, 0.70710678), (-5, 1)])
def test_half_is_left_after_each_half_life(age: float, share: float) -> None:
    assert decay(age, 30) == pytest.approx(share)


def test_the_weighted_share_of_a_score_decays() -> None:
    assert aged_score(0.8, 0.25, weight=0.5) == pytest.approx(0.5)
    assert aged_score(0.8, 0.25, weight=1) == pytest.approx(0.2)
    assert aged_score(-0.2, 0.25, weight=1) == -0.2


def test_years_old_editions_stay_in_the_order_in_which_they_come() -> None:
    """Newest first, although an older one has the better score; a document of today still overtakes them."""
    hits = [(2023, 0.79), (2022, 0.80), (2021, 0.82)]
    old = [_hit_of_age(str(year), score, (2026 - year) * 365) for year, score in hits]
    ordered = _aged(*old, _hit_of_age("undated", 0.41), _hit_of_age("new", 0.6, 1))
    assert [name for name, _ in ordered] == ["new", "undated", "2023", "2022", "2021"]


def test_hits_come_in_the_order_of_their_aged_scores() -> None:
    assert _aged(_hit_of_age("old", 0.8, 60), _hit_of_age("new", 0.7, 0)) == [("new", 0.7), ("old", 0.5)]


def test_age_counts_hours_and_the_zone_of_a_date_does_not_matter() -> None:
    assert _aged(_hit_of_age("h", 1, 0.5), weight=1) == [("h", 0.5 ** (0.5 / 30))]
    zoned = _hit_of_age("z", 1, 30)
    here = replace(zoned, source=replace(zoned.source, date=datetime.fromisoformat("2026-01-01T17:30+05:30")))
    assert _aged(here) == _aged(zoned)


def test_a_date_to_come_counts_as_today() -> None:
    assert _aged(_hit_of_age("tomorrow", 0.5, -1)) == [("tomorrow", 0.5)]


def test_a_hit_without_a_date_keeps_its_score_if_that_is_ignored() -> None:
    assert _aged(_hit_of_age("none", 0.6), _hit_of_age("old", 0.8, 60)) == [("none", 0.6), ("old", 0.5)]


def test_a_hit_without_a_date_counts_as_infinitely_old_if_that_is_penalized() -> None:
    assert _aged(_hit_of_age("none", 0.6), _hit_of_age("old", 0.8, 60), missing="penalize") == [
        ("old", 0.5),
        ("none", 0.3),
    ]


def test_a_hit_without_a_date_is_named_if_that_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^The stage recency found no date for none/0"):
        _aged(_hit_of_age("dated", 0.8, 60), _hit_of_age("none", 0.6), missing="error")
    assert _aged(_hit_of_age("dated", 0.8, 60), missing="error") == [("dated", 0.5)]


def test_equals_keep_their_order() -> None:
    assert [name for name, _ in _aged(*(_hit_of_age(name, 0.5, 3) for name in "cab"))] == ["c", "a", "b"]


@given(AGES, AGES, HALF_LIVES)
def test_the_older_never_has_more_left(age: float, other_age: float, half_life: float) -> None:
    assert 0 <= decay(max(age, other_age), half_life) <= decay(min(age, other_age), half_life) <= 1


@given(st.floats(-1, 1), SHARES, SHARES)
def test_a_score_never_grows_and_loses_no_more_than_its_weight(
    score: float, share: float, weight: float
) -> None:
    new = aged_score(score, share, weight=weight)
    assert new <= score + 1e-12
    assert new >= score * (1 - weight) - 1e-12 or score < 0
    assert aged_score(score, share, weight=0) == score


@given(st.lists(st.tuples(st.floats(-1, 1), st.none() | st.floats(-9, 9999)), max_size=8), SHARES)
def test_every_hit_comes_once_and_best_first(rows: list[tuple[float, float | None]], weight: float) -> None:
    hits = [_hit_of_age(f"{place}", score, age) for place, (score, age) in enumerate(rows)]
    new = by_recency(hits, _ages(hits), half_life_days=30, weight=weight, missing="penalize")
    assert sorted(hit.chunk.id for hit in new) == sorted(hit.chunk.id for hit in hits)
    assert [hit.score for hit in new] == sorted((hit.score for hit in new), reverse=True)
