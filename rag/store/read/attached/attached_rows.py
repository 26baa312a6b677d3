"""Rows of an attached table as rows of our tables. What is missing is filled in, what is odd is left out."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.access.names import valid_entries
from rag.access.rule import EVERYBODY
from rag.corpus import Access, Collection, Vectors
from rag.errors import ConfigurationError
from rag.filters.evaluators import EPOCH
from rag.store.read.attached.column_mapping import Columns
from rag.store.read.schema import SOURCES_SCHEMA, chunks_schema, vector_column
from rag.text.plain_text import in_one_line
from rag.uris import web_address

OURS = "our_"  # before the names of what the engine computes, so that no column of theirs has such a name
CHARACTERS_PER_TOKEN = 4  # in English; only the lengths relative to each other count
MAX_TITLE = 300  # characters


def access_of(entries: Sequence[str | None] | None) -> Access | None:
    """Who may see a row, by its list of entries. None, meaning nobody, if it is missing or malformed.

    One malformed entry is enough: it could be meant to keep somebody out.
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
    return zlib.crc32(json.dumps(entries).encode()) >> 2 | 1


def complete(rows: pa.Table) -> pa.Table:
    """The rows that have an id and a text."""
    needed = rows[f"{OURS}their_id"], rows[f"{OURS}length"]
    if not any(column.null_count for column in needed):
        return rows
    for at, column in enumerate(rows.schema):
        if column.type == pa.string_view():  # which can't be filtered
            rows = rows.set_column(at, column.name, rows.column(at).cast(pa.string()))
    return rows.filter(pc.and_(needed[0].is_valid(), needed[1].is_valid()))


def chunk_rows(rows: pa.Table, names: Sequence[str], columns: Columns, collection: Collection) -> pa.Table:
    """Rows of the chunk table with the columns `names`. Each source has one chunk, of number 0."""
    count = rows.num_rows
    schema = chunks_schema(columns.dimension, collection.fields)
    row: dict[str, Any] = {}
    for name in names:
        match name:
            case "seq" | "start":
                row[name] = [0] * count
            case "page":
                row[name] = [None] * count
            case "section":
                row[name] = [[]] * count
            case "revision":
                row[name] = _revisions(rows, columns)
            case "end":
                row[name] = rows[f"{OURS}length"].cast(pa.int64())
            case "tokens":
                row[name] = _tokens(rows)
            case "vector":
                row[name] = vector_column(_vectors(rows, columns))
            case "_distance" | "_score" | "_rowid":
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
    schema = pa.schema([SOURCES_SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in sources], schema=schema)


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
