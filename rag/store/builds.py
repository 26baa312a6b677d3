"""The builds of a collection: tables beside those that readers open, made by a rebuild or kept for an undo.

Everything that a build consists of is in tables whose names end in its number (`schema.chunks_table`). The
catalog's row names three of them: the one that readers open (`Collection.build`), the one before it
(`former`) and one that is being made (`coming`). Tables of any other number are leftovers, and `drop_others`
drops them.

A source in a build that is being made has the generation of the source that it was made from. So a rebuild
that was interrupted, or one that goes back to a former build, knows what it still has to do.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rag.corpus import Build
from rag.errors import StoreError
from rag.store import maintenance, schema
from rag.store.connection import connect, database_folder, engine_errors, open_if_there, table_folder
from rag.store.sample import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import lancedb

    from rag.corpus import Access, Collection, Vectors
    from rag.store.whole import WholeSource

_NUMBER = re.compile(r"(?:__build_(\d+))?\.lance")


def table_names(collection: Collection) -> tuple[str, str]:
    """The chunk table and the source table that readers of a collection open."""
    key = collection.tenant, collection.name, collection.build
    return schema.chunks_table(*key), schema.sources_table(*key)


def named_tables(collection: Collection) -> set[str]:
    """The tables of all builds that the catalog's row of a collection names."""
    made = [with_build(collection, one) for one in (collection.former, collection.coming) if one]
    return {name for one in (collection, *made) for name in table_names(one)}


def current(collection: Collection) -> Build:
    """The build that readers open."""
    return Build(
        collection.build,
        collection.embedder,
        collection.embedder_name,
        collection.chunking,
        collection.calibration,
    )


def with_build(collection: Collection, build: Build) -> Collection:
    """The collection as readers of this build see it."""
    return replace(
        collection,
        build=build.number,
        embedder=build.embedder,
        embedder_name=build.embedder_name,
        chunking=build.chunking,
        calibration=build.calibration,
    )


def switched(collection: Collection) -> Collection:
    """The collection after its coming build is complete: the present one becomes the former."""
    assert collection.coming  # noqa: S101 for the type checker: a rebuild has begun
    return replace(with_build(collection, collection.coming), former=current(collection), coming=None)


def numbers(data: Path, tenant: str, name: str) -> set[int]:
    """The numbers of all builds that have tables."""
    found = set()
    for beginning in (schema.chunks_table(tenant, name), schema.sources_table(tenant, name)):
        for folder in database_folder(data).glob(f"{beginning}*.lance"):
            if match := _NUMBER.fullmatch(folder.name.removeprefix(beginning)):
                found.add(int(match[1] or 0))
    return found


async def create_tables(database: lancedb.AsyncConnection, collection: Collection) -> None:
    """Make the tables of a collection's build, empty."""
    chunks_name, sources_name = table_names(collection)
    columns = schema.chunks_schema(collection.embedder.dimension, collection.fields)
    chunks = await database.create_table(chunks_name, schema=columns)
    await maintenance.create_chunk_indexes(chunks)
    await database.create_table(sources_name, schema=schema.SOURCES_SCHEMA)


async def drop_tables(
    data: Path, database: lancedb.AsyncConnection, tenant: str, name: str, *, but: Iterable[int] = ()
) -> None:
    """Drop the tables of all builds of a collection but these."""
    for number in numbers(data, tenant, name) - {*but}:
        for table in (schema.chunks_table, schema.sources_table):
            await database.drop_table(table(tenant, name, number), ignore_missing=True)


def check_space(data: Path, collection: Collection, coming: Build) -> None:
    """Check that the disk has room for another build: as much as the present one, and its new vectors.

    Raises:
        StoreError: it has not.
    """
    present = sum(
        file.stat().st_size
        for name in table_names(collection)
        for file in table_folder(data, name).rglob("*")
        if file.is_file()
    )
    needed = present * max(1, coming.embedder.dimension / max(1, collection.embedder.dimension))
    free = shutil.disk_usage(data).free
    if free < needed:
        raise StoreError(
            f"New tables of the collection {collection.name!r} need about {needed / 1e6:,.0f} MB; the disk "
            f"has {free / 1e6:,.0f} MB. Free some space, or drop former tables with "
            "refdesk-admin purge."
        )


async def drop_others(data: Path, collection: Collection) -> None:
    """Drop the tables that the catalog's row doesn't name, as an interrupted rebuild can leave them."""
    named = {collection.build, *(one.number for one in (collection.former, collection.coming) if one)}
    with engine_errors("dropping earlier tables"):
        await drop_tables(data, await connect(data), collection.tenant, collection.name, but=named)


