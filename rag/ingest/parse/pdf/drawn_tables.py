"""The tables that rules draw on a PDF page: the lines of a cell become one, level with the rest of its row.

A cell's text is anywhere in it: at its top as Word places it, at its bottom as Excel does, or in the middle.
Only the rules say which lines belong together; in the middle, so does the order of the lines in the file.
`page_tables` reads the other tables.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple, TypeAlias

from rag.ingest.parse.document_parts import runs
from rag.ingest.parse.pdf.page_layout import (
    MEETING,
    WRAPPED,
    Row,
    joined_row,
    joined_rules,
    level_rows,
    with_next_line,
)
from rag.ingest.parse.pdf.page_tables import EDGE, heads, is_number, split_cell
from rag.ingest.parse.pdf.pdf_words import Line
from rag.ingest.parse.pdf.text_page import Box, box_around
from rag.ingest.parse.typefaces import TICKED, UNTICKED
from rag.text.table_heads import COVERED, SENTENCE_ENDS, with_spanned

_SAME = 2.5  # points: rules that are nearer are one, as the two borders of neighbouring cells
_MOST_RULES = 400  # of each direction on a page: more are a drawing
_MOST_CELLS = 10_000
_FEWEST = 2  # rows with at least as many cells that have text
_FILLED = 0.25  # share of the cells that have text at least: a chart has few words in its grid
_MANY_LINES = 4  # of a cell on average: boxes with more are paragraphs next to each other, unless they have
_MANY_ROWS = 3
_LEADING = 0.5  # times the height of a line: how far apart the lines of a cell are
_SAME_MIDDLE = 1.5  # points
_FARTHEST = 3.0  # times the height of a line: how far apart rows without rules are
_NAME = 6  # lines: the name of a column has fewer
_SEVERAL = 0.1  # share of cells in which texts stand side by side at most
_LONG_WORD = 5  # letters
_LETTER = 1.3  # times the usual width of a letter: one for which a line has no room
_FITTED = 0.5  # points: a column that is as wide as its longest word has no more room
_TICKS = {TICKED, UNTICKED}

_Slot: TypeAlias = "tuple[int, int]"
"""A row and a column of a grid."""
_Stacks: TypeAlias = "list[list[Line]]"
"""The lines of each cell of a row."""


def with_drawn_cells(lines: Sequence[Line], rules: Sequence[Box]) -> list[Line]:
    """The lines of a page, with one for each cell of each drawn table, also for empty cells.

    The lines of a table have its number from 1 as `table`. A cell over several rows stands in each of them,
    one over several columns in those with heads of their own.
    """
    level = joined_rules(rules)
    # Each pass takes lines of no table yet: drawn cells are certain, centred ones less, level rules least.
    lines = _with_centred_tables(_with_tables(lines, _grids(level, rules)))
    return _with_tables(lines, _ruled_rows(level, [line for line in lines if not line.table]))


def _with_tables(lines: Sequence[Line], grids: Iterable[_Grid]) -> list[Line]:
    outside, number = list(lines), max((line.table for line in lines), default=0)
    for drawn in grids:
        grid = _with_labels(drawn, outside)
        inside = {line for line in outside if not line.table and grid.contains(line)}
        cells, used = _cells_of(grid, sorted(inside, key=lambda line: line.order))  # a cell in file order
        if cells:
            number += 1
            outside = [line for line in outside if line not in used]
            outside += [cell._replace(table=number) for cell in cells]
    return outside


class _Grid(NamedTuple):
    """Rules that meet: where columns and rows begin and end, and the level and upright rules between them.

    They may part all rows, or only some. Cells are as wide as these say if the rules `are_drawn`.
    """

    xs: list[float]
    ys: list[float]
    level: list[Box]
    upright: list[Box]
    has_all_rows: bool = False
    are_drawn: bool = False

    def contains(self, line: Line) -> bool:
        """Whether the middle of a line is in it."""
        return line.box.is_inside(Box(self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]))

    def slot(self, line: Line) -> _Slot:
        """The row and column of a line that it contains, or nearly, where rules are one."""
        return _interval(self.ys, line.box.middle), _interval(self.xs, line.box.across)

    def first_cells(self) -> dict[_Slot, _Slot]:
        """The first row and column of the drawn cell at each row and column."""
        above, beside = defaultdict[int, list[Box]](list), defaultdict[int, list[Box]](list)
        for rule in self.level:
            above[_nearest(self.ys, rule.top)].append(rule)
        for rule in self.upright:
            beside[_nearest(self.xs, rule.left)].append(rule)
        first: dict[_Slot, _Slot] = {}
        over: list[int] = []
        for row, (top, bottom) in enumerate(pairwise(self.ys)):
            middle = (top + bottom) / 2
            begins = [0]
            for column in range(1, len(self.xs) - 1):
                is_parted = any(rule.top <= middle <= rule.bottom for rule in beside[column])
                begins.append(column if is_parted else begins[-1])
            for column, (left, right) in enumerate(pairwise(self.xs)):
                across = (left + right) / 2
                is_ruled_off = any(rule.left <= across <= rule.right for rule in above[row])
                # Only over the same columns: below a cell over two, these are cells of their own.
                goes_on = row and not is_ruled_off and _extent(begins, column) == _extent(over, column)
                first[row, column] = first[row - 1, column] if goes_on else (row, begins[column])
            over = begins
        return first


def _with_labels(grid: _Grid, lines: Iterable[Line]) -> _Grid:
    """The grid, with a column for what stands left of it: a label for each row but the first, and no more.

    Data sheets print the names of rows so beside the bits of a register.
    """
    beside = [
        line
        for line in lines
        if grid.are_drawn and line.box.right < grid.xs[0] and grid.ys[0] < line.box.middle < grid.ys[-1]
    ]
    rows = sorted(_interval(grid.ys, line.box.middle) for line in beside)
    if len(rows) < _FEWEST or rows != [*range(1, len(grid.ys) - 1)]:
        return grid
    if any(grid.xs[0] - line.box.right > _FARTHEST * line.box.height for line in beside):
        return grid
    left = min(line.box.left for line in beside) - 1
    level = [*grid.level, *(Box(left, y, grid.xs[0], y) for y in grid.ys)]
    side = Box(left, grid.ys[0], left, grid.ys[-1])
    return grid._replace(xs=[left, *grid.xs], level=level, upright=[side, *grid.upright])


def _extent(begins: Sequence[int], column: int) -> tuple[int, int]:
    """The first column of the cell in a column, and how many columns it spans."""
    return begins[column], begins.count(begins[column])


def _grids(level: Sequence[Box], rules: Sequence[Box]) -> Iterator[_Grid]:
    """The rules of a page that meet, of at least two rows and two columns."""
    upright = [_transposed(rule) for rule in joined_rules([_transposed(rule) for rule in rules])]
    if max(len(level), len(upright)) > _MOST_RULES:  # each is held against each other
        return
    groups: list[tuple[list[Box], list[Box]]] = []
    for rule in upright:
        crossed = [across for across in level if rule.grown(MEETING).touches(across)]
        met = [group for group in groups if not set(crossed).isdisjoint(group[0])]  # joined by this rule
        crossed += chain.from_iterable(across for across, _ in met)
        uprights = [rule, *chain.from_iterable(joined for _, joined in met)]
        groups = [group for group in groups if group not in met]
        groups.append(([*dict.fromkeys(crossed)], uprights))
    for across, uprights in groups:
        frame = box_around([*across, *uprights])  # a table may have no rule at its sides
        xs = _borders([frame.left, frame.right, *(rule.left for rule in uprights)])
        ends = (end for rule in uprights for end in (rule.top, rule.bottom))
        ys = _borders([frame.top, frame.bottom, *(rule.top for rule in across), *ends])
        # Two borders frame a single row or column: a box, and no table.
        if min(len(xs), len(ys)) > _FEWEST and len(xs) * len(ys) <= _MOST_CELLS:
            yield _Grid(xs, ys, across, uprights, are_drawn=True)


def _with_centred_tables(lines: Sequence[Line]) -> list[Line]:
    """The lines, with one for each cell of tables whose cells are in the middle of their rows, as on the web.

    The file has them cell by cell. Such tables need no rules.
    """
    outside = [*lines]
    in_file = sorted((line for line in lines if not line.table), key=lambda line: line.order)
    # Browsers draw no grid and centre cells: a phone number of two lines went half to the person above.
    for table in _centred_tables(runs(runs(in_file, _is_below), _is_beside)):
        width = max(map(len, table))
        full = [
            [box_around(line.box for line in stack) for stack in row] for row in table if len(row) == width
        ]
        columns = [box_around(boxes) for boxes in zip(*full, strict=True)]
        is_apart = all(column.right < following.left for column, following in pairwise(columns))
        if is_apart and len(full) > 1:  # one row of cells may be anything side by side
            inside = dict.fromkeys(line for row in table for stack in row for line in stack)
            # pdfium has short cells of a row in one line.
            pieces = [piece for line in inside for piece in split_cell(line, columns)]
            rows = [*map(_frame, table)]
            remaining = [line for line in outside if line not in inside]
            outside = _with_tables([*remaining, *pieces], [_grid_between(columns, rows)])
    return outside


def _is_below(stack: Sequence[Line], line: Line) -> bool:
    """Whether a line is right below those of a stack."""
    above, box = stack[-1].box, line.box
    return above.gap(box) < 0 and -1 < box.top - above.bottom < _LEADING * box.height


def _is_beside(row: _Stacks, stack: Sequence[Line]) -> bool:
    """Whether a stack is right of those of a row, and has their middle."""
    left, box = _frame(row[-1:]), _frame([stack])
    return box.left > left.right and abs(box.middle - left.middle) <= _SAME_MIDDLE


def _centred_tables(rows: Iterable[_Stacks]) -> Iterator[list[_Stacks]]:
    """Rows of several cells below each other, also with labels above the first column.

    In some rows, cells have more lines than others.
    """
    table: list[_Stacks] = []
    for row in chain(rows, [[]]):
        if row and table and _goes_on(table, row):
            table.append(row)
            continue
        while table and len(table[-1]) == 1:  # a label heads the rows below it, and below the last are none
            table.pop()
        # Only next to a cell of more lines are others centred: `page_tables` reads rows of one line each.
        if len(table) >= _MANY_ROWS and any(len({len(stack) for stack in cells}) > 1 for cells in table):
            yield table
        table = [row] if len(row) > 1 else []


def _goes_on(table: Sequence[_Stacks], row: _Stacks) -> bool:
    above, box = _frame(table[-1]), _frame(row)
    second = min(line.box.left for line in table[0][1])
    is_row = len(row) > 1 or box.right < second
    return is_row and -1 < box.top - above.bottom < _FARTHEST * row[0][0].box.height


def _frame(row: Iterable[Sequence[Line]]) -> Box:
    return box_around(line.box for stack in row for line in stack)


def _grid_between(columns: Sequence[Box], rows: Sequence[Box]) -> _Grid:
    """The grid with rules around and between columns and rows."""
    left, right = min(box.left for box in (*columns, *rows)), max(box.right for box in (*columns, *rows))
    xs = [left - 1, *((box.right + beside.left) / 2 for box, beside in pairwise(columns)), right + 1]
    ys = [
        rows[0].top - 1,
        *((box.bottom + below.top) / 2 for box, below in pairwise(rows)),
        rows[-1].bottom + 1,
    ]
    level = [Box(xs[0], y, xs[-1], y) for y in ys]
    return _Grid(xs, ys, level, [Box(x, ys[0], x, ys[-1]) for x in xs], has_all_rows=True)


def _ruled_rows(level: Sequence[Box], lines: Sequence[Line]) -> Iterator[_Grid]:
    """The tables without upright rules that have level ones between all rows."""
    ordered = sorted(lines, key=_middle)

    def goes_on(frame: Sequence[Box], rule: Box) -> bool:
        last = frame[-1]
        is_alike = max(abs(rule.left - last.left), abs(rule.right - last.right)) <= _SAME
        return is_alike and not _has_heading(ordered, last, rule)

    for frame in runs(level, goes_on):
        ys = _borders([rule.top for rule in frame])
        if len(ys) > _MANY_ROWS:
            left, right = frame[0].left, frame[0].right
            grid = _Grid([left, right], ys, frame, [])
            inside = [line for line in lines if grid.contains(line)]
            if inside and (gaps := _gaps(inside)) and _are_rows(inside, [left, *gaps, right], ys):
                upright = [Box(gap, ys[0], gap, ys[-1]) for gap in gaps]
                yield _Grid([left, *gaps, right], ys, frame, upright)


def _middle(line: Line) -> float:
    return line.box.middle


def _has_heading(ordered: Sequence[Line], above: Box, below: Box) -> bool:
    """Whether a line between two rules heads the row below it: it stands where this begins, and apart.

    The lines are in the order of their middles: a page may have thousands, and as many rules.
    """
    begin, end = (bisect_left(ordered, rule.top, key=_middle) for rule in (above, below))
    rows = level_rows([line for line in ordered[begin:end] if line.box.is_inside(above.around(below))])
    if len(rows) < _FEWEST or len(rows[0]) > 1 or len(rows[-1]) == 1:
        return False
    (heading,), row, last = rows[0], rows[1], rows[-1]
    is_apart = row[0].box.top - heading.box.bottom > _LEADING * heading.box.height
    return heading.box.left <= last[0].box.left + EDGE and (is_apart or heads(heading, last))


def _gaps(lines: Sequence[Line]) -> list[float]:
    """The middles of the empty strips between columns, which are wider than those between words."""
    gaps: list[float] = []
    ordered = sorted(lines, key=lambda line: line.box.left)
    reach, least = ordered[0].box.right, median(line.size for line in lines)
    for line in ordered:
        if line.box.left > reach + least:
            gaps.append((reach + line.box.left) / 2)  # only where no line at all stands across
        reach = max(reach, line.box.right)
    return gaps


def _are_rows(lines: Sequence[Line], xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Whether a single row is between two rules each.

    Half of its cells have one line, and the others don't consist of numbers.
    """
    grid = _Grid([*xs], [*ys], [], [])
    return all(_is_row([*cells.values()]) for cells in _bands(lines, grid.slot))


