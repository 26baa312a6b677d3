"""The tables of a PDF page: rows whose cells are aligned in columns, and cells that rules draw.

Vertical words are column headers where they are side by side above the columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain, pairwise
from statistics import median

from rag.ingest.parse.pdf.page_layout import Row, level_rows, reads_on, with_next_line
from rag.ingest.parse.pdf.pdf_words import SEAM, Line, rules_between
from rag.ingest.parse.pdf.shown_letters import RULE_WIDTH
from rag.ingest.parse.pdf.text_page import Box, as_read, box_around

MOST_INDENT = 4.0  # times the size of the letters: further in stands something else than a paragraph
OTHER_SIZE = 1.06  # times the size of the letters before
_CELLS = 6  # at least, of what is taken for a table: three rows of two, or two of three
_RULED_CELLS = 3  # the same, if rules frame it
_LONG = 90  # characters: cells of a table are shorter on average
_SENTENCE = 20  # characters of a cell that may be a part of a sentence
EDGE = 1.0  # points: the cells of a column begin or end so near to each other
_ELSEWHERE = 3.0  # times the largest distance of two rows: further below stands no row of the table
_ABOVE = 1.5  # times the distance of the next two rows: how far above a table another row stands
_TOGETHER = 1.15  # times the least distance of two lines of a table: lines of one row are no further apart
_NEAR = 3.0  # times the size of the letters: how far from a drawn table its rows without rules stand
_AS_FAR = 0.95  # times the usual distance of two rows: nearer lines are of one cell
_SIGNS, _SIGN_GAP = "$£", 0.4  # before their number; times the size of the letters: more than a space
_MOST_ABOVE = 200  # rows of the table that are compared: no page that one prints has more
_WRAPPED = 1.6  # times the height of a line: how far below it a cell goes on

_CURRENCY = r"(?:[$£€¥₹₽₩₺]|[A-Z]{3}|kr\.?|zł|Kč|Ft|Fr\.)"
_NUMBER = re.compile(rf"[(\-+–—]*(?:{_CURRENCY}\s?)?[\-+–—]?[\d.,'\s]*\d[\d.,'\s]*{_CURRENCY}?[)%]*|[–—-]")
_TEXTS = re.compile(rf"[^ {SEAM}]+[ {SEAM}]?")
_HEADING_NUMBER = re.compile(r"(?:[A-Z]\.)?\d{1,2}(?:\.\d{1,2})*\.?")
_STATED = re.compile(r":\s*\S")
_YEAR = re.compile(rf"(?:\d{{1,2}}\.\d{{1,2}}\.)?(?:1[5-9]|20)\d\d(?:\s{_CURRENCY})?")  # also a day, a unit


def is_number(text: str) -> bool:
    """Whether a text is a number, an amount of money or a dash for none."""
    return _NUMBER.fullmatch(text) is not None


def are_numbers(row: Sequence[str]) -> bool:
    """Whether most cells after the first are numbers, as in the rows below a header."""
    filled = [cell for cell in row[1:] if cell]
    numbers = [cell for cell in filled if is_number(cell) and not _YEAR.fullmatch(cell)]
    return 2 * len(numbers) > len(filled)


def table_end(rows: Sequence[Row], at: int) -> int:
    """The end of the rows from `at` that have several cells, or one cell that continues a row."""
    end, first_cell_end = at + 1, rows[at][0].box.right
    if rows[at][0].table:
        return _drawn_end(rows, at)
    # Neither a heading nor a line of an invoice above its items may become the header of the table.
    if end < len(rows) and (_is_heading(rows[at], rows[end]) or _is_above_table(rows[at : at + 3])):
        return end
    farthest = 0.0
    while end < len(rows) and len(rows[at]) > 1:
        row, above = rows[end], rows[end - 1]
        pitch = row[0].box.middle - above[0].box.middle
        if pitch > _ELSEWHERE * farthest > 0:  # another table, or text, after a gap
            break
        farthest = max(farthest, pitch)  # not the usual one: rows of several lines are further apart
        near = row[0].box.top - above[0].box.bottom < _WRAPPED * above[0].box.height
        if row[0].table:
            fitting = all(_fits(above, row) for above in rows[at:end]) and pitch < _NEAR * row[0].size
            return _drawn_end(rows, end) if fitting else end
        is_behind = row[0].box.left > first_cell_end and not row[0].runs_left
        if len(row) == 1 and not (near and is_behind and not _is_heading_below(rows[end - 1 : end + 2])):
            # A single cell at the left is a label of the rows below, or prose that ends the table.
            if not (wrapped := _wrapped_first_cell(rows, at, end)):
                break
            end += wrapped
            continue
        if _is_heading(row, above):  # LaTeX and Word set its number apart, like a cell
            break
        first_cell_end = row[0].box.right if len(row) > 1 else first_cell_end
        end += 1
    return end


def _drawn_end(rows: Sequence[Row], at: int) -> int:
    """The end of the rows of a drawn table, with those right below it whose cells are in its columns."""
    end, drawn = at, rows[at]
    while end < len(rows) and rows[end][0].table and _has_same_columns(rows[end], drawn):
        end += 1
    while end < len(rows) and len(rows[end]) > 1 and _fits(rows[end], drawn):
        if rows[end][0].box.middle - rows[end - 1][0].box.middle > _NEAR * rows[end][0].size:
            break
        end += 1
    return end


def _has_same_columns(row: Row, drawn: Row) -> bool:
    """Whether two rows are of one drawn table, or of two that are its header and its body."""
    return len(row) == len(drawn) and all(
        abs(cell.box.left - column.box.left) <= EDGE for cell, column in zip(row, drawn, strict=True)
    )


def _fits(row: Row, drawn: Row) -> bool:
    """Whether each cell of a row without rules is in a column of its own of a drawn table."""
    places = [
        [
            at
            for at, column in enumerate(drawn)
            if column.box.left - EDGE <= cell.box.left and cell.box.right <= column.box.right + EDGE
        ]
        for cell in row
    ]
    return not row[0].table and all(places) and len({at for at, *_ in places}) == len(row)


def _wrapped_first_cell(rows: Sequence[Row], at: int, begin: int) -> int:
    """The number of rows from `begin` that have only a first cell of the table that begins with row `at`.

    They are close to each other, and a row of the table follows. They begin where its first cell does, or
    somewhat further left, and end before its second one, unless it certainly follows; larger ones head it.
    """
    end = next((end for end in range(begin, len(rows)) if len(rows[end]) > 1), 0)
    close = pairwise(rows[begin - 1 : end + 1])
    is_close = all(row[0].box.top - last[0].box.bottom < _WRAPPED * last[0].box.height for last, row in close)
    if not end or not is_close or any(row[0].table or row[0].runs_left for row in rows[begin : end + 1]):
        return 0
    above = [rows[at], *rows[max(at + 1, end - _MOST_ABOVE) : end + 1]]
    whole, labels = [row for row in above if len(row) > 1], [row[0] for row in rows[begin:end]]
    cell = whole[-1][0]
    lefts = (behind.box.left for row in whole for behind in row if behind.box.left > cell.box.right)
    second = min(lefts, default=0.0)
    if len(labels) == 1 and _goes_on_below(whole[:-1], whole[-1]):  # a label may be wider than its column
        second = math.inf
    if not all(_may_be_label(label, cell, second) for label in labels):
        return 0
    left = min(row[0].box.left for row in whole[:-1])
    # Otherwise it hangs below an entry, as in a list of references, and is prose.
    is_below = any(abs(left - line.box.left) <= EDGE for line in (cell, *labels))
    return end - begin if is_below or _is_header_of(whole[0], whole[-1]) else 0


def _goes_on_below(rows: Sequence[Row], below: Row) -> bool:
    """Whether a row below a label has numbers, and a column of its own in the widest of `rows` for each cell.

    It has three cells at least, and the first ones of both begin at the same place.
    """
    columns = [cell.box for cell in max(rows, key=len)]
    columns_below = {
        _column(cell, columns) for cell in below if any(cell.box.gap(column) < 0 for column in columns)
    }
    return (
        abs(below[0].box.left - columns[0].left) <= EDGE
        and len(columns_below) == len(below) > 2  # noqa: PLR2004 of two cells, either may stand there by chance
        and any(is_number(cell.text) for cell in below[1:])
    )


def _may_be_label(label: Line, cell: Line, second: float) -> bool:
    """Whether a line heads rows of a table whose first cell is `cell`, and whose second is at `second`."""
    indent = cell.box.left - label.box.left
    is_as_large = label.size <= OTHER_SIZE * cell.size
    return -EDGE <= indent <= MOST_INDENT * label.size and label.box.right < second and is_as_large


def _is_header_of(row: Row, below: Row) -> bool:
    """Whether a row begins right of the first cell of another one, and most of its cells are over others."""
    over = [any(cell.box.gap(header.box) < 0 for cell in below[1:]) for header in row]
    return row[0].box.left > below[0].box.right and 2 * sum(over) > len(over)


def _is_above_table(rows: Sequence[Row]) -> bool:
    """Whether a row stands above a table, like a date and a number above the items of an invoice.

    It has fewer cells than the next two rows, states a value, and is further away from these rows than they
    are from each other.
    """
    pitches = [below[0].box.middle - above[0].box.middle for above, below in pairwise(rows)]
    if len(pitches) < 2 or len(rows[0]) >= min(map(len, rows[1:])):  # noqa: PLR2004 three rows
        return False
    if not any(_STATED.search(cell.text) for cell in rows[0]):
        return False
    return pitches[0] > _ABOVE * pitches[1]


def _is_heading_below(rows: Sequence[Row]) -> bool:
    """Whether a line is a heading right below a row, rather than the first line of a cell of the next one."""
    above, (line, *_), *below = rows
    goes_on = any(len(row) == 1 and (row[0].size, row[0].bold) == (line.size, line.bold) for row in below)
    return heads(line, above) and not goes_on and any(map(str.isalpha, line.text))


def heads(line: Line, beside: Row) -> bool:
    """Whether a line is in larger or bolder letters than all of the row beside it."""
    is_larger = line.size > OTHER_SIZE * max(cell.size for cell in beside)
    return is_larger or (line.bold and not any(cell.bold for cell in beside))


def _is_heading(row: Row, beside: Row) -> bool:
    """Whether a row is a heading apart from its number, in larger or bolder letters than the row beside."""
    if len(row) != 2 or not _HEADING_NUMBER.fullmatch(row[0].text):  # noqa: PLR2004 number and words
        return False
    number, heading = row
    if heading.box.left - number.box.right > MOST_INDENT * heading.size or not heading.text[0].isalpha():
        return False
    is_larger = heading.size > OTHER_SIZE * max(line.size for line in beside)
    return is_larger or (heading.bold and not beside[0].bold)


def table_of(rows: Sequence[Row], rules: Sequence[Box]) -> tuple[Sequence[Sequence[str]], Sequence[Box]]:
    """The cells of rows that are a table, and its columns; no cells if they aren't aligned in columns."""
    if drawn := next((row for row in rows if row[0].table), None):
        columns = [cell.box for cell in drawn]
        texts = [_texts_by_column(row, columns) for row in rows]
        order = -1 if _runs_left(rows) else 1  # those of a drawn table are in the order of their places
        return [row[::order] for row in texts], columns[::order]
    rows = [[*chain.from_iterable(map(_without_sign, row[:-1])), row[-1]] for row in rows]
    columns = _columns(rows)
    is_ruled = _is_ruled(rows, rules)
    count, letters = sum(map(len, rows)), sum(len(cell.text) for row in rows for cell in row)
    # Few cells may be aligned by chance, unless rules say so.
    if not columns or count < (_RULED_CELLS if is_ruled else _CELLS) or letters > _LONG * count:
        return (), ()
    if not is_ruled and _reads_on(rows):  # columns of text that the file has line by line
        return (), ()
    left = min(row[0].box.left for row in rows)
    texts = [_texts_of_label(row, columns, left) or _texts_by_column(row, columns) for row in rows]
    cells = _whole_rows(rows, texts, rules)
    return cells if len(cells) > 1 else (), columns


