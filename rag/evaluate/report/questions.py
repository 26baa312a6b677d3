"""The report's questions: those on which runs differ most, with the hits of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.evaluate.report.tables import run_name
from rag.report.html import Html, joined, note, tag
from rag.report.tables import decimals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.evaluate.compare import Comparison, Pair
    from rag.evaluate.runs import Finding, QuestionResult, Run

SHOWN = 10  # questions won, and as many lost


def differing(one: Run, other: Run, comparison: Comparison) -> Html:
    """The questions that the other run answers better and worse than the one, largest difference first."""
    return tag(
        "section",
        tag("h3", f"{run_name(other)} against {run_name(one)}"),
        _pairs("Most won", (one, other), comparison.won, comparison.metric),
        _pairs("Most lost", (one, other), comparison.lost, comparison.metric),
    )


def _pairs(title: str, runs: tuple[Run, Run], pairs: Sequence[Pair], metric: str) -> Html:
    one, other = runs
    shown = [_question([(one, pair.one), (other, pair.other)], metric) for pair in pairs[:SHOWN]]
    return _questions("h4", title, shown, len(pairs))


def worst(run: Run, metric: str) -> list[Html]:
    """The questions with the lowest scores, lowest first; nothing if all scores are 1."""
    flawed = [one for one in run.questions if one.metrics.get(metric, 1) < 1]
    flawed.sort(key=lambda one: one.metrics[metric])
    shown = [_question([(run, one)], metric) for one in flawed[:SHOWN]]
    return [_questions("h3", "Lowest first", shown, len(flawed))] if shown else []


def _questions(heading: str, title: str, shown: Sequence[Html], of: int) -> Html:
    many = f"{len(shown)} of {of}" if of > len(shown) else str(of)
    items = tag("ol", *(tag("li", one) for one in shown), class_="questions")
    return joined([tag(heading, title, " ", tag("small", many)), items if shown else note("None.")])


def _question(results: Sequence[tuple[Run, QuestionResult]], metric: str) -> Html:
    """A question's scores, and folded below them the hits of each run."""
    _, asked = results[0]
    scores = " → ".join(f"{one.metrics[metric]:.3f}" for _, one in results)
    summary = tag(
        "summary",
        tag("span", scores, class_="scores"),
        tag("span", asked.text, class_="text", dir="auto"),
        tag("code", asked.id, dir="auto"),
    )
    found = [_found(run, one) for run, one in results]
    return tag("details", summary, _expected(asked), tag("div", *found, class_="beside"))


def _expected(asked: QuestionResult) -> Html:
    names = [
        tag("li", name, f" (grade {grade})" if grade != 1 else "", dir="auto")
        for name, grade in asked.expected.items()
    ]
    return tag("div", tag("span", "Expected"), tag("ul", *names), class_="expected")


def _found(run: Run, result: QuestionResult) -> Html:
    nothing = "" if result.hits else ": no hits"
    caption = tag("caption", f"{run_name(run)}, {result.latency_ms:.1f} ms{nothing}")
    titles = ("#", "Document", "Score", "Similarity")
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    rows = [_hit(rank, hit, leaked=hit.id in result.leaks) for rank, hit in enumerate(result.hits, 1)]
    return tag("table", caption, head, tag("tbody", *rows), class_="hits")


def _hit(rank: int, hit: Finding, *, leaked: bool) -> Html:
    title = [tag("span", hit.title, dir="auto")]
    if hit.finds:
        title.append(tag("small", "✓ finds ", ", ".join(hit.finds), class_="finds", dir="auto"))
    if leaked:
        title.append(tag("strong", "leak", class_="leak"))
    cells = (str(rank), joined(title), f"{hit.score:.3f}", decimals(hit.similarity))
    return tag("tr", *(tag("td", cell) for cell in cells), class_="found" if hit.finds else None)
