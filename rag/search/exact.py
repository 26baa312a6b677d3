"""Mode exact: finds a text, whole words or a regular expression by scanning what the principal may read.

    sources whose text has a match -> the best of them -> where in these -> chunks, best first -> the gate

An occurrence is in one chunk, also where chunks overlap. If the plan joins, chunks of a source are one result
where what is shown of them touches: `rows_of_matches` tells which.

It needs neither a model nor an index. Everything is read through the views, like the lists of other modes.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from rag.answers import LISTED_OCCURRENCES, Excerpt, Hit, Listing, Occurrence
from rag.corpus import Chunk
from rag.needles.needle import Needle, stands_alone
from rag.rank.fusion import MAX_JOINED_CHARS
from rag.runtime import concurrently
from rag.search.gate import READS, admit, is_fault
from rag.search.recall import Candidate, Query
from rag.search.source_window import between_words
from rag.search.stages.surroundings import united
from rag.store.read.stored_rows import StoredSource
from rag.store.read.text_scan import (
    MatchedSource,
    check_syntax,
    chunk_places,
    chunks_of_texts,
    match_any,
    matched_sources,
    source_texts,
    spans,
)
from rag.text.segments import Span, trimmed, with_indent

if TYPE_CHECKING:
    from rag.search.search_state import SearchState
    from rag.search.view import View

EXCERPTS = 3  # occurrences in a chunk that are shown with the lines around them
CONTEXT_LINES = 2  # before and after
AROUND_CHARS = 240  # at most, before and after: lines can be long
MATCH_CHARS = 1_000  # shown of a match, at most
OTHERS = 4  # occurrences in a chunk that are half as good as any number of them
WEIGHTS = {"titled": 0.4, "section": 0.2, "alone": 0.2, "case": 0.1, "count": 0.1}
"""What makes an occurrence a better answer: that the title or the path has it, the section's heading, that
it is a whole word, in the same letter case, and that there are several in the chunk."""


@dataclass(frozen=True, slots=True)
class MatchedChunk:
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


def matched_chunks(
    text: str, chunks: Sequence[Chunk], searched: Sequence[Chunk], spans: Sequence[Span], needle: Needle
) -> Iterator[MatchedChunk]:
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
        yield _matched_chunks(text, chunks, searched[at], inside, lines, needle)


def _matched_chunks(
    text: str,
    chunks: Sequence[Chunk],
    chunk: Chunk,
    spans: Sequence[Span],
    lines: Sequence[int],
    needle: Needle,
) -> MatchedChunk:
    excerpts = _excerpts(text, (_surroundings(text, span) for span in spans[:EXCERPTS]))
    shown = Span(excerpts[0].start, excerpts[-1].end)
    touched = tuple(one for one in chunks if one.start < shown.end and shown.start < one.end)
    return MatchedChunk(
        chunk,
        len(spans),
        tuple(Occurrence(line, *span) for line, span in zip(lines, spans, strict=False)),
        excerpts,
        touched if touched != (chunk,) else (),
        any(stands_alone(text, *span) for span in spans),
        any(text[slice(*span)] == needle.query for span in spans),
    )


def rows_of_matches(text: str, matching: Sequence[MatchedChunk]) -> list[list[MatchedChunk]]:
    """The chunks of a source that have a match, in rows, each of which is one result; no text is in two rows.

    Chunks are in a row if their excerpts touch, or have only white space in between. A row has at most
    `MAX_JOINED_CHARS`. Where it would be longer, another begins with the line of the next match.
    """
    in_rows: list[list[MatchedChunk]] = []
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


def _parted(text: str, before: MatchedChunk, after: MatchedChunk) -> tuple[MatchedChunk, MatchedChunk]:
    """Two chunks without what is shown of both: `after` begins with the line of its first match."""
    match = after.occurrences[0].start
    cut = max(text.rfind("\n", 0, match) + 1, before.occurrences[-1].end)
    above = [Span(one.start, min(one.end, cut)) for one in before.excerpts]
    below = [Span(max(one.start, cut), one.end) for one in after.excerpts]
    return (
        replace(before, excerpts=_excerpts(text, [trimmed(text, *span) or span for span in above])),
        replace(after, excerpts=_excerpts(text, below)),
    )


def joined_row(text: str, row: Sequence[MatchedChunk], best: MatchedChunk) -> MatchedChunk:
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


MOST_OCCURRENCES = 1_000  # located in a source
LOCATE_SECONDS = 1.0  # at least, also if the scan has used all the time
CHECKED = 200  # sources that the gate checks at once
OUT_OF_TIME = (
    "The search was stopped after {:g} seconds, before it had read everything: there may be more matches. "
    "Name sources or collections, use a filter, or simplify the regular expression."
)
MORE_SOURCES = (
    "More than {} documents match. The results are from the first: those with a match in the title, then the "
    "newest. Search for more of the text, or name sources or collections."
)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A source in which the needle is located."""

    view: View
    holder: MatchedSource
    stored: StoredSource


