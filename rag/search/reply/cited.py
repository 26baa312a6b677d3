"""How a hit is cited for people: "Handbook › Leave › Parental leave, p. 4"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.search.reply.untrusted import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit

BETWEEN = " › "
MAX_PART_CHARS = 80  # of a title or a heading
MAX_PARTS = 3  # a title, and the headings next to the passage
_WITHOUT_BRACKETS = str.maketrans("[]", "()")


def cite_as(hit: Hit) -> str:
    """The title, the headings above what is shown, and the page, on one short line.

    It has no square brackets, so a title can't pass for the citation of another document. Of a long path of
    headings, the title and the last ones stay.
    Example: "Handbook", ("Rules", "Leave", "Parental leave"), page 4
    -> "Handbook › … › Leave › Parental leave, p. 4".
    """
    title, headings = hit.source.title, hit.chunk.section
    below = headings[1:] if headings[:1] == (title,) else headings
    parts = [shown for part in (title, *below) if (shown := _part(part))]
    if len(parts) > MAX_PARTS:
        parts = [parts[0], "…", *parts[1 - MAX_PARTS :]]
    return BETWEEN.join(parts) + _pages(hit)


def _part(text: str) -> str:
    shown = label(text).translate(_WITHOUT_BRACKETS)
    return shown if len(shown) <= MAX_PART_CHARS else shown[: MAX_PART_CHARS - 1] + "…"


def _pages(hit: Hit) -> str:
    """The page on which the hit begins, and that of the last chunk that is shown with it."""
    pages: Sequence[int] = [chunk.page for chunk in hit.shown_chunks if chunk.page is not None]
    if not pages:
        return ""
    return f", p. {pages[0]}" if pages[0] == pages[-1] else f", pp. {pages[0]}-{pages[-1]}"
