"""The sheets of a spreadsheet as text: tables with header rows.

A blank row ends a table, unless the rows below it have the same columns and no header, perhaps with the name
of their group. So do a caption and a header row below figures. Tables side by side are read one after the
other if each has a header row and the right one isn't all values of the rows of the left one. A row with a
single cell above or between tables is a paragraph. Rows that are too wide for a line become a list of
`column: value`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rag.ingest.parse.document_draft import Draft
from rag.ingest.parse.document_parts import runs
from rag.text.plain_text import one_line
from rag.text.table_heads import (
    COVERED,
    grouped,
    has_figures,
    is_figure,
    is_header,
    named_figures,
    pipe_row,
    rule,
    with_spanned,
)
from rag.uris import cell_range, column_name

MAX_COLUMNS = 16_384  # of a sheet, as in Excel
_LOOKED_AT = 200  # rows that tell which one names the columns
MAX_HEADER = 300  # characters of a header row that is repeated with every part of its table
MAX_ROW = 900  # characters of a row on average; wider ones are lists
_CROSSES = frozenset(["", *"x✓✗✔✘●•-–—"])  # without brackets: "(x)", "[ ]"
MAX_CELL = 20_000  # characters: a program allows 32,767, and hostile files have more


@dataclass(slots=True)
class Sheet:
    """A sheet: the texts of its cells by row and column, from 1.

    `merged` has the first row and column and the last row and column of merged cells. `boxes` are the row,
    column and text of shapes on the sheet, `charts` the caption and the rows of each chart, without
    rows if its numbers are in visible cells.
    """

    name: str
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: set[int] = field(default_factory=set)
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    boxes: list[tuple[int, int, str]] = field(default_factory=list)
    charts: list[tuple[str, list[list[str]]]] = field(default_factory=list)


class _Row(NamedTuple):
    number: int
    cells: dict[int, str]


def write_sheet(draft: Draft, sheet: Sheet) -> None:
    """Write a sheet unless it is empty, and count its hidden rows and columns."""
    ends = _repeat_merged(sheet)  # before hidden rows go: a merged cell may begin in one
    draft.left_out["row"] += _remove_hidden(sheet)
    rows = [_Row(number, cells) for number, cells in sorted(sheet.rows.items()) if cells]
    if not (rows or sheet.boxes or sheet.charts):
        return
    draft.heading(sheet.name, 1)
    writer = _Writer(draft, ends)
    groups = runs(rows, lambda group, row: _are_beside(group[-1].number, row.number, sheet.hidden_rows))
    for group in groups:
        for columns in _side_by_side(group, sheet.hidden_columns):
            part = [
                _Row(row.number, {at: row.cells[at] for at in columns if at in row.cells}) for row in group
            ]
            for rows_of_table in _stacked([row for row in part if row.cells]):
                writer.table(rows_of_table)
    for row, column, text in sheet.boxes:
        draft.paragraph(text, cells=cell_range((row, column), (row, column)))
    for caption, chart in sheet.charts:
        draft.paragraph(caption)
        draft.table(chart)


def _repeat_merged(sheet: Sheet) -> dict[tuple[int, int], int]:
    """Repeat the text of a vertically merged cell in each of its rows, so that each row can be read alone.

    Returns the last columns of merged cells by each of their rows and their first column.
    """
    ends: dict[tuple[int, int], int] = {}
    for first_row, first, last_row, last in sheet.merged:
        if text := sheet.rows.get(first_row, {}).get(first, ""):
            for number in range(first_row, min(last_row, first_row + 1000) + 1):
                if number in sheet.rows:
                    sheet.rows[number].setdefault(first, text)
                    ends[number, first] = last
    return ends


def _remove_hidden(sheet: Sheet) -> int:
    rows = [number for number in sheet.hidden_rows if sheet.rows.pop(number, None)]
    columns = {at for row in sheet.rows.values() for at in row if at in sheet.hidden_columns}
    for row in sheet.rows.values():
        for at in columns & row.keys():
            del row[at]
    return len(rows) + len(columns)


def _are_beside(first: int, last: int, hidden: set[int]) -> bool:
    """Whether all rows or columns between two are hidden: these don't count as blank."""
    return all(number in hidden for number in range(first + 1, min(last, first + 2_000)))


def _side_by_side(group: list[_Row], hidden: set[int]) -> list[list[int]]:
    used = sorted({at for row in group for at in row.cells})
    tables: list[list[int]] = []
    for part in runs(used, lambda part, column: _are_beside(part[-1], column, hidden)):
        first = [group[0].cells.get(at, "") for at in part]
        if len(part) < 2 or not all(first) or not is_header(first):  # noqa: PLR2004 a table has two columns
            return [used]
        if tables and _are_values(group[1:], tables[-1][0], part):
            tables[-1] += part
        else:
            tables.append(part)
    return tables


