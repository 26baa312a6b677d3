"""Keeps the rows of a chunk table in memory, for exact search by meaning and by words.

The engine takes some milliseconds to open an index, compare and read fifty rows, even in a small table. With
the rows in memory, comparing all vectors takes a tenth of that, and is exact. So does scoring by words
(`words_in_memory`).

A copy belongs to one version of the table. A search uses it only if that is still the newest version, and
asks the engine otherwise. Then the next copy is made in the background, from the former copy and the new
rows: the engine never changes the row at an address, it writes changed rows elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import anyio.lowlevel
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import simsimd
from anyio import to_thread

from rag.corpus import Language, Vectors
from rag.errors import StoreError
from rag.runtime import keep_latest, memory_bytes, return_memory
from rag.store.read.connection import engine_errors
from rag.store.read.schema import TERMS, vectors_of
from rag.store.read.words_in_memory import (
    NO_WORDS,
    CountedRows,
    Mask,
    Positions,
    WordsInMemory,
    best_first,
    highest,
    merged_words,
    words_of,
)

if TYPE_CHECKING:
    import lancedb
    import numpy.typing as npt

Read: TypeAlias = "Callable[[Any], Awaitable[pa.Table]]"
"""Runs a query of the engine."""

PAUSE_SECONDS = 0.5
"""Debounce before a copy: a command that searches once ends first, and a burst of commits is one change."""
BUSY_SHARE = 0.1  # of the time may go into copies, however often the table changes
IDLE_SECONDS = 60.0  # without a search, after which another table may evict the copy
READ_ROWS = 1024  # at a time: the engine doesn't return the memory of a larger read-ahead to the system
SMALL_TABLE = 10_000  # rows, read at once for the first search: its scans would take as long as that
SCANNED_AT_ONCE = 20_000  # rows, in 0.4 ms; more are scanned in a thread, so that the event loop goes on
COPIED_AT_ONCE = 32  # rows, in 1 ms or two; more are copied in a thread, likewise
COMPARED_AT_ONCE = 16_384  # rows: the products of a million would be new pages, which cost 6 ms to clear
SPARSE = 3  # if the wanted rows are a third of a range, comparing all of it beats copying them
FEW_RUNS = 2_000  # runs of consecutive rows that Arrow copies; with more, row by row is faster
ATTEMPTS = 3  # to copy one version before the next commit
OVERSAMPLING = 3  # times the limit are rescored at full precision: then recall is 1.0
OBJECTS_BYTES = 20_000  # of a copy, however few rows it has: Arrow's and NumPy's objects
LEAST_BYTES = 300  # of a row's words and columns; tables that can't fit even so are not read
USUAL_BYTES = 1_200  # the same, for passages of 750 characters
MOST_SHARE = 1 / 8  # of the machine's memory; no larger setting is suggested
SELECTIONS = 32  # results of predicates that are kept with a copy; the oldest is evicted first
JUST_MISSED = (
    "The %d passages of %s don't fit into search.memory_bytes (%d MB), so searches go through their index. "
    "They would take less CPU in memory, where passages need about %d MB: search.memory_bytes = %d."
)
_CHOSEN = "chosen"  # a computed column: whether a row satisfies the predicate
STEPS = 127 * 256  # the largest number of a vector, in fine steps: 127 coarse ones of 256 each

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readable:
    """The rows that a principal may read, over which words are counted, and the languages of their sources.

    `mask` is None if all rows are readable. `selection` are the rows of the predicate, if all are readable.
    """

    mask: Mask | None
    over: CountedRows
    languages: tuple[Language, ...]
    selection: Positions | None = None

    @property
    def nbytes(self) -> int:
        """The memory that this takes, in bytes."""
        return self.over.norms.nbytes + (0 if self.mask is None else self.mask.nbytes)

    def among(self, positions: Positions) -> Positions:
        """The readable ones of these positions."""
        if self.mask is None or positions is self.selection:  # a request without a filter
            return positions
        return positions[self.mask[positions]]


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """The rows of one version of a table, ordered by address.

    A component of a vector is (256 coarse + fine) * scale, with one scale for each vector. So its error is at
    most 1/65,000 of the largest component. A vector of zeros has the scale 0, and is near to nothing.
    `words` is None if the table has no words of ours, or not yet for all rows. `readable` caches the rows
    that principals may read, by the key of `rag.store.read.strict_reader.Asker`.
    """

    version: int
    addresses: npt.NDArray[np.uint64]
    coarse: npt.NDArray[np.int8]
    fine: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    columns: pa.Table
    words: WordsInMemory | None = None
    selections: dict[str, Positions] = field(default_factory=dict, repr=False)
    readable: dict[Hashable, Readable] = field(default_factory=dict, repr=False)
    _bytes_of_rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Measure the rows once: Arrow takes 20 us, and each search asks."""
        rows: list[Any] = [self.addresses, self.coarse, self.fine, self.scales, self.columns]
        rows += [self.words] if self.words else []
        object.__setattr__(self, "_bytes_of_rows", sum(part.nbytes for part in rows))

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def size(self) -> int:
        """The memory that this takes, in bytes."""
        of_results = sum(positions.nbytes for positions in self.selections.values())
        of_results += sum(readable.nbytes for readable in self.readable.values())
        return OBJECTS_BYTES + self._bytes_of_rows + of_results

    def positions(self, addresses: npt.NDArray[np.uint64]) -> Positions | None:
        """The positions of the rows at these addresses; None if one is missing, because it is newer."""
        places = np.searchsorted(self.addresses, addresses)
        if len(addresses) and (places.max() >= len(self) or (self.addresses[places] != addresses).any()):
            return None
        return places

    def vectors(self, positions: Positions) -> Vectors:
        """The vectors of these rows, as `rounded_vectors` has them."""
        return _join(self.coarse[positions], self.fine[positions], self.scales[positions])

    async def nearest(
        self, vector: npt.NDArray[np.float32], limit: int, among: Positions
    ) -> tuple[Positions, npt.NDArray[np.float32]]:
        """The rows `among` these that are nearest to `vector`, and their cosine similarities, best first.

        All vectors have unit length. Ties are ordered by id.
        """
        if len(among) > SCANNED_AT_ONCE:
            return await to_thread.run_sync(self._nearest, vector, limit, among)
        return self._nearest(vector, limit, among)

    def _nearest(
        self, vector: npt.NDArray[np.float32], limit: int, among: Positions
    ) -> tuple[Positions, npt.NDArray[np.float32]]:
        largest = np.abs(vector).max(initial=0)
        if not np.isfinite(largest) or not largest:
            among = among[:0]
        if not len(among):
            return among, np.empty(0, np.float32)
        # First pass in int8: a quarter of the memory traffic of float32, and the processor multiplies it
        # faster (60,000 x 384 numbers take 1.2 ms, in float16 3.2, in float32 12.3). One byte a component is
        # too coarse to rank by, but good enough to choose the candidates.
        rough = self._rough(np.rint(vector * (127 / largest)).astype(np.int8), among)
        # Second pass over an oversample: the exact cosines decide which rows are returned, in which order.
        best = highest(rough, OVERSAMPLING * limit)
        chosen = among[best[rough[best] > -np.inf]]
        similarities = cosines(self.vectors(chosen), vector)
        order = best_first(similarities, limit, self.columns["id"].take(chosen))
        return chosen[order], similarities[order]

    def _rough(self, coarse: npt.NDArray[np.int8], among: Positions) -> npt.NDArray[np.float32]:
        """The similarities of the rows `among` these to a vector, by coarse numbers alone, in its unit."""
        rough = np.empty(len(among), np.float32)
        for start in range(0, len(among), COMPARED_AT_ONCE):
            part = among[start : start + COMPARED_AT_ONCE]
            first, end = int(part[0]), int(part[-1]) + 1
            # Copying a row costs three times what comparing it does.
            compared = slice(first, end) if end - first <= SPARSE * len(part) else part
            products = np.asarray(simsimd.cdist(coarse[None], self.coarse[compared], metric="dot"))[0]
            if len(products) > len(part):
                products = products[part - first]
            scales = self.scales[selector(part)]
            # A product of up to 1,040 numbers is below 2^24, which float32 holds exactly.
            of_part = np.multiply(
                products, scales, out=rough[start : start + len(part)], casting="same_kind", dtype=np.float32
            )
            of_part[scales == 0] = -np.inf
        return rough


