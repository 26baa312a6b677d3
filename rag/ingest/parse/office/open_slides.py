"""The slides of OpenDocument presentations: as those of PowerPoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.ingest.parse.office.reading_order import Box, in_reading_order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from rag.ingest.parse.office.open_text import Reader

MAX_TITLE = 80  # characters of a first line that stands for the title of a slide
_FURNITURE = frozenset({"footer", "header", "date-time", "page-number"})
_LENGTH = re.compile(r"(-?\d{0,9}(?:\.\d{1,9})?)(cm|mm|in|pt)")
_CENTIMETRES = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72}


def read_slides(reader: Reader, presentation: Element) -> None:
    """Write the slides that aren't hidden: title, shapes in reading order, notes."""
    for number, page in enumerate((one for one in presentation if one.tag == "page"), 1):
        reader.draft.page()
        if reader.style(page).hidden:
            reader.hidden["slide"] += 1
            continue
        _slide(reader, page, number)


def _slide(reader: Reader, page: Element, number: int) -> None:
    shapes = [one for one in _ordered(page) if one.get("class") not in _FURNITURE and _has_text(one)]
    title = next((one for one in shapes if one.get("class") == "title"), None)
    rest = [one for one in shapes if one is not title]
    if title is not None:
        reader.draft.heading(reader.cell_text(title), 1)
    elif rest:
        first = reader.cell_text(rest[0])
        is_figure = rest[0].tag == "control" or any(
            rest[0].find(f".//{tag}") is not None for tag in ("table", "object", "desc")
        )
        is_title = len(first) <= MAX_TITLE and not is_figure
        reader.draft.heading(first if is_title else f"Slide {number}", 1)
        rest = rest[1:] if is_title else rest
    for one in rest:
        holder = page.makeelement("page", {})
        holder.append(one)
        reader.blocks(holder)
    for notes in page.findall("notes"):
        texts = [reader.cell_text(one) for one in notes if one.get("class") == "notes"]
        if text := "\n".join(filter(None, texts)):
            reader.draft.paragraph(f"Speaker notes:\n{text}")


def _ordered(parent: Element) -> Iterator[Element]:
    """The shapes of a page in reading order, those of groups where the group is."""
    for one in in_reading_order([one for one in parent if one.tag != "notes"], _place):
        if one.tag == "g":
            yield from _ordered(one)
        else:
            yield one


def _has_text(shape: Element) -> bool:
    words = shape.tag == "control" or any(
        "".join(one.itertext()).strip() for tag in ("p", "h") for one in shape.iter(tag)
    )
    return words or any(shape.find(f".//{tag}") is not None for tag in ("object", "desc"))


def _place(shape: Element) -> Box | None:
    """Where a shape is, None for a title, which goes first, and where that isn't known."""
    if shape.tag == "g":
        boxes = [box for one in shape if (box := _place(one))]
        if not boxes:
            return None
        lefts, tops, rights, bottoms = zip(*boxes, strict=True)
        return Box(min(lefts), min(tops), max(rights), max(bottoms))
    names = ("x", "y", "width", "height")
    sizes = [size for name in names if (size := _length(shape.get(name, ""))) is not None]
    if shape.get("class") == "title" or len(sizes) < len(names):
        return None
    left, top, width, height = sizes
    return Box(left, top, left + width, top + height)


def _length(written: str) -> float | None:
    match = _LENGTH.fullmatch(written)
    return float(match[1]) * _CENTIMETRES[match[2]] if match and match[1] not in {"", "-"} else None
