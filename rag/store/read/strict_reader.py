"""Rankings as if a collection contained only what one principal may read.

The engine counts words over all rows, hidden ones included, and cuts a ranking by these counts, by the
structure of an index and by the order of rows. So scores can leak what others may read. Here words are
counted over the readable rows, and every readable row is compared and scored. Ties are ordered by id, also
at the cut.

A row has the same score, to the last bit, whether rows are in memory or not: otherwise a change of scores
would tell when a copy is complete, and so how large the table is. Only attached tables are scored by
estimates: the words of their rows are stored nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.corpus import Language
from rag.runtime import concurrently, keep_latest
from rag.store.read.collection_reader import CollectionReader, rank_words, ranking_of_copy
from rag.store.read.rows_in_memory import OVERSAMPLING, SELECTIONS, Readable, RowsInMemory
from rag.store.read.schema import CHUNK_COLUMNS, Ranking, StoredSource, one_of
from rag.store.read.spelling import (
    MOST_SPELLINGS,
    MOST_UNKNOWN,
    Spelling,
    as_written,
    first_row_with,
    nearest_spellings,
)
from rag.store.read.word_analysis import (
    MAX_TERMS,
    Form,
    Word,
    query_languages,
    query_words,
    question_words,
    search_terms,
    terms_of_forms,
)
from rag.store.read.words_in_memory import (
    FormCounts,
    Positions,
    WordsInMemory,
    count_forms,
    counted_rows,
    unknown_words,
)

if TYPE_CHECKING:
    import numpy.typing as npt

RANKED_AT_ONCE = 1_000  # rows, in 0.5 ms; the words of more are ranked in a thread, of which there are forty
TIED = 4  # times as many rows are fetched if a tie crosses the cut


@dataclass(frozen=True, slots=True)
class StrictReader:
    """The rankings of a collection for one principal, in one search.

    `readable` is the predicate for the rows that the principal may read. `hidden` is appended to every
    predicate to exclude sources whose record differs from the labels that the engine filters by. Words are
    searched for in the `languages` of the other sources, and so are `spellings` besides them. If several
    collections are searched as one, `pooled` has the counts over the readable rows of all.
    """

    reader: CollectionReader
    readable: str
    hidden: str
    languages: tuple[Language, ...]
    spellings: tuple[Word, ...] = ()
    pooled: FormCounts | None = None

    async def dense(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> Ranking:
        """As `CollectionReader.dense`, by the true distances of all readable rows."""
        count = OVERSAMPLING * limit
        rows = await self._nearest(vector, count, where)
        # If the tie at the cut may go on, the order of rows would decide, which depends on hidden ones.
        while rows.num_rows == count and rows["_distance"][limit - 1] == rows["_distance"][-1]:
            count *= TIED
            rows = await self._nearest(vector, count, where)
        return self.reader.by_distance(rows, vector)[:limit]

    async def _nearest(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> pa.Table:
        rows = await self.reader.chunk_rows(
            lambda query: (
                query.nearest_to(vector)
                .distance_type("cosine")
                .bypass_vector_index()  # its partitions were made of all rows
                .where(where + self.hidden)
                .select([*CHUNK_COLUMNS, "vector", "_distance"])
                .limit(limit)
            )
        )
        return rows.sort_by([("_distance", "ascending"), ("id", "ascending")])

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:
        """As `CollectionReader.sparse`, with words counted over readable rows only."""
        words = query_words(text, self.languages, names=self.reader.collection.attached is None)
        return await self.reader.sparse_by_scan(
            words,
            self.spellings,
            limit,
            where + self.hidden,
            among=self.readable + self.hidden,
            every=every,
            pooled=self.pooled,
        )

    async def unknown_words(self, text: str) -> list[str]:
        """The words of a text that no readable row has in any form."""
        query = query_words(text, self.languages)
        _, in_rows = await self.reader.words(self.readable + self.hidden, query)
        return await to_thread.run_sync(unknown_words, query, in_rows, counted_rows(in_rows))

    async def count(self, forms: Collection[Form]) -> FormCounts:
        """The counts of these forms of words over the readable rows."""
        word = Word("", tuple(forms))
        _, in_rows = await self.reader.words(self.readable + self.hidden, [word])
        return await to_thread.run_sync(count_forms, forms, in_rows, counted_rows(in_rows))

    async def nearest_spellings(self, word: str) -> list[Spelling]:
        """The spellings of an unknown word that readable rows have, best first, as such a row writes them."""
        rows, in_rows = await self.reader.all_words(self.readable + self.hidden)
        over = counted_rows(in_rows)
        near = await to_thread.run_sync(nearest_spellings, word, self.languages, in_rows, over)
        ids = [
            cast("str", rows["id"][first_row_with(spelling.terms, in_rows, over, rows["id"])].as_py())
            for spelling in near
        ]
        chunks = await self.reader.chunks(ids, self.readable + self.hidden)
        body_of = {chunk.id: chunk.body for chunk in chunks}
        return as_written(word, near, [body_of.get(id_, "") for id_ in ids], self.languages)


@dataclass(frozen=True, slots=True)
class StrictReaderInMemory:
    """As `StrictReader`, with rows and words in memory, of which the `readable` ones are ranked and counted.

    A commit while the search runs makes it go through the engine, with what `through_engine` opens.
    """

    reader: CollectionReader
    rows: RowsInMemory
    readable: Readable
    through_engine: Callable[[], Awaitable[StrictReader]]
    spellings: tuple[Word, ...] = ()
    pooled: FormCounts | None = None

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
            through_engine = replace(
                await self.through_engine(), spellings=self.spellings, pooled=self.pooled
            )
            return await through_engine.sparse(text, limit, where, every=every)
        over = replace(self.readable.over, pooled=self.pooled) if self.pooled else self.readable.over
        rank = partial(rank_words, every=every, over=over, spellings=self.spellings)
        of_table = text, self.readable.languages, self.rows, among, limit
        return rank(*of_table) if self._is_small else await to_thread.run_sync(rank, *of_table)

    async def unknown_words(self, text: str) -> list[str]:
        """As `StrictReader.unknown_words`."""
        query = query_words(text, self.readable.languages)
        # On the event loop: it takes 0.1 ms, and a thread 0.2.
        return unknown_words(query, cast("WordsInMemory", self.rows.words), self.readable.over)

    @property
    def languages(self) -> tuple[Language, ...]:
        """As those of `StrictReader`."""
        return self.readable.languages

    async def count(self, forms: Collection[Form]) -> FormCounts:
        """As `StrictReader.count`."""
        of_table = forms, cast("WordsInMemory", self.rows.words), self.readable.over
        return count_forms(*of_table) if self._is_small else await to_thread.run_sync(count_forms, *of_table)

    async def nearest_spellings(self, word: str) -> list[Spelling]:
        """As `StrictReader.nearest_spellings`."""
        return await to_thread.run_sync(self._nearest_spellings, word)

    def _nearest_spellings(self, word: str) -> list[Spelling]:
        words, over = cast("WordsInMemory", self.rows.words), self.readable.over
        languages, columns = self.readable.languages, self.rows.columns
        near = nearest_spellings(word, languages, words, over)
        rows = [first_row_with(spelling.terms, words, over, columns["id"]) for spelling in near]
        texts = cast("list[str]", columns["body"].take(pa.array(rows, pa.int64())).to_pylist())
        return as_written(word, near, texts, languages)

    @property
    def _is_small(self) -> bool:
        return len(self.rows) <= RANKED_AT_ONCE

    async def _among(self, where: str) -> Positions | None:
        """The positions of readable rows that satisfy the predicate, None after a commit."""
        copy = await self.reader.rows_in_memory(where, self.rows.version)  # asked for as the search began
        if copy is None or copy[0] is not self.rows:  # positions hold for one copy only
            return None
        return self.readable.among(copy[1])


async def pooled_counts(text: str, readers: Sequence[StrictReader | StrictReaderInMemory]) -> FormCounts:
    """The counts of each term of a text, and of spellings searched for, over what the readers may read."""
    return await counts_of_all(await to_thread.run_sync(_terms_of_text, text, readers), readers)


async def counts_of_all(
    forms: Collection[Form], readers: Sequence[StrictReader | StrictReaderInMemory]
) -> FormCounts:
    """The counts of these forms over what the readers may read, as if it were one table."""
    return reduce(add, await concurrently([partial(reader.count, forms) for reader in readers]))


def _terms_of_text(text: str, readers: Sequence[StrictReader | StrictReaderInMemory]) -> frozenset[Form]:
    """The terms that the tables of the readers are searched for, each as a form."""
    spellings = [word for reader in readers for word in reader.spellings]
    terms = {*search_terms(spellings)}
    for languages in {reader.languages for reader in readers}:
        words = query_words(text, languages)
        terms |= {*search_terms(words), *terms_of_forms(words[:MAX_TERMS])}
    return frozenset((term,) for term in terms)


async def other_spellings(
    text: str, readers: Sequence[StrictReader | StrictReaderInMemory]
) -> dict[str, tuple[Spelling, ...]]:
    """The words of a text that no readable row of any collection has, each with its nearest spellings.

    Only words that have other spellings, and numbers, which have none, but no years: a document's own date
    may answer these. Empty if more than `MOST_UNKNOWN` words are unknown, besides those that only ask.
    """
    # A word is unknown if no collection has it: one may well lack the words of the others.
    lacking = [await reader.unknown_words(text) for reader in readers]
    asking = question_words(frozenset(language for reader in readers for language in reader.languages))
    unknown = [word for word in dict.fromkeys(lacking[0]) if all(word in words for words in lacking)]
    unknown = [word for word in unknown if word.casefold() not in asking]
    if len(unknown) > MOST_UNKNOWN:
        return {}
    spellings = {
        word: [near for reader in readers for near in await reader.nearest_spellings(word)]
        for word in unknown
    }
    return {
        word: _best_spellings(near) for word, near in spellings.items() if near or _NO_DATE.fullmatch(word)
    }


_NO_DATE = re.compile("(?!(?:19|20)[0-9]{2}$)[0-9]{3,}")


def _best_spellings(spellings: Sequence[Spelling]) -> tuple[Spelling, ...]:
    """The best of several collections, each once."""
    distinct = {near.terms: near for near in sorted(spellings, key=lambda near: near.rank, reverse=True)}
    return tuple(sorted(distinct.values(), key=lambda near: near.rank)[:MOST_SPELLINGS])


@dataclass(frozen=True, slots=True)
class Asker:
    """The rights of one principal in a collection.

    `readable` is the predicate on chunks, and `admits` decides by a source's own record. `labels` is an
    equivalent predicate on these records, or "". `key` is the cache key: everything that
    decides besides the predicate and the tables.
    """

    readable: str
    admits: Callable[[StoredSource], bool]
    labels: str
    key: Hashable


async def strict_reader(reader: CollectionReader, asker: Asker) -> StrictReader | StrictReaderInMemory:
    """A reader of the rows that the asker may read, by the predicate and by the sources' own records."""
    through_engine = partial(_through_engine, reader, asker)
    version = await reader.version_at_refresh()  # before the rows, so that cached rows aren't older
    copy = await reader.renewed_rows(asker.readable)
    if copy is None or copy[0].words is None:
        return await through_engine()
    rows, positions = copy
    key = (asker.key, asker.readable, version)  # rights may change while the chunks stay
    if (readable := rows.readable.get(key)) is None:
        readable = await _readable_in_memory(reader, rows, positions, asker)
        keep_latest(rows.readable, key, readable, SELECTIONS)
    return StrictReaderInMemory(reader, rows, readable, through_engine)


