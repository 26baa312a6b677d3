"""The parts of a PDF page: paragraphs, code by its letters of one width, and tables (`page_tables`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from rag.ingest.parse.document_parts import runs
from rag.ingest.parse.pdf.page_layout import Row, has_list_mark, reads_on
from rag.ingest.parse.pdf.page_tables import (
    EDGE,
    MOST_INDENT,
    OTHER_SIZE,
    are_numbers,
    table_end,
    table_of,
)
from rag.ingest.parse.pdf.pdf_words import SEAM, Line
from rag.ingest.parse.pdf.shown_letters import STRUCK
from rag.ingest.parse.pdf.text_page import HYPHEN, Box, box_around
from rag.text.table_heads import rule

_MOST_COLUMNS = 200  # of code: letters can be as small as a file likes
_BLANK_LINE = 1.6  # times the usual distance of two lines of code
_APART = 1.35  # times the usual distance of two lines: from here on a paragraph begins
_INDENT = 0.8  # times the size of the letters: how far the first line of a paragraph is moved in
_MOVED = 6.0  # points that a table may stand elsewhere on the next page
_FEWEST = 3  # columns of a table that goes on without some: two may stand at the same places by chance
_STRUCK_ON = re.compile(rf"{STRUCK}({HYPHEN}?[ \n]){STRUCK}")  # between two words that are struck out


class PagePart(NamedTuple):
    """Rows that belong together: a paragraph, a heading or code by its lines, or a table by its cells.

    A table has the boxes of its `columns`.
    """

    rows: tuple[tuple[str, ...], ...]
    box: Box
    size: float
    bold: bool
    is_table: bool = False
    is_code: bool = False
    columns: tuple[Box, ...] = ()

    @property
    def text(self) -> str:
        """Its text; a table as in Markdown, with its first row as header unless that consists of numbers."""
        if self.is_table:
            width = max(map(len, self.rows))
            lines = [_pipe_row([*row, *[""] * (width - len(row))]) for row in self.rows]
            lines[1:1] = [] if are_numbers(self.rows[0]) else [rule(width)]
        else:
            lines = [" ".join(row) for row in self.rows]
        return _STRUCK_ON.sub(r"\1", "\n".join(lines).replace(SEAM, ""))


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
        # A single line may be a name or an address set like code: alone it has no indentation to keep.
        yield from ((is_even and len(run_rows) > 1, row) for row in run_rows)


def _code(rows: Sequence[Row], usual: float) -> PagePart:
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
    first = rows[0][0]
    return PagePart(tuple(texts), _box(rows), first.size, first.bold, is_code=True)


def _box(rows: Sequence[Row]) -> Box:
    return box_around(line.box for row in rows for line in row)


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
        end = table_end(rows, at)
        part = rows[at:end]  # rows that may be a table; if they aren't, they are text
        cells, columns = table_of(part, rules) if len(part[0]) > 1 else ((), ())
        if cells:  # text before a table ends there
            yield from _paragraphs(plain, usual)
            box, size = _box(part), part[0][0].size
            table = PagePart(tuple(map(tuple, cells)), box, size, bold=False, is_table=True)
            yield table._replace(columns=tuple(columns))
            plain = []
        else:
            plain += part
        at = end
    yield from _paragraphs(plain, usual)


def _paragraphs(rows: Sequence[Row], usual: float) -> Iterator[PagePart]:
    """The paragraphs of rows, split at gaps, at indents, and where size or weight change.

    The second line of a paragraph is never one of its own: the first is moved in, or hangs out.
    """

    def goes_on(paragraph: Sequence[Row], row: Row) -> bool:
        first, above = paragraph[0], paragraph[-1]
        is_moved = _is_moved_in(above[0], row[0]) or _hangs_out(first[0], above[0], row[0])
        return not _begins_paragraph(above, row, usual) and (len(paragraph) == 1 or not is_moved)

    return map(_paragraph, runs(rows, goes_on))


def _begins_paragraph(above: Row, row: Row, usual: float) -> bool:
    size, before = row[0].size or 1.0, above[0].size or 1.0
    return (
        row[0].box.bottom - above[0].box.bottom > max(_APART * usual, 0.0)
        or max(size, before) > OTHER_SIZE * min(size, before)
        # A word that the line above cuts goes on here, whatever the weight of its second half.
        or (_is_bold(row) != _is_bold(above) and not above[-1].text.endswith(("-", HYPHEN)))
    )


def _is_bold(row: Row) -> bool:
    """Whether all of a row is bold, rather than the first words of a paragraph."""
    return all(line.bold for line in row)


def _is_moved_in(above: Line, line: Line) -> bool:
    """Whether a line begins further right than the one above, but not as the text of an item goes on."""
    moved, size = line.box.left - above.box.left, line.size or 1.0
    if line.runs_left or not _INDENT * size <= moved <= MOST_INDENT * size:
        return False
    # The text of an item stands further right than its mark, in all of its lines.
    is_in_item = has_list_mark(above.text) and not has_list_mark(line.text)
    return not is_in_item and not reads_on(above.text, line.text)


def _hangs_out(first: Line, above: Line, line: Line) -> bool:
    """Whether a line begins further left than the one above, as the next item, entry or term of a list.

    It has a mark. Or it is as far left as the first line of the paragraph, and no sentence runs on into it.
    """
    if line.runs_left or above.box.left - line.box.left < _INDENT * (line.size or 1.0):
        return False
    is_entry = abs(line.box.left - first.box.left) <= EDGE and not reads_on(above.text, line.text)
    return is_entry or has_list_mark(line.text)


def _paragraph(rows: Sequence[Row]) -> PagePart:
    longest = max((line for row in rows for line in row), key=lambda line: len(line.text))
    texts = tuple(tuple(line.text for line in row) for row in rows)
    return PagePart(texts, _box(rows), longest.size, bold=all(map(_is_bold, rows)))


def with_headers_of_tables(pages: list[list[PagePart]]) -> None:
    """Repeat the header of a table that continues on the next page, with the columns that are empty there."""
    for above, below in pairwise(pages):
        if above and below:
            # A column that is empty on the next page, such as notes, is missing there.
            following = _with_empty_columns(below[0], above[-1])
            if _continues(above[-1], following):
                below[0] = following._replace(rows=(above[-1].rows[0], *following.rows))


def _with_empty_columns(following: PagePart, table: PagePart) -> PagePart:
    """A table with the columns of the one above where each of its own, at least three, is at one of these."""
    places = [
        at
        for box in following.columns
        for at, column in enumerate(table.columns)
        if min(abs(box.left - column.left), abs(box.right - column.right)) <= EDGE
    ]
    if not _FEWEST <= len(following.columns) == len(places) == len({*places}) < len(table.columns):
        return following
    rows = tuple(
        tuple(row[places.index(at)] if at in places else "" for at in range(len(table.columns)))
        for row in following.rows
    )
    return following._replace(rows=rows, columns=table.columns)


def _continues(table: PagePart, following: PagePart) -> bool:
    """Whether `following` continues a table: it has the same columns, and no header."""
    if not (table.is_table and following.is_table) or abs(table.box.left - following.box.left) > _MOVED:
        return False
    header, body, first = table.rows[0], table.rows[1:], following.rows[0]
    if len(header) != len(first) or are_numbers(header) or first == header:
        return False
    # A first row of names, where the other rows are records, is the header of another table.
    return are_numbers(first) == (2 * sum(map(are_numbers, body)) > len(body))
