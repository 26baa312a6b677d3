"""One search on its way: from queries to what may be shown, with what is said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag.answers import Listing
from rag.search.gate import admit
from rag.search.recall import fuse, recall, shares_of_best
from rag.search.stages.thresholds import near_enough

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.answers import Hit
    from rag.models.chat import Chat
    from rag.models.embed import Embedder
    from rag.models.rerank import Reranker
    from rag.search.gate import Alarm
    from rag.search.plan import Plan
    from rag.search.recall import Lists, Query
    from rag.search.trace import Stages


@dataclass(frozen=True, slots=True)
class Models:
    """What a search may ask. Without a chat model or a reranker no stage is set that needs one."""

    embedder: Embedder
    chat: Chat | None = None
    reranker: Reranker | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A search's plan and models, and what gathers on its way: its stages, notes, and where lists had what.

    `listings` are filled for a trace only, and only with what the gate admits.
    """

    plan: Plan
    models: Models
    alarm: Alarm
    stages: Stages
    notes: list[str] = field(default_factory=list)
    listings: dict[str, tuple[Listing, ...]] = field(default_factory=dict)

    async def near(self, queries: Sequence[Query]) -> list[Hit]:
        """What the lists find and the gate and the thresholds let through, best first.

        The first query is the one that was asked. As many as the limit at least, if there are; all where
        thresholds or stages choose among them.
        """
        asked, plan = queries[0], self.plan
        with self.stages.stage("recall") as recalled:
            found = await recall(queries, plan)
        with self.stages.stage("fuse") as fused:
            candidates = fuse(queries, found, plan)
        pool = len(candidates) if plan.thresholds.of_hits or plan.hit_stages else plan.limit
        with self.stages.stage("gate") as gate:
            hits = await admit(candidates, asked.vector, pool, self.alarm)
        if self.stages.detailed:  # of what the gate keeps back a trace must not even tell the number
            admitted = await admit(candidates, asked.vector, len(candidates), lambda _sources: None)
            in_order = sorted(admitted, key=lambda hit: -hit.score)
            shown = {hit.chunk.id for hit in hits}
            recalled.made(len(admitted))
            fused.left(in_order, of=len(admitted))
            gate.left(hits, beyond=[hit.chunk.id for hit in in_order if hit.chunk.id not in shown])
            self.listings.update(listings(found, {hit.chunk.id for hit in admitted}))
        if not plan.thresholds.of_hits:
            return hits
        metrics = {view.table.collection.name: view.table.collection.distance for view in asked.views}
        with self.stages.stage("thresholds") as thresholds:
            near = near_enough(hits, plan.thresholds, metrics)
            thresholds.left(near, of=len(hits))
        return near


def listings(found: Sequence[Lists], ids: Iterable[str]) -> Mapping[str, tuple[Listing, ...]]:
    """Where the lists of each query had the chunks of these ids, as if there were no others."""
    had: dict[str, tuple[Listing, ...]] = dict.fromkeys(ids, ())
    for query, lists in enumerate(found):
        dense = {id_: score for id_, score in lists.dense_scores.items() if id_ in had}
        sparse = {id_: score for id_, score in lists.sparse_scores.items() if id_ in had}
        for rank, (id_, score) in enumerate(dense.items(), 1):
            had[id_] = (*had[id_], Listing(query, "dense", rank, score))
        for rank, (id_, score) in enumerate(shares_of_best(sparse).items(), 1):
            had[id_] = (*had[id_], Listing(query, "sparse", rank, score))
    return had