def _is_row(cells: Sequence[Sequence[Line]]) -> bool:
    wrapped = [cell for cell in cells if len(level_rows(cell)) > 1]
    has_numbers = any(all(is_number(line.text) for line in cell) for cell in wrapped)
    return 2 * len(wrapped) <= len(cells) and not has_numbers


def _transposed(box: Box) -> Box:
    return Box(box.top, box.left, box.bottom, box.right)


def _borders(values: Sequence[float]) -> list[float]:
    """Values in order, without those that are nearly the same as the one before."""
    borders: list[float] = []
    for value in sorted(values):
        if not borders or value - borders[-1] > _SAME:
            borders.append(value)
    return borders


def _interval(borders: Sequence[float], value: float) -> int:
    return min(max(bisect_right(borders, value) - 1, 0), len(borders) - 2)


def _nearest(borders: Sequence[float], value: float) -> int:
    at = min(bisect_left(borders, value), len(borders) - 1)
    return at - 1 if at and value - borders[at - 1] <= borders[at] - value else at


def _cells_of(grid: _Grid, lines: Sequence[Line]) -> tuple[list[Line], set[Line]]:
    """The cells of a drawn table, one for each row and column, and the lines that are in them.

    None if the grid is no table. Titles above the first row with two cells and notes below the last aren't
    in it.
    """
    grid = grid if grid.has_all_rows else _with_all_rows(_with_all_columns(grid, lines), lines)
    first = grid.first_cells()
    parts = _by_cell(grid, first, lines)
    counts = Counter(row for row, _ in parts)
    whole = sorted(row for row, count in counts.items() if count > 1)
    parts = {slot: part for slot, part in parts.items() if whole and whole[0] <= slot[0] <= whole[-1]}
    if not _is_table(parts) or _has_coarse_cell(first, parts):  # better read by its text than with wrong rows
        return [], set()
    return _placed_cells(grid, first, parts), {line for part in parts.values() for line in part}


