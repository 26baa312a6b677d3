"""Mode exact: finds a text, whole words or a regular expression by scanning what the principal may read.

    sources whose text has a match -> the best of them -> where in these -> chunks, best first -> the gate

If the plan joins, chunks of a source are one result where what is shown of them touches.

It needs neither a model nor an index. Everything is read through the views, like the lists of other modes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from rag.answers import Listing
from rag.concurrency import concurrently
from rag.search.gate import READS, admit, is_fault
from rag.search.occurrences import Found, as_one, found_in, rows
from rag.search.recall import Candidate
from rag.store.scan import check_syntax, holders, match_any, spans
from rag.store.texts import chunks, places, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.answers import Hit
    from rag.corpus import Chunk
    from rag.needles.needle import Needle
    from rag.search.recall import Query
    from rag.search.run import Run
    from rag.search.view import View
    from rag.store.reader import StoredSource
    from rag.store.scan import Holder

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
    holder: Holder
    stored: StoredSource


@dataclass(frozen=True, slots=True)
class _Match:
    """A chunk with a match, and what it is worth."""

    view: View
    found: Found
    score: float


async def find_exact(query: Query, run: Run) -> list[Hit]:
    """The hits of the plan's needle, best first; up to the limit, or all if hit stages select among them.

    If a source is replaced meanwhile, the search is repeated, up to `READS` times in all.

    Raises:
        InvalidRequestError: the regular expression is not valid.
    """
    needle = cast("Needle", run.plan.needle)
    if needle.match == "regex":
        await to_thread.run_sync(check_syntax, needle)
    for _ in range(READS):
        notes: list[str] = []
        with run.steps.step("scan") as scan:
            chosen = await _scanned(query, needle, run, notes)
            scan.made(len(chosen))
        with run.steps.step("locate") as locate:
            matches = await _located(chosen, needle, run)
            if run.is_late:
                notes.append(OUT_OF_TIME.format(_seconds(query)))
            candidates = await _candidates(matches, run.plan.candidates)
            locate.warns(*notes)
        hits = await _gated(candidates, query, run)
        kept = [_shown(hit, matches[hit.chunk.id].found) for hit in hits if _is_same(hit, matches)]
        if len(kept) == len(hits):
            break
    run.note(notes)
    return kept


def scan_deadline(query: Query) -> float:
    """Until when, by the monotonic clock, a search that begins now may scan: all its attempts together."""
    return time.monotonic() + _seconds(query)


def _seconds(query: Query) -> float:
    """The time limit. All collections of a desk have the same."""
    return query.views[0].table.timeout_seconds


async def _scanned(query: Query, needle: Needle, run: Run, notes: list[str]) -> list[_Chosen]:
    """The readable sources with a match, at most as many as the plan's candidates.

    First those with one in the title, then the newest; those without a date last.
    """
    scans = [partial(_holders, view, needle, run.scan_until) for view in query.views]
    scanned = await concurrently(scans)
    pairs = [(view, one) for view, (some, _) in zip(query.views, scanned, strict=True) for one in some]
    pairs.sort(key=lambda pair: _order(pair[1]))
    most = run.plan.candidates
    chosen: list[_Chosen] = []
    for first in range(0, len(pairs), CHECKED):
        chosen += await _readable(pairs[first : first + CHECKED], run)
        if len(chosen) > most:
            notes.append(MORE_SOURCES.format(most))
            break
    return chosen[:most]


async def _holders(view: View, needle: Needle, until: float) -> tuple[list[Holder], bool]:
    scan = holders(view.table, view.of_sources, needle, until, of_chunks=view.is_by_section)
    return await view.table.attempt(scan, ([], True))


def _order(holder: Holder) -> tuple[bool, float, str]:
    return not holder.titled, -holder.date.timestamp() if holder.date else float("inf"), holder.id


async def _readable(pairs: Sequence[tuple[View, Holder]], run: Run) -> list[_Chosen]:
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
        run.alarm(faults)
    return chosen


async def _located(chosen: Sequence[_Chosen], needle: Needle, run: Run) -> dict[str, _Match]:
    """The chunks with a match, by id."""
    until = max(run.scan_until, time.monotonic() + LOCATE_SECONDS)
    by_view: dict[int, list[_Chosen]] = {}
    for one in chosen:
        by_view.setdefault(id(one.view), []).append(one)
    groups = await concurrently(
        [partial(_in_view, some, needle, until, joins=run.plan.joins) for some in by_view.values()]
    )
    return {match.found.chunk.id: match for group in groups for match in group}


async def _in_view(chosen: Sequence[_Chosen], needle: Needle, until: float, *, joins: bool) -> list[_Match]:
    return await chosen[0].view.table.attempt(_read(chosen, needle, until, joins=joins), [])


async def _read(chosen: Sequence[_Chosen], needle: Needle, until: float, *, joins: bool) -> list[_Match]:
    view = chosen[0].view
    sources = {source.stored.source.id: source for source in chosen}
    stored = await places(view.table, sources, view.of_sources)
    matches: list[_Match] = []
    async for id_, generation, text in texts(view.table, sources):
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
    visible = chunks(stored, text)
    searched = _that_contain(visible, chosen.view.contains)
    at = spans(text, needle, MOST_OCCURRENCES, until)
    matching = [*found_in(text, visible, searched, at, needle)]
    scores = _scores(chosen, matching, needle)
    in_rows = rows(text, matching) if joins else [[found] for found in matching]
    bests = [max(row, key=lambda found: scores[found.chunk.id]) for row in in_rows]
    return [
        _Match(chosen.view, as_one(text, row, best), scores[best.chunk.id])
        for row, best in zip(in_rows, bests, strict=True)
    ]


def _scores(chosen: _Chosen, matching: Sequence[Found], needle: Needle) -> dict[str, float]:
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


async def _gated(candidates: Sequence[Candidate], query: Query, run: Run) -> list[Hit]:
    with run.steps.step("gate") as gate:
        wanted = len(candidates) if run.plan.hit_stages else run.plan.limit
        hits = await admit(candidates, query, wanted, run.alarm)
        if run.steps.detailed:
            admitted = await admit(candidates, query, len(candidates), lambda _sources: None)
            gate.left(hits, of=len(admitted), beyond=[hit.chunk.id for hit in admitted[len(hits) :]])
            ranked = enumerate(admitted, 1)
            run.listings.clear()  # a repeated search tells of its last attempt
            run.listings.update(
                (hit.chunk.id, (Listing(0, "exact", rank, hit.score),)) for rank, hit in ranked
            )
    return hits


def _is_same(hit: Hit, matches: Mapping[str, _Match]) -> bool:
    """Whether a hit is the chunk that was found: its source may have been replaced since."""
    return hit.chunk == matches[hit.chunk.id].found.chunk


def _shown(hit: Hit, found: Found) -> Hit:
    return replace(
        hit,
        excerpts=found.excerpts,
        around=found.around,
        occurrences=found.occurrences,
        occurrence_count=found.count,
    )
