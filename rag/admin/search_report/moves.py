"""The report's figure of how ranks moved, with what came nearest to being a hit."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_lowercase
from typing import TYPE_CHECKING

from rag.admin.rank_steps import telling, way
from rag.admin.search_report.ladder import COLOURS, ladder, line
from rag.admin.trace_wording import place, way_said
from rag.evaluate.report.wording import shortened
from rag.report.html import Html, note, tag
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.admin.rank_steps import Step
    from rag.admin.search_report.ladder import Line
    from rag.answers import Hit, Stage
    from rag.search.explain.why_not import Fate

DRAWN = 10  # hits with a line of their own
NEARLY = 4  # passages that are no hits, with a line
NAME_CHARS = 26  # beside a line


def moves(
    hits: Sequence[Hit], stages: Sequence[Stage], steps: Sequence[Step], fates: Sequence[Fate]
) -> Iterator[Html]:
    """The figure, and what fell out, with where it did. Nothing if fewer than two steps ranked anything."""
    asked = {fate.chunk_id: fate for fate in fates if fate.chunk_id and fate.step is not None}
    nearly = _nearly(steps, {hit.chunk.id for hit in hits} | asked.keys())
    texts = {one.id: label(one.text) for stage in stages for one in stage.preview}
    texts |= {id_: label(fate.source.title) for id_, fate in asked.items()}
    marks = dict.fromkeys(asked, "?") | dict(zip(nearly, ascii_lowercase, strict=False))
    steps = telling([_only(step, {hit.chunk.id for hit in hits[:DRAWN]} | marks.keys()) for step in steps])
    lines = [
        *(_line(steps, rank, hit) for rank, hit in enumerate(hits[:DRAWN], 1)),
        *(_fallen(steps, id_, mark, texts.get(id_, id_)) for id_, mark in marks.items()),
    ]
    if len(steps) > 1 and lines:
        yield note(_explained(hits))
        yield ladder(steps, lines, label=f"Ranks at {', '.join(step.name for step in steps)}")
        items = [_item(steps, id_, mark, texts.get(id_, "")) for id_, mark in marks.items()]
        yield tag("ul", *items, class_="nearly") if items else Html()


def _only(step: Step, drawn: set[str]) -> Step:
    return replace(step, ranks={id_: rank for id_, rank in step.ranks.items() if id_ in drawn})


def _explained(hits: Sequence[Hit]) -> str:
    which = f"the first {DRAWN} of {len(hits)} hits" if len(hits) > DRAWN else "the hits"
    return (
        f"The first rank is on top. The numbers are {which} in their final order, the letters what came "
        "nearest to being one. A dotted line joins a passage's ranks in both lists, which are asked at once; "
        "a cross is where a passage fell out. Steps that changed none of these are not drawn."
    )


def _nearly(steps: Sequence[Step], known: set[str]) -> list[str]:
    """The passages beside the known ones that a stage ranked highest, best first."""
    best: dict[str, int] = {}
    for step in steps:
        for id_, rank in step.ranks.items():
            if not step.is_list and id_ not in known:
                best[id_] = min(rank, best.get(id_, rank))
    return sorted(best, key=lambda id_: (best[id_], id_))[:NEARLY]


def _line(steps: Sequence[Step], rank: int, hit: Hit) -> Line:
    title = f"{rank}. {place(hit)}: {_ranks(steps, hit.chunk.id)}"
    page, kind = f", p. {hit.chunk.page}" if hit.chunk.page else "", f"way-{(rank - 1) % COLOURS + 1}"
    heading = hit.chunk.section[-1] if hit.chunk.section else hit.source.title
    name = shortened(label(heading), NAME_CHARS) + page
    return line(steps, hit.chunk.id, mark=str(rank), kind=kind, name=name, title=title)


def _fallen(steps: Sequence[Step], id_: str, mark: str, text: str) -> Line:
    return line(steps, id_, mark=mark, kind=_kind(mark), name="", title=f"{text}: {_ranks(steps, id_)}")


def _kind(mark: str) -> str:
    return "asked" if mark == "?" else "fallen"


def _ranks(steps: Sequence[Step], id_: str) -> str:
    """The ranks of a passage at all steps that have it."""
    return way_said([(step.name, step.ranks[id_]) for step in steps if id_ in step.ranks])


def _item(steps: Sequence[Step], id_: str, mark: str, text: str) -> Html:
    badge = tag("span", mark, class_=f"badge {_kind(mark)}")
    passage = tag("span", text, dir="auto") if text else Html()
    ways = tag("small", tag("code", f"[{id_}]"), f" {way_said(way(steps, id_))}")
    return tag("li", badge, tag("div", passage, ways))
