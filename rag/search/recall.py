"""From queries to hits: the dense and the sparse ranking of every table, their fusion into one, and the gate.

The gate is the last access check of every result, against its source's current access record. The engine has
filtered by copies of access record and fields in each chunk row, which are stale after a change of rights and
while a source is replaced, and by SQL that could have a bug. So the gate fails closed: a chunk leaves only if
its source's own record admits it, by the same rule evaluated in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import normalize

import numpy as np

from rag.answers import Hit
from rag.corpus import AS_IT_IS, Calibration, Vectors
from rag.rank.fusion import (
    best_scores,
    calibrated_fusion,
    convex_combination,
    distribution_based_fusion,
    newer_first,
    ranks,
    reciprocal_rank_fusion,
    settled_count,
)
from rag.runtime import concurrently, grouped
from rag.search.named_sections import LOOKED_AT, Named, with_named_first
from rag.search.search_plan import SearchPlan
from rag.search.view import View
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import Ranking, ScoredChunk, StoredChunk, StoredSource, split_chunk_id
from rag.store.read.spelling import Spelling
from rag.store.read.strict_reader import (
    StrictReader,
    StrictReaderInMemory,
    other_spellings,
    pooled_counts,
)
from rag.store.read.word_analysis import (
    ANY_STOP_WORDS,
    MAX_TERMS,
    VIETNAMESE,
    query_languages,
    query_terms,
    query_words,
    question_words,
    stop_languages,
)

if TYPE_CHECKING:
    import numpy.typing as npt

Strict: TypeAlias = StrictReader | StrictReaderInMemory
RankingsOfTable: TypeAlias = CollectionReader | Strict

RRF_K = 60  # of Cormack, Clarke & Buettcher, SIGIR 2009
QUERIES_K = 2  # for the lists of several queries: in one collection all have nearly the same passages
LEAST_KNOWN = 0.01  # above 0, to keep the order of a dense ranking whose table has no sparse one
KNOWN_LITTLE, KNOWN_WELL = 0.7, 0.95
"""Bounds of the share of a query that its model knows. Up to the lower one, words have their full weight."""
SHARED_FEW, SHARED_MOST = 0.25, 0.75
"""Bounds of the share of a query's words that the ranked passages have. The weight of words rises from 0 at
the lower one to 1 at the upper. Chosen on xquad in six languages (rag/evaluate/measuring.md)."""
OF_NEARNESS = 0.4
"""So much of how near a passage is to all questions is subtracted, if the query is in another language.
Chosen on half of the subjects of xquad, checked on the other (rag/evaluate/measuring.md)."""
YEAR = re.compile("(?:19|20)[0-9]{2}")
NEARLY_ALL, NEARLY_ALL_BESIDE_YEARS = (0.8, 1.0), (0.3, 0.6)
"""Bounds of the share of a query's words that a passage has: the completeness rises from 0 to 1 between them.
The second pair is for passages with all years of the query. Chosen on questions about financial reports,
checked on nine other sets (rag/evaluate/measuring.md)."""
RELATED = 0.68
"""The similarity of a question and a passage that answers it, to which every model's scale is set. It is from
all-MiniLM-L6-v2 and the questions of rag/models/embed/calibration.py: .694, and .029 for unrelated texts."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that a ranking found, before the gate has checked access to it.

    `versions` are its rows in the rankings. They can differ: while a source is being replaced, its table
    holds the old and the new chunk under the same id, and the rankings are read at different moments.
    """

    id: str
    score: float
    view: View
    versions: tuple[StoredChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Meaning:
    """A text as an embedding model sees it: its vector, and the share of its words that the model knows.

    Models differ in the cosines that they give to unrelated texts, and to a question and its answer. `scale`
    maps the former to 0 and the latter, if it was measured, to `RELATED`; otherwise 1 stays 1. So
    similarities of different models compare. If the vector `is_from_request`, its model is not available
    here, so no other text can be compared with it. `mean_query` is the mean vector of questions, if known.
    """

    vector: npt.NDArray[np.float32]
    known_share: float = 1.0
    scale: Calibration = AS_IT_IS
    is_from_request: bool = False
    mean_query: npt.NDArray[np.float32] | None = None

    def similarities(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """The similarity of each vector to the text, at least -1."""
        return self.on_scale(vectors @ self.vector)

    def similarities_across(self, vectors: Vectors, foreign: float) -> npt.NDArray[np.float32]:
        """The same for ranking passages in another language than the text, which is `foreign` up to 1.

        There a model finds some passages near to every question. How much nearer a passage is to all of them
        than these passages are in the mean is partly subtracted, so that the scale stays.
        """
        if not foreign or self.mean_query is None:
            return self.similarities(vectors)
        nearness = vectors @ self.mean_query
        surplus = nearness - nearness.mean()
        return self.on_scale(vectors @ self.vector - foreign * OF_NEARNESS * surplus)

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
    """A text to search for in `views`, with its meanings by the names of the embedders of these views.

    A model that fails has no meaning here. The scores of the query's hits are multiplied by `weight`.
    """

    text: str
    meanings: Mapping[str, Meaning]
    views: tuple[View, ...]
    weight: float = 1.0

    def meaning_in(self, view: View) -> Meaning | None:
        """The meaning that is comparable with the view's vectors, if any."""
        return self.meanings.get(view.collection.embedder_name) if view.comparable else None

    def unknown_in(self, view: View) -> bool:
        """Whether the view's model knows no word of the text, so that its similarities are noise."""
        meaning = self.meaning_in(view)
        return meaning is not None and not meaning.known_share

    @property
    def views_by_collection(self) -> Mapping[str, View]:
        """The views by the names of their collections."""
        return {view.name: view for view in self.views}