def _are_values(rows: Sequence[_Row], label: int, part: Sequence[int]) -> bool:
    """Whether columns behind an empty one have values of what the `label` column names, and no names."""
    values = [row for row in rows if not row.cells.keys().isdisjoint(part)]
    columns = [[row.cells.get(at, "") for row in values] for at in (label, *part)]
    labels, *others = ([cell for cell in column if cell and not is_figure(cell)] for column in columns)
    return 0 < len(labels) == len(values) and all(2 * len({*words}) <= len(values) for words in others)


def _stacked(rows: list[_Row]) -> Iterator[list[_Row]]:
    """The tables in rows without a blank row: a caption and a header between rows of figures begin one.

    So does the header of figures below several rows with names and values.
    """
    columns = sorted({at for row in rows[:_LOOKED_AT] for at in row.cells})
    # Names with values above a table, such as a customer and a date, are a table of their own.
    start = named_figures(_texts(rows[:_LOOKED_AT], columns)) or 0
    pairs = [row.cells for row in rows[:start] if len(row.cells) > 1]
    no_labels = {None, rows[start].cells.get(columns[0])}  # a merged name of the first column heads groups
    if len(pairs) > 1 and no_labels.isdisjoint(cells.get(columns[0]) for cells in pairs):
        yield rows[:start]
    else:
        start = 0
    for at in range(start + 1, len(rows) - 2):  # a caption, a header and a row below it
        before, caption, header, first = rows[at - 1 : at + 3]
        is_caption = 2 * len(caption.cells) <= len(header.cells) and _names_columns(header)
        is_row = len(before.cells) == 1 or has_figures(before.cells.values())
        if is_caption and is_row and not _names_columns(first):
            yield rows[start:at]
            start = at
    yield rows[start:]


def _texts(rows: Iterable[_Row], columns: Sequence[int]) -> list[list[str]]:
    return [[row.cells.get(at, "") for at in columns] for row in rows]


def _names_columns(*rows: _Row) -> bool:
    """Whether the first row names columns of those below it, if any."""
    names, *below = _texts(rows, sorted(rows[0].cells))
    return is_header(names, below)


def _has_cross(row: _Row) -> bool:
    """Whether a row has a cell twice, or a sign as "(x)" or "✓" behind its first one, as no header has."""
    cells = [*row.cells.values()]
    signs = (cell.casefold().strip("()[] ") for cell in cells[1:])
    return len({*cells}) < len(cells) or not _CROSSES.isdisjoint(signs)


