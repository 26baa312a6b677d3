"""Makes collections, tags and tenants.

The tables of a collection are made and flushed to disk before the catalog has its row, so a crash never
leaves a row without tables. Tables without a row are ignored, and dropped when a collection of that name is
made.

A tag is a snapshot of a collection under another name: a collection whose tables are copies. So everything
that works on a collection works on a tag, and no old table version is kept for it. The differences:

- A source's id is the original's id plus `tag_letters`. So a citation of a tag never shows a later text, and
  the id contains the original's (`rag.store.read.schema.original_id`).
- Each source has an access record as old as the tag. A principal must be admitted by this record and by the
  original's present one (`rag.store.read.sources_reader`): the old text may never have been meant for the
  present text's readers.
- Nothing is ingested into it, and it is searched only if it is named.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rag.access.tenants import OWNER, has_tenant
from rag.corpus import (
    AccessRecord,
    Collection,
    EmbedderIdentity,
    LanguageChoice,
)
from rag.errors import ConfigurationError, RefdeskError
from rag.home import SET_PATH, Bucket, Home, read
from rag.store.read import catalog, schema
from rag.store.read.connection import connect, engine_errors, open_if_there
from rag.store.write import collection_tables, table_maintenance
from rag.store.write.access_writer import access_table, create_access_table
from rag.store.write.change_collection import CATALOG_WAIT_SECONDS, finish_drop, in_catalog, open_writer
from rag.store.write.desk_folder import claim_storage, make_key, note_tenant, prepare, read_key, tag_letters
from rag.store.write.locks import locked, open_in_turn

if TYPE_CHECKING:
    import lancedb


CATALOG_COMPACTED = 32  # commits; each leaves a file, and 2,000 files slow down a server's first search
DEFAULT_LANGUAGE: LanguageChoice = "auto"


async def ensure_collection(  # noqa: PLR0913 what to check, besides what to make
    data: Home,
    tenant: str,
    name: str,
    embedder: EmbedderIdentity,
    *,
    language: LanguageChoice | None = None,
    known: Collection | None = None,
    tenant_is_there: bool = False,
    **properties: Any,  # noqa: ANN401 values of its fields
) -> Collection:
    """The collection of this name, made if it doesn't exist.

    The `properties`, fields of `Collection`, apply to a new collection only. Without a `language`, an
    existing collection keeps its own and a new one gets `DEFAULT_LANGUAGE`. By `created_at`, which is now if
    it isn't given, the caller can tell whether the collection is new. An `attached` one must be new, and gets
    no tables. A collection in a bucket that the caller has just read (`known`) is only checked, because
    opening it for writing reads it again. If the caller saw the tenant (`tenant_is_there`), the tenant isn't
    made: if it is gone, somebody removed it since.

    Raises:
        ConfigurationError: the tenant was removed; or the collection was made with another embedder or
            language, it is attached or to be attached, or the data folder can't be made.
    """
    prepare(data)
    if known and isinstance(data, Bucket):
        return _checked(known, embedder, language)
    started = time.time()
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as lease, engine_errors("opening the catalog"):
        if tenant_is_there and not has_tenant(data, tenant):
            raise ConfigurationError(f"The tenant {tenant!r} was removed in the meantime.")
        database = await with_catalog(data)
        note_tenant(data, tenant)
        _, (collections,) = await open_in_turn(data, lease, schema.COLLECTIONS)
        rows = (await collections.query().where(in_catalog(tenant, name)).to_arrow()).to_pylist()
        if rows:
            if properties.get("attached"):
                raise ConfigurationError(f"The collection {name!r} already exists.")
            return _checked(catalog.collection_record(rows[0]), embedder, language)
        usual = {
            "language": language or DEFAULT_LANGUAGE,
            "distance": "cosine",
            "created_at": datetime.now(UTC),
            "build": collection_tables.new_number(data, 0),
        }
        collection = Collection(tenant, name, embedder, **usual | properties)
        await create_access_table(database, tenant)
        if not collection.attached:
            await _create_tables(data, database, collection)
        await _enter(data, collections, collection, started)
        return collection


def _checked(
    collection: Collection, embedder: EmbedderIdentity, language: LanguageChoice | None
) -> Collection:
    """The collection, if documents can be ingested into it with this embedder and language."""
    catalog.check_ingestible(collection)
    catalog.check_embedder(collection, embedder)
    catalog.check_language(collection, language or collection.language)
    return collection


async def with_catalog(data: Home) -> lancedb.AsyncConnection:
    """The database, after the desk's key and the catalog were made, if they are missing."""
    table_maintenance.repair(data, schema.COLLECTIONS)
    database = await connect(data, writes=True)
    if await open_if_there(database, schema.COLLECTIONS) is None:
        make_key(data)  # not if there is a catalog: another key would change the ids
        await database.create_table(schema.COLLECTIONS, schema=schema.COLLECTIONS_SCHEMA, exist_ok=True)
    return database


