"""Restores a backup of a tenant.

1. The archive is read to its end and compared with its checksums, before anything is written.
2. Under the locks of the collections, its tables are made as new builds, which the catalog doesn't name, so
   nobody reads them. They are flushed to disk.
3. Under the locks of the catalog and of the access records, too: the collections leave the catalog, so nobody
   sees them; the access records are merged in one commit; the collections enter the catalog with the new
   builds in one commit. Then the earlier builds are dropped.

A process killed in step 1 or 2 leaves tables that nobody reads. One killed in step 3, which takes some
milliseconds, leaves collections that nobody sees: run it again.

Rights only become narrower: a document gets the narrower of its present access record and the backup's,
unless the operator asks for exactly the backup's. If its record was deleted, its last one in the audit log
counts. Documents that were purged since the backup are not restored.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rag.access.keys import parsed_keys
from rag.access.rule import narrower, same_access
from rag.access.tenants import storages_of
from rag.corpus import Access, AccessRecord, Collection
from rag.errors import ConfigurationError, RefdeskError
from rag.filters.grammar import literal
from rag.home import Home, desk_around
from rag.originals import local_path
from rag.store.care import tenant_backup
from rag.store.care.tenant_backup import Archive
from rag.store.read import catalog, connection, schema
from rag.store.write import collection_tables, desk_folder, table_maintenance
from rag.store.write.access_claim import KEPT_FORMER, with_access
from rag.store.write.access_writer import access_table, create_access_table, read_table
from rag.store.write.change_collection import CATALOG_WAIT_SECONDS, open_writer
from rag.store.write.locks import Lease, locked, open_in_turn
from rag.store.write.make_collection import with_catalog
from rag.uris import ID_CHARS

if TYPE_CHECKING:
    import lancedb

NO_ACCESS: Mapping[str, Access] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The effects of a restore. Sources are named by their paths.

    `narrowed` sources have narrower rights than in the backup, `returned` ones had been removed since,
    `purged` ones are not restored, and `dropped` ones had been added since and are gone now. `untouched` are
    the collections that the backup doesn't have. `keys` are the API keys of the backup. `replaced` says
    whether the tenant had collections or access records before.
    """

    tenant: str
    collections: Mapping[str, int]
    at: str = ""
    narrowed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    purged: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    keys: bytes = b""
    replaced: bool = False


@dataclass(slots=True)
class _Loaded:
    """The content of an archive without its tables.

    `sources` has the collection of each restored source by id, `purged` the URIs of sources that are skipped.
    """

    key: bytes = b""
    keys: bytes = b""
    records: dict[str, AccessRecord] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    purged: dict[str, str] = field(default_factory=dict)

    def wanted_rows(self, collection: str, kind: str, rows: pa.Table, away: frozenset[str]) -> pa.Table:
        """The rows except those of purged sources, and in tags of their copies. Notes the sources."""
        column = "id" if kind == "sources" else "source_id"
        for row in rows.select(["id", "uri"]).to_pylist() if kind == "sources" else ():
            if not away.isdisjoint({row["id"], schema.original_id(row["id"])}):
                self.purged[row["id"]] = row["uri"]
            else:
                self.sources[row["id"]] = collection
        ids, originals = rows[column], pc.utf8_slice_codeunits(rows[column], 0, ID_CHARS)
        purged = pa.array(sorted(away), pa.string())
        is_away = pc.or_(pc.is_in(ids, value_set=purged), pc.is_in(originals, value_set=purged))
        return rows.filter(pc.invert(is_away))


