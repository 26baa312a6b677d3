"""Excel (XLSX): the sheets in order, each cell as Excel shows it, formulas with their last values.

The drawings on a sheet follow its cells: text boxes, pictures and charts. The values of form controls are
written into cells.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_draft import Draft, core_properties, document_of_draft
from rag.ingest.parse.office import drawings_and_forms
from rag.ingest.parse.office.number_formats import (
    BUILT_IN,
    WORKSHEETS,
    formatted,
    formatted_text,
    named_language,
)
from rag.ingest.parse.office.sheets import MAX_COLUMNS, Sheet, write_sheet
from rag.ingest.parse.typefaces import HEIGHTS, as_script, as_struck, ticked, with_scripts, with_symbols
from rag.ingest.parse.zip_package import (
    MAX_ROWS_BYTES,
    Package,
    as_link,
    child,
    descendants,
    is_on,
    simplify,
    value,
    whole_number,
    xml_root,
)
from rag.text.plain_text import one_line
from rag.uris import column_number, web_address

SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
MIME_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MAX_ENTRIES = 1_000  # of a list from which something is chosen
ROW_HEIGHT = 190_500  # EMU, of a usual row: a control belongs to the row of its middle

_READ = frozenset({"worksheet", "chartsheet"})
_OBJECTS = frozenset({"oleObject", "package"})
_NO_SIZE = frozenset({"0", "0.0"})
_TRUE = frozenset({"1", "true"})
_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?([1-9]\d{0,6})")
_MADE_LINK = re.compile(r'HYPERLINK\("([^"]{1,2000})"')
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ANCHORS = frozenset({"oneCellAnchor", "twoCellAnchor", "absoluteAnchor"})
_OPEN_TAG = re.compile(rb"<br\s*>")  # as Excel writes it in VML, which isn't XML then
_BOXES, _LISTS = frozenset({"checkbox", "radio"}), frozenset({"drop", "list"})
_LABELS = frozenset({"gbox", "label"})
_SHEET_OF_CELLS = re.compile(r"'((?:[^']|''){1,300})'!|([^'!(),:]{1,300})!")


def parse(data: bytes, name: str) -> Document:
    """The document of a workbook, without hidden content and comments; remarks count these."""
    package = Package(data)
    book = _Book(package, package.related_as("", "officeDocument") or "xl/workbook.xml")
    draft = Draft()
    for name_, (kind, path) in book.visible.items():
        if kind in _READ and path in package:
            write_sheet(draft, book.sheet(name_, path))
    draft.left_out += book.left_out
    return document_of_draft(draft, MIME_TYPE, core_properties(package), title=name)


def write_embedded(draft: Draft, package: Package, path: str) -> bool:
    """Write the worksheets of an embedded file; False if it is missing, isn't a workbook, or is empty."""
    try:
        document = parse(package.read(path), "")
    except ParseError:
        return False
    if document.blocks:
        draft.document(document, sections=False)
    return bool(document.blocks)


class _CellStyle(NamedTuple):
    """A number format, whether TRUE is shown as a checkbox, the font, and whether it strikes out."""

    form: str = ""
    is_box: bool = False
    font: str = ""
    is_struck: bool = False


class _String(NamedTuple):
    """A text, and whether it is in a font of its own, not in that of its cell."""

    text: str = ""
    has_font: bool = False


class _ListedControl(NamedTuple):
    """A control as its sheet lists it: the ids of its shape and part, and its cell (row 0: unknown)."""

    id: str
    part: str = ""
    row: int = 0
    column: int = 0