@dataclass(frozen=True, slots=True)
class QueryRankings:
    """The rankings of a query by view, because each collection has its own tables and indexes.

    A view has no dense ranking if its vectors are not comparable or `skips_dense`, and no sparse one without
    an index of words; nor has any if the mode doesn't use it. Scores compare across tables: similarities, and
    BM25 in units of the rarest word, counted over all tables that can be (`_pooled`). `spellings` were
    searched for besides words of the query that no document has.
    """

    dense: Mapping[View, Ranking] = field(default_factory=dict)
    sparse: Mapping[View, Ranking] = field(default_factory=dict)
    spellings: Mapping[str, tuple[Spelling, ...]] = field(default_factory=dict)

    @property
    def chunks(self) -> Iterator[StoredChunk]:
        """Every chunk of every list."""
        rankings = (*self.dense.values(), *self.sparse.values())
        return (scored.stored for ranking in rankings for scored in ranking)

    @property
    def dense_scores(self) -> Mapping[str, float]:
        """The similarity of each chunk of the dense rankings, best first."""
        return _best_of_tables(self.dense)

    @property
    def sparse_scores(self) -> Mapping[str, float]:
        """The BM25 score of each chunk of the sparse rankings, best first."""
        return _best_of_tables(self.sparse)


def skips_dense(query: Query, view: View, plan: SearchPlan) -> bool:
    """Whether a view's dense ranking isn't computed, because it would have no weight.

    Calibrated fusion weighs it by the share of the query that the model knows, here 0. The other fusions have
    fixed weights.
    """
    weighs = plan.mode == "hybrid" and plan.fusion.method == "calibrated"
    return weighs and view.table.by_words and query.unknown_in(view)


async def recall(queries: Sequence[Query], plan: SearchPlan) -> list[QueryRankings]:
    """The rankings of the plan's mode for each query, from all tables concurrently.

    In the first query, which is the caller's, unknown words are searched for in other spellings, too.
    """
    of_tables = await _readers([view for query in queries for view in query.views], plan)
    spellings = await _spellings(queries[0], of_tables, plan)
    calls = [partial(_rankings, query, of_tables, plan) for query in queries]
    if spellings:
        calls[0] = partial(_rankings, queries[0], _respelt(of_tables, spellings), plan)
    of_question, *of_queries = await concurrently(calls)
    return [replace(of_question, spellings=spellings), *of_queries]


async def _rankings(
    query: Query, readers: Mapping[CollectionReader, RankingsOfTable], plan: SearchPlan
) -> QueryRankings:
    if plan.mode != "dense":
        readers = await _pooled(query, readers)
    # The predicate is made once for both rankings: it can hold thousands of ids.
    tables = [(view, readers[view.table], view.where) for view in query.views]
    dense = {
        view: partial(_dense, table, meaning, plan, where)
        for view, table, where in tables
        if plan.mode != "sparse"
        and not skips_dense(query, view, plan)
        and (meaning := query.meaning_in(view))
    }
    sparse = {
        view: partial(_sparse, table, query, view, plan, where)
        for view, table, where in tables
        if plan.mode != "dense" and view.table.by_words
    }
    rankings = iter(await concurrently([*dense.values(), *sparse.values()]))
    return QueryRankings({view: next(rankings) for view in dense}, {view: next(rankings) for view in sparse})


