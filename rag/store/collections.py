"""Making, opening and dropping collections and tenants.

A collection exists from the moment when the catalog has its row. Its tables are made and flushed to disk
before that row, and dropped after it, so a crash never leaves a row without tables. Tables without a row are
ignored, and dropped when a collection of that name is made.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from rag.corpus import DEFAULT_EMBEDDER, Collection
from rag.errors import BusyError, ConfigurationError, NotFoundError, RefdeskError
from rag.filters.predicate import literal
from rag.store import builds, catalog, maintenance, schema, tags
from rag.store.access_writer import access_table, create_access_table, nothing_around
from rag.store.connection import connect, engine_errors, table_folder
from rag.store.folder import (
    empty_spool,
    forget_origins,
    forget_tenant,
    make_key,
    note_tenant,
    prepare,
    read_key,
    spending_reserve,
)
from rag.store.locks import locked
from rag.store.runs import drop_runs
from rag.store.schema import original_id
from rag.store.source_ids import tag_letters
from rag.store.swept import forget_swept, is_swept
from rag.store.writer import CollectionWriter, table_folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from pathlib import Path

    import lancedb

    from rag.corpus import (
        Attachment,
        Chunking,
        Distance,
        EmbedderIdentity,
        FieldType,
        LanguageChoice,
        Policy,
        Visibility,
    )
    from rag.flags import Flag
    from rag.store.access_writer import Around

CATALOG_WAIT_SECONDS = 15
WRITER_WAIT_SECONDS = 5  # outlasts a change of access, which copies labels; not an ingestion
CATALOG_COMPACTED = 32  # commits; each leaves a file, and 2,000 files slow down a server's first search
DEFAULT_LANGUAGE: LanguageChoice = "auto"


async def ensure_collection(  # noqa: PLR0913 what a collection is made of
    data: Path,
    tenant: str,
    name: str,
    embedder: EmbedderIdentity,
    *,
    language: LanguageChoice | None = None,
    fields: Mapping[str, FieldType] = MappingProxyType({}),
    visibility: Visibility = "tenant",
    distance: Distance = "cosine",
    description: str = "",
    link: str = "",
    embedder_name: str = DEFAULT_EMBEDDER,
    created_at: datetime | None = None,
    attached: Attachment | None = None,
    chunking: tuple[Chunking, ...] = (),
    personal_data: Mapping[Flag, Policy] = MappingProxyType({}),
    keep_days: int = 0,
    visibility_is_set: bool = False,
) -> Collection:
    """The collection of this name, made if it doesn't exist.

    `fields`, `visibility` (and whether that `visibility_is_set` by somebody), `distance`, `description`,
    `link`, `chunking`, `personal_data`, `keep_days` and `embedder_name`, the name of the embedder in the
    settings, apply to a new collection only. Without a `language`, an existing collection keeps its own and a
    new one gets `DEFAULT_LANGUAGE`. A caller that gives `created_at` recognises by it whether the collection
    is new; otherwise it is now. A collection that is `attached` must be new, and gets no tables.

    Raises:
        ConfigurationError: it was made with another embedder or language, it is attached or to be attached,
            or the data folder can't be made.
    """
    prepare(data)
    started = time.time()
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS), engine_errors("opening the catalog"):
        if not table_folder(data, schema.COLLECTIONS).exists():  # another key would change the ids
            make_key(data)
        note_tenant(data, tenant, filterable=bool(fields))
        maintenance.repair(table_folder(data, schema.COLLECTIONS))
        database = await connect(data)
        collections = await database.create_table(
            schema.COLLECTIONS, schema=schema.COLLECTIONS_SCHEMA, exist_ok=True
        )
        rows = (await collections.query().where(_is(tenant, name)).to_arrow()).to_pylist()
        if rows:
            collection = catalog.collection_record(rows[0])
            if attached:
                raise ConfigurationError(f"The collection {name!r} already exists.")
            catalog.check_ingestible(collection)
            catalog.check_embedder(collection, embedder)
            catalog.check_language(collection, language or collection.language)
            return collection
        collection = Collection(
            tenant,
            name,
            embedder,
            language or DEFAULT_LANGUAGE,
            distance,
            created_at or datetime.now(UTC),
            dict(fields),
            visibility,
            description,
            link,
            embedder_name,
            attached,
            chunking,
            dict(personal_data),
            keep_days,
            visibility_is_set=visibility_is_set,
        )
        await create_access_table(database, tenant)
        if not attached:
            await _create_tables(data, database, collection)
        await _enter(data, collections, collection, started)
        return collection


async def tag_collection(data: Path, collection: Collection, name: str, description: str) -> Collection:
    """A tag of a collection as it is now; see `rag.store.tags`. Nothing can be ingested into it meanwhile.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: there is a collection of that name, or the collection is a tag or attached.
        StoreError: the disk is full, or the storage failed. No part of the tag remains.
    """
    tenant, started = collection.tenant, time.time()
    catalog.check_ingestible(collection)
    async with open_writer(data, collection) as writer:
        collection = writer.collection
        builds.check_space(data, collection, builds.current(collection))
        tag = replace(tags.tag_of(collection, name, description), created_at=datetime.now(UTC))
        letters = tag_letters(tag, read_key(data))
        try:
            with locked(data, f"{tenant}.{name}", seconds=0), engine_errors("making the tag"):
                database = await connect(data)
                collections = await database.open_table(schema.COLLECTIONS)
                with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
                    await _check_free(collections, tag)
                    await _create_tables(data, database, tag)
                before = await writer.records()
                await tags.copy_rows(database, collection, tag, letters)
                await _indexed(data, database, tag, started)
                async with access_table(data, tenant) as table:
                    now = await table.records()
                    await table.forget(tags.left_behind(tag, now))
                    await table.put([*tags.copied_records(tag, before, now, letters)])
                with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
                    await _check_free(collections, tag)
                    await _enter(data, collections, tag, started)
        except Exception:
            with suppress(RefdeskError):
                await finish_drop(data, tenant, name)
            raise
        with suppress(RefdeskError):  # the tag is made; rights changed meanwhile may have left labels behind
            await writer.copy_labels()
            await writer.finish()
    return tag


async def _check_free(collections: lancedb.AsyncTable, collection: Collection) -> None:
    if await collections.count_rows(_is(collection.tenant, collection.name)):
        raise ConfigurationError(f"The collection {collection.name!r} already exists.")


async def _indexed(
    data: Path, database: lancedb.AsyncConnection, collection: Collection, started: float
) -> None:
    """Complete the indexes of new tables, and flush these to the disk."""
    chunks, sources = [await database.open_table(name) for name in builds.table_names(collection)]
    await maintenance.compact(chunks, sources, collection)
    for folder in table_folders(data, collection):
        maintenance.sync_to_disk(folder, started)


async def _enter(data: Path, collections: lancedb.AsyncTable, collection: Collection, started: float) -> None:
    """Add the row of a collection to the catalog, after everything that it promises is on the disk."""
    tenant = collection.tenant
    maintenance.sync_to_disk(data / "tenants", started)
    maintenance.sync_to_disk(table_folder(data, schema.access_table(tenant)), started)
    for folder in table_folders(data, collection):
        if not collection.attached:
            maintenance.sync_to_disk(folder, started)
    await collections.add(catalog.collection_row(collection))
    if await collections.version() % CATALOG_COMPACTED == 0:
        await collections.optimize(cleanup_older_than=maintenance.KEPT_VERSIONS)
    maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)


async def change_collection(
    data: Path, tenant: str, name: str, change: Callable[[Collection], Collection]
) -> Collection:
    """The collection with another definition. `change` gets the present one and returns the new one.

    It must not change what the tables were made for: language, the identity of the embedder, or fields unless
    the caller has the collection open for writing and changes the tables, too (`rag.ingest.declare`).

    Raises:
        NotFoundError: there is no such collection.
        StoreError: the storage failed.
        ConfigurationError: `change` raised it; then nothing is changed.
    """
    started = time.time()
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS), engine_errors("changing the collection"):
        collections = await (await connect(data)).open_table(schema.COLLECTIONS)
        # Read under the lock: meanwhile, somebody may have removed it and made another of that name.
        rows = (await collections.query().where(_is(tenant, name)).to_arrow()).to_pylist()
        if not rows:
            raise NotFoundError(f"There is no collection {name!r}.")
        changed = change(catalog.collection_record(rows[0]))
        (definition,) = catalog.collection_row(changed)["definition"].to_pylist()
        await collections.update({"definition": definition}, where=_is(tenant, name))
        maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)
    return changed


async def forget_builds(data: Path, collection: Collection) -> bool:
    """Drop the earlier and half-made tables of a collection; the caller has it open for writing.

    Returns whether the catalog named any.
    """
    if named := bool(collection.former or collection.coming):
        await change_collection(
            data, collection.tenant, collection.name, lambda one: replace(one, former=None, coming=None)
        )
    await builds.drop_others(data, replace(collection, former=None, coming=None))
    return named


@asynccontextmanager
async def open_writer(
    data: Path, collection: Collection, *, around: Around = nothing_around, mends_indexes: bool = False
) -> AsyncIterator[CollectionWriter]:
    """A collection opened for writing, after the leftovers of a killed writer were swept away.

    `around` encloses every change of access. With `mends_indexes` all indexes are made anew first: where one
    can't be read, no leftovers can be deleted.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: the data folder's key is missing, the folder isn't writable, or the collection is
            an attached table.
    """
    async with _opened(data, collection, around, seconds=WRITER_WAIT_SECONDS) as writer:
        empty_spool(data, collection.tenant, collection.name)
        if mends_indexes:
            await writer.rebuild_indexes()
        for attempt in spending_reserve(data):  # what it removes is nobody's, or nobody's any more
            with attempt:
                await writer.sweep()
        yield writer


@asynccontextmanager
async def _opened(
    data: Path, collection: Collection, around: Around = nothing_around, *, seconds: float = 0
) -> AsyncIterator[CollectionWriter]:
    catalog.check_writable(collection)
    with locked(data, f"{collection.tenant}.{collection.name}", seconds=seconds):
        with engine_errors("opening the collection"):
            database = await connect(data)
            collection = await _as_it_is(database, collection)
        names = builds.table_names(collection)
        for name in names:
            maintenance.repair(table_folder(data, name))
        with engine_errors("opening the collection"):
            chunks, sources = [await database.open_table(name) for name in names]
            swept = is_swept(data, collection)
            await maintenance.create_chunk_indexes(chunks)
        key = read_key(data)
        yield CollectionWriter(collection, chunks, sources, key=key, data=data, around=around, swept=swept)


async def _as_it_is(database: lancedb.AsyncConnection, collection: Collection) -> Collection:
    """The collection as the catalog has it now: somebody may have declared a field or rebuilt it meanwhile.

    Raises:
        BusyError: it has another embedder now.
    """
    collections = await database.open_table(schema.COLLECTIONS)
    query = collections.query().where(_is(collection.tenant, collection.name))
    rows = (await query.to_arrow()).to_pylist()
    now = catalog.collection_record(rows[0]) if rows else collection
    if now.embedder != collection.embedder:
        raise BusyError(f"The collection {collection.name!r} was rebuilt meanwhile. Run the command again.")
    return replace(
        collection,
        fields=now.fields,
        chunking=now.chunking,
        build=now.build,
        former=now.former,
        coming=now.coming,
        language=now.language,
        languages=now.languages,
    )


async def copy_labels(data: Path, collection: Collection) -> bool:
    """Bring a collection's copies of labels up to date. False if it is being written to: that writer does it.

    Raises:
        StoreError: the storage failed. The access records are in force all the same.
    """
    try:
        async with _opened(data, collection) as writer:
            await writer.copy_labels()
            await writer.finish()
    except BusyError:
        return False
    return True


async def drop_collection(data: Path, collection: Collection, *, forget: Iterable[str] = ()) -> None:
    """Drop a collection. The access records of its sources stay, except those of `forget`.

    An attached table itself stays as it is: the tables that are dropped are those with our names.

    Raises:
        BusyError: another process is writing to it.
    """
    tenant, name = collection.tenant, collection.name
    with (
        locked(data, f"{tenant}.{name}", seconds=0),
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS),
        engine_errors("removing the collection"),
    ):
        database = await connect(data)
        collections = await database.open_table(schema.COLLECTIONS)
        started = time.time()
        empty_spool(data, tenant, name)
        forget_origins(data, tenant, name)
        await collections.delete(_is(tenant, name))
        maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)  # no row without tables
        await _drop_without_row(data, tenant, name, forget)


async def finish_drop(data: Path, tenant: str, name: str) -> bool:
    """Drop what `drop_collection` left when it was killed after its first step. Whether there was anything.

    Raises:
        BusyError: another process is writing to a collection of that name.
    """
    if not table_folder(data, schema.access_table(tenant)).exists():
        return False
    with (
        locked(data, f"{tenant}.{name}", seconds=0),
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS),
        engine_errors("removing the collection"),
    ):
        collections = await (await connect(data)).open_table(schema.COLLECTIONS)
        if await collections.count_rows(_is(tenant, name)):
            return False
        return await _drop_without_row(data, tenant, name, ())


async def _drop_without_row(data: Path, tenant: str, name: str, forget: Iterable[str]) -> bool:
    """Drop the tables of a collection, and mark its sources as removed. Whether there was anything.

    The access records of a tag go with it: another tag of that name has other ids.
    """
    there = bool(builds.numbers(data, tenant, name))
    forget_swept(data, tenant, name)
    await builds.drop_tables(data, await connect(data), tenant, name)
    async with access_table(data, tenant) as table:
        records = [*(await table.records(f"(collection = {literal(name)})")).values()]
        present = [one for one in records if one.present or not one.copied]
        await table.put([replace(one, present=False, copied=True) for one in present])
        await table.forget([*forget, *filter(original_id, (one.id for one in records))])
    return there or bool(present)


async def make_tables_anew(data: Path, collection: Collection) -> None:
    """Make the tables of a collection anew, empty. Its row in the catalog and all access records stay.

    Raises:
        BusyError: another process is writing to it.
    """
    started = time.time()
    with (
        locked(data, f"{collection.tenant}.{collection.name}", seconds=0),
        locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS),
        engine_errors("making the tables"),
    ):
        database = await connect(data)
        for table in builds.table_names(collection):
            await database.drop_table(table, ignore_missing=True)
        await builds.create_tables(database, collection)
        for folder in table_folders(data, collection):
            maintenance.sync_to_disk(folder, started)


def create_tenant(data: Path, tenant: str) -> None:
    """Make a tenant without collections.

    Raises:
        ConfigurationError: the data folder can't be made.
    """
    prepare(data)
    note_tenant(data, tenant)


async def drop_if_empty(data: Path, collection: Collection) -> None:
    """Drop a collection that holds no source, unless that fails or another process is writing to it."""
    with suppress(RefdeskError):
        async with _opened(data, collection) as writer:
            empty = not await writer.known()
        if empty:
            await drop_collection(data, collection)


async def drop_tenant(data: Path, tenant: str, collections: Iterable[Collection]) -> None:
    """Drop a tenant with its collections, evaluation runs and access records.

    Raises:
        BusyError: another process is writing to one of the collections.
    """
    for collection in collections:
        await drop_collection(data, collection)
    await drop_runs(data, tenant)
    with engine_errors("removing the tenant"):
        await (await connect(data)).drop_table(schema.access_table(tenant), ignore_missing=True)
    forget_tenant(data, tenant)


async def _create_tables(data: Path, database: lancedb.AsyncConnection, collection: Collection) -> None:
    await builds.drop_tables(data, database, collection.tenant, collection.name)  # left by a crash
    await builds.create_tables(database, collection)


def _is(tenant: str, name: str) -> str:
    return f"(tenant = {literal(tenant)}) AND (name = {literal(name)})"
