"""The drawings on an Excel sheet: text boxes, pictures, charts and form controls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree.ElementTree import Element

from rag.errors import ParseError
from rag.ingest.parse.office.drawings_and_forms import (
    chart_rows,
    diagram_lines,
    paragraph_text,
    picture_words,
    ticked,
)
from rag.ingest.parse.zip_package import Package, child, descendants, whole_number, xml_root
from rag.text.plain_text import one_line

ROW_HEIGHT = 190_500  # EMU, of a usual row: a control belongs to the row of its middle

_ANCHORS = frozenset({"oneCellAnchor", "twoCellAnchor", "absoluteAnchor"})
_OPEN_TAG = re.compile(rb"<br\s*>")  # as Excel writes it in VML, which isn't XML then
_BOXES, _LISTS = frozenset({"checkbox", "radio"}), frozenset({"drop", "list"})
_LABELS = frozenset({"gbox", "label"})
_SHEET_OF_CELLS = re.compile(r"'((?:[^']|'')+)'!|([^'!(),:]+)!")


class ListedControl(NamedTuple):
    """A control as its sheet lists it: the ids of its shape and part, and its cell."""

    id: str
    part: str
    row: int
    column: int


class Control(NamedTuple):
    """A box, a list or a label on a sheet; `chosen` are the numbers of chosen entries, from 1.

    The entries are `entries`, or the cells of the range `source`.
    """

    text: str
    row: int
    column: int
    chosen: tuple[int, ...] = ()
    entries: tuple[str, ...] = ()
    source: str = ""


@dataclass(slots=True)
class SheetDrawings:
    """The drawings on a sheet: boxes and controls at the row and column of their corner, and charts.

    A chart is its caption and its rows, which are empty if its numbers are in visible cells. `hidden`,
    `charts_left` and `controls_left` count what is omitted.
    """

    boxes: list[tuple[int, int, str]] = field(default_factory=list)
    charts: list[tuple[str, list[list[str]]]] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    hidden: int = 0
    charts_left: int = 0
    controls_left: int = 0


def listed_control(control: Element) -> ListedControl:
    """A control in the list of a sheet; row and column are 0 if it has no anchor there."""
    anchor = next(control.iter("anchor"), None)
    row, column = _cell(anchor) if anchor is not None else (0, 0)
    return ListedControl(control.get("shapeId", ""), control.get("r:id", ""), row, column)


def read_drawings(
    package: Package, path: str, placed: Sequence[ListedControl], sheets: Collection[str]
) -> SheetDrawings:
    """The drawings on the sheet at `path`; `sheets` are the names of the visible sheets."""
    drawn = SheetDrawings()
    drawing = package.related_as(path, "drawing")
    root = package.xml_if_there(drawing)
    for alternatives in [*root.iter("AlternateContent")]:
        for for_older_programs in [*descendants(alternatives, "Fallback")]:
            alternatives.remove(for_older_programs)
    labels = {
        id_: text
        for shape in root.iter("sp")
        if (text := _text(shape)) and (id_ := next(shape.iter("cNvPr"), shape).get("id", ""))
    }
    ids = _read_controls(drawn, package, path, placed, labels)
    related = package.related(drawing)
    for anchor in (part for part in root.iter() if part.tag in _ANCHORS):
        about = next(anchor.iter("cNvPr"), anchor)
        if about.get("id") in ids:
            continue
        if about.get("hidden") in {"1", "true"}:
            drawn.hidden += 1
            continue
        row, column = _cell(anchor)
        texts = [*map(_text, anchor.iter("sp")), *picture_words(anchor)]
        for diagram in anchor.iter("relIds"):
            texts += diagram_lines(package.xml_if_there(related.get(diagram.get("r:dm", ""), ("", ""))[1]))
        drawn.boxes += [(row, column, text) for text in texts if text]
        for chart in anchor.iter("chart"):
            part = package.xml_if_there(related.get(chart.get("r:id", ""), ("", ""))[1])
            _read_chart(drawn, part, sheets)
    return drawn


def _read_chart(drawn: SheetDrawings, root: Element, sheets: Collection[str]) -> None:
    """Read the rows of a chart, or only its name if its numbers are in visible sheets."""
    caption, rows = chart_rows(root)
    formulas = [formula.text or "" for formula in root.iter("f")]
    sources = {match[1] or match[2] for formula in formulas for match in _SHEET_OF_CELLS.finditer(formula)}
    series = ", ".join(filter(None, rows[0])) if rows else ""
    if not rows or (sources and sources <= {*sheets}):
        name = one_line(": ".join(filter(None, (caption, series))))
        caption, rows = f"(chart: {name})" if name else "", []
    drawn.charts_left += not (caption or rows)
    if caption or rows:
        drawn.charts.append((caption, rows))


def _read_controls(
    drawn: SheetDrawings,
    package: Package,
    path: str,
    placed: Sequence[ListedControl],
    labels: Mapping[str, str],
) -> set[str]:
    """Read the controls of a sheet, and return the ids of their shapes."""
    related = package.related(path)
    old = {id_: (about, label, shape) for id_, about, label, shape in _old_shapes(package, path)}
    places = {control.id: control for control in reversed(placed)} | {
        control.id: control for control in reversed(placed) if control.row
    }
    for id_ in dict.fromkeys([*places, *old]):
        listed = places.get(id_, ListedControl(id_, "", 0, 0))
        kind, part = related.get(listed.part, ("", ""))
        about, label, shape = old.get(id_, (None, "", None))
        if kind == "control":  # of ActiveX, whose state is no text
            drawn.controls_left += 1
            continue
        if shape is not None and "visibility:hidden" in shape.get("style", "").replace(" ", ""):
            drawn.hidden += 1
            continue
        new = package.xml_if_there(part)
        state = _new_state(new) if new.tag else _old_state(about)
        cell = (listed.row, listed.column) if listed.row else _old_cell(about)
        drawn.controls += _control(state, labels.get(id_) or label, *cell)
    return {*places, *old}


def _control(state: Mapping[str, str], label: str, row: int, column: int) -> Iterator[Control]:
    """A checkbox, list or label; nothing for other controls."""
    kind = state.get("type", "").casefold()
    if kind in _BOXES:
        yield Control(f"{ticked(state.get('checked') in {'Checked', '1'})} {label}".strip(), row, column)
    elif kind in _LISTS:
        chosen = [state.get("sel", ""), *state.get("multi", "").replace(" ", "").split(",")]
        numbers = [number for numbers_text in chosen if (number := whole_number(numbers_text.strip()))]
        entries = tuple(filter(None, state.get("entries", "").split("\n")))
        yield Control(label, row, column, tuple(dict.fromkeys(numbers)), entries, state.get("range", ""))
    elif kind in _LABELS and label:
        yield Control(label, row, column)


def _new_state(properties: Element) -> dict[str, str]:
    """The state of a control, from its own part."""
    names = {
        "type": "objectType",
        "checked": "checked",
        "sel": "sel",
        "multi": "multiSel",
        "range": "fmlaRange",
    }
    entries = "\n".join(one_line(item.get("val", "")) for item in properties.iter("item"))
    return {key: properties.get(name, "") for key, name in names.items()} | {"entries": entries}


def _old_state(about: Element | None) -> dict[str, str]:
    """The state of a control, from its VML shape."""
    if about is None:
        return {}
    names = {"checked": "Checked", "sel": "Sel", "multi": "MultiSel", "range": "FmlaRange"}
    texts = {part.tag: (part.text or "").strip() for part in about}
    return {key: texts.get(name, "") for key, name in names.items()} | {"type": about.get("ObjectType", "")}


def _old_shapes(package: Package, path: str) -> Iterator[tuple[str, Element, str, Element]]:
    """The VML shapes of controls: id, state, label, shape. Other VML shapes are notes."""
    try:
        data = package.read(package.related_as(path, "vmlDrawing"))
        root = xml_root(_OPEN_TAG.sub(b"<br/>", data), "")
    except ParseError:
        return
    for shape in root.iter("shape"):
        about = child(shape, "ClientData")
        if about is not None and about.get("ObjectType", "Note").casefold() in _BOXES | _LISTS | _LABELS:
            label = " ".join("".join(box.itertext()) for box in shape.iter("textbox"))
            id_ = shape.get("spid", "") or shape.get("id", "")
            yield id_.rpartition("_s")[2], about, one_line(label), shape


def _old_cell(about: Element | None) -> tuple[int, int]:
    """The cell of a VML shape, by its anchor "1, 15, 2, 10, …": column, offset, row, offset, …."""
    anchor = child(about, "Anchor")
    numbers = re.findall(r"-?\d{1,7}", anchor.text or "") if anchor is not None else []
    if len(numbers) < 8:  # noqa: PLR2004 two corners
        return 1, 1
    column, top, offset, bottom = (int(numbers[at]) for at in (0, 2, 3, 6))
    return top + 1 + (bottom > top and offset > 10), column + 1  # noqa: PLR2004 points: half a row


def _cell(anchor: Element) -> tuple[int, int]:
    """The row and column of an anchor: the row of its middle if it is about one row high."""
    first, last = (
        {part.tag: whole_number((part.text or "").strip()) for part in (corner if corner is not None else ())}
        for corner in (child(anchor, "from"), child(anchor, "to"))
    )
    row = first.get("row", 0)
    middle = (row + last.get("row", row)) / 2 + (
        first.get("rowOff", 0) + last.get("rowOff", 0)
    ) / 2 / ROW_HEIGHT
    is_low = last.get("row", row) - row <= 1
    return (int(middle) if is_low else row) + 1, first.get("col", 0) + 1


def _text(shape: Element) -> str:
    """The text of a shape, a line for each paragraph."""
    return "\n".join(
        filter(None, (paragraph_text(line).strip() for line in descendants(shape, "txBody", "p")))
    )
