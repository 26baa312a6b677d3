"""The parts of a PDF page: paragraphs, and tables where cells are aligned in columns.

Vertical words are column headers where they are side by side above the columns. Words that are cut at the
ends of lines are joined by the vocabulary of the whole document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import chain, groupby, pairwise
from statistics import median
from typing import NamedTuple

from rag.ingest.parse.pdf.page_layout import Row, has_list_mark, level_rows, reads_on
from rag.ingest.parse.pdf.pdf_words import SEAM, Line
from rag.ingest.parse.pdf.struck_text import STRUCK
from rag.ingest.parse.pdf.text_page import HYPHEN, Box, as_read, box_around
from rag.text.table_heads import rule

_MOST_COLUMNS = 200  # of code: letters can be as small as a file likes
_BLANK_LINE = 1.6  # times the usual distance of two lines of code
_APART = 1.35  # times the usual distance of two lines: from here on a paragraph begins
_INDENT = 0.8  # times the size of the letters: how far the first line of a paragraph is moved in
_MOST_INDENT = 4.0  # the same; further in stands something else
_OTHER_SIZE = 1.06  # times the size of the letters before
_CELLS = 6  # at least, of what is taken for a table: three rows of two, or two of three
_RULED_CELLS = 3  # the same, if rules frame it
_LONG = 90  # characters: cells of a table are shorter on average
_SENTENCE = 20  # characters of a cell that may be a part of a sentence
_MOVED = 6.0  # points that a table may stand elsewhere on the next page
_EDGE = 1.0  # points: the cells of a column begin or end so near to each other
_ELSEWHERE = 3.0  # times the largest distance of two rows: further below stands no row of the table
_ABOVE = 1.5  # times the distance of the next two rows: how far above a table another row stands
_TOGETHER = 1.15  # times the least distance of two lines of a table: those of one row are no further apart
_NEAR = 3.0  # times the size of the letters: how far from a drawn table its rows without rules stand
_AS_FAR = 0.95  # times the usual distance of two rows: nearer lines are of one cell
_SIGNS, _SIGN_GAP = "$£", 0.4  # before their number; times the size of the letters: more than a space
_WRAPPED = 1.6  # times the height of a line: how far below it a cell goes on


_CURRENCY = r"(?:[$£€¥₹₽₩₺]|[A-Z]{3}|kr\.?|zł|Kč|Ft|Fr\.)"
_NUMBER = re.compile(rf"[(\-+–—]*(?:{_CURRENCY}\s?)?[\-+–—]?[\d.,'\s]*\d[\d.,'\s]*{_CURRENCY}?[)%]*|[–—-]")
_STRUCK_ON = re.compile(rf"{STRUCK}({HYPHEN}?[ \n]){STRUCK}")  # between two words that are struck out
_TEXTS = re.compile(rf"[^ {SEAM}]+[ {SEAM}]?")
_HEADING_NUMBER = re.compile(r"(?:[A-Z]\.)?\d{1,2}(?:\.\d{1,2})*\.?")
_STATED = re.compile(r":\s*\S")
_YEAR = re.compile(rf"(?:\d{{1,2}}\.\d{{1,2}}\.)?(?:1[5-9]|20)\d\d(?:\s{_CURRENCY})?")  # also a day, a unit


class PagePart(NamedTuple):
    """Rows that belong together: a paragraph, a heading or code by its lines, or a table by its cells."""

    rows: tuple[tuple[str, ...], ...]
    box: Box
    size: float
    bold: bool
    is_table: bool = False
    is_code: bool = False

    @property
    def text(self) -> str:
        """Its text; a table as in Markdown, with its first row as header unless that consists of numbers."""
        if self.is_table:
            width = max(map(len, self.rows))
            lines = [_pipe_row([*row, *[""] * (width - len(row))]) for row in self.rows]
            lines[1:1] = [] if _is_numbers(self.rows[0]) else [rule(width)]
        else:
            lines = [" ".join(row) for row in self.rows]
        return _STRUCK_ON.sub(r"\1", "\n".join(lines).replace(SEAM, ""))


def is_number(text: str) -> bool:
    """Whether a text is a number, an amount of money or a dash for none."""
    return _NUMBER.fullmatch(text) is not None


def _is_numbers(row: Sequence[str]) -> bool:
    """Whether most cells after the first are numbers, as in the rows below a header."""
    filled = [cell for cell in row[1:] if cell]
    numbers = [cell for cell in filled if is_number(cell) and not _YEAR.fullmatch(cell)]
    return 2 * len(numbers) > len(filled)


def _pipe_row(cells: Sequence[str]) -> str:
    """A row as in `pipe_row`, but its cells keep their line ends, at which words may be cut."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def parts_of(rows: Sequence[Row], rules: Sequence[Box]) -> Iterator[PagePart]:
    """The parts of a region in order. Lines in letters of one width are code."""
    pitches = [below - above for above, below in pairwise(row[0].box.bottom for row in rows)]
    usual = median(pitches) if pitches else 0.0
    for is_code, run in groupby(_runs(rows), key=lambda marked: marked[0]):
        run_rows = [row for _, row in run]
        if is_code:
            yield _code(run_rows, usual)
        else:
            yield from _text_parts(run_rows, rules, usual)


