"""CSV and TSV: every row with the names of its columns."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.json_data import records_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Document

SUFFIXES = (".csv", ".tsv", ".tab")

_DELIMITERS = "\t;|,"


def parse(text: str, name: str) -> Document:
    """The document of a table: a block for each row, with `column: value` lines, readable on its own.

    The first row names the columns.
    """
    text = text.lstrip()
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    mime_type = "text/tab-separated-values" if delimiter == "\t" else "text/csv"
    return records_document(_records(text, delimiter), name, mime_type)


def _records(text: str, delimiter: str) -> Iterator[dict[str, object]]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = dict(enumerate(_names(next(rows, []))))
        for row in rows:
            yield {names.get(number, f"column {number + 1}"): cell for number, cell in enumerate(row)}
    except csv.Error as error:
        raise ParseError(f"line {rows.line_num}: {error}") from error


def _names(header: list[str]) -> Iterator[str]:
    """The names of the columns. A missing or repeated name gets the number of its column."""
    seen: set[str] = set()
    for number, cell in enumerate(header, 1):
        name = cell.strip()
        if not name or name in seen:
            name = f"{name or 'column'} {number}"
        seen.add(name)
        yield name
