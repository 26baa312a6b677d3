"""Restores a backup of a tenant.

1. The archive is read to its end and compared with its checksums, before anything is written.
2. Its tables are made in `restoring`, a folder inside the data folder that nobody reads, and flushed to disk.
3. Under the locks of the collections, of the catalog and of the access records:
   the collections leave the catalog, so nobody sees them; the access records are merged, in one commit; the
   tables are moved into place; the collections enter the catalog again, in one commit.

A process that is killed in step 1 or 2 changes nothing. One that is killed in step 3, which takes some
milliseconds, leaves collections that nobody sees: run it again.

Rights only become narrower: a document gets the narrower of its access record and the backup's, unless the
operator asks for exactly the backup's. If its record was deleted, the last one that the audit log has counts.
Documents that were purged since the backup stay away.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from rag.errors import ConfigurationError
from rag.filters.grammar import literal
from rag.home import desk_around
from rag.originals import local_path
from rag.store.care import tenant_backup
from rag.store.care.tenant_backup import Archive
from rag.store.read import catalog, connection, schema
from rag.store.write import collection_tables, desk_folder, table_maintenance
from rag.store.write.access_claim import KEPT_FORMER, with_access
from rag.store.write.access_writer import access_table, create_access_table
from rag.store.write.change_collection import CATALOG_WAIT_SECONDS, open_writer
from rag.store.write.locks import locked
from rag.uris import ID_CHARS

if TYPE_CHECKING:
    import lancedb

NO_ACCESS: Mapping[str, Access] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The effects of a restore. Sources are named by their paths.

    `narrowed` sources have narrower rights than in the backup. Since the backup, `returned` ones were removed
    and are back, `purged` ones stay away, and `dropped` ones were added and are gone now. `untouched` are the
    collections that the backup doesn't have. `keys` are the API keys of the backup.
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


@dataclass(slots=True)
class _Loaded:
    """The content of an archive but its tables.

    `sources` has the collection of each restored source by id, `purged` the URIs of sources that stay away.
    """

    key: bytes = b""
    keys: bytes = b""
    records: dict[str, AccessRecord] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    purged: dict[str, str] = field(default_factory=dict)

    def wanted_rows(self, collection: str, kind: str, rows: pa.Table, away: frozenset[str]) -> pa.Table:
        """The rows except those of purged sources and of their copies in tags. Notes the sources."""
        column = "id" if kind == "sources" else "source_id"
        for row in rows.select(["id", "uri"]).to_pylist() if kind == "sources" else ():
            if (schema.original_id(row["id"]) or row["id"]) in away:
                self.purged[row["id"]] = row["uri"]
            else:
                self.sources[row["id"]] = collection
        originals = pc.utf8_slice_codeunits(rows[column], 0, ID_CHARS)
        return rows.filter(pc.invert(pc.is_in(originals, value_set=pa.array(sorted(away), pa.string()))))


async def restore(  # noqa: PLR0913 what is restored, and what is known of rights besides
    data: Path,
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
    ids of sources that were purged without leaving an access record. `last_known` are the accesses that
    sources and folders had last, by id; they count where there is no record any more.

    Raises:
        ConfigurationError: the tenant has one of the collections and `overwrite` is false; or the backup has
            keys of another tenant, or attaches a table of this desk.
        BusyError: another process writes to one of them.
        StoreError: the storage failed.
    """
    collections = [_collection(member, tenant) for member in backup.about.collections]
    _refuse_foreign_tables(collections)
    desk_folder.prepare(data)
    with ExitStack() as stack:
        stack.enter_context(locked(data, desk_folder.RESTORE_LOCK, seconds=0))
        for name in sorted(collection.name for collection in collections):
            stack.enter_context(locked(data, f"{tenant}.{name}", seconds=0))
        stack.enter_context(connection.engine_errors("restoring the backup"))
        present = await _present(data, tenant)
        if not overwrite and (
            there := sorted({collection.name for collection in collections} & present.keys())
        ):
            raise ConfigurationError(
                f"The tenant {tenant!r} already has the collections of the backup: {', '.join(there)}. Add "
                "--yes to replace them."
            )
        folder = stack.enter_context(_folder(data))
        records = await _records(data, tenant)
        gone = {
            id_
            for id_, record in records.items()
            if not record.present and record.uri.startswith(desk_folder.PURGED)
        }
        away = frozenset() if exact else frozenset(gone | {*forgotten} - records.keys())
        loaded = await _load(folder, backup, collections, away)
        if not exact:
            collections = [
                _with_narrower_visibility(collection, present.get(collection.name))
                for collection in collections
            ]
        known = {} if exact else last_known
        result = await _switch(
            data,
            folder,
            backup.about.tenant,
            collections,
            loaded,
            replaced=present,
            last_known=known,
            exact=exact,
        )
        untouched = tuple(sorted(present.keys() - {collection.name for collection in collections}))
    for collection in collections:
        if not collection.attached:
            async with open_writer(data, collection) as writer:  # updates labels, and deletes orphans
                await writer.finish()
    purged = tuple(sorted({local_path(uri) or uri for uri in loaded.purged.values()}))
    return replace(result, at=backup.about.at, purged=purged, untouched=untouched, keys=loaded.keys)


@contextmanager
def _folder(data: Path) -> Iterator[Path]:
    """A temporary folder for tables that aren't in force yet."""
    folder = data.absolute() / desk_folder.RESTORING
    shutil.rmtree(folder, ignore_errors=True)  # of a restore that was killed
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _with_narrower_visibility(collection: Collection, present: Collection | None) -> Collection:
    """The collection, restricted by default if the present one is."""
    hidden = present is not None and present.visibility == "restricted"
    return replace(collection, visibility="restricted") if hidden else collection


