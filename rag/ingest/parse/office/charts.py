"""What drawings in office documents say: shapes, charts, diagrams, and the texts that stand for pictures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.ingest.parse.office.equations import linear
from rag.ingest.parse.zipped import child, descendants
from rag.text.flags import flags_in
from rag.text.segments import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
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
