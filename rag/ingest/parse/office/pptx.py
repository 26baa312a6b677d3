"""PowerPoint (PPTX): a page for each slide, its title as heading, shapes in reading order, then the notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.ingest.parse.document_draft import Draft, core_properties, document_of_draft
from rag.ingest.parse.document_parts import numeral
from rag.ingest.parse.office import drawings_and_forms, xlsx
from rag.ingest.parse.pdf.text_page import Box
from rag.ingest.parse.zip_package import Package, child, descendants, whole_number
from rag.text.table_heads import ABOVE, COVERED

SUFFIXES = (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm")
MIME_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"

_TITLES = frozenset({"title", "ctrTitle"})
_COMMENTS = frozenset({"cm", "reply"})
_FURNITURE = frozenset({"dt", "ftr", "hdr"})
_COUNTING = frozenset({"sldNum", "sldImg"})
_MARKS = frozenset({"buChar", "buAutoNum", "buNone"})
_STYLE_NUMBER = [("lstStyle", f"lvl{depth + 1}pPr", "buAutoNum") for depth in range(9)]
_NUMERALS = {"alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
_SHAPES = frozenset({"sp", "grpSp", "graphicFrame", "cxnSp", "pic"})


def parse(data: bytes, _name: str) -> Document:
    """The document of a presentation. Hidden slides, hidden shapes and comments are omitted, with a remark.

    A footer is written once, at the end of its first slide; slide numbers and the current date never are.
    """
    package = Package(data)
    main = package.related_as("", "officeDocument") or "ppt/presentation.xml"
    reader = _Reader(package)
    slides = descendants(package.xml(main), "sldIdLst", "sldId")
    paths = dict.fromkeys(package.target(main, slide.get("r:id", "")) for slide in slides)
    for path in paths:  # a hostile file lists a slide again and again
        if path in package:
            reader.slide(path)
    about, title = core_properties(package), reader.draft.first_title
    return document_of_draft(reader.draft, MIME_TYPE, about, remarks=reader.unreadable, title=title)


class _Reader:
    def __init__(self, package: Package) -> None:
        self.draft = Draft()
        self.unreadable: list[str] = []
        self._package = package
        self._layouts: dict[str, dict[tuple[str, str], Box]] = {}
        self._number = 0
        self._footers = set[str]()

    def slide(self, path: str) -> None:
        """Write a slide: title, shapes and notes."""
        self._number += 1
        self.draft.page()
        slide = self._package.xml_if_there(path)
        if not slide.tag:
            self.unreadable.append(f"slide {self._number} is damaged")
            return
        if slide.get("show") in {"0", "false"}:
            self.draft.left_out["slide"] += 1
            return
        comments = self._package.related_xml(path, "comments")
        self.draft.left_out["comment"] += sum(comment.tag in _COMMENTS for comment in comments.iter())
        boxes = self._boxes_of_layout(self._package.related_as(path, "slideLayout"))
        shown_shapes = list(self._shapes_in_order(child(slide, "cSld", "spTree"), boxes))
        shapes = [shape for shape in shown_shapes if _placeholder(shape)[0] not in _FURNITURE]
        title = next((shape for shape in shapes if _placeholder(shape)[0] in _TITLES and _texts(shape)), None)
        self._heading(title, [shape for shape in shapes if shape is not title], path)
        for shape in shown_shapes:
            if _placeholder(shape)[0] in _FURNITURE:
                footer = "\n".join(text for text, _, _ in _texts(shape))
                if footer not in self._footers:  # each slide has it
                    self._footers.add(footer)
                    self.draft.paragraph(footer)
        self._notes(self._package.related_as(path, "notesSlide"))

    def _heading(self, title: Element | None, shapes: list[Element], path: str) -> None:
        """Write the title and shapes of a slide. Without a title, a short first line becomes the title."""
        if title is not None:
            self.draft.heading(" ".join(text for text, _, _ in _texts(title)), 1)
        elif shapes and shapes[0].tag == "sp" and (lines := _texts(shapes[0])):
            first = lines[0][0]
            is_title = len(lines) == 1 and len(first) <= drawings_and_forms.MAX_SLIDE_TITLE
            self.draft.heading(first, 1, title=None if is_title else "")
            self._write(lines[1:])
            shapes = shapes[1:]
        elif any(shape.tag == "graphicFrame" for shape in shapes):  # a chart or a table without a title
            self.draft.heading(f"Slide {self._number}", 1)
        for shape in shapes:
            self._shape(shape, path)

    def _shapes_in_order(self, tree: Element | None, boxes: dict[tuple[str, str], Box]) -> Iterator[Element]:
        """The shapes in a tree in reading order; the shapes of a group are at its position."""
        shapes = [shape for shape in _shapes(tree) if not self._is_hidden(shape)]
        for shape in drawings_and_forms.in_reading_order(shapes, lambda shape: _reading_box(shape, boxes)):
            if shape.tag == "grpSp":
                yield from self._shapes_in_order(shape, boxes)
            elif _placeholder(shape)[0] not in _COUNTING and _has_words(shape):
                yield shape

    def _is_hidden(self, shape: Element) -> bool:
        about = next((child(part, "cNvPr") for part in shape if part.tag.startswith("nv")), None)
        hidden = about is not None and about.get("hidden") in {"1", "true"}
        self.draft.left_out["shape"] += hidden
        return hidden

    def _boxes_of_layout(self, path: str) -> dict[tuple[str, str], Box]:
        """The boxes of a layout's placeholders: a slide states only those that it moves."""
        if path not in self._layouts:
            layout = self._package.xml_if_there(path)
            shapes = list(_shapes(child(layout, "cSld", "spTree")))
            self._layouts[path] = {_placeholder(shape): box for shape in shapes if (box := _box(shape))}
        return self._layouts[path]

    def _shape(self, shape: Element, slide: str) -> None:
        for text in drawings_and_forms.picture_words(shape):
            self.draft.paragraph(text)
        if shape.tag != "graphicFrame":
            self._write(_texts(shape))
            return
        data = child(shape, "graphic", "graphicData")
        for element in data if data is not None else ():
            if element.tag == "tbl":
                rows = descendants(element, "tr")
                self.draft.table([[*map(_cell_text, descendants(row, "tc"))] for row in rows])
            drawings_and_forms.write_figure(self.draft, element, self._package, slide)
            for embedded in element.iter("oleObj"):
                path = self._package.target(slide, embedded.get("r:id", ""))
                self.draft.left_out["object"] += not xlsx.write_embedded(self.draft, self._package, path)

    def _write(self, lines: Sequence[tuple[str, int, str]]) -> None:
        for text, depth, mark in lines:
            if mark:
                self.draft.item(text, depth, mark)
            else:
                self.draft.paragraph(text)

    def _notes(self, path: str) -> None:
        notes = self._package.xml_if_there(path)
        for shape in _shapes(child(notes, "cSld", "spTree")):
            if _placeholder(shape)[0] == "body" and (lines := _texts(shape)):
                self.draft.paragraph("\n".join(["Speaker notes:", *(text for text, _, _ in lines)]))


