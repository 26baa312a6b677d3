"""The sheets of OpenDocument spreadsheets; a cell's text is what the program showed when it was saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse.office.open_text import repeated, times
from rag.ingest.parse.office.sheets import Sheet, write_sheet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from xml.etree.ElementTree import Element

    from rag.ingest.parse.office.open_text import Reader

MAX_COLUMNS = 16_384  # of a sheet
_SHAPES = frozenset({"frame", "custom-shape", "g", "rect", "ellipse"})
_GROUPS = frozenset({"table-header-rows", "table-rows", "table-row-group"})
_COLUMN_GROUPS = frozenset({"table-columns", "table-header-columns", "table-column-group"})


def read_sheets(reader: Reader, spreadsheet: Element) -> None:
    """Write the sheets that aren't hidden."""
    tables = [table for table in spreadsheet if table.tag == "table"]
    visible = [table for table in tables if not reader.style(table).hidden]
    reader.hidden["sheet"] += len(tables) - len(visible)
    names = {table.get("name", "") for table in visible}
    for table in visible:
        reader.hidden["row"] += write_sheet(reader.draft, _sheet(reader, table, names))


def _sheet(reader: Reader, table: Element, names: Collection[str]) -> Sheet:
    """A sheet; `names` are those of the sheets that are read."""
    objects = [
        held for shape in table.iter() if shape.tag in _SHAPES for held in shape if held.tag == "object"
    ]
    sheet = Sheet(table.get("name", ""))
    sheet.charts = [figure for held in objects for figure in reader.figures(held, names)]
    column = 1
    for one in _inside(table, "table-column", _COLUMN_GROUPS):
        count = min(times(one, "number-columns-repeated"), MAX_COLUMNS)
        if one.get("visibility", "visible") != "visible":
            sheet.hidden_columns.update(range(column, min(column + count, MAX_COLUMNS)))
        column += count
    sheet.boxes = [(1, 1, text) for one in table if one.tag == "shapes" if (text := reader.cell_text(one))]
    number = 1
    for row in _inside(table, "table-row", _GROUPS):
        cells = _cells(reader, sheet, row, number)
        for at in range(number, number + repeated(row, "number-rows-repeated")) if cells else ():
            sheet.rows[at] = dict(cells)
            if row.get("visibility", "visible") != "visible":
                sheet.hidden_rows.add(at)
        number += times(row, "number-rows-repeated")
    return sheet


def _inside(parent: Element, tag: str, groups: frozenset[str]) -> Iterator[Element]:
    for one in parent:
        if one.tag == tag:
            yield one
        elif one.tag in groups:
            yield from _inside(one, tag, groups)


def _cells(reader: Reader, sheet: Sheet, row: Element, number: int) -> dict[int, str]:
    cells: dict[int, str] = {}
    column = 1
    for one in row:
        if one.tag not in {"table-cell", "covered-table-cell"}:
            continue
        boxes = [shape for shape in one if shape.tag in _SHAPES]
        sheet.boxes += [(number, column, text) for shape in boxes if (text := reader.cell_text(shape))]
        for shape in boxes:
            one.remove(shape)
        if one.tag == "table-cell" and len(one) and (text := reader.cell_text(one)):
            for at in range(column, min(column + repeated(one, "number-columns-repeated"), MAX_COLUMNS)):
                cells[at] = text
            if (down := times(one, "number-rows-spanned")) > 1:
                across = times(one, "number-columns-spanned")
                sheet.merged.append((number, column, number + down - 1, column + across - 1))
        column += times(one, "number-columns-repeated")
    return cells
