"""Finds tables of pipe rows whose first row names the columns, so that a part of one can be read alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Block, Document

MAX_HEADER_CHARS = 2_000  # a longer header row leaves no room for the rows below it
_RULE = re.compile(r"[^\S\n]*\|?[^\S\n]*:?-[-:+| \t]*+(?:\n|$)")
_INNER = re.compile(  # within an item of a list or a quotation
    r"^(?P<mark>[ \t>]*+)(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?P<header>\|[^\n]{1,2000})\n"
    r"[ \t>]*+\|[ \t]*:?-[-:+| \t]*+(?:\n|\Z)",
    re.MULTILINE,
)
_ROW = re.compile(r"[ \t>]*+\|[^\n]*+(?:\n|\Z)")


class Table(NamedTuple):
    """A table: its header row, where the rows below it begin, and where the last one ends."""

    header: str
    rows: int
    end: int


def tables_of(document: Document) -> list[Table]:
    r"""The tables with a header row, in order. Rows that are blocks of their own follow each other directly.

    Example: the text "| a | b |\n|---|---|\n| 1 | 2 |" -> ("| a | b |", 20, 29).
    """
    found: list[Table] = []
    end = -1
    for block in document.blocks:
        if block.kind in {"list", "paragraph"}:
            found += _inner(document.text, block)
        if block.kind != "table":
            continue
        if block.start == end + 1 and found and found[-1].end == end:
            found[-1] = found[-1]._replace(end=block.end)
        elif table := _table(document.text, block):
            found.append(table)
        end = block.end
    return found


def _inner(text: str, block: Block) -> Iterator[Table]:
    """The tables in a list or a quotation, whose rows begin with a stroke."""
    for match in _INNER.finditer(text, block.start, block.end):
        end = match.end()
        while row := _ROW.match(text, end, block.end):
            end = row.end()
        yield Table(match["header"].strip(), match.end(), end)


def _table(text: str, block: Block) -> Table | None:
    end = text.find("\n", block.start, block.start + MAX_HEADER_CHARS)
    if end < 0 or "|" not in text[block.start : end]:
        return None
    rule = _RULE.match(text, end + 1, block.end)
    return Table(text[block.start : end].strip(), rule.end(), block.end) if rule else None
