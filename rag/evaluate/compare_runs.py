"""Evaluation runs: their records in the data folder, and the comparison of two of them.

A comparison says which run is better, whether that may be chance, and on which questions they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag.answers import Mode
from rag.config.settings import Settings
from rag.errors import ConfigurationError, InvalidRequestError
from rag.home import Home
from rag.store.write.evaluation_runs import StoredRun, run_summaries, save_runs, stored_run

VERSIONED = ("refdesk", "lancedb", "onnxruntime")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredHit(_Record):
    """A hit of a question: its passage, scores, and the targets that it finds."""

    id: str
    title: str
    score: float
    similarity: float | None
    finds: tuple[str, ...]


class QuestionResult(_Record):
    """The result of a question. `expected` holds the targets' grades by name."""

    id: str
    text: str
    metrics: dict[str, float]
    latency_ms: float
    expected: dict[str, int]
    hits: tuple[StoredHit, ...]
    leaks: tuple[str, ...]


class Latency(_Record):
    """Milliseconds of a search, as the caller sees it."""

    p50: float
    p95: float


def versions() -> dict[str, str]:
    """The versions of the packages that can change the answers."""
    return {package: version(package) for package in VERSIONED}


class Summary(_Record):
    """A run's totals. `left_out` questions had no text or no judgement. Metrics are means."""

    set: str
    profile: str
    mode: Mode
    started_at: str
    queries: int
    left_out: int
    leaks: int
    metrics: dict[str, float]
    latency_ms: Latency
    settings: dict[str, Any]
    versions: dict[str, str]


class EvaluationRun(_Record):
    """A run with its questions; `id` is 0 until the run is stored."""

    id: int = 0
    summary: Summary
    questions: tuple[QuestionResult, ...]


_QUESTIONS = TypeAdapter(tuple[QuestionResult, ...])


async def keep_runs(data: Home, tenant: str, runs: Sequence[EvaluationRun]) -> list[EvaluationRun]:
    """Store runs in the data folder. Returns them with their ids.

    Raises:
        ConfigurationError: the data folder can't be written.
    """
    stored = [
        StoredRun(run.summary.model_dump_json(), _QUESTIONS.dump_json(run.questions).decode()) for run in runs
    ]
    ids = await save_runs(data, tenant, stored)
    return [run.model_copy(update={"id": id_}) for run, id_ in zip(runs, ids, strict=True)]


async def load_summaries(data: Home, tenant: str) -> dict[int, Summary | None]:
    """The summaries of the tenant's runs by id, oldest first; None if another version of refdesk made it."""
    stored = await run_summaries(data, tenant)
    return {id_: _summary(summary) for id_, summary in stored.items()}


def _summary(stored: str) -> Summary | None:
    try:
        return Summary.model_validate_json(stored)
    except ValidationError:
        return None


async def load_run(data: Home, tenant: str, id_: int) -> EvaluationRun:
    """The tenant's run with this id.

    Raises:
        NotFoundError: no run has this id.
        ConfigurationError: another version of refdesk made the run.
    """
    stored = await stored_run(data, tenant, id_)
    try:
        questions = _QUESTIONS.validate_json(stored.questions)
        return EvaluationRun(id=id_, summary=Summary.model_validate_json(stored.summary), questions=questions)
    except ValidationError as error:
        raise ConfigurationError(
            f"Run {id_} was made by another version of refdesk. Show it with that version."
        ) from error


def means(questions: Sequence[QuestionResult]) -> dict[str, float]:
    """The mean of each metric, over the questions that have it."""
    names = dict.fromkeys(name for question in questions for name in question.metrics)
    return {
        name: fmean(question.metrics[name] for question in questions if name in question.metrics)
        for name in names
    }


def latency(questions: Sequence[QuestionResult]) -> Latency:
    """The median and the 95th percentile of the questions' searches."""
    p50, p95 = np.percentile([question.latency_ms for question in questions], [50, 95])
    return Latency(p50=round(float(p50), 3), p95=round(float(p95), 3))


