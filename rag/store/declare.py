"""Declaring a field of a collection that has documents, and taking a declaration back.

The tables change first and the catalog last, or the other way round for removal. So a field counts, in every
process from its next request on, only while its column is complete. A column without a declaration, which a
killed command leaves, is dropped before the field is declared again. No vector and no text is written anew.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from rag.store import schema
from rag.store.reader import split_chunk_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import lancedb

    from rag.corpus import FieldType, Source, Value

Values: TypeAlias = "Callable[[Source], Mapping[str, Value]]"
"""The values of declared fields that a source has."""


async def add_fields(
    chunks: lancedb.AsyncTable,
    sources: lancedb.AsyncTable,
    collection: str,
    fields: Mapping[str, FieldType],
    values: Values,
) -> None:
    """Add a column for each field to the chunks, and fill it with the `values` of the sources."""
    await drop_fields(chunks, fields)
    columns = schema.field_columns(fields)
    await chunks.add_columns(columns)
    rows = (await sources.query().select(schema.SUMMARY_COLUMNS).to_arrow()).to_pylist()
    found = {row["id"]: schema.stored_fields(values(schema.source_record(row, collection))) for row in rows}
    await _update(sources, [_source(row, fields, found[row["id"]]) for row in rows], _OF_SOURCES)
    ids: dict[str, list[str]] = defaultdict(list)
    for id_ in cast("list[str]", (await chunks.query().select(["id"]).to_arrow())["id"].to_pylist()):
        ids[split_chunk_id(id_)[0]].append(id_)
    filled = [
        {"id": id_} | {schema.field_column(name): value for name, value in of_source.items()}
        for source_id, of_source in found.items()
        if of_source
        for id_ in ids[source_id]
    ]
    await _update(chunks, filled, pa.schema([pa.field("id", pa.string(), nullable=False), *columns]))


async def drop_fields(chunks: lancedb.AsyncTable, names: Iterable[str]) -> None:
    """Drop the columns of these fields, with their indexes, where there are any."""
    there = set((await chunks.schema()).names)
    if left := [column for name in names if (column := schema.field_column(name)) in there]:
        await chunks.drop_columns(left)


_OF_SOURCES = pa.schema([schema.SOURCES_SCHEMA.field(name) for name in ("id", "fields")])


def _source(row: Mapping[str, Any], fields: Iterable[str], values: Mapping[str, object]) -> dict[str, Any]:
    """The row of a source with these values for the fields, and else what it has."""
    kept = {name: value for name, value in json.loads(row["fields"]).items() if name not in fields}
    return {"id": row["id"], "fields": json.dumps({**kept, **values}, ensure_ascii=False)}


async def _update(table: lancedb.AsyncTable, rows: list[dict[str, Any]], columns: pa.Schema) -> None:
    if rows:
        update = table.merge_insert("id").when_matched_update_all()
        await update.execute(pa.Table.from_pylist(rows, schema=columns))
