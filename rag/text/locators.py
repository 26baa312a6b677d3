"""Places in a document as people name them: printed page numbers, and cells of a spreadsheet.

The printed numbers of all pages are one text: "i to iv, 1 to 120". A2 is the second cell of the first column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

PAGE_LABELS_KEY = "page_labels"
"""The key of the metadata under which a source has them."""
MAX_CHARS = (
    300  # of the whole text: a document with more changes than fit is cited by the places of its pages
)
MAX_PAGES = 20_000

_TO, _NEXT = " to ", ", "
_NUMBER = re.compile(r"(?P<prefix>.*?)(?P<number>[1-9]\d{0,5}|[ivxlcdm]+|[IVXLCDM]+)")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


def labels_text(labels: Sequence[str]) -> str:
    """The labels of all pages as a text, "" if they say no more than the places of the pages.

    Example: ["i", "ii", "1", "2", "3"] -> "i to ii, 1 to 3".
    """
    if all(label == str(number) for number, label in enumerate(labels, 1)):
        return ""
    if any(not label or _TO in label or _NEXT in label for label in labels):
        return ""
    runs: list[tuple[str, str]] = []
    for label in labels:
        if runs and label == next(islice(_following(runs[-1][1]), 1, None), None):
            runs[-1] = runs[-1][0], label
        else:
            runs.append((label, label))
    text = _NEXT.join(first if first == last else f"{first}{_TO}{last}" for first, last in runs)
    return text if len(text) <= MAX_CHARS else ""


def labels_in(text: str) -> list[str]:
    """The labels of all pages, from the output of `labels_text`; none for other texts."""
    labels: list[str] = []
    for run in text.split(_NEXT) if text else ():
        first, _, last = run.partition(_TO)
        labels.append(first)
        if last:
            count = _value(last) - _value(first)
            if not 0 < count <= MAX_PAGES - len(labels):
                return []
            labels += islice(_following(first), 1, count + 1)
            if labels[-1] != last:
                return []
    return labels


def _following(label: str) -> Iterator[str]:
    """A label and those that count on from it: "A-9" -> "A-9", "A-10" …; only itself if it has no number."""
    yield label
    match = _NUMBER.fullmatch(label)
    while match:
        prefix, number = match["prefix"], match["number"]
        value = _value(label) + 1
        roman = _roman(value)
        counted = str(value) if number.isdigit() else roman if number.islower() else roman.upper()
        label = prefix + counted
        yield label
        match = _NUMBER.fullmatch(label)


def _value(label: str) -> int:
    """The number at the end of a label, 0 if it has none: "xiv" -> 14, "A-3" -> 3."""
    match = _NUMBER.fullmatch(label)
    if not match:
        return 0
    number = match["number"]
    if number.isdigit():
        return int(number)
    value, remainder = 0, number.lower()
    for worth, letters in _ROMAN:
        while remainder.startswith(letters):
            value, remainder = value + worth, remainder.removeprefix(letters)
    return value


def _roman(value: int) -> str:
    numeral = ""
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        numeral += letters * count
    return numeral


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
