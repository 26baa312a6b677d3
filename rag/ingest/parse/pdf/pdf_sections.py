"""The sections of a PDF: the entries of its outline, placed at their headings, or headings by font size."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rag.corpus import Block
from rag.ingest.parse.document_parts import block, clean, title_line
from rag.text.plain_text import Span, trimmed

if TYPE_CHECKING:
    from rag.ingest.parse.pdf.page_tables import PagePart

MAX_ENTRIES = 2_000  # of an outline: a hostile one is endless
_MAX_LEVEL = 6
_WRAPPED = 3  # lines that a heading may take
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_NUMBER = re.compile(  # before a title, as in "Chapter 3: ", "IV. " and "1.2 "; the outline may lack it
    r"\A((chapter|part|section|appendix)\s+)?(\d[\d.]*|[ivxlc]+|[a-z])[.):]*\s+", re.IGNORECASE
)
_PART = r"(table of )?contents|abstract|introduction|summary|preface|cover|index|title( page)?"
_NO_TITLE = re.compile(rf"{_PART}|(page|slide|chapter)? ?\d*", re.IGNORECASE)


class OutlineEntry(NamedTuple):
    """An entry of an outline: its title, its level from 1, and the page that it leads to, from 0."""

    title: str
    level: int
    page: int


def outline_of(pdf: Any) -> list[OutlineEntry]:  # noqa: ANN401 a document of pypdfium2, which has no types
    """The entries of the outline that lead to a page, in order."""
    return list(_entries(pdf))


def _entries(pdf: Any) -> Iterator[OutlineEntry]:  # noqa: ANN401 see above
    for bookmark in islice(pdf.get_toc(max_depth=_MAX_LEVEL), MAX_ENTRIES):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and page >= 0 and (title := title_line(bookmark.get_title())):
            yield OutlineEntry(title, bookmark.level + 1, page)


def title_in(outline: Sequence[OutlineEntry]) -> str:
    """The title of the only level 1 entry of an outline that has others below it, or ""."""
    outermost = [entry.title for entry in outline if entry.level == 1]
    return outermost[0] if len(outermost) == 1 < len(outline) and may_be_title(outermost[0]) else ""


def may_be_title(words: str) -> bool:
    """Whether words can name a document, rather than one of its usual parts."""
    return not _NO_TITLE.fullmatch(words)


def with_outline(
    text: str, blocks: Sequence[Block], starts: Sequence[int], outline: Sequence[OutlineEntry]
) -> list[Block]:
    """The blocks of the pages that begin at `starts`, with a heading for each entry of the outline.

    A heading is the line of its page that has the title, else the first line of the page.
    """
    cut: list[Block] = []
    waiting = list(reversed(blocks))
    for heading in _headings(text, starts, outline):
        while waiting and waiting[-1].end <= heading.start:
            cut.append(waiting.pop())
        while waiting and waiting[-1].start < heading.end:
            waiting_block = waiting.pop()
            cut += block(text, waiting_block.kind, waiting_block.start, min(waiting_block.end, heading.start))
            waiting += block(
                text, waiting_block.kind, max(waiting_block.start, heading.end), waiting_block.end
            )
        cut.append(heading)
    return [*cut, *reversed(waiting)]


def _headings(text: str, starts: Sequence[int], outline: Sequence[OutlineEntry]) -> Iterator[Block]:
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
    """The line or lines of `text[start:end]` with this title, with or without its number."""
    titles = {_letters(title), _letters(_NUMBER.sub("", title))}
    lines = [match.span() for match in _LINE.finditer(text, start, end)]
    for last, (_, stop) in enumerate(lines):
        # The shortest match first: one line, then this line and those above.
        for begin, _ in reversed(lines[max(0, last + 1 - _WRAPPED) : last + 1]):
            words = text[begin:stop].strip()
            if not titles.isdisjoint({_letters(words), _letters(_NUMBER.sub("", words))}):
                return trimmed(text, begin, stop)
    return None


def _letters(words: str) -> str:
    """Letters and digits only, because outlines and pages differ in spaces, hyphens and dots."""
    return "".join(filter(str.isalnum, clean(words[:500]).casefold()))


LEVELS = 6
_LARGER = 1.15  # times the size of most letters: what a heading has at least
_TITLE = 1.2  # the same, of a title
_SMALLER = 0.97  # the same: smaller bold words are labels
_ROWS, _LENGTH, _BOLD_LENGTH = 3, 200, 120  # of a heading at most
_WORDS = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]")
_NO_HEADING = re.compile(r"[•▪◦●–—*-]\s|.*[,;]\Z", re.DOTALL)
_SENTENCE = re.compile(r".*[.!]\Z", re.DOTALL)


def body_of(parts: Iterable[PagePart]) -> tuple[float, bool]:
    """The font size of most characters, and whether most are bold."""
    sizes, bold = Counter[float](), Counter[bool]()
    for part in parts:
        length = len(part.text)
        sizes[part.size] += length
        bold[part.bold] += length
    return max(sizes, key=lambda size: sizes[size], default=0.0), bold[True] > bold[False]


def levels_of(parts: Sequence[PagePart]) -> list[int]:
    """The heading level of each part, 0 if it isn't a heading. The largest font size is level 1."""
    body, bold = body_of(parts)
    looks = [_look(part) if _is_heading(part, body, bold=bold) else None for part in parts]
    ranks = {
        look: rank for rank, look in enumerate(sorted({look for look in looks if look}, reverse=True), 1)
    }
    return [min(ranks[look], LEVELS) if look else 0 for look in looks]


def _look(part: PagePart) -> tuple[float, bool]:
    return round(part.size * 2) / 2, part.bold


def _is_heading(part: PagePart, body: float, *, bold: bool) -> bool:
    text = part.text
    if part.is_table or len(part.rows) > _ROWS or len(text) > _LENGTH:
        return False
    if not _WORDS.search(text) or _NO_HEADING.match(text):
        return False
    if part.size >= _LARGER * body:
        return True
    return (
        part.bold
        and not bold
        and part.size >= _SMALLER * body
        and len(text) <= _BOLD_LENGTH
        and not _SENTENCE.fullmatch(text)
    )


def largest_words(first_page: Sequence[PagePart], body: float) -> str:
    """The words in the largest font size of a page, or "" if the text is hardly smaller."""
    texts = [part for part in first_page if not part.is_table and _WORDS.search(part.text)]
    largest = max((part.size for part in texts), default=0.0)
    if largest < _TITLE * body:
        return ""
    largest_parts = [part for part in texts if part.size == largest]
    title = largest_parts[:1]
    for above, below in pairwise(largest_parts):
        if below.box.top - above.box.bottom > 2 * largest:
            break
        title.append(below)
    return title_line(" ".join(part.text for part in title))
