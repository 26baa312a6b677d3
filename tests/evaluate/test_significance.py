"""The randomisation test: what is luck and what isn't."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.evaluate.compare_runs import SAMPLES, randomisation_p

SCORES = st.floats(0, 1)


def test_runs_that_score_alike_may_well_be_alike() -> None:
    assert randomisation_p([0.5, 1.0, 0.0], [0.5, 1.0, 0.0]) == 1


def test_a_difference_on_every_question_is_hardly_luck() -> None:
    assert randomisation_p([0.2] * 50, [0.7] * 50) == 1 / (SAMPLES + 1)


def test_gains_and_losses_of_one_size_may_well_be_luck() -> None:
    assert randomisation_p([0.0, 1.0] * 20, [1.0, 0.0] * 20) == 1


@given(pairs=st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20))
def test_it_doesn_t_matter_which_run_comes_first(pairs: list[tuple[float, float]]) -> None:
    one, other = zip(*pairs, strict=True)
    p = randomisation_p(one, other)
    assert p == randomisation_p(other, one) == randomisation_p(one, other)
    assert 1 / (SAMPLES + 1) <= p <= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([0.1, 0.9, 0.3, 0.5, 0.0, 0.6, 0.2, 0.8], [0.3, 0.7, 0.9, 0.6, 0.4, 0.6, 0.1, 1.0]),
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ([1.0, 0.5, 0.25], [0.5, 1.0, 0.0]),
    ],
)
def test_it_agrees_with_all_the_ways_in_which_the_signs_can_fall(
    one: list[float], other: list[float]
) -> None:
    differences = [mine - theirs for mine, theirs in zip(one, other, strict=True)]
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * difference for sign, difference in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    exact = sum(one >= observed - 1e-9 for one in sums) / len(sums)
    assert randomisation_p(one, other) == pytest.approx(exact, abs=0.015)  # three standard errors of 10,000