async def _pooled(
    query: Query, readers: Mapping[CollectionReader, RankingsOfTable]
) -> Mapping[CollectionReader, RankingsOfTable]:
    """The readers; all that can count the query's words over their rows together, as if they were one table.

    A word that is common in one collection would else be rare in the others, where it stands by accident.
    """
    pooled = {
        view.table: reader
        for view in query.views
        if view.table.by_words
        and not view.collection.attached
        and isinstance(reader := readers[view.table], Strict)
    }
    if len(pooled) < 2:  # noqa: PLR2004 tables; alone, one counts its own rows
        return readers
    counts = await pooled_counts(query.text, [*pooled.values()])
    return {**readers, **{table: replace(reader, pooled=counts) for table, reader in pooled.items()}}


async def _spellings(
    question: Query, readers: Mapping[CollectionReader, RankingsOfTable], plan: SearchPlan
) -> Mapping[str, tuple[Spelling, ...]]:
    """The other spellings of the question's unknown words; none if a passage needs every word.

    Only for tables whose words are in memory, or soon will be, on which strict results may not depend.
    """
    tables = [readers[view.table] for view in question.views if not view.collection.attached]
    strict_tables = [table for table in tables if isinstance(table, Strict)]
    # A word that one table lacks may be in another that can't tell: then it isn't unknown.
    are_all = bool(strict_tables) and len(strict_tables) == len(question.views)
    if plan.mode == "dense" or plan.strict or plan.phrases or plan.engine.operator == "and" or not are_all:
        return {}
    return await other_spellings(question.text, strict_tables)


def _respelt(
    readers: Mapping[CollectionReader, RankingsOfTable], spellings: Mapping[str, tuple[Spelling, ...]]
) -> Mapping[CollectionReader, RankingsOfTable]:
    words = tuple(near.word for of_word in spellings.values() for near in of_word)
    return {
        table: replace(reader, spellings=words) if isinstance(reader, Strict) else reader
        for table, reader in readers.items()
    }


async def _dense(table: RankingsOfTable, meaning: Meaning, plan: SearchPlan, where: str) -> Ranking:
    ranking = await table.dense(meaning.vector, plan.candidates, where)
    if meaning.scale == AS_IT_IS:
        return ranking
    similarities = meaning.on_scale(np.array([scored.score for scored in ranking], np.float32))
    return [
        replace(scored, score=score) for scored, score in zip(ranking, similarities.tolist(), strict=True)
    ]


async def _sparse(table: RankingsOfTable, query: Query, view: View, plan: SearchPlan, where: str) -> Ranking:
    """The sparse ranking of a view; passages whose heading is what the query names come first."""
    every = plan.engine.operator == "and"
    named = Named.of(query.text, query_languages(view.collection))
    if view.table.retrieves or not (named.addresses or named.names):
        return await table.sparse(query.text, plan.candidates, where, every=every)
    scores_all = isinstance(table, Strict)
    is_written = all(name in query.text for name in named.names)  # two words as one are rare, so rank high
    # A section that is named can have a low rank by words: others mention its name more often.
    looked_at = max(plan.candidates, LOOKED_AT if scores_all and is_written else 0)
    text = query.text if every else " ".join([query.text, *sorted(named.numerals)])
    ranking = await table.sparse(text, looked_at, where, every=every)
    return with_named_first(ranking, named)[: plan.candidates]


async def _readers(views: Sequence[View], plan: SearchPlan) -> Mapping[CollectionReader, RankingsOfTable]:
    """The reader of each table: one of readable rows only, or the table itself."""
    by_table = {view.table: view for view in views}
    strict = [
        view
        for table, view in by_table.items()  # with "auto" those that are small enough to be kept in memory
        if plan.strict or (plan.statistics == "auto" and await table.expects_rows_in_memory())
    ]
    readers = await concurrently([view.strict for view in strict])
    return {table: table for table in by_table} | {
        view.table: reader for view, reader in zip(strict, readers, strict=True)
    }


