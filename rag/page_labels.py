"""The numbers that are printed on the pages of a document, as one text: "i to iv, 1 to 120"."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEY = "page_labels"
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
    if all(label == str(place) for place, label in enumerate(labels, 1)):
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
    """The labels of all pages that `labels_text` made a text of; none if it is no such text."""
    labels: list[str] = []
    for run in text.split(_NEXT) if text else ():
        first, _, last = run.partition(_TO)
        labels.append(first)
        if last:
            most = _value(last) - _value(first)
            if not 0 < most <= MAX_PAGES - len(labels):
                return []
            labels += islice(_following(first), 1, most + 1)
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
    value, rest = 0, number.lower()
    for worth, letters in _ROMAN:
        while rest.startswith(letters):
            value, rest = value + worth, rest.removeprefix(letters)
    return value


def _roman(value: int) -> str:
    written = ""
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        written += letters * count
    return written
