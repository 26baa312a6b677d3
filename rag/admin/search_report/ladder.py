"""The figure of how ranks moved through the steps of a search, as inline SVG.

Places across are percentages, so that the figure stretches with the page; places down are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from rag.report.html import Html, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rag.admin.rank_steps import Step

COLOURS = 6  # of hits, in the page's style
ROW = 21  # pixels between two ranks
FLAT = 10  # ranks that stand equally far apart; those below it get ever closer
TICKS = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
BIG, SMALL = 8.5, 7.0  # pixels of a dot's radius


@dataclass(frozen=True, slots=True)
class Line:
    """A passage's way: its ranks by the steps' places. `mark` stands in its dots.

    `name` is written at its end, if it comes so far; `title` is told to who points at it.
    """

    mark: str
    kind: str
    name: str
    title: str
    ranks: Mapping[int, int]


def line(steps: Sequence[Step], id_: str, *, mark: str, kind: str, name: str, title: str) -> Line:
    """The way of a passage through the steps."""
    ranks = {at: step.ranks[id_] for at, step in enumerate(steps) if id_ in step.ranks}
    return Line(mark, kind, name, title, ranks)


def ladder(steps: Sequence[Step], lines: Sequence[Line], *, label: str) -> Html:
    """A column for each of the two steps or more, the first rank on top, and a line for each passage.

    What fell out ends with a cross. The first line is drawn last.
    """
    deepest = max((rank for one in lines for rank in one.ranks.values()), default=1)
    return tag(
        "svg",
        *_ranks(deepest),
        *(_column(step, _across(at, steps), _down(deepest)) for at, step in enumerate(steps)),
        *(_way(one, steps) for one in reversed(lines)),
        class_="ladder",
        height=f"{_down(deepest):.0f}",
        role="img",
        aria_label=label,
    )


def depth(rank: int) -> float:
    """How many rows down a rank stands; the first is 0.

    Example: 1 -> 0, 10 -> 9, 100 -> 32.03.
    """
    return rank - 1 if rank <= FLAT else FLAT * (1 + log(rank / FLAT)) - 1


def _down(rank: int) -> float:
    return ROW * depth(rank)


def _across(at: float, steps: Sequence[Step]) -> str:
    return f"{100 * at / (len(steps) - 1):.2f}%"


def _ranks(deepest: int) -> Iterator[Html]:
    for rank in TICKS:
        if rank <= deepest:
            y = f"{_down(rank):.1f}"
            yield tag("line", x1="0%", y1=y, x2="100%", y2=y, class_="grid")
            yield tag("text", str(rank), x="0%", y=y, dx=-16, dy="0.35em", text_anchor="end")


def _column(step: Step, x: str, bottom: float) -> Html:
    name = tag("text", step.name, text_anchor="middle", class_="step")
    head = tag("svg", name, x=x, y=-20)
    return tag("g", tag("line", x1=x, y1=0, x2=x, y2=f"{bottom:.1f}", class_="grid"), head)


def _way(one: Line, steps: Sequence[Step]) -> Html:
    places = sorted(one.ranks.items())
    radius = BIG if one.name else SMALL
    strokes = [_stroke(start, end, steps) for start, end in pairwise(places)]
    dots = [_dot(_across(at, steps), _down(rank), one.mark, radius) for at, rank in places]
    end = [_end(*places[-1], one.name, steps)] if places else []
    return tag("g", tag("title", one.title), *strokes, *end, *dots, class_=f"way {one.kind}")


def _stroke(start: tuple[int, int], end: tuple[int, int], steps: Sequence[Step]) -> Html:
    """From dot to dot; between lists, which are asked at once, only a hint."""
    (left, high), (right, low) = start, end
    kind = "hint" if steps[right].is_list else None
    y1, y2 = f"{_down(high):.1f}", f"{_down(low):.1f}"
    return tag("line", x1=_across(left, steps), y1=y1, x2=_across(right, steps), y2=y2, class_=kind)


def _dot(x: str, y: float, mark: str, radius: float) -> Html:
    circle = tag("circle", cx=x, cy=f"{y:.1f}", r=radius)
    return tag("g", circle, tag("text", mark, x=x, y=f"{y:.1f}", dy="0.35em", text_anchor="middle"))


def _end(at: int, rank: int, name: str, steps: Sequence[Step]) -> Html:
    """The name of what was left to the end, or else a cross halfway to the step where it was not."""
    y = f"{_down(rank):.1f}"
    if at == len(steps) - 1:
        return tag("text", name, x="100%", y=y, dx=16, dy="0.35em", class_="name")
    out = _across(at + 0.5, steps)
    fall = tag("line", x1=_across(at, steps), y1=y, x2=out, y2=y, class_="hint")
    return tag("g", fall, tag("text", "×", x=out, y=y, dy="0.33em", text_anchor="middle", class_="out"))
