"""How alike items are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.rank.diversity import cosine, jaccard

SETS = st.lists(st.frozensets(st.sampled_from("abcdef")), max_size=8)


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
