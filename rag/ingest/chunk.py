"""Cuts documents into passages: at their structure, within the token limit, without losing text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from rag.corpus import Block, Chunking, Document, Passage, Strategy
from rag.ingest.split_text import (
    BORDERS,
    CHARACTERS_PER_TOKEN,
    LINES,
    SENTENCES,
    WORDS,
    Measure,
    Reading,
    Table,
    TokenSpans,
    parts,
    pieces,
    pieces_at,
    tables_of,
)
from rag.text.plain_text import Span, trimmed, with_indent
from rag.uris import hull

USUAL = Chunking()  # at structure: the best of those measured (rag/ingest/README.md)
MIN_TOKENS = 32  # a shorter chunk is joined to a neighbour in its section; with 64, searches found the same
CONTEXT_SHARE = 4  # the title and the headings take at most 1/4 of the limit
HEADER_SHARE = 3  # and the caption and header row of a table at most 1/3
MAX_NAMES = 200  # characters of other names of a document
ASKING = ("?", "\uff1f", "\u061f")  # ends of a heading that is a question
COLONS = (":", "\uff1a")  # ends of what introduces the next block


def passages(
    document: Document,
    *,
    token_spans: TokenSpans,
    limit: int,
    chunking: Chunking = USUAL,
    reading: Reading | None = None,
) -> list[Passage]:
    """The document as passages in order, with nothing but white space between them.

    A passage begins with the indentation of its first line, and doesn't end with white space.

    `chunking` says where to cut, and how much of a passage the next one repeats. The following describes the
    strategy structure. With row, a passage has at most one row of a table; with code, blocks are cut like
    code; with the strategies in `LOOSE`, sections share passages.

    `limit` is the maximum number of tokens that are embedded: `context`, a blank line and the text together.
    Characters are limited, too, to `CHARACTERS_PER_TOKEN` times the limit. Blocks under one heading share
    passages, and stay whole if they fit. A heading stays with the text after it. A passage that begins within
    a table has the table's caption and header row as the last line of its context; within a record, the first
    line of the record. The cells of a sheet in a passage are the last part of its section.

    No token of `token_spans` may contain white space.
    """
    measure = Measure(document.text, token_spans, reading)
    tables = tables_of(document)
    unbroken = [span for table in tables for span in table.unbroken]
    cutter = _Cutter(measure, document.title, _other_names(document), limit, tables, unbroken, chunking)
    starts = [block.start for block in document.blocks]
    if chunking.strategy in LOOSE:
        chunks = [*cutter.loose_chunks(document)]
    else:
        in_sections = (chunk for section in _sections(document.blocks) for chunk in cutter.chunks(section))
        chunks = cutter.without_small(in_sections)
    return [
        Passage(
            seq=seq,
            start=with_indent(document.text, chunk.span.start),
            end=chunk.span.end,
            section=(*chunk.section, *_cells(document.blocks, starts, chunk.span)),
            context=chunk.frame.context,
            page=bisect_right(document.pages, chunk.span.start) or None,
            tokens=measure.tokens(*chunk.span),
            inner=_inner_headings(document.blocks, starts, chunk),
        )
        for seq, chunk in enumerate(cutter.overlapping(chunks))
    ]


def _other_names(document: Document) -> str:
    """The aliases of a document, as notes state them: "k8s, Steuermann"; "" if it has none.

    Paths are left out: site generators write former addresses as aliases.
    """
    stated = (document.metadata.get(key, "") for key in ("aliases", "alias"))
    names = (name.strip() for line in stated for name in line[:MAX_NAMES].split(","))
    return ", ".join(name for name in names if name and "/" not in name)


def _cells(blocks: Sequence[Block], starts: Sequence[int], span: Span) -> tuple[str, ...]:
    """The cells of a sheet within a span, as ("A2:F9",); empty in other documents."""
    inside = blocks[max(0, bisect_right(starts, span.start) - 1) : bisect_left(starts, span.end)]
    cells = hull(block.title for block in inside if block.kind != "heading" and block.title)
    return (cells,) if cells else ()


def _inner_headings(blocks: Sequence[Block], starts: Sequence[int], chunk: _Chunk) -> tuple[str, ...]:
    """The headings in a chunk, without the headings of the section in which it begins."""
    inside = blocks[bisect_left(starts, chunk.span.start) : bisect_left(starts, chunk.span.end)]
    return tuple(
        block.title for block in inside if block.kind == "heading" and block.title and block not in chunk.path
    )


class _Section(NamedTuple):
    """Consecutive headings, and the blocks up to the next heading. `path` holds the headings above them."""

    headings: tuple[Block, ...]
    body: tuple[Block, ...]
    path: tuple[Block, ...]

    def above(self) -> tuple[Block, ...]:
        """The headings of the path that are not in the section itself."""
        heading_block = self.headings[:1]
        return tuple(
            heading for heading in self.path if not heading_block or heading.start < heading_block[0].start
        )


class _Frame(NamedTuple):
    """The context line of a passage, and the tokens that it leaves for the text."""

    context: str
    room: int


class _Chunk(NamedTuple):
    span: Span
    units: int
    frame: _Frame
    path: tuple[Block, ...]
    """The headings of the section that it begins in, the outermost first."""
    ends_in: tuple[Block, ...]
    """The headings of the section that it ends in, which differs only after a small introduction."""
    region: int = -1
    """The number of its region, if the document was cut regardless of headings; else -1."""

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
    measure: Measure
    title: str
    other_names: str
    limit: int
    tables: Sequence[Table]
    unbroken: Sequence[Span]
    chunking: Chunking

    def loose_chunks(self, document: Document) -> Iterator[_Chunk]:
        """The chunks of a document whose sections share chunks: pieces, joined while they fit."""
        sections = [*_sections(document.blocks)]
        starts = [(section.headings or section.body)[0].start for section in sections]
        # The least room that a title and headings may leave: pieces are cut before their headings are known.
        least = _Frame("", self.limit - self.limit // CONTEXT_SHARE - self._overlap)

        def begun(start: int) -> tuple[_Frame, tuple[Block, ...]]:
            path = sections[max(0, bisect_right(starts, start) - 1)].path
            above = [heading for heading in path if heading.start < start]
            return self._with_header(self._frame(above), start), path

        for number, region in enumerate(
            regions(document, self.measure, self.chunking.strategy, lambda block: self._room(least, block))
        ):
            filled: list[_Chunk] = []
            for piece in region:
                if filled and self.measure.fits(filled[-1].span.start, piece.end, filled[-1].frame.room):
                    filled[-1] = filled[-1]._replace(span=Span(filled[-1].span.start, piece.end))
                else:
                    frame, path = begun(piece.start)
                    filled.append(_Chunk(piece, 0, frame, path, path, number))
            yield from (chunk._replace(units=self.measure.units(*chunk.span)) for chunk in filled)

    def overlapping(self, chunks: Sequence[_Chunk]) -> Iterator[_Chunk]:
        """The chunks, each with the last tokens of the one before it in the same section or region."""
        for before, chunk in zip([None, *chunks[:-1]], chunks, strict=True):
            related = before and before.region == chunk.region
            if before and related and self._overlap and (chunk.region >= 0 or before.ends_in == chunk.path):
                yield self._with_overlap(chunk, before.span)
            else:
                yield chunk

    def _with_overlap(self, chunk: _Chunk, before: Span) -> _Chunk:
        """The chunk with the end of the one before it: whole sentences if there are any, else whole words."""
        earliest = max(self.measure.before(chunk.span.start, self._overlap), before.start + 1)
        for border in (SENTENCES, WORDS):
            cut = [unit.start for unit in parts(self.measure.text, before, border) if unit.start >= earliest]
            if cut and self.measure.fits(cut[0], chunk.span.end, chunk.frame.room + self._overlap):
                span = Span(cut[0], chunk.span.end)
                return chunk._replace(span=span, units=self.measure.units(*span))
        return chunk

    @property
    def _overlap(self) -> int:
        return min(self.chunking.overlap, self.limit // 2)

    def chunks(self, section: _Section) -> Iterator[_Chunk]:
        """The chunks of a section: its headings are text of the first, and context of the others."""
        outer, inner = self._frame(section.above()), self._frame(section.path)
        for number, span in enumerate(self._joined_pieces(section, outer, inner)):
            # The first chunk has the headings of its section as text, and needs only those above as context.
            frame = self._with_header(inner if number else outer, span.start)
            yield _Chunk(span, self.measure.units(*span), frame, *2 * (section.path,))

    def without_small(self, chunks: Iterable[_Chunk]) -> list[_Chunk]:
        """The chunks, with small ones joined to a neighbor in their section, or else to its first subsection.

        Sibling sections stay apart, however small: a passage is cited with the section that it begins in.
        """
        merged: list[_Chunk] = []
        for chunk in chunks:
            if merged and self._belong_together(merged[-1], chunk):
                span = Span(merged[-1].span.start, chunk.span.end)
                units = self.measure.units(*span)
                merged[-1] = merged[-1]._replace(span=span, units=units, ends_in=chunk.path)
            else:
                merged.append(chunk)
        return merged

    def _belong_together(self, chunk: _Chunk, following: _Chunk) -> bool:
        """Whether to join two chunks: one is small, and they share a section or `chunk` introduces the next.

        An introduction to questions stays apart, because an answer is cited by its question.
        """
        if self._is_row(chunk.span.start) or self._is_row(following.span.start):  # each row is a passage
            return False
        if chunk.path == following.path == chunk.ends_in:
            small = min(chunk.units, following.units) < MIN_TOKENS
        else:
            is_question = bool(following.path) and following.path[-1].title.endswith(ASKING)
            small = (
                chunk.units < MIN_TOKENS
                and chunk.path == chunk.ends_in == following.path[: len(chunk.path)]
                and not is_question
            )
        return small and self.measure.fits(chunk.span.start, following.span.end, chunk.frame.room)

    def _joined_pieces(self, section: _Section, first: _Frame, later: _Frame) -> list[Span]:
        """The pieces of a section, joined while they fit."""
        filled: list[Span] = []
        least = min(first, later, key=lambda frame: frame.room)  # a piece may come into either
        for piece in self._with_captions(self._pieces(section, least), least.room):
            start = filled[-1].start if filled else piece.start
            frame = self._with_header(first if len(filled) == 1 else later, start)
            is_apart = (
                self._is_row(start) or self._is_row(piece.start) or self._is_captioned_below(piece.start)
            )
            if filled and not is_apart and self.measure.fits(start, piece.end, frame.room):
                filled[-1] = Span(start, piece.end)
            else:
                filled.append(piece)
        return filled

    def _with_captions(self, pieces: Iterable[Span], room: int) -> Iterator[Span]:
        """The pieces, where a caption has the row of the table that it stands next to, if they fit.

        So does what ends with a colon: the beginning of the list or the code that it introduces.
        """
        last: Span | None = None
        for piece in pieces:
            belongs = last and (self._is_unbroken(piece.start) or self._is_introduced(last, piece))
            if last and belongs and self.measure.fits(last.start, piece.end, room):
                last = Span(last.start, piece.end)
                continue
            if last:
                yield last
            last = piece
        if last:
            yield last

    def _is_unbroken(self, at: int) -> bool:
        """Whether a cut here would take a caption from its table."""
        if self._is_row(at):
            return False
        number = bisect_left(self.unbroken, at, key=lambda span: span.start) - 1
        return any(at < span.end for span in self.unbroken[max(0, number - 1) : number + 1])

    def _is_introduced(self, before: Span, piece: Span) -> bool:
        end = self.measure.text[max(before.start, before.end - 4) : before.end].rstrip("*_")
        return end.endswith(COLONS) and not self._is_row(piece.start)

    def _pieces(self, section: _Section, frame: _Frame) -> Iterator[Span]:
        """The pieces of a section. Its headings and the beginning of its body are one piece."""
        blocks = section.headings + section.body
        if section.headings and section.body:
            start, body = blocks[0].start, section.body[0]
            heading_tokens, room = self.measure.size(start, body.start), self._room(frame, body)
            if heading_tokens <= room // 2:  # else hardly any text would stand with them
                first, *later_spans = self._cut(body, room - heading_tokens)
                yield from (Span(start, first.end), *later_spans)
                blocks = section.body[1:]
        for block in blocks:
            yield from self._cut(block, self._room(frame, block))

    def _cut(self, block: Block, room: int) -> Iterator[Span]:
        strategy = self.chunking.strategy
        if strategy == "row" and block.kind == "table":
            for line in parts(self.measure.text, Span(block.start, block.end), LINES):
                yield from pieces(self.measure, replace(block, start=line.start, end=line.end), room)
        elif strategy == "code" and block.kind != "heading":
            yield from pieces(self.measure, replace(block, kind="code"), room)
        else:
            yield from pieces(self.measure, block, room)

    def _is_row(self, start: int) -> bool:
        """Whether a table row that must be a passage of its own begins here."""
        if self.chunking.strategy != "row":
            return False
        table = self._table_at(start)
        return bool(table and table.header and not table.is_record and start >= table.rows)

    def _is_captioned_below(self, start: int) -> bool:
        """Whether a table begins here that would seem to have the caption below the table above it."""
        table = self._table_at(start)
        return table is not None and start == table.start and table.is_captioned_below

    def _table_at(self, start: int) -> Table | None:
        """The table that has a row here, or its header."""
        at = bisect_right(self.tables, start, key=lambda table: table.start) - 1
        return self.tables[at] if at >= 0 and start < self.tables[at].end else None

    def _room(self, frame: _Frame, block: Block) -> int:
        """The tokens that a frame leaves for any piece of a block."""
        return self._with_header(frame, block.end - 1).room

    def _with_header(self, frame: _Frame, start: int) -> _Frame:
        """The frame of a chunk that begins at `start`, which may be within a table.

        It has the caption and the header row of the table. If they take too much of the limit, lines of the
        caption are left out, the outermost first.
        """
        if not (table := self._table_at(start)):
            return frame
        header = table.header if start >= table.rows else ""
        inner = [" ".join((*table.captions[at:], header)).strip() for at in range(len(table.captions) + 1)]
        for above in (*inner, *table.captions[-1:]):
            tokens = self.measure.taken(above)
            if above and max(tokens, len(above) // CHARACTERS_PER_TOKEN) <= self.limit // HEADER_SHARE:
                return _Frame(f"{frame.context}\n{above}", frame.room - tokens)
        return frame

    def _frame(self, headings: Sequence[Block]) -> _Frame:
        """The title and the headings; if they are too long, fewer outer headings, or none."""
        if not self.chunking.headers:
            return _Frame("", self.limit - self._overlap)
        names = [self.title, *(heading.title for heading in headings if heading.title)]
        # The title is mostly the first heading, and would be embedded twice.
        if len(names) > 1 and names[0].casefold() == names[1].casefold():
            del names[1]
        names[0] += f" ({self.other_names})" if self.other_names else ""
        token_limit = self.limit // CONTEXT_SHARE
        del names[1:-token_limit]  # each takes a token at least, so more names can't fit
        while (tokens := self.measure.taken(" > ".join(names))) > token_limit:
            del names[1 if len(names) > 1 else 0]  # the outermost heading says least
        return _Frame(" > ".join(names), self.limit - tokens - self._overlap)


# Cuts documents regardless of their headings: into sentences, windows, pages, or not at all.

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
            # A page without text is left out.
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