def _runs(rows: Sequence[Row]) -> Iterator[tuple[bool, Row]]:
    """Each row, and whether it is code, which has several lines."""
    for is_even, run in groupby(rows, key=lambda row: all(line.even for line in row)):
        run_rows = [*run]
        yield from ((is_even and len(run_rows) > 1, row) for row in run_rows)


def _code(rows: Sequence[Row], usual: float) -> PagePart:
    """Lines of code with their indentation and spaces, which are where no letter is."""
    width = median(line.box.width / max(len(line.text), 1) for row in rows for line in row)
    left = min(row[0].box.left for row in rows)
    texts: list[tuple[str]] = []
    for above, row in zip([rows[0], *rows], rows, strict=False):
        if row[0].box.bottom - above[0].box.bottom > _BLANK_LINE * usual:
            texts.append(("",))
        text = ""
        for begin, word in (placed for line in row for placed in _placed_words(line)):
            column = round((begin - left) / width) if width else 0
            text = text.ljust(max(min(column, _MOST_COLUMNS), len(text) + bool(text))) + word
        texts.append((text,))
    first, box = rows[0][0], box_around(line.box for row in rows for line in row)
    return PagePart(tuple(texts), box, first.size, first.bold, is_code=True)


def _placed_words(line: Line) -> Iterator[tuple[float, str]]:
    """The words of a line with where they begin; the whole line where that isn't known."""
    words = line.text.split(" ")
    if len(words) != len(line.words):
        return iter([(line.box.left, line.text)])
    return zip((begin for begin, _ in line.words), words, strict=True)


def _text_parts(rows: Sequence[Row], rules: Sequence[Box], usual: float) -> Iterator[PagePart]:
    at = 0
    plain: list[Row] = []
    while at < len(rows):
        end = _table_end(rows, at)  # rows that may be a table; if they aren't, they are text
        if len(rows[at]) > 1 and (table := _table(rows[at:end], rules)):
            yield from _paragraphs(plain, usual)
            yield table
            plain = []
        else:
            plain += rows[at:end]
        at = end
    yield from _paragraphs(plain, usual)


def with_headers_of_tables(pages: list[list[PagePart]]) -> None:
    """Repeat the header of a table that continues on the next page."""
    for above, below in pairwise(pages):
        if above and below and _continues(above[-1], below[0]):
            below[0] = below[0]._replace(rows=(above[-1].rows[0], *below[0].rows))


def _continues(table: PagePart, following: PagePart) -> bool:
    """Whether `following` continues a table: it has the same columns, and no header."""
    if not (table.is_table and following.is_table) or abs(table.box.left - following.box.left) > _MOVED:
        return False
    header, body, first = table.rows[0], table.rows[1:], following.rows[0]
    if len(header) != len(first) or _is_numbers(header) or first == header:
        return False
    return _is_numbers(first) == (2 * sum(map(_is_numbers, body)) > len(body))


