"""The page that shows evaluation runs side by side: one HTML file that needs nothing else."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING

from rag.errors import InvalidRequestError
from rag.evaluate.compare import compare
from rag.evaluate.report.figures import latencies, scatters, score_bars
from rag.evaluate.report.questions import differing, worst
from rag.evaluate.report.tables import metrics_table, settings_table
from rag.evaluate.report.wording import counted, listed, run_name
from rag.report.html import Html, folded, joined, note, page, section, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.evaluate.compare import Comparison
    from rag.evaluate.runs import Run

NAMED = 20  # leaking questions of a run


def report_page(runs: Sequence[Run], metric: str) -> str:
    """An HTML page that shows runs side by side, and by a metric the later ones against the first.

    It has no script and refers to nothing; what documents and questions say in it is escaped.
    """
    first, *later = runs
    comparisons = [_compared(first, run, metric) for run in later]
    matches = [(run, one) for run, one in zip(later, comparisons, strict=True) if one]
    sections = [
        section("Results", metrics_table(runs, comparisons, metric), *_notes(runs, comparisons, metric)),
        section("Question by question", *(scatters(first, matches) if later else score_bars(first, metric))),
        section("Latency", *latencies(runs)),
        section("Where they differ", *(differing(first, run, one) for run, one in matches)),
        section("Where it is weakest", *([] if later else worst(first, metric))),
        section("Settings and versions", folded("Show them", settings_table(runs))),
    ]
    return page(f"{_sets(runs)}: evaluation of retrieval", _header(runs), sections)


def _compared(one: Run, other: Run, metric: str) -> Comparison | None:
    try:
        return compare(one, other, metric)
    except InvalidRequestError:  # no question in common: the page says so
        return None


def _sets(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(run.summary.set for run in runs))


def _header(runs: Sequence[Run]) -> Html:
    kicker = tag("p", "Evaluation of retrieval", class_="kicker")
    return joined([kicker, tag("h1", _sets(runs)), *_asked(runs), *_leaks(runs)])


def _asked(runs: Sequence[Run]) -> Iterator[Html]:
    """What was asked and when, said once for all runs of which it is true."""
    said: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        one = run.summary
        day = datetime.fromisoformat(one.started_at)
        of = f" of {one.set}" if _sets(runs) != one.set else ""
        left_out = f" {one.left_out} left out, without a question or a judgement." if one.left_out else ""
        asked = f"{counted(one.queries)}{of} asked on {day.day} {day:%B %Y}.{left_out}"
        said[asked].append(run_name(run))
    for asked, names in said.items():
        yield tag("p", f"{', '.join(names)}: {asked}" if len(said) > 1 else asked, class_="lede")


def _leaks(runs: Sequence[Run]) -> Iterator[Html]:
    for run in runs:
        if run.summary.leaks:
            hits = "1 hit was" if run.summary.leaks == 1 else f"{run.summary.leaks} hits were"
            asked = listed([one.id for one in run.questions if one.leaks], NAMED)
            loud = tag("strong", f"⚠ {run_name(run)} leaks:")
            yield tag("p", loud, f" {hits} not for who asked: {asked}.", class_="leaks")


def _notes(runs: Sequence[Run], comparisons: Sequence[Comparison | None], metric: str) -> Iterator[Html]:
    first, *later = runs
    if later:
        yield note(
            "★ is the best of its row. The p-value is how probable a difference at least as large would be "
            "if the two runs were alike."
        )
    elif metric not in first.summary.metrics:
        yield note(f"{metric} was measured on no question.")
    if len({frozenset(one.id for one in run.questions) for run in runs}) > 1:
        yield note(
            "The runs were not asked the same questions. Each run's numbers are over its own; "
            f"the differences are over the questions that it has in common with {run_name(first)}."
        )
    for run, one in zip(later, comparisons, strict=True):
        if not one:
            names = f"{run_name(run)} and {run_name(first)}"
            yield note(f"{names} have no question in common that {metric} was measured on.")
