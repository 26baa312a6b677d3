"""The sections of a PDF as its outline names them, placed where their headings stand."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.corpus import Block
from rag.ingest.parse.blocks import block, clean, title_line
from rag.text.segments import Span, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ENTRIES = 2_000  # of an outline: a hostile one is endless
_MAX_LEVEL = 6
_WRAPPED = 3  # lines that a heading may take
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


def outline_of(pdf: Any) -> list[Entry]:  # noqa: ANN401 a document of pypdfium2, which has no types
    """The entries of the outline that lead to a page, in order."""
    return list(_entries(pdf))


def _entries(pdf: Any) -> Iterator[Entry]:  # noqa: ANN401 see above
    for bookmark in islice(pdf.get_toc(max_depth=_MAX_LEVEL), MAX_ENTRIES):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and page >= 0 and (title := title_line(bookmark.get_title())):
            yield Entry(title, bookmark.level + 1, page)


def title_in(outline: Sequence[Entry]) -> str:
    """The one outermost entry of an outline with others, "" if there is none."""
    outermost = [entry.title for entry in outline if entry.level == 1]
    return outermost[0] if len(outermost) == 1 < len(outline) and may_be_title(outermost[0]) else ""


def may_be_title(words: str) -> bool:
    """Whether words can name a document: the names of its usual parts can't."""
    return not _NO_TITLE.fullmatch(words)


def with_outline(
    text: str, blocks: Sequence[Block], starts: Sequence[int], outline: Sequence[Entry]
) -> list[Block]:
    """The blocks of the pages that begin at `starts`, with a heading for each entry of the outline.

    A heading is the line of its page that has the title. If no line has it, it is the page's first line: the
    section begins on that page, and what comes before it belongs to another.
    """
    cut: list[Block] = []
    waiting = list(reversed(blocks))
    for heading in _headings(text, starts, outline):
        while waiting and waiting[-1].end <= heading.start:
            cut.append(waiting.pop())
        while waiting and waiting[-1].start < heading.end:
            one = waiting.pop()
            cut += block(text, one.kind, one.start, min(one.end, heading.start))
            waiting += block(text, one.kind, max(one.start, heading.end), one.end)
        cut.append(heading)
    return [*cut, *reversed(waiting)]


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