def _placed_cells(
    grid: _Grid, first: Mapping[_Slot, _Slot], parts: Mapping[_Slot, Sequence[Line]]
) -> list[Line]:
    """The cells of a table, row by row: what begins there, or goes on from above or from the left.

    Nothing goes on from columns in which texts stand side by side in a cell: rules don't part all of these.
    """
    rows, columns = (sorted({*places}) for places in zip(*parts, strict=True))
    size = median(line.size for part in parts.values() for line in part)
    rooms = _rooms(grid, first, parts)
    texts = {slot: _cell(part, size, rooms[slot]) for slot, part in parts.items()}
    orders = defaultdict[int, list[int]](list)
    for (row, _), cell in texts.items():
        orders[row].append(cell.order)
    divided = {first[slot][1] for slot in parts if first[slot] != slot}
    cells: list[Line] = []
    for row in rows:
        blank = Line("", Box(0, 0, 0, 0), size, order=min(orders[row]))
        middle = (grid.ys[row] + grid.ys[row + 1]) / 2
        for column in columns:
            begin = first[row, column]
            goes_on = begin in texts and begin[1] not in divided
            beside = blank._replace(text=COVERED) if goes_on else blank
            cell = texts.get((row, column)) or (texts.get(begin, blank) if begin[1] == column else beside)
            box = Box(grid.xs[column] + 1, middle - size / 2, grid.xs[column + 1] - 1, middle + size / 2)
            cells.append(cell._replace(box=box))
    at = range(0, len(cells), len(columns))
    spread = with_spanned([[cell.text for cell in cells[begin : begin + len(columns)]] for begin in at])
    return [cell._replace(text=text) for cell, text in zip(cells, chain.from_iterable(spread), strict=True)]