@dataclass(frozen=True, slots=True)
class _Match:
    """A chunk with a match, and what it is worth."""

    view: View
    found: MatchedChunk
    score: float


async def find_exact(query: Query, state: SearchState) -> list[Hit]:
    """The hits of the plan's needle, best first; up to the limit, or all if hit stages select among them.

    If a source is replaced meanwhile, the search is repeated, up to `READS` times in all.

    Raises:
        InvalidRequestError: the regular expression is not valid.
    """
    needle = cast("Needle", state.plan.needle)
    if needle.match == "regex":
        await to_thread.run_sync(check_syntax, needle)
    for _ in range(READS):
        notes: list[str] = []
        with state.steps.step("scan") as scan:
            chosen = await _scanned(query, needle, state, notes)
            scan.made(len(chosen))
        with state.steps.step("locate") as locate:
            matches = await _located(chosen, needle, state)
            if state.is_late:
                notes.append(OUT_OF_TIME.format(_seconds(query)))
            candidates = await _candidates(matches, state.plan.candidates)
            locate.warns(*notes)
        hits = await _gated(candidates, query, state)
        kept = [_shown(hit, matches[hit.chunk.id].found) for hit in hits if _is_same(hit, matches)]
        if len(kept) == len(hits):
            break
    state.note(notes)
    return kept


def scan_deadline(query: Query) -> float:
    """Until when, by the monotonic clock, a search that begins now may scan: all its attempts together."""
    return time.monotonic() + _seconds(query)


def _seconds(query: Query) -> float:
    """The time limit. All collections of a desk have the same."""
    return query.views[0].table.timeout_seconds


async def _scanned(query: Query, needle: Needle, state: SearchState, notes: list[str]) -> list[_Chosen]:
    """The readable sources with a match, at most as many as the plan's candidates.

    First those with one in the title, then the newest; those without a date last.
    """
    scans = [partial(_holders, view, needle, state.scan_until) for view in query.views]
    scanned = await concurrently(scans)
    pairs = [(view, one) for view, (some, _) in zip(query.views, scanned, strict=True) for one in some]
    pairs.sort(key=lambda pair: _order(pair[1]))
    most = state.plan.candidates
    chosen: list[_Chosen] = []
    for first in range(0, len(pairs), CHECKED):
        chosen += await _readable(pairs[first : first + CHECKED], state)
        if len(chosen) > most:
            notes.append(MORE_SOURCES.format(most))
            break
    return chosen[:most]


async def _holders(view: View, needle: Needle, until: float) -> tuple[list[MatchedSource], bool]:
    scan = matched_sources(view.table, view.of_sources, needle, until, of_chunks=view.is_by_section)
    return await view.table.attempt(scan, ([], True))


def _order(holder: MatchedSource) -> tuple[bool, float, str]:
    return not holder.titled, -holder.date.timestamp() if holder.date else float("inf"), holder.id


async def _readable(pairs: Sequence[tuple[View, MatchedSource]], state: SearchState) -> list[_Chosen]:
    """Those that the gate admits. Only these may count: otherwise the notes would reveal others."""
    stored: dict[int, Mapping[str, StoredSource]] = {}
    for view in {id(view): view for view, _ in pairs}.values():
        ids = [holder.id for other, holder in pairs if other is view]
        stored[id(view)] = await view.table.sources(ids)
    chosen, faults = [], 0
    for view, holder in pairs:
        source = stored[id(view)].get(holder.id)
        if source and view.admits(source):
            chosen.append(_Chosen(view, holder, source))
        elif source and not view.overtaken(source):
            faults += is_fault(source, holder.generation, holder.revision)
    if faults:
        state.alarm(faults)
    return chosen


async def _located(chosen: Sequence[_Chosen], needle: Needle, state: SearchState) -> dict[str, _Match]:
    """The chunks with a match, by id."""
    until = max(state.scan_until, time.monotonic() + LOCATE_SECONDS)
    by_view: dict[int, list[_Chosen]] = {}
    for one in chosen:
        by_view.setdefault(id(one.view), []).append(one)
    groups = await concurrently(
        [partial(_in_view, some, needle, until, joins=state.plan.joins) for some in by_view.values()]
    )
    return {match.found.chunk.id: match for group in groups for match in group}