def _table_end(rows: Sequence[Row], at: int) -> int:
    """The end of the rows from `at` that have several cells, or one cell that continues a row."""
    end, first_cell_end = at + 1, rows[at][0].box.right
    if rows[at][0].table:
        return _drawn_end(rows, at)
    if end < len(rows) and (_is_heading(rows[at], rows[end]) or _is_above_table(rows[at : at + 3])):
        return end
    farthest = 0.0
    while end < len(rows) and len(rows[at]) > 1:
        row, above = rows[end], rows[end - 1]
        pitch = row[0].box.middle - above[0].box.middle
        if pitch > _ELSEWHERE * farthest > 0:
            break
        farthest = max(farthest, pitch)
        near = row[0].box.top - above[0].box.bottom < _WRAPPED * above[0].box.height
        if row[0].table:
            fitting = all(_fits(above, row) for above in rows[at:end]) and pitch < _NEAR * row[0].size
            return _drawn_end(rows, end) if fitting else end
        if len(row) == 1 and not (near and row[0].box.left > first_cell_end and not row[0].runs_left):
            if not (wrapped := _wrapped_first_cell(rows, at, end)):
                break
            end += wrapped
            continue
        if _is_heading(row, above):
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
        abs(cell.box.left - column.box.left) <= _EDGE for cell, column in zip(row, drawn, strict=True)
    )


def _fits(row: Row, drawn: Row) -> bool:
    """Whether each cell of a row without rules is in a column of its own of a drawn table."""
    places = [
        [
            at
            for at, column in enumerate(drawn)
            if column.box.left - _EDGE <= cell.box.left and cell.box.right <= column.box.right + _EDGE
        ]
        for cell in row
    ]
    return not row[0].table and all(places) and len({at for at, *_ in places}) == len(row)


def _wrapped_first_cell(rows: Sequence[Row], at: int, begin: int) -> int:
    """The number of rows from `begin` that have only a first cell of the table that begins with row `at`.

    They are close to each other, and a row of the table follows. They begin where its first cell does, or
    somewhat further left, and end before its second one; larger ones head what follows.
    """
    end = next((end for end in range(begin, len(rows)) if len(rows[end]) > 1), 0)
    close = pairwise(rows[begin - 1 : end + 1])
    is_close = all(row[0].box.top - last[0].box.bottom < _WRAPPED * last[0].box.height for last, row in close)
    if not end or not is_close or any(row[0].table or row[0].runs_left for row in rows[begin : end + 1]):
        return 0
    whole, labels = [row for row in rows[at : end + 1] if len(row) > 1], [row[0] for row in rows[begin:end]]
    cell = whole[-1][0]
    lefts = (other.box.left for row in whole for other in row if other.box.left > cell.box.right)
    second = min(lefts, default=0.0)
    if not all(_may_be_label(label, cell, second) for label in labels):
        return 0
    left = min(row[0].box.left for row in whole[:-1])
    is_below = any(abs(left - line.box.left) <= _EDGE for line in (cell, *labels))
    return end - begin if is_below or _is_header_of(whole[0], whole[-1]) else 0


def _may_be_label(label: Line, cell: Line, second: float) -> bool:
    """Whether a line heads rows of a table whose first cell is `cell`, and whose second is at `second`."""
    indent = cell.box.left - label.box.left
    is_as_large = label.size <= _OTHER_SIZE * cell.size
    return -_EDGE <= indent <= _MOST_INDENT * label.size and label.box.right < second and is_as_large


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


def _is_heading(row: Row, beside: Row) -> bool:
    """Whether a row is a heading apart from its number, in larger or bolder letters than the row beside."""
    if len(row) != 2 or not _HEADING_NUMBER.fullmatch(row[0].text):  # noqa: PLR2004 number and words
        return False
    number, heading = row
    if heading.box.left - number.box.right > _MOST_INDENT * heading.size or not heading.text[0].isalpha():
        return False
    is_larger = heading.size > _OTHER_SIZE * max(line.size for line in beside)
    return is_larger or (heading.bold and not beside[0].bold)


