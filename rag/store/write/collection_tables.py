"""The tables of a collection: their builds, columns of declared fields, leftovers, and rebuilds.

A build is two tables whose names end in its number (`schema.chunks_table`). The catalog's row names up to
three builds: the one that readers open (`Collection.build`), the one before it (`former`), for an undo, and
the one that a rebuild is making (`coming`). Tables of other numbers are leftovers; `drop_others` drops them.

To declare a field of a collection with documents, the tables change first and the catalog last; to remove
one, the other way round. So a field is used, in every process from its next request on, only while its column
is complete. A killed command leaves an undeclared column, which is dropped before the field is declared
again. Vectors and texts are not rewritten.

A killed writer leaves rows. Looking for them reads all chunks, so a writer that ends well notes the newest
version of each table (`note_swept`), after everything was flushed to disk. A later writer makes other
versions, and doesn't note them if it is killed. So if the note is missing, unreadable, or of other versions,
the next writer looks for leftovers.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from rag.corpus import Access, Build, Collection, FieldType, Source, Value
from rag.errors import RefdeskError, StoreError
from rag.home import Bucket, Home, folders, newest_version
from rag.runtime import grouped
from rag.store.read import schema
from rag.store.read.connection import connect, engine_errors, open_if_there, table_folder
from rag.store.write import table_maintenance, table_rows
from rag.store.write.desk_folder import write_whole
from rag.store.write.locks import Lease
from rag.store.write.table_maintenance import rows_of, update_rows, upsert
from rag.store.write.table_rows import WholeSource, sample_for_everybody

if TYPE_CHECKING:
    import lancedb

_BUILD_NUMBER = re.compile(r"(?:__build_(\d+))?\.lance")


def table_names(collection: Collection) -> tuple[str, str]:
    """The chunk table and the source table that readers of a collection open."""
    key = collection.tenant, collection.name, collection.build
    return schema.chunks_table(*key), schema.sources_table(*key)


def named_tables(collection: Collection) -> set[str]:
    """The tables of all builds that the catalog's row of a collection names."""
    builds = [with_build(collection, build) for build in (collection.former, collection.coming) if build]
    return {name for build in (collection, *builds) for name in table_names(build)}


def current_build(collection: Collection) -> Build:
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


def with_builds_switched(collection: Collection) -> Collection:
    """The collection after its coming build is complete: the present one becomes the former."""
    assert collection.coming  # noqa: S101 for the type checker: a rebuild has begun
    return replace(with_build(collection, collection.coming), former=current_build(collection), coming=None)


def build_numbers(data: Home, tenant: str, name: str) -> set[int]:
    """The numbers of all builds with tables."""
    numbers = set()
    tables = folders(data, "tables")
    for beginning in (schema.chunks_table(tenant, name), schema.sources_table(tenant, name)):
        for table in tables:
            # In whole, because one collection's name may begin with another's: "hr" and "hr-old".
            if table.startswith(beginning) and (match := _BUILD_NUMBER.fullmatch(table, len(beginning))):
                numbers.add(int(match[1] or 0))
    return numbers


def new_number(data: Home, usual: int) -> int:
    """The number of a new build: the `usual` one in a data folder, a random one in a bucket.

    A suspended writer could mistake a table for an earlier one of the same name.
    """
    return secrets.randbits(48) if isinstance(data, Bucket) else usual


def names_of_tables(data: Home, tenant: str) -> set[str]:
    """The names of the collections of a tenant that have tables, whether the catalog has them or not."""
    beginnings = [schema.chunks_table(tenant, ""), schema.sources_table(tenant, "")]
    return {
        table.removeprefix(beginning).removesuffix(".lance").partition("__build_")[0]
        for table in folders(data, "tables")
        for beginning in beginnings
        if table.startswith(beginning)
    }


async def create_tables(database: lancedb.AsyncConnection, collection: Collection) -> None:
    """Make the empty tables of a collection's build."""
    chunks_name, sources_name = table_names(collection)
    columns = schema.chunks_schema(collection.embedder.dimension, collection.fields)
    await database.create_table(chunks_name, schema=columns)
    await database.create_table(sources_name, schema=schema.SOURCES_SCHEMA)


