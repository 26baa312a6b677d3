"""Cuts documents without regard to their headings: into sentences, windows, pages, or not at all."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rag.corpus import Block
from rag.ingest.split import BORDERS, LINES, SENTENCES, WORDS, parts, pieces, pieces_at
from rag.text import Span, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rag.corpus import Document, Strategy
    from rag.ingest.measure import Measure

LOOSE: frozenset[Strategy] = frozenset({"sentence", "tokens", "page", "document"})
"""The strategies whose passages may begin and end in different sections."""


def regions(
    document: Document, measure: Measure, strategy: Strategy, room: Callable[[Block], int]
) -> Iterator[Iterable[Span]]:
    """The parts of a document that share no passage, each as pieces of at most `room(block)` tokens."""
    whole = Block("paragraph", 0, len(document.text))
    match strategy:
        case "sentence":
            yield _sentences(document, measure, room)
        case "tokens":
            yield pieces_at(measure, Span(0, len(document.text)), room(whole), (WORDS,))
        case "page" if document.pages:
            # A page whose number is all that was said of it is empty.
            for start, end in pairwise([0, *document.pages[1:], len(document.text)]):
                if span := trimmed(document.text, start, end):
                    page = Block("paragraph", *span)
                    yield pieces(measure, page, room(page))
        case _:
            yield (piece for block in document.blocks for piece in pieces(measure, block, room(block)))


def _sentences(document: Document, measure: Measure, room: Callable[[Block], int]) -> Iterator[Span]:
    """Whole sentences; of code and tables, whole lines. Longer ones are cut."""
    for block in document.blocks:
        border = LINES if block.kind in {"code", "table"} else SENTENCES
        for part in parts(document.text, Span(block.start, block.end), border):
            yield from pieces_at(measure, part, room(block), BORDERS[block.kind])
