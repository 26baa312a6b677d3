"""Excel before 2007 (XLS), read as XLSX is, and the OLE containers that such files are."""

from __future__ import annotations

import io
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.document_draft import Draft, Properties, document_of_draft
from rag.ingest.parse.office.number_formats import BUILT_IN, formatted, formatted_text
from rag.ingest.parse.office.sheets import Sheet, write_sheet
from rag.ingest.parse.typefaces import as_struck, with_symbols
from rag.ingest.parse.zip_package import ENCRYPTED, OLE

if TYPE_CHECKING:
    from olefile import OleFileIO
    from xlrd import Book
    from xlrd.sheet import Sheet as OldSheet

SUFFIXES = (".xls", ".xlt")
MIME_TYPE = "application/vnd.ms-excel"
LIBRARIES = ("xlrd", "olefile")

_HEAD = struct.Struct("<HH")  # of a record: its type and its size
_COMMON = struct.Struct("<HHHHH")  # of an object: type and size of this part, kind, id, flags
_OBJECT, _COMMON_TYPE = 0x5D, 0x15
_OF_PROGRAM = 0x100  # the drop-down arrow of a filter, which Excel added
_KINDS = {0x05: "chart"} | dict.fromkeys((0x0B, 0x0C, 0x12, 0x14), "control")

_TEXT, _NUMBER, _DATE, _BOOLEAN, _ERROR = range(1, 6)


def parse(data: bytes, name: str) -> Document:
    """The document of a workbook; remarks count hidden content, comments, charts and controls."""
    import xlrd  # noqa: PLC0415 needed in the child process only

    try:
        book = xlrd.open_workbook(file_contents=data, formatting_info=True, logfile=io.StringIO())
    except Exception as error:  # it raises all kinds of errors on damaged files
        if "ncrypt" in str(error):
            raise ParseError(ENCRYPTED, "encrypted") from error
        raise ParseError("the file is damaged: it isn't an Excel workbook") from error
    draft = Draft()
    for sheet in book.sheets():
        if sheet.visibility:
            draft.left_out["sheet"] += 1
        else:
            write_sheet(draft, _sheet(book, sheet))
            draft.left_out["comment"] += len(sheet.cell_note_map)
    draft.left_out += object_counts(_records(data))
    return document_of_draft(draft, MIME_TYPE, ole_properties(data), title=name)


def _records(data: bytes) -> bytes:
    """The records of the workbook; none if its container is damaged, which xlrd reads with more patience."""
    if not data.startswith(OLE):
        return data  # before Excel 5 a file was nothing but records
    try:
        container = _container(data)
        name = "Workbook" if container.exists("Workbook") else "Book"
        return bytes(container.openstream(name).read())
    except Exception:  # noqa: BLE001 it raises all kinds of errors on damaged files
        return b""


def object_counts(records: bytes) -> Counter[str]:
    """How many charts and form controls the sheets have: xlrd reads neither.

    Source: [MS-XLS] 2.4.181 Obj and 2.5.143 FtCmo.
    """
    counts, at = Counter[str](), 0
    while at + _HEAD.size <= len(records):
        record, size = _HEAD.unpack_from(records, at)
        at += _HEAD.size
        if record == _OBJECT and at + _COMMON.size <= len(records):
            type_, _, kind, _, flags = _COMMON.unpack_from(records, at)
            if type_ == _COMMON_TYPE and not flags & _OF_PROGRAM:
                counts[_KINDS.get(kind, "")] += 1
        at += size
    return counts


def _sheet(book: Book, old: OldSheet) -> Sheet:
    sheet = Sheet(old.name)
    for number in range(old.nrows):
        cells = {
            at + 1: text
            for at in range(old.row_len(number))
            if (text := _cell(book, old, number, at).strip())
        }
        if cells:
            sheet.rows[number + 1] = cells
    sheet.hidden_rows = {number + 1 for number, row in old.rowinfo_map.items() if row.hidden}
    sheet.hidden_columns = {at + 1 for at, column in old.colinfo_map.items() if column.hidden}
    sheet.merged = [(first + 1, left + 1, last, right) for first, last, left, right in old.merged_cells]
    return sheet


def _cell(book: Book, old: OldSheet, row: int, column: int) -> str:
    """The text of a cell as its font and those of its parts show it, with marks where they strike out."""
    text = _text(book, old, row, column)
    if not text:
        return ""
    try:
        of_cell = book.xf_list[old.cell_xf_index(row, column)].font_index
        runs = [(0, of_cell), *old.rich_text_runlist_map.get((row, column), ())]
        fonts = [book.font_list[font] for _, font in runs]
    except (KeyError, IndexError):
        return text
    ends = [*(start for start, _ in runs[1:]), len(text)]
    return "".join(
        as_struck(with_symbols(text[start:end], font.name), is_struck=bool(font.struck_out))
        for (start, _), end, font in zip(runs, ends, fonts, strict=True)
    )


def _text(book: Book, old: OldSheet, row: int, column: int) -> str:
    value: Any = old.cell_value(row, column)
    kind = old.cell_type(row, column)
    if kind == _TEXT:
        return formatted_text(str(value), _form(book, old, row, column))
    if kind == _BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == _ERROR:
        from xlrd import error_text_from_code  # noqa: PLC0415 as above

        return str(error_text_from_code.get(value, "#ERR"))
    if kind not in {_NUMBER, _DATE}:
        return ""
    return formatted(value, _form(book, old, row, column), since_1904=bool(book.datemode))


def _form(book: Book, old: OldSheet, row: int, column: int) -> str:
    try:
        key = book.xf_list[old.cell_xf_index(row, column)].format_key
        form = book.format_map[key].format_str or BUILT_IN.get(key, "")
    except (KeyError, IndexError):
        form = ""
    return _ISO.get(form.lower().split(";")[0], form)


_ISO = {
    **dict.fromkeys(("m/d/yy", "m/d/yyyy"), "yyyy-mm-dd"),
    **dict.fromkeys(("m/d/yy h:mm", "m/d/yyyy h:mm"), "yyyy-mm-dd h:mm"),
}
"""Formats that Excel shows in the order of the user's country."""


_UTF_16 = 1200  # a code page


def _container(data: bytes) -> OleFileIO:
    import olefile  # noqa: PLC0415 needed in the child process only

    return olefile.OleFileIO(io.BytesIO(data))


def ole_properties(data: bytes) -> Properties:
    """The properties of a document; empty if they are damaged."""
    try:
        about: Any = _container(data).get_metadata()
    except Exception:  # noqa: BLE001 as above; the document can be read without them
        return Properties()
    stated = {name: getattr(about, name) for name in ("title", "author", "keywords", "subject")}
    stated["description"] = about.comments
    texts = {name: _property_text(text, about.codepage) for name, text in stated.items()}
    return Properties(modified=about.last_saved_time.isoformat() if about.last_saved_time else "", **texts)


def _property_text(text: bytes | str | None, codepage: int | None) -> str:
    """A property in the stated code page, or another one: many programs state 1252 whatever they write."""
    if not isinstance(text, bytes):
        return (text or "").strip("\x00 ")
    number = (codepage or 1252) & 0xFFFF
    if number == _UTF_16:
        return text.decode("utf-16-le", "replace").strip("\x00 ")
    return decode_part(text.strip(b"\x00 "), f"cp{number}").text
