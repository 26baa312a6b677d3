"""The words and numbers of charts and diagrams in office documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse.zipped import child, descendants

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

MAX_POINTS = 500  # of a series: more are a curve, which nobody reads as numbers


def chart_rows(root: Element | None) -> tuple[str, list[list[str]]]:
    """The title of a chart, and a row for each category with the value of each series."""
    chart = child(root, "chart")
    title = child(chart, "title")
    caption = "".join(text.text or "" for text in title.iter("t")) if title is not None else ""
    series = list(chart.iter("ser")) if chart is not None else []
    names = [" ".join(_points(child(one, "tx"))) for one in series]
    categories = _points(child(series[0], "cat")) if series else []
    if not categories and series:
        categories = _points(child(series[0], "xVal"))
    values = [_points(child(one, "val")) or _points(child(one, "yVal")) for one in series]
    if not any(values) or len(categories) > MAX_POINTS:
        return caption, []
    rows = [["", *names]]
    for at in range(min(max(map(len, values)), MAX_POINTS)):
        category = categories[at] if at < len(categories) else ""
        rows.append([category, *(one[at] if at < len(one) else "" for one in values)])
    return caption, rows


def _points(parent: Element | None) -> list[str]:
    """The points that a chart keeps of its data, in order; missing ones are empty."""
    found: dict[int, str] = {}
    for one in parent.iter("pt") if parent is not None else ():
        at, text = one.get("idx", ""), child(one, "v")
        if at.isdecimal() and len(at) < 5 and text is not None:  # noqa: PLR2004 digits
            found[int(at)] = _plain(text.text or "")
    return [found.get(at, "") for at in range(max(found) + 1)] if found else []


def _plain(number: str) -> str:
    """A number as people write it: "4.3000000000000007" -> "4.3"."""
    try:
        return f"{float(number):.12g}"
    except ValueError:
        return number


def diagram_lines(root: Element | None) -> Iterator[str]:
    """The texts of a diagram (SmartArt), in the order of its data."""
    for point in descendants(root, "ptLst", "pt") if root is not None else ():
        if point.get("type", "node") in {"node", "asst"}:
            lines = ["".join(text.text or "" for text in one.iter("t")) for one in point.iter("p")]
            yield " ".join(filter(None, lines))
