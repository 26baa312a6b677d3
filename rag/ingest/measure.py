"""The size of slices of a text: what a reader has to read, and what an embedder reads of it.

An embedder's vocabulary cuts a language that it doesn't know into single letters. Its tokens then say nothing
of how much there is to read, and its window needn't bind what it can't read anyway.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from rag.text.segments import Span, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    TokenSpans = Callable[[str], Sequence[tuple[int, int]]]

CHARACTERS_PER_TOKEN = 12  # WordPiece counts any run of over 100 characters as one token
WINDOW = 1 << 16  # characters tokenized at once: more of them cost memory, and time
LETTERS_PER_UNIT = 4  # of a long word in English, without the space after it
GLUE = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # white space, but BERT's tokenizer joins the words around it

_SPACES = frozenset(filter(str.isspace, map(chr, range(0x3001)))).difference(GLUE)
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
_SIGN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an embedder reads of a document: all but its `foreign` parts, in passages as large as its window.

    The window is `slack` tokens larger than a passage may be.
    """

    foreign: Sequence[Span] = ()
    slack: int = 0


class Measure:
    """The size of slices of a text, in an embedder's tokens.

    With `reading`, words that aren't ASCII count as much as English ones of their length (*units*), and each
    sign of Chinese and Japanese as one, if that is less than their tokens. Then the tokens of a slice have to
    fit the window, too, unless it is foreign.
    """

    def __init__(self, text: str, token_spans: TokenSpans, reading: Reading | None = None) -> None:
        self.text = text
        self.token_spans = token_spans
        self._starts = array("L")
        for window in _windows(text):
            self._starts.extend([window.start + start for start, _ in token_spans(text[slice(*window)])])
        self._units = self._starts if reading is None else _unit_starts(text, self._starts)
        self._reading = reading or Reading()

    def tokens(self, start: int, end: int) -> int:
        """The number of tokens of the slice alone."""
        if self._inside_word(start) or self._inside_word(end):
            return len(self.token_spans(self.text[start:end]))
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def units(self, start: int, end: int) -> int:
        """What there is to read of the slice alone."""
        if self._inside_word(start) or self._inside_word(end):
            text = self.text[start:end]
            return len(self.token_spans(text)) if self._units is self._starts else self._units_of(text)
        return bisect_left(self._units, end) - bisect_left(self._units, start)

    def taken(self, context: str) -> int:
        """What a context takes of a passage: its tokens, or its units if the whole document is foreign."""
        if self._is_foreign(*trimmed(self.text, 0, len(self.text)) or (0, 0)):
            return self._units_of(context)
        return len(self.token_spans(context))

    def _units_of(self, text: str) -> int:
        return len(_unit_starts(text, array("L", [start for start, _ in self.token_spans(text)])))

    def size(self, start: int, end: int) -> int:
        """The units of the slice, or what its characters count as, whichever is more."""
        return max(self.units(start, end), -(-(end - start) // CHARACTERS_PER_TOKEN))

    def fits(self, start: int, end: int, room: int) -> bool:
        """Whether the size is at most `room`, and the embedder reads all of it that it can read."""
        if end - start > CHARACTERS_PER_TOKEN * room or self.units(start, end) > room:
            return False
        if self._units is self._starts or self._is_foreign(start, end):
            return True
        return self.tokens(start, end) <= room + self._reading.slack

    def reach(self, start: int, room: int) -> int:
        """The last position where a slice from `start` can end and still fit."""
        unit = bisect_left(self._units, start) + room
        after = self._units[unit] if unit < len(self._units) else len(self.text)
        return max(start + 1, min(after, start + CHARACTERS_PER_TOKEN * room))

    def before(self, end: int, units: int) -> int:
        """Where the last so many units before `end` begin."""
        unit = bisect_left(self._units, end) - units
        return self._units[unit] if unit > 0 else 0

    def _inside_word(self, at: int) -> bool:
        """Whether a cut here can change tokens."""
        text = self.text
        return 0 < at < len(text) and text[at] not in _SPACES and text[at - 1] not in _SPACES

    def _is_foreign(self, start: int, end: int) -> bool:
        parts = self._reading.foreign
        at = bisect_right(parts, start, key=lambda part: part.start) - 1
        return at >= 0 and end <= parts[at].end


def _unit_starts(text: str, starts: array[int]) -> array[int]:
    """Where the units of a text begin, whose tokens begin at `starts`."""
    if text.isascii():
        return starts
    units: array[int] = array("L")
    done = 0
    for match in _WORD.finditer(text):
        word = match[0]
        if word.isascii():
            continue
        first = bisect_left(starts, match.start(), done)
        after = bisect_left(starts, match.end(), first)
        count = _units_in(word, after - first)
        units.extend(starts[done:first])
        units.extend([match.start() + len(word) * number // count for number in range(count)])
        done = after
    units.extend(starts[done:])
    return units


def _units_in(word: str, pieces: int) -> int:
    """The units of a word that is so many tokens; very long tokens are unknown ones."""
    signs = len(_SIGN.findall(word))
    units = signs + ceil((len(word) - signs) / LETTERS_PER_UNIT)
    return units if len(word) > CHARACTERS_PER_TOKEN * pieces else min(pieces, units)


def _windows(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        end = start + WINDOW
        if end < len(text):
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1 or end
        yield Span(start, end)
        start = end
