"""Measures slices of a text, cuts blocks that are too large, and finds the headers of tables.

A slice has two sizes: units for a reader, and tokens for an embedder. An embedder's vocabulary cuts an
unknown language into single letters. Then its tokens don't measure the text, and its window needn't limit
text that it can't read anyway.

The header of a table is the row that names the columns; of a record, its first line.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import ceil
from time import thread_time
from typing import NamedTuple, TypeAlias

from rag.corpus import Block, BlockKind, Document
from rag.errors import ParseError
from rag.text import table_heads
from rag.text.plain_text import CJK, TABLE_RULE, Span, sentence_ends, trimmed

TokenSpans: TypeAlias = Callable[[str], Sequence[tuple[int, int]]]

CHARACTERS_PER_TOKEN = 12  # WordPiece counts any run of over 100 characters as one token
WINDOW = 1 << 16  # characters tokenized at once: more take memory and time
LETTERS_PER_UNIT = 4  # of a long word in English, without the space after it
GLUE = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # white space, but BERT's tokenizer joins the words around it

_SPACES = frozenset(filter(str.isspace, map(chr, range(0x3001)))).difference(GLUE)
_MEASURE_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
_SIGN = re.compile(f"[{CJK}]")


@dataclass(frozen=True, slots=True)
class Reading:
    """How an embedder reads a document: it skips `foreign` parts, and its window limits passages.

    The window is `slack` tokens larger than the limit of a passage.
    """

    foreign: Sequence[Span] = ()
    slack: int = 0


class Measure:
    """The size of slices of a text, in an embedder's tokens.

    With `reading`, words that aren't ASCII count like English ones of their length (*units*), and each
    character of Chinese and Japanese as one, if that is less than their tokens. Then the tokens of a slice
    must fit into the window, too, unless it is foreign.
    """

    def __init__(self, text: str, token_spans: TokenSpans, reading: Reading | None = None) -> None:
        self.text = text
        self.token_spans = token_spans
        self._starts = array("L")
        for window in _windows(text):
            self._starts.extend([window.start + start for start, _ in token_spans(text[slice(*window)])])
        self._units = self._starts if reading is None else _unit_starts(text, self._starts)
        self._reading = reading or Reading()

    def tokens(self, start: int, end: int) -> int:
        """The number of tokens of the slice alone."""
        if self._inside_word(start) or self._inside_word(end):
            return len(self.token_spans(self.text[start:end]))
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def units(self, start: int, end: int) -> int:
        """The number of units of the slice alone."""
        if self._inside_word(start) or self._inside_word(end):
            text = self.text[start:end]
            return len(self.token_spans(text)) if self._units is self._starts else self._units_of(text)
        return bisect_left(self._units, end) - bisect_left(self._units, start)

    def taken(self, context: str) -> int:
        """The size of a passage's context: its tokens, or its units if the whole document is foreign."""
        if self._is_foreign(*trimmed(self.text, 0, len(self.text)) or (0, 0)):
            return self._units_of(context)
        return len(self.token_spans(context))

    def _units_of(self, text: str) -> int:
        return len(_unit_starts(text, array("L", [start for start, _ in self.token_spans(text)])))

    def size(self, start: int, end: int) -> int:
        """The units of the slice, or its characters by `CHARACTERS_PER_TOKEN`, whichever is more."""
        return max(self.units(start, end), -(-(end - start) // CHARACTERS_PER_TOKEN))

    def fits(self, start: int, end: int, room: int) -> bool:
        """Whether the size is at most `room`, and the tokens fit into the window unless it is foreign."""
        if end - start > CHARACTERS_PER_TOKEN * room or self.units(start, end) > room:
            return False
        # The window needn't limit text that the embedder can't read anyway.
        if self._units is self._starts or self._is_foreign(start, end):
            return True
        return self.tokens(start, end) <= room + self._reading.slack

    def reach(self, start: int, room: int) -> int:
        """The last position where a slice from `start` can end and still fit."""
        unit = bisect_left(self._units, start) + room
        after = self._units[unit] if unit < len(self._units) else len(self.text)
        return max(start + 1, min(after, start + CHARACTERS_PER_TOKEN * room))

    def before(self, end: int, units: int) -> int:
        """The position where the last `units` units before `end` begin."""
        unit = bisect_left(self._units, end) - units
        return self._units[unit] if unit > 0 else 0

    def _inside_word(self, at: int) -> bool:
        """Whether a cut here can change tokens."""
        text = self.text
        return 0 < at < len(text) and text[at] not in _SPACES and text[at - 1] not in _SPACES

    def _is_foreign(self, start: int, end: int) -> bool:
        parts = self._reading.foreign
        at = bisect_right(parts, start, key=lambda part: part.start) - 1
        return at >= 0 and end <= parts[at].end


def _unit_starts(text: str, starts: array[int]) -> array[int]:
    """The starts of a text's units, from the starts of its tokens."""
    if text.isascii():
        return starts
    units: array[int] = array("L")
    done = 0
    for match in _MEASURE_WORD.finditer(text):
        word = match[0]
        if word.isascii():
            continue
        first = bisect_left(starts, match.start(), done)
        after = bisect_left(starts, match.end(), first)
        count = _units_in(word, after - first)
        units.extend(starts[done:first])
        units.extend([match.start() + len(word) * number // count for number in range(count)])
        done = after
    units.extend(starts[done:])
    return units


def _units_in(word: str, pieces: int) -> int:
    """The units of a word of `pieces` tokens; the model doesn't know words with very long tokens."""
    signs = len(_SIGN.findall(word))
    units = signs + ceil((len(word) - signs) / LETTERS_PER_UNIT)
    return units if len(word) > CHARACTERS_PER_TOKEN * pieces else min(pieces, units)


def _windows(text: str) -> Iterator[Span]:
    start = 0
    while start < len(text):
        end = start + WINDOW
        if end < len(text):
            # Half a word has other tokens than the whole: a window ends with a line or a word if it can.
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1 or end
        yield Span(start, end)
        start = end


Border: TypeAlias = Callable[[str, int, int], Iterable[int]]

_BLANK = r"\n[^\S\n]*\n"
_ITEM = r"(?=(?:[-*+•]|\(?(?:\d{1,9}|[a-zA-Z#])[.)])[ \t])"
_SHALLOW = r"(?=(?: {0,4}|\t)[^\s)\]}])"
_WORD = rf"[^\S{GLUE}]+"


def _after(pattern: str) -> Border:
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
"""The borders at which a block that is too large may be cut, best first."""


def within(seconds: float, token_spans: TokenSpans) -> TokenSpans:
    """`token_spans` with a limit of CPU seconds for this thread: hostile texts take minutes to cut.

    Raises:
        ParseError: from the returned function, when the time is up.
    """
    deadline = thread_time() + seconds

    def spans(text: str) -> Sequence[tuple[int, int]]:
        if thread_time() > deadline:
            raise ParseError("its text takes too long to be cut (ingest.parse_timeout_seconds)", "timeout")
        return token_spans(text)

    return spans


def pieces(measure: Measure, block: Block, room: int) -> Iterator[Span]:
    """The block if its size is at most `room`, else smaller parts, in order; nothing for an empty block."""
    span = Span(block.start, block.end)
    return pieces_at(measure, span, room, BORDERS[block.kind]) if span.end > span.start else iter(())


def pieces_at(measure: Measure, span: Span, room: int, borders: Sequence[Border]) -> Iterator[Span]:
    """The span if its size is at most `room`, else smaller parts, cut at the first borders that suffice."""
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


MAX_HEADER_CHARS = 2_000  # a longer header row leaves no room for the rows below it
_KEY = re.compile(r"[^\n:|]{1,60}: \S[^\n]{0,199}\n")  # first line of a record; a longer value isn't a name
_INNER = re.compile(  # within an item of a list or a quotation
    r"^(?P<mark>[ \t>]*+)(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?P<header>\|[^\n]{1,2000})\n"
    r"[ \t>]*+\|[ \t]*:?-[-:+| \t]*+(?:\n|\Z)",
    re.MULTILINE,
)
_ROW = re.compile(r"[ \t>]*+\|[^\n]*+(?:\n|\Z)")


class Table(NamedTuple):
    """A table: its header row, the start of the rows below, the end of the last row, and its own start.

    If one row names groups of columns and the next one the columns, the header has both on one line. The
    header of a record ("Article: Bolt M6", and a line for each further column) is its first line. Rows
    without a header are a table only if they have a caption.
    """

    header: str
    rows: int
    end: int
    is_record: bool = False
    start: int = 0
    captions: tuple[str, ...] = ()
    """The lines of its caption, outermost first: its name, the period, the unit of its numbers."""
    unbroken: tuple[Span, ...] = ()
    """The spans not to break if they fit: caption and first row, or last row and caption."""

    @property
    def is_captioned_below(self) -> bool:
        """Whether its caption stands below it."""
        return any(span.end > self.end for span in self.unbroken)


def tables_of(document: Document) -> list[Table]:
    r"""The tables with a header row or a caption, in order.

    Example: the text "| a | b |\n|---|---|\n| 1 | 2 |" -> ("| a | b |", 20, 29).
    """
    text, tables = document.text, list[Table]()
    parts = [*_parts(document)]
    has_tables = any(part.kind == "table" for part in parts)
    lines = [_caption_line(text, part) if has_tables else "" for part in parts]
    below = _captions_below(parts, lines)
    above: list[Block] = []
    for number, part in enumerate(parts):
        if part.kind in {"list", "paragraph"}:
            tables += _inner(text, part)
        if part.kind == "table" and (table := _table(text, part)):
            table = _with_caption(text, table, above, parts[number + 1] if number + 1 in below else None)
            if tables and _continues(table, tables[-1]):  # on the next page, it has no caption of its own
                table = table._replace(captions=table.captions or tables[-1].captions)
            tables.append(table)
        # Only the last ones: of a long run of short lines, all would be copied for each of them.
        above = [*above[-table_heads.CAPTION_PARTS :], part] if number not in below and lines[number] else []
    return [table for table in tables if table.header or table.captions]


def _parts(document: Document) -> Iterator[Block]:
    """The blocks of a document, with directly consecutive rows as one."""
    rows: Block | None = None
    for block in document.blocks:
        if rows and block.kind == "table" and block.start == rows.end + 1:
            rows = replace(rows, end=block.end)
            continue
        if rows:
            yield rows
        rows = (
            block if block.kind == "table" and not _KEY.match(document.text, block.start, block.end) else None
        )
        if not rows:
            yield block
    if rows:
        yield rows


def _caption_line(text: str, part: Block) -> str:
    """A part as a caption, on one line; "" if it isn't a caption."""
    if part.kind == "paragraph":
        return table_heads.caption_line(
            text[max(part.start, part.end - table_heads.MAX_PARAGRAPH) : part.end]
        )
    is_short = part.kind == "table" and part.end - part.start <= MAX_HEADER_CHARS
    return (
        table_heads.caption_line(text[part.start : part.end])
        if is_short and text.startswith("|", part.start)
        else ""
    )


def _captions_below(parts: Sequence[Block], lines: Sequence[str]) -> set[int]:
    """The indexes of parts that are captions of the table above them, not of one below.

    Such lines begin with the same word below each of several tables, and none stands above the first table. A
    single table's caption must have a number.
    """
    below: set[int] = set()
    for is_run, run in groupby(range(len(parts)), lambda at: bool(parts[at].kind == "table" or lines[at])):
        numbers = [*run] if is_run else []
        tables = [number for number in numbers if parts[number].kind == "table"]
        if not tables or tables[-1] == numbers[-1]:
            continue
        captions = [lines[table + 1] if parts[table + 1].kind == "paragraph" else "" for table in tables]
        above = lines[tables[0] - 1] if tables[0] > numbers[0] else ""
        begins = {caption.partition(" ")[0] for caption in captions}
        is_alike = len(begins) == 1 and not begins & {"", above.partition(" ")[0]}
        if is_alike and (len(tables) > 1 or table_heads.LABEL.match(captions[0])):
            below |= {table + 1 for table in tables}
    return below


def _with_caption(text: str, table: Table, above: Sequence[Block], below: Block | None) -> Table:
    """A table with its caption, and with groups of columns in its header."""
    lines = [text[part.start : part.end] for part in above[-table_heads.CAPTION_PARTS :]]
    if table.is_record:
        return table._replace(
            captions=table_heads.caption_lines(lines), unbroken=_unbroken(text, table, above, None)
        )
    rows = text[table.rows : table.end][:MAX_HEADER_CHARS].lstrip("\n").split("\n")
    head = (
        table_heads.table_head(lines, table.header, rows)
        if table.header
        else table_heads.TableHead(table_heads.caption_lines(lines), "")
    )
    if head.rows_below:
        table = table._replace(rows=text.index(rows[0], table.rows) + len(rows[0]))
    captions_below = (_caption_line(text, below),) if below else ()
    table = table._replace(header=head.header, captions=(*head.captions, *captions_below))
    return table._replace(unbroken=_unbroken(text, table, above, below))


def _unbroken(text: str, table: Table, above: Sequence[Block], below: Block | None) -> tuple[Span, ...]:
    spans = []
    if above:
        first_row = table.end if table.is_record else text.find("\n", table.rows + 1, table.end)
        spans.append(
            Span(above[-table_heads.CAPTION_PARTS :][0].start, first_row if first_row > 0 else table.end)
        )
    if below:
        spans.append(Span(max(table.start, text.rfind("\n", table.start, table.end)), below.end))
    return tuple(spans)


def _continues(table: Table, before: Table) -> bool:
    """Whether a table is the next part of the one before: on the next page, or the next record."""
    is_alike = table.is_record if before.is_record else table.header == before.header
    return is_alike and table.start <= before.end + 2  # a blank line


def _inner(text: str, block: Block) -> Iterator[Table]:
    """The tables in a list or a quotation; their rows begin with |."""
    for match in _INNER.finditer(text, block.start, block.end):
        end = match.end()
        while row := _ROW.match(text, end, block.end):
            end = row.end()
        table = Table(match["header"].strip(), match.end(), end, start=match.start())
        yield _with_caption(text, table, (), None)


def _table(text: str, block: Block) -> Table | None:
    end = text.find("\n", block.start, block.start + MAX_HEADER_CHARS)
    has_strokes = end > 0 and "|" in text[block.start : end]
    if has_strokes and (rule := TABLE_RULE.match(text, end + 1, block.end)):
        return Table(text[block.start : end].strip(), rule.end(), block.end, start=block.start)
    if key := _KEY.match(text, block.start, block.end):  # checked last: a header row may have a colon, too
        return Table(key[0].strip(), key.end(), block.end, is_record=True, start=block.start)
    return Table("", block.start, block.end, start=block.start) if text.startswith("|", block.start) else None