class Target:
    """The tables of a build that no reader opens. Only the holder of the collection's lock writes to them."""

    def __init__(
        self, data: Path, collection: Collection, chunks: lancedb.AsyncTable, sources: lancedb.AsyncTable
    ) -> None:
        self.collection = collection
        self._data = data
        self._chunks = chunks
        self._sources = sources
        self._opened_at = time.time()

    async def rows(self) -> dict[str, dict[str, Any]]:
        """The summaries of the sources that it has, by id."""
        with engine_errors("reading sources"):
            rows = (await self._sources.query().select(schema.SUMMARY_COLUMNS).to_arrow()).to_pylist()
        return {row["id"]: row for row in rows}

    async def sample(self, most: int) -> tuple[list[str], Vectors]:
        """As `CollectionWriter.sample`."""
        return await sampled(self._chunks, most)

    async def ids(self) -> set[str]:
        """The ids of the sources that it has anything of: a kill can leave chunks without their source."""
        with engine_errors("reading chunks"):
            column = (await self._chunks.query().select(["source_id"]).to_arrow())["source_id"]
        return {*filter(None, column.unique().to_pylist()), *await self.rows()}

    async def put(self, sources: Sequence[WholeSource]) -> None:
        """Store sources with their chunks, in place of what it has of them."""
        rows = [one.row for one in sources]
        chunks = [one.table for one in sources if one.table.num_rows]
        with engine_errors("writing"):
            await self._chunks.delete(schema.one_of("source_id", [row["id"] for row in rows]))
            if chunks:
                await self._chunks.add(pa.concat_tables(chunks))
            upsert = self._sources.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.execute(pa.Table.from_pylist(list(rows), schema=schema.SOURCES_SCHEMA))

    async def describe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give sources whose text and chunks stay these summaries."""
        if not rows:
            return
        kinds = pa.schema([schema.SOURCES_SCHEMA.field(name) for name in schema.SUMMARY_COLUMNS])
        with engine_errors("writing"):
            update = self._sources.merge_insert("id").when_matched_update_all()
            await update.execute(pa.Table.from_pylist(list(rows), schema=kinds))

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove sources that the collection doesn't have any more."""
        if ids:
            with engine_errors("removing"):
                await self._chunks.delete(schema.one_of("source_id", ids))
                await self._sources.delete(schema.one_of("id", ids))

    async def relabel(self, access: Mapping[str, Access | None]) -> None:
        """Give chunks the labels of these records where they hold those of another revision."""
        columns = ["source_id", "revision"]
        alike: dict[str, list[str]] = defaultdict(list)
        with engine_errors("copying access records"):
            held = (await self._chunks.query().select(columns).to_arrow()).group_by(columns).aggregate([])
            for row in held.to_pylist():
                values = schema.label_values(access.get(row["source_id"]))
                if values["revision"] != row["revision"]:
                    alike[json.dumps(values)].append(row["source_id"])
            for written, ids in alike.items():
                await self._chunks.update(json.loads(written), where=schema.one_of("source_id", ids))

    async def finish(self, wanted: Mapping[str, str]) -> None:
        """Complete the indexes and flush everything. `wanted` are the generations of all sources, by id.

        Raises:
            StoreError: a source or a chunk is missing; then nothing may switch to this build.
        """
        with engine_errors("indexing"):
            await maintenance.compact(self._chunks, self._sources, self.collection)
            columns = ["source_id", "generation"]
            counted = (await self._chunks.query().select(columns).to_arrow()).group_by(columns)
            counts = {
                (row["source_id"], row["generation"]): row["count_all"]
                for row in counted.aggregate([([], "count_all")]).to_pylist()
            }
        rows = await self.rows()
        complete = all(
            counts.get((id_, row["generation"]), 0) == row["chunk_count"] for id_, row in rows.items()
        )
        held = {id_: row["generation"] for id_, row in rows.items()}
        if not complete or held != dict(wanted) or len(counts) > len(rows):
            raise StoreError(
                f"The rebuilt tables of the collection {self.collection.name!r} lack something, so it stays "
                f"as it is. Run refdesk-admin collection rebuild {self.collection.name} --restart."
            )
        for name in table_names(self.collection):
            maintenance.sync_to_disk(table_folder(self._data, name), self._opened_at)


async def open_target(data: Path, collection: Collection, coming: Build) -> Target:
    """The tables of a build that is to come, made anew if they don't have the collection's columns."""
    made = with_build(collection, coming)
    names = table_names(made)
    for name in names:
        maintenance.repair(table_folder(data, name))
    with engine_errors("opening the rebuilt tables"):
        database = await connect(data)
        tables = [await open_if_there(database, name) for name in names]
        columns = schema.chunks_schema(made.embedder.dimension, made.fields)
        if None in tables or set(await _existing(tables[0]).schema()) != set(columns):
            for name in names:
                await database.drop_table(name, ignore_missing=True)
            await create_tables(database, made)
        chunks, sources = [await database.open_table(name) for name in names]
        await maintenance.create_chunk_indexes(chunks)
    return Target(data, made, chunks, sources)


def _existing(table: lancedb.AsyncTable | None) -> lancedb.AsyncTable:
    assert table is not None  # noqa: S101 for the type checker: it was looked for above
    return table


def same_text(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the chunks made from one row of a source are also those of the other."""
    return one["generation"] == other["generation"] and _declared(one) == _declared(other)


def _declared(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in json.loads(row["fields"]).items() if name != schema.FILE}