def relevant_settings(settings: Settings) -> dict[str, Any]:
    """The settings that can change answers, without the mode, which the run sets."""
    parts = {"embedder", "embedders", "search"}
    return settings.model_dump(mode="json", include=parts, exclude={"search": {"mode"}})


EQUAL_WITHIN = 1e-9  # scores are sums of fractions
SAMPLES = 10_000
SEED = 20_26
AT_ONCE = 1_000  # samples drawn together: 10,000 x 10,000 signs would take 800 MB


@dataclass(frozen=True, slots=True)
class Pair:
    """A question in both runs."""

    before: QuestionResult
    after: QuestionResult
    difference: float
    """The score after minus the score before."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run (`after`) against a baseline (`before`) by a metric, on the questions that both have.

    `p_value` is the probability of a difference at least as large if the runs were equally good.
    """

    metric: str
    before: float
    after: float
    p_value: float
    pairs: tuple[Pair, ...]

    @property
    def difference(self) -> float:
        """The run's mean minus the baseline's."""
        return self.after - self.before

    @property
    def alike(self) -> int:
        """How many questions have the same score in both runs."""
        return len(self.pairs) - len(self.won) - len(self.lost)

    @property
    def won(self) -> list[Pair]:
        """The questions that the run answers better than the baseline, largest gain first."""
        return sorted(
            (pair for pair in self.pairs if pair.difference > EQUAL_WITHIN), key=lambda pair: -pair.difference
        )

    @property
    def lost(self) -> list[Pair]:
        """The questions that the run answers worse than the baseline, largest loss first."""
        return sorted(
            (pair for pair in self.pairs if pair.difference < -EQUAL_WITHIN), key=lambda pair: pair.difference
        )


def compare(baseline: EvaluationRun, run: EvaluationRun, metric: str) -> Comparison:
    """Compare a run with a baseline; raises InvalidRequestError if they share no question with the metric."""
    theirs = {result.id: result for result in run.questions if metric in result.metrics}
    shared = [
        (mine, theirs[mine.id])
        for mine in baseline.questions
        if metric in mine.metrics and mine.id in theirs and theirs[mine.id].text == mine.text
    ]
    if not shared:
        metrics = ", ".join(baseline.summary.metrics)
        raise InvalidRequestError(
            f"The runs share no question with the metric {metric}. The first run has: {metrics}."
        )
    before, after = ([pair[at].metrics[metric] for pair in shared] for at in (0, 1))
    return Comparison(
        metric,
        fmean(before),
        fmean(after),
        randomisation_p(before, after),
        tuple(Pair(mine, their, their.metrics[metric] - mine.metrics[metric]) for mine, their in shared),
    )


def randomisation_p(scores: Sequence[float], other_scores: Sequence[float]) -> float:
    """The two-sided p-value of Fisher's paired randomisation test.

    Both sequences hold the scores of the same questions, in the same order. Under the null
    hypothesis each question's two scores are interchangeable, so each difference gets a random sign,
    `SAMPLES` times. The smallest p is 1 / (SAMPLES + 1). The seed is fixed: equal scores give equal p.

    Source: Smucker, Allan & Carterette, CIKM 2007, doi:10.1145/1321440.1321528; the added
    one is Phipson & Smyth's, SAGMB 9(1), 2010, doi:10.2202/1544-6115.1585.
    """
    differences = np.subtract(scores, other_scores)
    observed = abs(differences.sum())
    random = np.random.default_rng(SEED)
    as_large = 0
    for _ in range(SAMPLES // AT_ONCE):
        signs = random.choice([-1.0, 1.0], size=(AT_ONCE, len(differences)))
        sums = np.abs(signs @ differences)
        as_large += int(np.count_nonzero(sums >= observed - 1e-9))  # rounding makes equal sums differ
    return (as_large + 1) / (SAMPLES + 1)