async def restore(  # noqa: PLR0913 the backup, the target, and rights known otherwise
    data: Home,
    backup: Archive,
    tenant: str,
    *,
    exact: bool = False,
    overwrite: bool = False,
    forgotten: Iterable[str] = (),
    last_known: Mapping[str, Access] = NO_ACCESS,
) -> RestoreResult:
    """Restore a checked backup as this tenant.

    With `exact`, the backup's access records count unchanged, and purged sources come back. `forgotten` are
    ids of sources that were purged without leaving an access record. `last_known` is the last access of
    sources and folders, by id; it counts if their records are gone.

    Raises:
        ConfigurationError: the tenant has one of the collections and `overwrite` is false; or the backup has
            keys of another tenant, or attaches a table of this desk.
        BusyError: another process writes to one of the collections.
        StoreError: the storage failed.
    """
    collections = [_collection(member, tenant) for member in backup.about.collections]
    _refuse_foreign_tables(collections)
    desk_folder.prepare(data)
    with ExitStack() as stack:
        leases = [
            stack.enter_context(locked(data, f"{tenant}.{name}", seconds=0))
            for name in sorted(collection.name for collection in collections)
        ]
        stack.enter_context(connection.engine_errors("restoring the backup"))
        present = await _present(data, tenant)
        if not overwrite and (
            there := sorted({collection.name for collection in collections} & present.keys())
        ):
            raise ConfigurationError(
                f"The tenant {tenant!r} already has the collections of the backup: {', '.join(there)}. Add "
                "--yes to replace them."
            )
        records = await _records(data, tenant)
        away = frozenset() if exact else _purged_since(records, forgotten)
        collections = [_as_new_build(data, collection) for collection in collections]
        try:
            loaded = await _load(data, backup, collections, away)
            if not exact:
                collections = [
                    _with_narrower_visibility(collection, present.get(collection.name))
                    for collection in collections
                ]
            last_accesses = {} if exact else last_known
            switch = _Switch(data, backup.about.tenant, collections, leases, loaded)
            result = await switch.put_in_force(replaced=present, last_known=last_accesses, exact=exact)
        except Exception:
            with suppress(RefdeskError):  # the first error says what is wrong
                await _drop_unnamed(data, collections)
            raise
        await _drop_unnamed(data, collections)
        untouched = tuple(sorted(present.keys() - {collection.name for collection in collections}))
    for collection in collections:
        if not collection.attached:
            async with open_writer(data, collection) as writer:  # updates labels, and deletes orphans
                await writer.finish()
    purged = tuple(sorted({local_path(uri) or uri for uri in loaded.purged.values()}))
    result = replace(result, at=backup.about.at, purged=purged, untouched=untouched, keys=loaded.keys)
    return replace(result, replaced=bool(present or records))


def _purged_since(records: Mapping[str, AccessRecord], forgotten: Iterable[str]) -> frozenset[str]:
    """The ids of purged sources: by their records, or those `forgotten` that have none."""
    purged = {
        id_
        for id_, record in records.items()
        if not record.present and record.uri.startswith(desk_folder.PURGED)
    }
    return frozenset(purged | {*forgotten} - records.keys())


def _collection(member: tenant_backup.BackupCollection, tenant: str) -> Collection:
    row = {
        "tenant": tenant,
        "name": member.name,
        "created_at": datetime.fromisoformat(member.created_at),
        "definition": member.definition,
    }
    try:
        # The backup has the tables that were searched, and no others.
        return replace(catalog.collection_record(row), build=0, former=None, coming=None)
    except (TypeError, KeyError) as error:  # a property that we don't know, or one that we need is missing
        raise ConfigurationError(
            f"The collection {member.name!r} of the backup was made by another version of refdesk. Use "
            "that one."
        ) from error


def _as_new_build(data: Home, collection: Collection) -> Collection:
    """The collection with a build that has no tables yet."""
    numbers = collection_tables.build_numbers(data, collection.tenant, collection.name)
    return replace(collection, build=collection_tables.new_number(data, 1 + max(numbers, default=-1)))


async def _drop_unnamed(data: Home, collections: Iterable[Collection]) -> None:
    """Drop the builds of the collections that the catalog doesn't name; the caller holds their locks."""
    for collection in collections:
        collection_in_force = (await _present(data, collection.tenant)).get(collection.name)
        tenant, name, database = collection.tenant, collection.name, await connection.connect(data)
        if collection_in_force is None:
            await collection_tables.drop_tables(data, database, tenant, name)
        else:
            await collection_tables.drop_others(data, collection_in_force)


def _with_narrower_visibility(collection: Collection, present: Collection | None) -> Collection:
    """The collection, restricted by default if the present one is."""
    hidden = present is not None and present.visibility == "restricted"
    return replace(collection, visibility="restricted") if hidden else collection


async def _present(data: Home, tenant: str) -> dict[str, Collection]:
    table = await _catalog(data)
    if table is None:
        return {}
    rows = (await table.query().where(f"(tenant = {literal(tenant)})").to_arrow()).to_pylist()
    return {collection.name: collection for collection in map(catalog.collection_record, rows)}


async def _catalog(data: Home) -> lancedb.AsyncTable | None:
    return await connection.open_if_there(await connection.connect(data, writes=True), schema.COLLECTIONS)


async def _records(data: Home, tenant: str) -> dict[str, AccessRecord]:
    database = await connection.connect(data, writes=True)
    if await connection.open_if_there(database, schema.access_table(tenant)) is None:
        return {}
    async with read_table(data, tenant) as table:
        return await table.records()


