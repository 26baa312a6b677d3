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
from itertools import chain, count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rag.access.rule import narrower, same
from rag.corpus import AccessRecord, Collection
from rag.errors import BusyError
from rag.filters.predicate import literal
from rag.store import catalog, maintenance, schema
from rag.store.access_writer import access_table, create_access_table, nothing_around, revised
from rag.store.connection import connect, engine_errors, table_folder
from rag.store.folder import forget_tenant, locked, make_key, note_tenant, prepare, read_key
from rag.store.runs import drop_runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import lancedb

    from rag.corpus import Access, Distance, EmbedderIdentity, FieldType, Language, Visibility
    from rag.store.access_writer import AccessTable, Around
    from rag.store.schema import Claim, NewSource

CATALOG_WAIT_SECONDS = 15
WRITER_WAIT_SECONDS = 5  # for a change of rights, which copies labels and is soon done; not for an ingestion
CATALOG_COMPACTED = 32  # commits; each row is a file of its own until then, and 2,000 slow a first search
DEFAULT_LANGUAGE: Language = "English"
HIDDEN = "purged:"
KEPT_FORMER = 32  # contents and URIs that a document had before; some 2 kB at most


@dataclass(frozen=True, slots=True)
class KnownSource:
    """What ingestion must know of a stored source to tell whether it changed, or moved."""

    id: str
    uri: str
    digest: str
    chunk_count: int
    title: str
    metadata: Mapping[str, str]
    record: AccessRecord


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a source went, and what counts for who may see it there."""

    uri: str
    metadata: Mapping[str, str]
    claim: Claim


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
        around: Around = nothing_around,
    ) -> None:
        self.collection = collection
        self.data = data
        self._chunks = chunks
        self._sources = sources
        self._key = key
        self._around = around
        self._opened_at = time.time()
        self._changed = False
        self._incomplete: frozenset[str] = frozenset()
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        self._began: dict[str, AccessRecord] = {}

    def source_id(self, uri: str) -> str:
        """The id of the source that comes from `uri`: stable, and not to be guessed without the key.

        A document that moved took its id along: what then comes to its old place gets another.
        """
        if self.hidden(uri) in self._ids:
            return self._ids[self.hidden(uri)]
        if uri not in self._ids:
            derived = (self._derived(uri, number) for number in count())
            self._ids[uri] = next(id_ for id_ in derived if id_ not in self._taken)
            self._taken.add(self._ids[uri])
        return self._ids[uri]

    def _derived(self, uri: str, number: int) -> str:
        parts = [self.collection.tenant, self.collection.name, uri, *([number] if number else [])]
        digest = hashlib.blake2b(json.dumps(parts).encode(), key=self._key, digest_size=10).digest()
        return base64.b32encode(digest).decode().lower()

    def hidden(self, uri: str) -> str:
        """What is kept of a URI once it was purged: enough to know it and its folder again, with the key."""
        folder, _, name = uri.rpartition("/")
        parts = [
            hashlib.blake2b(part.encode(), key=self._key, digest_size=16).hexdigest()
            for part in (folder, name)
        ]
        return HIDDEN + "/".join(parts)

    async def records(self) -> dict[str, AccessRecord]:
        """All that the tenant keeps of who may see what, by id; also of sources that are gone.

        What is changed from now on is undone by no claim of this writer's.
        """
        async with self._access() as table:
            self._began = await table.records()
        return dict(self._began)

    async def known(self, records: Mapping[str, AccessRecord] | None = None) -> dict[str, KnownSource]:
        """The stored sources by URI; one that lacks chunks has no digest, so that it is made anew.

        `records` are the tenant's, where they have been read.
        """
        records = await self.records() if records is None else records
        mine = [one for one in records.values() if one.collection == self.collection.name]
        self._ids |= {one.uri: one.id for one in sorted(mine, key=lambda one: one.present)}
        self._taken |= {one.id for one in mine}
        with engine_errors("reading sources"):
            columns = ["id", "uri", "digest", "chunk_count", "title", "metadata"]
            rows = (await self._sources.query().select(columns).to_arrow()).to_pylist()
        for row in rows:
            row["digest"] = "" if row["id"] in self._incomplete else row["digest"]
            row["metadata"] = json.loads(row["metadata"])
        return {row["uri"]: KnownSource(record=records[row["id"]], **row) for row in rows}

    async def remember(self, folders: Mapping[str, Access]) -> None:
        """Record what folders, by URI, were ingested with, for what appears in them later."""
        records = [
            AccessRecord(self._derived(uri, -1), "", uri, replace(access, revision=1))
            for uri, access in folders.items()
        ]
        async with self._access() as table:
            there = await table.of(one.id for one in records)
            with self._around({one.id: (there.get(one.id), one) for one in records}):
                await table.put(records)

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete the records of sources that are gone: what comes back has no rights of before."""
        async with self._access() as table:
            gone = [id_ for id_, one in (await table.of(ids)).items() if not one.present or one.is_folder]
            await table.forget(gone)

    async def replace(self, items: Sequence[NewSource]) -> dict[str, AccessRecord]:
        """Store these sources; of those that were there before, only the new version remains.

        Returns who may see each, by id, as `Claim` says. That is recorded first: a text is never visible
        under rights that are wider than its own.
        """
        generation = secrets.token_hex(8)
        claims = {item.source.id: (item.source.uri, item.claim) for item in items}
        with engine_errors("writing"):
            self._changed = True
            records, widely = await self._settle(
                {id_: (uri, until_stored(one)) for id_, (uri, one) in claims.items()}
            )
            await self._chunks.add(self._chunk_rows(items, generation, records))
            rows = [schema.source_row(item, generation=generation) for item in items]
            upsert = self._sources.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.execute(pa.Table.from_pylist(rows, schema=schema.SOURCES_SCHEMA))
            stale = f"{schema.one_of('source_id', claims)} AND (generation <> {literal(generation)})"
            await self._chunks.delete(stale)
        await self._note_copied(widely)
        if wider := {id_: one for id_, one in claims.items() if one[1].set_access}:
            records |= (await self._settle(wider))[0]
        await self.copy_labels()
        return records

    async def claim(self, claims: Mapping[str, tuple[str, Claim]]) -> dict[str, AccessRecord]:
        """Record who may see sources whose text stays as it is: their URIs and claims by id."""
        records, _ = await self._settle(claims)
        await self.copy_labels()
        return records

    async def move(self, moved: Mapping[str, Moved]) -> dict[str, AccessRecord]:
        """Give sources other URIs and metadata, by id; ids, texts and vectors stay. Returns as `replace`."""
        records, _ = await self._settle({id_: (one.uri, one.claim) for id_, one in moved.items()})
        rows = [
            {"id": id_, "uri": one.uri, "metadata": json.dumps(dict(one.metadata), ensure_ascii=False)}
            for id_, one in moved.items()
        ]
        fields = [schema.SOURCES_SCHEMA.field(name) for name in ("id", "uri", "metadata")]
        with engine_errors("moving sources"):
            self._changed = True
            update = self._sources.merge_insert("id").when_matched_update_all()
            await update.execute(pa.Table.from_pylist(rows, schema=pa.schema(fields)))
        await self.copy_labels()
        return records

    async def _settle(
        self, claims: Mapping[str, tuple[str, Claim]]
    ) -> tuple[dict[str, AccessRecord], list[AccessRecord]]:
        """Record who may see these sources; all records by id, and those whose chunks hold older labels."""
        async with self._access() as table:
            needed = {*claims, *chain.from_iterable(claim.narrowed_by for _, claim in claims.values())}
            there = await table.of(needed)
            settled, overtaken = {}, set()
            for id_, (uri, claim) in claims.items():
                others = [there[one].access for one in sorted(claim.narrowed_by) if one in there]
                own = there.get(id_)
                if own and own.access != self._began.get(id_, own).access:
                    overtaken.add(id_)
                fresh = self._record(id_, uri, claim)
                settled[id_] = settle(own, claim, others, fresh, overtaken=id_ in overtaken)
            changed = {id_: one for id_, one in settled.items() if one != there.get(id_)}
            with self._around({id_: (there.get(id_), one) for id_, one in changed.items()}):
                await table.put(list(changed.values()))
        ours = {id_: one for id_, one in settled.items() if id_ in self._began and id_ not in overtaken}
        self._began |= ours  # what others changed stays so for all that this run has still to say of it
        behind = [one for id_, one in settled.items() if not one.copied and id_ in there]
        return settled, behind

    def _record(self, id_: str, uri: str, claim: Claim) -> AccessRecord:
        return AccessRecord(id_, self.collection.name, uri, claim.access, claim.content, claim.word)

    def _chunk_rows(
        self, items: Sequence[NewSource], generation: str, records: Mapping[str, AccessRecord]
    ) -> pa.Table:
        fields = self.collection.fields
        parts = [
            schema.chunk_rows(
                item, generation=generation, access=records[item.source.id].access, fields=fields
            )
            for item in items
        ]
        return pa.concat_tables(parts)

    async def access(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """Who may see those sources that there are."""
        async with self._access() as table:
            return {id_: one.access for id_, one in (await table.of(ids)).items() if one.present}

    async def set_access(self, records: Mapping[str, Access]) -> None:
        """Give sources their access records; in force for every reader from the one commit."""
        async with self._access() as table:
            there = await table.of(records)
            await table.put([revised(one, records[id_]) for id_, one in there.items()])
        await self.copy_labels()

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove sources; they are invisible from the first commit. Who might see them stays recorded."""
        with engine_errors("removing"):
            self._changed = True
            await self._sources.delete(schema.one_of("id", ids))
            await self._chunks.delete(schema.one_of("source_id", ids))
        await self._note_gone(ids)

    async def _note_gone(self, ids: Iterable[str]) -> None:
        async with self._access() as table:
            there = (await table.of(ids)).values()
            await table.put([replace(one, present=False, copied=True) for one in there])

    async def copy_labels(self) -> None:
        """Bring the chunks' copies of access records up to date, wherever they are behind."""
        async with self._access() as table:
            behind = await table.records(f"(NOT copied) AND {schema.PRESENT} AND {self._mine}")
        alike: dict[str, list[AccessRecord]] = defaultdict(list)
        for record in behind.values():
            alike[json.dumps(schema.label_values(record.access))].append(record)
        for records in alike.values():
            ids = [one.id for one in records]
            with engine_errors("copying access records"):
                self._changed = True
                values = schema.label_values(records[0].access)
                await self._chunks.update(values, where=schema.one_of("source_id", ids))
            await self._note_copied(records)

    async def _note_copied(self, copied: Sequence[AccessRecord]) -> None:
        """Say of records that the chunks hold them; not of those that have changed since."""
        if not copied:
            return
        async with self._access() as table:
            there = await table.of(one.id for one in copied)
            await table.put([replace(one, copied=True) for one in copied if there.get(one.id) == one])

    async def purge(self) -> None:
        """Write everything anew, so that no file, older version or index holds what was removed.

        Who might see it stays recorded, but not the names of its files. Servers that run keep files open
        that are gone; what these held is on the disk until they end.
        """
        with engine_errors("purging"):
            chunks, sources = _folders(self.data, self.collection)
            await maintenance.purge_chunks(self._chunks, self.collection, chunks)
            await maintenance.purge_rows(self._sources, "length", sources)
        async with self._access() as table:
            gone = await table.records(f"(NOT present) AND {self._mine}")
            named = [one for one in gone.values() if not one.uri.startswith(HIDDEN)]
            await table.put([self._nameless(one) for one in named])
            await table.purge()
        _sync_tables(self.data, self.collection, self._opened_at)

    def _nameless(self, record: AccessRecord) -> AccessRecord:
        former = (self.hidden(one) if is_uri(one) else one for one in record.former)
        return replace(record, uri=self.hidden(record.uri), former=tuple(former))

    async def sweep(self) -> None:
        """Delete chunks that no source counts, mend what records say of sources, and note what is missing.

        A run that was killed leaves the former and records of sources that never came, a change of access
        that was cut short stale copies, and a power failure sources that lack chunks.
        """
        leftovers: dict[str, list[str]] = defaultdict(list)
        with engine_errors("looking for leftovers"):
            sources = await self._source_rows()
            counted = {(row["id"], row["generation"]): row["chunk_count"] for row in sources}
            stored = await self._stored_chunks()
            for source_id, generation in stored.keys() - counted.keys():
                leftovers[generation].append(source_id)
            for generation, ids in leftovers.items():
                self._changed = True
                theirs = schema.one_of("source_id", ids)
                await self._chunks.delete(f"{theirs} AND (generation = {literal(generation)})")
        await self._mend_records({row["id"]: row["uri"] for row in sources})
        await self.copy_labels()
        self._incomplete = frozenset(key[0] for key, chunks in counted.items() if stored[key] != chunks)

    async def _mend_records(self, uris: Mapping[str, str]) -> None:
        """Let the records say which sources there are; nobody sees one without a record."""
        async with self._access() as table:
            mine = await table.records(self._mine)
            wrong = [one for id_, one in mine.items() if one.present != (id_ in uris)]
            name = self.collection.name
            lost = [AccessRecord(id_, name, uri, None) for id_, uri in uris.items() if id_ not in mine]
            await table.put([*(replace(one, present=not one.present) for one in wrong), *lost])

    async def _stored_chunks(self) -> Counter[tuple[str, str]]:
        """How many chunks there are of each source id and generation."""
        columns = ["source_id", "generation"]
        rows = (await self._chunks.query().select(columns).to_arrow()).group_by(columns)
        counts = rows.aggregate([([], "count_all")]).to_pylist()
        return Counter({(row["source_id"], row["generation"]): row["count_all"] for row in counts})

    async def _source_rows(self) -> list[dict[str, Any]]:
        query = self._sources.query().select(["id", "uri", "generation", "chunk_count"])
        return (await query.to_arrow()).to_pylist()

    async def finish(self) -> None:
        """Bring indexes up to date, compact, and flush to disk what this writer wrote."""
        with engine_errors("indexing"):
            if not self._changed and not await maintenance.is_behind(self._chunks):
                return
            await maintenance.compact(self._chunks, self._sources, self.collection)
        _sync_tables(self.data, self.collection, self._opened_at)

    def _access(self) -> AbstractAsyncContextManager[AccessTable]:
        return access_table(self.data, self.collection.tenant)

    @property
    def _mine(self) -> str:
        return f"(collection = {literal(self.collection.name)})"


def until_stored(claim: Claim) -> Claim:
    """What counts while the text of before is still there, which is not to be opened with the next."""
    return replace(claim, set_access=False, moved_rules=True) if claim.set_access else claim


def settle(
    own: AccessRecord | None,
    claim: Claim,
    others: Iterable[Access | None],
    fresh: AccessRecord,
    *,
    overtaken: bool = False,
) -> AccessRecord:
    """The record that a source is to have: its own where it has one, narrowed by whatever else may count.

    `own` is what is recorded under its id, also where the source was gone, `fresh` what it would be new.
    `others` are the records that it must not be wider than. `overtaken` is whether somebody changed who may
    see it since the run began: even where the run is to set that, it can only narrow it then.
    """
    if own is None:
        return replace(fresh, access=_first(narrower(fresh.access, *others)))
    if claim.set_access:
        access = narrower(own.access, claim.access) if overtaken else claim.access
    else:
        access = narrower(own.access, *others)
        if (
            claim.word != own.word and claim.asked
        ):  # it may tighten its rights, but undo nothing with old words
            access = narrower(access, claim.asked)
        if claim.moved_rules or (not own.present and own.content != claim.content):
            access = narrower(access, claim.access)
    kept = replace(fresh, access=own.access, copied=own.copied, former=_former(own, fresh))
    return kept if same(own.access, access) else revised(kept, access)


def is_uri(former: str) -> bool:
    """Whether what a document was known by is where it was, and not a digest of what it said."""
    return ":" in former and not former.startswith(HIDDEN)


def _former(own: AccessRecord, fresh: AccessRecord) -> tuple[str, ...]:
    """What the document was known by until now: an older copy of it can come back from a backup."""
    known = dict.fromkeys((own.content, own.uri, *own.former))
    return tuple(one for one in known if one and one not in {fresh.content, fresh.uri})[:KEPT_FORMER]


def _first(access: Access | None) -> Access | None:
    return access and replace(access, revision=1)


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
        if not table_folder(data, schema.COLLECTIONS).exists():  # with another key, ids would change
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
        await create_access_table(database, tenant)
        await _create_tables(database, collection)
        maintenance.sync_to_disk(data / "tenants", started)
        maintenance.sync_to_disk(table_folder(data, schema.access_table(tenant)), started)
        _sync_tables(data, collection, started)  # before the row says that they are there
        await collections.add(catalog.collection_row(collection))
        if await collections.version() % CATALOG_COMPACTED == 0:
            await collections.optimize(cleanup_older_than=maintenance.KEPT_VERSIONS)
        maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)
        return collection


