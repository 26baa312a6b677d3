"""The pages of a PDF: which of them can't be read, and what they show in addition to their text.

A PDF without a character map names glyphs by numbers. Read as characters they are noise, often with letters
shifted along the alphabet ("7KH FORFN" for "The clock"). Text counts as noise only if it looks neither like
a language nor like a table of numbers: it has characters that no text has, scripts that change within words,
symbols instead of letters, or letter frequencies that fit no language in Latin script.

The shares below were measured on 13,000 texts: six languages, source code and tables. Only two of them,
mails of Base64, count as noise.

Beyond text, a page shows ticked boxes, chosen options, comments and alternative texts. pdfium turns the
values of form fields into page text, but draws a tick as a shape or a symbol, and a list with all of its
options.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag.errors import ParseError
from rag.ingest.parse.document_parts import alternative_text
from rag.ingest.parse.pdf.pdf_words import Addition, Line, PageLines, sheet_of
from rag.ingest.parse.pdf.text_page import Box, Pdfium
from rag.ingest.parse.typefaces import TICKED, UNTICKED
from rag.report import names_briefly

if TYPE_CHECKING:
    from rag.ingest.parse.ocr import OcrReader

NO_CHARACTERS = "no map from its glyphs to characters, so its text is noise"
NO_TEXT = "no text, only images"
RUN_OCR = 'set ocr = "auto" in [ingest], or run OCR on it first'
NOT_READ = "not read by OCR either"
WITHOUT_TEXT = "the PDF has no text"
DAMAGED = "the PDF is damaged"
_IDEOGRAPHS = "\u2e80"  # and what follows: writing that may run down
_ODD = re.compile(r"[\x00-\x08\u0180-\u02ff\u2000-\u206f\ue000-\uf8ff\ufffd]")  # where glyphs have no map
_ODDEST = 0.1  # share of them
_PLAIN, _PITCH = 10.0, 12.0  # points: the lines of plain text
_STAMP = 40  # characters: a page of pictures with at most this text may be a scan with a stamp
_NAMED = 8  # page numbers in a remark


@dataclass(slots=True)
class Missing:
    """Page numbers, from 1: pages whose text is missing, and pages that OCR or the second reader has read."""

    damaged: list[int] = field(default_factory=list)
    garbled: list[int] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    recognised: list[int] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)
    has_reader: bool = False
    """Whether OCR was tried."""

    @property
    def advice(self) -> str:
        """What may help where there is no text."""
        return NOT_READ if self.has_reader else RUN_OCR

    def remarks(self) -> Iterator[str]:
        """The pages that could not be read, or not reliably."""
        remarks = (
            (_page_list(self.damaged), "left out: damaged"),
            (_page_list(self.garbled), f"left out: {NO_CHARACTERS}; {self.advice}"),
            (_page_list(self.images), f"left out: {NO_TEXT}; {self.advice}"),
            (_page_list(self.recognised), "read by OCR"),
            (_page_list(self.plain), "read as plain text: columns and tables may be lost"),
        )
        yield from (f"{pages} {remark}" for pages, remark in remarks if pages)

    def error(self) -> ParseError:
        """Why a PDF has no text at all."""
        if self.garbled or self.images:
            reason = NO_CHARACTERS if self.garbled else NO_TEXT
            return ParseError(f"the PDF has {reason}; {self.advice}", "no text")
        if self.damaged:
            return ParseError(DAMAGED)
        return ParseError(WITHOUT_TEXT, "no text")


def _page_list(numbers: Sequence[int]) -> str:
    listed = names_briefly([*map(str, numbers)], _NAMED)
    return f"page{'s' if len(numbers) > 1 else ''} {listed}" if numbers else ""


def sheets_of(
    pdf: Pdfium, second: Callable[[int], str], reader: OcrReader | None
) -> tuple[list[PageLines], Missing]:
    """The sheet of each page, empty where it can't be read.

    `second` returns the plain text of a page. It is asked where pdfium reads nothing or the text is vertical.
    With `reader`, OCR reads pages without text.
    """
    missing = Missing(has_reader=reader is not None)
    numbers = range(1, len(pdf) + 1)
    sheets = [_sheet(pdf, number, missing, second, reader) for number in numbers]
    everything = "\n".join(line.text for sheet in sheets for line in sheet.lines)
    if not missing.recognised and is_garbled(everything):  # a short page proves nothing, but all together may
        missing.garbled, missing.plain = [*numbers], []
        return [PageLines([], []) for _ in sheets], missing
    return sheets, missing


def _sheet(
    pdf: Pdfium, number: int, missing: Missing, second: Callable[[int], str], reader: OcrReader | None
) -> PageLines:
    from pypdfium2 import PdfiumError, raw  # noqa: PLC0415 see above

    try:
        page = pdf[number - 1]
        additions = [*_annotation_words(raw, pdf.formenv, page.raw), *_alternative_texts(raw, page.raw)]
        if raw.FPDFPage_GetAnnotCount(page) > 0 and raw.FPDFPage_Flatten(page, 0) == raw.FLATTEN_SUCCESS:
            page.close()
            page = pdf[number - 1]  # with the values of fields and the words of notes as its text
        try:
            sheet = sheet_of(page, additions)
            if _is_whole(page, sheet, is_strict=reader is not None):
                return sheet
            if (not sheet.lines or _runs_down(sheet)) and (lines := _plain_lines(second(number - 1), sheet)):
                missing.plain.append(number)
                return _stacked_lines(lines)
            return _recognized_sheet(page, sheet, number, missing, reader)
        finally:
            page.close()
    except (PdfiumError, ValueError):
        missing.damaged.append(number)
        return PageLines([], [])


def _is_whole(page: Pdfium, sheet: PageLines, *, is_strict: bool) -> bool:
    """Whether pdfium has read all of a page. If strict, a page of pictures with few words may be a scan."""
    from pypdfium2 import raw  # noqa: PLC0415 see above

    if is_garbled(_text_of(sheet)) or _runs_down(sheet):
        return False
    if len(_text_of(sheet)) > (_STAMP if is_strict else 0):
        return True
    return bool(raw.FPDFPage_CountObjects(page) <= len(sheet.lines))  # these words, or nothing at all


def _recognized_sheet(
    page: Pdfium, sheet: PageLines, number: int, missing: Missing, reader: OcrReader | None
) -> PageLines:
    """What OCR reads on a page without text or with noise; without OCR, what pdfium reads, or nothing."""
    if reader and (recognized := reader.page(page)) and len(recognized.lines) > len(sheet.lines):
        missing.recognised.append(number)
        return recognized
    if is_garbled(_text_of(sheet)):
        missing.garbled.append(number)
        return PageLines([], [])
    if not sheet.lines:
        missing.images.append(number)
    return sheet


def _text_of(sheet: PageLines) -> str:
    return "\n".join(line.text for line in sheet.lines)


def _runs_down(sheet: PageLines) -> bool:
    """Whether its text is vertical, as in Japanese: pdfium returns each character alone, and loses some."""
    alone = sum(len(line.text) == 1 and line.text >= _IDEOGRAPHS for line in sheet.lines)
    return 2 * alone > len(sheet.lines)


def _plain_lines(text: str, sheet: PageLines) -> list[str]:
    """The lines of what the second reader reads on a page; of noise or of other letters, pdfium's columns."""
    is_noise = is_garbled(text) or len(_ODD.findall(text)) > _ODDEST * len(text)
    return _columns_of(sheet) if is_noise or not {*_text_of(sheet)} <= {*text, "\n"} else text.splitlines()