def fuse(queries: Sequence[Query], lists: Sequence[QueryRankings], plan: SearchPlan) -> list[Candidate]:
    """One ranking of the chunks of all lists, best first. The plan says how several queries merge."""
    chunks: dict[str, tuple[View, tuple[StoredChunk, ...]]] = {}
    for of_query in lists:
        for view, ranking in chain(of_query.dense.items(), of_query.sparse.items()):
            for stored in (scored.stored for scored in ranking):
                _, versions = chunks.get(stored.id, (view, ()))
                chunks[stored.id] = view, (*versions, stored)
    if plan.unquoted is not None and next(lists[0].chunks, None) is None:
        plan = replace(plan, phrases=())  # no passage has them, so they don't raise the weight of words
    # A query without views has no ranking, but its weight would lower all scores.
    searched = [pair for pair in zip(queries, lists, strict=True) if pair[0].views]
    fused = [_scores(plan, query, of_query) for query, of_query in searched]
    scores = fused[0] if len(fused) == 1 else _merge_queries([query for query, _ in searched], fused, plan)
    return [Candidate(id_, score, *chunks[id_]) for id_, score in scores.items()]


def _merge_queries(
    queries: Sequence[Query], fused: Sequence[Mapping[str, float]], plan: SearchPlan
) -> Mapping[str, float]:
    """One ranking of the chunks of several queries: by reciprocal ranks, which measured better than scores.

    A question with and without its phrases is one question, so its scores compare: the best one counts.
    """
    if plan.query_stages:
        weights = [query.weight for query in queries]
        return reciprocal_rank_fusion(
            [ranks(scores.items()) for scores in fused], weights=weights, k=QUERIES_K
        )
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
            rankings = [ranks(lists.dense_scores.items()), ranks(sparse.items())]
            return reciprocal_rank_fusion(rankings, k=RRF_K)
        case "dbsf":
            return distribution_based_fusion([lists.dense_scores, sparse])
        case "convex":
            return convex_combination(_similarities(query, lists), sparse, alpha=fusion.alpha)
        case "calibrated":
            languages = {stop_languages(view.collection) for view in query.views}
            words = max((len(query_terms(query.text, language)) for language in languages), default=0)
            weights = {
                view: _weight_of_words(query, view, ranking, lists.spellings, plan)
                for view, ranking in lists.sparse.items()
            }
            by_words = {
                view: _reweighed(query, view, ranking, weights[view])
                for view, ranking in lists.sparse.items()
            }
            return calibrated_fusion(
                _similarities(query, lists, weights),
                _best_of_tables(by_words),
                words=words,
                unlisted=_unlisted_bound(query, by_words, plan),
                complete=_completeness(query, by_words, plan),
            )


def _reweighed(query: Query, view: View, ranking: Ranking, weight: float) -> Ranking:
    """A view's sparse ranking, with its scores multiplied by the weight of words there.

    A passage with an identifier of the query, like TPL-0042, or with all its dates keeps its score: these
    mean the same in every language, and models can't compare them.
    """
    if weight == 1:
        return ranking
    words = query_words(query.text, query_languages(view.collection))[:MAX_TERMS]
    named = Named.of(query.text, query_languages(view.collection))
    identifiers = {word.text for word in words if word.is_identifier}
    identifiers |= {address.number for address in named.addresses if address.is_sure} | named.numerals
    dates = {word.text for word in words if word.is_of_date}

    def keeps_score(scored: ScoredChunk) -> bool:
        words = scored.words or frozenset()
        return not identifiers.isdisjoint(words) or (bool(dates) and dates <= words)

    reweighed = [
        scored if keeps_score(scored) else replace(scored, score=scored.score * weight) for scored in ranking
    ]
    return sorted(reweighed, key=lambda scored: -scored.score)


def _weight_of_words(
    query: Query, view: View, ranking: Ranking, respelt: Collection[str], plan: SearchPlan
) -> float:
    """The weight of a view's sparse ranking, from 0 to 1.

    A query in another language than the passages shares words with them, too: names, and others by accident.
    These would outvote a model that understands both languages. So the fewer of the query's words the ranked
    passages have, the lower the weight, unless the model knows too little of the query. It is 1 if the user
    demands words, by phrases that some passage has or by the operator "and".
    """
    meaning = query.meaning_in(view)
    if meaning is None or plan.phrases or plan.engine.operator == "and":
        return 1.0
    model = _clipped((meaning.known_share - KNOWN_LITTLE) / (KNOWN_WELL - KNOWN_LITTLE))
    if not model:  # it knows too little of the query to vote down words
        return 1.0
    shared = _shared_words(query.text, view, ranking, respelt)
    words = _clipped((shared - SHARED_FEW) / (SHARED_MOST - SHARED_FEW))
    return 1 - model * (1 - words)


