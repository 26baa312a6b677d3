"""Where the sentences of a text are, and which words it has."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOSERS = r"[\"'”’»)\]*_]"
_CJK_END, _CJK_CLOSERS = "。！？｡", "」』”’）》】"
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # written without spaces

_SENTENCE = re.compile(
    rf"(?P<said>[.!?…؟।]{_CLOSERS}{{0,3}}+)\s++(?![a-z])"
    rf"|[{_CJK_END}][{_CJK_CLOSERS}]*+(?![{_CJK_END}])"
)
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_]|\d{1,2}"  # an initial, the last letter of "e.g.", an ordinal or an item's number
    r"|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|Vol|vs|cf|ca|approx|bzw|vgl)\.\Z"
)
_LONGEST_ABBREVIATION = len("approx.")
_BLOCK = re.compile(
    r"\n[^\S\n]*+\n\s*+"  # a blank line
    r"|(?<![^\n])#{1,6}[ \t][^\n]*+\n"  # the end of a heading
    r"|\n(?=[ \t]*+(?:(?:[-*+•]|\(?\d{1,9}[.)]|#{1,6})[ \t]|\|))"  # before an item, a heading or a row
)
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")


class Span(NamedTuple):
    """A slice of a text with no white space at its ends."""

    start: int
    end: int


def sentences(text: str) -> list[Span]:
    """The sentences of `text`, in order; they leave out nothing but white space.

    Headings, list items and table rows are sentences, too. In doubt two sentences stay together: after
    an abbreviation or an initial, and before a small letter.
    Example: "Dr. Who came. He left!" -> [(0, 13), (14, 22)].
    """
    cuts = {match.end() for match in _BLOCK.finditer(text)} | set(_sentence_ends(text))
    parts = pairwise([0, *sorted(cuts), len(text)])
    return [_trimmed(text, start, end) for start, end in parts if text[start:end].strip()]


def words(text: str) -> list[str]:
    """The words of `text` without case, accents kept; of Chinese and Japanese every character.

    Example: "The Leap-Second 閏秒" -> ["the", "leap", "second", "閏", "秒"].
    """
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())  # the same, faster


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE.finditer(text):
        end = match.end("said")  # -1 in Chinese and Japanese, which have no such abbreviations
        if not _ABBREVIATION.search(text, max(0, end - _LONGEST_ABBREVIATION), max(0, end)):
            yield match.end()


def _trimmed(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return Span(end - len(part.lstrip()), start + len(part.rstrip()))