def _table(rows: Sequence[Row], rules: Sequence[Box]) -> PagePart | None:
    """The rows as a table; None if their cells aren't aligned in columns."""
    if drawn := next((row for row in rows if row[0].table), None):
        return _drawn_table(rows, drawn)
    rows = [[*chain.from_iterable(map(_without_sign, row[:-1])), row[-1]] for row in rows]
    columns = _columns(rows)
    is_ruled = _is_ruled(rows, rules)
    count, letters = sum(map(len, rows)), sum(len(cell.text) for row in rows for cell in row)
    if not columns or count < (_RULED_CELLS if is_ruled else _CELLS) or letters > _LONG * count:
        return None
    if not is_ruled and _reads_on(rows):
        return None
    cells = _whole_rows(rows, [_texts_by_column(row, columns) for row in rows], rules)
    return _table_part(cells, rows) if len(cells) > 1 else None


def _drawn_table(rows: Sequence[Row], drawn: Row) -> PagePart:
    """The rows with the columns of `drawn`, which are in the order in which they are read."""
    boxes = [cell.box for cell in drawn]
    texts = [_texts_by_column(row, boxes) for row in rows]
    lettered = [cell for row in rows for cell in row if any(map(str.isalpha, cell.text))]
    runs_left = 2 * sum(cell.runs_left for cell in lettered) > len(lettered)
    return _table_part([text[::-1] for text in texts] if runs_left else texts, rows)


