"""Excel (XLSX): the sheets in order, each cell as Excel shows it, formulas with their last values."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_draft import Draft, core_properties, document_of_draft, omission_remarks
from rag.ingest.parse.office.drawings_and_forms import ticked
from rag.ingest.parse.office.sheet_drawings import Control, listed_control, read_drawings
from rag.ingest.parse.office.sheets import BUILT_IN, Sheet, formatted, write_sheet
from rag.ingest.parse.typefaces import HEIGHTS, as_script, as_struck, with_scripts
from rag.ingest.parse.zip_package import (
    MAX_ROWS_BYTES,
    Package,
    child,
    descendants,
    is_on,
    simplify,
    value,
    whole_number,
)
from rag.uris import column_number

SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
MIME_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MAX_COLUMNS = 16_384  # of a sheet, as in Excel

MAX_ENTRIES = 1_000  # of a list from which something is chosen

_READ = frozenset({"worksheet", "chartsheet"})
_OBJECTS = frozenset({"oleObject", "package"})
_NO_SIZE = frozenset({"0", "0.0"})
_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?([1-9]\d{0,6})")
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")


def parse(data: bytes, name: str) -> Document:
    """The document of a workbook, without hidden content and comments; remarks count these."""
    package = Package(data)
    main = package.related_as("", "officeDocument") or "xl/workbook.xml"
    book = _Book(package, main)
    draft, hidden = Draft(), 0
    for name_, (kind, path) in book.visible.items():
        if kind in _READ and path in package:
            hidden += write_sheet(draft, book.sheet(name_, path))
            book.count_beside(path)
    remarks = [
        *omission_remarks(len(book.sheets) - len(book.visible), "hidden sheet"),
        *omission_remarks(hidden, "hidden row or column", "hidden rows or columns"),
        *omission_remarks(book.left_out["shape"], "hidden shape"),
        *omission_remarks(book.left_out["comment"], "comment"),
        *omission_remarks(book.left_out["chart"], "chart"),
        *omission_remarks(book.left_out["control"], "control of a form", "controls of forms"),
        *omission_remarks(book.left_out["object"], "embedded object"),
        *omission_remarks(book.unknown, "formula without a value", "formulas without values"),
    ]
    return document_of_draft(draft, name, MIME_TYPE, core_properties(package), remarks=remarks, title=name)


def write_embedded(draft: Draft, data: bytes) -> bool:
    """Write the worksheets of an embedded workbook; False if it isn't a workbook."""
    try:
        document = parse(data, "")
    except ParseError:
        return False
    draft.document(document, sections=False)
    return True