def _by_cell(grid: _Grid, first: Mapping[_Slot, _Slot], lines: Sequence[Line]) -> dict[_Slot, list[Line]]:
    """The lines of each drawn cell, by its first row and column.

    A cell over several columns may have a text for each of them, as in a header without upright rules, or
    for one: this begins where such a text does, or is a number and ends there.
    """
    parts = defaultdict[_Slot, list[Line]](list)
    for line in lines:
        parts[first[grid.slot(line)]].append(line)
    several = {slot for slot, part in parts.items() if _has_several(part)}  # no rule parts their columns
    texts = [(line.box, grid.slot(line)[1]) for slot in several for line in parts[slot]]
    begins = {round(box.left): column for box, column in texts}
    ends = {round(box.right): column for box, column in texts}
    by_cell = defaultdict[_Slot, list[Line]](list)
    for (row, column), part in parts.items():
        # Data sheets lack the rule between MIN and TYP in some rows: a number ends where its header does.
        is_wide = first.get((row, column + 1)) == (row, column)
        for line in part:
            begin = begins.get(round(line.box.left), column) if is_wide else column
            if is_wide and begin == column and is_number(line.text):
                begin = ends.get(round(line.box.right), column)
            by_cell[row, grid.slot(line)[1] if (row, column) in several else begin].append(line)
    return by_cell