def _whole_rows(
    rows: Sequence[Row], texts: Sequence[list[str]], rules: Sequence[Box]
) -> Sequence[Sequence[str]]:
    """The rows of a table, each with the lines in which its cells go on. `texts` are the rows by column."""
    pitches = [row[0].box.bottom - above[0].box.bottom for above, row in pairwise(rows)]
    if blocks := _blocks(texts, pitches):
        return [[reduce(with_next_line, cells) for cells in zip(*block, strict=True)] for block in blocks]
    of_begun = [pitch for pitch, filled in zip(pitches, texts[1:], strict=True) if filled[0]]
    of_whole = [pitch for pitch, pair in zip(pitches, pairwise(rows), strict=True) if min(map(len, pair)) > 1]
    usual, least = median(of_begun) if of_begun else math.inf, min(of_whole, default=0.0)
    whole = [*texts[:1]]
    for (above, row), filled, pitch in zip(pairwise(rows), texts[1:], pitches, strict=True):
        is_header, is_near = len(whole) == 1, pitch < _AS_FAR * usual
        if not _is_ruled_off(row[0].box, above[0].box, rules) and (
            _is_wrapped(whole[-1], filled, is_close=pitch < _AS_FAR * least)
            or (
                _may_continue_cells(row, filled, above[0].box)
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
    most = _TOGETHER * min(pitches, default=0.0)
    for text, pitch in zip(texts[1:], pitches, strict=True):
        if 0 < pitch <= most:
            blocks[-1].append(text)
        else:
            blocks.append([text])
    return blocks if len(blocks) < len(texts) and all(map(_is_one_row, blocks)) else []


def _is_one_row(block: Sequence[Sequence[str]]) -> bool:
    whole, *others = sorted(block, key=lambda cells: -sum(map(bool, cells)))
    count = sum(map(bool, whole))
    return (
        2 * count > len(whole)
        and count > 2  # noqa: PLR2004 of two cells, either may be one of a group
        and all(sum(map(bool, cells)) == 1 for cells in others)
        and not any(
            is_number(cell) and is_number(beside)
            for cells in others
            for cell, beside in zip(cells, whole, strict=True)
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
    return is_close and _has_only_first(above) and not above[0].endswith(":")


def _has_only_first(cells: Sequence[str]) -> bool:
    return bool(cells[0]) and not any(cells[1:])


def _table_part(cells: Sequence[Sequence[str]], rows: Sequence[Row]) -> PagePart:
    box = box_around(cell.box for row in rows for cell in row)
    return PagePart(tuple(map(tuple, cells)), box, rows[0][0].size, bold=False, is_table=True)


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
        for part in _split_cell(cell, columns):
            number = max(first, _column(part, columns))
            first = min(number + 1, len(columns) - 1)
            yield number, part


def _split_cell(cell: Line, columns: Sequence[Box]) -> Iterator[Line]:
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
    begins = abs(left - following.left) <= _EDGE
    if begins and abs(start - column.left) <= _EDGE:
        return True
    inside = column.left - _EDGE <= start and right <= column.right + _EDGE < left
    return inside and (column.right - right <= _EDGE or begins)


def _without_sign(cell: Line) -> Iterator[Line]:
    """A cell before others: a dollar that stands apart from a number is that of the next number."""
    texts = _TEXTS.findall(cell.text)
    if len(texts) == len(cell.words) > 1 and texts[-1] in _SIGNS and is_number(texts[-2].strip()):
        (_, right), (left, _) = cell.words[-2:]
        if left - right > _SIGN_GAP * cell.size:
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
        return 2 * len(pairs) >= len(filled) and _is_numbers(filled) and not _is_numbers(above)
    in_brackets = [text for _, text in pairs if text[0] == "("]  # standard errors, and units of headers
    numbers = [pair for pair in pairs if all(map(is_number, pair)) and pair[1] not in in_brackets]
    if len(numbers) > 1 or is_near:
        return len(numbers) > 1
    if numbers and pairs[-1] == numbers[-1] and sum(map(bool, filled)) > 1:
        return True
    is_full = 2 * len(pairs) > len(filled) and len(pairs) > 1
    return is_full and (bool(numbers) or not (in_brackets or any(reads_on(*pair) for pair in pairs)))


def _may_continue_cells(row: Row, filled: Sequence[str], above: Box) -> bool:
    """Whether a row may continue the cells above: its first column is empty, and it is right below them."""
    return not filled[0] and row[0].box.top - above.bottom <= _WRAPPED * above.height


def _is_ruled_off(box: Box, above: Box, rules: Sequence[Box]) -> bool:
    return any(
        above.middle < rule.top < box.middle and rule.left <= box.left and rule.right >= box.right
        for rule in rules
        if rule.width > rule.height
    )


def _paragraphs(rows: Sequence[Row], usual: float) -> Iterator[PagePart]:
    """The paragraphs of rows, split at gaps, at indents, and where size or weight change.

    The second line of a paragraph is never one of its own: the first is moved in, or hangs out.
    """
    begin = 0
    for at, (above, row) in enumerate(pairwise(rows), 1):
        is_moved = _is_moved_in(above[0], row[0]) or _hangs_out(rows[begin][0], above[0], row[0])
        if _begins_paragraph(above[0], row[0], usual) or (at > begin + 1 and is_moved):
            yield _paragraph(rows[begin:at])
            begin = at
    if rows:
        yield _paragraph(rows[begin:])


def _begins_paragraph(above: Line, line: Line, usual: float) -> bool:
    size, before = line.size or 1.0, above.size or 1.0
    return (
        line.box.bottom - above.box.bottom > max(_APART * usual, 0.0)
        or max(size, before) > _OTHER_SIZE * min(size, before)
        or line.bold != above.bold
    )


def _is_moved_in(above: Line, line: Line) -> bool:
    """Whether a line begins further right than the one above, but not as the text of an item goes on."""
    moved, size = line.box.left - above.box.left, line.size or 1.0
    if line.runs_left or not _INDENT * size <= moved <= _MOST_INDENT * size:
        return False
    is_in_item = has_list_mark(above.text) and not has_list_mark(line.text)
    return not is_in_item and not reads_on(above.text, line.text)


def _hangs_out(first: Line, above: Line, line: Line) -> bool:
    """Whether a line begins further left than the one above, as the next item, entry or term of a list.

    It has a mark. Or it is as far left as the first line of the paragraph, and no sentence runs on into it.
    """
    if line.runs_left or above.box.left - line.box.left < _INDENT * (line.size or 1.0):
        return False
    is_entry = abs(line.box.left - first.box.left) <= _EDGE and not reads_on(above.text, line.text)
    return is_entry or has_list_mark(line.text)


def _paragraph(rows: Sequence[Row]) -> PagePart:
    longest = max((line for row in rows for line in row), key=lambda line: len(line.text))
    box = box_around(line.box for row in rows for line in row)
    texts = tuple(tuple(line.text for line in row) for row in rows)
    bold = all(line.bold for row in rows for line in row)
    return PagePart(texts, box, longest.size, bold)


_FEWEST = 2  # headers next to each other, and cells below them
_MOST = 400  # turned lines of a page; where there are more, they aren't headers
_LEADING = 0.4  # times the size of the letters: how far apart the lines of one header are
_WITHIN = 0.1  # the same: a gap within a word
_OVER = 3.0  # the same: how far above the row of its column a header ends


def with_headers(lines: Sequence[Line]) -> list[Line]:
    """The lines of a page, with vertical column headers as level lines, one for each header.

    Other vertical text stays as it is, such as axes of charts and stamps at the margin.
    """
    level = [line for line in lines if not line.turned]
    turned = [line for line in lines if line.turned]
    if not _FEWEST <= len(turned) <= _MOST:
        return list(lines)
    parts = {(header := _header(group)).order: (header, group) for group in _nearby_groups(turned)}
    rows = level_rows(level)
    for band in level_rows([header for header, _ in parts.values()]):
        if _are_over_columns(band, rows):
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


def _are_over_columns(headers: Row, rows: Sequence[Row]) -> bool:
    """Whether headers are directly above the cells of the next row, with nothing between the headers."""
    band = box_around(header.box for header in headers)
    below = next((row for row in rows if row[0].box.middle > band.bottom), [])
    if min(len(headers), len(below)) < _FEWEST:
        return False
    reach = max(header.size for header in headers)
    over = [any(cell.box.gap(header.box) < reach for cell in below) for header in headers]
    return (
        below[0].box.top - band.bottom < _OVER * reach
        and 2 * sum(over) >= len(headers)
        and not any(_is_between(line.box, band) for row in rows for line in row)
    )


def _is_between(box: Box, band: Box) -> bool:
    return band.left <= box.left and box.right <= band.right and band.top < box.middle < band.bottom


_CUT = re.compile(rf"(?P<one>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<other>[^\W_]+)")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def dehyphenator(text: str) -> Callable[[str], str]:
    """A function that rejoins words hyphenated at line ends, by the vocabulary of the document `text`.

    If the document has the word elsewhere, with or without its hyphen, that spelling wins. Otherwise the
    hyphen stays before a capital letter or a digit, in documents that rarely end a line with a hyphen, and
    between two words of the document if no line certainly hyphenates a word. In all other cases it goes.
    """
    words = frozenset(word.casefold() for word in _WORD.findall(_CUT.sub(" ", text)))
    cuts = sum(_is_cut(match["one"], match["other"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_certainly_cut(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        start, end = match["one"], match["other"]
        whole = (start + end).casefold()
        if whole in words and f"{start}-{end}".casefold() not in words:
            return start + end
        is_compound = is_rare or (not cuts_words and {start.casefold(), end.casefold()} <= words)
        if is_compound or not _is_cut(start, end) or f"{start}-{end}".casefold() in words:
            return f"{start}-{end}"
        return start + end

    def whole(part: str) -> str:
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


def with_next_line(cell: str, next_line: str) -> str:
    """A cell and its next line, joined by a space, or by a line feed below a hyphenated word."""
    line = f"{cell}\n{next_line}"
    return line if _CUT.search(line, cell.rfind("\n") + 1) else f"{cell} {next_line}".strip()


def _is_cut(start: str, end: str) -> bool:
    return start[-1].islower() and end[0].islower() and not any(map(str.isdigit, start + end))


def _is_certainly_cut(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line certainly hyphenates a word: a half isn't in the vocabulary, or the whole is."""
    start, end = match["one"].casefold(), match["other"].casefold()
    return _is_cut(match["one"], match["other"]) and (start + end in words or not {start, end} <= words)