def _refuse_foreign_tables(collections: Iterable[Collection]) -> None:
    """Refuse a collection that attaches a table of a desk, because it would bypass that table's rights."""
    for collection in collections:
        attached = collection.attached
        if attached and "://" not in attached.table and desk_around(Path(attached.table).resolve()):
            raise ConfigurationError(
                f"The collection {collection.name!r} of the backup is attached to {attached.table}, a table "
                "of a desk. refdesk writes no such backup: somebody changed it. Nothing was restored."
            )


def _keys_of(backup: Archive, content: bytes) -> bytes:
    """The API keys of the backup, after a check that all are its tenant's."""
    foreign = [
        key.id for key in parsed_keys(content, tenant_backup.KEYS).keys if key.tenant != backup.about.tenant
    ]
    if foreign:
        raise ConfigurationError(
            f"The backup {backup.file} of the tenant {backup.about.tenant!r} has keys of another tenant: "
            f"{', '.join(foreign)}. refdesk writes no such backup: somebody changed the file. Nothing was "
            "restored."
        )
    return content


async def _load(
    data: Home, backup: Archive, collections: Sequence[Collection], away: frozenset[str]
) -> _Loaded:
    """Make the tables of the backup, without the sources that stay `away`."""
    loaded, started = _Loaded(), time.time()
    database = await connection.connect(data, writes=True)
    tables: dict[str, lancedb.AsyncTable] = {}
    for name, content in tenant_backup.archive_parts(backup.file):
        match name.split("/"):
            case [tenant_backup.KEY]:
                loaded.key = content
            case [tenant_backup.KEYS]:
                loaded.keys = _keys_of(backup, content)
            case ["access", _]:
                stored = [schema.stored_record(row) for row in tenant_backup.rows_of(content).to_pylist()]
                loaded.records |= {record.id: record for record in stored}
            case ["collections", name, kind, _]:
                (collection,) = [collection for collection in collections if collection.name == name]
                rows = loaded.wanted_rows(name, kind, tenant_backup.rows_of(content), away)
                await _add(database, tables, collection, kind, rows)
    for collection in collections:
        if not collection.attached:
            chunks, sources = (tables[name] for name in collection_tables.table_names(collection))
            await table_maintenance.create_chunk_indexes(chunks)
            await table_maintenance.compact(chunks, sources, collection)
    for name in tables:
        table_maintenance.sync_table(data, name, started)
    return loaded


async def _add(
    database: lancedb.AsyncConnection,
    tables: dict[str, lancedb.AsyncTable],
    collection: Collection,
    kind: str,
    rows: pa.Table,
) -> None:
    """Add rows to a table, which the first rows create."""
    chunks, sources = collection_tables.table_names(collection)
    name = chunks if kind == "chunks" else sources
    if name not in tables:
        needed = schema.SOURCES_SCHEMA
        if kind == "chunks":
            needed = schema.chunks_schema(collection.embedder.dimension, collection.fields)
        if lacking := [
            column.name for column in needed if not column.nullable and column.name not in rows.schema.names
        ]:
            raise ConfigurationError(f"The backup has no {lacking[0]!r} of {kind}: another version made it.")
        tables[name] = await database.create_table(name, schema=rows.schema)
    if rows.num_rows:
        await tables[name].add(rows)


@dataclass(frozen=True, slots=True)
class _Switch:
    """The last step of a restore: puts its tables and the archive's other content in force.

    The backup is of `from_tenant`. The caller holds the locks of the collections, in a bucket as `leases`.
    """

    data: Home
    from_tenant: str
    collections: Sequence[Collection]
    leases: Sequence[Lease | None]
    loaded: _Loaded

    async def put_in_force(
        self, *, replaced: Container[str], last_known: Mapping[str, Access], exact: bool
    ) -> RestoreResult:
        """Replace the collections, and merge the access records."""
        data, loaded, tenant = self.data, self.loaded, self.collections[0].tenant
        names = [collection.name for collection in self.collections]
        started = time.time()
        with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS) as of_catalog:
            # A desk without documents takes the backup's key, so that ids and citations stay. But the owner
            # files of tenants' own storages depend on the present one.
            if await _catalog(data) is None and not storages_of(data):
                desk_folder.write(data, "key", loaded.key)
            database = await with_catalog(data)
            # Of purged documents the present records stay, which don't have their names.
            backup = {id_: record for id_, record in loaded.records.items() if id_ not in loaded.purged}
            key = desk_folder.read_key(data)
            backup = with_ids_of(key, backup, self.collections, self.from_tenant, loaded.key)
            await create_access_table(database, tenant)
            desk_folder.note_tenant(data, tenant)
            _, (catalog_table,) = await open_in_turn(data, of_catalog, schema.COLLECTIONS)
            for lease in filter(None, self.leases):
                lease.check()  # for the last time before anything of the present desk changes
            # Until the rows of the new builds, nobody sees the collections: no old text gets new rights.
            await catalog_table.delete(f"(tenant = {literal(tenant)}) AND {schema.one_of('name', names)}")
            table_maintenance.sync_table(data, schema.COLLECTIONS, started)
            async with access_table(data, tenant) as table:
                present, restored = await table.records(), loaded.sources
                rights = merged_records(present, last_known, backup, restored, names, replaced, exact=exact)
                await table.put(rights.records)
            await catalog_table.add(pa.concat_tables([*map(catalog.collection_row, self.collections)]))
            table_maintenance.sync_table(data, schema.COLLECTIONS, started)
        for lease in filter(None, self.leases):
            lease.settle()  # a former holder can only write to tables that are dropped
        return RestoreResult(
            tenant,
            {name: sum(name == of_source for of_source in loaded.sources.values()) for name in names},
            narrowed=_paths(rights.narrowed),
            returned=_paths(rights.returned),
            dropped=_paths(rights.dropped),
        )