def _has_several(cell: Sequence[Line]) -> bool:
    return any(len(joined_row(row)) > 1 for row in level_rows(cell))


def _with_all_columns(grid: _Grid, lines: Sequence[Line]) -> _Grid:
    """The grid, divided between the columns that no rule parts, as MIN, TYP and MAX in data sheets.

    Each has a head in the first row, as all others do. Below two of them at least are texts, and none stands
    across.
    """
    first = grid.first_cells()
    slots = {line: first[grid.slot(line)] for line in lines}
    if not {first[0, column] for column in range(len(grid.xs) - 1)} <= {*slots.values()}:
        return grid
    columns = defaultdict[int, list[Line]](list)
    for line, slot in slots.items():
        if not _spans_columns(first, slot):
            columns[slot[1]].append(line)
    divided = grid
    for column, inside in columns.items():
        heads, *below = level_rows(inside)
        gaps = _gaps(inside)
        filled = {bisect_right(gaps, line.box.left) for row in below for line in row}
        if gaps and len(joined_row(heads)) == len(gaps) + 1 and len(filled) > 1:
            rows = [row for row in range(len(grid.ys) - 1) if first[row, column][1] == column]
            rows = [row for row in rows if not _spans_columns(first, (row, column))]
            rules = [Box(gap, grid.ys[row], gap, grid.ys[row + 1]) for gap in gaps for row in rows]
            divided = divided._replace(xs=sorted([*divided.xs, *gaps]), upright=[*divided.upright, *rules])
    return divided