def _completeness(query: Query, sparse: Mapping[View, Ranking], plan: SearchPlan) -> float:
    """How nearly the best passage by words has all words of the query, from 0 to 1; 0 if that isn't known.

    Words that only ask don't count ("quand vient le plombier"); those of English are stop words anyway. If
    the passage has the years that the query names, fewer other words will do: models hardly tell years
    apart. 0 with phrases: such a search has two queries, whose scores must be on one scale.
    """
    bests = [(ranking[0], view) for view, ranking in sparse.items() if ranking]
    if not bests or plan.phrases:
        return 0.0
    best, view = max(bests, key=lambda pair: pair[0].score)
    languages = query_languages(view.collection)
    asking = question_words(frozenset(languages) - {"English"})
    texts = {word.text for word in query_words(query.text, languages)[:MAX_TERMS]}
    words = {text for text in texts if text.casefold() not in asking} or texts
    had = words.intersection(best.words or ())
    years = set(filter(YEAR.fullmatch, words))
    least, most = NEARLY_ALL_BESIDE_YEARS if years and years <= had else NEARLY_ALL
    share = _clipped((len(had) / max(len(words), 1) - least) / (most - least))
    return max(share, Named.of(query.text, languages).sureness(best.stored, best.words))


def _shared_words(text: str, view: View, ranking: Ranking, respelt: Collection[str]) -> float:
    """The share of a text's words that the ranked passages have together; 1 where they don't tell.

    Stop words of any language don't count, because they stand for other things in another language. Nor do
    words that only ask in the documents' language, and names with digits: a document lacks them in any. A
    word that was `respelt` counts as shared. Vietnamese words without their marks are words elsewhere, so
    passages must have the letters, too.
    """
    languages = query_languages(view.collection)
    asking = question_words(frozenset(languages))
    words = {
        word.text
        for word in query_words(text, languages)[:MAX_TERMS]
        if word.text.isalpha()
        and not any(word.text.casefold() in listed for listed in (ANY_STOP_WORDS, asking))
    }
    if not words or any(scored.words is None for scored in ranking):  # as of attached tables
        return 1.0
    shared = words.intersection([*respelt, *(word for scored in ranking for word in scored.words or ())])
    if VIETNAMESE.search(normalize("NFC", text)):
        letters = frozenset(normalize("NFC", "".join(scored.stored.body for scored in ranking)).casefold())
        shared = {word for word in shared if letters.issuperset(normalize("NFC", word).casefold())}
    return len(shared) / len(words)


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _unlisted_bound(query: Query, sparse: Mapping[View, Ranking], plan: SearchPlan) -> float:
    """The upper bound of the BM25 score of a chunk that no sparse ranking has: it was cut off below the last.

    There is none if a passage needs every word, as others aren't ranked, nor for tables without an index.
    """
    if plan.engine.operator == "and" or not all(view.table.by_words for view in query.views):
        return inf
    full = (ranking for ranking in sparse.values() if len(ranking) >= plan.candidates)
    return max((ranking[-1].score for ranking in full), default=0.0)


