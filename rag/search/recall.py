"""Recall: the dense and the sparse list of every table, and their fusion into one ranking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from rag.corpus import Calibration, Vectors
from rag.rank.fusion import (
    best_scores,
    calibrated_fusion,
    convex_combination,
    distribution_based_fusion,
    ranks,
    reciprocal_rank_fusion,
)
from rag.runtime import concurrently
from rag.store.read.word_analysis import query_terms, stop_languages

if TYPE_CHECKING:
    import numpy.typing as npt

    from rag.search.search_plan import SearchPlan
    from rag.search.view import View
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.stored_rows import Ranking, StoredChunk
    from rag.store.read.strict_reader import StrictReader

RRF_K = 60  # of Cormack, Clarke & Buettcher, SIGIR 2009
LEAST_KNOWN = 0.01  # keeps the order of a dense list whose table has no list by words
AS_IT_IS = Calibration(0.0)
"""The scale of the built-in model, on which a similarity is a cosine."""
RELATED = 0.68
"""The similarity of a question and a passage that answers it: what the built-in model gives to the questions
that other models are measured by (rag/models/embed/calibration.py): .694, and .029 to unrelated texts."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that a list found, before the gate has checked that it is readable.

    `versions` are its rows in the lists. They can differ: while a source is being replaced, its table holds
    the old and the new chunk under the same id, and the lists are read at different moments.
    """

    id: str
    score: float
    view: View
    versions: tuple[StoredChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Meaning:
    """A text as an embedding model has it: its vector, and the share of it that the model knows.

    Models differ in the cosines that they give to unrelated texts, and to a question and a passage that
    answers it. A similarity is a cosine on a `scale` on which the one is 0, and the other is `RELATED` if it
    is known; otherwise 1 stays 1. So similarities of different models compare. If the vector was `given` by
    the request, the model that made it is not here, and can't compare other texts with it.
    """

    vector: npt.NDArray[np.float32]
    known: float = 1.0
    scale: Calibration = AS_IT_IS
    given: bool = False

    def similarities(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """The similarity of each vector to the text, at least -1."""
        return self.on_scale(vectors @ self.vector)

    def on_scale(self, cosines: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The similarities of these cosines, from -1 to 1.

        Example: [0.7, 0.85] with 0.7 for unrelated texts -> [0, 0.5].
        """
        zero, related = self.scale.unrelated, self.scale.related
        if self.scale == AS_IT_IS:
            return cosines
        span = 1 - zero if related is None else (related - zero) / RELATED
        scaled: npt.NDArray[np.float32] = np.clip((cosines - zero) / span, -1, 1)
        return scaled


@dataclass(frozen=True, slots=True)
class Query:
    """A text to search for in `views`, and its meanings by the names of the embedders that these views need.

    The meaning of a model that fails is missing. The scores of the query's hits are multiplied by `weight`.
    """

    text: str
    meanings: Mapping[str, Meaning]
    views: tuple[View, ...]
    weight: float = 1.0

    def meaning_in(self, view: View) -> Meaning | None:
        """The meaning that compares with the vectors of a view, if there is one."""
        return self.meanings.get(view.table.collection.embedder_name) if view.comparable else None

    def unknown_in(self, view: View) -> bool:
        """Whether the view's model knows no word of the text, so that its similarities are chance."""
        meaning = self.meaning_in(view)
        return meaning is not None and not meaning.known

    @property
    def views_by_collection(self) -> Mapping[str, View]:
        """The views by the names of their collections."""
        return {view.table.collection.name: view for view in self.views}


@dataclass(frozen=True, slots=True)
class QueryRankings:
    """The rankings of a query, one per view; none if the mode has no such list.

    A view whose vectors are not comparable has an empty dense ranking, and so has one where `skips_dense`.

    Each collection has tables of its own, with its own indexes, so the engine searches one table at a time.
    The scores compare across tables: similarities, and BM25 in units of the rarest word of the table.
    """

    dense: tuple[Ranking, ...] = ()
    sparse: tuple[Ranking, ...] = ()

    @property
    def stored(self) -> Iterator[StoredChunk]:
        """Every chunk of every list."""
        return (one.stored for ranking in (*self.dense, *self.sparse) for one in ranking)

    @property
    def dense_scores(self) -> Mapping[str, float]:
        """The similarity of each chunk of the dense list, best first."""
        return _listed(self.dense)

    @property
    def sparse_scores(self) -> Mapping[str, float]:
        """The BM25 score of each chunk of the sparse list, best first."""
        return _listed(self.sparse)