def _spans_columns(first: Mapping[_Slot, _Slot], slot: _Slot) -> bool:
    row, column = slot
    return first.get((row, column + 1)) == first[slot]


def _with_all_rows(grid: _Grid, lines: Sequence[Line]) -> _Grid:
    """The grid, divided between the rows that no rule parts."""
    first = grid.first_cells()
    bands = _bands(lines, lambda line: first[grid.slot(line)])
    drawn = [*grid.level]
    with_text = len({column for cells in bands for column in cells})
    for cells in bands:
        if _are_several_rows([*cells.values()], with_text, grid):
            inside = level_rows([line for cell in cells.values() for line in cell])
            reach = [max(line.box.bottom for line in level) for level in inside]
            tops = [min(line.box.top for line in level) for level in inside]
            between = [(bottom + top) / 2 for bottom, top in zip(reach, tops[1:], strict=False)]
            drawn += [Box(grid.xs[0], y, grid.xs[-1], y) for y in between]
    return grid._replace(ys=_borders([*grid.ys, *(rule.top for rule in drawn)]), level=drawn)


def _bands(lines: Sequence[Line], slot: Callable[[Line], _Slot]) -> Collection[Mapping[int, Sequence[Line]]]:
    """The lines in each row of a grid, by the column of their cell."""
    bands = defaultdict[int, defaultdict[int, list[Line]]](lambda: defaultdict(list))
    for line in lines:
        row, column = slot(line)
        bands[row][column].append(line)
    return bands.values()


def _are_several_rows(cells: Sequence[Sequence[Line]], columns: int, grid: _Grid) -> bool:
    """Whether cells between two rules are several rows.

    One of several with more than one line has numbers, or all cells have as many, in most columns, and the
    texts in them don't run on. Or texts stand side by side in a cell, in several lines.
    """
    if any(len(level_rows(cell)) > _FEWEST and _has_several(cell) for cell in cells):
        return True
    counts = [len(level_rows(cell)) for cell in cells]
    wrapped = [cell for cell, count in zip(cells, counts, strict=True) if count > 1]
    has_numbers = any(all(is_number(line.text) for line in cell) for cell in wrapped)
    are_alike = len({*counts}) == 1 and 2 * len(wrapped) > columns
    return len(wrapped) > 1 and (has_numbers or (are_alike and not _run_on(grid, wrapped)))


def _run_on(grid: _Grid, cells: Iterable[Sequence[Line]]) -> bool:
    """Whether all cells are texts whose lines go on in the next ones, as there is no room for more words."""
    pairs = [
        (above[-1].text, below[0].text, _is_full(above, below[0], _room(grid, cell)))
        for cell in cells
        for above, below in pairwise(level_rows(cell))
    ]
    # Names and codes in several rows may fill a narrow column, too, but all begin alike.
    goes_on = any(
        above[:1].islower() < below[:1].islower() or is_number(above) < is_number(below)
        for above, below, _ in pairs
    )
    return goes_on and all(is_full or above.endswith(SENTENCE_ENDS) for above, _, is_full in pairs)


