"""Cuts a window out of a source's text: what `get_source` shows, and how sections around hits are trimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.answers import Extract
from rag.errors import InvalidRequestError, NotFoundError
from rag.text import Span
from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import Chunk
    from rag.search.view import View
    from rag.store.reader import StoredSource


SNAP_SHARE = 5  # an edge moves inwards by up to 1/5 of the window, so that it doesn't cut a word


def centred(whole: Span, middle: Span, max_chars: int) -> Span:
    """Up to `max_chars` of `whole`, centred on `middle`; starts with `middle` if that is longer.

    Example: whole (0, 100), middle (40, 50), max_chars 30 -> (30, 60).
    """
    spare = max(0, max_chars - (middle.end - middle.start))
    start = max(whole.start, min(middle.start - spare // 2, whole.end - max_chars))
    return Span(start, min(start + max_chars, whole.end))


def between_words(text: str, window: Span, whole: Span) -> Span:
    """`window` with its edges moved inwards to the nearest white space, except at the edges of `whole`.

    Example: "one two three four five", window (2, 20) of whole (0, 23) -> (4, 18), "two three four".
    """
    reach = max(1, (window.end - window.start) // SNAP_SHARE)
    start, end = window.start, window.end
    if start > whole.start and not text[start - 1].isspace():
        start = next((at + 1 for at in range(start, min(start + reach, end)) if text[at].isspace()), start)
    if end < whole.end and not text[end].isspace():
        end = next((at for at in range(end - 1, max(end - reach, start), -1) if text[at].isspace()), end)
    return Span(start, end)


async def extract(
    view: View,
    source_id: str,
    seqs: range,
    *,
    start: int | None,
    max_chars: int,
    around: int | None,
) -> Extract:
    """A window on a source of the view; see `Desk.extract`."""
    opened = await view.table.text(source_id)
    if opened is None or not view.admits(opened[0]):
        raise NotFoundError(NOT_FOUND)
    stored, outline, text = opened
    named = await _named(view, stored, seqs) if seqs else None
    whole, middle = await _requested(view, stored, named, start=start, around=around)
    window = between_words(text, centred(whole, middle, max_chars), whole)
    chunks = await view.table.touching(stored, window.start, window.end, view.where)
    shown = text[window.start : window.end]
    return Extract(stored.source, outline, window.start, window.end, shown, chunks, whole.end, stored.fields)


async def _named(view: View, stored: StoredSource, seqs: range) -> Sequence[Chunk]:
    """The chunks with these numbers, all of which must be there and readable."""
    if seqs[-1] < stored.source.chunk_count:
        chunks = await view.table.between(stored, seqs[0], seqs[-1], view.where)
        if len(chunks) == len(seqs):
            return chunks
    raise NotFoundError(NOT_FOUND)


async def _requested(
    view: View,
    stored: StoredSource,
    named: Sequence[Chunk] | None,
    *,
    start: int | None,
    around: int | None,
) -> tuple[Span, Span]:
    """The span that is requested, and the part of it to centre on if it is too long for the window."""
    length = stored.source.length
    if around is not None and (named is None or start is not None):
        raise InvalidRequestError(
            "around needs the id of a chunk (source_id/seq) and can't be combined with start."
        )
    if around is not None and around < 0:
        raise InvalidRequestError(f"around must be at least 0, not {around}.")
    if start is not None:
        if not 0 <= start < length:
            raise InvalidRequestError(f"start must be from 0 to {length - 1} in this source.")
        return Span(start, length), Span(start, start)
    if named is None:
        return Span(0, length), Span(0, 0)
    middle = Span(named[0].start, named[-1].end)
    if around is None:
        return Span(0, length), middle
    neighbors = await view.table.between(stored, named[0].seq - around, named[-1].seq + around, view.where)
    if not neighbors:  # access was revoked since the text was read
        raise NotFoundError(NOT_FOUND)
    return Span(neighbors[0].start, neighbors[-1].end), middle