class _Writer:
    """Writes tables. `ends` has the last column of merged cells by row and first column."""

    def __init__(self, draft: Draft, ends: Mapping[tuple[int, int], int]) -> None:
        self._draft = draft
        self._ends = ends
        self._header: dict[int, str] = {}
        self._is_header_alone = False  # a blank row may follow the header

    def table(self, rows: list[_Row]) -> None:
        columns = sorted({at for row in rows for at in row.cells})
        continues = self._header.keys() >= set(columns) and self._continues(*rows[:_LOOKED_AT])
        if not continues:
            rows = self._write_captions(rows, columns)
        if not rows:
            return
        if continues:
            self._is_header_alone = False
        else:
            self._note_header(rows, columns)
        # Where a table goes on, also the columns that are empty here.
        self._write_rows(rows, sorted(self._header or columns), continues=continues)

    def _write_captions(self, rows: list[_Row], columns: list[int]) -> list[_Row]:
        below = deque(rows)  # a column alone can be a million rows above a table
        while below and (len(below[0].cells) == 1 or _names_groups(below)):
            upper = self._with_whole_groups(below.popleft(), columns)
            self._caption(upper, columns)
            if len(upper.cells) > 1:  # a column that it alone names has that name; above the first is a title
                with_names = {columns[0], *self._with_whole_groups(below[0], columns).cells}
                names = {at: text for at, text in upper.cells.items() if at not in with_names}
                below[0] = below[0]._replace(cells=names | below[0].cells)
        return [*below]

    def _note_header(self, rows: list[_Row], columns: list[int]) -> None:
        """Note the header of a table, and whether all its rows are below a blank one."""
        self._header = _header_of(rows, columns)
        header = [*self._header.values()]
        # Names that come twice are those of groups, and the header follows.
        is_row = len(rows) == 1 and len({*header} - {""}) == len(header)
        self._is_header_alone = is_row or (len(rows) == 2 and bool(grouped(*_texts(rows, columns))))  # noqa: PLR2004

    def _write_rows(self, rows: list[_Row], columns: list[int], *, continues: bool) -> None:
        above = [[*self._header.values()]] if continues else []
        texts = with_spanned([*above, *(self._texts(row, columns) for row in rows)])[len(above) :]
        lines = [*map(pipe_row, texts)]
        is_wide = len(pipe_row(self._header.values())) > MAX_HEADER or sum(map(len, lines)) > MAX_ROW * len(
            lines
        )
        if self._header and is_wide:  # a passage would hold few rows, and its header mostly
            first = 0 if continues else 1
            self._rows_as_lists(rows[first:], columns, texts[first:])
            return
        if self._header and not continues:
            lines[0] += f"\n{rule(len(columns))}"
        for row, line in zip(rows, lines, strict=True):
            self._draft.row(line, _cells(row, columns), continues=continues)
            continues = True

    def _texts(self, row: _Row, columns: Iterable[int]) -> list[str]:
        """The texts of a row in these columns, with `COVERED` where a merged cell goes on."""
        texts: list[str] = []
        end = 0
        for column in columns:
            if text := row.cells.get(column, "")[:MAX_CELL]:
                end = self._ends.get((row.number, column), column)
            texts.append(text or (COVERED if column <= end else ""))
        return texts

    def _with_whole_groups(self, row: _Row, columns: list[int]) -> _Row:
        """A row with the names of groups in each of their columns, so that no group goes on too far."""
        cells: dict[int, str] = {}
        name, end = "", 0
        for column in columns if len(row.cells) > 1 else ():
            if column in row.cells:
                name, end = row.cells[column], self._ends.get((row.number, column), column)
            if column <= end:  # a group ends where its merged cell does, not at the next name
                cells[column] = name
        return row._replace(cells=cells or row.cells)

    def _continues(self, row: _Row, *below: _Row) -> bool:
        """Whether rows after a blank row belong to the table above, perhaps with the name of their group."""
        is_below_table = bool(self._draft.blocks) and self._draft.blocks[-1].kind == "table"
        if not is_below_table:
            return False
        if len(row.cells) == 1:
            return self._names_group(row, below)
        is_named = _names_columns(row, *below[:1])
        if is_named and any(is_figure(next_.cells.get(at, "")) for next_ in below[:1] for at in row.cells):
            return False  # it is the header of other figures
        return self._is_header_alone or not is_named or _has_cross(row)

    def _names_group(self, row: _Row, below: Sequence[_Row]) -> bool:
        """Whether a row with a single cell is the name of rows that belong to the table above."""
        if not below or len(below[0].cells) == 1 or min(self._header) not in row.cells:
            return False
        are_long = any(2 * len(other.cells) > max(len(self._header), 4) for other in below)  # not pairs
        is_group = are_long or self._is_header_alone or _has_cross(below[0])
        return is_group and self._continues(*below)

    def _caption(self, row: _Row, columns: list[int]) -> None:
        if len(row.cells) == 1:
            text, (column,) = next(iter(row.cells.values())), row.cells
            self._draft.paragraph(text[:MAX_CELL], cells=_cells(row, [column]))
        else:
            line = pipe_row([row.cells.get(at, "")[:MAX_CELL] for at in columns])
            self._draft.row(line, _cells(row, columns), continues=False)

    def _rows_as_lists(
        self, rows: Sequence[_Row], columns: Sequence[int], texts: Sequence[Sequence[str]]
    ) -> None:
        for row, cells in zip(rows, texts, strict=True):
            lines = [
                f"{self._header.get(at) or f'column {column_name(at)}'}: {one_line(text)}"
                for at, text in zip(columns, cells, strict=True)
                if text
            ]
            self._draft.row("\n".join(lines), _cells(row, sorted(row.cells)), continues=False)


def _header_of(rows: list[_Row], columns: list[int]) -> dict[int, str]:
    """The names of the columns if the first row has them, else {}."""
    first = rows[0].cells
    if len(rows) == 1 and len(first) <= 2:  # noqa: PLR2004 a blank row may follow the header
        return {}
    names, *below = _texts(rows[:_LOOKED_AT], columns)
    is_named = is_header(names, below)
    return {at: one_line(first.get(at, "")) for at in columns} if is_named else {}


def _names_groups(rows: Sequence[_Row]) -> bool:
    """Whether the first row names groups of columns, and the second one the columns."""
    if len(rows) < 2 or not _names_columns(rows[1]):  # noqa: PLR2004 both
        return False
    return 2 * len(rows[0].cells) <= len(rows[1].cells)


def _cells(row: _Row, columns: list[int]) -> str:
    return cell_range((row.number, columns[0]), (row.number, columns[-1]))
