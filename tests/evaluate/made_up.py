"""Runs written down as their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rag.evaluate.compare_runs import EvaluationRun, QuestionResult, StoredHit, Summary, latency, means

if TYPE_CHECKING:
    from collections.abc import Sequence


def question(id_: str, score: float | Mapping[str, float], **more: Any) -> QuestionResult:  # noqa: ANN401 of a record
    """A question with one score, or several by the names of their metrics."""
    usual = {"text": f"What of {id_}?", "latency_ms": 10.0, "expected": {"a": 1}, "leaks": ()}
    hit = StoredHit(id="chunk", title="Sundials", score=0.9, similarity=0.8, finds=("a",))
    metrics = {"nDCG@10": score} if isinstance(score, float | int) else dict(score)
    return QuestionResult.model_validate(usual | {"id": id_, "metrics": metrics, "hits": (hit,)} | more)


def run(id_: int, results: Sequence[QuestionResult] | Mapping[str, float], **more: Any) -> EvaluationRun:  # noqa: ANN401 of a record
    """A run of questions, or of scores by the questions' ids, with means that are true."""
    if isinstance(results, Mapping):
        results = [question(name, score) for name, score in results.items()]
    usual = {
        "set": "clocks",
        "profile": "default",
        "mode": "hybrid",
        "started_at": "2026-01-02T03:04:05+00:00",
        "queries": len(results),
        "left_out": 0,
        "leaks": sum(len(result.leaks) for result in results),
        "metrics": means(results),
        "latency_ms": latency(results),
        "settings": {},
        "versions": {},
    }
    return EvaluationRun(id=id_, summary=Summary.model_validate(usual | more), questions=tuple(results))
