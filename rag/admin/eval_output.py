"""The output of `refdesk-admin eval` and its subcommands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rag.admin.console import echo, print_table
from rag.errors import ConfigurationError
from rag.evaluate.ask import FAITHFUL
from rag.evaluate.report import report_page
from rag.evaluate.shown import SHOWN, SIZES
from rag.report.tables import decimals, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rag.evaluate.compare import Comparison, Pair
    from rag.evaluate.runs import QuestionResult, Run, Summary

RANKED = ("nDCG@10", "MRR@10", "recall@10", "recall@100", "token_recall@5", "token_IoU@5")
COLUMNS = (*RANKED, *SHOWN, *SIZES, *FAITHFUL)
LISTED = 10  # questions won, and questions lost
TITLE_WIDTH = 60


def run_json(id_: int, summary: Summary) -> dict[str, Any]:
    """A run as `--json` prints it."""
    return {"id": id_} | summary.model_dump(mode="json")


def comparison_json(one: Run, other: Run, comparison: Comparison) -> dict[str, Any]:
    """A comparison as `--json` prints it."""
    return {
        "one": one.id,
        "other": other.id,
        "metric": comparison.metric,
        "difference": comparison.difference,
        "p_value": comparison.p_value,
        "won": [pair.one.id for pair in comparison.won],
        "lost": [pair.one.id for pair in comparison.lost],
    }


def print_runs(runs: Sequence[tuple[int, Summary]]) -> None:
    """Print runs as a table, with those main metrics that any of them has."""
    columns = [name for name in COLUMNS if any(name in one.metrics for _, one in runs)]
    rows = [
        (
            id_,
            one.set,
            one.profile,
            one.mode,
            one.queries,
            *(metric_text(name, one.metrics.get(name)) for name in columns),
            f"{one.latency_ms.p50:.1f}",
            f"{one.latency_ms.p95:.1f}",
        )
        for id_, one in runs
    ]
    print_table([("RUN", "SET", "PROFILE", "MODE", "QUERIES", *columns, "P50 MS", "P95 MS"), *rows])


def metric_text(name: str, value: float | None) -> str:
    """A metric as it is printed: a score to four places, a size to a whole number; empty if there is none."""
    if value is None:
        return ""
    return f"{value:.0f}" if name in SIZES else f"{value:.4f}"


def print_comparison(one: Run, other: Run, comparison: Comparison, *, listed: bool) -> None:
    """Print the other run against the one on a line; if `listed`, also the questions won and lost."""
    won, lost = comparison.won, comparison.lost
    echo(
        f"{_name(other)} against {_name(one)}: {comparison.metric} {comparison.difference:+.4f} "
        f"(p = {comparison.p_value:.4f}); "
        f"{len(won)} questions won, {len(lost)} lost, {comparison.alike} alike."
    )
    if listed:
        for what, pairs in (("Won", won), ("Lost", lost)):
            _print_pairs(what, pairs, comparison.metric)
        if one.id and (won or lost):
            example = shlex.quote((won or lost)[0].one.id)
            echo(f"Show one: refdesk-admin eval compare {one.id} {other.id} --question {example}")


def _name(run: Run) -> str:
    return f"Run {run.id} ({run.summary.profile}, {run.summary.mode})"


def _print_pairs(what: str, pairs: Sequence[Pair], metric: str) -> None:
    for pair in pairs[:LISTED]:
        before, after = pair.one.metrics[metric], pair.other.metrics[metric]
        echo(
            f"  {what:4}  {before:.3f} -> {after:.3f}  {pair.one.id}  {shortened(pair.one.text, TITLE_WIDTH)}"
        )
    more = len(pairs) - LISTED
    if more > 0:
        echo(f"  {what:4}  … and {more} more (--json has all)")


def print_question(run: Run, question: QuestionResult) -> None:
    """Print a question's hits in order, and which of them were expected."""
    echo(f"{_name(run)}: {question.id}  {shortened(question.text, TITLE_WIDTH)}", bold=True)
    grades = ", ".join(f"{name} ({grade})" for name, grade in question.expected.items())
    echo(f"  expected: {grades}")
    scores = ", ".join(
        f"{name} {value:.0f}" if name in SIZES else f"{name} {value:.3f}"
        for name, value in question.metrics.items()
    )
    echo(f"  {scores}, {question.latency_ms:.1f} ms")
    for rank, hit in enumerate(question.hits, 1):
        mark = f"  finds {', '.join(hit.finds)}" if hit.finds else ""
        leak = "  LEAK" if hit.id in question.leaks else ""
        scored = f"score {hit.score:.3f}  similarity {decimals(hit.similarity)}"
        echo(f"  {rank:2}. {scored}  [{hit.id}]  {shortened(hit.title, TITLE_WIDTH)}{mark}{leak}")


def write_report(path: Path, runs: Sequence[Run], metric: str) -> None:
    """Write the HTML report of these runs.

    Raises:
        ConfigurationError: the file can't be written.
    """
    try:
        path.write_text(report_page(runs, metric), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"Cannot write the report {path}: {error.strerror}.") from error
    echo(f"Wrote {path}.", err=True)
