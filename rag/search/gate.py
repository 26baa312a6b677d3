"""The last check before anything leaves: each row against what the source's own record says now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rag.answers import Hit
from rag.concurrency import concurrently
from rag.rank.fusion import newer_first
from rag.store.schema import split_chunk_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from rag.search.recall import Candidate
    from rag.search.view import View
    from rag.store.reader import StoredChunk, StoredSource

SLACK = 4  # candidates checked beyond the limit, so that a stale one doesn't cost a second look
WIDER = 4  # times as many are checked when these were not enough
READS = 3  # of a source that is replaced each time

Alarm: TypeAlias = "Callable[[int], None]"
"""Told how many sources the gate keeps back that the lists should have left out (see `is_fault`)."""


def is_fault(kept_back: StoredSource, generation: str, revision: int) -> bool:
    """Whether a row of a source that the gate keeps back should not have been found.

    A row of an earlier writing of the source, or by an earlier revision of its access record, was found
    rightly: the source, or who may see it, has changed since. Anything else is a bug.
    """
    record = kept_back.access
    return (generation, revision) == (kept_back.generation, record.revision if record else 0)


async def admit(
    candidates: Sequence[Candidate], vector: npt.NDArray[np.float32], limit: int, alarm: Alarm
) -> list[Hit]:
    """The first `limit` candidates that are readable now, as hits, newer first among equals."""
    taken = limit + SLACK
    hits = await _readable(candidates[:taken], vector, alarm)
    while len(hits) < limit and taken < len(candidates):
        taken *= WIDER  # all of them anew: reads of different moments can show a source in two versions
        hits = await _readable(candidates[:taken], vector, alarm)
    return newer_first(hits)[:limit]


async def _readable(
    candidates: Sequence[Candidate], vector: npt.NDArray[np.float32], alarm: Alarm
) -> list[Hit]:
    by_view: dict[int, tuple[View, list[Candidate]]] = {}
    for candidate in candidates:
        by_view.setdefault(id(candidate.view), (candidate.view, []))[1].append(candidate)
    found = await concurrently([partial(_visible, *pair, alarm) for pair in by_view.values()])
    visible = {id_: pair for group in found for id_, pair in group.items()}
    return [
        _hit(candidate, *visible[candidate.id], vector) for candidate in candidates if candidate.id in visible
    ]


async def _visible(
    view: View, candidates: Sequence[Candidate], alarm: Alarm
) -> dict[str, tuple[StoredChunk, StoredSource]]:
    """The candidates that count now and may leave, by id; read again where their source was replaced."""
    versions = {candidate.id: candidate.versions for candidate in candidates}
    for _ in range(READS):
        there = await view.table.sources(split_chunk_id(id_)[0] for id_ in versions)
        sources = {id_: source for id_, source in there.items() if view.admits(source)}
        if faults := _faults({id_: there[id_] for id_ in there.keys() - sources.keys()}, versions):
            alarm(len(faults))
        visible = {
            id_: (one, source)
            for id_, stored in versions.items()
            if (source := sources.get(split_chunk_id(id_)[0]))
            for one in stored
            if source.generation == one.generation
        }
        stale = [id_ for id_ in versions if id_ not in visible and _has_source(id_, sources)]
        if not stale:
            break
        fresh = {one.id: (one,) for one in await view.table.chunks(stale, view.where)}
        versions |= {id_: fresh.get(id_, ()) for id_ in stale}
    return visible


def _faults(kept_back: Mapping[str, StoredSource], versions: Mapping[str, Sequence[StoredChunk]]) -> set[str]:
    """The sources kept back of which chunks should not have been found."""
    if not kept_back:
        return set()
    found = ((split_chunk_id(id_)[0], one) for id_, stored in versions.items() for one in stored)
    return {
        id_
        for id_, one in found
        if id_ in kept_back and is_fault(kept_back[id_], one.generation, one.revision)
    }


def _has_source(id_: str, sources: Mapping[str, StoredSource]) -> bool:
    source_id, seq = split_chunk_id(id_)
    return source_id in sources and seq < sources[source_id].source.chunk_count


def _hit(
    candidate: Candidate, stored: StoredChunk, source: StoredSource, vector: npt.NDArray[np.float32]
) -> Hit:
    similarity = float(np.dot(stored.vector, vector))
    return Hit(stored.chunk, source.source, candidate.score, similarity, stored.vector, source.fields)