def _columns_of(sheet: PageLines) -> list[str]:
    """The vertical lines of a page, from characters below each other."""
    columns: list[str] = []
    reach = Box(0, 0, 0, 0)
    for line in sheet.lines:
        box = line.box
        is_below = abs(box.left - reach.left) < 1 and 0 <= box.top - reach.bottom + 1 < box.height
        columns[-1:] = [columns[-1] + line.text] if is_below and columns else [*columns[-1:], line.text]
        reach = box
    return columns


def _stacked_lines(texts: Sequence[str]) -> PageLines:
    lines = [text for text in texts if text.strip()]
    return PageLines(
        [
            Line(text, Box(0, _PITCH * at, len(text) * _PITCH / 2, _PITCH * at + _PLAIN), _PLAIN, order=at)
            for at, text in enumerate(lines)
        ],
        [],
    )


JUDGED = 20_000  # characters from the beginning
FEWEST = 150  # characters; less proves nothing
STRANGE = 0.08  # share of characters that text doesn't contain; a space may be one of them
MOST_STRANGE = 0.3  # share of them from which on no word counts as evidence any more
NAMED = 0.3  # share of text in names of glyphs
SWITCHED = 0.2  # share of neighbours in a word that are of two scripts; formulas have up to 0.05
FEW_LETTERS = 0.25  # share of letters below which symbols count
SYMBOLS = 10  # kinds of frequent symbols
FREQUENT = 0.01  # share of a frequent symbol
LETTERS = 0.5  # share of letters from which on their frequencies count
COMMON = 0.36  # least share of the letters a e i n o r s t; real text with Latin letters has 0.45 to 0.7
KINDS = 12  # of Latin letters that noise has at least; a table of crosses has one
ACCENTED = 0.6  # most share of Latin letters outside ASCII; Vietnamese has 0.35
SPOKEN = 0.03  # share of stop words from which on a text is in a language
LONG_WORD = 10  # characters; no language has longer words on average

