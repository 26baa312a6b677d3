"""The pages of a PDF, and which of them can't be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.errors import ParseError
from rag.ingest.parse.pdf.fields import additions_on
from rag.ingest.parse.pdf.garbled import is_garbled
from rag.ingest.parse.pdf.words import Box, Line, Sheet, sheet_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rag.ingest.parse.ocr import Reader

MAX_PAGES = 20_000  # a file that claims more of them lies
NO_CHARACTERS = "no map from its glyphs to characters, so its text is noise"
NO_TEXT = "no text, only images"
_IDEOGRAPHS = "\u2e80"  # and what follows: writing that may run down
_ODD = re.compile(r"[\x00-\x08\u0180-\u02ff\u2000-\u206f\ue000-\uf8ff\ufffd]")  # where glyphs have no map
_ODDEST = 0.1  # share of them
_PLAIN, _PITCH = 10.0, 12.0  # points: the lines of plain text
_STAMP = 40  # characters: a page with so few beside pictures may be a scan with a stamp
_NAMED = 8  # page numbers in a remark


class Missing(NamedTuple):
    """The numbers, from 1, of pages whose text is missing, or that OCR or the second reader has read."""

    damaged: list[int]
    garbled: list[int]
    images: list[int]
    beyond: list[int]
    recognised: list[int]
    plain: list[int]

    def remarks(self) -> Iterator[str]:
        """What of the file could not be read, or not for sure."""
        if self.damaged:
            yield f"{_pages(self.damaged)} can't be read"
        if self.garbled:
            yield f"{_pages(self.garbled)} left out: {NO_CHARACTERS}; run OCR on it first"
        if self.images:
            yield f"{_pages(self.images)} left out: {NO_TEXT}; run OCR on it first"
        if self.beyond:
            yield f"pages after {MAX_PAGES:,} left out"
        if self.recognised:
            yield f"{_pages(self.recognised)} read by OCR"
        if self.plain:
            yield f"{_pages(self.plain)} read as plain text: columns and tables may be lost"

    def error(self) -> ParseError:
        """Why a PDF has no text at all."""
        if self.garbled:
            return ParseError(f"the PDF has {NO_CHARACTERS}; run OCR on it first", "no text")
        if self.images:
            return ParseError(f"the PDF has {NO_TEXT}; run OCR on it first", "no text")
        if self.damaged:
            return ParseError("the PDF is damaged")
        return ParseError("the PDF has no text", "no text")


def _pages(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"page{'s' if len(numbers) > 1 else ''} {named}{more}"


def sheets_of(
    pdf: Any,  # noqa: ANN401 see above
    second: Callable[[int], str],
    reader: Reader | None = None,
) -> tuple[list[Sheet], Missing]:
    """What stands on each page; nothing on those that can't be read.

    `second` gives the plain text of a page: of one on which pdfium reads nothing, and of one that runs down.
    A reader reads pages without text.
    """
    missing = Missing([], [], [], [], [], [])
    numbers = range(1, min(len(pdf), MAX_PAGES) + 1)
    sheets = [_sheet(pdf, number, missing, second, reader) for number in numbers]
    if len(pdf) > MAX_PAGES:
        missing.beyond.append(MAX_PAGES)
    everything = "\n".join(line.text for sheet in sheets for line in sheet.lines)
    if not missing.recognised and is_garbled(everything):
        missing.garbled[:] = numbers
        missing.plain.clear()
        return [Sheet([], []) for _ in sheets], missing
    return sheets, missing


def _sheet(
    pdf: Any,  # noqa: ANN401 see above
    number: int,
    missing: Missing,
    second: Callable[[int], str],
    reader: Reader | None,
) -> Sheet:
    from pypdfium2 import PdfiumError, raw  # noqa: PLC0415 see above

    try:
        page = pdf[number - 1]
        additions = additions_on(pdf, page)
        if raw.FPDFPage_GetAnnotCount(page) > 0 and raw.FPDFPage_Flatten(page, 0) == raw.FLATTEN_SUCCESS:
            page.close()
            page = pdf[number - 1]  # with the values of fields and the words of notes as its text
        try:
            sheet = sheet_of(page, additions)
            if _is_whole(page, sheet, is_strict=reader is not None):
                return sheet
            plain = _plain(second(number - 1))
            if _runs_down(sheet) and not set(_written(sheet)) <= {*_written(plain), "\n"}:
                plain = _stacked(_columns_of(sheet))  # the second reader reads something else
            if plain.lines and _letters(plain) >= _letters(sheet) + (not _runs_down(sheet)):
                missing.plain.append(number)
                return plain
            return _seen(page, sheet, number, missing, reader)
        finally:
            page.close()
    except (PdfiumError, ValueError):
        missing.damaged.append(number)
        return Sheet([], [])


def _is_whole(page: Any, sheet: Sheet, *, is_strict: bool) -> bool:  # noqa: ANN401 see above
    """Whether pdfium has read a page. If strict, one with few words beside pictures may be a scan."""
    from pypdfium2 import raw  # noqa: PLC0415 see above

    if is_garbled(_written(sheet)) or _runs_down(sheet):
        return False
    if len(_written(sheet)) > (_STAMP if is_strict else 0):
        return True
    return bool(raw.FPDFPage_CountObjects(page) <= len(sheet.lines))  # these words, or nothing at all


def _seen(
    page: Any,  # noqa: ANN401 see above
    sheet: Sheet,
    number: int,
    missing: Missing,
    reader: Reader | None,
) -> Sheet:
    """What OCR reads on a page that has no text, or noise; else what there is."""
    if _runs_down(sheet):
        return sheet
    if reader and (seen := reader.page(page)) and len(seen.lines) > len(sheet.lines):
        missing.recognised.append(number)
        return seen
    if is_garbled(_written(sheet)):
        missing.garbled.append(number)
        return Sheet([], [])
    if not sheet.lines:
        missing.images.append(number)
    return sheet


def _written(sheet: Sheet) -> str:
    return "\n".join(line.text for line in sheet.lines)


def _letters(sheet: Sheet) -> int:
    """How many characters are read; noise counts for nothing."""
    written = _written(sheet)
    return 0 if is_garbled(written) else sum(not character.isspace() for character in written)


def _runs_down(sheet: Sheet) -> bool:
    """Whether its lines run down, as in Japanese: pdfium gives each character alone, and loses some."""
    alone = sum(len(line.text) == 1 and line.text >= _IDEOGRAPHS for line in sheet.lines)
    return 2 * alone > len(sheet.lines)


def _plain(text: str) -> Sheet:
    """Lines below each other; none if they are no text."""
    if is_garbled(text) or sum(bool(_ODD.match(character)) for character in text) > _ODDEST * len(text):
        return Sheet([], [])
    return _stacked(text.splitlines())


def _columns_of(sheet: Sheet) -> list[str]:
    """The lines of a page that run down, from characters below each other."""
    columns: list[str] = []
    reach = Box(0, 0, 0, 0)
    for line in sheet.lines:
        box = line.box
        is_below = abs(box.left - reach.left) < 1 and 0 <= box.top - reach.bottom + 1 < box.height
        columns[-1:] = [columns[-1] + line.text] if is_below and columns else [*columns[-1:], line.text]
        reach = box
    return columns


def _stacked(texts: Sequence[str]) -> Sheet:
    """Lines below each other, as plain text has them."""
    lines = [text for text in texts if text.strip()]
    return Sheet(
        [
            Line(text, Box(0, _PITCH * at, len(text) * _PITCH / 2, _PITCH * at + _PLAIN), _PLAIN, place=at)
            for at, text in enumerate(lines)
        ],
        [],
    )
