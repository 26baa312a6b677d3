"""How a hit is cited for people: "Handbook › Leave › Parental leave, p. 4", "Budget › Q1, A2:F9"."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from rag.answers import BETWEEN_EXCERPTS
from rag.cells import hull, is_cell_range
from rag.page_labels import KEY, labels_in
from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit
    from rag.corpus import Chunk, Source

BETWEEN = " › "
MAX_PART_CHARS = 80  # of a title or a heading
SLIDES = frozenset(
    {
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.presentation",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    }
)
"""MIME types of documents whose pages are slides."""
SHEETS = frozenset(
    {
        "application/vnd.ms-excel",
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    }
)
"""MIME types of documents whose sections end with cells."""
MAX_PARTS = 3  # a title, and the headings next to the passage
_WITHOUT_BRACKETS = str.maketrans("[]", "()")


def cite_as(hit: Hit) -> str:
    """The title, the headings above what is shown, and the page, slide or cells, on one short line.

    Of several chunks that are a hit together, the headings that all of them have; and below these, from which
    to which: "Handbook › Leave › Sick leave … Parental leave".
    It has no square brackets, so a title can't pass for the citation of another document. Of a long path of
    headings, the title and the last ones stay.
    Example: "Handbook", ("Rules", "Leave", "Parental leave"), page 4
    -> "Handbook › … › Leave › Parental leave, p. 4".
    """
    title, headings = hit.source.title, _headings(hit)
    below = headings[1:] if headings[:1] == (title,) else headings
    parts = [shown for part in (title, *below) if (shown := _part(part))]
    if len(parts) > MAX_PARTS:
        parts = [parts[0], "…", *parts[1 - MAX_PARTS :]]
    return BETWEEN.join(parts) + _cells(hit) + _pages(hit)


def _headings(hit: Hit) -> tuple[str, ...]:
    """The headings above a hit; of several chunks the common ones, and from which to which below these."""
    of_each = [headings_of(hit.source, chunk) for chunk in hit.shown_chunks]
    if len(of_each) == 1 or hit.source.mime_type in SHEETS:
        return headings_of(hit.source, hit.chunk)
    first, last = of_each[0], of_each[-1]
    pairs = zip(*of_each, strict=False)
    common = [headings[0] for headings in takewhile(lambda headings: len(set(headings)) == 1, pairs)]
    own = [headings[len(common)] for headings in (first, last) if len(headings) > len(common)]
    return (*common, BETWEEN_EXCERPTS.join(own)) if len(own) > 1 else (*common,)


def headings_of(source: Source, chunk: Chunk) -> tuple[str, ...]:
    """The headings above a chunk: its section without the cells of a sheet."""
    return chunk.section[:-1] if cells_of(source, chunk) else chunk.section


def cells_of(source: Source, chunk: Chunk) -> str:
    """The cells of a sheet that a chunk holds, as "A2:F9"; empty elsewhere."""
    last = chunk.section[-1] if chunk.section else ""
    return last if source.mime_type in SHEETS and is_cell_range(last) else ""


def page_of(source: Source, first: int, last: int) -> str:
    """The page or the slide, or from which to which: "p. 4", "slides 2-3".

    A page is called by what is printed on it, with its place if that is another number: "p. 1 (3 of 5)".
    """
    one, several = ("slide", "slides") if source.mime_type in SLIDES else ("p.", "pp.")
    kind, place = (one, f"{first}") if first == last else (several, f"{first}-{last}")
    labels = labels_in(source.metadata.get(KEY, ""))
    if not 0 < first <= last <= len(labels):
        return f"{kind} {place}"
    begin, end = (label(labels[page - 1]).translate(_WITHOUT_BRACKETS) for page in (first, last))
    printed = begin if first == last else f"{begin}-{end}"
    may_mislead = printed != place and any(map(str.isdigit, printed))
    return f"{kind} {printed} ({place} of {len(labels)})" if may_mislead else f"{kind} {printed}"


def _cells(hit: Hit) -> str:
    """The cells that are shown of a sheet; of several sheets, those of the first one."""
    source, headings = hit.source, headings_of(hit.source, hit.chunk)
    alike = [chunk for chunk in hit.shown_chunks if headings_of(source, chunk) == headings]
    cells = hull(cells_of(source, chunk) for chunk in alike)
    return f", {cells}" if cells else ""


def _part(text: str) -> str:
    shown = label(text).translate(_WITHOUT_BRACKETS)
    return shown if len(shown) <= MAX_PART_CHARS else shown[: MAX_PART_CHARS - 1] + "…"


def _pages(hit: Hit) -> str:
    """The page on which the hit begins, and that of the last chunk that is shown with it."""
    pages: Sequence[int] = [chunk.page for chunk in hit.shown_chunks if chunk.page is not None]
    if not pages:
        return ""
    return f", {page_of(hit.source, pages[0], pages[-1])}"
