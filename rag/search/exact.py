"""Mode exact: finds a text, whole words or a regular expression by scanning what the principal may read.

    scan: sources with a match -> locate: matches in the best of them -> chunks, best first -> the gate

An occurrence belongs to one chunk, also where chunks overlap. If the plan joins, chunks of a source whose
excerpts touch are one hit (`rows_of_matches`).

It needs neither a model nor an index. Everything is read through the views, as in the other modes.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

from anyio import to_thread

from rag.answers import LISTED_OCCURRENCES, Excerpt, Hit, Listing, Occurrence
from rag.corpus import Chunk
from rag.filters.folded_text import stands_alone
from rag.filters.needles import Needle
from rag.rank.fusion import MAX_JOINED_CHARS
from rag.runtime import concurrently, grouped
from rag.search.recall import READS, Candidate, Query, admit, is_fault
from rag.search.search_state import SearchState
from rag.search.source_window import between_words, merged_excerpts
from rag.search.view import View
from rag.store.read.schema import StoredSource
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
from rag.text.plain_text import Span, lines_at, sentence_ends, trimmed, with_indent

EXCERPTS = 3  # occurrences in a chunk that are shown with the lines around them
CONTEXT_LINES = 2  # before and after
AROUND_CHARS = 240  # at most, before and after: lines can be long
SENTENCE_CHARS = 1_000  # likewise, if a sentence or the row of a table goes so far
MATCH_CHARS = 1_000  # shown of a match, at most
HALF_COUNT = 4  # occurrences with half the score of infinitely many
TITLED, IN_HEADING, WHOLE_WORD, SAME_CASE, COUNT = 0.4, 0.2, 0.2, 0.1, 0.1
"""Parts of a chunk's score: a match in the title or path, in the section's heading, as a whole word, in the
same letter case, and the number of matches."""


@dataclass(frozen=True, slots=True)
class MatchedChunk:
    """A chunk in which `count` matches begin, with the first `occurrences` and the excerpts to show.

    `around` are the chunks that the excerpts touch, if these extend beyond the chunk. The `score` is from 0
    to 1.
    """

    chunk: Chunk
    count: int
    occurrences: tuple[Occurrence, ...]
    excerpts: tuple[Excerpt, ...]
    around: tuple[Chunk, ...]
    score: float


def matched_chunks(
    text: str, chunks: Sequence[Chunk], searched: Sequence[Chunk], spans: Sequence[Span], needle: Needle
) -> Iterator[MatchedChunk]:
    """The `searched` chunks that have a match, in order. A match across two chunks belongs to the first.

    `chunks` are all that may be shown. A match within a gap of the searched ones is ignored.
    """
    starts = [chunk.start for chunk in searched]
    by_chunk: dict[int, list[Span]] = {}
    for span in spans:
        at = bisect_right(starts, span.start) - 1
        if at < 0 or searched[at].end <= span.start:  # the match begins in white space before a chunk
            at += 1
        if at < len(searched) and searched[at].start < span.end:
            by_chunk.setdefault(at, []).append(span)
    starts_of_matches = (span.start for inside in by_chunk.values() for span in inside[:LISTED_OCCURRENCES])
    lines = lines_at(text, starts_of_matches)  # in one pass over the text
    for at, inside in by_chunk.items():
        listed = [Occurrence(next(lines), *span) for span in inside[:LISTED_OCCURRENCES]]
        yield _matched_chunk(text, chunks, searched[at], inside, listed, needle)


def _matched_chunk(
    text: str,
    chunks: Sequence[Chunk],
    chunk: Chunk,
    spans: Sequence[Span],
    listed: Iterable[Occurrence],
    needle: Needle,
) -> MatchedChunk:
    excerpts = merged_excerpts(text, (_surroundings(text, span) for span in spans[:EXCERPTS]))
    window = Span(excerpts[0].start, excerpts[-1].end)
    touched = tuple(
        candidate for candidate in chunks if candidate.start < window.end and window.start < candidate.end
    )
    score = (
        WHOLE_WORD * any(stands_alone(text, *span) for span in spans)
        + SAME_CASE * any(text[slice(*span)] == needle.query for span in spans)
        + COUNT * len(spans) / (len(spans) + HALF_COUNT)
    )
    around = touched if touched != (chunk,) else ()
    return MatchedChunk(chunk, len(spans), tuple(listed), excerpts, around, score)


def rows_of_matches(text: str, matching: Sequence[MatchedChunk]) -> list[list[MatchedChunk]]:
    """The matched chunks of a source in rows, one hit per row; no text is in two rows.

    Chunks are in a row if their excerpts touch or have only white space in between. A row has at most
    `MAX_JOINED_CHARS`; the next one begins with the line of the next match.
    """
    in_rows: list[list[MatchedChunk]] = []
    for matched in matching:
        first, last = matched.excerpts[0].start, matched.excerpts[-1].end
        if not in_rows or text[in_rows[-1][-1].excerpts[-1].end : first].strip():
            in_rows.append([matched])
        elif last - in_rows[-1][0].excerpts[0].start <= MAX_JOINED_CHARS:
            in_rows[-1].append(matched)
        else:
            in_rows[-1][-1], following = _without_shared_text(text, in_rows[-1][-1], matched)
            in_rows.append([following])
    return in_rows


def _without_shared_text(
    text: str, before: MatchedChunk, after: MatchedChunk
) -> tuple[MatchedChunk, MatchedChunk]:
    """Two chunks without shared text: `after` begins with the line of its first match."""
    match = after.occurrences[0].start
    cut = max(text.rfind("\n", 0, match) + 1, before.occurrences[-1].end)
    above = [Span(excerpt.start, min(excerpt.end, cut)) for excerpt in before.excerpts]
    below = [Span(max(excerpt.start, cut), excerpt.end) for excerpt in after.excerpts]
    return (
        replace(before, excerpts=merged_excerpts(text, [trimmed(text, *span) or span for span in above])),
        replace(after, excerpts=merged_excerpts(text, below)),
    )


def joined_row(text: str, row: Sequence[MatchedChunk]) -> MatchedChunk:
    """A row as its best chunk, with the matches and excerpts of all."""
    best = max(row, key=lambda matched: matched.score)
    if len(row) == 1:
        return best
    chunks = {chunk.seq: chunk for matched in row for chunk in matched.around or (matched.chunk,)}
    spans = (Span(excerpt.start, excerpt.end) for matched in row for excerpt in matched.excerpts)
    return replace(
        best,
        count=sum(matched.count for matched in row),
        occurrences=tuple(occurrence for matched in row for occurrence in matched.occurrences)[
            :LISTED_OCCURRENCES
        ],
        excerpts=merged_excerpts(text, spans),
        around=tuple(chunks[seq] for seq in sorted(chunks)),
    )


def _surroundings(text: str, match: Span) -> Span:
    """The lines of a match and `CONTEXT_LINES` around them; long ones are cut, but not its sentence."""
    match = Span(match.start, min(match.end, match.start + MATCH_CHARS))
    lines = Span(_context_start(text, match.start), _context_end(text, match.end))
    near = Span(max(lines.start, match.start - AROUND_CHARS), min(lines.end, match.end + AROUND_CHARS))
    inner = between_words(text, near, lines)
    sentence = _sentence_around(text, match)
    visible = trimmed(text, min(inner.start, sentence.start), max(inner.end, sentence.end)) or match
    return Span(with_indent(text, visible.start), visible.end)


def _sentence_around(text: str, match: Span) -> Span:
    """The sentence or row that a match is in, within its line; a side of it that is too long is left out.

    What follows a match in its sentence can be its exception: "…, unless the customer agreed".
    """
    line_start, line_end = text.rfind("\n", 0, match.start) + 1, text.find("\n", match.end)
    line_end = len(text) if line_end < 0 else line_end
    first = max(line_start, match.start - SENTENCE_CHARS)
    last = min(line_end, match.end + SENTENCE_CHARS)
    ends = [] if text.startswith("|", line_start) else [*sentence_ends(text, first, last)]
    starts = [end for end in ends if end <= match.start] or [first if first == line_start else match.start]
    ends = [end for end in ends if end >= match.end] or [last if last == line_end else match.end]
    return Span(starts[-1], ends[0])


def _context_start(text: str, at: int) -> int:
    for _ in range(CONTEXT_LINES + 1):
        end = text.rfind("\n", 0, at)
        if end < 0:
            return 0
        at = end
    return at + 1


def _context_end(text: str, at: int) -> int:
    end = at - 1
    for _ in range(CONTEXT_LINES + 1):
        end = text.find("\n", end + 1)
        if end < 0:
            return len(text)
    return end


MOST_OCCURRENCES = 1_000  # located in a source
LOCATE_SECONDS = 1.0  # guaranteed for locating, even if the scan has used up its time
CHECKED = 200  # sources that the gate checks at once
OUT_OF_TIME = (
    "The search was stopped after {:g} seconds, before it had read everything: there may be more matches. "
    "Name sources or collections, use a filter, or simplify the regular expression."
)
CHANGED = "Documents changed while they were searched, and matches in them are left out. Repeat the search."
MORE_SOURCES = (
    "More than {} documents match. The results are from the first: those with a match in the title, then the "
    "newest. Search for more of the text, or name sources or collections."
)


@dataclass(frozen=True, slots=True)
class _ReadableSource:
    view: View
    holder: MatchedSource
    stored: StoredSource


_Matches: TypeAlias = "Mapping[str, tuple[View, MatchedChunk]]"
"""The matched chunks with their views, by id."""


async def find_exact(query: Query, state: SearchState) -> list[Hit]:
    """The hits of the plan's needle, best first; up to the limit, or all if hit stages select among them.

    If a source is replaced meanwhile, the search is repeated, up to `READS` times in total.

    Raises:
        InvalidRequestError: the regular expression is invalid.
    """
    needle = cast("Needle", state.plan.needle)
    if needle.match == "regex":
        await to_thread.run_sync(check_syntax, needle)
    for _ in range(READS):
        notes: list[str] = []  # of this attempt: earlier ones may no longer hold
        with state.steps.step("scan") as scan:
            sources = await _scan(query, needle, state, notes)
            scan.record_count(len(sources))
        with state.steps.step("locate") as locate:
            matches = await _locate(sources, needle, state)
            if state.is_late:
                notes.append(OUT_OF_TIME.format(_seconds(query)))
            candidates = await _candidates(matches, state.plan.candidates)
            locate.add_warnings(*notes)
        hits = await _pass_gate(candidates, query, state)
        current = [_with_matches(hit, matches[hit.chunk.id][1]) for hit in hits if _is_same(hit, matches)]
        if len(current) == len(hits):
            break
    else:
        notes.append(CHANGED)
    state.note(notes)
    return current


def scan_deadline(query: Query) -> float:
    """The deadline, by the monotonic clock, of a search that begins now; all its attempts share it."""
    return time.monotonic() + _seconds(query)


def _seconds(query: Query) -> float:
    """The time limit, the same for all collections of a desk."""
    return query.views[0].table.timeout_seconds


async def _scan(query: Query, needle: Needle, state: SearchState, notes: list[str]) -> list[_ReadableSource]:
    """The readable sources with a match, up to the plan's candidates.

    Sources with a match in the title come first, then newer ones, then those without a date.
    """
    scans = [partial(_scan_view, view, needle, state.scan_until) for view in query.views]
    scanned = zip(query.views, await concurrently(scans), strict=True)
    pairs = [(view, source) for view, sources in scanned for source in sources]
    pairs.sort(key=lambda pair: _sort_key(pair[1]))
    limit = state.plan.candidates
    readable: list[_ReadableSource] = []
    # In order, so that the gate reads no more sources than it takes to fill the limit.
    for first in range(0, len(pairs), CHECKED):
        readable += await _readable_sources(pairs[first : first + CHECKED], state)
        if len(readable) > limit:
            notes.append(MORE_SOURCES.format(limit))
            break
    return readable[:limit]


async def _scan_view(view: View, needle: Needle, until: float) -> list[MatchedSource]:
    scan = matched_sources(view.table, view.source_condition, needle, until, of_chunks=view.is_by_section)
    return await view.table.attempt(scan, [])


def _sort_key(holder: MatchedSource) -> tuple[bool, float, str]:
    return not holder.titled, -holder.date.timestamp() if holder.date else float("inf"), holder.id


async def _readable_sources(
    pairs: Sequence[tuple[View, MatchedSource]], state: SearchState
) -> list[_ReadableSource]:
    """The sources that pass the gate. Only these may count: notes must not reveal others."""
    ids = grouped((view, holder.id) for view, holder in pairs)
    stored = {view: await view.table.sources(of_view) for view, of_view in ids.items()}
    readable, faults = [], 0
    for view, holder in pairs:
        source = stored[view].get(holder.id)
        if source and view.admits(source):
            readable.append(_ReadableSource(view, holder, source))
        elif source:
            faults += is_fault(view, source, holder.generation, holder.revision)
    if faults:
        state.alarm(faults)
    return readable


async def _locate(sources: Sequence[_ReadableSource], needle: Needle, state: SearchState) -> _Matches:
    # A scan that took all of its time has found sources. Without their passages the answer would be empty.
    until = max(state.scan_until, time.monotonic() + LOCATE_SECONDS)
    in_text = partial(_in_text, needle=needle, until=until, joins=state.plan.joins)
    by_view = grouped((source.view, source) for source in sources)
    groups = await concurrently([partial(_in_view, *pair, in_text) for pair in by_view.items()])
    in_views = zip(by_view, groups, strict=True)
    return {matched.chunk.id: (view, matched) for view, group in in_views for matched in group}


async def _in_view(
    view: View, chosen: Sequence[_ReadableSource], in_text: Callable[..., list[MatchedChunk]]
) -> list[MatchedChunk]:
    async def located() -> list[MatchedChunk]:
        sources = {source.stored.id: source for source in chosen}
        stored = await chunk_places(view.table, sources, view.source_condition)
        matches: list[MatchedChunk] = []
        async for id_, generation, text in source_texts(view.table, sources):
            rows = stored.get((id_, generation), ())
            scan = partial(in_text, sources[id_], rows, text)
            matches += await to_thread.run_sync(scan, limiter=view.table.scans)
        return matches

    return await view.table.attempt(located(), [])


def _in_text(
    source: _ReadableSource,
    stored: Sequence[Mapping[str, Any]],
    text: str,
    *,
    needle: Needle,
    until: float,
    joins: bool,
) -> list[MatchedChunk]:
    """The matched chunks of one source; if `joins`, one for each row."""
    visible = chunks_of_texts(stored, text)
    # The scan went by `source_condition`, which doesn't have them.
    searched = [chunk for chunk in visible if source.view.has_texts(chunk)]
    at = spans(text, needle, MOST_OCCURRENCES, until)
    matching = _with_headings(source, [*matched_chunks(text, visible, searched, at, needle)], needle)
    return [joined_row(text, row) for row in rows_of_matches(text, matching)] if joins else matching


def _with_headings(
    source: _ReadableSource, matching: Sequence[MatchedChunk], needle: Needle
) -> list[MatchedChunk]:
    """The chunks, with higher scores where the title, the path or a heading matches, too."""
    path = source.stored.source.metadata.get("path", "")
    in_path, *in_sections = match_any(
        [path, *(" > ".join(matched.chunk.section) for matched in matching)], needle
    )
    above = TITLED * (source.holder.titled or in_path)
    return [
        replace(matched, score=matched.score + above + IN_HEADING * in_section)
        for matched, in_section in zip(matching, in_sections, strict=True)
    ]


async def _candidates(matches: _Matches, limit: int) -> list[Candidate]:
    """The best matches with their stored rows, for the gate; ties in the order of their sources."""
    best = sorted(
        matches.values(), key=lambda pair: (-pair[1].score, pair[1].chunk.source_id, pair[1].chunk.seq)
    )
    ids = grouped((view, matched.chunk.id) for view, matched in best[:limit])
    candidates: dict[str, Candidate] = {}
    for view, of_view in ids.items():
        for row in await view.table.chunks(of_view, view.where):
            score = matches[row.id][1].score
            versions = (*candidates[row.id].versions, row) if row.id in candidates else (row,)
            candidates[row.id] = Candidate(row.id, score, view, versions)
    return [candidates[matched.chunk.id] for _, matched in best if matched.chunk.id in candidates]


async def _pass_gate(candidates: Sequence[Candidate], query: Query, state: SearchState) -> list[Hit]:
    with state.steps.step("gate") as gate:
        limit = len(candidates) if state.plan.hit_stages else state.plan.limit
        hits = await admit(candidates, query, limit, state.alarm)
        if state.steps.detailed:
            # All of them, as in the other modes (`record_lists`), and without counting a fault twice.
            admitted = await admit(candidates, query, len(candidates), lambda _sources: None)
            gate.record_hits(hits, of=len(admitted), beyond=[hit.chunk.id for hit in admitted[len(hits) :]])
            ranked = enumerate(admitted, 1)
            state.listings.clear()  # a repeated search records its last attempt only
            state.listings.update(
                (hit.chunk.id, (Listing(0, "exact", rank, hit.score),)) for rank, hit in ranked
            )
    return hits


def _is_same(hit: Hit, matches: _Matches) -> bool:
    """Whether the text of the hit is still the one that matched: its source may have been replaced since."""
    matched = matches[hit.chunk.id][1].chunk
    return (hit.chunk.start, hit.chunk.text) == (matched.start, matched.text)


def _with_matches(hit: Hit, matched: MatchedChunk) -> Hit:
    return replace(
        hit,
        excerpts=matched.excerpts,
        around=matched.around,
        occurrences=matched.occurrences,
        occurrence_count=matched.count,
    )
