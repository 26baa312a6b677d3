"""What the drawings and forms of office documents say, and in which order people read boxes on a page.

Drawings: shapes, charts, diagrams, and the texts that stand for pictures. Equations of Word and PowerPoint
are written on one line, as one would type them: (a+b)/(2), x^2, sqrt(x). Boxes are read from the top, one
column after the other. Forms: which boxes are ticked, and what is chosen from a list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rag.ingest.parse.zip_package import child, descendants, is_on, value
from rag.text.flags import flags_in
from rag.text.segments import one_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_POINTS = 500  # of a series: more are a curve, which nobody reads as numbers
ORDERS = "(picture whose text gives orders to a model)"
"""Stands for the alternative text of a picture that nobody is meant to see but a model."""
MAX_ALTERNATIVE = 1_000  # characters of the text that stands for a picture
_NO_WORDS = re.compile(
    r"(?i)(?:picture|image|img|photo|grafik|bild|abbildung|figure|imagen|afbeelding|object|logo|icon|shape)?"
    r"[\s_#-]*\d*|https?:.*|.{0,200}\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|emf|wmf)"
)
_ASIDE = re.compile(r"(?:AI-generated content may be incorrect|Description automatically generated[^.]*)\.?$")


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


def paragraph_text(paragraph: Element) -> str:
    """The text of a paragraph of DrawingML, without the number of the slide and the date of today."""
    texts = []
    for one in paragraph:
        if one.tag in {"r", "fld"} and not one.get("type", "").startswith(("slidenum", "datetime")):
            texts += [text.text or "" for text in descendants(one, "t")]
        elif one.tag == "br":
            texts.append("\n")
        elif one.tag in {"m", "AlternateContent"}:
            texts += [linear(math) for math in one.iter("oMath")]
    return "".join(texts)


def picture_words(drawn: Element) -> Iterator[str]:
    """The alternative texts below an element, each once: what people who can't see a picture are told.

    Those that a program made from a file's name or a number are left out, and those of ornaments.
    """
    described = (part for part in drawn.iter() if part.tag in {"docPr", "cNvPr", "shape", "imagedata"})
    texts = (_alternative(part) for part in described if not _is_ornament(part))
    yield from dict.fromkeys(filter(None, map(alternative_text, texts)))


def alternative_text(written: str) -> str:
    """How the alternative text of a picture is written, "" if it says nothing.

    Example: "Plan of the clock room" -> "(picture: Plan of the clock room)"; "Bild 3" and "scan.png" -> "".
    """
    text = _ASIDE.sub("", one_line(written)[:MAX_ALTERNATIVE]).strip()
    if not any(map(str.isalpha, text)) or _NO_WORDS.fullmatch(text):
        return ""
    return ORDERS if "instructions" in flags_in(text) else f"(picture: {text})"


def _alternative(part: Element) -> str:
    return part.get("descr", "") or (part.get("alt", "") if part.tag == "shape" else "")


def _is_ornament(part: Element) -> bool:
    return any(mark.tag == "decorative" and mark.get("val") in {"1", "true"} for mark in part.iter())


_APPLIED = "\u2061"  # between a function and what it is of: nobody sees it


def linear(math: Element) -> str:
    """The equation in an element (OMML) as text."""
    return " ".join("".join(map(_linear, math)).split())


def _linear(part: Element) -> str:  # noqa: PLR0911 a table
    match part.tag:
        case "t":
            return (part.text or "").replace(_APPLIED, " ")
        case "f":
            return f"{_grouped(part, 'num')}/{_grouped(part, 'den')}"
        case "sSup" | "sSub" | "sSubSup" | "sPre":
            return _of(part, "e") + _script(part, "_", "sub") + _script(part, "^", "sup")
        case "rad":
            return (
                f"sqrt({_of(part, 'e')})"
                if not _of(part, "deg")
                else f"root({_of(part, 'deg')}, {_of(part, 'e')})"
            )
        case "nary":
            sign = value(part, "naryPr", "chr") or "∫"
            return f"{sign}{_script(part, '_', 'sub')}{_script(part, '^', 'sup')} {_of(part, 'e')}"
        case "d":
            opening = value(part, "dPr", "begChr") if child(part, "dPr", "begChr") is not None else "("
            closing = value(part, "dPr", "endChr") if child(part, "dPr", "endChr") is not None else ")"
            return opening + ", ".join(linear(one) for one in part if one.tag == "e") + closing
        case "func":
            return f"{_of(part, 'fName')} {_of(part, 'e')}"
        case "mr":
            return ", ".join(linear(one) for one in part if one.tag == "e") + "; "
        case _:
            return "".join(map(_linear, part))


def _of(part: Element, name: str) -> str:
    inner = child(part, name)
    return linear(inner) if inner is not None else ""


def _grouped(part: Element, name: str) -> str:
    text = _of(part, name)
    return text if text.isalnum() else f"({text})"


def _script(part: Element, sign: str, name: str) -> str:
    return f"{sign}{_grouped(part, name)}" if _of(part, name) else ""


T = TypeVar("T")
MAX_BOXES = 200  # on a page; more of them stay as they are
_OVERLAP = 0.15  # of a box may lie within the one before: what is drawn by hand is never quite apart


class Box(NamedTuple):
    """A place on a page, in any unit; the origin is at the top left."""

    left: float
    top: float
    right: float
    bottom: float


def in_reading_order(things: Sequence[T], place: Callable[[T], Box | None]) -> list[T]:
    """The things by the white space between them, cut at the widest gap first (a recursive X-Y cut).

    Where nothing separates them, they stay in their order. Things without a place go first.
    Example: a title above two columns of two boxes each -> title, left column, right column.

    Source: Nagy, Seth & Viswanathan, Computer 25(7), 1992, doi:10.1109/2.144436.
    """
    placed = [(box, thing) for thing in things if (box := place(thing))]
    if len(placed) > MAX_BOXES:
        return list(things)
    return [thing for thing in things if place(thing) is None] + [thing for _, thing in _ordered(placed)]


def _ordered(placed: list[tuple[Box, T]]) -> list[tuple[Box, T]]:
    """The boxes in order: cut at the widest gap, between rows if those between columns are no wider."""
    if len(placed) < 2:  # noqa: PLR2004 there is nothing to order
        return placed
    gap, before, after = max(_cut(placed, 1, 3), _cut(placed, 0, 2), key=lambda cut: cut[0])
    return _ordered(before) + _ordered(after) if gap > -math.inf else placed


def _cut(
    placed: list[tuple[Box, T]], start: int, end: int
) -> tuple[float, list[tuple[Box, T]], list[tuple[Box, T]]]:
    """The widest gap along an axis, and the boxes before and after it; minus infinity if there is none."""
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


TICKED, UNTICKED = "[x]", "[ ]"  # as in Markdown, which models and people read alike

_WINGDINGS = {
    **dict.fromkeys((0x52, 0x53, 0xFD, 0xFE), TICKED),
    **dict.fromkeys((0x6F, 0x70, 0x71, 0x72, 0xA8), UNTICKED),
    0xFB: "✗",
    0xFC: "✓",
    **dict.fromkeys((0xE0, 0xE8), "→"),
}
_BOXES = {"☒": TICKED, "☑": TICKED, "☐": UNTICKED}
_PRIVATE = 0xF000  # where fonts of symbols have their characters


def field_value(field: Element) -> str | None:
    """What a box or a list among the fields of a form shows, None for other fields.

    `field` begins it and may hold the data of a form; the text of a text field follows it in the document.
    """
    if (box := child(field, "ffData", "checkBox")) is not None:
        return ticked(is_on(box, "checked" if child(box, "checked") is not None else "default"))
    if (choices := child(field, "ffData", "ddList")) is not None:
        entries = [choice.get("val", "") for choice in choices if choice.tag == "listEntry"]
        chosen = value(choices, "result") or value(choices, "default") or "0"
        at = int(chosen) if chosen.isdecimal() and len(chosen) < 4 else 0  # noqa: PLR2004 digits
        return entries[at] if at < len(entries) else ""
    return None


def ticked(is_ticked: bool) -> str:  # noqa: FBT001 its only argument
    """How a box is written: [x] or [ ]."""
    return TICKED if is_ticked else UNTICKED


def symbol(mark: Element) -> str:
    """A character of a symbol font, as far as it is a box, a tick or an arrow."""
    try:
        code = int(mark.get("char", ""), 16)
    except ValueError:
        return ""
    if code >= _PRIVATE:
        return _WINGDINGS.get(code - _PRIVATE, "") if mark.get("font") == "Wingdings" else ""
    character = chr(code) if code >= ord(" ") and not 0xD800 <= code < 0xE000 else ""  # noqa: PLR2004 surrogates
    return _BOXES.get(character, character)


def fill_controls(root: Element) -> None:
    """Write into the content of each content control what it shows: a box, or the choice from a list.

    The characters of a box can be anything that its author chose, so its state counts.
    """
    for control in root.iter("sdt"):
        about, content = child(control, "sdtPr"), child(control, "sdtContent")
        if content is None:
            continue
        if (box := child(about, "checkbox")) is not None:
            _show(content, ticked(is_on(box, "checked")))
        elif not any((text.text or "").strip() for text in content.iter("t")):
            _show(content, _choice(about))


def open_controls(body: Element) -> dict[str, str]:
    """What the controls of an OpenDocument file show, by their ids, which the text refers to."""
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
            state = control.get("current-state", control.get("state", ""))
            return f"{ticked(state == 'checked')} {label}".strip()
        case "radio":
            state = control.get("current-selected", control.get("selected", ""))
            return f"{ticked(state == 'true')} {label}".strip()
        case "listbox":
            options = control.iter("option")
            chosen = (
                option
                for option in options
                if option.get("current-selected", option.get("selected")) == "true"
            )
            return ", ".join(option.get("label", "") for option in chosen)
        case "fixed-text":
            return label
        case "combobox" | "text" | "textarea" | "formatted-text" | "number" | "date" | "time":
            return control.get("current-value", control.get("value", ""))
        case _:
            return ""


def _choice(about: Element | None) -> str:
    """What a list or a date of a content control says although its content is empty."""
    for kind in ("dropDownList", "comboBox"):
        last = choices.get("lastValue", "") if (choices := child(about, kind)) is not None else ""
        if choices is not None and last:
            named = (item.get("displayText") for item in choices if item.get("value") == last)
            return next(filter(None, named), last)
    moment = child(about, "date")
    return moment.get("fullDate", "")[:10] if moment is not None else ""


def _show(content: Element, text: str) -> None:
    """Replace the texts of a control by this one."""
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
    shown = content.makeelement("t", {})
    shown.text = text
    runs[0].append(shown)
