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
from tests.evaluate.made_up import question, run

if TYPE_CHECKING:
    from pathlib import Path

    from rag.evaluate.compare_runs import EvaluationRun, Pair


def scored(scores: dict[str, float], *, metric: str = "nDCG@10", text: str = "?") -> EvaluationRun:
    """A run with these scores of its questions, by the question's id."""
    return run(0, [question(id_, {metric: score}, text=text) for id_, score in scores.items()])


def test_a_mean_is_over_the_questions_that_have_the_metric() -> None:
    questions = scored({"a": 0.2, "b": 0.6}).questions
    passages = scored({"c": 0.5}, metric="token_IoU@5").questions
    assert means([*questions, *passages]) == pytest.approx({"nDCG@10": 0.4, "token_IoU@5": 0.5})


def test_latency_is_the_median_and_what_one_in_twenty_exceeds() -> None:
    quantiles = latency([question("a", 0, latency_ms=ms) for ms in range(101)])
    assert (quantiles.p50, quantiles.p95) == (50, 95)


@pytest.mark.anyio
async def test_a_run_is_kept_as_it_is_with_an_id(tmp_path: Path) -> None:
    runs = [scored({"a": 0.1 + 0.2, "é": 1 / 3}), scored({"b": 1}, text="why \u2028 'not'?")]
    stored = await keep_runs(tmp_path, "default", runs)
    assert [run.id for run in stored] == [1, 2]
    assert [run.model_copy(update={"id": 0}) for run in stored] == runs
    assert [await load_run(tmp_path, "default", id_) for id_ in (1, 2)] == stored
    assert await load_summaries(tmp_path, "default") == {run.id: run.summary for run in stored}


def ids(pairs: list[Pair]) -> list[str]:
    return [pair.before.id for pair in pairs]


def test_questions_are_won_lost_or_alike_the_greatest_difference_first() -> None:
    before = scored({"same": 0.5, "up": 0.2, "far up": 0.0, "down": 0.6, "far down": 1.0})
    after = scored({"far up": 0.9, "up": 0.3, "far down": 0.1, "same": 0.5, "down": 0.5})
    comparison = compare(before, after, "nDCG@10")
    assert ids(comparison.won) == ["far up", "up"]
    assert ids(comparison.lost) == ["far down", "down"]
    assert len(comparison.pairs) == 5


def test_a_difference_is_positive_where_the_other_run_is_better() -> None:
    before, after = scored({"a": 0.2, "b": 0.4}), scored({"a": 0.7, "b": 0.5})
    comparison = compare(before, after, "nDCG@10")
    assert [comparison.before, comparison.after] == pytest.approx([0.3, 0.6])
    assert comparison.difference == pytest.approx(0.3)
    assert compare(after, before, "nDCG@10").difference == pytest.approx(-0.3)
    assert [pair.difference for pair in comparison.pairs] == pytest.approx([0.5, 0.1])


def test_a_difference_of_rounding_is_none() -> None:
    sum_of_tenths, three_tenths = scored({"a": 0.1 + 0.2}), scored({"a": 0.3})
    for comparison in (
        compare(sum_of_tenths, three_tenths, "nDCG@10"),
        compare(three_tenths, sum_of_tenths, "nDCG@10"),
    ):
        assert not comparison.won
        assert not comparison.lost
        assert comparison.p_value == 1


def test_only_questions_that_both_asked_in_the_same_words_count() -> None:
    before = scored({"a": 0.0, "b": 0.0, "reworded": 0.0})
    reworded = scored({"reworded": 1.0}, text="what else?")
    after = scored({"b": 1.0, "c": 1.0})
    after = after.model_copy(update={"questions": after.questions + reworded.questions})
    comparison = compare(before, after, "nDCG@10")
    assert ids(list(comparison.pairs)) == ["b"]
    assert (comparison.before, comparison.after) == (0, 1)


def test_only_questions_that_the_metric_was_measured_on_count() -> None:
    mixed = run(0, [question("a", 0), question("b", {"token_IoU@5": 0})])
    assert ids(list(compare(mixed, mixed, "token_IoU@5").pairs)) == ["b"]


def test_runs_without_a_question_in_common_can_t_be_compared() -> None:
    first = scored({"a": 0.0})
    for unlike in (scored({"b": 0.0}), scored({"a": 0.0}, text="else?")):
        with pytest.raises(InvalidRequestError, match="share no question"):
            compare(first, unlike, "nDCG@10")
    with pytest.raises(InvalidRequestError, match=r"metric token_IoU@5\. The first run has: nDCG@10\."):
        compare(first, first, "token_IoU@5")


SCORES = st.floats(0, 1)


def test_runs_that_score_alike_may_well_be_alike() -> None:
    assert randomisation_p([0.5, 1.0, 0.0], [0.5, 1.0, 0.0]) == 1


def test_a_difference_on_every_question_is_hardly_luck() -> None:
    assert randomisation_p([0.2] * 50, [0.7] * 50) == 1 / (SAMPLES + 1)


def test_gains_and_losses_of_one_size_may_well_be_luck() -> None:
    assert randomisation_p([0.0, 1.0] * 20, [1.0, 0.0] * 20) == 1


@given(pairs=st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20))
def test_the_p_value_is_the_same_whichever_run_comes_first(pairs: list[tuple[float, float]]) -> None:
    before, after = zip(*pairs, strict=True)
    p = randomisation_p(before, after)
    assert p == randomisation_p(after, before) == randomisation_p(before, after)
    assert 1 / (SAMPLES + 1) <= p <= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0.1, 0.9, 0.3, 0.5, 0.0, 0.6, 0.2, 0.8], [0.3, 0.7, 0.9, 0.6, 0.4, 0.6, 0.1, 1.0]),
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ([1.0, 0.5, 0.25], [0.5, 1.0, 0.0]),
    ],
)
def test_the_p_value_agrees_with_all_the_ways_in_which_the_signs_can_fall(
    before: list[float], after: list[float]
) -> None:
    differences = [mine - theirs for mine, theirs in zip(before, after, strict=True)]
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * difference for sign, difference in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    exact = sum(total >= observed - 1e-9 for total in sums) / len(sums)
    assert randomisation_p(before, after) == pytest.approx(
        exact, abs=0.015
    )  # three standard errors of 10,000
