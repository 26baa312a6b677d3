"""The stage `graph`: follows the references of the best hits to the documents that these name or link to.

A question that needs two documents often describes only the first; that one names the second. So the walk
begins at the best hits, goes one step, and shows the passage there that suits the query best. What was
measured, also of longer walks, is in rag/evaluate/measuring.md.

Only what the principal may read takes part, and nothing is kept between searches. A name counts by the
passages that the principal may read: whatever else the collection holds can't change what is found.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rag.concurrency import concurrently
from rag.rank.references import linked, name_of, named
from rag.search.gate import admit
from rag.search.recall import fuse, recall
from rag.search.stages.thresholds import near_enough

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Hit
    from rag.config.profiles import GraphStage
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run
    from rag.search.view import View

HUB = 10
"""Passages: a name that more of them contain is a common phrase, such as "Examples", and leads nowhere."""


async def graph(hits: Sequence[Hit], stage: GraphStage, query: Query, run: Run, _step: OpenStep) -> list[Hit]:
    """The hits, with up to `stage.places` passages of documents that the first ones refer to.

    These stand behind the first `stage.after` hits, each with the score that the query gives it. Documents
    that are among the first hits already are not repeated.

    Raises:
        StoreError: a collection could not be read.
    """
    first = list(hits[: stage.after])
    weights = await referred(first[: stage.seeds], query.views)
    for hit in first:
        weights.pop(hit.source.id, None)
    best: dict[str, Hit] = {}
    for hit in [*hits, *await _passages(weights.keys() - {hit.source.id for hit in hits}, query, run)]:
        if hit.source.id in weights:
            best.setdefault(hit.source.id, hit)
    found = sorted(best.values(), key=lambda hit: (-weights[hit.source.id], -hit.score, hit.chunk.id))
    moved = found[: stage.places]
    ids = {hit.chunk.id for hit in moved}
    return [*first, *moved, *(hit for hit in hits[stage.after :] if hit.chunk.id not in ids)]


async def referred(seeds: Sequence[Hit], views: Sequence[View]) -> dict[str, float]:
    """The readable sources that the seeds refer to, by id, with the weight of the references.

    A reference has the score of its seed. One by a name is divided by how many other passages have the name.
    """
    weights: dict[str, float] = defaultdict(float)
    for in_view in await concurrently([partial(_referred, seeds, view) for view in views]):
        for id_, weight in in_view:
            weights[id_] += weight
    return dict(weights)


async def _referred(seeds: Sequence[Hit], view: View) -> list[tuple[str, float]]:
    """The sources of a view that the seeds refer to, with the weight of each reference."""
    attributes = await view.table.attributes()
    if not attributes:
        return []  # a retriever: what it has is not known before it is asked
    names = {id_: name_of(str(values["title"])) for id_, values in attributes.items()}
    paths = {id_: str(values["path"]) for id_, values in attributes.items() if "path" in values}
    by_name: list[tuple[float, str, str]] = []
    by_link: list[tuple[float, str]] = []
    for seed in seeds:
        weight, own, text = max(seed.score, 0.0), seed.source.id, seed.chunk.text
        found = named(text, set(names.values()) - {name_of(seed.source.title)})
        by_name += [(weight, id_, name) for id_, name in names.items() if name in found and id_ != own]
        if seed.source.collection == view.table.collection.name:
            leads_to = linked(text, seed.source.metadata.get("path", ""), paths) - {own}
            by_link += [(weight, id_) for id_ in leads_to]
    sources = await view.table.sources({*(id_ for _, id_, _ in by_name), *(id_ for _, id_ in by_link)})
    admitted = {id_ for id_, source in sources.items() if view.admits(source)}
    # Names are counted only now, so that a document that is not readable changes nothing, not even the time.
    counts = await _counts({name for _, id_, name in by_name if id_ in admitted}, view)
    return [
        *((id_, weight) for weight, id_ in by_link if id_ in admitted),
        *(
            (id_, weight / max(1, counts[name] - 1))
            for weight, id_, name in by_name
            if id_ in admitted and counts[name] <= HUB
        ),
    ]


async def _counts(names: set[str], view: View) -> dict[str, int]:
    ordered = sorted(names)
    counts = await concurrently([partial(_count, name, view) for name in ordered])
    return dict(zip(ordered, counts, strict=True))


async def _count(name: str, view: View) -> int:
    """How many readable passages have all words of a name; if more than `HUB`, any number above it."""
    if not view.table.by_words:
        return HUB + 1
    rows = await view.table.sparse(name, HUB + 1, view.where, every=True)
    if len(rows) > HUB:
        return len(rows)
    sources = await view.table.sources({one.stored.chunk.source_id for one in rows})
    return sum(
        (source := sources.get(one.stored.chunk.source_id)) is not None and view.admits(source)
        for one in rows
    )


async def _passages(sources: set[str], query: Query, run: Run) -> list[Hit]:
    """The passages of these sources that the query finds, best first."""
    if not sources:
        return []
    views = tuple(replace(view, sources=tuple(sorted(sources))) for view in query.views)
    narrowed = [replace(query, views=views)]
    candidates = fuse(narrowed, await recall(narrowed, run.plan), run.plan)
    hits = await admit(candidates, query, len(candidates), run.alarm)
    if not run.plan.drops_distant:
        return hits
    metrics = {
        view.table.collection.name: run.plan.distance or view.table.collection.distance for view in views
    }
    return near_enough(hits, run.plan.thresholds, metrics)
