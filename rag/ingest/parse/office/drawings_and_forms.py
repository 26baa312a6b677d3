"""The text of drawings and forms in office documents, and the reading order of boxes on a page.

Drawings are charts, diagrams and alternative texts of pictures. Forms have checkboxes and lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import TypeVar
from xml.etree.ElementTree import Element

from rag.ingest.parse import typefaces
from rag.ingest.parse.document_draft import Draft
from rag.ingest.parse.document_parts import alternative_text
from rag.ingest.parse.formulas import omml_text
from rag.ingest.parse.office.number_formats import formatted
from rag.ingest.parse.pdf.text_page import Box
from rag.ingest.parse.zip_package import Package, child, descendants, is_on, value, whole_number

MAX_SLIDE_TITLE = 80  # characters of a first line that stands for the title of a slide
MAX_POINTS = 500  # of a series; more are a curve, which nobody reads as numbers
_AXES = frozenset({"catAx", "dateAx", "serAx", "valAx"})


def write_figure(draft: Draft, element: Element, package: Package, part: str) -> None:
    """Write a chart or a diagram that a part of a package refers to; nothing of other elements."""
    if element.tag == "chart" and element.get("r:id"):
        caption, rows = chart_rows(package.target_xml(part, element.get("r:id", "")))
        draft.paragraph(caption)
        draft.table(rows)
    elif element.tag == "relIds":
        for line in diagram_lines(package.target_xml(part, element.get("r:dm", ""))):
            draft.item(line)


def chart_rows(root: Element) -> tuple[str, list[list[str]]]:
    """The caption of a chart, and a row for each category with the value of each series.

    The caption is the title with those of the axes of values: "Energy (Consumption in GWh)". The title of the
    other axis heads the categories. Series with categories or x values of their own have a column for them.
    """
    chart = child(root, "chart")
    of_categories, of_values = _axis_titles(chart)
    caption = " ".join(filter(None, (_title(chart), of_values and f"({of_values})")))
    columns: list[list[str]] = []
    categories: list[str] = []
    has_values = False
    for series in chart.iter("ser") if chart is not None else ():
        xs = _points(series, "cat", "xVal")
        # In a scatter chart, each series may have x values of its own.
        if not columns or (xs and xs != categories):
            categories = xs
            columns.append([of_categories, *xs])
        values = _points(series, "val", "yVal")
        has_values |= bool(values)
        columns.append([" ".join(_points(series, "tx")), *values])
    if not has_values or len(columns[0]) > MAX_POINTS + 1:
        return caption, []
    return caption, [[*row] for row in islice(zip_longest(*columns, fillvalue=""), MAX_POINTS + 1)]


def _title(element: Element | None) -> str:
    title = child(element, "title")
    return "".join(text.text or "" for text in title.iter("t")).strip() if title is not None else ""


def _axis_titles(chart: Element | None) -> tuple[str, str]:
    axes = [axis for axis in child(chart, "plotArea") or () if axis.tag in _AXES]
    horizontal = [axis for axis in axes if value(axis, "axPos") in {"b", "t"}]
    first = next(iter([axis for axis in axes if axis.tag != "valAx"] or horizontal), None)
    titles = dict.fromkeys(_title(axis) for axis in axes if axis is not first)
    return _title(first), ", ".join(filter(None, titles))


def _points(series: Element, *names: str) -> list[str]:
    """The cached data points in the first part of a series that has any, in order; missing ones are empty."""
    return next(filter(None, (_points_in(series, name) for name in names)), [])


def _points_in(series: Element, name: str) -> list[str]:
    points: dict[int, str] = {}
    whole = series.findtext(f"{name}//formatCode", "")
    for point in series.iterfind(f"{name}//pt"):
        at, text = point.get("idx", ""), child(point, "v")
        if at.isdecimal() and len(at) < 5 and text is not None:  # noqa: PLR2004 digits
            points[int(at)] = _shown_number(text.text or "", point.get("formatCode", whole))
    return [points.get(at, "") for at in range(max(points) + 1)] if points else []


def _shown_number(number: str, form: str) -> str:
    """A number as people see it: ("0.62", "0%") -> "62%", ("4.3000000000000007", "") -> "4.3"."""
    try:
        is_plain = form in {"", "General"}
        return f"{float(number):.12g}" if is_plain else formatted(float(number), form)
    except ValueError:
        return number


def diagram_lines(root: Element) -> Iterator[str]:
    """The texts of a diagram (SmartArt), in the order of its data."""
    for point in descendants(root, "ptLst", "pt"):
        if point.get("type", "node") in {"node", "asst"}:
            lines = [
                "".join(text.text or "" for text in paragraph.iter("t")) for paragraph in point.iter("p")
            ]
            yield " ".join(filter(None, lines))


def paragraph_text(paragraph: Element) -> str:
    """The text of a DrawingML paragraph, without slide number and current date."""
    texts = []
    for element in paragraph:
        if element.tag in {"r", "fld"} and not element.get("type", "").startswith(("slidenum", "datetime")):
            run = "".join(part.text or "" for part in descendants(element, "t"))
            about = child(element, "rPr")
            run = typefaces.as_script(_with_signs(run, about), _height(about))
            is_struck = about is not None and about.get("strike", "noStrike") != "noStrike"
            texts.append(typefaces.as_struck(run, is_struck=is_struck))
        elif element.tag == "br":
            texts.append("\n")
        elif element.tag == "m":
            texts += [omml_text(math) for math in element.iter("oMath")]
    return typefaces.with_scripts("".join(texts))


def _height(about: Element | None) -> int:
    """How much a run is set higher than its line (lower below 0), in thousandths of its size."""
    baseline = about.get("baseline", "") if about is not None else ""
    height = whole_number(baseline.removeprefix("-"), max_digits=6)
    return -height if baseline.startswith("-") else height


_SIGN = re.compile(r"\A\s*(?:[^\x00-\x7f]+(?!\S)|\S\s*\Z)|[\uf000-\uf0ff]+")


def _with_signs(run: str, about: Element | None) -> str:
    """A run with what people see of its signs.

    PowerPoint keeps the font of a sign (`sym`) for the words behind it, which it shows in the other font.
    """
    of_signs, of_all = child(about, "sym"), child(about, "latin")
    if of_signs is not None:
        font = of_signs.get("typeface", "")
        return _SIGN.sub(lambda sign: typefaces.with_symbols(sign[0], font), run)
    return typefaces.with_symbols(run, of_all.get("typeface", "")) if of_all is not None else run


def picture_words(drawn: Element) -> Iterator[str]:
    """The distinct alternative texts below an element, without generated ones and without ornaments."""
    texts = dict[str, None]()
    for part in (part for part in drawn.iter() if part.tag in {"docPr", "cNvPr", "shape", "imagedata"}):
        if not any(mark.tag == "decorative" and mark.get("val") in {"1", "true"} for mark in part.iter()):
            text = part.get("descr", "") or (part.get("alt", "") if part.tag == "shape" else "")
            texts[alternative_text(text)] = None
    return filter(None, texts)


T = TypeVar("T")
MAX_BOXES = 200  # on a page; more of them keep their order
_OVERLAP = 0.15  # share of a box that may overlap the one before: people draw boxes by hand


def in_reading_order(items: Sequence[T], box_of: Callable[[T], Box | None]) -> list[T]:
    """The items in reading order, by recursive X-Y cuts at the widest gap.

    Items that no gap separates keep their order. Items without a box go first.
    Example: a title above two columns of two boxes each -> title, left column, right column.

    Source: Nagy, Seth & Viswanathan, Computer 25(7), 1992, doi:10.1109/2.144436.
    """
    placed = [(box, item) for item in items if (box := box_of(item))]
    if len(placed) > MAX_BOXES:
        return list(items)
    return [item for item in items if box_of(item) is None] + [item for _, item in _in_order(placed)]


def _in_order(placed: list[tuple[Box, T]]) -> list[tuple[Box, T]]:
    """The boxes in order: cut at the widest gap, preferring gaps between rows."""
    if len(placed) < 2:  # noqa: PLR2004 there is nothing to order
        return placed
    gap, before, after = max(_widest_cut(placed, 1, 3), _widest_cut(placed, 0, 2), key=lambda cut: cut[0])
    return _in_order(before) + _in_order(after) if gap > -math.inf else placed


def _widest_cut(
    placed: list[tuple[Box, T]], start: int, end: int
) -> tuple[float, list[tuple[Box, T]], list[tuple[Box, T]]]:
    """The widest gap along an axis (minus infinity without a gap), and the boxes before and after it."""
    order = sorted(range(len(placed)), key=lambda at: placed[at][0][start])
    reached, widest, cut = placed[order[0]][0][end], -math.inf, 0
    for number, at in enumerate(order[1:], 1):
        box = placed[at][0]
        gap = box[start] - reached
        if gap > widest and gap >= -_OVERLAP * (box[end] - box[start]):
            widest, cut = gap, number
        reached = max(reached, box[end])
    before, after = sorted(order[:cut]), sorted(order[cut:])
    return widest, [placed[at] for at in before], [placed[at] for at in after]


_BOXES = {"☒": typefaces.TICKED, "☑": typefaces.TICKED, "☐": typefaces.UNTICKED}


def field_value(field: Element) -> str | None:
    """The value of a checkbox or list among form fields, None for other fields.

    `field` is the begin mark of the field, which holds its form data.
    """
    if (box := child(field, "ffData", "checkBox")) is not None:
        return typefaces.ticked(is_on(box, "checked" if child(box, "checked") is not None else "default"))
    if (choices := child(field, "ffData", "ddList")) is not None:
        entries = [choice.get("val", "") for choice in choices if choice.tag == "listEntry"]
        chosen = value(choices, "result") or value(choices, "default") or "0"
        at = whole_number(chosen, max_digits=3)
        return entries[at] if at < len(entries) else ""
    return None


def symbol(mark: Element) -> str:
    """A character of a symbol font as people see it, "" for a private one of another font."""
    try:
        code = int(mark.get("char", ""), 16)
    except ValueError:
        return ""
    is_character = ord(" ") <= code < 0x11_0000 and not 0xD800 <= code < 0xE000  # noqa: PLR2004 surrogates
    character = typefaces.with_symbols(chr(code) if is_character else "", mark.get("font", ""))
    return "" if character >= "\uf000" else _BOXES.get(character, character)


def fill_controls(root: Element) -> None:
    """Write the value of each checkbox and list into its content control.

    The state of a checkbox counts, because its characters can be anything that the author chose.
    """
    for control in root.iter("sdt"):
        about, content = child(control, "sdtPr"), child(control, "sdtContent")
        if content is None:
            continue
        if (box := child(about, "checkbox")) is not None:
            _set_text(content, typefaces.ticked(is_on(box, "checked")))
        elif not any((text.text or "").strip() for text in content.iter("t")):
            _set_text(content, _choice(about))


def open_controls(body: Element) -> dict[str, str]:
    """The values of the form controls of an OpenDocument file, by the ids that its text refers to."""
    controls = (control for forms in body.iter("forms") for control in forms.iter())
    return {
        id_: text
        for control in controls
        if (id_ := control.get("id", "")) and (text := _open_control(control))
    }


def _open_control(control: Element) -> str:
    label = control.get("label", "")
    match control.tag:
        case "checkbox":
            return f"{typefaces.ticked(_current(control, 'state') == 'checked')} {label}".strip()
        case "radio":
            return f"{typefaces.ticked(_current(control, 'selected') == 'true')} {label}".strip()
        case "listbox":
            chosen = (option for option in control.iter("option") if _current(option, "selected") == "true")
            return ", ".join(option.get("label", "") for option in chosen)
        case "fixed-text":
            return label
        case "combobox" | "text" | "textarea" | "formatted-text" | "number" | "date" | "time":
            return _current(control, "value")
    return ""


def _current(control: Element, name: str) -> str:
    return control.get(f"current-{name}", control.get(name, ""))


def _choice(about: Element | None) -> str:
    """What a list or a date of a content control says although its content is empty."""
    for kind in ("dropDownList", "comboBox"):
        last = choices.get("lastValue", "") if (choices := child(about, kind)) is not None else ""
        if choices is not None and last:
            labels = (item.get("displayText") for item in choices if item.get("value") == last)
            return next(filter(None, labels), last)
    moment = child(about, "date")
    return moment.get("fullDate", "")[:10] if moment is not None else ""


def _set_text(content: Element, text: str) -> None:
    if not text:
        return
    runs = [run for run in content.iter("r") if child(run, "instrText") is None]
    for run in runs:
        for part in [part for part in run if part.tag in {"t", "sym"}]:
            run.remove(part)
    if not runs:
        holder = next(content.iter("p"), content)
        runs = [holder.makeelement("r", {})]
        holder.append(runs[0])
    text_element = content.makeelement("t", {})
    text_element.text = text
    runs[0].append(text_element)