def _texts_of_label(row: Row, columns: Sequence[Box], left: float) -> list[str]:
    """The cells of a row with only a label, which is in the first column, however far it goes; else none.

    It begins with the first column, and no row of the table begins further `left`.
    """
    begins = max(abs(row[0].box.left - left), abs(row[0].box.left - columns[0].left)) <= EDGE
    is_label = begins and len(row) == 1 == len([*split_cell(row[0], columns)])
    return [row[0].text, *[""] * (len(columns) - 1)] if is_label else []


def _runs_left(rows: Sequence[Row]) -> bool:
    """Whether most cells with letters are read from right to left."""
    lettered = [cell for row in rows for cell in row if any(map(str.isalpha, cell.text))]
    return 2 * sum(cell.runs_left for cell in lettered) > len(lettered)


def _whole_rows(
    rows: Sequence[Row], texts: Sequence[list[str]], rules: Sequence[Box]
) -> Sequence[Sequence[str]]:
    """The rows of a table, each with the lines in which its cells go on. `texts` are the rows by column."""
    pitches = [row[0].box.bottom - above[0].box.bottom for above, row in pairwise(rows)]
    # The distances of lines are the surest sign of rows, then what the cells of a row are.
    if blocks := _blocks(texts, pitches):
        return [[reduce(with_next_line, cells) for cells in zip(*block, strict=True)] for block in blocks]
    of_begun = [pitch for pitch, filled in zip(pitches, texts[1:], strict=True) if filled[0]]
    of_whole = [pitch for pitch, pair in zip(pitches, pairwise(rows), strict=True) if min(map(len, pair)) > 1]
    usual, least = median(of_begun) if of_begun else math.inf, min(of_whole, default=0.0)
    whole = [*texts[:1]]
    for (above, row), filled, pitch in zip(pairwise(rows), texts[1:], pitches, strict=True):
        # Where the usual distance of rows is known, a nearer line is of the same row.
        is_header, is_near = len(whole) == 1, pitch < _AS_FAR * usual
        if not _is_ruled_off(row[0].box, above[0].box, rules) and (
            _is_wrapped(whole[-1], filled, is_close=pitch < _AS_FAR * least)
            or (
                not filled[0]
                and row[0].box.top - above[0].box.bottom <= _WRAPPED * above[0].box.height
                and not _begins_row(whole[-1], filled, is_header=is_header, is_near=is_near)
            )
        ):
            whole[-1] = [with_next_line(*pair) for pair in zip(whole[-1], filled, strict=True)]
        else:
            whole.append(filled)
    return whole


