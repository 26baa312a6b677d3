"""The lists that a search begins with, from every table at once, and their fusion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from rag.concurrency import concurrently
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
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from rag.search.plan import Plan
    from rag.search.view import View
    from rag.store.reader import CollectionReader, Ranking, StoredChunk
    from rag.store.strict import StrictReader


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
    """What is searched for: a text, its vector, the share of it that the model has words for, and where.

    `weight` is what the scores of its hits are multiplied by.
    """

    text: str
    vector: npt.NDArray[np.float32]
    known: float
    views: tuple[View, ...]
    weight: float = 1.0

    @property
    def views_by_collection(self) -> Mapping[str, View]:
        """The views by the names of their collections."""
        return {view.table.collection.name: view for view in self.views}


@dataclass(frozen=True, slots=True)
class Lists:
    """What the lists found for a query, for each of its views; nothing of a list that is not in the mode.

    Each is one ranking over all tables, whose scores compare: cosines, and BM25 in units of the rarest word
    of its table.
    """

    dense: tuple[Ranking, ...] = ()
    sparse: tuple[Ranking, ...] = ()

    @property
    def stored(self) -> Iterator[StoredChunk]:
        """All that was found, of every list."""
        return (one.stored for ranking in (*self.dense, *self.sparse) for one in ranking)

    @property
    def dense_scores(self) -> Mapping[str, float]:
        """The cosine of each chunk of the dense list, best first."""
        return _listed(self.dense)

    @property
    def sparse_scores(self) -> Mapping[str, float]:
        """The BM25 score of each chunk of the sparse list, best first."""
        return _listed(self.sparse)


async def recall(queries: Sequence[Query], plan: Plan) -> list[Lists]:
    """What the mode's lists find for each query, from every table at once."""
    readers = await _readers([view for query in queries for view in query.views], plan)
    calls: list[Callable[[], Awaitable[Ranking]]] = []
    for query in queries:
        tables = [(readers[view.table], view.where) for view in query.views]
        if plan.mode != "sparse":
            calls += [partial(table.dense, query.vector, plan.candidates, where) for table, where in tables]
        if plan.mode != "dense":
            calls += [partial(table.sparse, query.text, plan.candidates, where) for table, where in tables]
    rankings = iter(await concurrently(calls))
    return [
        Lists(
            dense=tuple(islice(rankings, 0 if plan.mode == "sparse" else len(query.views))),
            sparse=tuple(islice(rankings, 0 if plan.mode == "dense" else len(query.views))),
        )
        for query in queries
    ]


async def _readers(
    views: Sequence[View], plan: Plan
) -> Mapping[CollectionReader, CollectionReader | StrictReader]:
    """What makes the lists of each table: the table itself, or what knows of readable rows alone."""
    by_table = {view.table: view for view in views}
    if not plan.strict:
        return {table: table for table in by_table}
    strict = await concurrently([view.strict for view in by_table.values()])
    return dict(zip(by_table, strict, strict=True))


def fuse(queries: Sequence[Query], found: Sequence[Lists], plan: Plan) -> list[Candidate]:
    """One ranking of all that was found, best first. A chunk is as good as the query it is best for says."""
    seen: dict[str, tuple[View, tuple[StoredChunk, ...]]] = {}
    for query, lists in zip(queries, found, strict=True):
        for rankings in (lists.dense, lists.sparse):
            for view, ranking in zip(query.views, rankings, strict=False):
                for stored in (one.stored for one in ranking):
                    _, versions = seen.get(stored.id, (view, ()))
                    seen[stored.id] = view, (*versions, stored)
    fused = [_scores(plan, query, lists) for query, lists in zip(queries, found, strict=True)]
    scores = fused[0] if len(queries) == 1 else _best_of(queries, fused)
    return [Candidate(id_, score, *seen[id_]) for id_, score in scores.items()]


def _best_of(queries: Sequence[Query], fused: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """One ranking of what several queries found; a score below 0 would only rise by its weight."""
    pairs = zip(queries, fused, strict=True)
    return best_scores(
        (id_, score * query.weight if score > 0 else score)
        for query, scores in pairs
        for id_, score in scores.items()
    )


def _scores(plan: Plan, query: Query, lists: Lists) -> Mapping[str, float]:
    """The lists of a mode as one ranking of ids with scores, best first; higher is better.

    The score is the cosine in mode dense, the share of the best BM25 score in mode sparse (the BM25 score
    itself tells of documents that one may not see), and what the fusion makes of both in mode hybrid.
    """
    if plan.mode == "dense":
        return lists.dense_scores
    sparse = lists.sparse_scores
    if plan.mode == "sparse":
        return shares_of_best(sparse)
    fusion = plan.fusion
    match fusion.method:
        case "rrf":
            both = [ranks(lists.dense_scores.items()), ranks(sparse.items())]
            return reciprocal_rank_fusion(both, weights=fusion.weights, k=fusion.k)
        case "dbsf":
            return distribution_based_fusion([lists.dense_scores, sparse])
        case "convex":
            return convex_combination(_cosines(query, lists, fusion.baseline), sparse, alpha=fusion.alpha)
        case "calibrated":
            languages = {view.table.collection.language for view in query.views}
            words = max((len(query_terms(query.text, language)) for language in languages), default=0)
            cosines = _cosines(query, lists, fusion.baseline)
            return calibrated_fusion(cosines, sparse, words=words, known=query.known)


def shares_of_best(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores as shares of the best one."""
    best = max(scores.values(), default=1.0)
    return {item: score / best for item, score in scores.items()}


def _listed(rankings: Sequence[Ranking]) -> Mapping[str, float]:
    """What tables found, as one list; a chunk is twice in a table while its source is being replaced."""
    return best_scores((one.stored.id, one.score) for ranking in rankings for one in ranking)


def _cosines(query: Query, lists: Lists, baseline: float) -> Mapping[str, float]:
    """The cosine of each candidate, whichever list found it; on a scale whose 0 is the baseline."""
    stored = list(lists.stored)
    if not stored:
        return {}
    cosines = (np.stack([one.vector for one in stored]) @ query.vector - baseline) / (1 - baseline)
    return best_scores(zip((one.id for one in stored), cosines.tolist(), strict=True))
