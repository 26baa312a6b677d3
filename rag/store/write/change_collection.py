"""Changes the definition of a collection, opens it for writing, and drops it, or a whole tenant.

A file lock admits one writer of a collection at a time, which reads the catalog's row again under the lock.
Others get a `BusyError`.
To drop a collection, its row is removed first and its tables after that. So a crash never leaves a row
without tables.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rag.corpus import Collection
from rag.errors import BusyError, NotFoundError, RefdeskError
from rag.filters.grammar import literal
from rag.home import Home
from rag.store.read import catalog, schema
from rag.store.read.connection import connect, engine_errors, open_if_there
from rag.store.write import collection_tables, table_maintenance
from rag.store.write.access_writer import Around, access_table, nothing_around
from rag.store.write.collection_tables import forget_swept, is_swept
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import (
    empty_spool,
    forget_origins,
    forget_tenant,
    read_key,
    spending_reserve,
)
from rag.store.write.evaluation_runs import drop_runs
from rag.store.write.locks import Lease, locked, open_in_turn
from rag.store.write.table_maintenance import rows_of

if TYPE_CHECKING:
    import lancedb

CATALOG_WAIT_SECONDS = 15
WRITER_WAIT_SECONDS = 5  # enough for a change of access, which copies labels; not for an ingestion


async def change_collection(
    data: Home, tenant: str, name: str, change: Callable[[Collection], Collection]
) -> Collection:
    """The collection with another definition. `change` gets the present one and returns the new one.

    It must not change what the tables were made for: language, the identity of the embedder, or fields unless
    the caller has the collection open for writing and changes the tables, too (`rag.ingest.rework_stored`).

    Raises:
        NotFoundError: the tenant has no collection of this name.
        StoreError: the storage failed.
        ConfigurationError: `change` raised it, and nothing was changed.
    """
    started = time.time()
    with (
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as lease,
        engine_errors("changing the collection"),
    ):
        _, (collections,) = await open_in_turn(data, lease, schema.COLLECTIONS)
        # Read under the lock: somebody may have removed it and made another one of that name.
        rows = (await collections.query().where(in_catalog(tenant, name)).to_arrow()).to_pylist()
        if not rows:
            raise NotFoundError(f"There is no collection {name!r}.")
        changed = change(catalog.collection_record(rows[0]))
        (definition,) = catalog.collection_row(changed)["definition"].to_pylist()
        await collections.update({"definition": definition}, where=in_catalog(tenant, name))
        table_maintenance.sync_table(data, schema.COLLECTIONS, started)
    return changed


async def redefine(writer: CollectionWriter, **changes: Any) -> None:  # noqa: ANN401 values of its fields
    """Change fields in the definition of a collection that is open for writing."""
    before = writer.collection
    await change_collection(
        writer.data, before.tenant, before.name, lambda current: replace(current, **changes)
    )
    writer.collection = replace(before, **changes)


async def forget_builds(data: Home, collection: Collection) -> bool:
    """Drop the earlier and half-made tables of a collection; the caller has it open for writing.

    Returns whether the catalog named any.
    """
    if had_builds := bool(collection.former or collection.coming):
        await change_collection(
            data, collection.tenant, collection.name, lambda now: replace(now, former=None, coming=None)
        )
    # The catalog first: readers must not open tables that are being dropped.
    await collection_tables.drop_others(data, replace(collection, former=None, coming=None))
    return had_builds


@asynccontextmanager
async def open_writer(
    data: Home, collection: Collection, *, around: Around = nothing_around, mends_indexes: bool = False
) -> AsyncIterator[CollectionWriter]:
    """A collection opened for writing, after the leftovers of a killed writer were removed.

    `around` encloses every change of access. With `mends_indexes` all indexes are rebuilt first: while one
    can't be read, no leftovers can be deleted.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: the data folder's key is missing, the folder isn't writable, or the collection is
            an attached table.
    """
    async with _opened(data, collection, around, seconds=WRITER_WAIT_SECONDS, tries_store=True) as writer:
        empty_spool(data, collection.tenant, collection.name)  # of a killed run: a running one holds the lock
        if mends_indexes:
            await writer.rebuild_indexes()
        for attempt in spending_reserve(data):  # removed documents must leave a full disk, too
            with attempt:
                await writer.sweep()
        yield writer


@asynccontextmanager
async def _opened(
    data: Home,
    collection: Collection,
    around: Around = nothing_around,
    *,
    seconds: float = 0,
    tries_store: bool = False,
) -> AsyncIterator[CollectionWriter]:
    catalog.check_writable(collection)
    name = f"{collection.tenant}.{collection.name}"
    with locked(data, name, seconds=seconds, tries_store=tries_store) as lease:
        with engine_errors("opening the collection"):
            # The caller's definition is from before the lock.
            collection = await _as_it_is(await connect(data, writes=True), collection)
        names = collection_tables.table_names(collection)
        for name in names:
            table_maintenance.repair(data, name)
        with engine_errors("opening the collection"):
            # Not `last`: the lease counts as clean only after `sweep` has removed what a killed holder left.
            _, (chunks, sources) = await open_in_turn(data, lease, *names, last=False)
            swept = is_swept(data, collection, lease)
            await table_maintenance.create_chunk_indexes(chunks)
        key = read_key(data)
        yield CollectionWriter(
            collection, chunks, sources, key=key, data=data, around=around, swept=swept, lease=lease
        )


async def _as_it_is(database: lancedb.AsyncConnection, collection: Collection) -> Collection:
    """The collection as in the catalog now: somebody may have declared a field or rebuilt it.

    Raises:
        BusyError: it was rebuilt with another embedder.
    """
    collections, row = await database.open_table(schema.COLLECTIONS), schema.COLLECTIONS_SCHEMA.names
    ours = {"tenant": collection.tenant, "name": collection.name}
    rows = (await rows_of(collections, row, ours)).to_pylist()
    now = catalog.collection_record(rows[0]) if rows else collection
    if now.embedder != collection.embedder:
        raise BusyError(f"The collection {collection.name!r} was rebuilt meanwhile. Run the command again.")
    return now


async def copy_labels(data: Home, collection: Collection) -> bool:
    """Bring a collection's copies of labels up to date. False if it has a writer, which does so itself.

    Raises:
        StoreError: the storage failed. The access records are in force nevertheless.
    """
    try:
        async with _opened(data, collection) as writer:
            await writer.copy_labels()
            await writer.finish()
    except BusyError:
        return False
    return True


async def drop_collection(data: Home, collection: Collection) -> None:
    """Drop a collection. The access records of its sources stay. An attached table stays as it is."""
    tenant, name = collection.tenant, collection.name
    async with _dropping(data, tenant, name) as (collections, lease):
        started = time.time()
        await collections.delete(in_catalog(tenant, name))
        table_maintenance.sync_table(data, schema.COLLECTIONS, started)  # before the tables go
        await _drop_without_row(data, tenant, name, lease)


async def finish_drop(data: Home, tenant: str, name: str) -> bool:
    """Complete a `drop_collection` that was killed after its first step. Returns whether it left anything."""
    if await open_if_there(await connect(data), schema.access_table(tenant)) is None:
        return False
    async with _dropping(data, tenant, name) as (collections, lease):
        if await collections.count_rows(in_catalog(tenant, name)):
            return False
        return await _drop_without_row(data, tenant, name, lease)


@asynccontextmanager
async def _dropping(
    data: Home, tenant: str, name: str
) -> AsyncIterator[tuple[lancedb.AsyncTable, Lease | None]]:
    """The catalog under its lock, and the lease of a collection."""
    with (
        locked(data, f"{tenant}.{name}", seconds=0) as lease,
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as of_catalog,
        engine_errors("removing the collection"),
    ):
        _, (collections,) = await open_in_turn(data, of_catalog, schema.COLLECTIONS)
        yield collections, lease


async def _drop_without_row(data: Home, tenant: str, name: str, lease: Lease | None) -> bool:
    """Drop the tables of a collection, and mark its sources as removed. Returns whether there were any.

    The access records of a tag are deleted: another tag of that name has other ids.
    """
    # Tables before records: if it is killed in between, present records tell `finish_drop` to go on.
    there = bool(collection_tables.build_numbers(data, tenant, name))
    empty_spool(data, tenant, name)
    forget_origins(data, tenant, name)
    forget_swept(data, tenant, name)
    await collection_tables.drop_tables(data, await connect(data), tenant, name)
    async with access_table(data, tenant) as table:
        records = [*(await table.records({"collection": name})).values()]
        present = [record for record in records if record.present or not record.copied]  # and tombstones
        await table.put([replace(record, present=False, copied=True) for record in present])
        await table.forget(filter(schema.original_id, (record.id for record in records)))
    if lease:
        lease.settle()  # a former holder has no tables left to write to
    return there or bool(present)


async def replace_tables(data: Home, collection: Collection) -> None:
    """Replace the tables of a collection by empty ones. Its row in the catalog and access records stay."""
    started = time.time()
    with (
        locked(data, f"{collection.tenant}.{collection.name}", seconds=0),
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS),
        engine_errors("making the tables"),
    ):
        database = await connect(data)
        for table in collection_tables.table_names(collection):
            await database.drop_table(table, ignore_missing=True)
        await collection_tables.create_tables(database, collection)
        for table in collection_tables.table_names(collection):
            table_maintenance.sync_table(data, table, started)


async def drop_if_empty(data: Home, collection: Collection) -> None:
    """Drop a collection without sources, unless that fails or another process is writing to it."""
    with suppress(RefdeskError):
        async with _opened(data, collection) as writer:
            empty = not await writer.known_sources()
        if empty:  # after the lock, which dropping takes itself
            await drop_collection(data, collection)


async def drop_tenant(data: Home, tenant: str, collections: Iterable[Collection]) -> None:
    """Drop a tenant's collections, evaluation runs and access records, so that no file holds them.

    The tenant itself stays until `end_tenant`, so that a killed removal can be repeated.
    """
    for collection in collections:
        await drop_collection(data, collection)
    for name in collection_tables.names_of_tables(data, tenant):  # left by a killed removal
        await finish_drop(data, tenant, name)
    await drop_runs(data, tenant)
    with engine_errors("removing the tenant"):
        database = await connect(data)
        await database.drop_table(schema.access_table(tenant), ignore_missing=True)
        if await open_if_there(database, schema.COLLECTIONS) is None:
            return
        with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as of_catalog:
            _, (catalog_table,) = await open_in_turn(data, of_catalog, schema.COLLECTIONS)
            # Old versions of the catalog hold descriptions.
            await table_maintenance.purge_rows(data, catalog_table, "definition")


async def end_tenant(data: Home, tenant: str) -> None:
    """Delete a tenant after `drop_tenant`. From then on no running command can make a collection in it.

    Raises:
        BusyError: a command has made one after `drop_tenant`.
    """
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
        with engine_errors("removing the tenant"):
            table = await open_if_there(await connect(data), schema.COLLECTIONS)
            is_used = table is not None and await table.count_rows(f"tenant = {literal(tenant)}")
        if is_used:
            raise BusyError(f"A collection was made in the tenant {tenant!r} in the meantime. Try again.")
        forget_tenant(data, tenant)


def in_catalog(tenant: str, name: str) -> str:
    """The condition for the catalog's row of a collection, in SQL."""
    return f"(tenant = {literal(tenant)}) AND (name = {literal(name)})"