@asynccontextmanager
async def open_writer(
    data: Path, collection: Collection, *, around: Around = nothing_around
) -> AsyncIterator[CollectionWriter]:
    """A collection opened for writing, rid of what a killed writer left behind.

    What it changes of who may see what goes on inside of `around`.

    Raises:
        BusyError: another process writes to it, and for longer than a change of rights takes.
        ConfigurationError: the data folder's key is gone, or the folder can't be written.
    """
    async with _opened(data, collection, around, seconds=WRITER_WAIT_SECONDS) as writer:
        await writer.sweep()
        yield writer


@asynccontextmanager
async def _opened(
    data: Path, collection: Collection, around: Around = nothing_around, *, seconds: float = 0
) -> AsyncIterator[CollectionWriter]:
    names = [name(collection.tenant, collection.name) for name in (schema.chunks_table, schema.sources_table)]
    with locked(data, f"{collection.tenant}.{collection.name}", seconds=seconds):
        for name in names:
            maintenance.repair(table_folder(data, name))
        with engine_errors("opening the collection"):
            database = await connect(data)
            chunks, sources = [await database.open_table(name) for name in names]
            await maintenance.create_chunk_indexes(chunks, collection.language)
        yield CollectionWriter(collection, chunks, sources, key=read_key(data), data=data, around=around)


