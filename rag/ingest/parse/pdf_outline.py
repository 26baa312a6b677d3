"""What a PDF says of its structure: sections from its outline, a title from its outline or first page."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.corpus import Block
from rag.ingest.parse.blocks import clean, paragraphs, title_line
from rag.text import Span, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pypdf import PageObject, PdfReader

MAX_ENTRIES = 2_000  # of an outline: a hostile one is endless
_MAX_LEVEL = 6
_WRAPPED = 3  # lines that a heading may take
_LARGER = 1.2  # times the size of most of the text: what a title has at least
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_NUMBER = re.compile(  # before a title, as in "Chapter 3: ", "IV. " and "1.2 "; the outline may lack it
    r"\A((chapter|part|section|appendix)\s+)?(\d[\d.]*|[ivxlc]+|[a-z])[.):]*\s+", re.IGNORECASE
)
_PART = r"(table of )?contents|abstract|introduction|summary|preface|cover|index|title( page)?"
_NO_TITLE = re.compile(rf"{_PART}|(page|slide|chapter)? ?\d*", re.IGNORECASE)


class Entry(NamedTuple):
    """An entry of an outline: its title, its level from 1, and the page that it leads to, from 0."""

    title: str
    level: int
    page: int


def outline_of(reader: PdfReader) -> list[Entry]:
    """The entries of the outline that lead to a page, in order; none if it is damaged."""
    try:
        return list(islice(_entries(reader, reader.outline, 1), MAX_ENTRIES))
    except Exception:  # noqa: BLE001 pypdf raises all kinds of errors on damaged files, whose text is good
        return []


def _entries(reader: PdfReader, items: Sequence[Any], level: int) -> Iterator[Entry]:
    for item in items:
        if isinstance(item, list):
            yield from _entries(reader, item, level + 1)
            continue
        page = reader.get_destination_page_number(item)
        if page is not None and page >= 0 and (title := title_line(item.title or "")):
            yield Entry(title, min(level, _MAX_LEVEL), page)


def title_in(outline: Sequence[Entry], page: PageObject) -> str:
    """The one outermost entry of an outline, else the largest words of the first page, else ""."""
    outermost = [entry.title for entry in outline if entry.level == 1]
    if len(outermost) == 1 < len(outline) and not _NO_TITLE.fullmatch(outermost[0]):
        return outermost[0]
    words = _largest_words(page)
    return "" if _NO_TITLE.fullmatch(words) else words


def _largest_words(page: PageObject) -> str:
    """The words in the largest letters, if these are clearly larger than most."""
    sizes: Counter[float] = Counter()
    words: dict[float, list[str]] = {}

    def seen(text: str, cm: list[float], tm: list[float], _font: object, size: float) -> None:
        height = math.hypot(tm[2] * cm[0] + tm[3] * cm[2], tm[2] * cm[1] + tm[3] * cm[3]) * size
        if text.strip() and math.isfinite(height):
            sizes[round(height, 1)] += len(text)
            words.setdefault(round(height, 1), []).append(text)

    try:
        page.extract_text(visitor_text=seen)
    except Exception:  # noqa: BLE001 see above
        return ""
    usual = max(
        sizes, key=lambda size: sizes[size], default=0.0
    )  # most_common() imports a module: too late here
    if not sizes or max(sizes) < _LARGER * usual:
        return ""
    return title_line(" ".join(words[max(sizes)]))


def blocks_of(text: str, starts: Sequence[int], outline: Sequence[Entry]) -> Iterator[Block]:
    """The blocks of the pages that begin at `starts`: paragraphs, and a heading for each outline entry.

    A heading is the line of its page that has the title. If no line has it, it is the page's first line: the
    section begins on that page, and what comes before it belongs to another.
    """
    headings = list(_headings(text, starts, outline))
    for start, end in pairwise([*starts, len(text)]):
        at = start
        for heading in headings:
            if start <= heading.start < end:
                yield from paragraphs(text, at, heading.start)
                yield heading
                at = heading.end
        yield from paragraphs(text, at, end)


def _headings(text: str, starts: Sequence[int], outline: Sequence[Entry]) -> Iterator[Block]:
    at = 0
    ends = [*starts[1:], len(text)]
    for entry in outline:
        if entry.page >= len(starts):
            continue
        start, end = max(at, starts[entry.page]), ends[entry.page]
        span = _line_of(text, start, end, entry.title)
        if span is None and start == starts[entry.page]:
            first = _LINE.search(text, start, end)
            span = trimmed(text, *first.span()) if first else None
        if span:
            yield Block("heading", *span, entry.level, entry.title)
            at = span.end


def _line_of(text: str, start: int, end: int, title: str) -> Span | None:
    """The line, or the lines, of `text[start:end]` that have a title, with or without its number."""
    wanted = {_letters(title), _letters(_NUMBER.sub("", title))}
    lines = [match.span() for match in _LINE.finditer(text, start, end)]
    for last, (_, stop) in enumerate(lines):
        for begin, _ in reversed(
            lines[max(0, last + 1 - _WRAPPED) : last + 1]
        ):  # one line is enough if it can
            words = text[begin:stop].strip()
            if not wanted.isdisjoint({_letters(words), _letters(_NUMBER.sub("", words))}):
                return trimmed(text, begin, stop)
    return None


def _letters(words: str) -> str:
    """Letters and digits only: outlines and pages differ in spaces, hyphens and dots."""
    return "".join(filter(str.isalnum, clean(words[:500]).casefold()))