class _Book:
    """A workbook: what its sheets share, such as strings, formats and the calendar."""

    def __init__(self, package: Package, main: str) -> None:
        root, related = package.xml(main), package.related(main)
        listed = [*descendants(root, "sheets", "sheet")]
        paths = {sheet.get("name", ""): related.get(sheet.get("r:id", ""), ("", "")) for sheet in listed}
        self.sheets = paths
        visible_names = (
            sheet.get("name", "") for sheet in listed if sheet.get("state", "visible") == "visible"
        )
        self.visible = {name: paths[name] for name in visible_names}
        """Kind and path of the part of each sheet, by its name."""
        self.unknown = 0
        self.left_out = Counter[str]()
        self._package = package
        self._ranges = {
            name.get("name", ""): name.text or "" for name in descendants(root, "definedNames", "definedName")
        }
        self._lists: dict[str, Sheet] = {}
        about = child(root, "workbookPr")
        self._since_1904 = about is not None and about.get("date1904") in {"1", "true"}
        styles = package.xml_if_there(package.related_as(main, "styles"))
        self._formats = _formats(styles)
        self._boxes = _boxes(styles)
        self._struck = _struck(styles)
        strings = package.related_as(main, "sharedStrings")
        self._strings = (
            [_text(item) for item in _elements(package, strings, "si")] if strings in package else []
        )

    def sheet(self, name: str, path: str) -> Sheet:
        """The sheet at `path`, with the charts, boxes and controls on it."""
        sheet = self._cells_of(name, path)
        drawn = read_drawings(self._package, path, sheet.controls, self.visible)
        sheet.boxes, sheet.charts = drawn.boxes, drawn.charts
        for control in drawn.controls:
            cells = sheet.rows.setdefault(control.row, {})
            texts = (control.text, self._chosen_entries(control, sheet), cells.get(control.column, ""))
            cells[control.column] = " ".join(filter(None, texts))
        self.left_out += Counter(shape=drawn.hidden, chart=drawn.charts_left, control=drawn.controls_left)
        return sheet

    def _cells_of(self, name: str, path: str) -> Sheet:
        """A sheet without the drawings on it."""
        sheet, number = Sheet(name), 0
        for element in _elements(self._package, path, "row", "col", "mergeCell", "control"):
            if element.tag == "row":
                number = whole_number(element.get("r", "")) or number + 1
                if element.get("hidden") in {"1", "true"} or element.get("ht") in _NO_SIZE:
                    sheet.hidden_rows.add(number)
                if cells := self._cells(element):
                    sheet.rows[number] = cells
            elif element.tag == "control":
                sheet.controls.append(listed_control(element))
            elif element.tag == "col" and (
                element.get("hidden") in {"1", "true"} or element.get("width") in _NO_SIZE
            ):
                last = min(whole_number(element.get("max", "")), MAX_COLUMNS)
                sheet.hidden_columns.update(range(whole_number(element.get("min", "")), last + 1))
            elif element.tag == "mergeCell":
                sheet.merged += merged_cells(element.get("ref", ""))
        return sheet

    def _chosen_entries(self, control: Control, sheet: Sheet) -> str:
        """The chosen entries of a list control, which has entries of its own or takes them from cells."""
        entries = control.entries or self._range(control.source, sheet)
        return ", ".join(
            entries[at - 1] if at <= len(entries) else f"(entry {at} of a list)" for at in control.chosen
        )

    def _range(self, reference: str, sheet: Sheet) -> Sequence[str]:
        """The texts in a range of cells, row by row: "Lists!$A$1:$A$3", or a defined name."""
        name, _, cells = self._ranges.get(reference, reference).rpartition("!")
        name = name.strip("'").replace("''", "'")
        area = next(merged_cells(cells if ":" in cells else f"{cells}:{cells}"), None)
        if area is None:
            return ()
        if name and name != sheet.name:
            kind, path = self.sheets.get(name, ("", ""))
            if name not in self._lists and kind == "worksheet" and path in self._package:
                unknown = self.unknown
                self._lists[name], self.unknown = self._cells_of(name, path), unknown
            sheet = self._lists.get(name, Sheet(name))
        first_row, first, last_row, last = area
        rows = (
            sheet.rows.get(row, {}) for row in range(first_row, min(last_row, first_row + MAX_ENTRIES) + 1)
        )
        return [
            cells.get(at, "") for cells in rows for at in range(first, min(last, first + MAX_ENTRIES) + 1)
        ]

    def count_beside(self, path: str) -> None:
        """Count the comments and embedded objects of a sheet. Each thread is also stored as a note."""
        kinds = (("comments", "comment"), ("threadedComment", "threadedComment"))
        parts = (
            (self._package.xml_if_there(self._package.related_as(path, kind)), tag) for kind, tag in kinds
        )
        self.left_out["comment"] += max(sum(1 for _ in root.iter(tag)) for root, tag in parts)
        self.left_out["object"] += sum(kind in _OBJECTS for kind, _ in self._package.related(path).values())

    def _cells(self, row: Element) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            match = _REFERENCE.fullmatch(cell.get("r", ""))
            column = column_number(match[1]) if match else column + 1
            if cell.tag == "c" and (text := self._cell(cell).strip()):
                is_struck = whole_number(cell.get("s", "")) in self._struck
                cells[column] = f"~~{text}~~" if is_struck and "~~" not in text else text
        return cells

    def _cell(self, cell: Element) -> str:
        """The displayed text of a cell."""
        value = next((part.text or "" for part in cell if part.tag == "v"), "")
        match cell.get("t", "n") if value else "":
            case "":
                inline = child(cell, "is")
                self.unknown += child(cell, "f") is not None
                return _text(inline) if inline is not None else ""
            case "s":
                at = whole_number(value)
                return self._strings[at] if at < len(self._strings) else ""
            case "b" if whole_number(cell.get("s", "")) in self._boxes:
                return ticked(value == "1")
            case "b":
                return "TRUE" if value == "1" else "FALSE"
            case "n":
                return self._number(value, whole_number(cell.get("s", "")))
            case _:
                return _without_escapes(value)

    def _number(self, value: str, style: int) -> str:
        form = self._formats[style] if style < len(self._formats) else ""
        try:
            return formatted(float(value), form, since_1904=self._since_1904)
        except (ValueError, OverflowError):
            return value


