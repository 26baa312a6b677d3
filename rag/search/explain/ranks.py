"""For the trace: what recall, fusion and the gate left, and the rank of each hit in each list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.answers import Listing
from rag.search.gate import admit
from rag.search.recall import shares_of_best

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Hit
    from rag.search.recall import Candidate, Lists, Query
    from rag.search.run import OpenStep, Run


async def record_lists(
    candidates: Sequence[Candidate],
    lists: Sequence[Lists],
    hits: Sequence[Hit],
    steps: tuple[OpenStep, OpenStep, OpenStep],
    asked: Query,
    run: Run,
) -> None:
    """Record for the trace what recall, fusion and gate left, counting readable chunks only."""
    recalled, fused, gate = steps
    # The gate above stopped as soon as it had enough hits. A trace counts and ranks all candidates, and must
    # not reveal even the number of those that are withheld. So the gate checks all of them here, without an
    # alarm, which would count a fault twice.
    admitted = await admit(candidates, asked, len(candidates), lambda _sources: None)
    ranked = sorted(admitted, key=lambda hit: -hit.score)
    shown = {hit.chunk.id for hit in hits}
    recalled.made(len(admitted))
    fused.left(ranked, of=len(admitted))
    gate.left(hits, beyond=[hit.chunk.id for hit in ranked if hit.chunk.id not in shown])
    run.listings.update(_listings(lists, {hit.chunk.id for hit in admitted}))


def _listings(lists: Sequence[Lists], ids: Iterable[str]) -> Mapping[str, tuple[Listing, ...]]:
    """The rank and score of these chunks in each query's lists, as if the lists held no others."""
    by_id: dict[str, tuple[Listing, ...]] = dict.fromkeys(ids, ())
    for query, of_query in enumerate(lists):
        # Chunks that were withheld are removed before ranks are counted and scores divided by the best one: a
        # gap in the ranks, or a best score below 1, would reveal them.
        dense = {id_: score for id_, score in of_query.dense_scores.items() if id_ in by_id}
        sparse = {id_: score for id_, score in of_query.sparse_scores.items() if id_ in by_id}
        for rank, (id_, score) in enumerate(dense.items(), 1):
            by_id[id_] = (*by_id[id_], Listing(query, "dense", rank, score))
        for rank, (id_, score) in enumerate(shares_of_best(sparse).items(), 1):
            by_id[id_] = (*by_id[id_], Listing(query, "sparse", rank, score))
    return by_id
