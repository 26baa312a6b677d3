"""The rows of a chunk table kept in memory: exact search by meaning, and what lists show of a row.

The engine takes some milliseconds to open an index, measure and read fifty rows, however small the table
is. Where its rows fit into memory, comparing all vectors takes a tenth of that, and is exact.

A copy belongs to one version of the table, so a search uses it only if that is still the newest version, and
asks the engine otherwise. The next copy is then made behind the answer, from the former one and the rows that
are new. That works because the engine never changes the row at an address: it writes changed rows elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakSet

import anyio
import anyio.lowlevel
import numpy as np
import pyarrow as pa
import simsimd
from anyio import to_thread

from rag.errors import StoreError
from rag.runtime import return_memory
from rag.store.read.connection import engine_errors
from rag.store.read.schema import TERMS, vectors_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import lancedb
    import numpy.typing as npt

    from rag.corpus import Vectors

Positions: TypeAlias = "npt.NDArray[np.int64]"
"""Places of rows among those in memory, in order."""
Read: TypeAlias = "Callable[[Any], Awaitable[pa.Table]]"
"""Runs a query of the engine."""

PAUSE_SECONDS = 0.5
"""Before a copy is made: a command that searches once ends first, and a burst of commits is one change."""
BUSY_SHARE = 0.1  # of the time may go into copies, however often the table changes
IDLE_SECONDS = 60.0  # after which a table gives its place to another
READ_ROWS = 1024  # at a time: what the engine reads ahead of more rows is not given back to the system
SCAN_ROWS = 65_536  # that are measured in a millisecond, during which nobody else runs
ATTEMPTS = 3  # at copying one version before the next commit
MEASURED = 3
"""So many times as many rows as wanted are measured again by their full vectors: then recall is 1.0."""
FEW_ROWS = 200  # whose words are kept: a small collection beside a large one often has nothing to say
SELECTIONS = 32  # of rows by a predicate, kept with a copy
STEPS = 127 * 256  # a vector's largest number, in steps of its fine numbers


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """The rows of one version of a table, ordered by address.

    Of `FEW_ROWS` rows and fewer, `words` are all that the full-text index has of them.

    A number of a vector is (256 coarse + fine) * scale, with one scale for each vector, so that its error is
    at most 1/65,000 of the vector's largest number. A search compares the coarse numbers of all vectors, and
    measures the best by all they have. A vector of zeros has the scale 0, and is near to nothing.
    """

    version: int
    addresses: npt.NDArray[np.uint64]
    coarse: npt.NDArray[np.int8]
    fine: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    columns: pa.Table
    words: frozenset[str] | None = None
    selections: dict[str, Positions] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def size(self) -> int:
        """The memory that this takes, in bytes."""
        rows: list[Any] = [self.addresses, self.coarse, self.fine, self.scales, self.columns]
        return sum(array.nbytes for array in [*rows, *self.selections.values()])

    def positions(self, addresses: npt.NDArray[np.uint64]) -> Positions | None:
        """Where the rows at these addresses are; None if one is not here, because it is newer."""
        places = np.searchsorted(self.addresses, addresses)
        if len(addresses) and (places.max() >= len(self) or (self.addresses[places] != addresses).any()):
            return None
        return places

    def has_none_of(self, terms: Iterable[str]) -> bool:
        """Whether it is known that no row has any of these words, so that the index needn't be asked."""
        return self.words is not None and self.words.isdisjoint(terms)

    def vectors(self, positions: Positions) -> Vectors:
        """The vectors of these rows, as `rounded_vectors` has them."""
        return _joined(self.coarse[positions], self.fine[positions], self.scales[positions])

    async def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, among: Positions
    ) -> tuple[Positions, npt.NDArray[np.float32]]:
        """The rows among these that are nearest to `vector`, and their cosine similarity, best first.

        Both `vector` and those of the table have length 1. Among equals, the order is that of the addresses.
        """
        largest = np.abs(vector).max(initial=0)
        if not np.isfinite(largest) or not largest:
            among = among[:0]
        if not len(among):
            return among, np.empty(0, np.float32)
        coarse = np.rint(vector * (127 / largest)).astype(np.int8)
        rough = np.empty(len(among), np.float32)
        for start in range(0, len(among), SCAN_ROWS):
            part = among[start : start + SCAN_ROWS]
            rows = self.coarse[part[0] : part[-1] + 1] if _follow(part) else self.coarse[part]
            products = simsimd.cdist(coarse[None], rows, metric="dot")
            rough[start : start + len(part)] = np.asarray(products)[0] * self.scales[part]
            await anyio.lowlevel.checkpoint()
        rough[self.scales[among] == 0] = -np.inf
        best = _highest(rough, MEASURED * limit)
        chosen = among[best[rough[best] > -np.inf]]
        similarities = cosines(self.vectors(chosen), vector)
        order = np.argsort(-similarities, kind="stable")[:limit]
        return chosen[order], similarities[order]


def rounded_vectors(vectors: Vectors) -> Vectors:
    """Vectors as rows in memory have them, so that a search gives the same whether they are there or not."""
    return _joined(*_split(vectors))


