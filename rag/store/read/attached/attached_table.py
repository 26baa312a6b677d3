"""An attached table, queried like one of our tables, and its rows converted to ours.

Missing values get defaults; unusable values are dropped.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.access.rule import EVERYBODY, valid_entries
from rag.corpus import Access, Attachment, Collection, Vectors
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.filters.grammar import EPOCH
from rag.store.read.attached.column_mapping import Columns, Translation
from rag.store.read.connection import MAX_VERSION
from rag.store.read.schema import chunks_schema, source_columns, vector_column
from rag.text.plain_text import in_one_line
from rag.uris import web_address

if TYPE_CHECKING:
    import lancedb

KNOWN = 50_000  # ids of another table, some 10 MB
MANY = 2_000  # rows that are converted in a worker thread, because they take some 50 ms
ENGINES = frozenset({"_distance", "_score", "_rowid"})
CONSTANT = {"seq": 0, "start": 0, "depth": 0, "page": None, "gap": None, "section": list[str]()}
"""The columns of chunks that have one value in all rows: each row is one chunk."""
DERIVED = {"end", "tokens", "vector", "revision"}
"""The columns of chunks that are made of others, or of nothing if the table has no vectors or rights."""
_calls = count()


class TableMemory:
    """A cache of an attached table: its ids by ours, and facts on its latest version."""

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}
        self._facts: dict[str, bool] = {}
        self._version: tuple[object, ...] = ()

    def their_id(self, id_: str) -> str | None:
        """The other table's id for ours, None if no such row was read. The mapping never changes."""
        return self._theirs.get(id_)

    def learn(self, ids: Sequence[str], theirs: Sequence[str]) -> None:
        """Note ids and the other table's ids of the same rows."""
        if len(self._theirs) > KNOWN:  # what is forgotten is computed by the engine again
            self._theirs.clear()
        self._theirs |= zip(ids, theirs, strict=True)

    def facts(self, version: tuple[object, ...]) -> dict[str, bool]:
        """The mutable facts on this version; facts on other versions are dropped."""
        if version != self._version or len(self._facts) > KNOWN:
            self._facts, self._version = {}, version
        return self._facts


@dataclass(frozen=True, slots=True)
class AttachedTable:
    """One of our tables, filled with the rows of another table. It has the methods that readers call."""

    kind: Literal["chunks", "sources"]
    table: lancedb.AsyncTable
    columns: Columns
    collection: Collection
    memory: TableMemory

    @property
    def attachment(self) -> Attachment:
        """The collection's attachment."""
        return cast("Attachment", self.collection.attached)

    @property
    def translation(self) -> Translation:
        """The translation of our SQL to the other table's columns."""
        return Translation(self.columns, self.memory.their_id, of_chunks=self.kind == "chunks")

    def query(self) -> AttachedQuery:
        """A query of the rows that have an id and a text."""
        return AttachedQuery(self, self.table.query())

    async def version(self) -> tuple[object, ...]:
        """A value that changes with every commit to the table, and when it is dropped and made again.

        The engine's numbers start again then, so the version's file is part of the value. Without a version
        file, each call returns a new value, so nothing is cached.
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

        Checking all texts takes half as long as a search by meaning, so the answer is cached per version.
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
    """Stands for a table that can't be read: each attribute raises the error that says why."""

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
        """The rows in batches. Rows with the same id may be in different batches."""
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
            case _ if name not in ENGINES | DERIVED | CONSTANT.keys():
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
    if hasattr(query, "queries"):
        return replace(query, queries=[(occur, _over(part, column)) for occur, part in query.queries])
    return replace(query, column=column)


OURS = "our_"  # prefix of computed columns, so that they don't clash with the other table's
CHARACTERS_PER_TOKEN = 4  # in English; only the lengths relative to each other count
MAX_TITLE = 300  # characters


def access_of(entries: Sequence[str | None] | None) -> Access | None:
    """Who may see a row, by its list of entries. None (deny-all) if it is missing or malformed.

    A single malformed entry is enough: it could be meant to keep somebody out.
    """
    if not entries or None in entries:
        return None
    try:
        allow = valid_entries(cast("Sequence[str]", entries))
    except ConfigurationError:
        return None
    return Access("restricted", allow, revision=revision_of(entries))


def access_of_ours(entries: Sequence[str | None] | None) -> Access | None:
    """As `access_of`, of a row that refdesk wrote: the entry "*" is everybody in the tenant."""
    if entries == [EVERYBODY]:
        return Access("tenant", revision=revision_of(entries))
    return access_of(entries)


def revision_of(entries: Sequence[str | None] | None) -> int:
    """A number for a list of entries, never 0: it differs if the rights of a row have changed."""
    # 30 bits, to fit the column. In a collision, a race counts as a fault; no right depends on it.
    return zlib.crc32(json.dumps(entries).encode()) >> 2 | 1


