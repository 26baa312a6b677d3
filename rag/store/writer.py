"""What ingestion writes. One writer per collection at a time, held by a file lock.

A source is visible in one version at any moment. Its chunks carry the generation in which
they were written; the source's row names the generation that counts. New chunks are added
first, then one commit of the source table makes them count and the old ones not, then the
old ones are deleted. Whatever a crash leaves between these steps is invisible, and the next
writer sweeps it away.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rag.filters.predicate import literal
from rag.records import Collection
from rag.store import catalog, maintenance, schema
from rag.store.connection import connect, database_folder, engine_errors
from rag.store.folder import forget_tenant, locked, make_key, note_tenant, prepare, read_key
from rag.store.runs import drop_runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    import lancedb

    from rag.records import Access, Distance, EmbedderIdentity, FieldType, Language, Visibility
    from rag.store.schema import NewSource

CATALOG_WAIT_SECONDS = 15
CATALOG_COMPACTED = 32  # commits; each row is a file of its own until then, and 2,000 slow a first search
DEFAULT_LANGUAGE: Language = "English"


@dataclass(frozen=True, slots=True)
class KnownSource:
    """What ingestion must know of a stored source to tell whether it changed."""

    id: str
    uri: str
    digest: str
    chunk_count: int


class _Counted(NamedTuple):
    """What a source says of its chunks: how many, and of which access record they hold copies."""

    chunks: int
    revision: int


class CollectionWriter:
    """The tables of one collection, opened for writing."""

    def __init__(
        self,
        collection: Collection,
        chunks: lancedb.AsyncTable,
        sources: lancedb.AsyncTable,
        *,
        key: bytes,
        data: Path,
    ) -> None:
        self.collection = collection
        self.data = data
        self._chunks = chunks
        self._sources = sources
        self._key = key
        self._opened_at = time.time()
        self._changed = False
        self._incomplete: frozenset[str] = frozenset()

    def source_id(self, uri: str) -> str:
        """The id of the source that comes from `uri`: stable, and not to be guessed without the key."""
        name = json.dumps([self.collection.tenant, self.collection.name, uri]).encode()
        digest = hashlib.blake2b(name, key=self._key, digest_size=10).digest()
        return base64.b32encode(digest).decode().lower()

    async def known(self) -> dict[str, KnownSource]:
        """The stored sources by URI; one that lacks chunks has no digest, so that it is made anew."""
        with engine_errors("reading sources"):
            query = self._sources.query().select(["id", "uri", "digest", "chunk_count"])
            rows = (await query.to_arrow()).to_pylist()
        for row in rows:
            row["digest"] = "" if row["id"] in self._incomplete else row["digest"]
        return {row["uri"]: KnownSource(**row) for row in rows}

    async def replace(self, items: Sequence[NewSource]) -> None:
        """Store these sources; of those that were there before, only the new version remains.

        Who may see a source that was there before stays as it is, unless `set_access` says otherwise.
        """
        generation = secrets.token_hex(8)
        ids = [item.source.id for item in items]
        with engine_errors("writing"):
            self._changed = True
            access = await self._access_for(items)
            await self._chunks.add(self._chunk_rows(items, generation, access))
            rows = [
                schema.source_row(item, generation=generation, access=access[item.source.id])
                for item in items
            ]
            upsert = self._sources.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.execute(pa.Table.from_pylist(rows, schema=schema.SOURCES_SCHEMA))
            stale = f"{schema.one_of('source_id', ids)} AND (generation <> {literal(generation)})"
            await self._chunks.delete(stale)

    async def _access_for(self, items: Sequence[NewSource]) -> dict[str, Access | None]:
        """The record that each source is to have."""
        there = await self.access(item.source.id for item in items)
        access = {}
        for item in items:
            known, id_ = item.source.id in there, item.source.id
            access[id_] = there[id_] if known and not item.set_access else item.access
            if known and item.set_access and item.access:
                access[id_] = _revised(item.access, there[id_])
        return access

    def _chunk_rows(
        self, items: Sequence[NewSource], generation: str, access: Mapping[str, Access | None]
    ) -> pa.Table:
        fields = self.collection.fields
        parts = [
            schema.chunk_rows(item, generation=generation, access=access[item.source.id], fields=fields)
            for item in items
        ]
        return pa.concat_tables(parts)

    async def access(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """The access records of those sources that there are."""
        query = self._sources.query().where(schema.one_of("id", ids))
        rows = (await query.select(["id", "revision", *schema.ACCESS_COLUMNS]).to_arrow()).to_pylist()
        return {row["id"]: schema.access_record(row) for row in rows}

    async def set_access(self, records: Mapping[str, Access]) -> None:
        """Give sources their access records; in force for every reader from the first commit of each.

        The source's own record comes first. What is left of its copies after a crash, `sweep` mends.
        """
        with engine_errors("changing access"):
            self._changed = True
            there = await self.access(records)
            for id_, record in records.items():
                revised = _revised(record, there[id_])
                await self._sources.update(schema.access_values(revised), where=schema.one_of("id", [id_]))
                await self._chunks.update(
                    schema.label_values(revised), where=schema.one_of("source_id", [id_])
                )

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove sources; they are invisible from the first of the two commits."""
        with engine_errors("removing"):
            self._changed = True
            await self._sources.delete(schema.one_of("id", ids))
            await self._chunks.delete(schema.one_of("source_id", ids))

    async def purge(self) -> None:
        """Write everything anew, so that no file, older version or index holds what was removed.

        Servers that run keep files open that are gone; what these held is on the disk until they end.
        """
        with engine_errors("purging"):
            await maintenance.purge_chunks(self._chunks, self.collection)
            await maintenance.purge_rows(self._sources, "length")
        _sync_tables(self.data, self.collection, self._opened_at)

    async def sweep(self) -> None:
        """Delete chunks that no source counts, mend their copies of access records, and note what is missing.

        A run that was killed leaves the former, a change of access that was cut short stale copies, and a
        power failure sources that lack chunks.
        """
        leftovers: dict[str, list[str]] = defaultdict(list)
        with engine_errors("looking for leftovers"):
            counted = await self._counted_chunks()
            stored: Counter[tuple[str, str]] = Counter()
            stale = set()
            for row in await self._chunk_groups():
                key = row["source_id"], row["generation"]
                stored[key] += row["count_all"]
                if key in counted and row["revision"] != counted[key].revision:
                    stale.add(row["source_id"])
            for source_id, generation in stored.keys() - counted.keys():
                leftovers[generation].append(source_id)
            for generation, ids in leftovers.items():
                self._changed = True
                theirs = schema.one_of("source_id", ids)
                await self._chunks.delete(f"{theirs} AND (generation = {literal(generation)})")
            await self._mend_copies(stale)
        self._incomplete = frozenset(key[0] for key, one in counted.items() if stored[key] != one.chunks)

    async def _mend_copies(self, stale: Iterable[str]) -> None:
        """Bring the copies of access records that the chunks of these sources hold up to date."""
        for source_id, record in (await self.access(stale)).items():
            self._changed = True
            values = schema.label_values(record)
            await self._chunks.update(values, where=schema.one_of("source_id", [source_id]))

    async def _chunk_groups(self) -> list[dict[str, Any]]:
        """How many chunks there are of each source id, generation and revision of the access record."""
        columns = ["source_id", "generation", "revision"]
        rows = (await self._chunks.query().select(columns).to_arrow()).group_by(columns)
        return rows.aggregate([([], "count_all")]).to_pylist()

    async def _counted_chunks(self) -> dict[tuple[str, str], _Counted]:
        """What there should be of each source id and generation, by what the sources say."""
        query = self._sources.query().select(["id", "generation", "chunk_count", "revision"])
        rows = (await query.to_arrow()).to_pylist()
        return {(row["id"], row["generation"]): _Counted(row["chunk_count"], row["revision"]) for row in rows}

    async def finish(self) -> None:
        """Bring indexes up to date, compact, and flush to disk what this writer wrote."""
        with engine_errors("indexing"):
            if not self._changed and not await maintenance.is_behind(self._chunks):
                return
            await maintenance.compact(self._chunks, self._sources, self.collection)
        _sync_tables(self.data, self.collection, self._opened_at)


