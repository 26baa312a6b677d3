"""Lists as if a collection contained only what one principal may read.

The engine counts words over all rows, whoever may see them, and where it cuts a list depends on these counts,
on the structure of an index and on the order of rows. So scores can reveal what others may read. Here a
sparse search asks the engine only which readable rows contain a word, and scores them by counts over readable
rows. A dense search measures every readable row. Ties are ordered by id, also where a list is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
from lancedb.query import FullTextOperator, MatchQuery

from rag.store.matches import Matches, Rows
from rag.store.reader import CHUNK_COLUMNS, Scored, stored_chunks
from rag.store.schema import TERMS, one_of
from rag.store.terms import MAX_TERMS, index_terms, stems

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from rag.store.reader import CollectionReader, Ranking, StoredSource

ALL = 2**31 - 1  # rows: the engine must not cut, since it cuts by its own counts
COUNTED = 4  # times as many rows as needed are scored by word frequencies
TIED = 4  # times as many rows are fetched if a tie crosses the cut


@dataclass(frozen=True, slots=True)
class StrictReader:
    """The lists of a collection for one principal, made for one search.

    `readable` is the predicate of what the principal may read. `hidden` is appended to every predicate; it
    leaves out sources whose record differs from the copies that the engine filters by. `rows` are the rest.
    """

    reader: CollectionReader
    readable: str
    hidden: str
    rows: Rows

    async def dense(
        self,
        vector: npt.NDArray[np.float32],
        limit: int,
        where: str,
        *,
        probes: int = 0,  # noqa: ARG002 without an index there is nothing to probe
        refine: int = 0,  # noqa: ARG002 and nothing to refine
    ) -> Ranking:
        """As `CollectionReader.dense`, by the true distances of all readable rows."""
        taken = limit + 1
        rows = await self._nearest(vector, taken, where)
        while rows.num_rows == taken and rows["_distance"][limit - 1] == rows["_distance"][-1]:
            taken *= TIED
            rows = await self._nearest(vector, taken, where)
        first = rows.slice(0, limit)
        distances = cast("list[float]", first["_distance"].to_pylist())
        pairs = zip(stored_chunks(first), distances, strict=True)
        return [Scored(stored, 1.0 - distance) for stored, distance in pairs]

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
        """As `CollectionReader.sparse`, with the scores of a collection without the other rows.

        Only the best `COUNTED * limit` rows get one. They are chosen by a score that counts each word once
        per row, and takes their length in the embedder's tokens.

        Raises:
            NotReadyError: the collection has no full-text index.
        """
        column = await self.reader.words_column()
        language = self.reader.collection.language
        terms = index_terms(text, language)[:MAX_TERMS]
        words = [term.stem if column == TERMS else term.word for term in terms]
        holds = [await self._holding(word, column, self.readable) for word in words]
        known = Matches(self.rows, [term.stem for term in terms], holds)
        among = None
        if terms and (every or where != self.readable):
            operator = FullTextOperator.AND if every else FullTextOperator.OR
            among = await self._holding(" ".join(words), column, where, operator)
        indexes = known.first(COUNTED * limit, among)
        rows = await self.reader.chunks(list(indexes), where + self.hidden)
        scores = known.scores([(indexes[row.id], stems(row.body, language)) for row in rows])
        rarest = log(max(len(self.rows), 2))
        scored = [Scored(row, score / rarest) for row, score in zip(rows, scores, strict=True)]
        return sorted(scored, key=lambda one: (-one.score, one.stored.id, one.stored.generation))[:limit]

    async def _holding(
        self, words: str, column: str, where: str, operator: FullTextOperator = FullTextOperator.AND
    ) -> npt.NDArray[np.bool_]:
        """Which of the rows contain the words."""
        match = MatchQuery(words, column, operator=operator)  # type: ignore[call-arg]  # they default
        found = await self.reader.chunk_rows(
            lambda query: (
                query.nearest_to_text(match).where(where + self.hidden).select(["id", "_score"]).limit(ALL)
            )
        )
        return self.rows.marked(found["id"])


async def readable_only(
    reader: CollectionReader, readable: str, admits: Callable[[StoredSource], bool]
) -> StrictReader:
    """The rows that satisfy the predicate `readable` and whose source's own record admits them."""
    columns = ["id", "source_id", "tokens"]
    rows = await reader.chunk_rows(lambda query: query.where(readable).select(columns))
    ids = cast("list[str]", rows["source_id"].unique().to_pylist())
    sources = await reader.sources(ids)
    refused = sorted(id_ for id_ in ids if id_ not in sources or not admits(sources[id_]))
    hidden = ""
    if refused:
        hidden = f" AND (NOT {one_of('source_id', refused)})"
        rows = rows.filter(pc.invert(pc.is_in(rows["source_id"], value_set=pa.array(refused))))
    tokens = rows["tokens"].to_numpy()
    lengths = tokens * (len(tokens) / max(int(tokens.sum()), 1))
    return StrictReader(reader, readable, hidden, Rows(rows["id"].combine_chunks(), lengths))
