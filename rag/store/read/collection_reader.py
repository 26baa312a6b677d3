"""Reads the chunks of one collection: rankings by meaning and by words, and chunks by id or place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from math import log
from typing import TYPE_CHECKING, cast

import anyio
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread
from lancedb.query import BooleanQuery, FullTextOperator, MatchQuery, Occur

from rag.corpus import Chunk, Collection, Language
from rag.errors import BusyError
from rag.filters.grammar import literal
from rag.store.read import schema
from rag.store.read.connection import engine_errors
from rag.store.read.rows_in_memory import (
    SMALL_TABLE,
    MemoryBudget,
    RowsInMemory,
    TableInMemory,
    cosines,
    read_indexes,
    rounded_vectors,
    selector,
)
from rag.store.read.sources_reader import NAMES_GROUP, REPLACED, AccessReader, SourcesReader
from rag.store.read.word_analysis import (
    MAX_TERMS,
    Word,
    query_languages,
    query_terms,
    query_words,
    search_terms,
    terms_of_forms,
)
from rag.store.read.words_in_memory import (
    NO_WORDS,
    CountedRows,
    FormCounts,
    Positions,
    WordsInMemory,
    best_first,
    counted_rows,
    highest,
    merged_words,
    score_with_spellings,
    words_of,
    words_of_rows,
)

if TYPE_CHECKING:
    import lancedb
    import numpy.typing as npt
    from lancedb.query import FullTextQuery

REFINED = 2  # oversampling: 2 x limit are ranked by true distance; with 1, recall@20 is .98 of 100,000
SCANS = 3  # attempts to read chunks while they are replaced
NARROW_FROM, NARROW_SHARE = 200_000, 0.01
"""In a table of 200,000 chunks or more, a search of at most 1 % of them compares each and skips the index.

Of a million chunks, 90 take 12 ms of CPU instead of 30, and 9,000 take 35 instead of 45. Of 100,000 chunks,
the index makes no difference.
"""
ROW_COLUMNS = ["id", "generation"]
FEW_ROWS = 10_000  # up to here, reading words (0.8 s of CPU) beats waiting for a copy; 250,000 take 18 s
RENEWAL_SECONDS = 1.0  # a search of few rows waits so long for a copy, then goes through the engine
WORDS_ROWS = 8192  # rows whose words are read at a time
SCANNING = ("regexp_like(", "contains(")  # no index answers them: counting would cost what a search does


@dataclass(slots=True)
class SupersededIndexes:
    """How often indexes were rewritten since the engine's cache was new. The cache keeps their files open."""

    count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)

    def note_size(self, table: str, size: int) -> None:
        """Note how large the indexes of a table are now, in bytes."""
        self.count += self.sizes.get(table, size) != size
        self.sizes[table] = size