async def ensure_collection(  # noqa: PLR0913 what a collection is made of
    data: Path,
    tenant: str,
    name: str,
    embedder: EmbedderIdentity,
    *,
    language: Language | None = None,
    fields: Mapping[str, FieldType] = MappingProxyType({}),
    visibility: Visibility = "tenant",
    distance: Distance = "cosine",
) -> Collection:
    """The collection of this name, made first if it isn't there.

    `language` None means that of the collection, `DEFAULT_LANGUAGE` for a new one. `fields`,
    `visibility` and `distance` are for a new one.

    Raises:
        ConfigurationError: it was made by another embedder or for another language, or the data folder
            can't be made.
    """
    prepare(data)
    started = time.time()
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS), engine_errors("opening the catalog"):
        if not _table_folder(data, schema.COLLECTIONS).exists():  # with another key, ids would change
            make_key(data)
        note_tenant(data, tenant, filterable=bool(fields))
        maintenance.repair(_table_folder(data, schema.COLLECTIONS))
        database = await connect(data)
        collections = await database.create_table(
            schema.COLLECTIONS, schema=schema.COLLECTIONS_SCHEMA, exist_ok=True
        )
        rows = (await collections.query().where(_is(tenant, name)).to_arrow()).to_pylist()
        if rows:
            collection = catalog.collection_record(rows[0])
            catalog.check_embedder(collection, embedder)
            catalog.check_language(collection, language or collection.language)
            return collection
        collection = Collection(
            tenant,
            name,
            embedder,
            language or DEFAULT_LANGUAGE,
            distance,
            datetime.now(UTC),
            dict(fields),
            visibility,
        )
        await _create_tables(database, collection)
        maintenance.sync_to_disk(data / "tenants", started)
        _sync_tables(data, collection, started)  # before the row says that they are there
        await collections.add(catalog.collection_row(collection))
        if await collections.version() % CATALOG_COMPACTED == 0:
            await collections.optimize(cleanup_older_than=maintenance.KEPT_VERSIONS)
        maintenance.sync_to_disk(_table_folder(data, schema.COLLECTIONS), started)
        return collection