def _shapes(tree: Element | None) -> Iterator[Element]:
    for element in tree if tree is not None else ():
        if element.tag in _SHAPES:
            yield element


def _placeholder(shape: Element) -> tuple[str, str]:
    """The kind and the number of a placeholder, ("", "") for other shapes."""
    about = next((part for part in shape if part.tag.startswith("nv")), None)
    placeholder = child(about, "nvPr", "ph")
    return ("", "") if placeholder is None else (placeholder.get("type", "obj"), placeholder.get("idx", "0"))


def _reading_box(shape: Element, boxes: dict[tuple[str, str], Box]) -> Box | None:
    """The box of a shape for the reading order, None for titles, which go first."""
    placeholder = _placeholder(shape)
    return None if placeholder[0] in _TITLES else _box(shape) or boxes.get(placeholder)


def _box(shape: Element) -> Box | None:
    """The box that a shape states, None if its layout decides."""
    paths = (("spPr", "xfrm"), ("grpSpPr", "xfrm"), ("xfrm",))
    transform = next((transform for path in paths if (transform := child(shape, *path)) is not None), None)
    offset, size = child(transform, "off"), child(transform, "ext")
    if offset is None or size is None:
        return None
    try:
        left, top = float(offset.get("x", "")), float(offset.get("y", ""))
        return Box(left, top, left + float(size.get("cx", "")), top + float(size.get("cy", "")))
    except ValueError:
        return None


def _texts(shape: Element) -> list[tuple[str, int, str]]:
    """The paragraphs of a shape: text, depth, and the dash or number of an item of a list."""
    body = child(shape, "txBody")
    paragraphs = []
    in_list = _placeholder(shape)[0] in {"body", "obj"}
    numbers = _Numbers()
    for paragraph in descendants(body, "p"):
        if not (text := drawings_and_forms.paragraph_text(paragraph).strip()):
            continue
        about = child(paragraph, "pPr")
        level = about.get("lvl", "0") if about is not None else "0"
        depth = int(level) if level in set("12345678") else 0
        marks = {mark.tag for mark in about} & _MARKS if about is not None else set()
        counting = child(about, "buAutoNum") if marks else child(body, *_STYLE_NUMBER[depth])
        number = numbers.following(depth, counting)
        is_item = "buChar" in marks or (in_list and "buNone" not in marks)
        paragraphs.append((text, depth, number or ("-" if is_item else "")))
    if len(paragraphs) == 1 and in_list:  # a single line in the body of a slide is text
        return [(text, depth, mark.removeprefix("-")) for text, depth, mark in paragraphs]
    return paragraphs


class _Numbers:
    """The numbers of the paragraphs of a shape; a list goes on below deeper items."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[tuple[str, int], int]] = {}  # by depth: the kind of list, and a number

    def following(self, depth: int, counting: Element | None) -> str:
        """The number of the next paragraph, as PowerPoint shows it; "" for one without."""
        last = self._last.get(depth)
        self._last = {at: number for at, number in self._last.items() if at < depth}
        if counting is None:
            return ""
        form = counting.get("type", "arabicPeriod")
        start = whole_number(counting.get("startAt", "1"), 1)
        number = last[1] + 1 if last and last[0] == (form, start) else start
        self._last[depth] = (form, start), number
        text = numeral(number, next((kind for name, kind in _NUMERALS.items() if form.startswith(name)), "1"))
        return f"({text})" if form.endswith("Both") else f"{text})" if form.endswith("ParenR") else f"{text}."


def _cell_text(cell: Element) -> str:
    if cell.get("vMerge") in {"1", "true"}:
        return ABOVE
    if cell.get("hMerge") in {"1", "true"}:
        return COVERED
    return " ".join(map(drawings_and_forms.paragraph_text, descendants(cell, "txBody", "p")))


def _has_words(shape: Element) -> bool:
    return shape.tag == "graphicFrame" or bool(_texts(shape)) or any(drawings_and_forms.picture_words(shape))
