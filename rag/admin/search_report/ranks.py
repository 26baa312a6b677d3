"""The report's figure of how ranks changed step by step: a bump chart as inline SVG.

Horizontal positions are percentages, so that the chart stretches with the page; vertical ones are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from string import ascii_lowercase
from typing import TYPE_CHECKING

from rag.admin.search_trace import changing_steps, heading, rank_changes, ranks_text
from rag.report.html import Html, note, tag
from rag.report.tables import shortened
from rag.search.reply.cited import page_of
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rag.admin.search_trace import RankStep
    from rag.answers import Hit, Step
    from rag.search.explain.why_not import SourceTrace

DRAWN = 10  # hits with a line
NEARLY = 4  # other passages with a line
NAME_CHARS = 26  # beside a line
COLOURS = 6  # for hits, in style.css
ROW = 21  # pixels between two ranks
FLAT = 10  # ranks at equal distances; deeper ranks get closer and closer
TICKS = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
BIG, SMALL = 8.5, 7.0  # pixels of a dot's radius


@dataclass(frozen=True, slots=True)
class Line:
    """A passage's line: its ranks by the index of the step. `mark` labels its dots.

    `name` labels the end of the line if the passage is a hit; `title` is the tooltip.
    """

    mark: str
    kind: str
    name: str
    title: str
    ranks: Mapping[int, int]


def rank_figure(
    hits: Sequence[Hit], stages: Sequence[Step], steps: Sequence[RankStep], fates: Sequence[SourceTrace]
) -> Iterator[Html]:
    """The figure, and the passages that dropped out. Nothing if fewer than two steps ranked anything."""
    asked = {fate.chunk_id: fate for fate in fates if fate.chunk_id and fate.step is not None}
    shown = {chunk.id for hit in hits for chunk in hit.shown_chunks}
    nearly = _nearly(steps, shown | asked.keys())
    texts = {one.id: label(one.text) for stage in stages for one in stage.preview}
    texts |= {id_: label(fate.source.title) for id_, fate in asked.items()}
    marks = dict.fromkeys(asked, "?") | dict(zip(nearly, ascii_lowercase, strict=False))
    drawn = {hit.chunk.id for hit in hits[:DRAWN]} | marks.keys()
    steps = changing_steps([_only(step, drawn) for step in steps])
    lines = [
        *(_line(steps, rank, hit) for rank, hit in enumerate(hits[:DRAWN], 1)),
        *(_fallen(steps, id_, mark, texts.get(id_, id_)) for id_, mark in marks.items()),
    ]
    if len(steps) > 1 and lines:
        yield note(_explained(hits))
        yield _chart(steps, lines, label=f"Ranks at {', '.join(step.name for step in steps)}")
        items = [_item(steps, id_, mark, texts.get(id_, "")) for id_, mark in marks.items()]
        yield tag("ul", *items, class_="nearly") if items else Html()


def _only(step: RankStep, drawn: set[str]) -> RankStep:
    return replace(step, ranks={id_: rank for id_, rank in step.ranks.items() if id_ in drawn})


def _explained(hits: Sequence[Hit]) -> str:
    which = f"the first {DRAWN} of {len(hits)} hits" if len(hits) > DRAWN else "the hits"
    return (
        f"Rank 1 is on top. Numbers are {which} in their final order, letters the best passages that are not "
        "hits. A dotted line joins a passage's ranks in both lists, which run concurrently; a cross marks "
        "where a passage dropped out. Steps that changed none of these ranks are not drawn."
    )


def _nearly(steps: Sequence[RankStep], known: set[str]) -> list[str]:
    """The other passages that stages ranked highest, best first."""
    best: dict[str, int] = {}
    for step in steps:
        for id_, rank in step.ranks.items():
            if not step.is_list and id_ not in known:
                best[id_] = min(rank, best.get(id_, rank))
    return sorted(best, key=lambda id_: (best[id_], id_))[:NEARLY]


def _line(steps: Sequence[RankStep], rank: int, hit: Hit) -> Line:
    title = f"{rank}. {heading(hit)}: {_ranks(steps, hit.chunk.id)}"
    at = hit.chunk.page
    page, kind = f", {page_of(hit.source, at, at)}" if at else "", f"way-{(rank - 1) % COLOURS + 1}"
    innermost = hit.chunk.section[-1] if hit.chunk.section else hit.source.title
    name = shortened(label(innermost), NAME_CHARS) + page
    return _path(steps, hit.chunk.id, mark=str(rank), kind=kind, name=name, title=title)


def _fallen(steps: Sequence[RankStep], id_: str, mark: str, text: str) -> Line:
    return _path(steps, id_, mark=mark, kind=_kind(mark), name="", title=f"{text}: {_ranks(steps, id_)}")


def _kind(mark: str) -> str:
    return "asked" if mark == "?" else "fallen"


def _ranks(steps: Sequence[RankStep], id_: str) -> str:
    """The ranks of a passage at all its steps."""
    return ranks_text([(step.name, step.ranks[id_]) for step in steps if id_ in step.ranks])


def _item(steps: Sequence[RankStep], id_: str, mark: str, text: str) -> Html:
    badge = tag("span", mark, class_=f"badge {_kind(mark)}")
    passage = tag("span", text, dir="auto") if text else Html()
    ranks = tag("small", tag("code", f"[{id_}]"), f" {ranks_text(rank_changes(steps, id_))}")
    return tag("li", badge, tag("div", passage, ranks))


def _path(steps: Sequence[RankStep], id_: str, *, mark: str, kind: str, name: str, title: str) -> Line:
    """The line of a passage through the steps."""
    ranks = {at: step.ranks[id_] for at, step in enumerate(steps) if id_ in step.ranks}
    return Line(mark, kind, name, title, ranks)


def _chart(steps: Sequence[RankStep], lines: Sequence[Line], *, label: str) -> Html:
    """A column per step (two or more), rank 1 on top, and a line per passage.

    A passage that drops out ends with a cross. The first line is drawn last, on top of the others.
    """
    deepest = max((rank for one in lines for rank in one.ranks.values()), default=1)
    return tag(
        "svg",
        *_grid(deepest),
        *(_column(step, _across(at, steps), _down(deepest)) for at, step in enumerate(steps)),
        *(_drawn(one, steps) for one in reversed(lines)),
        class_="ladder",
        height=f"{_down(deepest):.0f}",
        role="img",
        aria_label=label,
    )


def depth(rank: int) -> float:
    """The vertical position of a rank in rows; rank 1 is at 0.

    Example: 1 -> 0, 10 -> 9, 100 -> 32.03.
    """
    return rank - 1 if rank <= FLAT else FLAT * (1 + log(rank / FLAT)) - 1


def _down(rank: int) -> float:
    return ROW * depth(rank)


def _across(at: float, steps: Sequence[RankStep]) -> str:
    return f"{100 * at / (len(steps) - 1):.2f}%"


def _grid(deepest: int) -> Iterator[Html]:
    for rank in TICKS:
        if rank <= deepest:
            y = f"{_down(rank):.1f}"
            yield tag("line", x1="0%", y1=y, x2="100%", y2=y, class_="grid")
            yield tag("text", str(rank), x="0%", y=y, dx=-16, dy="0.35em", text_anchor="end")


def _column(step: RankStep, x: str, bottom: float) -> Html:
    name = tag("text", step.name, text_anchor="middle", class_="step")
    head = tag("svg", name, x=x, y=-20)
    return tag("g", tag("line", x1=x, y1=0, x2=x, y2=f"{bottom:.1f}", class_="grid"), head)


def _drawn(one: Line, steps: Sequence[RankStep]) -> Html:
    places = sorted(one.ranks.items())
    radius = BIG if one.name else SMALL
    strokes = [_stroke(start, end, steps) for start, end in pairwise(places)]
    dots = [_dot(_across(at, steps), _down(rank), one.mark, radius) for at, rank in places]
    end = [_end(*places[-1], one.name, steps)] if places else []
    return tag("g", tag("title", one.title), *strokes, *end, *dots, class_=f"way {one.kind}")


def _stroke(start: tuple[int, int], end: tuple[int, int], steps: Sequence[RankStep]) -> Html:
    """From dot to dot; dotted between lists, which run concurrently."""
    (left, high), (right, low) = start, end
    kind = "hint" if steps[right].is_list else None
    y1, y2 = f"{_down(high):.1f}", f"{_down(low):.1f}"
    return tag("line", x1=_across(left, steps), y1=y1, x2=_across(right, steps), y2=y2, class_=kind)


def _dot(x: str, y: float, mark: str, radius: float) -> Html:
    circle = tag("circle", cx=x, cy=f"{y:.1f}", r=radius)
    return tag("g", circle, tag("text", mark, x=x, y=f"{y:.1f}", dy="0.35em", text_anchor="middle"))


def _end(at: int, rank: int, name: str, steps: Sequence[RankStep]) -> Html:
    """The name of a passage that stays to the end, else a cross halfway to the step where it drops out."""
    y = f"{_down(rank):.1f}"
    if at == len(steps) - 1:
        return tag("text", name, x="100%", y=y, dx=16, dy="0.35em", class_="name")
    out = _across(at + 0.5, steps)
    fall = tag("line", x1=_across(at, steps), y1=y, x2=out, y2=y, class_="hint")
    return tag("g", fall, tag("text", "×", x=out, y=y, dy="0.33em", text_anchor="middle", class_="out"))