@asynccontextmanager
async def open_writer(data: Path, collection: Collection) -> AsyncIterator[CollectionWriter]:
    """A collection opened for writing, rid of what a killed writer left behind.

    Raises:
        BusyError: another process writes to it.
        ConfigurationError: the data folder's key is gone, or the folder can't be written.
    """
    names = [name(collection.tenant, collection.name) for name in (schema.chunks_table, schema.sources_table)]
    with locked(data, f"{collection.tenant}.{collection.name}", seconds=0):
        for name in names:
            maintenance.repair(_table_folder(data, name))
        with engine_errors("opening the collection"):
            database = await connect(data)
            chunks, sources = [await database.open_table(name) for name in names]
            await maintenance.create_chunk_indexes(chunks, collection.language)
        writer = CollectionWriter(collection, chunks, sources, key=read_key(data), data=data)
        await writer.sweep()
        yield writer


async def drop_collection(data: Path, collection: Collection) -> None:
    """Remove a collection with everything in it.

    Raises:
        BusyError: another process writes to it.
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
        await collections.delete(_is(tenant, name))
        maintenance.sync_to_disk(_table_folder(data, schema.COLLECTIONS), started)  # no row without tables
        await _drop_tables(database, tenant, name)


def create_tenant(data: Path, tenant: str) -> None:
    """Make a tenant who has no collections yet.

    Raises:
        ConfigurationError: the data folder can't be made.
    """
    prepare(data)
    note_tenant(data, tenant)


async def drop_tenant(data: Path, tenant: str, collections: Iterable[Collection]) -> None:
    """Remove a tenant with their collections and what else is kept of them.

    Raises:
        BusyError: another process writes to one of the collections.
    """
    for collection in collections:
        await drop_collection(data, collection)
    await drop_runs(data, tenant)
    forget_tenant(data, tenant)


async def _create_tables(database: lancedb.AsyncConnection, collection: Collection) -> None:
    await _drop_tables(database, collection.tenant, collection.name)  # leftovers of a kill before the row
    key = collection.tenant, collection.name
    columns = schema.chunks_schema(collection.embedder.dimension, collection.fields)
    chunks = await database.create_table(schema.chunks_table(*key), schema=columns)
    await maintenance.create_chunk_indexes(chunks, collection.language)
    await database.create_table(schema.sources_table(*key), schema=schema.SOURCES_SCHEMA)


def _sync_tables(data: Path, collection: Collection, since: float) -> None:
    for name in (schema.chunks_table, schema.sources_table):
        maintenance.sync_to_disk(_table_folder(data, name(collection.tenant, collection.name)), since)


async def _drop_tables(database: lancedb.AsyncConnection, tenant: str, name: str) -> None:
    for table in (schema.chunks_table(tenant, name), schema.sources_table(tenant, name)):
        await database.drop_table(table, ignore_missing=True)


def _revised(access: Access, before: Access | None) -> Access:
    return replace(access, revision=before.revision + 1 if before else 1)


def _is(tenant: str, name: str) -> str:
    return f"(tenant = {literal(tenant)}) AND (name = {literal(name)})"


def _table_folder(data: Path, table: str) -> Path:
    return database_folder(data) / f"{table}.lance"