class CollectionReader(SourcesReader):
    """The tables of one collection, opened for reading. `scans` limits the scans that run at once.

    The flags differ for attached tables: without a full-text index, `by_words` is false; a table that
    `failed` has no results, while our own tables raise; one that `retrieves` gets its passages from a
    retriever of the operator (`rag.search.retrievers`).
    """

    by_words = True
    failed = False
    retrieves = False

    def __init__(  # noqa: PLR0913 shared by the readers of a data folder
        self,
        collection: Collection,
        chunks: lancedb.AsyncTable,
        sources: lancedb.AsyncTable,
        access: AccessReader,
        *,
        timeout_seconds: float,
        scans: anyio.CapacityLimiter,
        url: str = "",
        memory: MemoryBudget | None = None,
        in_bucket: bool = False,
        superseded: SupersededIndexes | None = None,
    ) -> None:
        super().__init__(collection, chunks, sources, access, timeout_seconds=timeout_seconds, url=url)
        self.scans = scans
        self.memory = (
            TableInMemory(chunks, schema.CHUNK_COLUMNS, memory, in_bucket=in_bucket) if memory else None
        )
        self.index_bytes = 0
        self._words: tuple[int, str] = (-1, "")  # the latest version that was looked at, and its column
        self._superseded = superseded

    def close(self) -> None:
        """Forget the rows in memory. Searches that still use this reader go through the engine."""
        if self.memory:
            self.memory.close()

    async def dense(self, vector: npt.NDArray[np.float32], limit: int, where: str) -> schema.Ranking:
        """The chunks nearest to `vector`, with their cosine similarity.

        Exact if the table's rows are in memory, and in a narrow part of a large collection. Otherwise the
        vector index proposes `REFINED` times as many chunks, which are ranked by their true distance.
        """
        with engine_errors("searching by meaning"):
            if copy := await self.rows_in_memory(where):
                rows, among = copy
                return ranking_of_copy(rows, *await rows.nearest(vector, limit, among))
            query = self._chunks.query().nearest_to(vector).distance_type("cosine")  # all metrics agree
            # Refined, because a quantized index returns approximate distances.
            # Probe all partitions of the index: with some, a filter or narrow rights would starve the search.
            query = query.maximum_nprobes(0).refine_factor(REFINED)
            if await self._is_narrow(where):
                query = query.bypass_vector_index()
            columns = [*schema.CHUNK_COLUMNS, "vector", "_distance", *(["_rowid"] if self.memory else [])]
            hits = await self._table(query.where(where).select(columns).limit(limit))
        return self.by_distance(hits, vector)

    def by_distance(self, hits: pa.Table, vector: npt.NDArray[np.float32]) -> schema.Ranking:
        """The ranking of rows that the engine found near a vector, nearest first."""
        if self.memory:  # as `RowsInMemory.nearest`, so that results are the same before and after the copy
            vectors = rounded_vectors(schema.vectors_of(hits))
            similarities = cosines(vectors, vector)
            order = best_first(similarities, len(similarities), hits["id"])
            return _ranking(schema.stored_chunks(hits.take(order), vectors[order]), similarities[order])
        return _ranking(schema.stored_chunks(hits), 1.0 - hits["_distance"].to_numpy())

    async def _is_narrow(self, where: str) -> bool:
        """Whether few enough chunks satisfy the predicate to compare each without the index."""
        if await self._count_chunks() < NARROW_FROM or any(function in where for function in SCANNING):
            return False
        return await self._chunks.count_rows(where) <= await self._count_chunks() * NARROW_SHARE

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> schema.Ranking:
        """The chunks that contain any word of `text`, or `every` one, with their BM25 scores.

        A score is divided by the weight of a word that is in one chunk only, so scores of one query compare
        across tables. Stop words don't count, nor do words beyond the first `MAX_TERMS`. Ties are ordered by
        id unless the engine's index is searched.
        """
        languages = query_languages(self.collection)
        copy = await self.rows_in_memory(where)
        if copy and copy[0].words:
            return await to_thread.run_sync(partial(rank_words, text, languages, *copy, limit, every=every))
        column = await self.words_column()
        if not column:
            words = await to_thread.run_sync(query_words, text, languages)
            return await self.sparse_by_scan(words, (), limit, where, among="(true)", every=every)
        with engine_errors("searching by words"):
            words = []
            if column == schema.TERMS:
                words = await to_thread.run_sync(query_words, text, languages)
                match = matching(words, every=every)
            else:  # an attached table, whose words the engine analyses
                match = words_in(column, query_terms(text, languages)[:MAX_TERMS], every=every)
            query = self._chunks.query().nearest_to_text(match).where(where)
            columns = [*schema.CHUNK_COLUMNS, "vector", "_score", *([schema.TERMS] if words else ())]
            hits = await self._table(query.select(columns).limit(limit))
            rarest = rarest_weight(await self._count_chunks())
        words_of_hits = None
        if words:
            in_hits = words_of(hits[schema.TERMS].combine_chunks(), only=terms_of_forms(words))
            words_of_hits = words_of_rows(in_hits, words, np.arange(len(hits)))
        return _ranking(self._stored_chunks(hits), hits["_score"].to_numpy() / rarest, words_of_hits)

    async def sparse_by_scan(  # noqa: PLR0913 a query and its scoring
        self,
        words: Sequence[Word],
        spellings: Sequence[Word],
        limit: int,
        where: str,
        *,
        among: str,
        every: bool,
        pooled: FormCounts | None = None,
    ) -> schema.Ranking:
        """As `sparse`, without an index: words are counted over the rows `among`, or use `pooled` counts.

        `spellings` are searched for besides the words. It reads the table several times, and starts over if
        chunks were replaced in between.
        """
        for attempt in range(1, SCANS + 1):
            rows, in_rows = await self.words(among, [*words, *spellings])
            over = replace(counted_rows(in_rows), pooled=pooled)
            score = partial(score_with_spellings, in_rows, words, spellings, over, every=every)
            scores = await to_thread.run_sync(score)
            if where != among:  # words count over all readable rows, of which the filter's are ranked
                chosen = await self.chunk_rows(lambda query: query.where(where).select(["id"]))
                scores[~pc.is_in(rows["id"], value_set=chosen["id"]).to_numpy()] = 0
            matching = np.flatnonzero(scores)
            best = matching[best_first(scores[matching], limit, rows["id"].take(matching))]
            keys = [*zip(*(rows[name].take(best).to_pylist() for name in ROW_COLUMNS), strict=True)]
            chunks = await self.chunks([id_ for id_, _ in keys], where)
            # By generation, because the same id is another chunk after a replacement.
            stored = {(chunk.id, chunk.generation): chunk for chunk in chunks}
            if attempt == SCANS or stored.keys() >= {*keys}:
                break
        shares = (scores[best] / rarest_weight(over.all_rows)).tolist()
        ranked = zip(keys, shares, words_of_rows(in_rows, words, best), strict=True)
        return [schema.ScoredChunk(stored[key], *values) for key, *values in ranked if key in stored]

    async def words_column(self) -> str:
        """The column of the full-text index; empty without one, as in a small table."""
        await self.look_at_indexes()
        return self._words[1]

    async def rows_in_memory(
        self, where: str, version: int | None = None
    ) -> tuple[RowsInMemory, Positions] | None:
        """The table's rows in memory and those among them that satisfy the predicate, None without a copy.

        `version` is the newest of the chunk table, if the caller has just asked for it.
        """
        if self.memory is None:
            return None
        with engine_errors("looking for rows in memory"):
            newest = await self._chunks.version() if version is None else version
            return await self.memory.selection(where, newest, self._table)

    async def renewed_rows(self, where: str) -> tuple[RowsInMemory, Positions] | None:
        """As `rows_in_memory`, after waiting for a copy of the newest version, if the table can have one.

        A small table gets its first copy at once: that costs less than one search without it. A large copy
        takes seconds, but reading the words of many rows takes as long, and the copy serves later searches,
        too. A search of few rows doesn't wait for a first copy, and `RENEWAL_SECONDS` for a renewed one.
        """
        copy = await self.rows_in_memory(where)
        if copy is None and self.memory and await self.expects_rows_in_memory():
            is_small = await self._count_chunks() <= SMALL_TABLE
            with engine_errors("counting"):
                waits = is_small or await self._chunks.count_rows(where) > FEW_ROWS
            await self.memory.renew(None if waits else RENEWAL_SECONDS, where if is_small else "")
            copy = await self.rows_in_memory(where)
        return copy

    async def expects_rows_in_memory(self) -> bool:
        """Whether the table's rows are in memory, or will soon be."""
        if self.memory is None:
            return False
        with engine_errors("counting"):
            return self.memory.expects_copy(await self._count_chunks(), self.collection.embedder.dimension)

    async def _count_chunks(self) -> int:
        """The number of chunks; cached like the summaries of sources."""
        if self._chunk_count is None:
            self._chunk_count = await self._chunks.count_rows()
        return self._chunk_count

    async def chunks(self, ids: Sequence[str], where: str) -> list[schema.StoredChunk]:
        """The chunks of these ids that exist, of any generation, in no order."""
        if not ids:
            return []
        rows = await self.chunk_rows(
            lambda query: query.where(f"{schema.one_of('id', ids)} AND {where}").select(
                [*schema.CHUNK_COLUMNS, "vector"]
            )
        )
        return self._stored_chunks(rows)

    def _stored_chunks(self, rows: pa.Table) -> list[schema.StoredChunk]:
        return schema.stored_chunks(rows, rounded_vectors(schema.vectors_of(rows)) if self.memory else None)

    async def chunk_rows(self, build: Callable[[lancedb.AsyncQuery], object]) -> pa.Table:
        """The rows of a query of the chunk table; `build` adds conditions and columns to a blank query."""
        with engine_errors("reading chunks"):
            return await self._table(build(self._chunks.query()))

    async def words(self, where: str, query: Sequence[Word]) -> tuple[pa.Table, WordsInMemory]:
        """The ids and generations of the chunks that satisfy the predicate, and their words of a query.

        It takes little memory and, without an index, time in proportion to the chunks.
        """
        with engine_errors("reading words"):
            return await self._of_newest(partial(self._read_words, where, terms_of_forms(query)))

    async def all_words(self, where: str) -> tuple[pa.Table, WordsInMemory]:
        """As `words`, with every word of these chunks. It takes as much memory as in a copy."""
        with engine_errors("reading words"):
            return await self._of_newest(partial(self._read_words, where, None))

    async def _read_words(self, where: str, only: frozenset[str] | None) -> tuple[pa.Table, WordsInMemory]:
        query = self._chunks.query().where(where).select([*ROW_COLUMNS, schema.TERMS])
        batches = await query.to_batches(max_batch_length=WORDS_ROWS, timeout=self._timeout)
        rows, count = [pa.Table.from_batches([], batches.schema).select(ROW_COLUMNS)], 0
        parts = [(NO_WORDS, np.arange(0))]
        async for batch in batches:
            terms = batch[schema.TERMS].fill_null("")
            words = await to_thread.run_sync(partial(words_of, terms, only=only))
            parts.append((words, np.arange(count, count + len(batch))))
            rows.append(pa.Table.from_batches([batch]).select(ROW_COLUMNS))
            count += len(batch)
        return pa.concat_tables(rows), merged_words(parts, count)

    async def bodies(self) -> list[str]:
        """The embedded text of each chunk, of any generation, in no order, without a time limit."""
        with engine_errors("reading chunks"):
            rows = await self._chunks.query().select(["body"]).to_arrow()
        return cast("list[str]", rows["body"].to_pylist())

    async def chunks_touching(
        self, source: schema.StoredSource, start: int, end: int, where: str
    ) -> tuple[Chunk, ...]:
        """The visible chunks of a source that touch its text[start:end], in order.

        Raises:
            BusyError: the source was replaced since it was read.
        """
        return await self._visible(source, f"(start < {end:d}) AND (end > {start:d}) AND {where}")

    async def chunks_between(
        self, source: schema.StoredSource, first: int, last: int, where: str
    ) -> tuple[Chunk, ...]:
        """The visible chunks of a source whose seq is from `first` to `last`, both included, in order.

        Raises:
            BusyError: the source was replaced since it was read.
        """
        return await self._visible(source, f"(seq >= {first:d}) AND (seq <= {last:d}) AND {where}")

    async def _visible(self, source: schema.StoredSource, condition: str) -> tuple[Chunk, ...]:
        visible = f"(source_id = {literal(source.source.id)}) AND (generation = {literal(source.generation)})"
        with engine_errors("reading chunks"):
            rows = await self._rows(
                self._chunks.query().where(f"{visible} AND {condition}").select(schema.CHUNK_COLUMNS)
            )
        if not rows and await self._is_replaced(source):  # otherwise the caller may see none of them
            raise BusyError(REPLACED)
        return tuple(sorted((schema.chunk_of_row(row) for row in rows), key=lambda chunk: chunk.seq))

    async def _is_replaced(self, source: schema.StoredSource) -> bool:
        now = (await self.sources([source.source.id])).get(source.source.id)
        return now is None or now.generation != source.generation

    async def matching_sources(
        self, where: str, *, after: str = "", first: int | None = None, rows: int | None = None
    ) -> list[schema.ListedSource]:
        """The sources whose ids follow `after` and whose first chunk satisfies the predicate, in order.

        `first` caps the sources; `rows` caps the chunk rows that are read.
        """
        condition = f"(seq = 0) AND (source_id > {literal(after)}) AND {where}"

        def first_chunks(query: lancedb.AsyncQuery) -> object:
            selected = query.where(condition).select(["source_id", "generation", "revision"])
            return selected if rows is None else selected.limit(rows)

        chosen = (await self.chunk_rows(first_chunks)).to_pylist()
        # The engine returns rows in no order, so all ids are read to find the first ones.
        ids = {*sorted({row["source_id"] for row in chosen})[:first]}
        sources = await self.sources(ids)
        listed = [
            schema.ListedSource(source, row["generation"], row["revision"])
            for row in chosen
            if (source := sources.get(row["source_id"]))
        ]
        # A source that is being replaced has first chunks of two generations. The visible one is sorted last
        # and overwrites the other in the dictionary.
        listed.sort(key=lambda entry: entry.generation == entry.stored.generation)
        by_id = {entry.stored.source.id: entry for entry in listed}
        return [by_id[id_] for id_ in sorted(by_id)]

    async def warm(self) -> None:
        """Read the rows, indexes and access records that a first search in a bucket would wait for."""
        await self.uncopied_records()
        await self.expiries()
        await self.has_any(NAMES_GROUP)  # reads the index on labels; any predicate on them does
        with engine_errors("reading indexes"):
            await read_indexes(self._sources)
            first = await self._rows(self._sources.query().select(["id"]).limit(1))
            await self.sources(row["id"] for row in first)  # reads where each file has its columns
            if self.memory:
                await self.memory.wait_until_filled()
            else:
                await read_indexes(self._chunks)

    async def look_at_indexes(self) -> None:
        """Note the indexes of the newest version, and their size in `index_bytes`."""
        with engine_errors("listing indexes"):
            version = await self._chunks.version()
            if self._words[0] != version:
                indexes = await self._chunks.list_indices()
                indexed = {name for index in indexes for name in index.columns}
                self._words = version, schema.TERMS if schema.TERMS in indexed else ""
                self.index_bytes = sum(index.size_bytes or 0 for index in indexes)
                if self._superseded:
                    self._superseded.note_size(self._chunks.name, self.index_bytes)

    async def statistics(self) -> schema.Statistics:
        """Numbers for operators."""
        with engine_errors("counting"):
            indexes = await self._chunks.list_indices()
            rows = await self._rows(self._sources.query().select(["digest"]))
            return schema.Statistics(
                sources=len(rows),
                chunks=await self._chunks.count_rows(),
                without_vector=sum(schema.split_digest(row["digest"])[1] for row in rows),
                indexes=tuple(sorted(f"{index.columns[0]} ({index.index_type})" for index in indexes)),
                unindexed=max((index.num_unindexed_rows or 0 for index in indexes), default=0),
            )


