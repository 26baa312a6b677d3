"""The report's steps: what each took and used, and the first passages after it."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from rag.admin.trace_wording import all_used, cost, counts, milliseconds, one_line, tokens
from rag.report.html import Html, folded, joined, tag
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.answers import Preview, Stage

TITLES = ("Step", "When", "ms", "In → out", "Tokens", "Cost")
WITHOUT_USAGE = 4  # of the columns


def stages_table(stages: Sequence[Stage]) -> Iterator[Html]:
    """A row for each stage with a bar for when it ran; warnings stand under their stage."""
    if not stages:
        return
    seconds = sum(stage.seconds for stage in stages)
    starts = accumulate((stage.seconds for stage in stages), initial=0.0)
    used = all_used(stages)
    columns = len(TITLES) if used else WITHOUT_USAGE
    rows = [
        _stage(stage, _bar(start, stage.seconds, seconds), columns)
        for stage, start in zip(stages, starts, strict=False)
    ]
    ends = ("", milliseconds(seconds), "", tokens(used), cost(used))
    last = tag("tr", tag("th", "all", scope="row"), *(tag("td", cell) for cell in ends[: columns - 1]))
    head = tag("tr", *(tag("th", title, scope="col") for title in TITLES[:columns]))
    table = tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", last))
    yield tag("div", table, class_="scroll steps", role="region", tabindex=0, aria_label="Steps")


def _stage(stage: Stage, bar: Html, columns: int) -> Html:
    failed = stage.status == "failed"
    name = tag(
        "th", stage.name, " failed" if failed else "", scope="row", class_="failed" if failed else None
    )
    cells = (milliseconds(stage.seconds), counts(stage), tokens(stage.usage), cost(stage.usage))
    row = tag("tr", name, tag("td", bar, class_="bar"), *(tag("td", cell) for cell in cells[: columns - 2]))
    return joined([row, *(_warning(one, columns) for one in stage.warnings)])


def _warning(text: str, columns: int) -> Html:
    return tag("tr", tag("td", tag("span", f"⚠ {one_line(text)}"), colspan=columns), class_="warned")


def _bar(start: float, seconds: float, of: float) -> Html:
    """A stage's time between the search's beginning and its end."""
    x, width = (f"{100 * part / (of or 1):.2f}%" for part in (start, seconds))
    return tag("svg", tag("rect", x=x, y="0%", width=width, height="100%"), class_="span", aria_hidden="true")


def previews(stages: Sequence[Stage]) -> Iterator[Html]:
    """For each stage that left passages, the first of them on demand."""
    for stage in stages:
        if stage.preview:
            yield folded(f"{stage.name} {counts(stage)}", _preview_table(stage.preview))


def _preview_table(shown: Sequence[Preview]) -> Html:
    head = tag("tr", *(tag("th", title, scope="col") for title in ("#", "Passage", "Score")))
    rows = [_preview(rank, one) for rank, one in enumerate(shown, 1)]
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="hits")


def _preview(rank: int, one: Preview) -> Html:
    passage = joined([tag("code", f"[{one.id}] "), tag("span", label(one.text), dir="auto")])
    return tag("tr", *(tag("td", cell) for cell in (str(rank), passage, f"{one.score:.2f}")))
