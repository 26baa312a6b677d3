"""Where a needle occurs in one source: in which chunks, on which lines, and what is shown around it.

An occurrence is in one chunk, also where chunks overlap. Where what is shown of two chunks touches, `rows`
tells which of them are one result.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.answers import LISTED_OCCURRENCES, Excerpt, Occurrence
from rag.needles.needle import stands_alone
from rag.rank.fusion import MAX_JOINED_CHARS
from rag.search.source import between_words
from rag.search.stages.surroundings import united
from rag.text import Span, trimmed, with_indent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rag.corpus import Chunk
    from rag.needles.needle import Needle

EXCERPTS = 3  # occurrences in a chunk that are shown with the lines around them
CONTEXT_LINES = 2  # before and after
AROUND_CHARS = 240  # at most, before and after: lines can be long
MATCH_CHARS = 1_000  # shown of a match, at most
OTHERS = 4  # occurrences in a chunk that are half as good as any number of them
WEIGHTS = {"titled": 0.4, "section": 0.2, "alone": 0.2, "case": 0.1, "count": 0.1}
"""What makes an occurrence a better answer: that the title or the path has it, the section's heading, that
it is a whole word, in the same letter case, and that there are several in the chunk."""


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk in which a needle begins `count` times, with the first of them, and what is shown of it.

    `alone` and `cased` say whether one of them is a whole word, and exactly as it was written. `around` are
    the chunks that the excerpts touch, if these exceed the chunk.
    """

    chunk: Chunk
    count: int
    occurrences: tuple[Occurrence, ...]
    excerpts: tuple[Excerpt, ...]
    around: tuple[Chunk, ...]
    alone: bool
    cased: bool

    def score(self, *, titled: bool, section: bool) -> float:
        """From 0 to 1, by `WEIGHTS`."""
        marks = {"titled": titled, "section": section, "alone": self.alone, "case": self.cased}
        share = self.count / (self.count + OTHERS)
        return sum(WEIGHTS[name] for name, has in marks.items() if has) + WEIGHTS["count"] * share


def found_in(
    text: str, chunks: Sequence[Chunk], searched: Sequence[Chunk], spans: Sequence[Span], needle: Needle
) -> Iterator[Found]:
    """Those of the `searched` chunks that have a match, in order. A match that spans two is in the first.

    `chunks` are all that may be shown. Both are in order; there may be gaps between them, and a match that
    lies in a gap between those that are searched is in no chunk.
    """
    starts = [chunk.start for chunk in searched]
    by_chunk: dict[int, list[Span]] = {}
    for span in spans:
        at = bisect_right(starts, span.start) - 1
        if at < 0 or searched[at].end <= span.start:  # it begins with the white space before a chunk
            at += 1
        if at < len(searched) and searched[at].start < span.end:
            by_chunk.setdefault(at, []).append(span)
    counted, line = 0, 1
    for at, inside in by_chunk.items():
        lines = []
        for span in inside[:LISTED_OCCURRENCES]:
            line += text.count("\n", counted, span.start)
            counted = span.start
            lines.append(line)
        yield _found(text, chunks, searched[at], inside, lines, needle)


def _found(
    text: str,
    chunks: Sequence[Chunk],
    chunk: Chunk,
    spans: Sequence[Span],
    lines: Sequence[int],
    needle: Needle,
) -> Found:
    excerpts = _excerpts(text, (_surroundings(text, span) for span in spans[:EXCERPTS]))
    shown = Span(excerpts[0].start, excerpts[-1].end)
    touched = tuple(one for one in chunks if one.start < shown.end and shown.start < one.end)
    return Found(
        chunk,
        len(spans),
        tuple(Occurrence(line, *span) for line, span in zip(lines, spans, strict=False)),
        excerpts,
        touched if touched != (chunk,) else (),
        any(stands_alone(text, *span) for span in spans),
        any(text[slice(*span)] == needle.written for span in spans),
    )


def rows(text: str, matching: Sequence[Found]) -> list[list[Found]]:
    """The chunks of a source that have a match, in rows, each of which is one result; no text is in two rows.

    Chunks are in a row if their excerpts touch, or have only white space in between. A row has at most
    `MAX_JOINED_CHARS`. Where it would be longer, another begins with the line of the next match.
    """
    in_rows: list[list[Found]] = []
    for found in matching:
        first, last = found.excerpts[0].start, found.excerpts[-1].end
        if not in_rows or text[in_rows[-1][-1].excerpts[-1].end : first].strip():
            in_rows.append([found])
        elif last - in_rows[-1][0].excerpts[0].start <= MAX_JOINED_CHARS:
            in_rows[-1].append(found)
        else:
            in_rows[-1][-1], following = _parted(text, in_rows[-1][-1], found)
            in_rows.append([following])
    return in_rows


def _parted(text: str, before: Found, after: Found) -> tuple[Found, Found]:
    """Two chunks without what is shown of both: `after` begins with the line of its first match."""
    match = after.occurrences[0].start
    cut = max(text.rfind("\n", 0, match) + 1, before.occurrences[-1].end)
    above = [Span(one.start, min(one.end, cut)) for one in before.excerpts]
    below = [Span(max(one.start, cut), one.end) for one in after.excerpts]
    return (
        replace(before, excerpts=_excerpts(text, [trimmed(text, *span) or span for span in above])),
        replace(after, excerpts=_excerpts(text, below)),
    )


def as_one(text: str, row: Sequence[Found], best: Found) -> Found:
    """A row as its best chunk, with the matches of all, and what is shown of them."""
    if len(row) == 1:
        return best
    chunks = {chunk.seq: chunk for found in row for chunk in found.around or (found.chunk,)}
    spans = (Span(one.start, one.end) for found in row for one in found.excerpts)
    return replace(
        best,
        count=sum(found.count for found in row),
        occurrences=tuple(one for found in row for one in found.occurrences)[:LISTED_OCCURRENCES],
        excerpts=_excerpts(text, spans),
        around=tuple(chunks[seq] for seq in sorted(chunks)),
    )


def _excerpts(text: str, spans: Iterable[Span]) -> tuple[Excerpt, ...]:
    """The spans as excerpts; those that touch, or have only white space in between, as one."""
    shown: list[Span] = []
    for span in united(spans):
        if shown and not text[shown[-1].end : span.start].strip():
            shown[-1] = Span(shown[-1].start, span.end)
        else:
            shown.append(span)
    return tuple(Excerpt(*span, text[slice(*span)]) for span in shown)


def _surroundings(text: str, match: Span) -> Span:
    """The lines of a match and some around them, cut between words if they are long."""
    match = Span(match.start, min(match.end, match.start + MATCH_CHARS))
    lines = Span(_up(text, match.start), _down(text, match.end))
    near = Span(max(lines.start, match.start - AROUND_CHARS), min(lines.end, match.end + AROUND_CHARS))
    inner = between_words(text, near, lines)
    shown = trimmed(text, min(inner.start, match.start), max(inner.end, match.end)) or match
    return Span(with_indent(text, shown.start), shown.end)


def _up(text: str, at: int) -> int:
    """The beginning of the first line that is shown above a position."""
    for _ in range(CONTEXT_LINES + 1):
        end = text.rfind("\n", 0, at)
        if end < 0:
            return 0
        at = end
    return at + 1


def _down(text: str, at: int) -> int:
    """The end of the last line that is shown below a position."""
    end = at - 1
    for _ in range(CONTEXT_LINES + 1):
        end = text.find("\n", end + 1)
        if end < 0:
            return len(text)
    return end