def words_in(column: str, words: Iterable[str], *, every: bool) -> MatchQuery:
    """The engine's query for rows that have any of these words in a column, or every one."""
    operator = FullTextOperator.AND if every else FullTextOperator.OR
    return MatchQuery(" ".join(words), column, operator=operator)  # type: ignore[call-arg]  # others default


def matching(words: Sequence[Word], *, every: bool) -> FullTextQuery:
    """The engine's query for chunks that have any of these words in any form, or every one in some form."""
    if not every:
        return words_in(schema.TERMS, search_terms(words), every=False)
    words = words[:MAX_TERMS]
    if all(len(word.forms) == 1 for word in words):
        return words_in(schema.TERMS, (term for word in words for term in word.forms[0]), every=True)
    return BooleanQuery([(Occur.MUST, _in_any_form(word)) for word in words])


def _in_any_form(word: Word) -> FullTextQuery:
    forms = [words_in(schema.TERMS, form, every=True) for form in word.forms]
    return BooleanQuery([(Occur.SHOULD, query) for query in forms])


def rarest_weight(rows: int) -> float:
    """The weight of a word that only one of the `rows` contains."""
    return log(max(rows, 2))


def rank_words(  # noqa: PLR0913 a query, and what it is scored by
    text: str,
    languages: Sequence[Language],
    rows: RowsInMemory,
    among: Positions,
    limit: int,
    *,
    every: bool,
    over: CountedRows | None = None,
    spellings: Sequence[Word] = (),
) -> schema.Ranking:
    """The ranking of rows `among` those in memory, as `CollectionReader.sparse` has it.

    Words are counted `over` these rows, by default over all. `spellings` are searched for besides the words.
    """
    words = cast("WordsInMemory", rows.words)
    over = over or counted_rows(words)
    query = query_words(text, languages)
    scores = score_with_spellings(words, query, spellings, over, every=every)
    scores_among = scores[selector(among)]
    places = highest(scores_among, limit)  # all if fewer have a word: then rows without one tie with the last
    matching = among[places[scores_among[places] > 0]]
    best = matching[best_first(scores[matching], limit, rows.columns["id"].take(matching))]
    of_rows = words_of_rows(words, query, best)
    return ranking_of_copy(rows, best, scores[best] / rarest_weight(over.all_rows), of_rows)


def ranking_of_copy(
    rows: RowsInMemory,
    positions: Positions,
    scores: npt.NDArray[np.floating],
    words: Sequence[frozenset[str]] | None = None,
) -> schema.Ranking:
    """The rows at these positions with their scores and, in a ranking by words, their words of the query."""
    return _ranking(
        schema.stored_chunks(rows.columns.take(positions), rows.vectors(positions)), scores, words
    )


def _ranking(
    chunks: Iterable[schema.StoredChunk],
    scores: npt.NDArray[np.floating],
    words: Sequence[frozenset[str]] | None = None,
) -> schema.Ranking:
    words_of_chunks = words if words is not None else repeat(None, len(scores))
    columns = zip(chunks, scores.tolist(), words_of_chunks, strict=True)
    return [schema.ScoredChunk(stored, score, words) for stored, score, words in columns]