async def drop_tables(
    data: Home, database: lancedb.AsyncConnection, tenant: str, name: str, *, but: Iterable[int] = ()
) -> None:
    """Drop the tables of all builds of a collection except those with the numbers `but`."""
    for number in build_numbers(data, tenant, name) - {*but}:
        for table in (schema.chunks_table, schema.sources_table):
            await database.drop_table(table(tenant, name, number), ignore_missing=True)


def check_space(data: Home, collection: Collection, coming: Build) -> None:
    """Check that the disk has room for another build: the present size, scaled to longer vectors.

    Raises:
        StoreError: the free space is smaller.
    """
    if isinstance(data, Bucket):
        return
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


async def drop_others(data: Home, collection: Collection) -> None:
    """Drop the tables that the catalog's row doesn't name, for example after an interrupted rebuild."""
    numbers = {collection.build, *(build.number for build in (collection.former, collection.coming) if build)}
    with engine_errors("dropping earlier tables"):
        await drop_tables(data, await connect(data), collection.tenant, collection.name, but=numbers)


Values: TypeAlias = "Callable[[Source], Mapping[str, Value]]"
"""Computes the values of a source's declared fields."""


async def add_fields(
    chunks: lancedb.AsyncTable,
    sources: lancedb.AsyncTable,
    collection: str,
    fields: Mapping[str, FieldType],
    values: Values,
) -> None:
    """Add a column for each field to the chunks, and fill it with the `values` of the sources."""
    await drop_fields(chunks, fields)  # a killed command may have left a column that is filled in part
    columns = schema.field_columns(fields)
    await chunks.add_columns(columns)
    rows = (await rows_of(sources, schema.SUMMARY_COLUMNS)).to_pylist()
    by_source = {
        row["id"]: table_rows.stored_fields(values(schema.source_record(row, collection))) for row in rows
    }
    changed = [_source(row, fields, by_source[row["id"]]) for row in rows]
    await update_rows(sources, changed, schema.source_columns(["id", "fields"]))
    chunk_ids = cast("list[str]", (await chunks.query().select(["id"]).to_arrow())["id"].to_pylist())
    ids = grouped((schema.split_chunk_id(id_)[0], id_) for id_ in chunk_ids)
    filled = [
        {"id": id_} | {schema.field_column(name): value for name, value in of_source.items()}
        for source_id, of_source in by_source.items()
        if of_source
        for id_ in ids[source_id]
    ]
    await update_rows(chunks, filled, pa.schema([pa.field("id", pa.string(), nullable=False), *columns]))


async def drop_fields(chunks: lancedb.AsyncTable, names: Iterable[str]) -> None:
    """Drop the columns of these fields that exist, with their indexes."""
    there = set((await chunks.schema()).names)
    if columns := [column for name in names if (column := schema.field_column(name)) in there]:
        await chunks.drop_columns(columns)


def _source(row: Mapping[str, Any], fields: Iterable[str], values: Mapping[str, object]) -> dict[str, Any]:
    """The row of a source with these `values` for the fields; its other fields stay."""
    remaining = {name: value for name, value in json.loads(row["fields"]).items() if name not in fields}
    return {"id": row["id"], "fields": json.dumps({**remaining, **values}, ensure_ascii=False)}


def is_swept(data: Home, collection: Collection, lease: Lease | None = None) -> bool:
    """Whether a note says that the present versions hold no leftovers; in a bucket, the lease says so."""
    if isinstance(data, Bucket):  # a holder that ended well has swept, and emptied its lease
        return lease is not None and not lease.inherited
    try:
        noted = json.loads(_file(data, collection.tenant, collection.name).read_bytes())
        return bool(noted == _versions(data, collection))
    except (OSError, ValueError):
        return False


def note_swept(data: Home, collection: Collection, lease: Lease | None = None) -> None:
    """Note that the present versions hold no leftovers. If noting fails, the next writer looks for them."""
    if isinstance(data, Bucket):
        if lease is not None:
            lease.settle()
        return
    with suppress(OSError, RefdeskError):
        file = _file(data, collection.tenant, collection.name)
        write_whole(file, json.dumps(_versions(data, collection)).encode())


def forget_swept(data: Home, tenant: str, name: str) -> None:
    """Make the next writer of a collection look for leftovers."""
    if not isinstance(data, Bucket):
        _file(data, tenant, name).unlink(missing_ok=True)