async def _readable_in_memory(
    reader: CollectionReader, rows: RowsInMemory, positions: Positions, asker: Asker
) -> Readable:
    of_rows = rows.columns["source_id"].take(positions)
    refused, languages = await _judge(reader, of_rows.unique(), asker)
    selection = None if len(refused) else positions  # these, of a request without a filter, need no mask
    if len(refused):
        positions = positions[~pc.is_in(of_rows, value_set=refused).to_numpy()]
    mask = None
    if len(positions) < len(rows):
        mask = np.zeros(len(rows), np.bool_)
        mask[positions] = True
    words = cast("WordsInMemory", rows.words)
    return Readable(mask, counted_rows(words, mask), languages, selection)


async def _through_engine(reader: CollectionReader, asker: Asker) -> StrictReader:
    rows = await reader.chunk_rows(lambda query: query.where(asker.readable).select(["source_id"]))
    refused, languages = await _judge(reader, rows["source_id"].unique(), asker)
    refused_ids = sorted(cast("list[str]", refused.to_pylist()))
    hidden = f" AND (NOT {one_of('source_id', refused_ids)})" if refused_ids else ""
    return StrictReader(reader, asker.readable, hidden, languages)


async def _judge(
    reader: CollectionReader, ids: pa.ChunkedArray[Any], asker: Asker
) -> tuple[pa.ChunkedArray[Any], tuple[Language, ...]]:
    """The ids of sources that their own records refuse, and the languages of the other sources."""
    if asker.labels:  # one predicate for all, where reading each source's record takes longer
        admitted = await reader.ids(asker.labels)
    else:
        sources = await reader.sources(cast("list[str]", ids.to_pylist()))
        admitted = pa.chunked_array(
            [[id_ for id_, source in sources.items() if asker.admits(source)]], pa.string()
        )
    is_admitted = pc.is_in(ids, value_set=admitted)
    languages = await _languages(reader, cast("list[str]", ids.filter(is_admitted).to_pylist()))
    return ids.filter(pc.invert(is_admitted)), languages


async def _languages(reader: CollectionReader, ids: Sequence[str]) -> tuple[Language, ...]:
    """As `query_languages`, of a collection that holds only these sources."""
    collection = reader.collection
    if collection.language != "auto":
        return query_languages(collection)
    if len(collection.languages) == 1:  # then every source has it, and none need be read
        return query_languages(replace(collection, languages=collection.languages if ids else ()))
    of_all = await reader.languages()
    counts = Counter(of_all[id_] for id_ in ids if id_ in of_all)
    ranked = sorted(counts, key=lambda language: (-counts[language], language))
    return query_languages(replace(collection, languages=tuple(ranked)))