async def _in_view(chosen: Sequence[_Chosen], needle: Needle, until: float, *, joins: bool) -> list[_Match]:
    return await chosen[0].view.table.attempt(_read(chosen, needle, until, joins=joins), [])


async def _read(chosen: Sequence[_Chosen], needle: Needle, until: float, *, joins: bool) -> list[_Match]:
    view = chosen[0].view
    sources = {source.stored.source.id: source for source in chosen}
    stored = await chunk_places(view.table, sources, view.of_sources)
    matches: list[_Match] = []
    async for id_, generation, text in source_texts(view.table, sources):
        locate = partial(_in_text, sources[id_], stored.get((id_, generation), ()), text, needle, until)
        matches += await to_thread.run_sync(partial(locate, joins=joins), limiter=view.table.scans)
    return matches


def _in_text(
    chosen: _Chosen,
    stored: Sequence[Mapping[str, Any]],
    text: str,
    needle: Needle,
    until: float,
    *,
    joins: bool,
) -> list[_Match]:
    """The chunks of one source that have a match, with their scores; those of a row as one if it `joins`."""
    visible = chunks_of_texts(stored, text)
    searched = _that_contain(visible, chosen.view.contains)
    at = spans(text, needle, MOST_OCCURRENCES, until)
    matching = [*matched_chunks(text, visible, searched, at, needle)]
    scores = _scores(chosen, matching, needle)
    in_rows = rows_of_matches(text, matching) if joins else [[found] for found in matching]
    bests = [max(row, key=lambda found: scores[found.chunk.id]) for row in in_rows]
    return [
        _Match(chosen.view, joined_row(text, row, best), scores[best.chunk.id])
        for row, best in zip(in_rows, bests, strict=True)
    ]


def _scores(chosen: _Chosen, matching: Sequence[MatchedChunk], needle: Needle) -> dict[str, float]:
    """What each chunk is worth, by its id."""
    path = chosen.stored.source.metadata.get("path", "")
    in_path, *in_sections = match_any([path, *(" > ".join(one.chunk.section) for one in matching)], needle)
    titled = chosen.holder.titled or in_path
    return {
        found.chunk.id: found.score(titled=titled, section=in_section)
        for found, in_section in zip(matching, in_sections, strict=True)
    }


def _that_contain(visible: Sequence[Chunk], needles: Sequence[Needle]) -> Sequence[Chunk]:
    """The chunks that have a match of each needle, which a request or the operator demands."""
    for needle in needles:
        held = match_any([chunk.text for chunk in visible], needle)
        visible = [chunk for chunk, holds in zip(visible, held, strict=True) if holds]
    return visible


async def _candidates(matches: Mapping[str, _Match], most: int) -> list[Candidate]:
    """The best matches with their rows, as the gate checks them; equal ones in the order of their sources."""
    best = sorted(
        matches.values(), key=lambda one: (-one.score, one.found.chunk.source_id, one.found.chunk.seq)
    )
    by_view: dict[int, list[_Match]] = {}
    for one in best[:most]:
        by_view.setdefault(id(one.view), []).append(one)
    candidates: dict[str, Candidate] = {}
    for some in by_view.values():
        view = some[0].view
        for row in await view.table.chunks([one.found.chunk.id for one in some], view.where):
            score = matches[row.id].score
            versions = (*candidates[row.id].versions, row) if row.id in candidates else (row,)
            candidates[row.id] = Candidate(row.id, score, view, versions)
    return [candidates[one.found.chunk.id] for one in best if one.found.chunk.id in candidates]


async def _gated(candidates: Sequence[Candidate], query: Query, state: SearchState) -> list[Hit]:
    with state.steps.step("gate") as gate:
        wanted = len(candidates) if state.plan.hit_stages else state.plan.limit
        hits = await admit(candidates, query, wanted, state.alarm)
        if state.steps.detailed:
            admitted = await admit(candidates, query, len(candidates), lambda _sources: None)
            gate.left(hits, of=len(admitted), beyond=[hit.chunk.id for hit in admitted[len(hits) :]])
            ranked = enumerate(admitted, 1)
            state.listings.clear()  # a repeated search tells of its last attempt
            state.listings.update(
                (hit.chunk.id, (Listing(0, "exact", rank, hit.score),)) for rank, hit in ranked
            )
    return hits


def _is_same(hit: Hit, matches: Mapping[str, _Match]) -> bool:
    """Whether a hit is the chunk that was found: its source may have been replaced since."""
    return hit.chunk == matches[hit.chunk.id].found.chunk


def _shown(hit: Hit, found: MatchedChunk) -> Hit:
    return replace(
        hit,
        excerpts=found.excerpts,
        around=found.around,
        occurrences=found.occurrences,
        occurrence_count=found.count,
    )
