"""The gate: the last access check of every result, against its source's current access record.

The engine has filtered by copies of access record and fields in each chunk row, which are stale after a
change of rights and while a source is replaced, and by SQL that could have a bug. So the gate fails closed: a
chunk leaves only if its source's own record admits it, by the same rule evaluated in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from rag.answers import Hit
from rag.rank.fusion import newer_first, settled_count
from rag.runtime import concurrently
from rag.search.recall import Candidate, Query
from rag.search.view import View
from rag.store.read.schema import StoredChunk, StoredSource, split_chunk_id

SLACK = 4  # candidates checked beyond the limit, so that a stale copy or a tie rarely costs a second round
WIDER = 4  # how many times as many candidates the next round checks
READS = 3  # attempts to read a source that is replaced each time

Alarm: TypeAlias = "Callable[[int], None]"
"""Called with the number of sources that the gate withheld because of a fault (see `is_fault`)."""


def is_fault(withheld: StoredSource, generation: str, revision: int) -> bool:
    """Whether a row that the engine returned and the gate withheld shows a bug, and not a race.

    `generation` and `revision` are the row's. If either differs from the source's, the source was replaced or
    its access record changed after the row was written: a race. If both are current, engine and gate have
    judged the same record and disagree: a bug.
    """
    record = withheld.access
    return (generation, revision) == (withheld.generation, record.revision if record else 0)


async def admit(candidates: Sequence[Candidate], query: Query, limit: int, alarm: Alarm) -> list[Hit]:
    """The first `limit` candidates that are readable now, as hits; ties are broken by date, newer first.

    The result is a prefix of what a higher limit would return: all candidates of a tied score take part.
    Similarities are to `query`; a hit has none if it has no vector, or the query none of its model.
    """
    checked = limit + SLACK
    # Stop once no unchecked candidate can tie with the last hit: a tie is broken by date, which only the gate
    # reads, so a tied candidate further down could still belong before it.
    hits = await _readable(candidates[:checked], query, alarm)
    while checked < len(candidates) and settled_count(hits, candidates[checked].score) < limit:
        # Each round reads all candidates again, not only the new ones. If a source is replaced between two
        # rounds, adding up their hits would show it in two versions at once.
        checked *= WIDER
        hits = await _readable(candidates[:checked], query, alarm)
    return newer_first(hits)[:limit]


async def _readable(candidates: Sequence[Candidate], query: Query, alarm: Alarm) -> list[Hit]:
    by_view: dict[View, list[Candidate]] = {}
    for candidate in candidates:
        by_view.setdefault(candidate.view, []).append(candidate)
    groups = await concurrently([partial(_visible, *pair, alarm) for pair in by_view.items()])
    visible = {id_: pair for group in groups for id_, pair in group.items()}
    return [
        _hit(candidate, *visible[candidate.id], query) for candidate in candidates if candidate.id in visible
    ]


async def _visible(
    view: View, candidates: Sequence[Candidate], alarm: Alarm
) -> dict[str, tuple[StoredChunk, StoredSource]]:
    """The candidates that may leave, by id, each as the chunk of its source's current generation."""
    versions = {candidate.id: candidate.versions for candidate in candidates}
    for _ in range(READS):
        sources = await view.table.sources(split_chunk_id(id_)[0] for id_ in versions)
        admitted = {id_: source for id_, source in sources.items() if view.admits(source)}
        withheld = {id_: sources[id_] for id_ in sources.keys() - admitted.keys()}
        withheld = {id_: source for id_, source in withheld.items() if not view.may_match_now(source)}
        if faults := _faults(withheld, versions):
            alarm(len(faults))
        # A source that is being replaced has chunks of two generations, under the same ids. Only those of the
        # generation that its record names belong to the text, the fields and the rights of that record.
        visible = {
            id_: (chunk, source)
            for id_, chunks in versions.items()
            if (source := admitted.get(split_chunk_id(id_)[0]))
            for chunk in chunks
            if source.generation == chunk.generation and view.admits_chunk(source, chunk)
        }
        stale = [id_ for id_ in versions if id_ not in visible and _has_chunk(id_, admitted)]
        if not stale:
            break
        # The source was replaced after the lists were made: read the new chunks, then check again.
        fresh = {chunk.id: (chunk,) for chunk in await view.table.chunks(stale, view.where)}
        versions |= {id_: fresh.get(id_, ()) for id_ in stale}
    return visible


def _faults(withheld: Mapping[str, StoredSource], versions: Mapping[str, Sequence[StoredChunk]]) -> set[str]:
    """The withheld sources with a chunk that the engine should have excluded."""
    if not withheld:
        return set()
    rows = ((split_chunk_id(id_)[0], chunk) for id_, chunks in versions.items() for chunk in chunks)
    return {
        id_
        for id_, chunk in rows
        if id_ in withheld and is_fault(withheld[id_], chunk.generation, chunk.revision)
    }


def _has_chunk(id_: str, sources: Mapping[str, StoredSource]) -> bool:
    """Whether the id's source still has this chunk: a shorter version may not."""
    source_id, seq = split_chunk_id(id_)
    return source_id in sources and seq < sources[source_id].source.chunk_count


def _hit(candidate: Candidate, stored: StoredChunk, source: StoredSource, query: Query) -> Hit:
    meaning, similarity = query.meaning_in(candidate.view), None
    if meaning is not None and stored.vector.any():
        similarity = float(meaning.similarities(stored.vector))
    return Hit(stored.chunk, source.source, candidate.score, similarity, stored.vector, source.fields)
