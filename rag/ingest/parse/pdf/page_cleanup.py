"""Removes what pages add to the text of a PDF: running headers and footers, page numbers, and hyphenation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rag.ingest.parse.pdf.page_layout import Row, body_size, level_rows
from rag.ingest.parse.pdf.pdf_words import HYPHEN, Line, PageLines

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


def without_running_lines(sheets: Sequence[PageLines]) -> list[list[Line]]:
    """The lines of each page without page numbers, and without headers and footers of earlier pages.

    A page with nothing else keeps all of its lines.
    """
    largest = _LARGEST * body_size(line for sheet in sheets for line in sheet.lines)
    edges = [edge for page, sheet in enumerate(sheets) for edge in _edges(page, sheet, largest)]
    left_out = defaultdict[int, set[int]](set)
    for edge in _repeated_edges(edges):
        left_out[edge.page].update(map(id, edge.lines))
    return [
        [line for line in sheet.lines if id(line) not in left_out[page]] or sheet.lines
        for page, sheet in enumerate(sheets)
    ]


def _edges(page: int, sheet: PageLines, largest: float) -> Iterator[_Edge]:
    rows = level_rows([line for line in sheet.lines if not line.turned])
    for edge in (rows[:_TOP], rows[: -_BOTTOM - 1 : -1]):
        for at, row in enumerate(edge):
            inner = rows[at + 1 : at + 2] if edge[0] is rows[0] else rows[-at - 2 : -at - 1]
            text = " ".join(line.text for line in row)
            if row[0].size > largest or len(text) > _LENGTH or (inner and _is_of_table(row, inner[0])):
                break
            is_ruled = bool(inner) and not any(map(str.isalnum, "".join(line.text for line in inner[0])))
            if is_ruled or (inner and _distance(row, inner[0]) > _APART * row[0].box.height):
                outer_rows = edge[: at + 1] + inner if is_ruled else edge[: at + 1]
                yield from (
                    _Edge(page, outer_row, " ".join(line.text for line in outer_row))
                    for outer_row in outer_rows
                )
                break


def _distance(row: Row, inner: Row) -> float:
    """The empty space between two rows."""
    box, inner_box = row[0].box, inner[0].box
    return max(box.top - inner_box.bottom, inner_box.top - box.bottom)


def _is_of_table(row: Row, inner: Row) -> bool:
    if min(len(row), len(inner)) < 2:  # noqa: PLR2004 one cell doesn't make a table
        return False
    apart = abs(row[0].box.top - inner[0].box.top)
    return apart < _NEXT * row[0].box.height


def _repeated_edges(edges: Sequence[_Edge]) -> Iterator[_Edge]:
    """The edges that number the pages, and all but the first of equal edges."""
    by_text, by_count = defaultdict[object, list[_Edge]](list), defaultdict[object, list[_Edge]](list)
    for edge in edges:
        by_text[edge.height, edge.text].append(edge)
        for text, first in _numberings(edge):
            by_count[edge.height, text, first].append(edge)
    for repeats in by_text.values():
        if len({edge.page for edge in repeats}) >= _PAGES:
            yield from (edge for edge in repeats if edge.page != repeats[0].page)
    for repeats in by_count.values():
        if len({edge.page for edge in repeats}) >= _NUMBERED_PAGES:
            yield from repeats


def _numberings(edge: _Edge) -> Iterator[tuple[str, int]]:
    """For each number in an edge: the text with # in its place, and what the number is on the first page."""
    if _ROMAN.fullmatch(edge.text):
        yield "#", _roman(edge.text) - edge.page
    for number in _NUMBER.finditer(edge.text):
        yield edge.text[: number.start()] + "#" + edge.text[number.end() :], int(number[0]) - edge.page


def _roman(numeral: str) -> int:
    """The value of a Roman numeral. Example: "xiv" -> 14."""
    digits = [_DIGITS[digit] for digit in numeral.casefold()]
    return sum(
        -digit if digit < following else digit
        for digit, following in zip(digits, [*digits[1:], 0], strict=True)
    )


_CUT = re.compile(rf"(?P<one>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<other>[^\W_]+)")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def dehyphenator(text: str) -> Callable[[str], str]:
    """A function that rejoins words hyphenated at line ends, by the vocabulary of the document `text`.

    If the document has the word elsewhere, with or without its hyphen, that spelling wins. Otherwise the
    hyphen stays before a capital letter or a digit, in documents that rarely end a line with a hyphen, and
    between two words of the document if no line certainly hyphenates a word. In all other cases it goes.
    """
    words = frozenset(word.casefold() for word in _WORD.findall(_CUT.sub(" ", text)))
    cuts = sum(_is_cut(match["one"], match["other"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_certainly_cut(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        start, end = match["one"], match["other"]
        whole = (start + end).casefold()
        if whole in words and f"{start}-{end}".casefold() not in words:
            return start + end
        is_compound = is_rare or (not cuts_words and {start.casefold(), end.casefold()} <= words)
        if is_compound or not _is_cut(start, end) or f"{start}-{end}".casefold() in words:
            return f"{start}-{end}"
        return start + end

    def whole(part: str) -> str:
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


def with_next_line(cell: str, next_line: str) -> str:
    """A cell and its next line, joined by a space, or by a line feed below a hyphenated word."""
    line = f"{cell}\n{next_line}"
    return line if _CUT.search(line, cell.rfind("\n") + 1) else f"{cell} {next_line}".strip()


def _is_cut(start: str, end: str) -> bool:
    return start[-1].islower() and end[0].islower() and not any(map(str.isdigit, start + end))


def _is_certainly_cut(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line certainly hyphenates a word: a half isn't in the vocabulary, or the whole is."""
    start, end = match["one"].casefold(), match["other"].casefold()
    return _is_cut(match["one"], match["other"]) and (start + end in words or not {start, end} <= words)