def _blocks(texts: Sequence[list[str]], pitches: Sequence[float]) -> list[list[list[str]]]:
    """The lines of each row, where lines of one row are closer than rows; none if that doesn't tell.

    One line of each row has most of the columns, three at least, and each other one has a single cell, with
    no number below or above a number. So a cell may begin above its neighbours, and end below them.
    """
    blocks = [[texts[0]]]
    farthest = _TOGETHER * min(pitches, default=0.0)
    for text, pitch in zip(texts[1:], pitches, strict=True):
        if 0 < pitch <= farthest:  # a cell may begin above its row's first one, and end below it
            blocks[-1].append(text)
        else:
            blocks.append([text])
    return blocks if len(blocks) < len(texts) and all(map(_is_one_row, blocks)) else []


def _is_one_row(block: Sequence[Sequence[str]]) -> bool:
    whole, *wrapped = sorted(block, key=lambda cells: -sum(map(bool, cells)))
    count = sum(map(bool, whole))
    return (
        2 * count > len(whole)
        and count > 2  # noqa: PLR2004 of two cells, either may be one of a group
        and all(sum(map(bool, cells)) == 1 for cells in wrapped)
        and not any(  # numbers below each other are of two rows
            is_number(cell) and is_number(main)
            for cells in wrapped
            for cell, main in zip(cells, whole, strict=True)
        )
    )