def shares_of_best(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores divided by the best one: {"a": 4.0, "b": 1.0} -> {"a": 1.0, "b": 0.25}."""
    best = max(scores.values(), default=1.0)
    return {item: score / best for item, score in scores.items()}


def _best_of_tables(rankings: Mapping[View, Ranking]) -> Mapping[str, float]:
    return best_scores(
        (scored.stored.id, scored.score) for ranking in rankings.values() for scored in ranking
    )


def _similarities(
    query: Query, lists: QueryRankings, weights: Mapping[View, float] | None = None
) -> Mapping[str, float]:
    """The similarity of every comparable chunk, whichever ranking found it.

    With the `weights` of words in the views, the lower one is, the more the query counts as one in another
    language there. It is then also times the share of the query that its model knows: about other words a
    model only guesses.
    """
    by_view: dict[View, list[StoredChunk]] = {}
    for view, ranking in chain(lists.dense.items(), lists.sparse.items()):
        by_view.setdefault(view, []).extend(row.stored for row in ranking)
    scored: list[tuple[str, float]] = []
    for view, chunks in by_view.items():
        meaning = query.meaning_in(view)
        if meaning and chunks:
            foreign = 1 - weights.get(view, 1.0) if weights is not None else 0.0
            values = meaning.similarities_across(np.stack([chunk.vector for chunk in chunks]), foreign)
            share = max(meaning.known_share, LEAST_KNOWN) if weights is not None else 1.0
            scored += zip((chunk.id for chunk in chunks), (share * values).tolist(), strict=True)
    return best_scores(scored)


SLACK = 4  # candidates checked beyond the limit, so that a stale copy or a tie rarely costs a second round
WIDER = 4  # how many times as many candidates the next round checks
READS = 3  # attempts to read a source that is replaced each time

Alarm: TypeAlias = "Callable[[int], None]"
"""Called with the number of sources that the gate withheld because of a fault (see `is_fault`)."""


def is_fault(view: View, withheld: StoredSource, generation: str, revision: int) -> bool:
    """Whether a row that the engine returned and the gate withheld shows a bug, and not a race.

    `generation` and `revision` are the row's. If either differs from the source's, the source was replaced or
    its access record changed after the row was written: a race. If both are current, engine and gate have
    judged the same record and disagree: a bug. A filter that became ids before the search is no such case,
    because the source may have changed since.
    """
    record = withheld.access
    is_current = (generation, revision) == (withheld.generation, record.revision if record else 0)
    return is_current and not view.may_match_now(withheld)


async def admit(candidates: Sequence[Candidate], query: Query, limit: int, alarm: Alarm) -> list[Hit]:
    """The first `limit` candidates that are readable now, as hits; ties are broken by date, newer first.

    The result is a prefix of what a higher limit would return: all candidates of a tied score take part.
    Similarities are to `query`; a hit has none if it has no vector, or the query none of its model.
    """
    checked = limit + SLACK
    # Stop once no unchecked candidate can tie with the last hit: a tie is broken by date, which only the gate
    # reads, so a tied candidate further down could still belong before it.
    hits = await _readable_hits(candidates[:checked], query, alarm)
    while checked < len(candidates) and settled_count(hits, candidates[checked].score) < limit:
        # Each round reads all candidates again, not only the new ones. If a source is replaced between two
        # rounds, adding up their hits would show it in two versions at once.
        checked *= WIDER
        hits = await _readable_hits(candidates[:checked], query, alarm)
    return newer_first(hits)[:limit]


async def _readable_hits(candidates: Sequence[Candidate], query: Query, alarm: Alarm) -> list[Hit]:
    by_view = grouped((candidate.view, candidate) for candidate in candidates)
    groups = await concurrently([partial(_visible, *pair, alarm) for pair in by_view.items()])
    visible = {id_: pair for group in groups for id_, pair in group.items()}
    return [
        _hit(candidate, *visible[candidate.id], query)
        for candidate in candidates
        if candidate.id in visible and candidate.view.has_texts(visible[candidate.id][0].chunk)
    ]


async def _visible(
    view: View, candidates: Sequence[Candidate], alarm: Alarm
) -> dict[str, tuple[StoredChunk, StoredSource]]:
    """The candidates that may leave, by id, each as the chunk of its source's current generation."""
    versions = {candidate.id: candidate.versions for candidate in candidates}
    for _ in range(READS):
        sources = await view.table.sources(split_chunk_id(id_)[0] for id_ in versions)
        admitted = {id_: source for id_, source in sources.items() if view.admits(source)}
        withheld = {id_: source for id_, source in sources.items() if id_ not in admitted}
        if faults := _faults(view, withheld, versions):
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
    return visible  # without sources that were replaced during each attempt: they fail closed


def _faults(
    view: View, withheld: Mapping[str, StoredSource], versions: Mapping[str, Sequence[StoredChunk]]
) -> set[str]:
    """The withheld sources with a chunk that the engine should have excluded."""
    if not withheld:
        return set()
    rows = ((split_chunk_id(id_)[0], chunk) for id_, chunks in versions.items() for chunk in chunks)
    return {
        id_
        for id_, chunk in rows
        if id_ in withheld and is_fault(view, withheld[id_], chunk.generation, chunk.revision)
    }


def _has_chunk(id_: str, sources: Mapping[str, StoredSource]) -> bool:
    """Whether the id's source still has this chunk: a shorter version may not."""
    source_id, seq = split_chunk_id(id_)
    return source_id in sources and seq < sources[source_id].source.chunk_count


def _hit(candidate: Candidate, stored: StoredChunk, source: StoredSource, query: Query) -> Hit:
    meaning, similarity = query.meaning_in(candidate.view), None
    if meaning is not None and stored.vector.any():  # zeros mean that the chunk has no vector
        similarity = float(meaning.similarities(stored.vector))
    return Hit(stored.chunk, source.source, candidate.score, similarity, stored.vector, source.fields)