def _elements(package: Package, path: str, *tags: str) -> Iterator[Element]:
    """The elements of a part with these tags, without namespaces. Each is cleared once the next is taken."""
    with closing(package.opened(path, MAX_ROWS_BYTES)) as part:
        try:
            for _, element in ET.iterparse(part):  # noqa: S314 as in `zip_package`
                simplify(element)
                is_place = element.tag in {"row", "col"} and (element.text or "").strip()  # of a control
                if element.tag in tags and not is_place:
                    yield element
                    element.clear()
        except (ET.ParseError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError) as error:
            raise ParseError(f"the file is damaged: its part {path} is not valid XML") from error


def _formats(styles: Element) -> list[str]:
    """The number format of each cell style."""
    custom_formats = {
        whole_number(number_format.get("numFmtId", "")): number_format.get("formatCode", "")
        for number_format in styles.iter("numFmt")
    }
    ids = [
        whole_number(cell_format.get("numFmtId", "")) for cell_format in descendants(styles, "cellXfs", "xf")
    ]
    return [custom_formats.get(id_) or BUILT_IN.get(id_, "General") for id_ in ids]


def _boxes(styles: Element) -> set[int]:
    """The cell styles that show TRUE and FALSE as a checkbox."""
    forms = enumerate(descendants(styles, "cellXfs", "xf"))
    return {at for at, form in forms if next(form.iter("xfComplement"), None) is not None}


def _struck(styles: Element) -> set[int]:
    """The cell styles that strike out what is in the cell."""
    fonts = {at for at, font in enumerate(descendants(styles, "fonts", "font")) if is_on(font, "strike")}
    forms = enumerate(descendants(styles, "cellXfs", "xf"))
    return {at for at, form in forms if whole_number(form.get("fontId", "")) in fonts}


def _text(item: Element) -> str:
    """The text of a shared or inline string, without its phonetic reading."""
    runs = [text.text or "" for text in descendants(item, "t")]
    for run in descendants(item, "r"):
        height = HEIGHTS.get(value(run, "rPr", "vertAlign"), 0)
        is_struck = is_on(run, "rPr", "strike")
        texts = (as_script(text.text or "", height) for text in descendants(run, "t"))
        runs += [as_struck(text, is_struck=is_struck) for text in texts]
    return with_scripts(_without_escapes("".join(runs)))


def _without_escapes(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def merged_cells(reference: str) -> Iterator[tuple[int, int, int, int]]:
    """The first and last row and column of merged cells: "B2:B4" -> (2, 2, 4, 2)."""
    first, _, last = reference.partition(":")
    top_left, bottom_right = _REFERENCE.fullmatch(first), _REFERENCE.fullmatch(last)
    if top_left and bottom_right:
        yield (
            int(top_left[2]),
            column_number(top_left[1]),
            int(bottom_right[2]),
            column_number(bottom_right[1]),
        )