def _is_wrapped(above: Sequence[str], filled: Sequence[str], *, is_close: bool) -> bool:
    """Whether a first cell goes on from the row above, which is closer than rows are, or reads on.

    A letter that is neither small nor large, as in Japanese, doesn't tell.
    """
    if _has_only_first(filled):
        return is_close or (
            filled[0] != filled[0].upper() and bool(above[0]) and reads_on(above[0], filled[0])
        )
    return is_close and _has_only_first(above) and not above[0].endswith(":")  # a label heads rows below it


def _has_only_first(cells: Sequence[str]) -> bool:
    return bool(cells[0]) and not any(cells[1:])


def _texts_by_column(row: Row, columns: Sequence[Box]) -> list[str]:
    texts = [""] * len(columns)
    for number, cell in _cells_by_column(row, columns):
        texts[number] = f"{texts[number]} {cell.text}".strip()
    return texts


def _reads_on(rows: Sequence[Row]) -> bool:
    """Whether most rows continue the sentences of the row above in all cells: these are columns of text."""
    pairs = [
        [(cell, following) for cell, following in zip(above, row, strict=False) if len(cell.text) > _SENTENCE]
        for above, row in pairwise(rows)
        if len(above) == len(row)
    ]
    flowing = [
        len(pair) > 1 and all(reads_on(cell.text, following.text) for cell, following in pair)
        for pair in pairs
    ]
    return 2 * sum(flowing) > len(rows) - 1


