"""The tables that a rebuild fills, while readers use the present ones.

A source in a coming build has the generation of the source that it was made from. So a rebuild that was
interrupted, or that returns to a former build, knows what is left to do.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rag.corpus import Access, Build, Collection, Vectors
from rag.errors import StoreError
from rag.home import Home
from rag.store.read import schema
from rag.store.read.connection import connect, engine_errors, open_if_there
from rag.store.write import table_maintenance, table_rows
from rag.store.write.collection_tables import create_tables, table_names, with_build
from rag.store.write.table_maintenance import rows_of, update_rows, upsert
from rag.store.write.table_rows import WholeSource, sample_for_everybody, sample_vectors

if TYPE_CHECKING:
    import lancedb


class RebuildTarget:
    """The tables of a build that no reader opens. Only the holder of the collection's lock writes to them."""

    def __init__(
        self, data: Home, collection: Collection, chunks: lancedb.AsyncTable, sources: lancedb.AsyncTable
    ) -> None:
        self.collection = collection
        self._data = data
        self._chunks = chunks
        self._sources = sources
        self._opened_at = time.time()

    async def rows(self) -> dict[str, dict[str, Any]]:
        """The summaries of its sources, by id."""
        with engine_errors("reading sources"):
            rows = (await rows_of(self._sources, schema.SUMMARY_COLUMNS)).to_pylist()
        return {row["id"]: row for row in rows}

    async def sample(self, limit: int) -> tuple[list[str], Vectors]:
        """As `CollectionWriter.sample`."""
        return await sample_vectors(self._chunks, limit)

    async def sample_for_everybody(self, limit: int, least: int) -> tuple[list[str], Vectors, list[str]]:
        """As `CollectionWriter.sample_for_everybody`."""
        return await sample_for_everybody(self._chunks, limit, least)

    async def ids(self) -> set[str]:
        """The ids of its sources, those included that a kill left with chunks alone."""
        with engine_errors("reading chunks"):
            column = (await self._chunks.query().select(["source_id"]).to_arrow())["source_id"]
        return {*filter(None, column.unique().to_pylist()), *await self.rows()}

    async def put(self, sources: Sequence[WholeSource]) -> None:
        """Store sources with their chunks, in place of their earlier rows."""
        rows = [dict(source.row) for source in sources]
        chunks = [source.table for source in sources if source.table.num_rows]
        with engine_errors("writing"):
            await self._chunks.delete(schema.one_of("source_id", [row["id"] for row in rows]))
            if chunks:
                await self._chunks.add(pa.concat_tables(chunks))
            await upsert(self._sources, pa.Table.from_pylist(rows, schema=schema.SOURCES_SCHEMA))

    async def describe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Update the summaries of sources whose text and chunks stay."""
        with engine_errors("writing"):
            await update_rows(self._sources, rows, schema.source_columns(schema.SUMMARY_COLUMNS))

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove sources that the collection no longer has."""
        if ids:
            with engine_errors("removing"):
                await self._chunks.delete(schema.one_of("source_id", ids))
                await self._sources.delete(schema.one_of("id", ids))

    async def relabel(self, access: Mapping[str, Access | None]) -> None:
        """Update the labels of chunks that hold another revision of these records."""
        columns = ["source_id", "revision"]
        alike: dict[str, list[str]] = defaultdict(list)
        with engine_errors("copying access records"):
            labelled = (await self._chunks.query().select(columns).to_arrow()).group_by(columns).aggregate([])
            for row in labelled.to_pylist():
                values = table_rows.label_values(access.get(row["source_id"]))
                if values["revision"] != row["revision"]:
                    alike[json.dumps(values)].append(row["source_id"])
            for labels, ids in alike.items():
                await self._chunks.update(json.loads(labels), where=schema.one_of("source_id", ids))

    async def finish(self, generations: Mapping[str, str]) -> None:
        """Complete the indexes and flush everything. `generations` are those of all sources, by id.

        Raises:
            StoreError: a source or a chunk is missing; then the catalog must not switch to this build.
        """
        with engine_errors("indexing"):
            await table_maintenance.compact(self._chunks, self._sources, self.collection)
            counts = await table_rows.count_chunks(self._chunks)
        rows = await self.rows()
        complete = all(counts[id_, row["generation"]] == row["chunk_count"] for id_, row in rows.items())
        present = {id_: row["generation"] for id_, row in rows.items()}
        if not complete or present != dict(generations) or len(counts) > len(rows):
            raise StoreError(
                f"The rebuilt tables of the collection {self.collection.name!r} lack something, so it stays "
                f"as it is. Run refdesk-admin collection rebuild {self.collection.name} --restart."
            )
        for name in table_names(self.collection):
            table_maintenance.sync_table(self._data, name, self._opened_at)


async def open_target(data: Home, collection: Collection, coming: Build) -> RebuildTarget:
    """The tables of a coming build, made again if they lack columns of the collection."""
    build = with_build(collection, coming)
    names = table_names(build)
    for name in names:
        table_maintenance.repair(data, name)
    with engine_errors("opening the rebuilt tables"):
        database = await connect(data, writes=True)
        tables = [await open_if_there(database, name) for name in names]
        columns = schema.chunks_schema(build.embedder.dimension, build.fields)
        if None in tables or set(await _existing(tables[0]).schema()) != set(columns):
            for name in names:
                await database.drop_table(name, ignore_missing=True)
            await create_tables(database, build)
        chunks, sources = [await database.open_table(name) for name in names]
        await table_maintenance.create_chunk_indexes(chunks)
    return RebuildTarget(data, build, chunks, sources)


def _existing(table: lancedb.AsyncTable | None) -> lancedb.AsyncTable:
    assert table is not None  # noqa: S101 for the type checker: it was looked for above
    return table


OF_TEXT = frozenset({schema.FILE, *schema.OF_PASSAGES})
"""What the column `fields` holds besides declared fields."""


def same_text(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether the same chunks are made from both rows of a source, with the same words."""
    same = first["generation"] == second["generation"] and _names(first) == _names(second)
    return same and _declared_fields(first) == _declared_fields(second)


def _names(row: Mapping[str, Any]) -> str:
    return schema.source_record(row, "").names


def _declared_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in json.loads(row["fields"]).items() if name not in OF_TEXT}