def rounded_vectors(vectors: Vectors) -> Vectors:
    """Vectors rounded as in memory, so that scores are the same whether a copy exists or not."""
    return _join(*_split(vectors))


def cosines(vectors: Vectors, vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The cosines of vectors of unit length to another one."""
    # Not `vectors @ vector`: BLAS may sum in another order for another number of rows. The same row would get
    # another last digit, and ties would break differently.
    return cast("npt.NDArray[np.float32]", np.einsum("ij,j->i", vectors, vector))


def selector(positions: Positions) -> Positions | slice:
    """An index for these positions of an array: a slice, which needs no copy, if they are consecutive."""
    if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


class MemoryBudget:
    """The bytes that the copies of all tables may take together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # bytes of all copies
        self.turn = anyio.Lock()  # one copy at a time, because an unfinished copy isn't counted yet
        self.tasks: set[asyncio.Task[None]] = set()
        self._sizes: dict[TableInMemory, int] = {}  # of all copies, least recently used first

    def note(self, table: TableInMemory) -> None:
        """Note that the copy of a table is used now, and how large it is."""
        self.forget(table)
        if size := table.size:
            self._sizes[table] = size
            self.held += size

    def forget(self, table: TableInMemory) -> None:
        """Note that a table has no copy any more."""
        self.held -= self._sizes.pop(table, 0)

    async def close(self) -> None:
        """Stop copying."""
        tasks = [*self.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def room(self, table: TableInMemory) -> int:
        """The bytes that a copy of this table may have, if idle copies of others are dropped."""
        in_use = takewhile(lambda copy: not copy.idle, reversed(self._sizes))
        return self.limit - sum(self._sizes[copy] for copy in in_use if copy is not table)

    def has_room(self, table: TableInMemory, size: int) -> bool:
        """Whether a copy of this table may have `size` bytes. It rarely looks at all other copies."""
        return size <= self.limit - self.held or size <= self.room(table)

    def make_room(self, table: TableInMemory, size: int) -> None:
        """Drop idle copies, least recently used first, until a copy of `size` bytes of this table fits."""
        needed = size - self._sizes.get(table, 0)
        for candidate in [*self._sizes]:
            if self.held + needed <= self.limit or not candidate.idle:
                return
            if candidate is not table:
                candidate.drop()


class TableInMemory:
    """A table, and the copy of its newest version, which is made in the background.

    For a table in a bucket, the same task reads its indexes ahead: a search would wait for each part that
    isn't in the engine's cache.
    """

    def __init__(
        self,
        table: lancedb.AsyncTable,
        columns: Sequence[str],
        budget: MemoryBudget,
        *,
        in_bucket: bool,
    ) -> None:
        self._table = table
        self._columns = columns
        self._budget = budget
        self._in_bucket = in_bucket
        self._indexes_of = -1  # the version whose indexes were read
        self._rows: RowsInMemory | None = None
        self._closed = False
        self._waiting_predicate = ""  # of the search that waits for a small copy
        self.copying: asyncio.Task[None] | None = None
        self._seconds = 0.0  # the duration of the last copy
        self._misfit: tuple[int, int] | None = None  # rows that didn't fit, room in bytes
        self._selecting: dict[str, anyio.Lock] = {}
        self._awaited = anyio.Event()  # a search waits for the copy: skip the debounce
        self.used = time.monotonic()

    @property
    def size(self) -> int:
        """The bytes of the copy."""
        return self._rows.size if self._rows else 0

    @property
    def idle(self) -> bool:
        """Whether nobody has searched the table for `IDLE_SECONDS`."""
        return time.monotonic() - self.used > IDLE_SECONDS

    def expects_copy(self, rows: int, dimension: int) -> bool:
        """Whether the table, which has this many rows, is in memory or will soon be."""
        least_size = rows * (2 * dimension + LEAST_BYTES)
        return self._misfit is None and self._budget.has_room(self, least_size)

    def drop(self) -> None:
        """Forget the copy."""
        self._rows = None
        self._budget.forget(self)

    def close(self) -> None:
        """Drop the copy for good: the table has a new reader."""
        self._closed = True
        self.drop()
        if self.copying:
            self.copying.cancel()

    async def wait_until_filled(self) -> None:
        """Wait until the first copy is made, or doesn't fit or fails."""
        if self.copying is None:
            self._begin()
        if self.copying:
            await asyncio.wait([self.copying])

    async def renew(self, seconds: float | None, predicate: str = "") -> None:
        """Renew an existing copy, and wait up to `seconds` for it.

        If `seconds` is None, also make the first copy, and wait until it is done or fails. A small one is
        made in one query, which also finds the rows that satisfy the `predicate`.
        """
        if self._rows is None and seconds is not None:
            return
        self._waiting_predicate = predicate
        self._begin()
        self._awaited.set()
        if self.copying:
            await asyncio.wait([self.copying], timeout=seconds)

    def _begin(self) -> None:
        """Copy in the background, unless that is under way."""
        # Not in a task group, and in its own context: the search that begins the copy doesn't wait for it,
        # and its deadline must not cancel it.
        if not self._closed and (self.copying is None or self.copying.done()):
            self._awaited = anyio.Event()
            self.copying = asyncio.get_running_loop().create_task(self._copy(), context=Context())
            self._budget.tasks.add(self.copying)
            self.copying.add_done_callback(self._budget.tasks.discard)

    async def selection(self, where: str, version: int, read: Read) -> tuple[RowsInMemory, Positions] | None:
        """The rows of the newest `version`, and the positions of those that satisfy the predicate.

        None while they are not in memory. The engine evaluates a predicate once per version, with `read`.
        """
        self.used = time.monotonic()
        self._budget.note(self)
        rows = self._rows
        if rows is None or rows.version != version:
            self._begin()
            return None
        if (among := rows.selections.get(where)) is not None:
            return rows, among
        # The rankings of one search ask for the same predicate at once: one evaluates it, the others wait.
        # Each predicate has its own lock, so that no search waits for another's.
        async with self._selecting.setdefault(where, anyio.Lock()):
            try:
                among = rows.selections.get(where)
                if among is None:
                    among = rows.positions(_addresses(await read(self._query_ids(where))))
                    if among is None or await self._table.version() != rows.version:
                        return None
                    keep_latest(rows.selections, where, among, SELECTIONS)
                    self._budget.note(self)
            finally:
                self._selecting.pop(where, None)
        return rows, among

    def _query_ids(self, where: str) -> Any:  # noqa: ANN401 the engine's query classes share no base
        return self._table.query().where(where).with_row_id().select(["_rowid"])

    async def _copy(self) -> None:
        with anyio.move_on_after(max(PAUSE_SECONDS, self._seconds / BUSY_SHARE)):
            await self._awaited.wait()
        # A failure is only logged: searches still ask the engine, which answers or says what is wrong. The
        # former copy stays, although no search uses it now: it saves the next copy most of the reading.
        has_read = False
        with suppress(StoreError):
            async with self._budget.turn:
                began = time.monotonic()
                with engine_errors("keeping rows in memory"):
                    if not await self._still_misfits():
                        has_read = True
                        await self._make_copy()
                    await self._read_indexes()
                self._seconds = time.monotonic() - began
        if has_read and (self._rows is None or len(self._rows) >= READ_ROWS):
            await to_thread.run_sync(return_memory)  # buffers of what was read

    async def _still_misfits(self) -> bool:
        """Whether the table didn't fit, and has neither shrunk nor got more room since.

        Each search asks for a copy, so this must not read anything.
        """
        if self._misfit is None:
            return False
        rows, room = self._misfit
        return await self._table.count_rows() >= rows and self._budget.room(self) <= room

    async def _read_indexes(self) -> None:
        if self._in_bucket and self._indexes_of != (version := await self._table.version()):
            await read_indexes(self._table)
            self._indexes_of = version

    async def _make_copy(self) -> None:
        predicate, self._waiting_predicate = self._waiting_predicate, ""
        for _ in range(ATTEMPTS):
            version = await self._table.version()
            if self._rows is None and predicate:
                small = await self._read_all(version, predicate)
                if self._budget.has_room(self, small.size) and await self._table.version() == version:
                    self._keep(small)
                    return
            addresses = _addresses(await self._query_ids("(true)").to_arrow())
            room = self._budget.room(self)
            rows = await self._read_copy(version, addresses, room)
            if rows is None:
                self._misfit = len(addresses), room
                self.drop()
                await self._suggest_room(len(addresses))
                return
            if await self._table.version() == version:  # otherwise a commit came: try once more
                self._keep(rows)
                return

    async def _suggest_room(self, rows: int) -> None:
        """Log how much memory these rows need, if the budget is smaller and the machine has enough."""
        dimension = (await self._table.schema()).field("vector").type.list_size
        needed, limit = OBJECTS_BYTES + rows * (2 * dimension + USUAL_BYTES), self._budget.limit
        if limit < needed <= memory_bytes() * MOST_SHARE:
            log.warning(JUST_MISSED, rows, self._table.name, limit // 10**6, needed // 10**6, needed)

    def _keep(self, rows: RowsInMemory) -> None:
        self._budget.make_room(self, rows.size)
        self._rows, self._misfit, self.used = rows, None, time.monotonic()
        self._budget.note(self)

    async def _read_all(self, version: int, where: str) -> RowsInMemory:
        """The rows of a small table, and which of them satisfy a predicate, in one query."""
        selected = {name: f"`{name}`" for name in (*self._columns, "vector", TERMS)} | {_CHOSEN: where}
        rows = await self._table.query().with_row_id().select(selected).to_arrow()
        if len(rows) <= COPIED_AT_ONCE:
            return _whole_copy(version, rows, self._columns, where)
        return await to_thread.run_sync(_whole_copy, version, rows, self._columns, where)

    async def _read_copy(
        self, version: int, addresses: npt.NDArray[np.uint64], room: int
    ) -> RowsInMemory | None:
        """The rows at these addresses, from the former copy and the table; None if they don't fit."""
        schema = await self._table.schema()
        dimension = schema.field("vector").type.list_size
        vectors_size = 2 * dimension * len(addresses)  # two bytes a component: coarse and fine
        if vectors_size > room:
            return None
        has_words = TERMS in schema.names
        former = self._rows
        if former is None or has_words != (former.words is not None):
            former = _no_rows(dimension, schema.empty_table(), self._columns)
        new = addresses[~_are_among(addresses, former.addresses)]
        coarse, fine = np.zeros((2, len(new), dimension), np.int8)
        scales = np.zeros(len(new), np.float32)
        columns: list[pa.Table] = []
        words: list[WordsInMemory] = []
        size = vectors_size
        for start in range(0, len(new), READ_ROWS):
            part = slice(start, start + READ_ROWS)
            rows = await self._at(new[part], [TERMS] if has_words else [])
            coarse[part], fine[part], scales[part] = _split(vectors_of(rows))
            columns.append(rows.select(self._columns).combine_chunks())
            size += columns[-1].nbytes
            has_words = has_words and not rows[TERMS].null_count  # else a commit will soon bring them
            if has_words:
                words.append(await to_thread.run_sync(words_of, rows[TERMS].combine_chunks()))
                size += words[-1].nbytes
            if size > room:
                return None
        read = RowsInMemory(
            version, new, coarse, fine, scales, pa.concat_tables([former.columns[:0], *columns])
        )
        merged = await to_thread.run_sync(_merge_copies, former, read, addresses)
        if has_words:
            parts = _places_of_words(former, new, words, addresses)
            all_words = await to_thread.run_sync(merged_words, parts, len(addresses))
            merged = replace(merged, words=all_words)
        return merged if merged.size <= room else None

    async def _at(self, addresses: npt.NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
        """The rows at these addresses, in their order, with these columns besides those that are kept."""
        query = self._table.take_row_ids(addresses.tolist()).with_row_id()
        rows = await query.select([*self._columns, *columns, "vector", "_rowid"]).to_arrow()
        if rows.num_rows < len(addresses):
            raise StoreError("Rows were moved or removed while they were read into memory.")
        return rows.sort_by("_rowid")


async def read_indexes(table: lancedb.AsyncTable) -> None:
    """Read the indexes of a table into the engine's cache."""
    for index in await table.list_indices():
        await table.prewarm_index(index.name)


def _no_rows(dimension: int, table: pa.Table, columns: Sequence[str]) -> RowsInMemory:
    none, no_scales = np.zeros((0, dimension), np.int8), np.empty(0, np.float32)
    words = NO_WORDS if TERMS in table.column_names else None
    return RowsInMemory(0, np.empty(0, np.uint64), none, none, no_scales, table.select(columns), words)


def _merge_copies(former: RowsInMemory, new: RowsInMemory, addresses: npt.NDArray[np.uint64]) -> RowsInMemory:
    """The rows at these addresses, each from `former` or else from `new`."""
    if not len(former):
        return replace(new, columns=new.columns.combine_chunks())
    is_old = _are_among(addresses, former.addresses)
    order = np.empty(len(addresses), np.int64)
    order[is_old] = np.searchsorted(former.addresses, addresses[is_old])
    order[~is_old] = len(former) + np.arange(len(new))
    # Most rows follow each other as before: copying runs takes a tenth of the time of single rows.
    cuts = np.flatnonzero((np.diff(order) != 1) | np.diff(is_old)) + 1
    runs = [(run[0], len(run)) for run in np.split(order, cuts) if len(run)]

    def joined(old: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
        pieces = ((old, first) if first < len(old) else (added, first - len(old)) for first, _ in runs)
        slices = [part[at : at + size] for (part, at), (_, size) in zip(pieces, runs, strict=True)]
        return np.concatenate([old[:0], *slices])

    columns = pa.concat_tables([former.columns, new.columns])
    if len(runs) > FEW_RUNS:
        columns = columns.take(order)
    else:
        columns = pa.concat_tables([columns[:0], *(columns.slice(first, size) for first, size in runs)])
    return RowsInMemory(
        new.version,
        addresses,
        joined(former.coarse, new.coarse),
        joined(former.fine, new.fine),
        joined(former.scales, new.scales),
        columns.combine_chunks(),
    )


def _places_of_words(
    former: RowsInMemory,
    new: npt.NDArray[np.uint64],
    words: Sequence[WordsInMemory],
    addresses: npt.NDArray[np.uint64],
) -> list[tuple[WordsInMemory, Positions]]:
    """The words of the former rows and of the new ones, with the place of each row among these addresses."""
    places = np.searchsorted(addresses, new)
    parts = list(zip(words, np.split(places, range(READ_ROWS, len(places), READ_ROWS)), strict=False))
    if former.words:
        remain = _are_among(former.addresses, addresses)
        parts.append((former.words, np.where(remain, np.searchsorted(addresses, former.addresses), -1)))
    return parts


def _are_among(addresses: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> Mask:
    """Which of the addresses are among `others`, which are sorted."""
    if not len(others):
        return np.zeros(len(addresses), np.bool_)
    places = np.minimum(np.searchsorted(others, addresses), len(others) - 1)
    return cast("Mask", others[places] == addresses)


def _addresses(rows: pa.Table) -> npt.NDArray[np.uint64]:
    return np.sort(rows["_rowid"].to_numpy())


def _join(
    coarse: npt.NDArray[np.int8], fine: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]
) -> Vectors:
    """The inverse of `_split`."""
    return (coarse.astype(np.float32) * 256 + fine) * scales[:, None]


def _whole_copy(version: int, rows: pa.Table, names: Sequence[str], where: str) -> RowsInMemory:
    """The copy of a table with these rows, all of it. A column says which rows satisfy the predicate."""
    rows = rows.sort_by("_rowid").combine_chunks()
    words = None
    if not rows[TERMS].null_count:
        words = words_of(rows[TERMS].combine_chunks())
    chosen = pc.indices_nonzero(rows[_CHOSEN]).to_numpy().astype(np.int64)  # null counts as false
    return RowsInMemory(
        version,
        rows["_rowid"].to_numpy(),
        *_split(vectors_of(rows)),
        rows.select(names),
        words,
        selections={where: chosen},
    )


def _split(vectors: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """The coarse and the fine numbers of vectors, and their scales."""
    scales = np.abs(vectors).max(axis=1) / STEPS
    numbers = np.rint(vectors / np.where(scales, scales, 1)[:, None]).astype(np.int32)
    coarse = (numbers + 128) >> 8  # rounded, so that the remainder fits into an int8, too
    return coarse.astype(np.int8), (numbers - coarse * 256).astype(np.int8), scales.astype(np.float32)
