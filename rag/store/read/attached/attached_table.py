"""An attached table, queried as if it were one of our tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
from anyio import to_thread

from rag.corpus import Attachment, Collection
from rag.errors import RefdeskError, StoreError
from rag.store.read.attached.attached_rows import OURS, chunk_rows, complete, source_rows
from rag.store.read.attached.column_mapping import Columns, Translation
from rag.store.read.connection import MAX_VERSION

if TYPE_CHECKING:
    import lancedb

KNOWN = 50_000  # ids of another table, some 10 MB
MANY = 2_000  # rows that are converted in a worker thread, because they take some 50 ms
ENGINES = frozenset({"_distance", "_score", "_rowid"})
_calls = count()


class TableMemory:
    """What is remembered of an attached table: its ids by ours, and facts on its latest version."""

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}
        self._facts: dict[str, bool] = {}
        self._version: tuple[object, ...] = ()

    def their_id(self, id_: str) -> str | None:
        """The other table's id, None if no row with it was read. Which id is which never changes."""
        return self._theirs.get(id_)

    def learn(self, ids: Sequence[str], theirs: Sequence[str]) -> None:
        """Note ids and the other table's ids of the same rows."""
        if len(self._theirs) > KNOWN:
            self._theirs.clear()
        self._theirs |= zip(ids, theirs, strict=True)

    def facts(self, version: tuple[object, ...]) -> dict[str, bool]:
        """What was found out about this version, to be added to; those about others are forgotten."""
        if version != self._version or len(self._facts) > KNOWN:
            self._facts, self._version = {}, version
        return self._facts


@dataclass(frozen=True, slots=True)
class AttachedTable:
    """One of our tables, as the rows of another table would fill it. It has what readers call."""

    kind: Literal["chunks", "sources"]
    table: lancedb.AsyncTable
    columns: Columns
    collection: Collection
    memory: TableMemory

    @property
    def attachment(self) -> Attachment:
        """What the collection says about the table."""
        return cast("Attachment", self.collection.attached)

    @property
    def translation(self) -> Translation:
        """How our SQL reads over the other table."""
        return Translation(self.columns, self.memory.their_id, of_chunks=self.kind == "chunks")

    def query(self) -> AttachedQuery:
        """A query of the rows that have an id and a text."""
        return AttachedQuery(self, self.table.query())

    async def version(self) -> tuple[object, ...]:
        """A value that changes with every commit to the table, and when it is dropped and made again.

        The engine's numbers start again then, so the file of a version is part of it. Where there is none to
        look at, each call answers something else.
        """
        number = await self.table.version()
        versions = Path(self.attachment.table, "_versions")
        for name in (f"{MAX_VERSION - number:020}", str(number)):
            with suppress(OSError):
                status = (versions / f"{name}.manifest").stat()
                return number, status.st_ino, status.st_mtime_ns
        return (next(_calls),)

    async def count_rows(self, where: str = "(true)") -> int:
        """The number of rows that have an id and a text and satisfy the predicate."""
        return await self.table.count_rows(f"{self.columns.usable} AND {self.translation(where)}")

    async def usable(self) -> str:
        """The predicate for rows that have an id and a text; "(true)" if all of this version do.

        Reading all texts to see whether one is missing takes half as long as a search by meaning.
        """
        facts = self.memory.facts(await self.version())
        if "complete" not in facts:
            facts["complete"] = not await self.table.count_rows(f"NOT ({self.columns.usable})")
        return "(true)" if facts["complete"] else self.columns.usable

    async def checkout_latest(self) -> None:
        """Forget the version of the table that was read last."""
        await self.table.checkout_latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """Stands for a table that can't be read: whatever is asked of it raises why."""

    error: RefdeskError

    def __getattr__(self, name: str) -> object:
        """Raise the error; see the class."""
        raise StoreError(str(self.error)) from self.error


