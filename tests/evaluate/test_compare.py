"""Two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import InvalidRequestError
from rag.evaluate.compare_runs import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.evaluate.compare_runs import EvaluationRun, Pair

    MakeRun = Callable[..., EvaluationRun]


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
