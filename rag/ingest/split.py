"""Cuts blocks that are too large into pieces that fit, at the best places."""

from __future__ import annotations

import re
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.measure import GLUE
from rag.text.segments import Span, sentence_ends, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rag.corpus import Block, BlockKind
    from rag.ingest.measure import Measure, TokenSpans

    Border = Callable[[str, int, int], Iterable[int]]

_BLANK = r"\n[^\S\n]*\n"
_ITEM = r"(?=(?:[-*+•]|\(?(?:\d{1,9}|[a-zA-Z#])[.)])[ \t])"
_SHALLOW = r"(?=(?: {0,4}|\t)[^\s)\]}])"
_WORD = rf"[^\S{GLUE}]+"


def _after(pattern: str) -> Border:
    """Cuts after every match of a pattern."""
    compiled = re.compile(pattern)
    return lambda text, start, end: (match.end() for match in compiled.finditer(text, start, end))


def _sentence_cuts(text: str, start: int, end: int) -> Iterator[int]:
    """Cuts between sentences, but not where the tokenizer would join the words of both."""
    return (cut for cut in sentence_ends(text, start, end) if text[cut - 1] not in GLUE)


SENTENCES: Border = _sentence_cuts
LINES, WORDS, _PARAGRAPHS = _after(r"\n"), _after(_WORD), _after(_BLANK)

BORDERS: dict[BlockKind, Sequence[Border]] = {
    "heading": (WORDS,),
    "paragraph": (_PARAGRAPHS, SENTENCES, LINES, WORDS),
    "list": (
        _after(r"\n" + _ITEM),
        _after(r"\n[ \t]*+" + _ITEM),
        _PARAGRAPHS,
        SENTENCES,
        LINES,
        WORDS,
    ),
    "table": (LINES, SENTENCES, WORDS),
    "code": (
        _after(_BLANK + r"(?=\S)"),
        _after(_BLANK + _SHALLOW),
        _PARAGRAPHS,
        _after(r"\n" + _SHALLOW),
        LINES,
        WORDS,
    ),
}
"""Where a block that is too large may be cut, the best places first."""


def within(seconds: float, token_spans: TokenSpans) -> TokenSpans:
    """The same, but an error when this thread has computed for so long: hostile texts take minutes to cut.

    Raises:
        ParseError: by what it returns.
    """
    deadline = thread_time() + seconds

    def spans(text: str) -> Sequence[tuple[int, int]]:
        if thread_time() > deadline:
            raise ParseError("its text takes too long to be cut (ingest.parse_timeout_seconds)", "timeout")
        return token_spans(text)

    return spans


def pieces(measure: Measure, block: Block, room: int) -> Iterator[Span]:
    """The block if its size is at most `room`, else parts that are, in order; nothing of an empty one."""
    span = Span(block.start, block.end)
    return pieces_at(measure, span, room, BORDERS[block.kind]) if span.end > span.start else iter(())


def pieces_at(measure: Measure, span: Span, room: int, borders: Sequence[Border]) -> Iterator[Span]:
    """The span if its size is at most `room`, otherwise parts that are, cut at the first borders that do."""
    if measure.fits(*span, room):
        yield span
    elif borders:
        for part in parts(measure.text, span, borders[0]):
            yield from pieces_at(measure, part, room, borders[1:])
    else:
        yield from _hard_cuts(measure, span, room)


def parts(text: str, span: Span, border: Border) -> Iterator[Span]:
    """The parts of a span between borders, without the white space at their ends."""
    for start, end in pairwise([span.start, *border(text, *span), span.end]):
        if part := trimmed(text, start, end):
            yield part


def _hard_cuts(measure: Measure, span: Span, room: int) -> Iterator[Span]:
    """Parts of a span without white space, cut between tokens where possible."""
    start = span.start
    while start < span.end:
        end = min(span.end, measure.reach(start, room))
        while end > start + 1 and not measure.fits(start, end, room):
            end -= max(1, (end - start) // 8)  # half a word can have more tokens than the whole
        if part := trimmed(measure.text, start, end):
            yield part
        start = end