def skips_dense(query: Query, view: View, plan: SearchPlan) -> bool:
    """Whether a view's dense list would count for nothing, so that it is not asked for.

    That is so where calibrated fusion weighs it by the share of the query that the model knows, and that is
    nothing. The other fusions weigh both lists as the settings say.
    """
    weighs = plan.mode == "hybrid" and plan.fusion.method == "calibrated"
    return weighs and view.table.by_words and query.unknown_in(view)


async def recall(queries: Sequence[Query], plan: SearchPlan) -> list[QueryRankings]:
    """The lists of the plan's mode for each query, from all tables concurrently."""
    readers = await _readers([view for query in queries for view in query.views], plan)
    calls: list[Callable[[], Awaitable[Ranking]]] = []
    for query in queries:
        tables = [(readers[view.table], view.where) for view in query.views]
        if plan.mode != "sparse":
            calls += [
                _nothing
                if skips_dense(query, view, plan)
                else partial(_dense, table, query.meaning_in(view), plan, where)
                for view, (table, where) in zip(query.views, tables, strict=True)
            ]
        if plan.mode != "dense":
            calls += [
                partial(table.sparse, query.text, plan.candidates, where, every=plan.engine.operator == "and")
                if view.table.by_words
                else _nothing
                for view, (table, where) in zip(query.views, tables, strict=True)
            ]
    rankings = iter(await concurrently(calls))
    return [
        QueryRankings(
            dense=tuple(islice(rankings, 0 if plan.mode == "sparse" else len(query.views))),
            sparse=tuple(islice(rankings, 0 if plan.mode == "dense" else len(query.views))),
        )
        for query in queries
    ]


async def _dense(
    table: CollectionReader | StrictReader, meaning: Meaning | None, plan: SearchPlan, where: str
) -> Ranking:
    """The dense list of a view, by similarity; empty if its vectors are not comparable."""
    if meaning is None:
        return []
    ranking = await table.dense(meaning.vector, plan.candidates, where)
    if meaning.scale == AS_IT_IS:
        return ranking
    similarities = meaning.on_scale(np.array([one.score for one in ranking], np.float32))
    return [replace(one, score=score) for one, score in zip(ranking, similarities.tolist(), strict=True)]


async def _nothing() -> Ranking:
    """The list of a view that its table can't make, for want of an index, or that would count for nothing."""
    return []


async def _readers(
    views: Sequence[View], plan: SearchPlan
) -> Mapping[CollectionReader, CollectionReader | StrictReader]:
    """The reader of each table: the table itself or, in a strict plan, one that knows readable rows only."""
    by_table = {view.table: view for view in views}
    if not plan.strict:
        return {table: table for table in by_table}
    strict = await concurrently([view.strict for view in by_table.values()])
    return dict(zip(by_table, strict, strict=True))


def fuse(queries: Sequence[Query], lists: Sequence[QueryRankings], plan: SearchPlan) -> list[Candidate]:
    """One ranking of the chunks of all lists, best first. The plan says how several queries merge."""
    chunks: dict[str, tuple[View, tuple[StoredChunk, ...]]] = {}
    for query, of_query in zip(queries, lists, strict=True):
        for rankings in (of_query.dense, of_query.sparse):
            for view, ranking in zip(query.views, rankings, strict=False):
                for stored in (one.stored for one in ranking):
                    _, versions = chunks.get(stored.id, (view, ()))
                    chunks[stored.id] = view, (*versions, stored)
    searched = [pair for pair in zip(queries, lists, strict=True) if pair[0].views]
    fused = [_scores(plan, query, of_query) for query, of_query in searched]
    scores = fused[0] if len(fused) == 1 else _merged([query for query, _ in searched], fused, plan)
    return [Candidate(id_, score, *chunks[id_]) for id_, score in scores.items()]


