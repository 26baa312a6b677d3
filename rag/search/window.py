"""Which part of a long text to show."""

from __future__ import annotations

from dataclasses import dataclass

SNAP_SHARE = 5  # an edge moves inwards by up to 1/5 of the window to stand between words


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a text."""

    start: int
    end: int


def centred(whole: Span, middle: Span, max_chars: int) -> Span:
    """Up to `max_chars` of `whole` with `middle` in its middle, or beginning with it if it is longer.

    Example: whole (0, 100), middle (40, 50), max_chars 30 -> (30, 60).
    """
    spare = max(0, max_chars - (middle.end - middle.start))
    start = max(whole.start, min(middle.start - spare // 2, whole.end - max_chars))
    return Span(start, min(start + max_chars, whole.end))


def between_words(text: str, window: Span, whole: Span) -> Span:
    """`window` with the edges that cut `whole` moved inwards to white space, where there is some near.

    Example: "one two three four five", window (2, 20) of whole (0, 23) -> (4, 18), "two three four".
    """
    reach = max(1, (window.end - window.start) // SNAP_SHARE)
    start, end = window.start, window.end
    if start > whole.start and not text[start - 1].isspace():
        start = next((at + 1 for at in range(start, min(start + reach, end)) if text[at].isspace()), start)
    if end < whole.end and not text[end].isspace():
        end = next((at for at in range(end - 1, max(end - reach, start), -1) if text[at].isspace()), end)
    return Span(start, end)