def _is_ruled(rows: Sequence[Row], rules: Sequence[Box]) -> bool:
    """Whether as many rules as rows run across them."""
    first, bottom = rows[0][0].box, rows[-1][0].box.bottom
    top, end = first.top - first.height, bottom + first.height
    across = [rule for rule in rules if top <= rule.top <= end and rule.left < first.right < rule.right]
    return len({round(rule.top) for rule in across}) > len(rows) // 2 + 1


def _columns(rows: Sequence[Row]) -> list[Box]:
    """The boxes of the columns, by the rows with most cells; none if these overlap."""
    width = max(map(len, rows))
    full = [row for row in rows if len(row) == width]
    columns = [cell.box for cell in full[0]]
    for row in full[1:]:
        columns = [column.around(cell.box) for column, cell in zip(columns, row, strict=True)]
    ordered = sorted(columns)
    apart = all(column.right <= following.left for column, following in pairwise(ordered))
    return columns if apart and (len(full) > 1 or len(rows) > 1) else []


def _cells_by_column(row: Row, columns: Sequence[Box]) -> Iterator[tuple[int, Line]]:
    """The cells of a row with their column numbers; a cell that spans a column border is split there."""
    for cell in row:
        first = 0
        for part in split_cell(cell, columns):  # words of two cells can be nearer than a wide space
            number = max(first, _column(part, columns))
            first = min(number + 1, len(columns) - 1)  # two parts of one cell are never in one column
            yield number, part


def split_cell(cell: Line, columns: Sequence[Box]) -> Iterator[Line]:
    """A cell, split where it spans a column border."""
    texts = _TEXTS.findall(cell.text)
    begin = 0
    for at, ((_, right), (left, _)) in enumerate(pairwise(cell.words), 1):
        start = cell.words[begin][0]
        if len(texts) == len(cell.words) and any(
            _is_border(start, right, left, *ends) for ends in pairwise(columns)
        ):
            yield _piece(cell, texts, begin, at)
            begin = at
    yield _piece(cell, texts, begin, len(texts)) if begin else cell


def _is_border(start: float, right: float, left: float, column: Box, following: Box) -> bool:
    """Whether one column ends between two words and the next one begins."""
    begins = abs(left - following.left) <= EDGE
    if begins and abs(start - column.left) <= EDGE:  # both sides begin where columns do
        return True
    inside = column.left - EDGE <= start and right <= column.right + EDGE < left
    return inside and (column.right - right <= EDGE or begins)


def _without_sign(cell: Line) -> Iterator[Line]:
    """A cell before others: a dollar that stands apart from a number belongs to the next number."""
    texts = _TEXTS.findall(cell.text)
    if len(texts) == len(cell.words) > 1 and texts[-1] in _SIGNS and is_number(texts[-2].strip()):
        (_, right), (left, _) = cell.words[-2:]
        if left - right > _SIGN_GAP * cell.size:  # "1,234 $" is one amount, "1,234   $ 1,100" two
            yield _piece(cell, texts, 0, len(texts) - 1)
            cell = _piece(cell, texts, len(texts) - 1, len(texts))
    yield cell


def _piece(cell: Line, texts: Sequence[str], begin: int, end: int) -> Line:
    words = cell.words[begin:end]
    box = cell.box._replace(left=words[0][0], right=words[-1][1])
    return cell._replace(text="".join(texts[begin:end]).strip(f" {SEAM}"), box=box, words=words)


def _column(cell: Line, columns: Sequence[Box]) -> int:
    """The number of the column that a cell overlaps most, else of the nearest."""

    def shared(number: int) -> float:
        return min(cell.box.right, columns[number].right) - max(cell.box.left, columns[number].left)

    return max(range(len(columns)), key=shared)


