"""Pairwise similarity, and the order of maximal marginal relevance."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.rank.diversity import Likeness, cosine, diversify, jaccard

TWINS = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
UNLIKE = np.eye(6, dtype=np.float32)
SHARES = st.floats(0, 1)
RELEVANCE = st.lists(SHARES, max_size=10)
SETS = st.lists(st.frozensets(st.sampled_from("abcdef")), max_size=8)


def _likeness(size: int, seed: int = 3) -> Likeness:
    vectors = np.random.default_rng(seed).standard_normal((size, 4)).astype(np.float32)
    return cosine(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _by_definition(relevance: list[float], likeness: Likeness, lambda_: float) -> list[int]:
    """Maximal marginal relevance as its authors put it down."""
    left, order = list(range(len(relevance))), list[int]()
    while left:

        def marginal(place: int) -> float:
            nearest = max((float(likeness[place, one]) for one in order), default=0.0)
            return lambda_ * relevance[place] - (1 - lambda_) * nearest

        order.append(max(left, key=marginal))
        left.remove(order[-1])
    return order


def test_what_repeats_a_better_item_comes_after_what_is_new() -> None:
    assert diversify([0.9, 0.8, 0.7], TWINS, lambda_=0.5) == [0, 2, 1]
    assert diversify([0.9, 0.8, 0.7], TWINS, lambda_=0.95) == [0, 1, 2]


def test_the_switch_comes_where_one_computes_it_by_hand() -> None:
    # 0.8 * x - (1 - x) against 0.3 * x: even at x = 1 / 1.5
    assert diversify([0.9, 0.8, 0.3], TWINS, lambda_=0.66) == [0, 2, 1]
    assert diversify([0.9, 0.8, 0.3], TWINS, lambda_=0.67) == [0, 1, 2]


def test_words_serve_as_well_as_vectors() -> None:
    likeness = jaccard([{"a", "b", "c"}, {"a", "b", "c"}, {"x"}])
    assert diversify([0.9, 0.8, 0.7], likeness, lambda_=0.5) == [0, 2, 1]


def test_an_opposite_adds_more_than_what_is_merely_unlike() -> None:
    likeness = cosine(np.array([[1, 0], [0, 1], [-1, 0]], np.float32))
    assert diversify([0.5, 0.5, 0.5], likeness, lambda_=0.5) == [0, 2, 1]


def test_what_is_over_the_cap_is_left_out() -> None:
    assert diversify([0.9, 0.8, 0.7, 0.6, 0.5], UNLIKE[:5, :5], lambda_=1, sources="aaaba", cap=2) == [
        0,
        1,
        3,
    ]


def test_nothing_gives_nothing() -> None:
    assert diversify([], jaccard([]), lambda_=0.5) == []


def test_items_that_decided_between_equals_keep_their_place() -> None:
    assert diversify([0.5, 0.51, 0.5], UNLIKE[:3, :3], lambda_=1) == [0, 1, 2]
    assert diversify([0.5, 0.51, 0.5], UNLIKE[:3, :3], lambda_=0.7) == [0, 1, 2]


@settings(deadline=None)
@given(RELEVANCE, st.integers(0, 99))
def test_relevance_alone_leaves_the_order_as_it_is(relevance: list[float], seed: int) -> None:
    assert diversify(relevance, _likeness(len(relevance), seed), lambda_=1) == list(range(len(relevance)))


@settings(deadline=None)
@given(RELEVANCE, st.sampled_from([0, 0.25, 0.5, 0.75]), st.integers(0, 99))
def test_the_order_is_that_of_the_definition(relevance: list[float], lambda_: float, seed: int) -> None:
    relevance = sorted((round(share, 2) for share in relevance), reverse=True)
    likeness = _likeness(len(relevance), seed).round(3)
    assert diversify(relevance, likeness, lambda_=lambda_) == _by_definition(relevance, likeness, lambda_)


@settings(deadline=None)
@given(RELEVANCE, SHARES, st.integers(1, 4), st.data())
def test_no_item_comes_twice_and_none_is_missing_but_over_the_cap(
    relevance: list[float], lambda_: float, cap: int, data: st.DataObject
) -> None:
    size = len(relevance)
    sources = data.draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size))
    likeness = _likeness(size)
    order = diversify(relevance, likeness, lambda_=lambda_, sources=sources, cap=cap)
    assert len(set(order)) == len(order)
    shown = Counter(sources[place] for place in order)
    assert shown == {source: min(cap, count) for source, count in Counter(sources).items()}
    assert order[:1] == [0][:size]


def test_what_is_given_stays_as_it_was() -> None:
    likeness, relevance = TWINS.copy(), [0.9, 0.8, 0.7]
    diversify(relevance, likeness, lambda_=0.5, sources="aab", cap=1)
    assert (likeness == TWINS).all()
    assert relevance == [0.9, 0.8, 0.7]


def test_sets_are_as_alike_as_one_computes_by_hand() -> None:
    likeness = jaccard([{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"d"}])
    expected = [[1, 1 / 3, 2 / 3, 0], [1 / 3, 1, 2 / 3, 0], [2 / 3, 2 / 3, 1, 0], [0, 0, 0, 1]]
    assert likeness == pytest.approx(np.array(expected))
    assert likeness.dtype == np.float32


def test_an_empty_set_is_like_nothing() -> None:
    assert jaccard([set(), set(), {1}]).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert jaccard([]).shape == (0, 0)


def test_unit_vectors_are_as_alike_as_their_cosine() -> None:
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float32)
    assert cosine(vectors) == pytest.approx(np.array([[1, 0.6, -1], [0.6, 1, -0.6], [-1, -0.6, 1]]))


@settings(deadline=None)
@given(SETS)
def test_each_pair_shares_what_its_intersection_says(sets: list[frozenset[str]]) -> None:
    likeness = jaccard(sets)
    for row, one in enumerate(sets):
        for column, other in enumerate(sets):
            expected = len(one & other) / len(one | other) if one | other else 0
            assert likeness[row, column] == pytest.approx(expected)