def _merged(
    queries: Sequence[Query], fused: Sequence[Mapping[str, float]], plan: SearchPlan
) -> Mapping[str, float]:
    """One ranking of the chunks of several queries: by reciprocal ranks, which measured better than scores.

    A question with and without its phrases is one question, so its scores compare: the best one counts.
    """
    if plan.query_stages:
        weights = [query.weight for query in queries]
        return reciprocal_rank_fusion([ranks(scores.items()) for scores in fused], weights=weights, k=RRF_K)
    pairs = zip(queries, fused, strict=True)
    return best_scores(
        (id_, score * query.weight if score > 0 else score)  # weights would raise negative scores
        for query, scores in pairs
        for id_, score in scores.items()
    )


def _scores(plan: SearchPlan, query: Query, lists: QueryRankings) -> Mapping[str, float]:
    """The ids and scores of a query's chunks, best first.

    The score is the similarity in mode dense, the share of the best BM25 score in mode sparse, and the fused
    score in mode hybrid.
    """
    if plan.mode == "dense":
        return lists.dense_scores
    sparse = lists.sparse_scores
    if plan.mode == "sparse":
        # A BM25 score depends on how many rows of the table contain each word. Shown as it is, it would
        # tell how common a word is in documents that the principal may not read.
        return shares_of_best(sparse)
    fusion = plan.fusion
    match fusion.method:
        case "rrf":
            both = [ranks(lists.dense_scores.items()), ranks(sparse.items())]
            return reciprocal_rank_fusion(both, k=RRF_K)
        case "dbsf":
            return distribution_based_fusion([lists.dense_scores, sparse])
        case "convex":
            return convex_combination(_similarities(query, lists), sparse, alpha=fusion.alpha)
        case "calibrated":
            languages = {stop_languages(view.table.collection) for view in query.views}
            words = max((len(query_terms(query.text, asked)) for asked in languages), default=0)
            weighed = _similarities(query, lists, weighed=True)
            return calibrated_fusion(
                weighed, sparse, words=words, unlisted=_unlisted(query, lists.sparse, plan)
            )


def _unlisted(query: Query, sparse: Sequence[Ranking], plan: SearchPlan) -> float:
    """The most that BM25 may give a chunk that no sparse list has.

    A full list ends before the others. Nothing is known of chunks that have some words where a passage needs
    every word, or of tables without a full-text index.
    """
    if plan.engine.operator == "and" or not all(view.table.by_words for view in query.views):
        return inf
    return max((ranking[-1].score for ranking in sparse if len(ranking) >= plan.candidates), default=0.0)


def shares_of_best(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores divided by the best one: {"a": 4.0, "b": 1.0} -> {"a": 1.0, "b": 0.25}."""
    best = max(scores.values(), default=1.0)
    return {item: score / best for item, score in scores.items()}


def _listed(rankings: Sequence[Ranking]) -> Mapping[str, float]:
    """The rankings of all tables as one list, each chunk once, at its best (see `Candidate.versions`)."""
    return best_scores((one.stored.id, one.score) for ranking in rankings for one in ranking)


def _similarities(query: Query, lists: QueryRankings, *, weighed: bool = False) -> Mapping[str, float]:
    """The similarity of every comparable chunk, whichever list found it.

    If `weighed`, those of each model are multiplied by the share of the query that it knows, because a model
    guesses at words that it doesn't know.
    """
    by_model: dict[str, list[StoredChunk]] = {}
    for view, ranking in (
        *zip(query.views, lists.dense, strict=False),
        *zip(query.views, lists.sparse, strict=False),
    ):
        if query.meaning_in(view):
            stored = by_model.setdefault(view.table.collection.embedder_name, [])
            stored += [one.stored for one in ranking]
    scored: list[tuple[str, float]] = []
    for name, chunks in by_model.items():
        if chunks:
            meaning = query.meanings[name]
            values = meaning.similarities(np.stack([one.vector for one in chunks]))
            share = max(meaning.known, LEAST_KNOWN) if weighed else 1.0
            scored += zip((one.id for one in chunks), (share * values).tolist(), strict=True)
    return best_scores(scored)