def _paths(records: Iterable[AccessRecord]) -> tuple[str, ...]:
    return tuple(sorted(local_path(record.uri) or record.uri for record in records))


# The access records of a restored tenant: those of the backup, narrowed by the present ones.


@dataclass(frozen=True, slots=True)
class MergedRecords:
    """The `records` to write, and which of them to report.

    `narrowed` ones are narrower than in the backup, `returned` ones are of sources that were removed since,
    `dropped` ones of sources that the backup doesn't have.
    """

    records: Sequence[AccessRecord]
    narrowed: Sequence[AccessRecord]
    returned: Sequence[AccessRecord]
    dropped: Sequence[AccessRecord]


def merged_records(  # noqa: PLR0913 both sides of a restore
    present: Mapping[str, AccessRecord],
    last_known: Mapping[str, Access],
    backup: Mapping[str, AccessRecord],
    restored: Container[str],
    collections: Container[str],
    replaced: Container[str],
    *,
    exact: bool,
) -> MergedRecords:
    """The records of a tenant whose `collections` get the state of a backup, with the sources `restored`.

    If both have a record, the narrower access counts, unless `exact`; of a deleted record, its `last_known`
    access does. Records of sources that aren't restored stay: they apply if the document comes back. Of the
    collections, `replaced` ones are there before.
    """
    put, narrowed, returned = [], [], []
    limits: dict[str, Access | None] = dict(last_known)
    limits |= {id_: record.access for id_, record in present.items()}
    stored = {record.uri for record in present.values() if record.present}
    for id_, record in backup.items():
        current = present.get(id_)
        is_limited = id_ in limits and not exact
        access = narrower(record.access, limits[id_]) if is_limited else record.access
        if record.is_folder:
            put.append(replace(record, access=access))
        elif id_ in restored:
            merged = _merged_source(record, current, access)
            put.append(merged)
            narrowed += [] if same_access(merged.access, record.access) else [merged]
            # Without a record, the document may be here under another id, as in a desk with another key.
            was_removed = not current.present if current else record.uri not in stored
            returned += [merged] if was_removed and (current or record.collection in replaced) else []
        elif current is None:  # removed before the backup: its rights apply if it comes back
            put.append(replace(record, access=access, present=False, copied=True))
    dropped = [
        record
        for id_, record in present.items()
        if record.present and record.collection in collections and id_ not in restored
    ]
    put += [replace(record, present=False, copied=True) for record in dropped]
    return MergedRecords(put, narrowed, returned, dropped)


def _merged_source(record: AccessRecord, current: AccessRecord | None, access: Access | None) -> AccessRecord:
    restored = replace(record, present=True)
    if current:
        earlier = dict.fromkeys((*record.former, current.content, current.uri, *current.former))
        former = tuple(part for part in earlier if part and part not in {record.content, record.uri})
        restored = replace(restored, former=former[:KEPT_FORMER])
    return with_access(restored, access)


def with_ids_of(
    key: bytes,
    records: Mapping[str, AccessRecord],
    collections: Sequence[Collection],
    tenant: str,
    old: bytes,
) -> dict[str, AccessRecord]:
    """The records by id, with folders under the ids that this key gives them.

    The records were made with the key `old`, for `tenant`; `collections` are of the tenant that gets them.
    """
    ids = [
        (
            desk_folder.SourceIds(replace(collection, tenant=tenant), old),
            desk_folder.SourceIds(collection, key),
        )
        for collection in collections
    ]
    changed = {}
    for id_, record in records.items():
        new = (now.of_folder(record.uri) for before, now in ids if before.of_folder(record.uri) == id_)
        here = next(new, id_) if record.is_folder else id_
        changed[here] = replace(record, id=here)
    return changed
