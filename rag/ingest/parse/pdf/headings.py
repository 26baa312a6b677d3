"""Headings and the title of a PDF by the look of its letters."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import title_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rag.ingest.parse.pdf.tables import Part

LEVELS = 6
_LARGER = 1.15  # times the size of most letters: what a heading has at least
_TITLE = 1.2  # the same, of a title
_SMALLER = 0.97  # the same: smaller bold words are labels
_ROWS, _LENGTH, _BOLD_LENGTH = 3, 200, 120  # of a heading at most
_WORDS = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]")
_NO_HEADING = re.compile(r"[•▪◦●–—*-]\s|.*[,;]\Z", re.DOTALL)
_SENTENCE = re.compile(r".*[.!]\Z", re.DOTALL)


def body_of(parts: Iterable[Part]) -> tuple[float, bool]:
    """The size that most characters have, and whether most are bold."""
    sizes, bold = Counter[float](), Counter[bool]()
    for part in parts:
        length = len(part.text)
        sizes[part.size] += length
        bold[part.bold] += length
    return max(sizes, key=lambda size: sizes[size], default=0.0), bold[True] > bold[False]


def levels_of(parts: Sequence[Part]) -> list[int]:
    """The level of each part that is a heading, else 0. The largest letters are of level 1."""
    body, bold = body_of(parts)
    looks = [_look(part) if _is_heading(part, body, bold=bold) else None for part in parts]
    ranks = {look: rank for rank, look in enumerate(sorted({one for one in looks if one}, reverse=True), 1)}
    return [min(ranks[look], LEVELS) if look else 0 for look in looks]


def _look(part: Part) -> tuple[float, bool]:
    return round(part.size * 2) / 2, part.bold


def _is_heading(part: Part, body: float, *, bold: bool) -> bool:
    text = part.text
    if part.is_table or len(part.rows) > _ROWS or len(text) > _LENGTH:
        return False
    if not _WORDS.search(text) or _NO_HEADING.match(text):
        return False
    if part.size >= _LARGER * body:
        return True
    return (
        part.bold
        and not bold
        and part.size >= _SMALLER * body
        and len(text) <= _BOLD_LENGTH
        and not _SENTENCE.fullmatch(text)
    )


def largest_words(first_page: Sequence[Part], body: float) -> str:
    """The words in the largest letters of a page, if these are clearly larger than most; else ""."""
    texts = [part for part in first_page if not part.is_table and _WORDS.search(part.text)]
    largest = max((part.size for part in texts), default=0.0)
    if largest < _TITLE * body:
        return ""
    found = [part for part in texts if part.size == largest]
    title = found[:1]
    for one, other in pairwise(found):
        if other.box.top - one.box.bottom > 2 * largest:
            break
        title.append(other)
    return title_line(" ".join(part.text for part in title))
