"""What a run comes to, and that it is kept whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.evaluate.compare_runs import keep_runs, latency, load_run, load_summaries, means

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.evaluate.compare_runs import EvaluationRun


def test_a_mean_is_over_the_questions_that_have_the_metric(made_up_run: Callable[..., EvaluationRun]) -> None:
    questions = made_up_run({"a": 0.2, "b": 0.6}).questions
    passages = made_up_run({"c": 0.5}, metric="token_IoU@5").questions
    assert means([*questions, *passages]) == pytest.approx({"nDCG@10": 0.4, "token_IoU@5": 0.5})


def test_latency_is_the_median_and_what_one_in_twenty_exceeds(
    made_up_run: Callable[..., EvaluationRun],
) -> None:
    (one,) = made_up_run({"a": 0}).questions
    found = latency([one.model_copy(update={"latency_ms": ms}) for ms in range(101)])
    assert (found.p50, found.p95) == (50, 95)


@pytest.mark.anyio
async def test_a_run_is_kept_as_it_is_with_an_id(
    made_up_run: Callable[..., EvaluationRun], tmp_path: Path
) -> None:
    runs = [made_up_run({"a": 0.1 + 0.2, "é": 1 / 3}), made_up_run({"b": 1}, text="why \u2028 'not'?")]
    kept = await keep_runs(tmp_path, "default", runs)
    assert [run.id for run in kept] == [1, 2]
    assert [run.model_copy(update={"id": 0}) for run in kept] == runs
    assert [await load_run(tmp_path, "default", id_) for id_ in (1, 2)] == kept
    assert await load_summaries(tmp_path, "default") == {run.id: run.summary for run in kept}
