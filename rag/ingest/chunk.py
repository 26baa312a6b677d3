"""Documents to passages: cut at their structure, never over the limit, and nothing lost."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Passage
from rag.ingest.split import Measure, Span, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rag.corpus import Block, Document
    from rag.ingest.split import TokenSpans

SMALL = 32  # tokens: a chunk below this says too little alone, and joins a neighbor
CONTEXT_SHARE = 4  # the context takes at most one in so many tokens of the limit


def passages(document: Document, *, token_spans: TokenSpans, limit: int) -> list[Passage]:
    """The document as passages in order, with nothing but white space between them.

    `limit` bounds the tokens of what is embedded: `context`, a blank line, the text. Blocks
    under one heading share passages, and stay whole where they fit; a heading goes with what
    follows it. The characters are bounded too, by `CHARACTERS_PER_TOKEN` times the limit.

    No token of `token_spans` may reach over white space.
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
    """Headings in a row, and the blocks up to the next heading. `path` is in force over these."""

    headings: tuple[Block, ...]
    body: tuple[Block, ...]
    path: tuple[Block, ...]

    def above(self) -> tuple[Block, ...]:
        """The part of the path that is not in the section itself."""
        own = self.headings[:1]
        return tuple(heading for heading in self.path if not own or heading.start < own[0].start)


class _Frame(NamedTuple):
    """What is put before a text, and how many tokens that leaves for it."""

    context: str
    room: int


class _Chunk(NamedTuple):
    span: Span
    tokens: int
    section: tuple[str, ...]
    frame: _Frame
    depth: int
    """How many headings are in force around it."""


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
    """What cutting takes, for one document."""

    measure: Measure
    title: str
    limit: int

    def chunks(self, section: _Section) -> Iterator[_Chunk]:
        """The chunks of a section: its headings are in the first one, and in the others' context."""
        above = section.above()
        outer, inner = self._frame(above), self._frame(section.path)
        names = tuple(heading.title for heading in section.path if heading.title)
        for number, span in enumerate(self._filled(section, outer.room, inner.room)):
            tokens = self.measure.tokens(*span)
            if number == 0:
                yield _Chunk(span, tokens, names, outer, len(above))
            else:
                yield _Chunk(span, tokens, names, inner, len(section.path))

    def without_small(self, chunks: Iterable[_Chunk]) -> list[_Chunk]:
        """The chunks, the small ones joined to a neighbor under the same heading, or under one of its own."""
        kept: list[_Chunk] = []
        for chunk in chunks:
            if kept and self._belong_together(kept[-1], chunk):
                span = Span(kept[-1].span.start, chunk.span.end)
                kept[-1] = kept[-1]._replace(span=span, tokens=self.measure.tokens(*span))
            else:
                kept.append(chunk)
        return kept

    def _belong_together(self, one: _Chunk, other: _Chunk) -> bool:
        small = min(one.tokens, other.tokens) < SMALL
        near = other.depth >= one.depth
        return small and near and self.measure.fits(one.span.start, other.span.end, one.frame.room)

    def _filled(self, section: _Section, first_room: int, room: int) -> list[Span]:
        """The pieces of a section, joined while there is room."""
        filled: list[Span] = []
        for piece in self._pieces(section, min(first_room, room)):
            start = filled[-1].start if filled else piece.start
            if filled and self.measure.fits(start, piece.end, first_room if len(filled) == 1 else room):
                filled[-1] = Span(start, piece.end)
            else:
                filled.append(piece)
        return filled

    def _pieces(self, section: _Section, room: int) -> Iterator[Span]:
        """What a section is made of. The headings are one piece with the beginning of the body."""
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
        """The title and the headings, without the outer headings, then without all, if that is too long."""
        names = [self.title, *(heading.title for heading in headings if heading.title)]
        if len(names) > 1 and names[0].casefold() == names[1].casefold():
            del names[1]
        while (taken := self._tokens(names)) > self.limit // CONTEXT_SHARE:
            del names[1 if len(names) > 1 else 0]
        return _Frame(" > ".join(names), self.limit - taken)

    def _tokens(self, names: Sequence[str]) -> int:
        return len(self.measure.token_spans(" > ".join(names)))
