"""What a PDF page shows in addition to its text: ticked boxes, chosen options, comments, alternative texts.

pdfium turns the values of form fields into page text, but draws a tick as a shape or a symbol, and a list
with all of its options.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

from rag.ingest.parse.pdf.pdf_words import Addition, Box

TICKED, EMPTY = "[x]", "[ ]"
_MOST = 5_000  # annotations and parts of the structure of a page
_DEPTH = 40  # of the structure
_UNSEEN = 2 | 32  # flags of annotations: hidden, no view. PDF 32000-1, table 165
_PASSWORD = 1 << 13  # a flag of fields, table 228
_LINE = 10.0  # points: how high a line is that stands for a picture


def additions_on(pdf: Any, page: Any) -> list[Addition]:  # noqa: ANN401 of pypdfium2, which has no types
    """The words that form fields, comments and pictures add to a page."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

    return [*_annotation_words(pdfium, pdf.formenv, page.raw), *_alternative_texts(pdfium, page.raw)]


def _annotation_words(pdfium: Any, form: Any, page: Any) -> Iterator[Addition]:  # noqa: ANN401 see above
    rectangle = pdfium.FS_RECTF()
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MOST)):
        drawn = pdfium.FPDFPage_GetAnnot(page, number)
        if not drawn:
            continue
        try:
            is_seen = not pdfium.FPDFAnnot_GetFlags(drawn) & _UNSEEN
            if is_seen and pdfium.FPDFAnnot_GetRect(drawn, rectangle):
                places = (rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)
                yield from _annotation(pdfium, form, drawn, _box(places))
        finally:
            pdfium.FPDFPage_CloseAnnot(drawn)


def _annotation(pdfium: Any, form: Any, drawn: Any, box: Box) -> Iterator[Addition]:  # noqa: ANN401 see above
    match pdfium.FPDFAnnot_GetSubtype(drawn):
        case pdfium.FPDF_ANNOT_WIDGET if form:
            yield from _field(pdfium, form.raw, drawn, box)
        case pdfium.FPDF_ANNOT_WIDGET | pdfium.FPDF_ANNOT_FREETEXT | pdfium.FPDF_ANNOT_LINK:
            return  # the words of free text are drawn, those of links are for programs
        case pdfium.FPDF_ANNOT_POPUP:
            return  # shows the comment of another one
        case _:
            comment, author = (
                _text(pdfium.FPDFAnnot_GetStringValue, drawn, key) for key in (b"Contents", b"T")
            )
            if comment:
                yield Addition(
                    f"Comment by {author}: {comment}" if author else f"Comment: {comment}", box, is_note=True
                )


def _field(pdfium: Any, form: Any, drawn: Any, box: Box) -> Iterator[Addition]:  # noqa: ANN401 see above
    match pdfium.FPDFAnnot_GetFormFieldType(form, drawn):
        case pdfium.FPDF_FORMFIELD_CHECKBOX | pdfium.FPDF_FORMFIELD_RADIOBUTTON:
            yield Addition(TICKED if pdfium.FPDFAnnot_IsChecked(form, drawn) else EMPTY, box, replaces=True)
        case pdfium.FPDF_FORMFIELD_LISTBOX:
            yield Addition(", ".join(_chosen_options(pdfium, form, drawn)), box, replaces=True)
        case pdfium.FPDF_FORMFIELD_COMBOBOX:
            yield Addition(_text(pdfium.FPDFAnnot_GetFormFieldValue, form, drawn), box)
        case pdfium.FPDF_FORMFIELD_TEXTFIELD:
            if not pdfium.FPDFAnnot_GetFormFieldFlags(form, drawn) & _PASSWORD:
                yield Addition(_text(pdfium.FPDFAnnot_GetFormFieldValue, form, drawn), box)


def _chosen_options(pdfium: Any, form: Any, drawn: Any) -> Iterator[str]:  # noqa: ANN401 see above
    for number in range(min(pdfium.FPDFAnnot_GetOptionCount(form, drawn), _MOST)):
        if pdfium.FPDFAnnot_IsOptionSelected(form, drawn, number):
            yield _text(pdfium.FPDFAnnot_GetOptionLabel, form, drawn, number)


def _alternative_texts(pdfium: Any, page: Any) -> Iterator[Addition]:  # noqa: ANN401 see above
    """The alternative texts of pictures, each below its picture."""
    tree = pdfium.FPDF_StructTree_GetForPage(page)
    if not tree:
        return
    try:
        texts = dict(_alternatives(pdfium, tree))
        places = _marked_boxes(pdfium, page) if texts else {}
        for mark, text in texts.items():
            box = places.get(mark, Box(0, 0, 0, 0))
            below = box._replace(top=box.top, bottom=box.top + _LINE)  # of the file: y grows upwards
            yield Addition(f"[Picture: {text}]", below, is_note=mark not in places)
    finally:
        pdfium.FPDF_StructTree_Close(tree)


def _alternatives(pdfium: Any, tree: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401 see above
    """Marked-content ids and their alternative texts; the id is negative where the content has no mark."""
    waiting = [
        (pdfium.FPDF_StructTree_GetChildAtIndex(tree, number), 0)
        for number in range(min(pdfium.FPDF_StructTree_CountChildren(tree), _MOST))
    ]
    for number in range(_MOST):
        if not waiting:
            return
        part, depth = waiting.pop(0)
        if not part or depth > _DEPTH:
            continue
        if text := _text(pdfium.FPDF_StructElement_GetAltText, part):
            mark = pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(part, 0)
            yield (mark if mark >= 0 else -number - 1), text
            continue
        count = min(pdfium.FPDF_StructElement_CountChildren(part), _MOST)
        children = [pdfium.FPDF_StructElement_GetChildAtIndex(part, child) for child in range(count)]
        waiting[:0] = [(child, depth + 1) for child in children]


def _marked_boxes(pdfium: Any, page: Any) -> dict[int, Box]:  # noqa: ANN401 see above
    """The boxes of marked content, by its id."""
    edges = [ctypes.c_float() for _ in range(4)]
    places: dict[int, Box] = {}
    for number in range(min(pdfium.FPDFPage_CountObjects(page), _MOST)):
        drawn = pdfium.FPDFPage_GetObject(page, number)
        mark = pdfium.FPDFPageObj_GetMarkedContentID(drawn)
        if mark >= 0 and pdfium.FPDFPageObj_GetBounds(drawn, *edges):
            box = _box([edge.value for edge in edges])
            places[mark] = places[mark].around(box) if mark in places else box
    return places


def _box(places: Any) -> Box:  # noqa: ANN401 four numbers
    left, bottom, right, top = (edge if math.isfinite(edge) else 0.0 for edge in places)
    return Box(min(left, right), min(bottom, top), max(left, right), max(bottom, top))


def _text(read: Any, *of: object) -> str:  # noqa: ANN401 a function of pdfium
    """A text that pdfium writes as UTF-16, on one line."""
    length = read(*of, None, 0)
    if length <= 2:  # noqa: PLR2004 the bytes of its end
        return ""
    buffer = ctypes.create_string_buffer(length)
    kind = read.argtypes[len(of)]
    read(*of, ctypes.cast(buffer, kind), length)
    return " ".join(buffer.raw[: length - 2].decode("utf-16-le", "replace").split())