_GLYPHS = re.compile(r"(?:/[A-Za-z_]{1,8}\d{1,5}){2,}|(?:\(cid:\d+\)){4,}")
_WORD = re.compile(r"[^\W\d_]+")
_CJK = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
_WHITE = frozenset(" \t\n\x0b\x0c\r")

STOP_WORDS = tuple(
    frozenset(word for word in line.split() if len(word) > 1)  # a single letter proves nothing
    for line in Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines()
)
"""The most frequent words of each of some languages."""


def is_garbled(text: str) -> bool:
    """Whether the text of a document is noise, judged by its beginning.

    `text` must still have its invisible characters: they are evidence. In a short text, only names of glyphs
    and characters that no text has are evidence.
    """
    text = text[:JUDGED]
    characters = [character for character in text if character not in _WHITE]
    visible = [character for character in characters if not character.isspace()]
    if sum(len(match[0]) for match in _GLYPHS.finditer(text)) > NAMED * len(text):
        return True
    if len(visible) < FEWEST:
        return 2 * sum(map(_is_strange, visible)) > len(visible)
    strange = sum(map(_is_strange, characters)) / len(characters)
    if strange > MOST_STRANGE:
        return True
    return not _is_spoken(text, len(visible)) and (
        strange > STRANGE
        or _script_switches(text) > SWITCHED
        or _consists_of_symbols(visible)
        or _has_odd_letters(visible)
    )


def _is_spoken(text: str, visible: int) -> bool:
    """Whether several stop words of one language are as frequent as in real text of this length."""
    words = Counter(_WORD.findall(text.casefold()))
    least = SPOKEN * max(words.total(), visible / LONG_WORD)
    return any(
        sum(words[word] for word in of_language) >= least and sum(word in words for word in of_language) > 1
        for of_language in STOP_WORDS
    )


def _is_strange(character: str) -> bool:
    """Whether no text has this character: controls, private, unassigned and replacement characters."""
    return character == "\ufffd" or unicodedata.category(character) in {"Cc", "Cn", "Co", "Cs"}


