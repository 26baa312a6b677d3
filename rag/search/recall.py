"""The lists that a search begins with, from every table at once, and their fusion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from rag.rank.fusion import best_scores, ranks, reciprocal_rank_fusion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from rag.records import Mode
    from rag.search.plan import Plan
    from rag.search.view import View
    from rag.store.reader import Ranking, StoredChunk

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that a list found, not yet known to be readable.

    `versions` is how the lists saw it; two can differ while its source is being replaced.
    """

    id: str
    score: float
    view: View
    versions: tuple[StoredChunk, ...] = ()


async def recall(views: Sequence[View], plan: Plan, vector: npt.NDArray[np.float32]) -> list[Candidate]:
    """What the mode's lists find in the views, fused, best first.

    Each list is one ranking over all tables: cosines compare between tables, and BM25 scores
    nearly do.
    """
    tables = [(view.table, view.where) for view in views]
    calls: list[Callable[[], Awaitable[Ranking]]] = []
    if plan.mode != "sparse":
        calls += [partial(table.dense, vector, plan.candidates, where) for table, where in tables]
    if plan.mode != "dense":
        calls += [partial(table.sparse, plan.query, plan.candidates, where) for table, where in tables]
    rankings = await concurrently(calls)
    lists = [rankings[: len(views)], rankings[len(views) :]] if plan.mode == "hybrid" else [rankings]
    scored = [[(one.stored.id, one.score) for part in parts for one in part] for parts in lists]
    seen: dict[str, tuple[View, tuple[StoredChunk, ...]]] = {}
    for view, ranking in zip([*views, *views], rankings, strict=False):
        for stored in (one.stored for one in ranking):
            _, versions = seen.get(stored.id, (view, ()))
            seen[stored.id] = view, (*versions, stored)
    return [Candidate(id_, score, *seen[id_]) for id_, score in fused(plan.mode, scored)]


def fused(mode: Mode, lists: Sequence[Sequence[tuple[str, float]]]) -> Iterable[tuple[str, float]]:
    """The lists of a mode as one ranking of ids with scores, best first, each once; higher is better.

    A list can hold a chunk twice, once for each version, while its source is being replaced.

    The score is the cosine in mode dense, the share of the best BM25 score in mode sparse
    (the BM25 score itself tells of documents that one may not see), and that of the fused
    ranks in mode hybrid.
    """
    if mode == "hybrid":
        return reciprocal_rank_fusion([ranks(one) for one in lists]).items()
    (ranking,) = lists
    scores = best_scores(ranking)
    best = max(scores.values(), default=1.0) if mode == "sparse" else 1.0
    return [(id_, score / best) for id_, score in scores.items()]


async def concurrently(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of all calls, in order; the first failure cancels the others and is raised as it is."""
    if len(calls) == 1:
        return [await calls[0]()]
    results: dict[int, T] = {}

    async def run(place: int, call: Callable[[], Awaitable[T]]) -> None:
        results[place] = await call()

    try:
        async with anyio.create_task_group() as tasks:
            for place, call in enumerate(calls):
                tasks.start_soon(run, place, call)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [results[place] for place in range(len(calls))]
