"""The page that shows evaluation runs side by side: one self-contained HTML file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import sqrt
from typing import Any

from rag.errors import InvalidRequestError
from rag.evaluate.ask_questions import SHOWN, SIZES
from rag.evaluate.compare_runs import Comparison, EvaluationRun, Pair, QuestionResult, StoredHit, compare
from rag.report import (
    Html,
    collapsible,
    counted,
    decimals,
    joined,
    names_briefly,
    note,
    page,
    section,
    shortened,
    tag,
)

NOTHING = "–"
BEST = tag("span", "★", class_="mark", role="img", aria_label="best")


def run_name(run: EvaluationRun) -> str:
    """Example: "Run 3"."""
    return f"Run {run.id}"


def metrics_table(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison | None], metric: str
) -> Html:
    """A row per metric, a column per run. `comparisons` compare the later runs with the first."""
    names = dict.fromkeys(name for run in runs for name in run.summary.metrics)
    scores = {
        name: _score_cells(
            name, [run.summary.metrics.get(name) for run in runs], 4, max, chosen=name == metric
        )
        for name in names
        if name not in SIZES
    }
    sizes = {
        name: _row(name, [_number(run.summary.metrics.get(name), 0, best=None) for run in runs])
        for name in names
        if name in SIZES
    }
    waits = [run.summary.latency_ms for run in runs]
    times = [
        _score_cells("p50", [latency.p50 for latency in waits], 1, min),
        _score_cells("p95", [latency.p95 for latency in waits], 1, min),
    ]
    ranked = [row for name, row in scores.items() if name not in SHOWN]
    shown_rows = [row for name, row in (scores | sizes).items() if name in {*SHOWN, *SIZES}]
    groups = {"As ranked": ranked} | ({"As shown in the default reply": shown_rows} if shown_rows else {})
    groups["Latency, ms"] = times
    if comparisons:
        groups[f"{metric} against {run_name(runs[0])}"] = list(_against(comparisons))
    return _table(
        "Metrics", "metrics", runs, *(_group(title, rows, len(runs) + 1) for title, rows in groups.items())
    )


def settings_table(runs: Sequence[EvaluationRun]) -> Html:
    """A row per setting and version. A value that all runs share appears once."""
    made_with = [_made_with(run) for run in runs]
    names = dict.fromkeys(name for values in made_with for name in values)
    rows = [_setting(name, [values.get(name, NOTHING) for values in made_with]) for name in names]
    return _table("Settings and versions", "settings", runs, tag("tbody", *rows))


def _table(label: str, kind: str, runs: Iterable[EvaluationRun], *bodies: Html) -> Html:
    """A table that scrolls by itself if the page is too narrow."""
    columns = [
        tag(
            "th",
            run_name(run),
            tag("small", run.summary.profile),
            tag("small", run.summary.mode),
            scope="col",
        )
        for run in runs
    ]
    table = tag("table", tag("thead", tag("tr", tag("td"), *columns)), *bodies)
    return tag("div", table, class_=f"scroll {kind}", role="region", tabindex=0, aria_label=label)


def _group(title: str, rows: Iterable[Html], columns: int) -> Html:
    heading = tag("th", title, colspan=columns, scope="rowgroup")
    return tag("tbody", tag("tr", heading, class_="group"), *rows)


def _row(name: str, cells: Iterable[Html], *, kind: str | None = None) -> Html:
    return tag("tr", tag("th", name, scope="row"), *cells, class_=kind)


def _score_cells(
    name: str,
    values: Iterable[float | None],
    places: int,
    best_of: Callable[[Iterable[float]], float],
    *,
    chosen: bool = False,
) -> Html:
    """A row of numbers with the best marked, unless all look equal."""
    rounded = [None if value is None else round(value, places) for value in values]
    distinct = {value for value in rounded if value is not None}
    best = best_of(distinct) if len(distinct) > 1 else None
    cells = [_number(value, places, best=best) for value in rounded]
    return _row(name, cells, kind="chosen" if chosen else None)


def _number(value: float | None, places: int, *, best: float | None) -> Html:
    if value is None:
        return tag("td", NOTHING)
    number = f"{value:.{places}f}"
    return tag("td", BEST, number, class_="best") if value == best else tag("td", number)


def _against(comparisons: Sequence[Comparison | None]) -> Iterator[Html]:
    rows: dict[str, Callable[[Comparison], str]] = {
        "difference": lambda comparison: signed(comparison.difference),
        "p-value": lambda comparison: f"{comparison.p_value:.4f}",
        "questions won": lambda comparison: str(len(comparison.won)),
        "lost": lambda comparison: str(len(comparison.lost)),
        "alike": lambda comparison: str(comparison.alike),
    }
    for name, as_text in rows.items():
        cells = [tag("td", as_text(comparison) if comparison else NOTHING) for comparison in comparisons]
        yield _row(name, [tag("td", NOTHING), *cells])


def signed(value: float) -> str:
    """A difference to four places, with a real minus sign.

    Example: 0.05 -> "+0.0500", -0.05 -> "−0.0500", 0 -> "0.0000".
    """
    text = f"{value:+.4f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text


def _made_with(run: EvaluationRun) -> dict[str, str]:
    """Settings and versions by dotted names."""
    summary = run.summary
    started_at = summary.started_at.replace("T", " ")
    return {"started_at": started_at} | dict(_flat(summary.settings)) | dict(_flat(summary.versions))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{name}", text if value not in (None, "") else NOTHING


def _setting(name: str, values: Sequence[str]) -> Html:
    if len(set(values)) == 1:
        return _row(name, [tag("td", values[0], colspan=len(values))])
    return _row(name, [tag("td", value) for value in values], kind="differs")


NAMED = 20  # leaking questions listed per run


def report_page(runs: Sequence[EvaluationRun], metric: str) -> str:
    """An HTML page of runs side by side. `metric` compares the later ones with the first.

    It has no script and no links. Text of documents and questions is escaped.
    """
    first, *later = runs
    comparisons = [_comparison(first, run, metric) for run in later]
    compared = [(run, comparison) for run, comparison in zip(later, comparisons, strict=True) if comparison]
    sections = [
        section("Results", metrics_table(runs, comparisons, metric), *_notes(runs, comparisons, metric)),
        section("Question by question", *_scatters(first, compared)),
        section(
            "Where they differ",
            *(differing_questions(first, run, comparison) for run, comparison in compared),
        ),
        section("Where it is weakest", *([] if later else worst_questions(first, metric))),
        section("Settings and versions", collapsible("Show them", settings_table(runs))),
    ]
    return page(f"{_sets(runs)}: evaluation of retrieval", _header(runs), sections)


def _comparison(baseline: EvaluationRun, run: EvaluationRun, metric: str) -> Comparison | None:
    try:
        return compare(baseline, run, metric)
    except InvalidRequestError:  # no question in common; a note on the page reports it
        return None


def _sets(runs: Sequence[EvaluationRun]) -> str:
    return ", ".join(dict.fromkeys(run.summary.set for run in runs))


def _scatters(first: EvaluationRun, compared: Sequence[tuple[EvaluationRun, Comparison]]) -> Iterator[Html]:
    """Scatter plots of the other runs against the first, question by question."""
    if compared:
        metric = compared[0][1].metric
        yield note(
            f"{metric} of every question: {run_name(first)} on the x-axis, the other run on the y-axis. "
            "Above the line the other run is better. A dot's area grows with its number of questions."
        )
        yield tag("div", *(_scatter(first, run, comparison) for run, comparison in compared), class_="plots")


def _scatter(first: EvaluationRun, run: EvaluationRun, comparison: Comparison) -> Html:
    won, lost = len(comparison.won), len(comparison.lost)
    counts = {"won": won, "lost": lost, "alike": comparison.alike}
    shares = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    plot = scatter(
        comparison,
        across=run_name(first),
        up=run_name(run),
        label=f"{comparison.metric} of {counted(len(comparison.pairs), 'question')} "
        f"in {run_name(first)} and in {run_name(run)}: {shares}",
    )
    title = tag("strong", run_name(run)), f" {run.summary.profile}, {run.summary.mode}"
    keys = [tag("span", f"{count} {verdict}", class_=verdict) for verdict, count in counts.items()]
    return tag("figure", plot, tag("figcaption", *title, tag("span", *keys, class_="keys")))


def _header(runs: Sequence[EvaluationRun]) -> Html:
    kicker = tag("p", "Evaluation of retrieval", class_="kicker")
    return joined([kicker, tag("h1", _sets(runs)), *_question_counts(runs), *_leaks(runs)])


def _question_counts(runs: Sequence[EvaluationRun]) -> Iterator[Html]:
    """What was asked and when, once for runs that share it."""
    runs_by_text: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        summary = run.summary
        day = datetime.fromisoformat(summary.started_at)
        of = f" of {summary.set}" if _sets(runs) != summary.set else ""
        left_out = f" {summary.left_out} left out: no text or no judgement." if summary.left_out else ""
        sentence = f"{counted(summary.queries, 'question')}{of} asked on {day.day} {day:%B %Y}.{left_out}"
        runs_by_text[sentence].append(run_name(run))
    for sentence, names in runs_by_text.items():
        yield tag(
            "p", f"{', '.join(names)}: {sentence}" if len(runs_by_text) > 1 else sentence, class_="lede"
        )


def _leaks(runs: Sequence[EvaluationRun]) -> Iterator[Html]:
    for run in runs:
        if run.summary.leaks:
            hits = counted(run.summary.leaks, "hit")
            question_ids = names_briefly([result.id for result in run.questions if result.leaks], NAMED)
            loud = tag("strong", f"⚠ {run_name(run)} leaks:")
            yield tag("p", loud, f" {hits} that the asker may not see: {question_ids}.", class_="leaks")


def _notes(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison | None], metric: str
) -> Iterator[Html]:
    first, *later = runs
    if later:
        yield note(
            "★ marks the best value of a row. The p-value is the probability of a difference at least as "
            "large if both runs were equally good."
        )
    elif metric not in first.summary.metrics:
        yield note(f"No question has the metric {metric}.")
    if len({frozenset(result.id for result in run.questions) for run in runs}) > 1:
        yield note(
            "The runs did not ask the same questions. Each run's numbers are over its own questions; "
            f"the differences are over those that it shares with {run_name(first)}."
        )
    for run, comparison in zip(later, comparisons, strict=True):
        if not comparison:
            names = f"{run_name(run)} and {run_name(first)}"
            yield note(f"{names} share no question with the metric {metric}.")


# The questions on which the runs differ most, with the hits of each run.

SHOWN_QUESTIONS = 10  # questions won, and as many lost


def differing_questions(baseline: EvaluationRun, run: EvaluationRun, comparison: Comparison) -> Html:
    """The questions that the run answers better and worse than the baseline, largest difference first."""
    return tag(
        "section",
        tag("h3", f"{run_name(run)} against {run_name(baseline)}"),
        _pairs("Most won", (baseline, run), comparison.won, comparison.metric),
        _pairs("Most lost", (baseline, run), comparison.lost, comparison.metric),
    )


def _pairs(title: str, runs: tuple[EvaluationRun, EvaluationRun], pairs: Sequence[Pair], metric: str) -> Html:
    baseline, run = runs
    questions = [
        _question([(baseline, pair.before), (run, pair.after)], metric) for pair in pairs[:SHOWN_QUESTIONS]
    ]
    return _questions("h4", title, questions, len(pairs))


def worst_questions(run: EvaluationRun, metric: str) -> list[Html]:
    """The questions with the lowest scores, lowest first; nothing if all scores are 1."""
    flawed = [result for result in run.questions if result.metrics.get(metric, 1) < 1]
    flawed.sort(key=lambda result: result.metrics[metric])
    questions = [_question([(run, result)], metric) for result in flawed[:SHOWN_QUESTIONS]]
    return [_questions("h3", "Lowest first", questions, len(flawed))] if questions else []


def _questions(heading: str, title: str, questions: Sequence[Html], total: int) -> Html:
    count = f"{len(questions)} of {total}" if total > len(questions) else str(total)
    items = tag("ol", *(tag("li", question) for question in questions), class_="questions")
    return joined([tag(heading, title, " ", tag("small", count)), items if questions else note("None.")])


def _question(results: Sequence[tuple[EvaluationRun, QuestionResult]], metric: str) -> Html:
    """A question's scores, and folded below them the hits of each run."""
    _, question = results[0]
    scores = " → ".join(f"{result.metrics[metric]:.3f}" for _, result in results)
    summary = tag(
        "summary",
        tag("span", scores, class_="scores"),
        tag("span", question.text, class_="text", dir="auto"),
        tag("code", question.id, dir="auto"),
    )
    tables = [_hits_table(run, result) for run, result in results]
    return tag("details", summary, _expected_list(question), tag("div", *tables, class_="beside"))


