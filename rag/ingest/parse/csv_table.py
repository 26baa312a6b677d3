"""CSV and TSV: every row with the names of its columns."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from rag.corpus import Block
from rag.errors import ParseError
from rag.ingest.parse.blocks import GAP, clean, moved
from rag.ingest.parse.draft import is_header
from rag.ingest.parse.json_data import records_document
from rag.text.segments import one_line, without_note_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rag.corpus import Document

SUFFIXES = (".csv", ".tsv", ".tab")

_DELIMITERS = "\t;|,"
_LOOKED_AT = 50  # rows that tell how a table is written
_SEPARATOR = re.compile(r"\"?sep=(.)\"?[ \t]*(?:\n|\Z)", re.IGNORECASE)  # as Excel takes it in the first line
_COMMENT = re.compile(r"(?:#{2}|//|#\s)")


def parse(text: str, name: str) -> Document:
    """The document of a table: a block for each row, with `column: value` lines, readable on its own.

    The first row that has about as many cells as the others names the columns. What stands above it (a title,
    comments, when it was exported) is a paragraph.
    """
    text = without_note_ids(text.lstrip("\n\ufeff "))
    stated = _SEPARATOR.match(text)
    text = text[stated.end() :] if stated else text
    delimiter = stated[1] if stated else max(_DELIMITERS, key=lambda sign: _evidence(text, sign))
    above, names, rows = _parts(_rows(text, delimiter))
    mime_type = "text/tab-separated-values" if delimiter == "\t" else "text/csv"
    table = records_document(_records(names, rows), name, mime_type)
    return replace(table, **_below(above, table)) if above and table.blocks else table


def _below(above: str, table: Document) -> dict[str, Any]:
    """The text and the blocks of a table below what stands above it."""
    start = len(above) + len(GAP)
    blocks = (Block("paragraph", 0, len(above)), *moved(table.blocks, start))
    return {"text": f"{above}{GAP}{table.text}", "blocks": blocks}


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows that have any text.

    Raises:
        ParseError: a cell is too large, as one is whose quotation mark has no end.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=delimiter != "\t")
    try:
        yield from (row for row in rows if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise ParseError(f"line {rows.line_num}: {error}") from error


def _evidence(text: str, delimiter: str) -> tuple[float, int]:
    """What speaks for a delimiter: the share of rows that it cuts into equally many cells, and how many."""
    try:
        rows = [*islice(_rows(text, delimiter), _LOOKED_AT)]
    except ParseError:
        return 0.0, text.partition("\n")[0].count(delimiter)
    width = _width(rows)
    alike = sum(len(row) == width for row in rows)
    return (alike / len(rows) if width > 1 else 0.0), width


def _width(rows: Sequence[Sequence[str]]) -> int:
    """How many cells most rows have, more than one if there are any such rows."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    return max(widths, key=lambda width: (widths[width], width)) if widths else 1


def _parts(rows: Iterator[list[str]]) -> tuple[str, list[str], Iterator[list[str]]]:
    """What stands above a table, the row that names its columns, and the rows below it."""
    first = [*islice(rows, _LOOKED_AT)]
    width = _width(first)
    at = next((at for at, row in enumerate(first) if _names_columns(row, first[at + 1 : at + 2], width)), 0)
    lines = (" ".join(cell.strip() for cell in row if cell.strip()) for row in first[:at])
    return clean("\n".join(lines)).strip(), first[at] if first else [], chain(first[at + 1 :], rows)


def _names_columns(row: Sequence[str], below: Sequence[Sequence[str]], width: int) -> bool:
    """Whether a row can name the columns of a table, and the one below it doesn't do so rather."""
    filled = sum(bool(cell.strip()) for cell in row)
    if _COMMENT.match(row[0]) or (width > 1 and (filled == 1 or 2 * filled < width)):
        return False
    return len(row) >= width or not any(len(next_) >= width and is_header(next_) for next_ in below)


def _records(header: list[str], rows: Iterable[list[str]]) -> Iterator[dict[str, object]]:
    names = dict(enumerate(_names(header)))
    for row in rows:
        yield {names.get(number, f"column {number + 1}"): cell for number, cell in enumerate(row)}


def _names(header: list[str]) -> Iterator[str]:
    """The names of the columns. A missing or repeated name gets the number of its column."""
    seen: set[str] = set()
    for number, cell in enumerate(header, 1):
        name = one_line(cell)
        if not name or name in seen:
            name = f"{name or 'column'} {number}"
        seen.add(name)
        yield name