def _begins_row(above: Sequence[str], filled: Sequence[str], *, is_header: bool, is_near: bool) -> bool:
    """Whether cells next to an empty first one are a row of their own, in a group that the first one names.

    They have two numbers below numbers. Or they are as far below as other rows are, and end with a number
    below a number, like totals, or they are in most columns, and none reads on. Below a header, most are
    numbers.
    """
    pairs = [(cell, text) for cell, text in zip(above, filled, strict=True) if cell and text]
    if is_header:
        return 2 * len(pairs) >= len(filled) and are_numbers(filled) and not are_numbers(above)
    in_brackets = [text for _, text in pairs if text[0] == "("]  # standard errors, and units of headers
    numbers = [pair for pair in pairs if all(map(is_number, pair)) and pair[1] not in in_brackets]
    if len(numbers) > 1 or is_near:
        return len(numbers) > 1
    if numbers and pairs[-1] == numbers[-1] and sum(map(bool, filled)) > 1:
        return True
    is_full = 2 * len(pairs) > len(filled) and len(pairs) > 1
    return is_full and (bool(numbers) or not (in_brackets or any(reads_on(*pair) for pair in pairs)))


def _is_ruled_off(box: Box, above: Box, rules: Sequence[Box]) -> bool:
    return any(
        above.middle < rule.top < box.middle and rule.left <= box.left and rule.right >= box.right
        for rule in rules
        if rule.width > rule.height
    )


_FEWEST = 2  # headers next to each other, and cells below them
_MOST = 400  # turned lines of a page; where there are more, they aren't headers
_LEADING = 0.4  # times the size of the letters: how far apart the lines of one header are
_WITHIN = 0.1  # the same: a gap within a word
_OVER = 3.0  # the same: how far above the row of its column a header ends


def with_headers(lines: Sequence[Line], rules: Sequence[Box]) -> list[Line]:
    """The lines of a page, with vertical column headers as level lines, one for each header.

    Other vertical text stays as it is, such as axes of charts and stamps at the margin.
    """
    level = [line for line in lines if not line.turned]
    turned = [line for line in lines if line.turned]
    if not _FEWEST <= len(turned) <= _MOST:  # comparing each with each takes long
        return list(lines)
    parts = {(header := _header(group)).order: (header, group) for group in _nearby_groups(turned)}
    rows = level_rows(level)
    uprights = sorted(rule for rule in rules if rule.width < RULE_WIDTH)
    for band in level_rows([header for header, _ in parts.values()]):
        if _are_over_columns(band, rows, uprights):
            level += band
            turned = [line for line in turned if not any(line in parts[header.order][1] for header in band)]
    return level + turned


def _nearby_groups(lines: Sequence[Line]) -> list[list[Line]]:
    """Groups of lines that are close to each other and turned the same way."""
    groups: list[list[Line]] = []
    for line in lines:
        near = [group for group in groups if any(_are_near(line, member) for member in group)]
        apart = [group for group in groups if group not in near]
        groups = [*apart, [line, *chain.from_iterable(near)]]
    return groups


def _are_near(line: Line, following: Line) -> bool:
    reach = _LEADING * max(line.size, following.size)
    return line.turned == following.turned and line.box.grown(reach).touches(following.box)


def _header(lines: Sequence[Line]) -> Line:
    """Turned lines as one level line in their box."""
    first, text = lines[0], ""
    box = box_around(line.box for line in lines)
    for row in level_rows([line._replace(box=_level_box(line)) for line in lines]):
        words = row[0].text
        for before, line in pairwise(row):
            apart = line.box.left - before.box.right > _WITHIN * line.size
            words += f" {line.text}" if apart else line.text
        text = with_next_line(text, words) if text else words
    return first._replace(text=text, box=box, turned=0, words=())


def _level_box(line: Line) -> Box:
    """The box of a turned line in its own reading direction."""
    box = line.box
    return as_read(Box(box.left, -box.bottom, box.right, -box.top), line.turned)


def _are_over_columns(headers: Row, rows: Sequence[Row], uprights: Sequence[Box]) -> bool:
    """Whether headers are directly above the cells of the next row, with nothing between the headers.

    If rules part them, few of these cells may be filled, as in a matrix of allergens.
    """
    band = box_around(header.box for header in headers)
    below = next((row for row in rows if row[0].box.middle > band.bottom), [])
    if min(len(headers), len(below)) < _FEWEST:
        return False
    reach = max(header.size for header in headers)
    over = [any(cell.box.gap(header.box) < reach for cell in below) for header in headers]
    are_parted = all(rules_between(left.box, right.box, uprights) for left, right in pairwise(headers))
    return (
        below[0].box.top - band.bottom < _OVER * reach
        and (are_parted or 2 * sum(over) >= len(headers))
        and not any(_is_between(line.box, band) for row in rows for line in row)
    )


def _is_between(box: Box, band: Box) -> bool:
    return band.left <= box.left and box.right <= band.right and band.top < box.middle < band.bottom
