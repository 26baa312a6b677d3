"""What a run comes to, two runs side by side, and which differences are luck."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import InvalidRequestError
from rag.evaluate.compare_runs import (
    SAMPLES,
    compare,
    keep_runs,
    latency,
    load_run,
    load_summaries,
    means,
    randomisation_p,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.evaluate.compare_runs import EvaluationRun, Pair

    MakeRun = Callable[..., EvaluationRun]


def test_a_mean_is_over_the_questions_that_have_the_metric(made_up_run: MakeRun) -> None:
    questions = made_up_run({"a": 0.2, "b": 0.6}).questions
    passages = made_up_run({"c": 0.5}, metric="token_IoU@5").questions
    assert means([*questions, *passages]) == pytest.approx({"nDCG@10": 0.4, "token_IoU@5": 0.5})


def test_latency_is_the_median_and_what_one_in_twenty_exceeds(made_up_run: MakeRun) -> None:
    (one,) = made_up_run({"a": 0}).questions
    found = latency([one.model_copy(update={"latency_ms": ms}) for ms in range(101)])
    assert (found.p50, found.p95) == (50, 95)


@pytest.mark.anyio
async def test_a_run_is_kept_as_it_is_with_an_id(made_up_run: MakeRun, tmp_path: Path) -> None:
    runs = [made_up_run({"a": 0.1 + 0.2, "é": 1 / 3}), made_up_run({"b": 1}, text="why \u2028 'not'?")]
    kept = await keep_runs(tmp_path, "default", runs)
    assert [run.id for run in kept] == [1, 2]
    assert [run.model_copy(update={"id": 0}) for run in kept] == runs
    assert [await load_run(tmp_path, "default", id_) for id_ in (1, 2)] == kept
    assert await load_summaries(tmp_path, "default") == {run.id: run.summary for run in kept}


def ids(pairs: list[Pair]) -> list[str]:
    return [pair.before.id for pair in pairs]


def test_questions_are_won_lost_or_alike_the_greatest_difference_first(made_up_run: MakeRun) -> None:
    before = made_up_run({"same": 0.5, "up": 0.2, "far up": 0.0, "down": 0.6, "far down": 1.0})
    after = made_up_run({"far up": 0.9, "up": 0.3, "far down": 0.1, "same": 0.5, "down": 0.5})
    found = compare(before, after, "nDCG@10")
    assert ids(found.won) == ["far up", "up"]
    assert ids(found.lost) == ["far down", "down"]
    assert len(found.pairs) == 5


def test_a_difference_is_positive_where_the_other_run_is_better(made_up_run: MakeRun) -> None:
    before, after = made_up_run({"a": 0.2, "b": 0.4}), made_up_run({"a": 0.7, "b": 0.5})
    found = compare(before, after, "nDCG@10")
    assert [found.before, found.after] == pytest.approx([0.3, 0.6])
    assert found.difference == pytest.approx(0.3)
    assert compare(after, before, "nDCG@10").difference == pytest.approx(-0.3)
    assert [pair.difference for pair in found.pairs] == pytest.approx([0.5, 0.1])


def test_a_difference_of_rounding_is_none(made_up_run: MakeRun) -> None:
    one, other = made_up_run({"a": 0.1 + 0.2}), made_up_run({"a": 0.3})
    for found in (compare(one, other, "nDCG@10"), compare(other, one, "nDCG@10")):
        assert not found.won
        assert not found.lost
        assert found.p_value == 1


def test_only_questions_that_both_asked_in_the_same_words_count(made_up_run: MakeRun) -> None:
    one = made_up_run({"a": 0.0, "b": 0.0, "reworded": 0.0})
    reworded = made_up_run({"reworded": 1.0}, text="what else?")
    other = made_up_run({"b": 1.0, "c": 1.0})
    other = other.model_copy(update={"questions": other.questions + reworded.questions})
    found = compare(one, other, "nDCG@10")
    assert ids(list(found.pairs)) == ["b"]
    assert (found.before, found.after) == (0, 1)


def test_only_questions_that_the_metric_was_measured_on_count(made_up_run: MakeRun) -> None:
    one, passages = made_up_run({"a": 0.0}), made_up_run({"b": 0.0}, metric="token_IoU@5")
    one = one.model_copy(update={"questions": one.questions + passages.questions})
    assert ids(list(compare(one, one, "token_IoU@5").pairs)) == ["b"]


def test_runs_without_a_question_in_common_can_t_be_compared(made_up_run: MakeRun) -> None:
    one = made_up_run({"a": 0.0})
    for other in (made_up_run({"b": 0.0}), made_up_run({"a": 0.0}, text="else?")):
        with pytest.raises(InvalidRequestError, match="share no question"):
            compare(one, other, "nDCG@10")
    with pytest.raises(InvalidRequestError, match=r"metric token_IoU@5\. The first run has: nDCG@10\."):
        compare(one, one, "token_IoU@5")


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
