"""Charts as inline SVG.

Coordinates are percentages of width and height: a chart stretches with the page, while text and dots keep
their size. Labels stand outside the plot, in the margin that the page's style leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import floor, log10, sqrt

import numpy as np

from rag.evaluate.compare_runs import EQUAL_WITHIN, Comparison, Latency, Pair
from rag.report.text_and_html import Html, counted, shortened, tag

INSET = 0.04  # of a scatter's width, so that dots at 0 and 1 are whole
SMALLEST_DOT, LARGEST_DOT = 3.0, 24.0  # radius in pixels; the largest is for all questions
COUNTED_DOT = 9.0  # radius at which a dot has room for its number
NAMED = 8  # questions in a dot's tooltip
TEXT_WIDTH = 80  # characters of a question in the tooltip
BINS = 40  # of latencies
FASTEST = 0.01  # milliseconds; a logarithmic scale has no 0
TICKS = 8  # at most, on an axis of latencies
ROUND: tuple[list[float], ...] = (
    [1],
    [1, 3],
    [1, 2, 5],
    [1, 1.5, 2, 3, 5, 7],
    [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9],
    *([count / parts for count in range(parts, 10 * parts)] for parts in (2, 5, 10)),
)  # ticks from 1 to 10, finer and finer
GAP = 0.12  # share of a bar's place that stays empty
LINES = 3  # grid lines at most


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
    lines = [f"{pair.before.id}  {shortened(pair.before.text, TEXT_WIDTH)}" for pair in pairs[:NAMED]]
    if len(pairs) > NAMED:
        lines.append(f"… and {len(pairs) - NAMED} more")
    title = tag("title", f"{counted(len(pairs), 'question')}: {x:.3f} → {y:.3f}\n", "\n".join(lines))
    circle = tag("circle", cx=position["x"], cy=position["y"], r=f"{radius:.1f}")
    number = tag("text", str(len(pairs)), **position, dy="0.35em", text_anchor="middle")
    return tag("g", title, circle, number if radius >= COUNTED_DOT else "", class_=kind)


def score_histogram(scores: Sequence[float], *, label: str) -> Html:
    """A histogram of scores: bars for exactly 0 and exactly 1, and ten between them."""
    counts = binned(scores, [0.0, *np.linspace(EQUAL_WITHIN, 1 - EQUAL_WITHIN, 11), 1.0])
    titles = ["0", *(f"{at / 10:g} to {(at + 1) / 10:g}" for at in range(10)), "1"]
    width = 1 / len(counts)
    places = [at * width for at in range(len(counts) + 1)]
    between = [_tick((1 + 10 * value) * width, value) for value in (0.2, 0.4, 0.6, 0.8)]
    ticks = [_tick(width / 2, 0), *between, _tick(1 - width / 2, 1)]
    return _bars(counts, places, titles, *ticks, tallest=max(counts), label=label)


def latency_histogram(
    values: Sequence[float], edges: Sequence[float], *, tallest: int, latency: Latency, label: str
) -> Html:
    """A histogram of latencies between the given edges, with the median and the 95th percentile marked.

    `tallest` is the count at the chart's full height.
    """
    along = partial(_along, low=edges[0], high=edges[-1])
    titles = [f"{start:.2f} to {end:.2f} ms" for start, end in pairwise(edges)]
    ticks = [_tick(along(value), value) for value in ticks_between(edges[0], edges[-1])]
    marks = [*_mark(along(latency.p50), "p50", "end"), *_mark(along(latency.p95), "p95", "start")]
    counts, places = binned(values, edges), [along(edge) for edge in edges]
    return _bars(counts, places, titles, *ticks, *marks, tallest=tallest, label=label)


def latency_edges(values: Iterable[float]) -> list[float]:
    """The edges of bins that hold all values, each by the same factor above the previous one."""
    clipped = [max(value, FASTEST) for value in values]
    return [float(edge) for edge in np.geomspace(min(clipped) / 1.05, max(clipped) * 1.05, BINS + 1)]


def binned(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    """How many values lie in each bin; values beyond the edges count in the outermost bins.

    Example: [1, 2, 3, 9] between [1, 3, 5] -> [2, 2].
    """
    return [int(count) for count in np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]]


def ticks_between(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis, at most as many as fit on a phone.

    Example: 2 to 60 -> [2, 5, 10, 20, 50].
    """
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    rows = [[digit * 10.0**power for power in powers for digit in digits] for digits in ROUND]
    within = [[value for value in row if low <= value <= high] for row in rows]
    return next((row for row in reversed(within) if len(row) <= TICKS), within[0])


def _bars(
    counts: Sequence[int],
    places: Sequence[float],
    titles: Sequence[str],
    *over: Html,
    tallest: int,
    label: str,
) -> Html:
    """A bar for each count above 0, from its place to the next one."""
    bars = [
        _bar(start, end, count / tallest, f"{title}: {counted(count, 'question')}")
        for (start, end), count, title in zip(pairwise(places), counts, titles, strict=True)
        if count
    ]
    return tag("svg", *_levels(tallest), *bars, *over, class_="bars", role="img", aria_label=label)


def _bar(start: float, end: float, height: float, title: str) -> Html:
    return tag(
        "rect",
        tag("title", title),
        x=_percent(start),
        y=_percent(1 - height),
        width=_percent((1 - GAP) * (end - start)),
        height=_percent(height),
    )


def _levels(tallest: int) -> Iterator[Html]:
    """Horizontal grid lines at round numbers."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if tallest // step <= LINES)
    for count in range(0, tallest + 1, step):
        at = 1 - count / tallest
        yield _line(0, at, 1, at, "grid" if count else "base")
        yield tag("text", str(count), x="0%", y=_percent(at), dx=-6, dy="0.35em", text_anchor="end")


def _tick(at: float, value: float) -> Html:
    return tag("text", f"{value:g}", x=_percent(at), y="100%", dy=18, text_anchor="middle")


def _mark(at: float, text: str, anchor: str) -> Iterator[Html]:
    yield _line(at, 0, at, 1, "mark")
    dx = -4 if anchor == "end" else 4
    yield tag("text", text, x=_percent(at), y="0%", dx=dx, dy=-4, text_anchor=anchor, class_="mark")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return tag("line", class_=kind, **{name: _percent(value) for name, value in ends.items()})


def _along(value: float, *, low: float, high: float) -> float:
    """The position of a value on a logarithmic axis, from 0 to 1.

    Example: 10 between 1 and 100 -> 0.5.
    """
    return log10(max(value, low) / low) / log10(high / low)


def _inset(value: float) -> float:
    return INSET + (1 - 2 * INSET) * value


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