class AttachedQuery:
    """A query of an attached table: our SQL and column names go in, rows of our table come out."""

    def __init__(
        self,
        table: AttachedTable,
        query: Any,  # noqa: ANN401 the engine's query classes share no base
        conditions: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._table = table
        self._query = query
        self._conditions = conditions
        self._names = names

    def __getattr__(self, name: str) -> Callable[..., AttachedQuery]:
        """The engine's own methods that tune a query."""
        method = getattr(self._query, name)
        return lambda *arguments, **named: self._with(method(*arguments, **named))

    def where(self, predicate: str) -> AttachedQuery:
        """The query with one more predicate in our SQL."""
        conditions = (*self._conditions, self._table.translation(predicate))
        return AttachedQuery(self._table, self._query, conditions, self._names)

    def nearest_to(self, vector: object) -> AttachedQuery:
        """The query, for the rows whose vectors are near."""
        return self._with(self._query.nearest_to(vector).column(self._table.attachment.vector))

    def nearest_to_text(self, query: object) -> AttachedQuery:
        """The query, for the rows whose text has words of a full-text query."""
        return self._with(self._query.nearest_to_text(_over(query, self._table.attachment.text)))

    def select(self, names: Sequence[str] | Mapping[str, str]) -> AttachedQuery:
        """The query with these of our columns, or with expressions over them by name."""
        table, columns = self._table, self._table.columns
        if isinstance(names, Mapping):
            computed = {name: table.translation(sql) for name, sql in names.items()}
            return AttachedQuery(table, self._query.select(computed), self._conditions)
        select = {
            f"{OURS}their_id": columns.id,
            f"{OURS}source_id": columns.source_id,
            f"{OURS}length": f"character_length({columns.text})",
        }
        if table.kind == "sources":
            select |= _source_columns(columns, text="text" in names)
        else:
            select |= _chunk_columns(table, names)
        select |= {name: name for name in names if name in ENGINES}
        return AttachedQuery(table, self._query.select(select), self._conditions, tuple(names))

    async def to_arrow(self, *, timeout: timedelta | None = None) -> pa.Table:  # noqa: ASYNC109 the engine's
        """The rows."""
        return await self._convert(await (await self._filtered_query()).to_arrow(timeout=timeout))

    async def to_batches(self, *, max_batch_length: int) -> AsyncIterator[pa.RecordBatch]:
        """The rows, some at a time. Rows of the same id may come apart."""
        batches = await (await self._filtered_query()).to_batches(max_batch_length=max_batch_length)
        return self._each(batches)

    async def _each(self, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
        async for batch in batches:
            for converted in (await self._convert(pa.Table.from_batches([batch]))).to_batches():
                yield converted

    async def _filtered_query(self) -> Any:  # noqa: ANN401 as in `__init__`
        conditions = (await self._table.usable(), *self._conditions)
        condition = " AND ".join(f"({part})" for part in conditions)
        return self._query.where(condition)

    async def _convert(self, rows: pa.Table) -> pa.Table:
        table = self._table
        if not self._names:  # expressions
            return rows
        rows = complete(rows)  # others may have added a row without a text since `usable` looked
        ids, theirs = (rows[f"{OURS}{name}"].to_pylist() for name in ("source_id", "their_id"))
        table.memory.learn(cast("list[str]", ids), cast("list[str]", theirs))
        convert = chunk_rows if table.kind == "chunks" else source_rows
        arguments = rows, self._names, table.columns, table.collection
        return convert(*arguments) if rows.num_rows < MANY else await to_thread.run_sync(convert, *arguments)

    def _with(self, query: object) -> AttachedQuery:
        return AttachedQuery(self._table, query, self._conditions, self._names)


def _chunk_columns(table: AttachedTable, names: Sequence[str]) -> dict[str, str]:
    columns, select = table.columns, {}
    for name in names:
        match name:
            case "vector" if columns.vector:
                select[f"{OURS}vector"] = columns.vector
            case "revision" if columns.allow:
                select[f"{OURS}allow"] = columns.allow
            case "seq" | "start" | "end" | "tokens" | "page" | "section" | "vector" | "revision":
                pass  # the same in all rows
            case _ if name not in ENGINES:
                select[OURS + name] = table.translation.name(name)
    return select


def _source_columns(columns: Columns, *, text: bool) -> dict[str, str]:
    optional = {"title": columns.title, "url": columns.url, "date": columns.date}
    return {
        f"{OURS}id": columns.source_id,
        f"{OURS}generation": columns.generation,
        **({f"{OURS}text": columns.text} if text else {}),
        **{OURS + name: sql for name, sql in optional.items() if sql},
        **{f"{OURS}field_{name}": sql for name, sql in columns.fields.items()},
    }


def _over(query: Any, column: str) -> Any:  # noqa: ANN401 the engine's
    """A full-text query over another column."""
    if hasattr(query, "queries"):
        return replace(query, queries=[(occur, _over(part, column)) for occur, part in query.queries])
    return replace(query, column=column)
