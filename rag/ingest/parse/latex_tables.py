"""The tables of LaTeX: their cells, also merged ones, and the rows that stand on their first page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rag.ingest.parse.document_parts import MAX_SPAN, MergedCells

DEEP_TEXT = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\})*+"
"""A text with braces in braces in braces."""
_DEEP = rf"\{{{DEEP_TEXT}\}}"
TABULAR = re.compile(  # the tags of a table, with the widths of its columns
    r"\\(?:(?P<end>end)|begin)\{(?:tabular|longtable|array|(?P<wide>tabular\*|tabularx|tabulary|xltabular))\}"
    r"(?(end)|(?:\[[^\[\]\n]{0,200}\])?(?(wide)\s*\{[^{}]{0,200}\}(?:\[[^\[\]\n]{0,200}\])?)"
    rf"(?:\s*{_DEEP})?)"
)
CAPTION = re.compile(rf"\\caption\*?(?:\s*\[[^\[\]]*\])?\s*({_DEEP})\s*(?:\\\\|\\tabularnewline)?")
_PAGE_PARTS = (("firsthead", "head"), ("lastfoot", "foot"))
_CELL_MARKS = re.compile(
    r"(?P<opens>\{|\\begin\{[^{}]*\})|(?P<closes>\}|\\end\{[^{}]*\})|(?P<cell>&)"
    r"|\\end(?P<page>firsthead|head|foot|lastfoot)(?![a-zA-Z@])"
    r"|(?P<row>\\\\\*?(?:\[[^\[\]\n]{0,50}\])?|\\tabularnewline(?![a-zA-Z@]))|\\.",
    re.DOTALL,
)
_INNER_MARKS = re.compile(r"(\\[^\\a-zA-Z])|\\\\|&|\\end(?:firsthead|head|foot|lastfoot)(?![a-zA-Z@])")
_ACROSS = re.compile(r"\\multicolumn\s*\{\s*(\d{1,9})\s*\}")
_DOWN = re.compile(r"\\multirow\s*(?:\[\w*\])?\s*\{\s*(-?\d{1,9})\s*\}")
_RULES = re.compile(
    r"\\(?:(?:hline|toprule|midrule|bottomrule|addlinespace|hdashline)(?![a-zA-Z@])(?:\[[^\[\]\n]*\])?"
    r"|(?:c|cdash|hh)line\{[^{}]*\}|cmidrule(?:\([^()]*\))?\{[^{}]*\}|noalign\{[^{}]*\}"
    r"|(?:row|cell)color(?:\[[^\[\]\n]*\])?\{[^{}]*\})"
)


class _Cell(NamedTuple):
    """The text of a cell, and over how many columns and rows it goes, upwards if `down` is negative."""

    text: str
    across: int
    down: int


def table_rows(text: str, plain: Callable[[str], str], merged: MergedCells) -> Iterator[list[str]]:
    """The texts of the cells of a table, row by row; `plain` gives the words of a text."""
    rows = [_cells(row, plain) for row in _split_rows(_RULES.sub("", text))]
    merged.begin()
    for row in _with_raised(rows):
        texts: list[str] = []
        for column, cell in row.items():
            if cell.text:
                texts += merged.repeated(column)
                texts.append(merged.place(cell.text, cell.down, cell.across))
        texts += merged.repeated(sum(cell.across for cell in row.values()))
        merged.next_row()
        if any(cell.text for cell in row.values()):
            yield texts


def _cells(cells: Iterable[str], plain: Callable[[str], str]) -> dict[int, _Cell]:
    """The cells of a row by column, also those that are blank because a cell above goes over them."""
    row: dict[int, _Cell] = {}
    column = 0
    for cell in cells:
        before_inner = cell.partition(r"\begin{")[0]  # a table in the cell has spans of its own
        across, down = (
            int(match[1]) if (match := span.search(before_inner)) else 1 for span in (_ACROSS, _DOWN)
        )
        across = min(max(across, 1), MAX_SPAN)
        row[column] = _Cell(
            plain(_INNER_MARKS.sub(lambda mark: mark[1] or " ", TABULAR.sub("", cell))), across, down
        )
        column += across
    return row


def _split_rows(text: str) -> list[list[str]]:
    """The cells of each row, without rows that LaTeX repeats on further pages.

    What is in braces or environments belongs to one cell.
    """
    rows: list[list[str]] = [[]]
    of_pages: dict[str, list[list[str]]] = {}
    depth = at = 0
    for mark in _CELL_MARKS.finditer(text):
        depth = max(depth + bool(mark["opens"]) - bool(mark["closes"]), 0)
        if not depth and (mark["cell"] or mark["row"] or mark["page"]):
            rows[-1].append(text[at : mark.start()])
            at = mark.end()
            if mark["page"]:
                of_pages[mark["page"]], rows = rows, [[]]
            elif mark["row"]:
                rows.append([])
    rows[-1].append(text[at:])
    head, foot = (of_pages.get(first, of_pages.get(each, [])) for first, each in _PAGE_PARTS)
    return [*head, *rows, *foot]


def _with_raised(rows: list[dict[int, _Cell]]) -> list[dict[int, _Cell]]:
    r"""The rows with cells that go upwards, as \multirow{-2} does, in the first of their rows."""
    for number, row in enumerate(rows):
        for column, cell in row.items():
            first = max(number + 1 - min(-cell.down, MAX_SPAN), 0)
            above = [rows[at].get(column) for at in range(first, number)]
            if above and all(part and not part.text for part in above):
                rows[first][column] = cell._replace(down=number + 1 - first)
                row[column] = cell._replace(text="")
    return rows