class _Book:
    """A workbook: what its sheets share, such as strings, formats and the calendar."""

    def __init__(self, package: Package, main: str) -> None:
        root, related = package.xml(main), package.related(main)
        listed = [*descendants(root, "sheets", "sheet")]
        self.sheets = {
            sheet.get("name", ""): related.get(sheet.get("r:id", ""), ("", "")) for sheet in listed
        }
        """Kind and path of the part of each sheet, by its name."""
        visible = (sheet.get("name", "") for sheet in listed if sheet.get("state", "visible") == "visible")
        self.visible = {name: self.sheets[name] for name in visible}
        self.left_out = Counter(sheet=len(self.sheets) - len(self.visible))
        self._package = package
        self._ranges = {
            name.get("name", ""): name.text or "" for name in descendants(root, "definedNames", "definedName")
        }
        self._lists: dict[str, Sheet] = {}
        about = child(root, "workbookPr")
        self._since_1904 = about is not None and about.get("date1904") in _TRUE
        self._styles = _cell_styles(package.related_xml(main, "styles"))
        self._language = _language(package, self._styles)
        strings = package.related_as(main, "sharedStrings")
        self._strings = (
            [_string(item) for item in _elements(package, strings, "si")] if strings in package else []
        )

    def sheet(self, name: str, path: str) -> Sheet:
        """The sheet at `path`, with the charts, boxes and controls on it."""
        sheet, listed = self._cells_of(name, path)
        self._draw(sheet, path, listed)
        self._count_beside(path)
        return sheet

    def _cells_of(self, name: str, path: str) -> tuple[Sheet, list[_ListedControl]]:
        """A sheet without the drawings on it, and the controls that it lists."""
        sheet, listed, number = Sheet(name), list[_ListedControl](), 0
        addresses = self._package.addresses(path)
        for element in _elements(self._package, path, "row", "col", "mergeCell", "control", "hyperlink"):
            if element.tag == "row":
                number = whole_number(element.get("r", "")) or number + 1
                if element.get("hidden") in _TRUE or element.get("ht") in _NO_SIZE:
                    sheet.hidden_rows.add(number)
                if cells := self._cells(element):  # hidden ones, too: a chart or a list may draw from them
                    sheet.rows[number] = cells
            elif element.tag == "control":
                anchor = next(element.iter("anchor"), None)
                cell = _cell(anchor) if anchor is not None else (0, 0)
                listed.append(_ListedControl(element.get("shapeId", ""), element.get("r:id", ""), *cell))
            elif element.tag == "mergeCell":
                sheet.merged += merged_cells(element.get("ref", ""))
            elif element.tag == "hyperlink":  # all of them follow the rows
                match = _REFERENCE.match(element.get("ref", ""))
                row, column = (int(match[2]), column_number(match[1])) if match else (0, 0)
                if text := sheet.rows.get(row, {}).get(column, ""):
                    sheet.rows[row][column] = as_link(text, addresses.get(element.get("r:id", ""), ""))
            elif element.get("hidden") in _TRUE or element.get("width") in _NO_SIZE:
                last = min(whole_number(element.get("max", "")), MAX_COLUMNS)
                sheet.hidden_columns.update(range(whole_number(element.get("min", "")), last + 1))
        return sheet, listed

    def _cells(self, row: Element) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            match = _REFERENCE.fullmatch(cell.get("r", ""))
            column = column_number(match[1]) if match else column + 1
            if cell.tag != "c":
                continue
            at = whole_number(cell.get("s", ""))
            style = self._styles[at] if at < len(self._styles) else _CellStyle()
            if text := _linked(self._cell_text(cell, style).strip(), cell):
                cells[column] = f"~~{text}~~" if style.is_struck and "~~" not in text else text
        return cells

    def _cell_text(self, cell: Element, style: _CellStyle) -> str:
        value = next((part.text or "" for part in cell if part.tag == "v"), "")
        match cell.get("t", "n") if value else "":
            case "":
                inline = child(cell, "is")
                # A formula without a value was written by a program that doesn't calculate.
                self.left_out["formula"] += child(cell, "f") is not None
                return _shown(_string(inline), style) if inline is not None else ""
            case "s":
                at = whole_number(value)
                return _shown(self._strings[at], style) if at < len(self._strings) else ""
            case "b":
                is_true = value == "1"
                return ticked(is_true) if style.is_box else str(is_true).upper()
            case "n":
                return with_symbols(self._number(value, style.form), style.font)
            case "str":
                return _shown(_String(_without_escapes(value)), style)
            case _:
                return _without_escapes(value)

    def _number(self, value: str, form: str) -> str:
        try:
            return formatted(float(value), form, since_1904=self._since_1904, language=self._language)
        except (ValueError, OverflowError):
            return value

    def _draw(self, sheet: Sheet, path: str, listed: Sequence[_ListedControl]) -> None:
        drawing = self._package.related_as(path, "drawing")
        root = self._package.xml_if_there(drawing)
        labels = {
            id_: text
            for shape in root.iter("sp")
            if (text := _shape_text(shape)) and (id_ := next(shape.iter("cNvPr"), shape).get("id", ""))
        }
        ids = self._write_controls(sheet, path, listed, labels)  # first: they are drawn like shapes, too
        for anchor in (part for part in root.iter() if part.tag in _ANCHORS):
            about = next(anchor.iter("cNvPr"), anchor)
            if about.get("id") in ids:
                continue
            if about.get("hidden") in _TRUE:
                self.left_out["shape"] += 1
                continue
            texts = [*map(_shape_text, anchor.iter("sp")), *drawings_and_forms.picture_words(anchor)]
            for diagram in anchor.iter("relIds"):
                texts += drawings_and_forms.diagram_lines(
                    self._package.target_xml(drawing, diagram.get("r:dm", ""))
                )
            sheet.boxes += [(*_cell(anchor), text) for text in texts if text]
            for chart in anchor.iter("chart"):
                self._add_chart(sheet, self._package.target_xml(drawing, chart.get("r:id", "")))

    def _add_chart(self, sheet: Sheet, root: Element) -> None:
        """Add the rows of a chart, or only its name if its numbers are in visible sheets."""
        caption, rows = drawings_and_forms.chart_rows(root)
        formulas = [formula.text or "" for formula in root.iter("f")]
        sources = {
            match[1] or match[2] for formula in formulas for match in _SHEET_OF_CELLS.finditer(formula)
        }
        if not rows or (sources and sources <= self.visible.keys()):  # its numbers would be found twice
            series = ", ".join(dict.fromkeys(filter(None, rows[0]))) if rows else ""
            name = one_line(": ".join(filter(None, (caption, series))))
            caption, rows = f"(chart: {name})" if name else "", []
        if caption or rows:
            sheet.charts.append((caption, rows))
        else:
            self.left_out["chart"] += 1

    def _write_controls(
        self, sheet: Sheet, path: str, listed: Sequence[_ListedControl], labels: Mapping[str, str]
    ) -> set[str]:
        related = self._package.related(path)
        drawn = dict(_drawn_controls(self._package, path))
        places = {control.id: control for control in reversed(listed)} | {
            control.id: control for control in reversed(listed) if control.row
        }
        for id_, control in places.items():
            label, is_hidden = drawn.get(id_, ("", False))
            if related.get(control.part, ("", ""))[0] == "control":  # of ActiveX, whose state isn't text
                self.left_out["control"] += 1
            elif is_hidden:
                self.left_out["shape"] += 1
            else:
                state = _state(self._package.target_xml(path, control.part))
                cell = (control.row or 1, control.column or 1)
                self._write_control(sheet, state, labels.get(id_) or label, *cell)
        self.left_out["control"] += len(drawn.keys() - places.keys())  # before Excel 2010
        return {*places, *drawn}

    def _write_control(
        self, sheet: Sheet, state: Mapping[str, str], label: str, row: int, column: int
    ) -> None:
        """Write a checkbox, list or label before the text of its cell; nothing of other controls."""
        kind = state.get("objectType", "").casefold()
        if kind in _BOXES:
            texts = [ticked(state.get("checked") in {"Checked", "1"}), label]
        elif kind in _LISTS:
            texts = [label, self._chosen_entries(state, sheet)]
        elif kind in _LABELS and label:
            texts = [label]
        else:
            return
        cells = sheet.rows.setdefault(row, {})
        cells[column] = " ".join(filter(None, (*texts, cells.get(column, ""))))

    def _chosen_entries(self, state: Mapping[str, str], sheet: Sheet) -> str:
        """The chosen entries of a list control, which has entries of its own or takes them from cells."""
        numbers = [state.get("sel", ""), *state.get("multiSel", "").replace(" ", "").split(",")]
        chosen = dict.fromkeys(filter(None, (whole_number(number.strip()) for number in numbers)))
        listed = [*filter(None, state.get("entries", "").split("\n"))]
        entries = listed or self._range(state.get("fmlaRange", ""), sheet)
        return ", ".join(
            entries[at - 1] if at <= len(entries) else f"(entry {at} of a list)" for at in chosen
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
                unknown = self.left_out["formula"]  # a sheet read for its list alone isn't counted
                self._lists[name], self.left_out["formula"] = self._cells_of(name, path)[0], unknown
            sheet = self._lists.get(name, Sheet(name))
        first_row, first, last_row, last = area
        rows = (
            sheet.rows.get(row, {}) for row in range(first_row, min(last_row, first_row + MAX_ENTRIES) + 1)
        )
        return [
            cells.get(at, "") for cells in rows for at in range(first, min(last, first + MAX_ENTRIES) + 1)
        ]

    def _count_beside(self, path: str) -> None:
        """Count the comments and embedded objects of a sheet. Each thread is also stored as a note."""
        kinds = (("comments", "comment"), ("threadedComment", "threadedComment"))
        parts = ((self._package.related_xml(path, kind), tag) for kind, tag in kinds)
        self.left_out["comment"] += max(sum(1 for _ in root.iter(tag)) for root, tag in parts)
        self.left_out["object"] += sum(kind in _OBJECTS for kind, _ in self._package.related(path).values())


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


def _language(package: Package, styles: Iterable[_CellStyle]) -> str:
    """The language of the program that saved a workbook last, whose notation people see; "" if unknown.

    Excel in Spanish is one for Spain and Mexico, whose notations differ: formats may name the country.
    """
    names = (text.text or "" for text in package.xml_if_there("docProps/app.xml").iter("lpstr"))
    of_excel = (WORKSHEETS[name] for name in names if name in WORKSHEETS)
    of_program = next(of_excel, core_properties(package).language)
    of_formats = named_language(style.form for style in styles)
    return of_formats if of_formats.startswith(of_program) else of_program


def _cell_styles(styles: Element) -> list[_CellStyle]:
    custom = {
        whole_number(number_format.get("numFmtId", "")): number_format.get("formatCode", "")
        for number_format in styles.iter("numFmt")
    }
    fonts = [(value(font, "name"), is_on(font, "strike")) for font in descendants(styles, "fonts", "font")]
    cell_styles = []
    for cell_format in descendants(styles, "cellXfs", "xf"):
        id_ = whole_number(cell_format.get("numFmtId", ""))
        form = custom.get(id_) or BUILT_IN.get(id_, "General")
        is_box = next(cell_format.iter("xfComplement"), None) is not None
        at = whole_number(cell_format.get("fontId", ""))
        cell_styles.append(_CellStyle(form, is_box, *(fonts[at] if at < len(fonts) else ())))
    return cell_styles


def _linked(text: str, cell: Element) -> str:
    """The text of a cell, with the address if its formula makes a link: HYPERLINK("https://…", "Form")."""
    formula = next((part.text or "" for part in cell if part.tag == "f"), "")
    match = _MADE_LINK.match(formula)
    return as_link(text, web_address(match[1]) or "") if match else text


def _shown(string: _String, style: _CellStyle) -> str:
    text = formatted_text(string.text, style.form)
    return text if string.has_font else with_symbols(text, style.font)


def _string(item: Element) -> _String:
    """A shared or inline string, without its phonetic reading."""
    runs = [text.text or "" for text in descendants(item, "t")]
    for run in descendants(item, "r"):
        height = HEIGHTS.get(value(run, "rPr", "vertAlign"), 0)
        is_struck = is_on(run, "rPr", "strike")
        font = value(run, "rPr", "rFont")
        texts = (with_symbols(text.text or "", font) for text in descendants(run, "t"))
        runs += [as_struck(as_script(text, height), is_struck=is_struck) for text in texts]
    has_font = any(True for _ in descendants(item, "r", "rPr", "rFont"))
    return _String(with_scripts(_without_escapes("".join(runs))), has_font)


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


def _state(properties: Element) -> dict[str, str]:
    """The state of a control, from its own part."""
    entries = "\n".join(one_line(item.get("val", "")) for item in properties.iter("item"))
    return properties.attrib | {"entries": entries}


def _drawn_controls(package: Package, path: str) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The controls among the VML shapes of a sheet: id; label and whether it is hidden. Others are notes."""
    try:
        data = package.read(package.related_as(path, "vmlDrawing"))
        root = xml_root(_OPEN_TAG.sub(b"<br/>", data), "")
    except ParseError:
        return
    for shape in root.iter("shape"):
        about = child(shape, "ClientData")
        if about is not None and about.get("ObjectType", "Note").casefold() in _BOXES | _LISTS | _LABELS:
            label = " ".join("".join(box.itertext()) for box in shape.iter("textbox"))
            id_ = shape.get("spid", "") or shape.get("id", "")
            is_hidden = "visibility:hidden" in shape.get("style", "").replace(" ", "")
            yield id_.rpartition("_s")[2], (one_line(label), is_hidden)


def _cell(anchor: Element) -> tuple[int, int]:
    """The row and column of an anchor: the row of its middle if it is about one row high."""
    first, last = (
        {part.tag: whole_number((part.text or "").strip()) for part in (corner if corner is not None else ())}
        for corner in (child(anchor, "from"), child(anchor, "to"))
    )
    row = first.get("row", 0)
    middle = (row + last.get("row", row)) / 2 + (
        first.get("rowOff", 0) + last.get("rowOff", 0)
    ) / 2 / ROW_HEIGHT
    is_low = last.get("row", row) - row <= 1
    return (int(middle) if is_low else row) + 1, first.get("col", 0) + 1


def _shape_text(shape: Element) -> str:
    lines = map(drawings_and_forms.paragraph_text, descendants(shape, "txBody", "p"))
    return "\n".join(filter(None, map(str.strip, lines)))
