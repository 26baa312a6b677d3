"""Finds what says of what a part of a table is: the row that names the columns, or a record's first line."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rag.ingest.parse.draft import is_header, pipe_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.corpus import Block, Document

MAX_HEADER_CHARS = 2_000  # a longer header row leaves no room for the rows below it
_KEY = re.compile(r"[^\n:|]{1,60}: \S[^\n]{0,199}\n")  # of a record: a longer value names nothing
_RULE = re.compile(r"[^\S\n]*\|?[^\S\n]*:?-[-:+| \t]*+(?:\n|$)")
_INNER = re.compile(  # within an item of a list or a quotation
    r"^(?P<mark>[ \t>]*+)(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?P<header>\|[^\n]{1,2000})\n"
    r"[ \t>]*+\|[ \t]*:?-[-:+| \t]*+(?:\n|\Z)",
    re.MULTILINE,
)
_ROW = re.compile(r"[ \t>]*+\|[^\n]*+(?:\n|\Z)")


class Table(NamedTuple):
    """A table: its header row, where the rows below it begin, and where the last one ends.

    Where one row names groups of columns and the next one the columns, the header has both on one line. A
    record ("Article: Bolt M6", and a line for each further column) has its first line as its header.
    """

    header: str
    rows: int
    end: int
    is_record: bool = False


def tables_of(document: Document) -> list[Table]:
    r"""The tables with a header row, in order. Rows that are blocks of their own follow each other directly.

    Example: the text "| a | b |\n|---|---|\n| 1 | 2 |" -> ("| a | b |", 20, 29).
    """
    found: list[Table] = []
    aboves: dict[int, str] = {}
    end, above = -1, ""
    for block in document.blocks:
        if block.kind in {"list", "paragraph"}:
            found += _inner(document.text, block)
        if block.kind != "table":
            continue
        if block.start == end + 1 and found and found[-1].end == end and not found[-1].is_record:
            found[-1] = found[-1]._replace(end=block.end)
        elif table := _table(document.text, block):
            found.append(table)
            aboves[table.rows] = above
        end = block.end
        above = document.text[block.start : min(block.end, block.start + MAX_HEADER_CHARS)]
    return [_with_groups(document.text, table, aboves.get(table.rows, "")) for table in found]


def _with_groups(text: str, table: Table, above: str) -> Table:
    """A table whose header has the names of groups of columns, which stand above it or above its columns."""
    if table.is_record:
        return table
    below = text[table.rows : table.end][:MAX_HEADER_CHARS].lstrip("\n").partition("\n")[0]
    for upper, lower in ((above, table.header), (table.header, below)):
        groups, names = _cells(upper), _cells(lower)
        spans = any(group and not following for group, following in pairwise(groups))
        related = groups[0] == "" or any(
            group and group == name for group, name in zip(groups, names, strict=False)
        )
        if "\n" not in upper and len(groups) == len(names) and spans and related and is_header(names):
            return table._replace(header=pipe_row(_named(groups, names)))
    return table


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _named(groups: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The columns by their groups.

    Example: ["Zone", "Sales", ""] and ["Zone", "2022", "2023"] -> "Zone", "Sales 2022" and "Sales 2023".
    """
    current = ""
    for group, name in zip(groups, names, strict=True):
        current = group or current
        yield current if name in {"", current} else f"{current} {name}".strip()


def _inner(text: str, block: Block) -> Iterator[Table]:
    """The tables in a list or a quotation, whose rows begin with a stroke."""
    for match in _INNER.finditer(text, block.start, block.end):
        end = match.end()
        while row := _ROW.match(text, end, block.end):
            end = row.end()
        yield Table(match["header"].strip(), match.end(), end)


def _table(text: str, block: Block) -> Table | None:
    if key := _KEY.match(text, block.start, block.end):
        return Table(key[0].strip(), key.end(), block.end, is_record=True)
    end = text.find("\n", block.start, block.start + MAX_HEADER_CHARS)
    if end < 0 or "|" not in text[block.start : end]:
        return None
    rule = _RULE.match(text, end + 1, block.end)
    return Table(text[block.start : end].strip(), rule.end(), block.end) if rule else None