def _expected_list(question: QuestionResult) -> Html:
    names = [
        tag("li", name, f" (grade {grade})" if grade != 1 else "", dir="auto")
        for name, grade in question.expected.items()
    ]
    return tag("div", tag("span", "Expected"), tag("ul", *names), class_="expected")


def _hits_table(run: EvaluationRun, result: QuestionResult) -> Html:
    nothing = "" if result.hits else ": no hits"
    caption = tag("caption", f"{run_name(run)}, {result.latency_ms:.1f} ms{nothing}")
    titles = ("#", "Document", "Score", "Similarity")
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))
    rows = [_hit(rank, hit, leaked=hit.id in result.leaks) for rank, hit in enumerate(result.hits, 1)]
    return tag("table", caption, head, tag("tbody", *rows), class_="hits")


def _hit(rank: int, hit: StoredHit, *, leaked: bool) -> Html:
    title = [tag("span", hit.title, dir="auto")]
    if hit.finds:
        title.append(tag("small", "✓ finds ", ", ".join(hit.finds), class_="finds", dir="auto"))
    if leaked:
        title.append(tag("strong", "leak", class_="leak"))
    cells = (str(rank), joined(title), f"{hit.score:.3f}", decimals(hit.similarity))
    return tag("tr", *(tag("td", cell) for cell in cells), class_="found" if hit.finds else None)