async def tag_collection(data: Home, collection: Collection, name: str, description: str) -> Collection:
    """Tag a collection as it is now. Nothing can be ingested into it meanwhile.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: there is a collection of that name, or the collection is a tag or attached.
        StoreError: the disk is full, or the storage failed. No part of the tag remains.
    """
    tenant, started = collection.tenant, time.time()
    catalog.check_ingestible(collection)
    async with open_writer(data, collection) as writer:
        collection = writer.collection
        collection_tables.check_space(data, collection, collection_tables.current_build(collection))
        tag = replace(
            collection,
            name=name,
            description=description,
            created_at=datetime.now(UTC),
            build=collection_tables.new_number(data, TAG_BUILD),
            former=None,
            coming=None,
            tag_of=collection.name,
        )
        letters = tag_letters(tag, read_key(data))
        try:
            with locked(data, f"{tenant}.{name}", seconds=0), engine_errors("making the tag"):
                # The catalog's lock is held at the beginning and the end only: copying rows can take minutes.
                with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as lease:
                    database, (collections,) = await open_in_turn(data, lease, schema.COLLECTIONS)
                    await _check_free(collections, tag)
                    await _create_tables(data, database, tag)
                before = await writer.records()  # before the rows: a later change counts as not copied
                await copy_rows(database, collection, tag, letters)
                await _complete_indexes(data, database, tag, started)
                async with access_table(data, tenant) as table:
                    now = await table.records()
                    of_name = [id_ for id_, record in now.items() if record.collection == name]
                    await table.forget(filter(schema.original_id, of_name))  # left by a killed tagging
                    await table.put([*copied_records(tag, before, now, letters)])
                with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as lease:
                    _, (collections,) = await open_in_turn(data, lease, schema.COLLECTIONS)
                    await _check_free(collections, tag)  # again: the name may have been taken meanwhile
                    await _enter(data, collections, tag, started)
        except Exception:
            with suppress(RefdeskError):
                await finish_drop(data, tenant, name)
            raise
        with suppress(RefdeskError):  # the tag is complete; only labels may be stale
            await writer.copy_labels()
            await writer.finish()
    return tag


async def _check_free(collections: lancedb.AsyncTable, collection: Collection) -> None:
    if await collections.count_rows(in_catalog(collection.tenant, collection.name)):
        raise ConfigurationError(f"The collection {collection.name!r} already exists.")


async def _complete_indexes(
    data: Home, database: lancedb.AsyncConnection, collection: Collection, started: float
) -> None:
    """Complete the indexes of new tables, and flush these to the disk."""
    names = collection_tables.table_names(collection)
    chunks, sources = [await database.open_table(name) for name in names]
    await table_maintenance.compact(chunks, sources, collection)
    for name in names:
        table_maintenance.sync_table(data, name, started)


async def _enter(data: Home, collections: lancedb.AsyncTable, collection: Collection, started: float) -> None:
    """Add the row of a collection to the catalog, after its tables and records were flushed to disk."""
    tables = () if collection.attached else collection_tables.table_names(collection)
    if not isinstance(data, Bucket):
        table_maintenance.sync_to_disk(data / "tenants", started)
    for name in (schema.access_table(collection.tenant), *tables):
        table_maintenance.sync_table(data, name, started)
    enter = collections.merge_insert(["tenant", "name"]).when_matched_update_all()
    await enter.when_not_matched_insert_all().execute(catalog.collection_row(collection))
    if await collections.version() % CATALOG_COMPACTED == 0:
        await collections.optimize(cleanup_older_than=table_maintenance.KEPT_VERSIONS)
    table_maintenance.sync_table(data, schema.COLLECTIONS, started)


def create_tenant(data: Home, tenant: str, storage: Home | None = None) -> None:
    """Make a tenant without collections, with a database of its own in a `storage`, if there is one.

    Raises:
        ConfigurationError: the data folder can't be made, or is a tenant's own, or the storage isn't empty.
        StoreError: the storage can't be read or written.
    """
    if read(data, OWNER) is not None:
        raise ConfigurationError(
            f"{data} is the storage of a tenant of another desk. Create tenants in that desk, or name "
            f"another data folder with {SET_PATH}."
        )
    prepare(data)
    make_key(data)  # the owner file of a storage is derived from it
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
        if storage is not None:
            claim_storage(data, tenant, storage)
        note_tenant(data, tenant, str(storage or ""))


async def _create_tables(data: Home, database: lancedb.AsyncConnection, collection: Collection) -> None:
    await collection_tables.drop_tables(data, database, collection.tenant, collection.name)  # left by a crash
    await collection_tables.create_tables(database, collection)


TAG_BUILD = 1  # a collection made meanwhile under this name has build 0, so tables don't clash
BATCH_ROWS = 4_096  # of chunks: some 10 MB


async def copy_rows(
    database: lancedb.AsyncConnection, collection: Collection, tag: Collection, letters: str
) -> None:
    """Copy all rows of a locked collection into the empty tables of its tag."""
    pairs = zip(collection_tables.table_names(collection), collection_tables.table_names(tag), strict=True)
    for (original, copy), rows in zip(pairs, (BATCH_ROWS, BATCH_ROWS // 16), strict=True):
        table = await database.open_table(original)
        target = await database.open_table(copy)
        columns = (await target.schema()).names
        async for batch in await table.query().select(columns).to_batches(max_batch_length=rows):
            await target.add(_with_tag_ids(pa.Table.from_batches([batch]), letters).select(columns))


def _with_tag_ids(rows: pa.Table, letters: str) -> pa.Table:
    """The rows with the ids of the tag: "mfzq" -> "mfzqLETTERS", "mfzq/3" -> "mfzqLETTERS/3"."""
    for name in ("id", "source_id"):
        if (at := rows.schema.get_field_index(name)) >= 0:
            ids = pc.replace_substring_regex(rows[name], r"^[a-z2-7]+", rf"\0{letters}")
            rows = rows.set_column(at, rows.schema.field(name), ids)
    return rows


def copied_records(
    tag: Collection, before: Mapping[str, AccessRecord], now: Mapping[str, AccessRecord], letters: str
) -> Iterator[AccessRecord]:
    """The records of a tag's sources, as of the originals `now`. The rows have the labels of `before`."""
    for id_, record in now.items():
        if record.collection == tag.tag_of and record.present:
            # A record that changed while the rows were copied is newer than their labels.
            copied = record.copied and before.get(id_) == record
            yield AccessRecord(id_ + letters, tag.name, record.uri, record.access, copied=copied)