async def _present(data: Path, tenant: str) -> dict[str, Collection]:
    """The tenant's collections by name."""
    table = await connection.open_if_there(await connection.connect(data), schema.COLLECTIONS)
    if table is None:
        return {}
    rows = (await table.query().where(f"(tenant = {literal(tenant)})").to_arrow()).to_pylist()
    return {collection.name: collection for collection in map(catalog.collection_record, rows)}


async def _records(data: Path, tenant: str) -> dict[str, AccessRecord]:
    """The tenant's access records by id."""
    if await connection.open_if_there(await connection.connect(data), schema.access_table(tenant)) is None:
        return {}
    async with access_table(data, tenant) as table:
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
    folder: Path, backup: Archive, collections: Sequence[Collection], away: frozenset[str]
) -> _Loaded:
    """Make the tables of the backup in a folder, without the sources that stay `away`."""
    loaded = _Loaded()
    database = await connection.connect_to(str(folder))
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


async def _switch(  # noqa: PLR0913 what is put in force
    data: Path,
    folder: Path,
    from_tenant: str,
    collections: Sequence[Collection],
    loaded: _Loaded,
    *,
    replaced: Container[str],
    last_known: Mapping[str, Access],
    exact: bool,
) -> RestoreResult:
    """Put the tables and the access records in force. The caller holds the locks of the collections."""
    tenant, names = collections[0].tenant, [collection.name for collection in collections]
    started = time.time()
    table_maintenance.sync_to_disk(folder, 0)
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
        is_new = not connection.table_folder(data, schema.COLLECTIONS).exists()
        if is_new and not storages_of(data):  # the key also tells the owner of a tenant's own storage
            desk_folder.write_whole(data / "key", loaded.key)
        backup = {id_: record for id_, record in loaded.records.items() if id_ not in loaded.purged}
        backup = with_ids_of(desk_folder.read_key(data), backup, collections, from_tenant, loaded.key)
        database = await connection.connect(data)
        stored = await database.create_table(
            schema.COLLECTIONS, schema=schema.COLLECTIONS_SCHEMA, exist_ok=True
        )
        await create_access_table(database, tenant)
        desk_folder.note_tenant(data, tenant)
        await stored.delete(f"(tenant = {literal(tenant)}) AND {schema.one_of('name', names)}")
        table_maintenance.sync_to_disk(connection.table_folder(data, schema.COLLECTIONS), started)
        async with access_table(data, tenant) as table:
            present = PresentRecords(await table.records(), last_known)
            rights = merged_records(present, backup, loaded.sources, names, replaced, exact=exact)
            await table.put(rights.records)
        for collection in collections:
            await collection_tables.drop_tables(data, database, tenant, collection.name)
            for name in collection_tables.table_names(collection) if not collection.attached else ():
                (folder / f"{name}.lance").rename(connection.table_folder(data, name))
        desk_folder.flush_folder(connection.database_folder(data))
        await stored.add(pa.concat_tables([*map(catalog.collection_row, collections)]))
        table_maintenance.sync_to_disk(connection.table_folder(data, schema.COLLECTIONS), started)
    return RestoreResult(
        tenant,
        {name: sum(name == of_source for of_source in loaded.sources.values()) for name in names},
        narrowed=_paths(rights.narrowed),
        returned=_paths(rights.returned),
        dropped=_paths(rights.dropped),
    )


def _paths(records: Iterable[AccessRecord]) -> tuple[str, ...]:
    return tuple(sorted(local_path(record.uri) or record.uri for record in records))


# Which access records a restored tenant gets: those of the backup, narrowed by the present ones.


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


@dataclass(frozen=True, slots=True)
class PresentRecords:
    """The records of a tenant before a restore. `last_known` are accesses of records that were deleted."""

    by_id: Mapping[str, AccessRecord]
    last_known: Mapping[str, Access]

    def narrowed(self, record: AccessRecord) -> Access | None:
        """The access of a record of the backup, no wider than what its source or folder had last."""
        if current := self.by_id.get(record.id):
            return narrower(record.access, current.access)
        known = self.last_known.get(record.id)
        return narrower(record.access, known) if known else record.access


def merged_records(
    present: PresentRecords,
    backup: Mapping[str, AccessRecord],
    restored: Container[str],
    collections: Container[str],
    replaced: Container[str],
    *,
    exact: bool,
) -> MergedRecords:
    """The records of a tenant whose `collections` get the state of a backup, with the sources `restored`.

    If both have a record, the narrower access counts, unless `exact`. Records of sources that aren't restored
    stay: they apply if the document comes back. Of the collections, `replaced` ones are there before.
    """
    put, narrowed, returned = [], [], []
    stored = {record.uri for record in present.by_id.values() if record.present}
    for id_, record in backup.items():
        current = present.by_id.get(id_)
        access = record.access if exact else present.narrowed(record)
        if record.is_folder:
            put.append(replace(record, access=access))
        elif id_ in restored:
            merged = _merged_source(record, current, access)
            put.append(merged)
            narrowed += [] if same_access(merged.access, record.access) else [merged]
            was_removed = not current.present if current else record.uri not in stored
            returned += [merged] if was_removed and (current or record.collection in replaced) else []
        elif current is None:
            put.append(replace(record, access=access, present=False, copied=True))
    dropped = [
        record
        for id_, record in present.by_id.items()
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