async def copy_labels(data: Path, collection: Collection) -> bool:
    """Bring a collection's copies of access records up to date; False where the one who writes to it will.

    Raises:
        StoreError: the storage failed. The records are in force all the same.
    """
    try:
        async with _opened(data, collection) as writer:
            await writer.copy_labels()
            await writer.finish()
    except BusyError:
        return False
    return True


async def drop_collection(data: Path, collection: Collection, *, forget: Iterable[str] = ()) -> None:
    """Remove a collection with everything in it; who might see its sources stays recorded but of `forget`.

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
        maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)  # no row without tables
        await _drop_tables(database, tenant, name)
        async with access_table(data, tenant) as table:
            theirs = await table.records(f"(collection = {literal(name)})")
            await table.put([replace(one, present=False, copied=True) for one in theirs.values()])
            await table.forget(forget)


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
    with engine_errors("removing the tenant"):
        await (await connect(data)).drop_table(schema.access_table(tenant), ignore_missing=True)
    forget_tenant(data, tenant)


async def _create_tables(database: lancedb.AsyncConnection, collection: Collection) -> None:
    await _drop_tables(database, collection.tenant, collection.name)  # leftovers of a kill before the row
    key = collection.tenant, collection.name
    columns = schema.chunks_schema(collection.embedder.dimension, collection.fields)
    chunks = await database.create_table(schema.chunks_table(*key), schema=columns)
    await maintenance.create_chunk_indexes(chunks, collection.language)
    await database.create_table(schema.sources_table(*key), schema=schema.SOURCES_SCHEMA)


def _sync_tables(data: Path, collection: Collection, since: float) -> None:
    for folder in _folders(data, collection):
        maintenance.sync_to_disk(folder, since)


def _folders(data: Path, collection: Collection) -> tuple[Path, Path]:
    """Where the tables of chunks and of sources lie."""
    key = collection.tenant, collection.name
    return table_folder(data, schema.chunks_table(*key)), table_folder(data, schema.sources_table(*key))


async def _drop_tables(database: lancedb.AsyncConnection, tenant: str, name: str) -> None:
    for table in (schema.chunks_table(tenant, name), schema.sources_table(tenant, name)):
        await database.drop_table(table, ignore_missing=True)


def _is(tenant: str, name: str) -> str:
    return f"(tenant = {literal(tenant)}) AND (name = {literal(name)})"
