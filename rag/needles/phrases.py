"""The quoted phrases of a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.text import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAIRS = {
    '"': '"',
    "\uff02": "\uff02",
    "\u201c": "\u201d\u201c",
    "\u201d": "\u201d",
    "\u201e": "\u201c\u201d",
    "\u00ab": "\u00bb",
    "\u00bb": "\u00ab\u00bb",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
"""Each opening mark with those that close it: English, German, Swedish, French and Japanese."""
QUOTES = frozenset("".join([*_PAIRS, *_PAIRS.values()]))
_OPENS = re.compile(r"[\s(\[{<=:,;/|—–-]")  # may precede an opening mark; a digit may not: 5" pipe
_CLOSES = re.compile(r"[\s)\]}>.,;:!?/|'’—–-]")
_UNSPACED_MARKS = frozenset("\u300c\u300e")
_SPACED_MARKS = frozenset("\u00ab\u00bb")  # French has a space inside


def phrases(query: str) -> tuple[str, ...]:
    """The phrases in quotation marks, each once, in order. A mark without its other half is ordinary text.

    A mark opens a phrase at the beginning or after a space or a bracket, and closes it before a space,
    punctuation or the end. So inches are no quotes.
    Example: '"leave of absence" policy “form A”' -> leave of absence, form A; '5" or 6" pipe' -> nothing.
    """
    return tuple(dict.fromkeys(query[start + 1 : end].strip() for start, end in _quoted(query)))


def unquoted(query: str) -> str | None:
    """The query with its phrases as ordinary words; None if it has no phrases, or no words besides them.

    Example: '"leave of absence" policy' -> leave of absence policy; '"leave of absence"' -> None.
    """
    quoted = [*_quoted(query)]
    edges = [0, *(at + after for span in quoted for at, after in zip(span, (0, 1), strict=True)), len(query)]
    besides = "".join(query[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    if not quoted or not any(map(str.isalnum, besides)):
        return None
    marks = {at for span in quoted for at in span}
    return "".join(" " if at in marks else character for at, character in enumerate(query)).strip()


def _quoted(query: str) -> Iterator[Span]:
    """The positions of the opening and the closing mark of each phrase, in order."""
    unclosed: set[str] = set()  # what is not closed behind one mark is not behind a later one
    at = 0
    while at < len(query):
        is_open = query[at] not in unclosed and _is_opening(query, at)
        end = _closing(query, at) if is_open else None
        if end is None:
            unclosed |= {query[at]} if is_open else set()
            at += 1
            continue
        yield Span(at, end)
        at = end + 1


def _is_opening(query: str, at: int) -> bool:
    mark, after = query[at], query[at + 1 : at + 2]
    if mark not in _PAIRS or not after or after in _PAIRS[mark]:
        return False
    if after.isspace() and mark not in _SPACED_MARKS:
        return False
    return mark in _UNSPACED_MARKS or not at or bool(_OPENS.match(query[at - 1]))


def _closing(query: str, opening: int) -> int | None:
    """Where the phrase that opens here is closed, None if it isn't."""
    mark = query[opening]
    for at in range(opening + 2, len(query)):
        if query[at] not in _PAIRS[mark] or (query[at - 1].isspace() and mark not in _SPACED_MARKS):
            continue
        if at + 1 == len(query) or mark in _UNSPACED_MARKS or _CLOSES.match(query[at + 1]):
            return at
    return None
