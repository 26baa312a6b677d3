"""What a PDF's pages have that the text has not: running headers, footers, page numbers, and cut words.

Lines at the edge of the pages that come again are left out. Words that are cut at the end of a line are put
together again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rag.ingest.parse.pdf.page_layout import Row, body_size, level_rows
from rag.ingest.parse.pdf.pdf_words import HYPHEN, Line, Sheet

_TOP, _BOTTOM = 2, 3  # rows at the edges of a page that are looked at
_PAGES = 3  # that a line stands on at least
_NUMBERED_PAGES = 2  # the same, if it counts the pages
_SLACK = 10.0  # points that a line may be moved
_LARGEST = 1.15  # times the size of most letters: a larger line is a heading
_APART = 0.5  # times the height of a line: how far from the text it stands at least
_NEXT = 2.5  # times the height of a line: how far away the next row of a table is
_LENGTH = 200  # characters
_NUMBER = re.compile(r"\d{1,5}")
_ROMAN = re.compile(r"[ivxlc]+", re.IGNORECASE)
_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


class _Edge(NamedTuple):
    """A row at the edge of a page."""

    page: int
    lines: Row
    text: str

    @property
    def height(self) -> int:
        return round(self.lines[0].box.top / _SLACK)


def without_furniture(sheets: Sequence[Sheet]) -> list[list[Line]]:
    """The lines of each page without what counts its pages, and without what an earlier page already says.

    Where nothing else is on a page, all of it stays.
    """
    largest = _LARGEST * body_size(line for sheet in sheets for line in sheet.lines)
    edges = [edge for page, sheet in enumerate(sheets) for edge in _edges(page, sheet, largest)]
    left_out = defaultdict[int, set[int]](set)
    for edge in _repeated(edges):
        left_out[edge.page].update(map(id, edge.lines))
    return [
        [line for line in sheet.lines if id(line) not in left_out[page]] or sheet.lines
        for page, sheet in enumerate(sheets)
    ]


def _edges(page: int, sheet: Sheet, largest: float) -> Iterator[_Edge]:
    rows = level_rows([line for line in sheet.lines if not line.turned])
    for edge in (rows[:_TOP], rows[: -_BOTTOM - 1 : -1]):
        for at, row in enumerate(edge):
            inner = rows[at + 1 : at + 2] if edge[0] is rows[0] else rows[-at - 2 : -at - 1]
            text = " ".join(line.text for line in row)
            if row[0].size > largest or len(text) > _LENGTH or (inner and _is_of_table(row, inner[0])):
                break
            is_ruled = bool(inner) and not any(map(str.isalnum, "".join(line.text for line in inner[0])))
            if is_ruled or (inner and _distance(row, inner[0]) > _APART * row[0].box.height):
                found = edge[: at + 1] + inner if is_ruled else edge[: at + 1]
                yield from (_Edge(page, one, " ".join(line.text for line in one)) for one in found)
                break


def _distance(row: Row, other: Row) -> float:
    """The empty space between two rows."""
    one, two = row[0].box, other[0].box
    return max(one.top - two.bottom, two.top - one.bottom)


def _is_of_table(row: Row, inner: Row) -> bool:
    if min(len(row), len(inner)) < 2:  # noqa: PLR2004 one cell is no table
        return False
    apart = abs(row[0].box.top - inner[0].box.top)
    return apart < _NEXT * row[0].box.height


def _repeated(edges: Sequence[_Edge]) -> Iterator[_Edge]:
    """Those that count the pages, and all but the first of those that are the same."""
    same, counting = defaultdict[object, list[_Edge]](list), defaultdict[object, list[_Edge]](list)
    for edge in edges:
        same[edge.height, edge.text].append(edge)
        for text, first in _counts(edge):
            counting[edge.height, text, first].append(edge)
    for found in same.values():
        if len({edge.page for edge in found}) >= _PAGES:
            yield from (edge for edge in found if edge.page != found[0].page)
    for found in counting.values():
        if len({edge.page for edge in found}) >= _NUMBERED_PAGES:
            yield from found


def _counts(edge: _Edge) -> Iterator[tuple[str, int]]:
    """The text with # for each of its numbers, and what that number would be on the first page."""
    if _ROMAN.fullmatch(edge.text):
        yield "#", _roman(edge.text) - edge.page
    for number in _NUMBER.finditer(edge.text):
        yield edge.text[: number.start()] + "#" + edge.text[number.end() :], int(number[0]) - edge.page


def _roman(written: str) -> int:
    """Its value. Example: "xiv" -> 14."""
    digits = [_DIGITS[digit] for digit in written.casefold()]
    return sum(-one if one < other else one for one, other in zip(digits, [*digits[1:], 0], strict=True))


_CUT = re.compile(rf"(?P<one>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<other>[^\W_]+)")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def joiner(text: str) -> Callable[[str], str]:
    """What joins the cut words in parts of a document, by all words of the document.

    Where the document has the whole word, it is that: with its hyphen or without. Otherwise a hyphen stays
    between two words that the document has, if none of its lines cuts a word for sure, and before a capital
    letter or a digit; else it goes. A document with few hyphens at ends of lines cuts no words.
    """
    words = frozenset(word.casefold() for word in _WORD.findall(_CUT.sub(" ", text)))
    cuts = sum(_is_cut(match["one"], match["other"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_sure(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        one, other = match["one"], match["other"]
        whole = (one + other).casefold()
        if whole in words and f"{one}-{other}".casefold() not in words:
            return one + other
        is_compound = is_rare or (not cuts_words and {one.casefold(), other.casefold()} <= words)
        if is_compound or not _is_cut(one, other) or f"{one}-{other}".casefold() in words:
            return f"{one}-{other}"
        return one + other

    def whole(part: str) -> str:
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


def with_next_line(cell: str, more: str) -> str:
    """A cell with its next line, which stays a line of its own only below a cut word."""
    line = f"{cell}\n{more}"
    return line if _CUT.search(line, cell.rfind("\n") + 1) else f"{cell} {more}".strip()


def _is_cut(one: str, other: str) -> bool:
    return one[-1].islower() and other[0].islower() and not any(map(str.isdigit, one + other))


def _is_sure(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line cuts a word: its halves are none, or the whole is one."""
    one, other = match["one"].casefold(), match["other"].casefold()
    return _is_cut(match["one"], match["other"]) and (one + other in words or not {one, other} <= words)
