"""Slices of a text: its sentences and its words."""

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
    rf"(?P<end>[.!?…؟।]{_CLOSERS}{{0,3}}+)\s++(?![a-z])"
    rf"|[{_CJK_END}][{_CJK_CLOSERS}]*+(?![{_CJK_END}])"
)
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_]"  # an initial, or the last letter of "e.g."
    r"|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|Vol|vs|cf|ca|approx|bzw|vgl)\.\Z"
)
_NUMBERED = re.compile(  # an item's number at the start of a line, or a German ordinal after its article
    r"(?:(?:\A|\n)[ \t#>*+•(|-]*(?:\d{1,3}\.)*"
    r"|(?<!\w)(?:am|vom|zum|im|beim|ab|seit|der|die|das|des|dem|den|jeder|jede|jedes|jeden|jedem)\s)"
    r"\d{1,2}\.\Z",
    re.IGNORECASE,
)
_AFTER_ORDINAL = re.compile(
    r"(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    r"|Jahrhunderts?|Jh)\b"
)
_LOOKED_BACK = 40  # characters: longer than any abbreviation, and than the start of a numbered line
_BLOCK = re.compile(
    r"\n[^\S\n]*+\n\s*+"  # a blank line
    r"|(?<![^\n])#{1,6}[ \t][^\n]*+\n"  # the end of a heading
    r"|\n(?=[ \t]*+(?:(?:[-*+•]|\(?\d{1,9}[.)]|#{1,6})[ \t]|\|))"  # before an item, a heading or a row
)
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")


class Span(NamedTuple):
    """The slice `text[start:end]` of a text."""

    start: int
    end: int


def trimmed(text: str, start: int, end: int) -> Span | None:
    """The slice without the white space at its ends, None if none is left. `end` may be beyond the text."""
    part = text[start:end]
    if not (inside := part.strip()):
        return None
    first = start + len(part) - len(part.lstrip())
    return Span(first, first + len(inside))


def one_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(text.split())


def sentences(text: str) -> list[Span]:
    """The sentences of `text`, in order, trimmed; nothing but white space is left out.

    Headings, list items and table rows are sentences, too. In doubt two sentences stay together: after
    an abbreviation or an initial, and before a small letter.
    Example: "Dr. Who came. He left!" -> [(0, 13), (14, 22)].
    """
    cuts = {match.end() for match in _BLOCK.finditer(text)} | set(sentence_ends(text))
    spans = (trimmed(text, start, end) for start, end in pairwise([0, *sorted(cuts), len(text)]))
    return [span for span in spans if span]


def sentence_ends(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The positions in running text where a sentence ends, its closing marks and white space included.

    Example: "It costs 5. The next, by Dr. Who, costs 7. Am 3. Oktober" -> 12, 43.
    """
    for match in _SENTENCE.finditer(text, start, len(text) if end is None else end):
        if not _is_inside(text, match.end("end"), match.end()):
            yield match.end()


def _is_inside(text: str, end: int, next_: int) -> bool:
    """Whether the mark that ends at `end` is part of an abbreviation or a number, not the end of a sentence.

    `end` is -1 for the marks of Chinese and Japanese, which have no such abbreviations.
    """
    if end < 0:
        return False
    window = max(0, end - _LOOKED_BACK), end
    if text[max(0, end - 2)].isdigit():
        return bool(_NUMBERED.search(text, *window) or _AFTER_ORDINAL.match(text, next_))
    return bool(_ABBREVIATION.search(text, *window))


def words(text: str) -> list[str]:
    """The words of `text` without case, accents kept; of Chinese and Japanese every character.

    Example: "The Leap-Second 閏秒" -> ["the", "leap", "second", "閏", "秒"].
    """
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())  # the same, faster
