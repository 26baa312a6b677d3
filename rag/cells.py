"""Cells of a spreadsheet, named as people name them: A2 is the second cell of the first column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS = 26
_RANGE = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})(?::([A-Z]{1,3})([1-9]\d{0,6}))?")


def column_name(number: int) -> str:
    """The letters of a column, counted from 1: 1 -> "A", 27 -> "AA"."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, _LETTERS)
        letters = chr(ord("A") + letter) + letters
    return letters


def column_number(name: str) -> int:
    """The number of a column, counted from 1: "A" -> 1, "AA" -> 27."""
    number = 0
    for letter in name:
        number = number * _LETTERS + ord(letter) - ord("A") + 1
    return number


def cell_range(first: tuple[int, int], last: tuple[int, int]) -> str:
    """The name of the cells between two corners, each a row and a column: (2, 1), (9, 6) -> "A2:F9"."""
    names = [f"{column_name(column)}{row}" for row, column in (first, last)]
    return names[0] if names[0] == names[1] else ":".join(names)


def is_cell_range(name: str) -> bool:
    """Whether a name is one of cells: "A2:F9" and "B7" are, "A2:" and "a2" are not."""
    return bool(_RANGE.fullmatch(name))


def hull(ranges: Iterable[str]) -> str:
    """The smallest range that holds all of these: "A2:F2", "B9:C9" -> "A2:F9". None of them -> ""."""
    rows: list[int] = []
    columns: list[int] = []
    for match in filter(None, map(_RANGE.fullmatch, ranges)):
        rows += [int(match[2]), int(match[4] or match[2])]
        columns += [column_number(match[1]), column_number(match[3] or match[1])]
    return cell_range((min(rows), min(columns)), (max(rows), max(columns))) if rows else ""
