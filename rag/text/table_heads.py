"""What heads the rows of a table: the lines above it, and the row that names its columns.

A caption says what the figures are: the name of the table, the period, the unit. It is a line above the
table, or a row in which few cells are filled ("In millions of CHF", "", "January to June 2023").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rag.text.plain_text import TABLE_RULE, one_line, sentences

CAPTION_PARTS = 3  # a name, what it covers ("Years ended June 30"), and a unit
MAX_CAPTION_CHARS = 160  # of a line above a table
MAX_PARAGRAPH = 1_000  # characters of one that are looked at
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "।")
LABEL = re.compile(r"\W*[^\W\d_]{2,12}\.?\s?\d{1,3}(?:\.\d{1,3})*\s?[.:)–—]")
"""How a numbered caption begins: "Table 1:", "Tab. 2.3 –"."""
PAGE_BREAK = "\x0c"
"""A new page begins here, within the text of a block."""

_NUMBER = re.compile(r"[\s(+\-−–]*[$€£¥]?\s?[\d.,'\u00a0\u202f ]*\d[\d.,'\u00a0\u202f]*\s?[%€$£¥)]{0,2}\s*")
_YEAR = re.compile(r"(?:19|20)\d\d")


class TableHead(NamedTuple):
    """The lines of a caption, the outermost first, and the header row; `rows_below` of it are part of it."""

    captions: tuple[str, ...]
    header: str
    rows_below: int = 0


def pipe_row(cells: Iterable[str]) -> str:
    """A row of a table on one line: "| Ann | 3 |"."""
    lines = (PAGE_BREAK * cell.count(PAGE_BREAK) + one_line(cell) for cell in cells)
    return f"| {' | '.join(line.replace('|', chr(92) + '|') for line in lines)} |"


def is_header(row: Sequence[str]) -> bool:
    """Whether a row can name columns: it has words, and no numbers except years."""
    filled = [cell for cell in row if cell]
    numbers = [cell for cell in filled if _NUMBER.fullmatch(cell)]
    enough = len(filled) > 1 or (len(row) == 2 and not row[0])  # noqa: PLR2004 names of rows, and one column
    return enough and len(numbers) < len(filled) and all(map(_YEAR.fullmatch, numbers))


def table_head(above: Sequence[str], header: str, below: Sequence[str]) -> TableHead:
    """The head of a table below the parts `above` whose header row has the rows `below` under its rule.

    A row that names groups of columns is read together with the columns, above the header or as the header.
    Example: "| | Sales | |" above "| Zone | 2022 | 2023 |" -> "| Zone | Sales 2022 | Sales 2023 |".
    """
    names, first, second = _cells(header), *map(_cells, [*below[:2], "", ""][:2])
    if above and _groups_columns(above[-1], names):
        return TableHead(caption_lines(above[:-1]), _by_groups(above[-1], names))
    if _groups_columns(header, first):
        return TableHead(caption_lines(above), _by_groups(header, first))
    is_caption = names[0] and not any(names[1:]) and len(names) == len(first) > 1
    if is_caption and is_header(first) and any(second) and not is_header(second):
        return TableHead((*caption_lines(above), names[0]), below[0].strip(), 1)
    return TableHead(caption_lines(above), header)


def _groups_columns(upper: str, names: Sequence[str]) -> bool:
    """Whether a row names groups of the columns with these names."""
    groups = _cells(upper)
    spans = any(group and not following for group, following in pairwise(groups))
    related = groups[0] == "" or any(
        group and group == name for group, name in zip(groups, names, strict=False)
    )
    return "\n" not in upper and len(groups) == len(names) and spans and related and is_header(names)


def _by_groups(upper: str, names: Sequence[str]) -> str:
    return pipe_row(_columns_by_group(_cells(upper), names))


def _columns_by_group(groups: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The columns by their groups.

    Example: ["Zone", "Sales", ""] and ["Zone", "2022", "2023"] -> "Zone", "Sales 2022" and "Sales 2023".
    """
    current = ""
    for group, name in zip(groups, names, strict=True):
        current = group or current
        yield current if name in {"", current} else f"{current} {name}".strip()


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def caption_lines(above: Sequence[str]) -> tuple[str, ...]:
    """What the last of the parts above a table say of it, each on one line; none if they are ordinary text.

    Example: "Sales grew.", "Balance sheets" and "(in millions)" -> "Balance sheets", "(in millions)".
    """
    lines: list[str] = []
    for part in reversed(above[-CAPTION_PARTS:]):
        if not (line := caption_line(part)):
            break
        lines.insert(0, line)
    return tuple(lines)


def caption_line(part: str) -> str:
    """A paragraph that is numbered or doesn't end as a sentence does, or its last sentence before a colon.

    Of rows, the cells, if these are words and no rule names their columns.
    """
    if part.startswith("|"):
        line = _line_of_rows(part.split("\n"))
    else:
        line = one_line(part[-MAX_PARAGRAPH:])
        if line.endswith((":", "：")):
            line = [line[start:end] for start, end in sentences(line)][-1]
        elif line.endswith(SENTENCE_ENDS) and not LABEL.match(line):
            line = ""
    return line if len(line) <= MAX_CAPTION_CHARS else ""


def _line_of_rows(rows: Sequence[str]) -> str:
    cells = [[cell for cell in _cells(row) if cell] for row in rows]
    if len(rows) > CAPTION_PARTS or any(map(TABLE_RULE.fullmatch, rows)) or not all(map(is_header, cells)):
        return ""
    return " ".join(cell for row in cells for cell in row)