def _file(data: Path, tenant: str, name: str) -> Path:
    return data / "locks" / f"{tenant}.{name}.swept"


def _versions(data: Path, collection: Collection) -> dict[str, list[object]]:
    """The newest version of each table.

    Raises:
        OSError: a table has no version.
    """
    return {name: newest_version(table_folder(data, name)) for name in table_names(collection)}


class RebuildTarget:
    """The tables of a coming build, which no reader opens. The holder of the collection's lock writes them.

    A source has the generation of the source that it was made from. So a rebuild that continues after an
    interruption, or returns to a former build, knows which sources are up to date.
    """

    def __init__(
        self, data: Home, collection: Collection, chunks: lancedb.AsyncTable, sources: lancedb.AsyncTable
    ) -> None:
        self.collection = collection
        self._data = data
        self._chunks = chunks
        self._sources = sources
        self._opened_at = time.time()
        self.sample_for_everybody = partial(sample_for_everybody, chunks)

    async def rows(self) -> dict[str, dict[str, Any]]:
        """The summaries of its sources, by id."""
        with engine_errors("reading sources"):
            rows = (await rows_of(self._sources, schema.SUMMARY_COLUMNS)).to_pylist()
        return {row["id"]: row for row in rows}

    async def ids(self) -> set[str]:
        """The ids of its sources, including those of which a killed run left only chunks."""
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
            # Last, because a rebuild that continues takes a source with a row for complete.
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
        """Update the labels of chunks that have another revision than these records."""
        columns = ["source_id", "revision"]
        alike: dict[str, list[str]] = defaultdict(list)
        with engine_errors("copying access records"):
            labelled = (await self._chunks.query().select(columns).to_arrow()).group_by(columns).aggregate([])
            for row in labelled.to_pylist():
                values = table_rows.label_values(access.get(row["source_id"]))
                if values["revision"] != row["revision"]:
                    alike[json.dumps(values)].append(row["source_id"])
            for labels, ids in alike.items():  # one commit for all with the same labels
                await self._chunks.update(json.loads(labels), where=schema.one_of("source_id", ids))

    async def finish(self, generations: Mapping[str, str]) -> None:
        """Complete the indexes and flush everything. `generations` has the generation of each source, by id.

        Raises:
            StoreError: a source or a chunk is missing; then the catalog must not switch to this build.
        """
        with engine_errors("indexing"):
            await table_maintenance.compact(self._chunks, self._sources, self.collection)
            counts = await table_rows.count_chunks(self._chunks)
        rows = await self.rows()
        complete = all(counts[id_, row["generation"]] == row["chunk_count"] for id_, row in rows.items())
        # Compared with what was to be copied: after the switch, a source that is missing would just be gone.
        present = {id_: row["generation"] for id_, row in rows.items()}
        if not complete or present != dict(generations) or len(counts) > len(rows):
            raise StoreError(
                f"The rebuilt tables of the collection {self.collection.name!r} lack something, so it stays "
                f"as it is. Run refdesk-admin purge --collection {self.collection.name}, which drops them, "
                "and the rebuild again."
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
        there = [table for name in names if (table := await open_if_there(database, name))]
        columns = schema.chunks_schema(build.embedder.dimension, build.fields)
        # A field may have been declared, or a command killed between two tables, since the rebuild began.
        if len(there) < len(names) or set(await there[0].schema()) != set(columns):
            for name in names:
                await database.drop_table(name, ignore_missing=True)
            await create_tables(database, build)
        chunks, sources = [await database.open_table(name) for name in names]
        await table_maintenance.create_chunk_indexes(chunks)
    return RebuildTarget(data, build, chunks, sources)


OF_TEXT = frozenset({schema.FILE, *schema.OF_PASSAGES})
"""The keys of the column `fields` that aren't declared fields."""


def same_text(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both rows of a source give the same chunks with the same words."""
    has_same_words = first["generation"] == second["generation"] and _names(first) == _names(second)
    return has_same_words and _declared_fields(first) == _declared_fields(second)


def _names(row: Mapping[str, Any]) -> str:
    return schema.source_record(row, "").names


def _declared_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in json.loads(row["fields"]).items() if name not in OF_TEXT}
