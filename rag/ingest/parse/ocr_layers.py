"""Reads what programs for OCR write: ALTO, PAGE and hOCR, with an element for the place of each word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import GAP, Part, compose, heading, listed_names
from rag.ingest.parse.pdf.page_layout import dehyphenator
from rag.ingest.parse.records import joined
from rag.ingest.parse.xml_text import attribute, name_of, named, words, xml_tree
from rag.text.plain_text import one_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ROOTS = frozenset({"alto", "pcgts"})
HOCR_SUFFIXES = (".hocr",)

_PAGES = listed_names("page ocr_page")
_LINES = listed_names("textline ocr_line ocrx_line ocr_header ocr_caption ocr_textfloat")
_FURNITURE = listed_names("page-number header footer catch-word signature-mark")  # regions of PAGE
_HYPHENS = str.maketrans("¬⸗", "--")


def parse_hocr(text: str, name: str) -> Document:
    """The document of a page of hOCR.

    Raises:
        ParseError: it is not valid XML.
    """
    return ocr_document(xml_tree(text), name, "text/html")


def is_hocr(text: str) -> bool:
    """Whether a web page is hOCR, as valid XML."""
    try:
        return "ocr_page" in text and "ocr_line" in text and xml_tree(text) is not None
    except ParseError:
        return False


def ocr_document(root: Element, name: str, mime_type: str = "application/xml") -> Document:
    """The document of an OCR layer: a page for each page, a paragraph for each block, with whole words."""
    pages = [[*_blocks(page)] for page in root.iter() if _kind(page) in _PAGES]
    whole = dehyphenator("\n".join(text for page in pages for text, _ in page))
    pieces = [compose(_part(one_line(whole(text)), kind) for text, kind in page) for page in pages]
    text, blocks = joined(pieces)
    starts = accumulate((len(page) + len(GAP) * bool(page) for page, _ in pieces[:-1]), initial=0)
    return Document(text, name, mime_type, blocks, tuple(min(start, len(text)) for start in starts))


def _kind(element: Element) -> str:
    """The name of an element, or its class in hOCR."""
    return (element.get("class") or "").partition(" ")[0] or name_of(element)


def _part(text: str, kind: str) -> Part:
    return heading(text, 1) if kind == "heading" else Part("paragraph", text)


def _blocks(page: Element) -> Iterator[tuple[str, str]]:
    """The lines of each block of a page in reading order, and what PAGE calls the block."""
    regions = [attribute(element, "regionref") for element in page.iter()]
    places = {region: at for at, region in enumerate(regions) if region}
    initial = ""  # of the first word in the next block
    for block in sorted(page.iter(), key=lambda block: places.get(block.get("id", ""), len(regions))):
        lines = [_line(line) for line in block if _kind(line) in _LINES]
        if name_of(block) == "textregion" and not any(lines):
            lines = [_equivalent(block)]
        kind = attribute(block, "type")
        if any(lines) and kind not in _FURNITURE:
            text = initial + "\n".join(filter(None, lines)).translate(_HYPHENS)
            initial = text if kind == "drop-capital" else ""
            if not initial:
                yield text, kind


def _line(line: Element) -> str:
    if line.get("class"):
        return words(line)
    if name_of(line) == "textline" and line.find("String") is not None:
        return _line_of_alto(line)
    return _equivalent(line) or " ".join(filter(None, map(_equivalent, named(line, {"word"}))))


def _line_of_alto(line: Element) -> str:
    """The words of a line; one that goes on in the next line is whole if the file says how it reads."""
    text, is_whole = "", False
    for child in named(line, {"string", "hyp"}):
        cut, known = attribute(child, "subs_type").lower(), attribute(child, "subs_content")
        if name_of(child) == "hyp":
            text = text if is_whole else f"{text.removesuffix('-')}-"
        elif not (known and cut == "hyppart2"):
            is_whole = cut == "hyppart1" and bool(known)
            text += f" {known if is_whole else attribute(child, 'content')}"
    return text.strip()


def _equivalent(element: Element) -> str:
    """The text of a region, line or word of PAGE, of which the first version is the best."""
    return next((words(child) for child in named(element, {"textequiv"})), "")
