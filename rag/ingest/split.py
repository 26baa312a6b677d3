"""Blocks to pieces that fit, cut where it hurts least."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rag.corpus import Block, BlockKind

    TokenSpans = Callable[[str], Sequence[tuple[int, int]]]
    Borders = Sequence[re.Pattern[str]]

CHARACTERS_PER_TOKEN = 12  # WordPiece counts any run of over 100 characters as one token
WINDOW = 1 << 16  # characters tokenized at once: more of them cost memory, and time

_GLUE = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # white space, but BERT's tokenizer joins the words around it
_SPACES = frozenset(filter(str.isspace, map(chr, range(0x3001)))).difference(_GLUE)
_BLANK = r"\n[^\S\n]*\n"
_ITEM = r"(?=(?:[-*+•]|\(?(?:\d{1,9}|[a-zA-Z#])[.)])[ \t])"
_SHALLOW = r"(?=(?: {0,4}|\t)[^\s)\]}])"
_WORD = rf"[^\S{_GLUE}]+"
_SENTENCE = rf"(?:(?<=[.!?…؟।])|(?<=[.!?…][\"'”’»)\]*_])){_WORD}+(?![a-z])|(?<=[。！？])"


def _borders(*patterns: str) -> Borders:
    return tuple(map(re.compile, patterns))


BORDERS: dict[BlockKind, Borders] = {
    "heading": _borders(_WORD),
    "paragraph": _borders(_BLANK, _SENTENCE, r"\n", _WORD),
    "list": _borders(r"\n" + _ITEM, r"\n[ \t]*+" + _ITEM, _BLANK, _SENTENCE, r"\n", _WORD),
    "table": _borders(r"\n", _SENTENCE, _WORD),
    "code": _borders(_BLANK + r"(?=\S)", _BLANK + _SHALLOW, _BLANK, r"\n" + _SHALLOW, r"\n", _WORD),
}
"""Where a block that is too large may be cut: after a match; better places come first."""


class Span(NamedTuple):
    """A slice of a text with no white space at its ends."""

    start: int
    end: int


class Measure:
    """How large the slices of a text are, in an embedder's tokens."""

    def __init__(self, text: str, token_spans: TokenSpans) -> None:
        self.text = text
        self.token_spans = token_spans
        self._starts = array("L")
        for window in _windows(text):
            self._starts.extend([window.start + start for start, _ in token_spans(text[slice(*window)])])

    def tokens(self, start: int, end: int) -> int:
        """How many tokens the slice is by itself."""
        if self._inside_word(start) or self._inside_word(end):
            return len(self.token_spans(self.text[start:end]))
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def size(self, start: int, end: int) -> int:
        """The tokens of the slice; more if it has too many characters for them."""
        return max(self.tokens(start, end), -(-(end - start) // CHARACTERS_PER_TOKEN))

    def fits(self, start: int, end: int, room: int) -> bool:
        """Whether the size is not over `room`."""
        return end - start <= CHARACTERS_PER_TOKEN * room and self.tokens(start, end) <= room

    def reach(self, start: int, room: int) -> int:
        """Where a slice from `start` must end at the latest, not to be over `room`."""
        token = bisect_left(self._starts, start) + room
        after = self._starts[token] if token < len(self._starts) else len(self.text)
        return max(start + 1, min(after, start + CHARACTERS_PER_TOKEN * room))

    def _inside_word(self, at: int) -> bool:
        """Whether a cut here can change tokens."""
        text = self.text
        return 0 < at < len(text) and text[at] not in _SPACES and text[at - 1] not in _SPACES


def _windows(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        end = start + WINDOW
        if end < len(text):
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1 or end
        yield Span(start, end)
        start = end


def pieces(measure: Measure, block: Block, room: int) -> Iterator[Span]:
    """The block if its size is not over `room`, else parts of it for which that holds, in order."""
    return _pieces(measure, Span(block.start, block.end), room, BORDERS[block.kind])


def _pieces(measure: Measure, span: Span, room: int, borders: Borders) -> Iterator[Span]:
    if measure.fits(*span, room):
        yield span
    elif borders:
        for part in _parts(measure.text, span, borders[0]):
            yield from _pieces(measure, part, room, borders[1:])
    else:
        yield from _hard_cuts(measure, span, room)


def _parts(text: str, span: Span, border: re.Pattern[str]) -> Iterator[Span]:
    cuts = (match.end() for match in border.finditer(text, *span))
    for start, end in pairwise([span.start, *cuts, span.end]):
        yield from _trimmed(text, start, end)


def _hard_cuts(measure: Measure, span: Span, room: int) -> Iterator[Span]:
    """Parts of a span without white space, cut between tokens as far as that goes."""
    start = span.start
    while start < span.end:
        end = min(span.end, measure.reach(start, room))
        while end > start + 1 and not measure.fits(start, end, room):
            end -= max(1, (end - start) // 8)  # half a word can be more tokens than the whole
        yield from _trimmed(measure.text, start, end)
        start = end


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    part = text[start:end]
    if words := part.strip():
        first = start + len(part) - len(part.lstrip())
        yield Span(first, first + len(words))
