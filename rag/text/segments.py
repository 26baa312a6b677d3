"""Slices of a text: its lines, its sentences and its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

MAX_INDENT = 200  # characters: deeper than any code, and a hostile line of blanks must not fill a reply

_CLOSERS = r"[\"'”’»)\]*_]"
_CJK_END, _CJK_CLOSERS = "。！？｡", "」』”’）》】"
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # written without spaces

_SENTENCE = re.compile(
    rf"(?P<end>[.!?…؟।]{_CLOSERS}{{0,3}}+)\s++(?![a-z])"
    rf"|[{_CJK_END}][{_CJK_CLOSERS}]*+(?![{_CJK_END}])"
)
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_]"  # an initial, or the last letter of "e.g."
    r"|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|Vol|vs|cf|ca|approx|bzw|vgl|et al)\.\Z"
)
_BEFORE_NUMBER = re.compile(  # "no. 5", "figs. 2 and 3"; "He said no. Then" ends a sentence
    r"(?<!\w)(?:nos?|nr|figs?|vols?|pp|eds?|ch|chap|sec|art|abs|abb|bd|kap|tab|eqs?|tel)\.\Z", re.IGNORECASE
)
_COUNTED = re.compile(r"(?<!\w)(?:vols?|bd)\.\s\d{1,4}\.\Z", re.IGNORECASE)  # "vol. 3." of a journal
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
_NOTE_ID = re.compile(r"%20[0-9a-f]{32}(?=[./)])")  # in a link; in prose, such digits can be a checksum
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_ASKING = re.compile("[?\uff1f\u061f\u055e\u037e]\\W*$")  # also full-width, Arabic, Armenian, Greek
ENDING = 32  # words that people write behind a pasted text


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


def with_indent(text: str, start: int) -> int:
    r"""Where the line of `text[start]` begins, if only white space precedes it there; else `start`.

    White space of more than `MAX_INDENT` characters isn't indentation.
    Example: position 7 of "a:\n    b" -> 3; position 2 of "a b" -> 2.
    """
    line = text.rfind("\n", max(0, start - MAX_INDENT - 1), start) + 1
    is_first = line or start <= MAX_INDENT
    return line if is_first and text[line:start].isspace() else start


def without_note_ids(text: str) -> str:
    """A text without the ids that Notion appends to the names of notes, in its links.

    Example, with an id of 32 digits: "[Visa](Visa%20page%200f1e….md)" -> "[Visa](Visa%20page.md)".
    """
    return _NOTE_ID.sub("", text)


def one_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(text.split())


def line_count(text: str) -> int:
    r"""The number of lines. A line ends at LF and nowhere else, as stored texts have it; see `line_at`.

    Example: "a\nb\n" and "a\nb" -> 2; "a\x0cb\u2028c" -> 1; "" -> 0.
    """
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def line_at(text: str, position: int) -> int:
    r"""The number, from 1, of the line that `text[position]` is on; a line end is on the line that it ends.

    Example: position 2 of "a\nb" -> 2; position 1 -> 1.
    """
    return text.count("\n", 0, position) + 1


def lines_span(text: str, first: int, last: int) -> Span | None:
    r"""The span of the lines from `first` to `last`, both included, without the end of the last one.

    Lines count from 1. There may be fewer than `last`; None if there is no line `first`.
    Example: lines 2 to 3 of "a\nb\nc\nd" -> (2, 5), "b\nc".
    """
    if first > line_count(text):
        return None
    start = _after_lines(text, 0, first - 1)
    end = _after_lines(text, start, last - first + 1)
    return Span(start, end - 1 if text[start:end].endswith("\n") else end)


def _after_lines(text: str, start: int, count: int) -> int:
    """The position after this number of line ends from `start` on; the end of the text if there are fewer."""
    for _ in range(count):
        start = text.find("\n", start) + 1
        if not start:
            return len(text)
    return start


def sentences(text: str) -> list[Span]:
    """The sentences of `text`, in order, trimmed; nothing but white space is left out.

    Headings, list items and table rows are sentences, too. In doubt two sentences stay together: after
    an abbreviation or an initial, and before a small letter.
    Example: "Dr. Who came. He left!" -> [(0, 13), (14, 22)].
    """
    cuts = {match.end() for match in _BLOCK.finditer(text)} | set(sentence_ends(text))
    spans = (trimmed(text, start, end) for start, end in pairwise([0, *sorted(cuts), len(text)]))
    return [span for span in spans if span]


def questions_in(text: str) -> str:
    """The sentences of a text that end with a question mark, one a line.

    Example: "Error 7. Why? It is new. What now?" -> "Why?" and "What now?".
    """
    return "\n".join(part for part in _sentences_by_line(text) if _ASKING.search(part))


def ending(text: str) -> str:
    """The last sentences of a text's last paragraph, up to `ENDING` words, but at least one; one a line."""
    parts = _sentences_by_line(text.rstrip().rpartition("\n\n")[2])
    counts = accumulate(len(part.split()) for part in reversed(parts))
    last = max(1, sum(count <= ENDING for count in counts))
    return "\n".join(parts[-last:])


def _sentences_by_line(text: str) -> list[str]:
    return [line[span.start : span.end] for line in text.splitlines() for span in sentences(line)]


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
        numbers = (_NUMBERED, _COUNTED)
        return any(number.search(text, *window) for number in numbers) or bool(
            _AFTER_ORDINAL.match(text, next_)
        )
    before_number = text[next_ : next_ + 1].isdigit() and _BEFORE_NUMBER.search(text, *window)
    return bool(before_number or _ABBREVIATION.search(text, *window))


def words(text: str) -> list[str]:
    """The words of `text` without case, accents kept; of Chinese and Japanese every character.

    Example: "The Leap-Second 閏秒" -> ["the", "leap", "second", "閏", "秒"].
    """
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())  # the same, faster