# The scatter plot of two runs, as inline SVG.
#
# Coordinates are percentages of width and height: the plot stretches with the page, while text and dots keep
# their size. Labels stand outside of it, in the margin that the page's style leaves.

INSET = 0.04  # of a scatter's width, so that dots at 0 and 1 are whole
SMALLEST_DOT, LARGEST_DOT = 3.0, 24.0  # radius in pixels; the largest is for all questions
COUNTED_DOT = 9.0  # radius at which a dot has room for its number
TOOLTIP_NAMED = 8  # questions in a dot's tooltip
TOOLTIP_WIDTH = 80  # characters of a question in the tooltip


def scatter(comparison: Comparison, *, across: str, up: str, label: str) -> Html:
    """A dot for each pair of scores, its area by its number of questions. Won is above the line."""
    places: dict[tuple[float, float], list[Pair]] = defaultdict(list)
    for pair in comparison.pairs:
        x, y = (result.metrics[comparison.metric] for result in (pair.before, pair.after))
        places[round(x, 6), round(y, 6)].append(pair)
    crowded_first = sorted(places.items(), key=lambda dot: -len(dot[1]))
    dots = [_dot(x, y, pairs, len(comparison.pairs)) for (x, y), pairs in crowded_first]
    names = [
        tag("text", f"{across} →", x="100%", y="100%", dy=36, text_anchor="end"),
        tag("text", f"↑ {up}", x="0%", y="0%", dy=-10),
    ]
    return tag("svg", *_square(), *names, *dots, class_="scatter", role="img", aria_label=label)