def _script_switches(text: str) -> float:
    """The share of neighbouring letters in a word that belong to different scripts."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text))
    pairs = [script != following for word in words for script, following in pairwise(map(_script, word))]
    return sum(pairs) / len(pairs) if len(pairs) >= FEWEST else 0.0


def _script(letter: str) -> str:
    name = re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0]
    return "CJK" if name in _CJK else name


def _consists_of_symbols(visible: list[str]) -> bool:
    """Whether there are few letters, and many kinds of symbols that are all frequent.

    A symbol that is repeated, as in a rule, counts once. Tables of numbers have few kinds of symbols.
    """
    if sum(map(str.isalpha, visible)) > FEW_LETTERS * len(visible):
        return False
    runs = Counter(
        character for character, _ in groupby(visible) if unicodedata.category(character)[0] in "PS"
    )
    return sum(count >= FREQUENT * len(visible) for count in runs.values()) >= SYMBOLS


def _has_odd_letters(visible: list[str]) -> bool:
    """Whether a text mostly of Latin letters has letter frequencies that fit no language."""
    latin = [character for character in visible if unicodedata.name(character, "").startswith("LATIN ")]
    if len(latin) < max(FEWEST, LETTERS * len(visible)):
        return False
    if sum(not character.isascii() for character in latin) > ACCENTED * len(latin):
        return True
    plain = Counter(unicodedata.normalize("NFD", "".join(latin)).casefold())
    common = sum(plain[letter] for letter in "aeinorstı")
    return len(plain) >= KINDS and common < COMMON * len(latin)


_MOST = 5_000  # annotations and objects of a page
_UNSEEN = 2 | 32  # flags of annotations: hidden, no view. PDF 32000-1, table 165
_PASSWORD = 1 << 13  # a flag of fields, table 228
_LINE = 10.0  # points: how high a line is that stands for a picture


def _annotation_words(pdfium: Pdfium, form: Pdfium, page: Pdfium) -> Iterator[Addition]:
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


def _annotation(pdfium: Pdfium, form: Pdfium, drawn: Pdfium, box: Box) -> Iterator[Addition]:
    match pdfium.FPDFAnnot_GetSubtype(drawn):
        case pdfium.FPDF_ANNOT_WIDGET if form:
            yield from _field(pdfium, form.raw, drawn, box)
        case pdfium.FPDF_ANNOT_WIDGET | pdfium.FPDF_ANNOT_FREETEXT | pdfium.FPDF_ANNOT_LINK:
            return  # the words of free text are drawn, and the words of links are for programs
        case pdfium.FPDF_ANNOT_POPUP:
            return  # shows the comment of another one
        case pdfium.FPDF_ANNOT_STRIKEOUT:
            yield from (Addition("", line, strikes=True) for line in _marked_lines(pdfium, drawn))
    comment, author = (_text(pdfium.FPDFAnnot_GetStringValue, drawn, key) for key in (b"Contents", b"T"))
    if comment:
        yield Addition(
            f"Comment by {author}: {comment}" if author else f"Comment: {comment}", box, is_note=True
        )


def _marked_lines(pdfium: Pdfium, drawn: Pdfium) -> Iterator[Box]:
    """A stroke through the middle of each line that an annotation marks."""
    points = pdfium.FS_QUADPOINTSF()
    for number in range(min(pdfium.FPDFAnnot_CountAttachmentPoints(drawn), _MOST)):
        if pdfium.FPDFAnnot_GetAttachmentPoints(drawn, number, points):
            xs, ys = (sorted(getattr(points, f"{axis}{corner}") for corner in range(1, 5)) for axis in "xy")
            box = _box((xs[0], ys[0], xs[-1], ys[-1]))
            yield box._replace(top=box.middle, bottom=box.middle)


def _field(pdfium: Pdfium, form: Pdfium, drawn: Pdfium, box: Box) -> Iterator[Addition]:
    match pdfium.FPDFAnnot_GetFormFieldType(form, drawn):
        case pdfium.FPDF_FORMFIELD_CHECKBOX | pdfium.FPDF_FORMFIELD_RADIOBUTTON:
            yield Addition(
                TICKED if pdfium.FPDFAnnot_IsChecked(form, drawn) else UNTICKED, box, replaces=True
            )
        case pdfium.FPDF_FORMFIELD_LISTBOX:
            yield Addition(", ".join(_chosen_options(pdfium, form, drawn)), box, replaces=True)
        case pdfium.FPDF_FORMFIELD_COMBOBOX:
            yield Addition(_text(pdfium.FPDFAnnot_GetFormFieldValue, form, drawn), box)
        case pdfium.FPDF_FORMFIELD_TEXTFIELD:
            if not pdfium.FPDFAnnot_GetFormFieldFlags(form, drawn) & _PASSWORD:
                yield Addition(_text(pdfium.FPDFAnnot_GetFormFieldValue, form, drawn), box)


def _chosen_options(pdfium: Pdfium, form: Pdfium, drawn: Pdfium) -> Iterator[str]:
    for number in range(min(pdfium.FPDFAnnot_GetOptionCount(form, drawn), _MOST)):
        if pdfium.FPDFAnnot_IsOptionSelected(form, drawn, number):
            yield _text(pdfium.FPDFAnnot_GetOptionLabel, form, drawn, number)


def _alternative_texts(pdfium: Pdfium, page: Pdfium) -> Iterator[Addition]:
    """The alternative texts of pictures, each below its picture."""
    tree = pdfium.FPDF_StructTree_GetForPage(page)
    if not tree:
        return
    try:
        count = pdfium.FPDF_StructTree_CountChildren(tree)
        parts = (pdfium.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(count))
        texts = [*_alternatives(pdfium, parts)]
        places = _marked_boxes(pdfium, page) if texts else {}
        for mark, text in texts:
            box = places.get(mark, Box(0, 0, 0, 0))
            below = box._replace(top=box.top, bottom=box.top + _LINE)  # of the file: y grows upwards
            yield Addition(text, below, is_note=mark not in places)
    finally:
        pdfium.FPDF_StructTree_Close(tree)


def _alternatives(pdfium: Pdfium, parts: Iterable[Pdfium]) -> Iterator[tuple[int, str]]:
    """Marked-content ids and their alternative texts; the id is negative where the content has no mark."""
    for part in filter(None, parts):
        if text := alternative_text(_text(pdfium.FPDF_StructElement_GetAltText, part)):
            yield pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(part, 0), text
        else:
            count = pdfium.FPDF_StructElement_CountChildren(part)
            children = (pdfium.FPDF_StructElement_GetChildAtIndex(part, at) for at in range(count))
            yield from _alternatives(pdfium, children)


def _marked_boxes(pdfium: Pdfium, page: Pdfium) -> dict[int, Box]:
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
    text = buffer.raw[: length - 2].decode("utf-16-le", "replace")
    return " ".join(text.rstrip("\0").split())  # some programs write the end, too
