"""Rankings as if a collection contained only what one principal may read.

The engine counts words over all rows, hidden ones included, and cuts a ranking by these counts, by the
structure of an index and by the order of rows. So scores can leak what others may read. Here a sparse search
asks the engine only which readable rows contain a word, and scores them by counts over readable rows. A dense
search compares every readable row. Ties are ordered by id, also where a ranking is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, log
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.corpus import Collection, Language
from rag.store.read.collection_reader import CollectionReader, rank_words, ranking_of_copy, words_in
from rag.store.read.rows_in_memory import Readable, RowsInMemory
from rag.store.read.schema import (
    CHUNK_COLUMNS,
    TERMS,
    Ranking,
    ScoredChunk,
    StoredChunk,
    StoredSource,
    one_of,
    stored_chunks,
)
from rag.store.read.word_analysis import Word, query_languages, query_words, search_terms, stems
from rag.store.read.words_in_memory import Positions, WordsInMemory, counted, rarity, weight
from rag.text.languages import analysed_in

if TYPE_CHECKING:
    import numpy.typing as npt

ALL = 2**31 - 1  # rows: the engine must not cut, since it cuts by its own counts
COUNTED = 4  # times as many rows as needed are scored by word frequencies
TIED = 4  # times as many rows are fetched if a tie crosses the cut


@dataclass(frozen=True, slots=True)
class StrictReader:
    """The rankings of a collection for one principal, in one search.

    `readable` is the predicate of what the principal may read. `hidden` is appended to every predicate to
    exclude sources whose record differs from the labels that the engine filters by. `rows` are the remaining
    rows, `languages` the languages of their sources, in which the index is asked.
    """

    reader: CollectionReader
    readable: str
    hidden: str
    rows: Rows
    languages: tuple[Language, ...]

    async def dense(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> Ranking:
        """As `CollectionReader.dense`, by the true distances of all readable rows."""
        count = limit + 1
        rows = await self._nearest(vector, count, where)
        while rows.num_rows == count and rows["_distance"][limit - 1] == rows["_distance"][-1]:
            count *= TIED
            rows = await self._nearest(vector, count, where)
        first = rows.slice(0, limit)
        distances = cast("list[float]", first["_distance"].to_pylist())
        pairs = zip(stored_chunks(first), distances, strict=True)
        return [ScoredChunk(stored, 1.0 - distance) for stored, distance in pairs]

    async def _nearest(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> pa.Table:
        rows = await self.reader.chunk_rows(
            lambda query: (
                query.nearest_to(vector)
                .distance_type("cosine")
                .bypass_vector_index()
                .where(where + self.hidden)
                .select([*CHUNK_COLUMNS, "vector", "_distance"])
                .limit(limit)
            )
        )
        return rows.sort_by([("_distance", "ascending"), ("id", "ascending")])

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:
        """As `CollectionReader.sparse`, with the scores of a collection of readable rows only.

        Only `COUNTED * limit` candidates are scored. They are the best by a cheaper score, which counts each
        word once per row and measures a row's length in the embedder's tokens.

        Raises:
            NotReadyError: the collection has no full-text index.
        """
        column = await self.reader.words_column()
        ours = column == TERMS
        words = query_words(text, self.languages, names=ours)
        terms = search_terms(words)
        as_written = {word.forms[0][0]: word.text for word in words} if not ours else {}
        holds = {
            term: await self._rows_holding([as_written.get(term, term)], column, self.readable)
            for term in dict.fromkeys(terms)
        }
        matches = Matches(self.rows, terms, [holds[term] for term in terms])
        among = None
        if terms and where != self.readable:
            among = await self._rows_holding([as_written.get(term, term) for term in terms], column, where)
        if terms and every:
            having = _having_every(words, holds)
            among = having if among is None else among & having
        indexes = matches.first(COUNTED * limit, among)
        rows = await self.reader.chunks(list(indexes), where + self.hidden)
        places = [indexes[row.id] for row in rows]
        scores = matches.scores(list(zip(places, await self._indexed_words(rows, column), strict=True)))
        rarest = log(max(len(self.rows), 2))
        scored = [ScoredChunk(row, score / rarest) for row, score in zip(rows, scores, strict=True)]
        return sorted(scored, key=lambda one: (-one.score, one.stored.id, one.stored.generation))[:limit]

    async def _indexed_words(self, rows: Sequence[StoredChunk], column: str) -> list[list[str]]:
        """The words of these rows as the index holds them."""
        if column != TERMS or not rows:
            return [stems(row.body, self.reader.collection.usual_language, names=False) for row in rows]
        chosen = one_of("id", {row.id for row in rows})
        stored = await self.reader.chunk_rows(
            lambda query: query.where(chosen).select(["id", "generation", TERMS])
        )
        words = {(row["id"], row["generation"]): row[TERMS] for row in stored.to_pylist()}
        return [(words.get((row.id, row.generation)) or "").split() for row in rows]

    async def _rows_holding(self, words: Sequence[str], column: str, where: str) -> npt.NDArray[np.bool_]:
        """Which of the rows contain any of the words."""
        match = words_in(column, words, every=False)
        matching = await self.reader.chunk_rows(
            lambda query: (
                query.nearest_to_text(match).where(where + self.hidden).select(["id", "_score"]).limit(ALL)
            )
        )
        return self.rows.mask_of(matching["id"])


def _having_every(words: Iterable[Word], holds: Mapping[str, npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Which rows have every word in some form; `holds` says which have a term."""
    nowhere = np.zeros_like(next(iter(holds.values())))
    in_forms = [
        [np.logical_and.reduce([holds.get(term, nowhere) for term in form]) for form in word.forms]
        for word in words
    ]
    return cast(
        "npt.NDArray[np.bool_]", np.logical_and.reduce([np.logical_or.reduce(forms) for forms in in_forms])
    )


