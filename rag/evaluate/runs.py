"""The records of a run, and keeping them in the data folder."""

from __future__ import annotations

from importlib.metadata import version
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rag.answers import Mode
from rag.errors import ConfigurationError
from rag.store.write.evaluation_runs import StoredRun, run_summaries, save_runs, stored_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.config.settings import Settings

VERSIONED = ("refdesk", "lancedb", "onnxruntime")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Finding(_Record):
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
    hits: tuple[Finding, ...]
    leaks: tuple[str, ...]


class Latency(_Record):
    """Milliseconds of a search, as the caller sees it."""

    p50: float
    p95: float


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


class Run(_Record):
    """A run with its questions; `id` is 0 until the run is kept."""

    id: int = 0
    summary: Summary
    questions: tuple[QuestionResult, ...]


_QUESTIONS = TypeAdapter(tuple[QuestionResult, ...])


async def keep(data: Path, tenant: str, runs: Sequence[Run]) -> list[Run]:
    """Keep runs in the data folder. Returns them with their ids.

    Raises:
        ConfigurationError: the data folder can't be written.
    """
    stored = [
        StoredRun(run.summary.model_dump_json(), _QUESTIONS.dump_json(run.questions).decode()) for run in runs
    ]
    ids = await save_runs(data, tenant, stored)
    return [run.model_copy(update={"id": id_}) for run, id_ in zip(runs, ids, strict=True)]


async def kept_summaries(data: Path, tenant: str) -> dict[int, Summary | None]:
    """The summaries of the tenant's runs by id, oldest first; None if another version of refdesk made it."""
    stored = await run_summaries(data, tenant)
    return {id_: _summary(summary) for id_, summary in stored.items()}


def _summary(stored: str) -> Summary | None:
    try:
        return Summary.model_validate_json(stored)
    except ValidationError:
        return None


async def kept_run(data: Path, tenant: str, id_: int) -> Run:
    """The tenant's run of this id.

    Raises:
        NotFoundError: there is none.
        ConfigurationError: another version of refdesk made it.
    """
    stored = await stored_run(data, tenant, id_)
    try:
        questions = _QUESTIONS.validate_json(stored.questions)
        return Run(id=id_, summary=Summary.model_validate_json(stored.summary), questions=questions)
    except ValidationError as error:
        raise ConfigurationError(
            f"Run {id_} was made by another version of refdesk. Show it with that version."
        ) from error


def means(questions: Sequence[QuestionResult]) -> dict[str, float]:
    """The mean of each metric, over the questions that have it."""
    names = dict.fromkeys(name for one in questions for name in one.metrics)
    return {name: fmean(one.metrics[name] for one in questions if name in one.metrics) for name in names}


def latency(questions: Sequence[QuestionResult]) -> Latency:
    """The median and the 95th percentile of the questions' searches."""
    p50, p95 = np.percentile([one.latency_ms for one in questions], [50, 95])
    return Latency(p50=round(float(p50), 3), p95=round(float(p95), 3))


def in_force(settings: Settings) -> dict[str, Any]:
    """The settings that can change the answers, except for the mode, which the run sets."""
    parts = {"embedder", "embedders", "chunking", "search"}
    return settings.model_dump(mode="json", include=parts, exclude={"search": {"mode"}})


def versions() -> dict[str, str]:
    """The versions of the packages that can change the answers."""
    return {package: version(package) for package in VERSIONED}
