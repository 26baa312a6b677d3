"""Excel (XLSX): the sheets in order, each cell as Excel shows it; formulas by their last values."""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import closing
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rag.cells import column_number
from rag.errors import ParseError
from rag.ingest.parse.draft import Draft
from rag.ingest.parse.office.charts import paragraph_text
from rag.ingest.parse.office.number_format import BUILT_IN, shown
from rag.ingest.parse.office.properties import core_properties, left_out, written_document
from rag.ingest.parse.office.sheets import Sheet, write_sheet
from rag.ingest.parse.zipped import MAX_ROWS_BYTES, Package, child, descendants, simplify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from rag.corpus import Document

SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
MIME_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MAX_COLUMNS = 16_384  # of a sheet, as in Excel

_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?([1-9]\d{0,6})")
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


def parse(data: bytes, name: str) -> Document:
    """The document of a workbook. What is hidden, and comments are left out, with a remark."""
    package = Package(data)
    main = package.related_as("", "officeDocument") or "xl/workbook.xml"
    book = _Book(package, main)
    draft, hidden_sheets, hidden = Draft(), 0, 0
    for one in descendants(package.xml(main), "sheets", "sheet"):
        kind, path = book.related.get(one.get("r:id", ""), ("", ""))
        if one.get("state", "visible") != "visible":
            hidden_sheets += 1
        elif kind == "worksheet" and path in package:
            hidden += write_sheet(draft, book.sheet(one.get("name", ""), path))
            book.comments += book.comments_of(path)
    remarks = [
        *left_out(hidden_sheets, "hidden sheet"),
        *left_out(hidden, "hidden row or column", "hidden rows or columns"),
        *left_out(book.comments, "comment"),
        *left_out(book.unknown, "formula without a value", "formulas without values"),
    ]
    return written_document(draft, name, MIME_TYPE, core_properties(package), remarks=remarks, title=name)


def write_embedded(draft: Draft, data: bytes) -> bool:
    """Write the worksheets of a workbook that lies in a document; False if it is no workbook."""
    try:
        document = parse(data, "")
    except ParseError:
        return False
    draft.document(document, sections=False)
    return True


class _Book:
    """What the sheets of a workbook share: texts, formats and the first day of its calendar."""

    def __init__(self, package: Package, main: str) -> None:
        self.related = package.related(main)
        self.unknown = self.comments = 0
        self._package = package
        about = child(package.xml(main), "workbookPr")
        self._since_1904 = about is not None and about.get("date1904") in {"1", "true"}
        self._formats = _formats(package.xml_if_there(package.related_as(main, "styles")))
        strings = package.related_as(main, "sharedStrings")
        self._strings = (
            [_text(one) for one in _elements(package, strings, "si")] if strings in package else []
        )

    def sheet(self, name: str, path: str) -> Sheet:
        """The sheet in a part of the package."""
        sheet = Sheet(name, boxes=self._boxes(self._package.related_as(path, "drawing")))
        number = 0
        for one in _elements(self._package, path, "row", "col", "mergeCell"):
            if one.tag == "row":
                number = _int(one.get("r", "")) or number + 1
                if one.get("hidden") in {"1", "true"}:
                    sheet.hidden_rows.add(number)
                if cells := self._cells(one):
                    sheet.rows[number] = cells
            elif one.tag == "col" and one.get("hidden") in {"1", "true"}:
                last = min(_int(one.get("max", "")), MAX_COLUMNS)
                sheet.hidden_columns.update(range(_int(one.get("min", "")), last + 1))
            elif one.tag == "mergeCell":
                sheet.merged += merged_cells(one.get("ref", ""))
        return sheet

    def comments_of(self, path: str) -> int:
        """How many comments the sheet in a part has. A thread is there twice, the second time as a note."""
        kinds = (("comments", "comment"), ("threadedComment", "threadedComment"))
        parts = (
            (self._package.xml_if_there(self._package.related_as(path, kind)), tag) for kind, tag in kinds
        )
        return max(sum(1 for _ in root.iter(tag)) if root is not None else 0 for root, tag in parts)

    def _boxes(self, path: str) -> list[tuple[int, int, str]]:
        """The texts of the shapes in a part, each with the row and the column of its corner."""
        root = self._package.xml_if_there(path)
        boxes = []
        for anchor in root if root is not None else ():
            for shape in anchor.iter("sp"):
                lines = (paragraph_text(one).strip() for one in descendants(shape, "txBody", "p"))
                place = child(anchor, "from")
                corner = {one.tag: _int(one.text or "") + 1 for one in (place if place is not None else ())}
                if text := "\n".join(filter(None, lines)):
                    boxes.append((corner.get("row", 1), corner.get("col", 1), text))
        return boxes

    def _cells(self, row: Element) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            match = _REFERENCE.fullmatch(cell.get("r", ""))
            column = column_number(match[1]) if match else column + 1
            if cell.tag == "c" and (text := self._cell(cell).strip()):
                cells[column] = text
        return cells

    def _cell(self, cell: Element) -> str:
        """What a cell shows."""
        written = next((part.text or "" for part in cell if part.tag == "v"), "")
        match cell.get("t", "n") if written else "":
            case "":
                inline = child(cell, "is")
                self.unknown += child(cell, "f") is not None
                return _text(inline) if inline is not None else ""
            case "s":
                at = _int(written)
                return self._strings[at] if at < len(self._strings) else ""
            case "b":
                return "TRUE" if written == "1" else "FALSE"
            case "n":
                return self._number(written, _int(cell.get("s", "")))
            case _:
                return _unescaped(written)

    def _number(self, written: str, style: int) -> str:
        form = self._formats[style] if style < len(self._formats) else ""
        try:
            return shown(float(written), form, since_1904=self._since_1904)
        except (ValueError, OverflowError):
            return written


def _elements(package: Package, path: str, *tags: str) -> Iterator[Element]:
    """The elements of a part with these names, with plain names, one after the other."""
    with closing(package.opened(path, MAX_ROWS_BYTES)) as part:
        try:
            for _, element in ET.iterparse(part):  # noqa: S314 as in `zipped.xml_root`
                simplify(element)
                if element.tag in tags:
                    yield element
                    element.clear()
        except (ET.ParseError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError) as error:
            raise ParseError(f"the file is damaged: its part {path} is not valid XML") from error


def _formats(styles: Element | None) -> list[str]:
    """The format of each style of cells."""
    if styles is None:
        return []
    own = {_int(one.get("numFmtId", "")): one.get("formatCode", "") for one in styles.iter("numFmt")}
    ids = [_int(one.get("numFmtId", "")) for one in descendants(styles, "cellXfs", "xf")]
    return [own.get(id_) or BUILT_IN.get(id_, "General") for id_ in ids]


def _text(item: Element) -> str:
    """The text of a shared or inline string, without its phonetic reading."""
    texts = [one for one in item if one.tag == "t"]
    texts += [text for run in item if run.tag == "r" for text in run if text.tag == "t"]
    return _unescaped("".join(one.text or "" for one in texts))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def merged_cells(reference: str) -> Iterator[tuple[int, int, int, int]]:
    """The first and last row and column of merged cells: "B2:B4" -> (2, 2, 4, 2)."""
    first, _, last = reference.partition(":")
    one, other = _REFERENCE.fullmatch(first), _REFERENCE.fullmatch(last)
    if one and other:
        yield int(one[2]), column_number(one[1]), int(other[2]), column_number(other[1])


def _int(written: str) -> int:
    return int(written) if written.isdecimal() and len(written) < 10 else 0  # noqa: PLR2004 digits
