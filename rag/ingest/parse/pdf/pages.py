"""The pages of a PDF, and which of them can't be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rag.errors import ParseError
from rag.ingest.parse.pdf.fields import additions_on
from rag.ingest.parse.pdf.garbled import is_garbled
from rag.ingest.parse.pdf.words import Sheet, sheet_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.ingest.parse.ocr import Reader
    from rag.ingest.parse.pdf.words import Addition

MAX_PAGES = 20_000  # a file that claims more of them lies
NO_CHARACTERS = "no map from its glyphs to characters, so its text is noise"
NO_TEXT = "no text, only images"
_STAMP = 40  # characters: a page with so few beside pictures may be a scan with a stamp
_NAMED = 8  # page numbers in a remark


class Missing(NamedTuple):
    """The numbers, from 1, of the pages whose text is missing, and of those that OCR has read."""

    damaged: list[int]
    garbled: list[int]
    images: list[int]
    beyond: list[int]
    recognised: list[int]

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


def sheets_of(pdf: Any, reader: Reader | None = None) -> tuple[list[Sheet], Missing]:  # noqa: ANN401 see above
    """What stands on each page; nothing on those that can't be read. A reader reads pages without text."""
    missing = Missing([], [], [], [], [])
    sheets = [_sheet(pdf, number, missing, reader) for number in range(1, min(len(pdf), MAX_PAGES) + 1)]
    if len(pdf) > MAX_PAGES:
        missing.beyond.append(MAX_PAGES)
    everything = "\n".join(line.text for sheet in sheets for line in sheet.lines)
    if not missing.recognised and is_garbled(everything):
        missing.garbled[:] = range(1, len(sheets) + 1)
        return [Sheet([], []) for _ in sheets], missing
    return sheets, missing


def _sheet(pdf: Any, number: int, missing: Missing, reader: Reader | None) -> Sheet:  # noqa: ANN401 see above
    from pypdfium2 import PdfiumError, raw  # noqa: PLC0415 see above

    try:
        page = pdf[number - 1]
        additions = additions_on(pdf, page)
        if raw.FPDFPage_GetAnnotCount(page) > 0 and raw.FPDFPage_Flatten(page, 0) == raw.FLATTEN_SUCCESS:
            page.close()
            page = pdf[number - 1]  # with the values of fields and the words of notes as its text
        try:
            return _text_on(page, number, missing, reader, additions)
        finally:
            page.close()
    except (PdfiumError, ValueError):
        missing.damaged.append(number)
        return Sheet([], [])


def _text_on(
    page: Any,  # noqa: ANN401 see above
    number: int,
    missing: Missing,
    reader: Reader | None,
    additions: Sequence[Addition],
) -> Sheet:
    from pypdfium2 import raw  # noqa: PLC0415 see above

    sheet = sheet_of(page, additions)
    written = "\n".join(line.text for line in sheet.lines)
    noise = is_garbled(written)
    if not noise and len(written) > (_STAMP if reader else 0):
        return sheet
    if not noise and raw.FPDFPage_CountObjects(page) <= len(sheet.lines):
        return sheet  # nothing but these words, or nothing at all
    if reader and (seen := reader.page(page)) and len(seen.lines) > len(sheet.lines):
        missing.recognised.append(number)
        return seen
    if noise:
        missing.garbled.append(number)
        return Sheet([], [])
    if not sheet.lines:
        missing.images.append(number)
    return sheet
