"""The report's tables: the results of runs side by side, and their settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rag.evaluate.shown import SHOWN, SIZES
from rag.report.html import Html, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rag.evaluate.compare import Comparison
    from rag.evaluate.runs import Run

NOTHING = "–"
BEST = tag("span", "★", class_="mark", role="img", aria_label="best")


def run_name(run: Run) -> str:
    """Example: "Run 3"."""
    return f"Run {run.id}"


def metrics_table(runs: Sequence[Run], comparisons: Sequence[Comparison | None], metric: str) -> Html:
    """A row per metric, a column per run. `comparisons` compare the later runs with the first."""
    names = dict.fromkeys(name for run in runs for name in run.summary.metrics)
    scores = {
        name: _scores(name, [run.summary.metrics.get(name) for run in runs], 4, max, chosen=name == metric)
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
        _scores("p50", [one.p50 for one in waits], 1, min),
        _scores("p95", [one.p95 for one in waits], 1, min),
    ]
    ranked = [row for name, row in scores.items() if name not in SHOWN]
    shown = [row for name, row in (scores | sizes).items() if name in {*SHOWN, *SIZES}]
    groups = {"As ranked": ranked} | ({"As shown in the default reply": shown} if shown else {})
    groups["Latency, ms"] = times
    if comparisons:
        groups[f"{metric} against {run_name(runs[0])}"] = list(_against(comparisons))
    return _table(
        "Metrics", "metrics", runs, *(_group(title, rows, len(runs) + 1) for title, rows in groups.items())
    )


def settings_table(runs: Sequence[Run]) -> Html:
    """A row per setting and version. A value that all runs share appears once."""
    made_with = [_made_with(run) for run in runs]
    names = dict.fromkeys(name for one in made_with for name in one)
    rows = [_setting(name, [one.get(name, NOTHING) for one in made_with]) for name in names]
    return _table("Settings and versions", "settings", runs, tag("tbody", *rows))


def _table(label: str, kind: str, runs: Iterable[Run], *bodies: Html) -> Html:
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


def _scores(
    name: str,
    values: Iterable[float | None],
    places: int,
    best_of: Callable[[Iterable[float]], float],
    *,
    chosen: bool = False,
) -> Html:
    """A row of numbers with the best marked, unless all look equal."""
    shown = [None if value is None else round(value, places) for value in values]
    known = {value for value in shown if value is not None}
    best = best_of(known) if len(known) > 1 else None
    cells = [_number(value, places, best=best) for value in shown]
    return _row(name, cells, kind="chosen" if chosen else None)


def _number(value: float | None, places: int, *, best: float | None) -> Html:
    if value is None:
        return tag("td", NOTHING)
    number = f"{value:.{places}f}"
    return tag("td", BEST, number, class_="best") if value == best else tag("td", number)


def _against(comparisons: Sequence[Comparison | None]) -> Iterator[Html]:
    rows: dict[str, Callable[[Comparison], str]] = {
        "difference": lambda one: signed(one.difference),
        "p-value": lambda one: f"{one.p_value:.4f}",
        "questions won": lambda one: str(len(one.won)),
        "lost": lambda one: str(len(one.lost)),
        "alike": lambda one: str(one.alike),
    }
    for name, shown in rows.items():
        cells = [tag("td", shown(one) if one else NOTHING) for one in comparisons]
        yield _row(name, [tag("td", NOTHING), *cells])


def signed(value: float) -> str:
    """A difference to four places, with a real minus sign.

    Example: 0.05 -> "+0.0500", -0.05 -> "−0.0500", 0 -> "0.0000".
    """
    shown = f"{value:+.4f}".replace("-", "−")
    return shown[1:] if float(shown[1:]) == 0 else shown


def _made_with(run: Run) -> dict[str, str]:
    """Settings and versions by dotted names."""
    summary = run.summary
    started_at = summary.started_at.replace("T", " ")
    return {"started_at": started_at} | dict(_flat(summary.settings)) | dict(_flat(summary.versions))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{name}", shown if value not in (None, "") else NOTHING


def _setting(name: str, values: Sequence[str]) -> Html:
    if len(set(values)) == 1:
        return _row(name, [tag("td", values[0], colspan=len(values))])
    return _row(name, [tag("td", value) for value in values], kind="differs")
