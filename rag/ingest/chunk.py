"""Cuts documents into passages: at their structure, within the token limit, without losing text."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Passage
from rag.ingest.split import Measure, pieces
from rag.text import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rag.corpus import Block, Document
    from rag.ingest.split import TokenSpans

SMALL = 32  # tokens: a smaller chunk says too little alone, and is joined to a neighbor
CONTEXT_SHARE = 4  # the context takes at most 1/4 of the limit


def passages(document: Document, *, token_spans: TokenSpans, limit: int) -> list[Passage]:
    """The document as passages in order, with nothing but white space between them.

    `limit` is the maximum number of tokens that are embedded: those of `context`, a blank line and the text.
    Characters are limited, too, to `CHARACTERS_PER_TOKEN` times the limit. Blocks under one heading share
    passages, and stay whole if they fit. A heading stays with the text after it.

    No token of `token_spans` may contain white space.
    """
    cutter = _Cutter(Measure(document.text, token_spans), document.title, limit)
    chunks = (chunk for section in _sections(document.blocks) for chunk in cutter.chunks(section))
    return [
        Passage(
            seq=seq,
            start=chunk.span.start,
            end=chunk.span.end,
            section=chunk.section,
            context=chunk.frame.context,
            page=bisect_right(document.pages, chunk.span.start) or None,
            tokens=chunk.tokens,
        )
        for seq, chunk in enumerate(cutter.without_small(chunks))
    ]


class _Section(NamedTuple):
    """Consecutive headings, and the blocks up to the next heading. `path` holds the headings above them."""

    headings: tuple[Block, ...]
    body: tuple[Block, ...]
    path: tuple[Block, ...]

    def above(self) -> tuple[Block, ...]:
        """The headings of the path that are not in the section itself."""
        own = self.headings[:1]
        return tuple(heading for heading in self.path if not own or heading.start < own[0].start)


class _Frame(NamedTuple):
    """The context line of a passage, and the tokens that it leaves for the text."""

    context: str
    room: int


class _Chunk(NamedTuple):
    span: Span
    tokens: int
    frame: _Frame
    path: tuple[Block, ...]
    """The headings of the section that it begins in, the outermost first."""
    ends_in: tuple[Block, ...]
    """Those of the section that it ends in: another one only after a small introduction."""

    @property
    def section(self) -> tuple[str, ...]:
        """The titles of these headings."""
        return tuple(heading.title for heading in self.path if heading.title)


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    headings: list[Block] = []
    body: list[Block] = []
    path: tuple[Block, ...] = ()
    for block in blocks:
        if block.kind != "heading":
            body.append(block)
            continue
        if body:
            yield _Section(tuple(headings), tuple(body), path)
            headings, body = [], []
        headings.append(block)
        path = (*(outer for outer in path if outer.level < block.level), block)
    yield _Section(tuple(headings), tuple(body), path)


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts one document."""

    measure: Measure
    title: str
    limit: int

    def chunks(self, section: _Section) -> Iterator[_Chunk]:
        """The chunks of a section: its headings are text of the first, and context of the others."""
        outer, inner = self._frame(section.above()), self._frame(section.path)
        for number, span in enumerate(self._filled(section, outer.room, inner.room)):
            yield _Chunk(span, self.measure.tokens(*span), inner if number else outer, *2 * (section.path,))

    def without_small(self, chunks: Iterable[_Chunk]) -> list[_Chunk]:
        """The chunks, with small ones joined to a neighbor in their section, or else to its first subsection.

        Sections beside each other stay apart, however small: a passage is cited with the one it begins in.
        """
        kept: list[_Chunk] = []
        for chunk in chunks:
            if kept and self._belong_together(kept[-1], chunk):
                span = Span(kept[-1].span.start, chunk.span.end)
                tokens = self.measure.tokens(*span)
                kept[-1] = kept[-1]._replace(span=span, tokens=tokens, ends_in=chunk.path)
            else:
                kept.append(chunk)
        return kept

    def _belong_together(self, one: _Chunk, other: _Chunk) -> bool:
        """Whether one is small and both are in one section, or `one` is the introduction of the other's."""
        if one.path == other.path == one.ends_in:
            small = min(one.tokens, other.tokens) < SMALL
        else:
            small = one.tokens < SMALL and one.path == one.ends_in == other.path[: len(one.path)]
        return small and self.measure.fits(one.span.start, other.span.end, one.frame.room)

    def _filled(self, section: _Section, first_room: int, room: int) -> list[Span]:
        """The pieces of a section, joined while they fit."""
        filled: list[Span] = []
        for piece in self._pieces(section, min(first_room, room)):
            start = filled[-1].start if filled else piece.start
            if filled and self.measure.fits(start, piece.end, first_room if len(filled) == 1 else room):
                filled[-1] = Span(start, piece.end)
            else:
                filled.append(piece)
        return filled

    def _pieces(self, section: _Section, room: int) -> Iterator[Span]:
        """The pieces of a section. Its headings and the beginning of its body are one piece."""
        blocks = section.headings + section.body
        if section.headings and section.body:
            start, body = blocks[0].start, section.body[0]
            taken = self.measure.size(start, body.start)
            if taken <= room // 2:
                first, *rest = pieces(self.measure, body, room - taken)
                yield from (Span(start, first.end), *rest)
                blocks = section.body[1:]
        for block in blocks:
            yield from pieces(self.measure, block, room)

    def _frame(self, headings: Sequence[Block]) -> _Frame:
        """The title and the headings; if they are too long, without outer headings, at last without all."""
        names = [self.title, *(heading.title for heading in headings if heading.title)]
        if len(names) > 1 and names[0].casefold() == names[1].casefold():
            del names[1]
        while (taken := self._tokens(names)) > self.limit // CONTEXT_SHARE:
            del names[1 if len(names) > 1 else 0]
        return _Frame(" > ".join(names), self.limit - taken)

    def _tokens(self, names: Sequence[str]) -> int:
        return len(self.measure.token_spans(" > ".join(names)))