def cosines(vectors: Vectors, vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The cosines of vectors of length 1 to another, each the same whatever the others are."""
    return cast("npt.NDArray[np.float32]", np.einsum("ij,j->i", vectors, vector))


def _follow(positions: Positions) -> bool:
    """Whether no row is left out between these, so that they needn't be copied."""
    return bool(positions[-1] - positions[0] + 1 == len(positions))


def _highest(scores: npt.NDArray[np.float32], count: int) -> Positions:
    """Where the highest scores are, in the order of the scores' places."""
    if count >= len(scores):
        return np.arange(len(scores))
    return np.sort(np.argpartition(scores, len(scores) - count)[-count:])


class MemoryBudget:
    """How many bytes the copies of all tables may take."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.turn = anyio.Lock()  # one copy at a time: what is being made counts for nothing yet
        self._tables: WeakSet[TableInMemory] = WeakSet()

    def count(self, table: TableInMemory) -> None:
        """Count the copies of another table, as long as the table is open."""
        self._tables.add(table)

    async def close(self) -> None:
        """Stop copying."""
        tasks = [table.copying for table in self._tables if table.copying]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def room(self, table: TableInMemory) -> int:
        """How large a copy of this table may be, if those that nobody searches are dropped."""
        return self.limit - sum(other.size for other in self._tables if other is not table and not other.idle)

    def make_room(self, table: TableInMemory, size: int) -> None:
        """Drop what nobody searches, the longest unused first, until so much more fits."""
        others = sorted((other for other in self._tables if other is not table), key=lambda other: other.used)
        for candidate in others:
            if sum(other.size for other in others) + size > self.limit and candidate.idle:
                candidate.drop()


class TableInMemory:
    """A table, and the copy of its newest version that is made behind the searches of it.

    Of a table in a bucket its indexes are read then, too, because a search waits for each part that isn't
    in the engine's cache.
    """

    def __init__(
        self,
        table: lancedb.AsyncTable,
        columns: Sequence[str],
        budget: MemoryBudget,
        *,
        in_bucket: bool = False,
    ) -> None:
        self._table = table
        self._columns = columns
        self._budget = budget
        self._in_bucket = in_bucket
        self._indexes_of = -1  # the version whose indexes were read
        budget.count(self)
        self._rows: RowsInMemory | None = None
        self.copying: asyncio.Task[None] | None = None
        self._seconds = 0.0  # that the last copy took
        self._misfit: tuple[int, int] | None = None  # so many rows didn't fit into so many bytes
        self._selecting: dict[str, anyio.Lock] = {}
        self.used = time.monotonic()

    @property
    def size(self) -> int:
        """The bytes of the copy."""
        return self._rows.size if self._rows else 0

    @property
    def idle(self) -> bool:
        """Whether nobody searched it lately."""
        return time.monotonic() - self.used > IDLE_SECONDS

    def drop(self) -> None:
        """Forget the copy."""
        self._rows = None

    async def wait_until_filled(self) -> None:
        """Wait until the first copy is made, or doesn't fit or fails."""
        if self.copying is None:
            self._begin()
        if self.copying:
            await asyncio.wait([self.copying])

    def _begin(self) -> None:
        # Not in a task group: the search that begins it doesn't wait for its end.
        self.copying = asyncio.get_running_loop().create_task(self._copy(), context=Context())

    async def selection(self, where: str, version: int, read: Read) -> tuple[RowsInMemory, Positions] | None:
        """The rows of a version, the newest, and those among them that satisfy the predicate.

        None while they are not in memory. The engine evaluates a predicate once for each version, by `read`.
        """
        self.used = time.monotonic()
        rows = self._rows
        if rows is None or rows.version != version:
            if self.copying is None or self.copying.done():
                self._begin()
            return None
        if (among := rows.selections.get(where)) is not None:
            return rows, among
        # The lists of a search ask for the same rows at the same time; nobody waits for another predicate.
        async with self._selecting.setdefault(where, anyio.Lock()):
            try:
                among = rows.selections.get(where)
                if among is None:
                    among = rows.positions(_addresses(await read(self._having(where))))
                    if among is None or await self._table.version() != rows.version:
                        return None
                    while len(rows.selections) >= SELECTIONS:
                        del rows.selections[next(iter(rows.selections))]
                    rows.selections[where] = among
            finally:
                self._selecting.pop(where, None)
        return rows, among

    def _having(self, where: str) -> Any:  # noqa: ANN401 the engine's query classes share no base
        return self._table.query().where(where).with_row_id().select(["_rowid"])

    async def _copy(self) -> None:
        await anyio.sleep(max(PAUSE_SECONDS, self._seconds / BUSY_SHARE))
        # The log says what a failure was. The engine still answers, or says what is wrong; and the former
        # copy, which no search uses now, spares the next one most of the reading.
        with suppress(StoreError):
            async with self._budget.turn:
                began = time.monotonic()
                with engine_errors("keeping rows in memory"):
                    await self._make_copy()
                    await self._read_indexes()
                self._seconds = time.monotonic() - began
        await to_thread.run_sync(return_memory)  # that held what was read

    async def _read_indexes(self) -> None:
        version = await self._table.version()
        if self._in_bucket and self._indexes_of != version:
            await read_indexes(self._table)
            self._indexes_of = version

    async def _make_copy(self) -> None:
        for _ in range(ATTEMPTS):
            version = await self._table.version()
            addresses = _addresses(await self._having("(true)").to_arrow())
            room = self._budget.room(self)
            rows = None
            if not self._misfit or len(addresses) < self._misfit[0] or room > self._misfit[1]:
                rows = await self._read(version, addresses, room)
            if rows is None:
                self._misfit = len(addresses), room
                self.drop()
                return
            if await self._table.version() == version:
                self._budget.make_room(self, rows.size)
                self._rows = rows
                return

    async def _read(self, version: int, addresses: npt.NDArray[np.uint64], room: int) -> RowsInMemory | None:
        """The rows at these addresses, from the former copy and the table; None if they don't fit."""
        schema = await self._table.schema()
        dimension = schema.field("vector").type.list_size
        vectors_size = 2 * dimension * len(addresses)
        if vectors_size > room:
            return None
        former = self._rows or _no_rows(dimension, schema.empty_table().select(self._columns))
        new = await to_thread.run_sync(np.setdiff1d, addresses, former.addresses)
        coarse, fine = np.zeros((2, len(new), dimension), np.int8)
        scales = np.zeros(len(new), np.float32)
        columns: list[pa.Table] = []
        for start in range(0, len(new), READ_ROWS):
            part = slice(start, start + READ_ROWS)
            rows = await self._at(new[part])
            coarse[part], fine[part], scales[part] = _split(vectors_of(rows))
            columns.append(rows.select(self._columns).combine_chunks())
            if sum(rows.nbytes for rows in columns) + vectors_size > room:
                return None
        read = RowsInMemory(
            version, new, coarse, fine, scales, pa.concat_tables([former.columns[:0], *columns])
        )
        words = await self._words() if len(addresses) <= FEW_ROWS and TERMS in schema.names else None
        merged = await to_thread.run_sync(_merged, former, read, addresses)
        return replace(merged, version=version, words=words) if merged.size <= room else None

    async def _words(self) -> frozenset[str] | None:
        """All words of the rows, None while some lack theirs."""
        column = (await self._table.query().select([TERMS]).to_arrow())[TERMS]
        texts = cast("list[str]", column.to_pylist())
        return None if column.null_count else frozenset(word for text in texts for word in text.split())

    async def _at(self, addresses: npt.NDArray[np.uint64]) -> pa.Table:
        """The rows at these addresses, in their order."""
        query = self._table.take_row_ids(addresses.tolist()).with_row_id()
        rows = await query.select([*self._columns, "vector", "_rowid"]).to_arrow()
        return rows.sort_by("_rowid")


async def read_indexes(table: lancedb.AsyncTable) -> None:
    """Read the indexes of a table into the engine's cache."""
    for index in await table.list_indices():
        await table.prewarm_index(index.name)


def _no_rows(dimension: int, columns: pa.Table) -> RowsInMemory:
    none = np.zeros((0, dimension), np.int8)
    return RowsInMemory(0, np.empty(0, np.uint64), none, none, np.empty(0, np.float32), columns)


def _merged(former: RowsInMemory, new: RowsInMemory, addresses: npt.NDArray[np.uint64]) -> RowsInMemory:
    """The rows at these addresses, each of which one of the two has."""
    is_old = np.isin(addresses, former.addresses)
    places = np.searchsorted(former.addresses, addresses[is_old])

    def joined(old: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows = np.empty((len(addresses), *old.shape[1:]), old.dtype)
        rows[is_old], rows[~is_old] = old[places], added
        return rows

    order = np.argsort(np.concatenate([np.flatnonzero(is_old), np.flatnonzero(~is_old)]))
    columns = pa.concat_tables([former.columns.take(places), new.columns]).take(order).combine_chunks()
    return RowsInMemory(
        new.version,
        addresses,
        joined(former.coarse, new.coarse),
        joined(former.fine, new.fine),
        joined(former.scales, new.scales),
        columns,
    )


def _addresses(rows: pa.Table) -> npt.NDArray[np.uint64]:
    """The addresses of rows, in order."""
    return np.sort(rows["_rowid"].to_numpy())


def _joined(
    coarse: npt.NDArray[np.int8], fine: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]
) -> Vectors:
    """The inverse of `_split`."""
    return (coarse.astype(np.float32) * 256 + fine) * scales[:, None]


def _split(vectors: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """The coarse and the fine numbers of vectors, and their scales."""
    scales = np.abs(vectors).max(axis=1) / STEPS
    numbers = np.rint(vectors / np.where(scales, scales, 1)[:, None]).astype(np.int32)
    coarse = (numbers + 128) >> 8
    return coarse.astype(np.int8), (numbers - coarse * 256).astype(np.int8), scales.astype(np.float32)
