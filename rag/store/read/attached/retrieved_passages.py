"""The passages that a retriever found in one request, in memory, as a table like an attached one.

So they are filtered, checked, cited and opened by the same code as all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rag.access.rule import EVERYBODY
from rag.corpus import Attachment, Collection, FieldType, Retrieved
from rag.store.read.attached.attached_reader import AttachedReader, lowest_last
from rag.store.read.attached.attached_table import AttachedTable, TableMemory
from rag.store.read.attached.column_mapping import columns_of
from rag.store.read.connection import connect_to, engine_errors
from rag.store.read.schema import CHUNK_COLUMNS, StoredChunk, stored_chunks

if TYPE_CHECKING:
    import anyio

Held = TypeVar("Held", bound="HeldReader")

IN_MEMORY = "memory://"
FIELD = "field_"
_TEXTS = pa.list_(pa.string())
_MOMENT = pa.timestamp("us", tz="UTC")
_PLAIN = {"id": pa.string(), "text": pa.string(), "title": pa.string(), "url": pa.string(), "date": _MOMENT}
_FIELD_TYPES: dict[FieldType, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "datetime": _MOMENT,
    "string list": _TEXTS,
}


class HeldReader(AttachedReader):
    """The passages that were held in this request; others are not there."""

    retrieves = True

    async def hold(self, passages: Sequence[Retrieved]) -> None:
        """Add passages.

        Raises:
            StoreError: a value doesn't have the type of its field.
        """
        with engine_errors("holding what a retriever found"):
            rows = pa.Table.from_pylist([*map(self._row, passages)], schema=_schema(self.collection))
            await self._attached.table.add(rows)

    async def attributes(self) -> None:
        """Unknown before the search."""

    async def chunks_by_their_id(self, where: str) -> dict[str, StoredChunk]:
        """The chunks of the passages that satisfy the predicate, by the retriever's own ids."""
        rows = await self.chunk_rows(
            lambda query: query.where(where).select([*CHUNK_COLUMNS, "vector"]).limit(2**31 - 1)
        )
        known_id = self._attached.memory.their_id
        chunks = [(known_id(chunk.id.partition("/")[0]), chunk) for chunk in lowest_last(stored_chunks(rows))]
        return {id_: chunk for id_, chunk in chunks if id_ is not None}

    def theirs(self, id_: str) -> str | None:
        """The retriever's id for one of ours, None if it was never found."""
        return self._attached.memory.their_id(id_)

    def _row(self, passage: Retrieved) -> dict[str, Any]:
        # In this table the entry "*" means everybody, so a retriever may not write it. In doubt: nobody.
        entries = None if EVERYBODY in passage.allow else list(passage.allow)
        if passage.visibility == "tenant":
            entries = None if passage.allow else [EVERYBODY]
        values = {name: getattr(passage, name) for name in _PLAIN}
        fields = {FIELD + name: passage.fields.get(name) for name in self.collection.fields}
        return {**values, **fields, "title": passage.title or None, "allow": entries}


def attachment_of(fields: Sequence[str]) -> Attachment:
    """Which columns a table of held passages has."""
    columns = {name: FIELD + name for name in fields}
    return Attachment(IN_MEMORY, "id", "text", None, "title", "url", "date", "allow", columns)


async def hold_for(
    kind: type[Held],
    collection: Collection,
    memory: TableMemory,
    scans: anyio.CapacityLimiter,
    seconds: float,
) -> Held:
    """A reader of this kind, for one request, that holds nothing yet. It takes 1 ms of CPU."""
    schema = _schema(collection)
    with engine_errors("preparing to hold what a retriever finds"):
        table = await (await connect_to(IN_MEMORY)).create_table("held", schema=schema)
    columns = replace(columns_of(collection, collection.attached or attachment_of(()), schema), ours=True)
    sources = AttachedTable("sources", table, columns, collection, memory)
    chunks = AttachedTable("chunks", table, columns, collection, memory)
    reader = kind(collection, sources, chunks, [], timeout_seconds=seconds, scans=scans)
    reader.by_words = True
    return reader


def _schema(collection: Collection) -> pa.Schema:
    declared = {FIELD + name: _FIELD_TYPES[kind] for name, kind in collection.fields.items()}
    return pa.schema([pa.field(name, kind) for name, kind in {**_PLAIN, "allow": _TEXTS, **declared}.items()])