@dataclass(frozen=True, slots=True)
class StrictReaderInMemory:
    """As `StrictReader`, with rows and words in memory, of which the `readable` ones are ranked and counted.

    A commit while the search runs makes it go through the engine, with what `through_engine` opens.
    """

    reader: CollectionReader
    rows: RowsInMemory
    readable: Readable
    through_engine: Callable[[], Awaitable[StrictReader]]

    async def dense(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> Ranking:
        """As `StrictReader.dense`."""
        among = await self._among(where)
        if among is None:
            return await (await self.through_engine()).dense(vector, limit, where)
        return ranking_of_copy(self.rows, *await self.rows.nearest(vector, limit, among))

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:
        """As `StrictReader.sparse`, with the exact score of every row, and without the index."""
        among = await self._among(where)
        if among is None:
            return await (await self.through_engine()).sparse(text, limit, where, every=every)
        rank = partial(rank_words, every=every, over=self.readable.over)
        return await to_thread.run_sync(rank, text, self.readable.languages, self.rows, among, limit)

    async def _among(self, where: str) -> Positions | None:
        """The positions of readable rows that satisfy the predicate, None after a commit."""
        copy = await self.reader.rows_in_memory(where, self.rows.version)  # asked for as the search began
        if copy is None or copy[0] is not self.rows:
            return None
        return self.readable.among(copy[1])


async def strict_reader(
    reader: CollectionReader, readable: str, admits: Callable[[StoredSource], bool], asker: Hashable
) -> StrictReader | StrictReaderInMemory:
    """A reader of the rows that satisfy `readable` and whose source's own record `admits` the principal.

    `asker` stands for all that decides about them besides the predicate and what is stored.
    """
    through_engine = partial(readable_only, reader, readable, admits)
    version = await reader.version()  # before the rows are looked at, so that what is kept is never newer
    copy = await reader.rows_in_memory(readable)
    if copy is None or copy[0].words is None:
        return await through_engine()
    rows, positions = copy
    key = (asker, readable, version)
    if (known := rows.readable.get(key)) is None:
        known = await _readable_in_memory(reader, rows, positions, admits)
        rows.keep_readable(key, known)
    return StrictReaderInMemory(reader, rows, known, through_engine)


async def _readable_in_memory(
    reader: CollectionReader,
    rows: RowsInMemory,
    positions: Positions,
    admits: Callable[[StoredSource], bool],
) -> Readable:
    of_rows = rows.columns["source_id"].take(positions)
    ids = cast("list[str]", of_rows.unique().to_pylist())
    admitted, refused = await _judge(reader, ids, admits)
    if refused:
        is_refused = pc.is_in(of_rows, value_set=pa.array(sorted(refused))).to_numpy()
        positions = positions[~is_refused]
    mask = None
    if len(positions) < len(rows):
        mask = np.zeros(len(rows), np.bool_)
        mask[positions] = True
    words = cast("WordsInMemory", rows.words)
    return Readable(mask, counted(words, mask), _languages(reader.collection, admitted))


async def _judge(
    reader: CollectionReader, ids: Sequence[str], admits: Callable[[StoredSource], bool]
) -> tuple[list[StoredSource], frozenset[str]]:
    """The sources of these ids that `admits` lets pass, and the ids of all others."""
    sources = await reader.sources(ids)
    admitted = [source for id_ in ids if (source := sources.get(id_)) and admits(source)]
    return admitted, frozenset(ids) - {source.id for source in admitted}


async def readable_only(
    reader: CollectionReader, readable: str, admits: Callable[[StoredSource], bool]
) -> StrictReader:
    """As `strict_reader`, through the engine."""
    columns = ["id", "source_id", "tokens"]
    rows = await reader.chunk_rows(lambda query: query.where(readable).select(columns))
    ids = cast("list[str]", rows["source_id"].unique().to_pylist())
    admitted, refused = await _judge(reader, ids, admits)
    hidden = ""
    if refused:
        hidden = f" AND (NOT {one_of('source_id', sorted(refused))})"
        rows = rows.filter(pc.invert(pc.is_in(rows["source_id"], value_set=pa.array(sorted(refused)))))
    tokens = rows["tokens"].to_numpy()
    lengths = tokens * (len(tokens) / max(int(tokens.sum()), 1))
    return StrictReader(
        reader,
        readable,
        hidden,
        Rows(rows["id"].combine_chunks(), lengths),
        _languages(reader.collection, admitted),
    )


def _languages(collection: Collection, sources: Sequence[StoredSource]) -> tuple[Language, ...]:
    """As `query_languages`, of a collection that holds only these sources."""
    counts = Counter(analysed_in(collection, source.source.metadata) for source in sources)
    ranked = sorted(counts, key=lambda language: (-counts[language], language))
    return query_languages(replace(collection, languages=tuple(ranked)))


# BM25 over rows, given which of them contain which words.


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to score, in any order: their ids, and their lengths relative to the mean."""

    ids: pa.Array[Any]
    lengths: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def mask_of(self, ids: pa.ChunkedArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of the rows have one of these ids."""
        return cast("npt.NDArray[np.bool_]", pc.is_in(self.ids, value_set=ids).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class Matches:
    """Which rows contain which words of a query; `holds` has one array per word."""

    rows: Rows
    stems: Sequence[str]
    holds: Sequence[npt.NDArray[np.bool_]]

    @property
    def rarities(self) -> list[float]:
        """The weight of each word."""
        return [rarity(len(self.rows), int(holds.sum())) for holds in self.holds]

    def first(self, count: int, among: npt.NDArray[np.bool_] | None = None) -> dict[str, int]:
        """The best rows by a score that counts each word once per row: their indexes by id, best first.

        Ties are ordered by id. `among` masks the rows that count.
        """
        scores = np.zeros(len(self.rows))
        for rarity_, holds in zip(self.rarities, self.holds, strict=True):
            scores += rarity_ * holds  # word by word, so that the order of rows changes nothing
        scores *= weight(1.0, self.rows.lengths)
        indexes = np.flatnonzero(scores if among is None else scores * among)
        if count < len(indexes):
            least = np.partition(scores[indexes], -count)[-count]
            indexes = indexes[scores[indexes] >= least]
        ids = cast("list[str]", self.rows.ids.take(pa.array(indexes, pa.int64())).to_pylist())
        best = sorted(zip((-scores[indexes]).tolist(), ids, indexes.tolist(), strict=True))
        return {id_: index for _, id_, index in best[:count]}

    def scores(self, rows: Sequence[tuple[int, Sequence[str]]]) -> list[float]:
        """The BM25 scores of rows, given by index and words. A word that a row contains counts at least once.

        Here the length of a row is its number of words. The mean is estimated from these rows, whose lengths
        relative to it are known.
        """
        of_mean_length = fsum(self.rows.lengths[index] for index, _ in rows) or 1.0
        mean = max(sum(len(words) for _, words in rows), 1) / of_mean_length
        terms = list(zip(self.stems, self.rarities, self.holds, strict=True))
        scores = []
        for index, words in rows:
            times, length = Counter(words), len(words) / mean
            scores.append(
                sum(
                    rarity_ * weight(float(max(times[stem], 1)), length)
                    for stem, rarity_, holds in terms
                    if holds[index]
                )
            )
        return scores