def _is_full(row: Row, below: Line, room: float) -> bool:
    """Whether a row of a cell has no room for a space and the first word of the line below it."""
    word = below.text.partition(" ")[0]
    width_of_word = below.box.width * (len(word) + 1) / len(below.text)
    return box_around(line.box for line in row).width + width_of_word > room


def _room(grid: _Grid, cell: Sequence[Line]) -> float:
    """How wide the lines of a cell may be, with as much space on their right as on their left."""
    box = box_around(line.box for line in cell)
    left = grid.xs[max(bisect_right(grid.xs, box.left) - 1, 0)]
    right = grid.xs[min(bisect_left(grid.xs, box.right), len(grid.xs) - 1)]
    return right + left - 2 * box.left


def _is_table(parts: Mapping[_Slot, Sequence[Line]]) -> bool:
    """Whether lines, given by the row and column of their cell, are a table, not a chart or a layout."""
    columns = {column for _, column in parts}
    rows = Counter(row for (row, _), part in parts.items() if not {line.text for line in part} <= _TICKS)
    lines = sum(map(len, parts.values()))
    if sum(map(_has_several, parts.values())) > _SEVERAL * len(parts):
        return False  # rules draw only some of the columns
    return (
        sum(count >= _FEWEST for count in rows.values()) >= _FEWEST
        and len(parts) >= _FILLED * len(rows) * len(columns)
        and (len(rows) >= _MANY_ROWS or lines <= _MANY_LINES * len(parts))
    )


def _has_coarse_cell(first: Mapping[_Slot, _Slot], parts: Mapping[_Slot, Sequence[Line]]) -> bool:
    """Whether a cell over several rows has a line for each of them: no rule parts these.

    The name of a column next to groups of columns spans two rows, and has some lines more than these.
    """
    rows = {row for row, _ in parts}
    spans = Counter(
        first[row, column] for row, column in first if row in rows and first[row, column][1] == column
    )
    return any(
        len(level_rows(part)) >= (spans[slot] if spans[slot] > _FEWEST else _NAME) and spans[slot] > 1
        for slot, part in parts.items()
        if len(part) > 1
    )


def _rooms(
    grid: _Grid, first: Mapping[_Slot, _Slot], parts: Mapping[_Slot, Sequence[Line]]
) -> dict[_Slot, float]:
    """How wide a line may be in each cell; infinite where that isn't known."""
    if not grid.are_drawn:
        return dict.fromkeys(parts, math.inf)
    margins = (line.box.left - grid.xs[column] for (_, column), part in parts.items() for line in part)
    both = 2 * max(min(margins), 0.0)
    ends = {begin: column + 1 for (_, column), begin in sorted(first.items())}
    return {slot: grid.xs[ends[first[slot]]] - grid.xs[slot[1]] - both for slot in parts}


def _cell(lines: Sequence[Line], size: float, room: float) -> Line:
    text, above = "", list[Line]()
    for row in level_rows(lines):
        words = " ".join(line.text for line in joined_row(row))
        if above and _may_be_cut(above, words, room):
            text += WRAPPED + words
        else:
            text = with_next_line(text, words) if text else words
        above = row
    bold = all(line.bold for line in lines)
    return Line(text, lines[0].box, size, bold, order=min(line.order for line in lines))


def _may_be_cut(row: Row, below: str, room: float) -> bool:
    """Whether a row of a cell is a word that may go on below, as there is no room for one more letter."""
    word, width = row[0].text, row[0].box.width
    is_word = len(row) == 1 and word.isalpha() and len(word) >= _LONG_WORD
    return is_word and below[:1].islower() and _FITTED < room - width < _LETTER * width / len(word)
