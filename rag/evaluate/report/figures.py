"""The report's figures: scores question by question, and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.evaluate.report.charts import binned, distribution, latency_edges, scatter, waits
from rag.evaluate.report.wording import counted, run_name
from rag.report.html import Html, joined, note, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.evaluate.compare import Comparison
    from rag.evaluate.runs import Run


def scatters(first: Run, matches: Sequence[tuple[Run, Comparison]]) -> Iterator[Html]:
    """Other runs against the first, question by question."""
    if matches:
        metric = matches[0][1].metric
        yield note(
            f"{metric} of every question: of {run_name(first)} across, of the other run up. Above the line "
            "the other run is better. The more questions share a dot's two scores, the larger it is."
        )
        yield tag("div", *(_scatter(first, run, one) for run, one in matches), class_="plots")


def _scatter(first: Run, run: Run, comparison: Comparison) -> Html:
    won, lost = len(comparison.won), len(comparison.lost)
    counts = {"won": won, "lost": lost, "alike": comparison.alike}
    said = ", ".join(f"{count} {what}" for what, count in counts.items())
    plot = scatter(
        comparison,
        across=run_name(first),
        up=run_name(run),
        label=f"{comparison.metric} of {counted(len(comparison.pairs))} in {run_name(first)} and in "
        f"{run_name(run)}: {said}",
    )
    keys = [tag("span", f"{count} {what}", class_=what) for what, count in counts.items()]
    return tag("figure", plot, tag("figcaption", _titled(run), tag("span", *keys, class_="keys")))


def _titled(run: Run) -> Html:
    return joined([tag("strong", run_name(run)), f" {run.summary.profile}, {run.summary.mode}"])


def score_bars(run: Run, metric: str) -> Iterator[Html]:
    """How a run's scores are spread."""
    scores = [one.metrics[metric] for one in run.questions if metric in one.metrics]
    if scores:
        label = f"How many of {counted(len(scores))} have which {metric}"
        caption = tag("figcaption", f"{label}. Exactly 0 and exactly 1 have bars of their own.")
        yield tag("figure", caption, distribution(scores, label=label))


def latencies(runs: Sequence[Run]) -> Iterator[Html]:
    """How long each run's searches took, all on the same scales."""
    yield note("How many questions took how many milliseconds, on a logarithmic scale.")
    times = [[one.latency_ms for one in run.questions] for run in runs]
    edges = latency_edges(one for values in times for one in values)
    tallest = max(max(binned(values, edges)) for values in times)
    for run, values in zip(runs, times, strict=True):
        took = run.summary.latency_ms
        marks = f"p50 {took.p50:.1f} ms, p95 {took.p95:.1f} ms"
        label = f"Latency of {counted(len(values))} in {run_name(run)}: {marks}"
        chart = waits(values, edges, tallest=tallest, latency=took, label=label)
        yield tag("figure", tag("figcaption", _titled(run), tag("span", marks, class_="keys")), chart)