def _square() -> Iterator[Html]:
    low, high = _inset(0), _inset(1)
    for value in (0, 0.5, 1):
        at, over = _inset(value), _inset(1 - value)
        yield _line(at, low, at, high, "grid")
        yield _line(low, at, high, at, "grid")
        yield tag("text", f"{value:g}", x=_percent(at), y="100%", dy=16, text_anchor="middle")
        yield tag("text", f"{value:g}", x="0%", y=_percent(over), dx=-6, dy="0.35em", text_anchor="end")
    yield _line(low, high, high, low, "diagonal")


def _dot(x: float, y: float, pairs: Sequence[Pair], of: int) -> Html:
    radius = max(SMALLEST_DOT, LARGEST_DOT * sqrt(len(pairs) / of))
    kind = "alike" if x == y else "won" if y > x else "lost"
    position = {"x": _percent(_inset(x)), "y": _percent(_inset(1 - y))}
    lines = [
        f"{pair.before.id}  {shortened(pair.before.text, TOOLTIP_WIDTH)}" for pair in pairs[:TOOLTIP_NAMED]
    ]
    if len(pairs) > TOOLTIP_NAMED:
        lines.append(f"… and {len(pairs) - TOOLTIP_NAMED} more")
    title = tag("title", f"{counted(len(pairs), 'question')}: {x:.3f} → {y:.3f}\n", "\n".join(lines))
    circle = tag("circle", cx=position["x"], cy=position["y"], r=f"{radius:.1f}")
    number = tag("text", str(len(pairs)), **position, dy="0.35em", text_anchor="middle")
    return tag("g", title, circle, number if radius >= COUNTED_DOT else "", class_=kind)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return tag("line", class_=kind, **{name: _percent(value) for name, value in ends.items()})


def _inset(value: float) -> float:
    return INSET + (1 - 2 * INSET) * value


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