def complete(rows: pa.Table) -> pa.Table:
    """The rows that have an id and a text."""
    needed = rows[f"{OURS}their_id"], rows[f"{OURS}length"]
    if not any(column.null_count for column in needed):
        return rows
    for at, column in enumerate(rows.schema):
        if column.type == pa.string_view():  # Arrow can't filter it
            rows = rows.set_column(at, column.name, rows.column(at).cast(pa.string()))
    return rows.filter(pc.and_(needed[0].is_valid(), needed[1].is_valid()))


def chunk_rows(rows: pa.Table, names: Sequence[str], columns: Columns, collection: Collection) -> pa.Table:
    """Rows of the chunk table with the columns `names`. Each source has one chunk, of number 0."""
    count = rows.num_rows
    schema = chunks_schema(columns.dimension, collection.fields)
    row: dict[str, Any] = {}
    for name in names:
        match name:
            case _ if name in CONSTANT:
                row[name] = [CONSTANT[name]] * count
            case "revision":
                row[name] = _revisions(rows, columns)
            case "end":
                row[name] = rows[f"{OURS}length"].cast(pa.int64())
            case "tokens":
                row[name] = _tokens(rows)
            case "vector":
                row[name] = vector_column(_vectors(rows, columns))
            case _ if name in ENGINES:
                row[name] = rows[name]
            case _:
                row[name] = rows[OURS + name].cast(schema.field(name).type)
    typed = {
        name: pa.array(values, schema.field(name).type) if isinstance(values, list) else values
        for name, values in row.items()
    }
    return pa.table(typed)


def source_rows(rows: pa.Table, names: Sequence[str], columns: Columns, collection: Collection) -> pa.Table:
    """Rows of the source table with the columns `names`; one for each id.

    Rows of the same id are one source, which shows the text with the lowest digest.
    """
    distinct: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        id_ = row[f"{OURS}id"]
        if id_ not in distinct or row[f"{OURS}generation"] < distinct[id_][f"{OURS}generation"]:
            distinct[id_] = row
    sources = [_source(row, columns, collection) for row in distinct.values()]
    selected = [{name: row[name] for name in names} for row in sources]
    return pa.Table.from_pylist(selected, schema=source_columns(names))


def _source(row: Mapping[str, Any], columns: Columns, collection: Collection) -> dict[str, Any]:
    values = {name.removeprefix(OURS): value for name, value in row.items()}
    return {
        "id": values["id"],
        "uri": f"row:{values['their_id']}",
        "title": in_one_line(values.get("title") or values["their_id"])[:MAX_TITLE],
        "mime_type": "text/plain",
        "digest": values["generation"],
        "generation": values["generation"],
        "metadata": json.dumps({"id": values["their_id"]}, ensure_ascii=False),
        "chunk_count": 1,
        "length": values["length"],
        "ingested_at": collection.created_at,
        "fields": json.dumps(_fields(values, columns), ensure_ascii=False),
        "outline": "[]",
        "text": values.get("text", ""),
        "url": web_address(values["url"]) if values.get("url") else None,
        "date": _date(values.get("date"), columns.unit),
    }


def _fields(values: Mapping[str, Any], columns: Columns) -> dict[str, object]:
    """The declared fields that have a value, as `rag.store.read.schema.fields_record` reads them."""
    fields = {name: values.get(f"field_{name}") for name in columns.fields}
    listed = {
        name: [entry for entry in value if entry is not None] if isinstance(value, list) else value
        for name, value in fields.items()
    }
    return {
        name: value
        for name, value in listed.items()
        if value is not None and value != [] and not (isinstance(value, float) and math.isnan(value))
    }


def _date(value: int | str | None, unit: tuple[int, int] | None) -> datetime | None:
    """A date from a number of units (`Columns.unit`) or a text; None if it is out of range or malformed."""
    try:
        if isinstance(value, str):
            date = datetime.fromisoformat(value.strip())
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
        if value is None or unit is None:
            return None
        return EPOCH + timedelta(microseconds=value * unit[0] // unit[1])
    except (ValueError, OverflowError):
        return None


def _tokens(rows: pa.Table) -> list[int]:
    lengths = cast("list[int]", rows[f"{OURS}length"].to_pylist())
    return [1 + length // CHARACTERS_PER_TOKEN for length in lengths]


def _revisions(rows: pa.Table, columns: Columns) -> list[int]:
    if columns.allow is None:
        return [0] * rows.num_rows
    return [revision_of(entries) for entries in rows[f"{OURS}allow"].to_pylist()]


def _vectors(rows: pa.Table, columns: Columns) -> Vectors:
    """The vectors with unit length; zeros where one is missing, as in our tables."""
    count, dimension = rows.num_rows, columns.dimension
    if columns.vector is None:
        return np.zeros((count, dimension), np.float32)
    column = cast("Any", rows[f"{OURS}vector"].combine_chunks())
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.values.slice(column.offset * dimension, count * dimension)
    vectors = flat.to_numpy(zero_copy_only=False).reshape(count, dimension).astype(np.float64)
    vectors[~valid | ~np.isfinite(vectors).all(axis=1)] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit.astype(np.float32)
