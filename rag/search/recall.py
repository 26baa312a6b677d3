"""The lists that a search begins with, from every table at once, and their fusion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import numpy as np

from rag.rank.fusion import (
    best_scores,
    calibrated_fusion,
    convex_combination,
    distribution_based_fusion,
    ranks,
    reciprocal_rank_fusion,
)
from rag.store.terms import query_terms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import numpy.typing as npt

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


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: a text, its vector, and the share of it that the model has words for."""

    text: str
    vector: npt.NDArray[np.float32]
    known: float


async def recall(views: Sequence[View], plan: Plan, query: Query) -> list[Candidate]:
    """What the mode's lists find in the views, fused, best first.

    Each list is one ranking over all tables, whose scores compare: cosines, and BM25 in units of the
    rarest word of its table.
    """
    tables = [(view.table, view.where) for view in views]
    calls: list[Callable[[], Awaitable[Ranking]]] = []
    if plan.mode != "sparse":
        calls += [partial(table.dense, query.vector, plan.candidates, where) for table, where in tables]
    if plan.mode != "dense":
        calls += [partial(table.sparse, query.text, plan.candidates, where) for table, where in tables]
    rankings = await concurrently(calls)
    seen: dict[str, tuple[View, tuple[StoredChunk, ...]]] = {}
    for view, ranking in zip([*views, *views], rankings, strict=False):
        for stored in (one.stored for one in ranking):
            _, versions = seen.get(stored.id, (view, ()))
            seen[stored.id] = view, (*versions, stored)
    scores = _scores(plan, query, views, rankings)
    return [Candidate(id_, score, *seen[id_]) for id_, score in scores.items()]


def _scores(
    plan: Plan, query: Query, views: Sequence[View], rankings: Sequence[Ranking]
) -> Mapping[str, float]:
    """The lists of a mode as one ranking of ids with scores, best first; higher is better.

    The score is the cosine in mode dense, the share of the best BM25 score in mode sparse (the BM25 score
    itself tells of documents that one may not see), and what the fusion makes of both in mode hybrid.
    """
    if plan.mode == "dense":
        return _listed(rankings)
    sparse = _listed(rankings[-len(views) :])
    if plan.mode == "sparse":
        best = max(sparse.values(), default=1.0)
        return {id_: score / best for id_, score in sparse.items()}
    dense, fusion = _listed(rankings[: len(views)]), plan.fusion
    match fusion.method:
        case "rrf":
            both = [ranks(dense.items()), ranks(sparse.items())]
            return reciprocal_rank_fusion(both, weights=fusion.weights, k=fusion.k)
        case "dbsf":
            return distribution_based_fusion([dense, sparse])
        case "convex":
            return convex_combination(_cosines(rankings, query), sparse, alpha=fusion.alpha)
        case "calibrated":
            words = max(len(query_terms(query.text, view.table.collection.language)) for view in views)
            cosines = _cosines(rankings, query)
            return calibrated_fusion(cosines, sparse, words=words, known=query.known)


def _listed(rankings: Sequence[Ranking]) -> Mapping[str, float]:
    """What tables found, as one list; a chunk is twice in a table while its source is being replaced."""
    return best_scores((one.stored.id, one.score) for ranking in rankings for one in ranking)


def _cosines(rankings: Sequence[Ranking], query: Query) -> Mapping[str, float]:
    """The cosine of each candidate, whichever list found it."""
    stored = [one.stored for ranking in rankings for one in ranking]
    if not stored:
        return {}
    cosines = np.stack([one.vector for one in stored]) @ query.vector
    return best_scores(zip((one.id for one in stored), cosines.tolist(), strict=True))


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
