"""Bringing a backup of a tenant back into force.

1. The archive is read to its end and compared with its checksums, before anything is written.
2. Its tables are made in `restoring`, a folder inside the data folder that nobody reads, and flushed to disk.
3. Under the locks of the collections, of the catalog and of the access records:
   the collections leave the catalog, so nobody sees them; the access records are merged, in one commit; the
   tables take their places; the collections enter the catalog again, in one commit.

A process that is killed in step 1 or 2 changes nothing. One that is killed in step 3, which takes some
milliseconds, leaves collections that nobody sees: run it again.

Rights only become narrower: a document that has an access record gets the narrower of both, unless the
operator asks for exactly the backup's. What a purge removed since stays away.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rag.access.keys import parsed_keys
from rag.access.rule import narrower, same_access
from rag.errors import ConfigurationError
from rag.filters.evaluators import literal
from rag.originals import local_path
from rag.store.care import tenant_backup
from rag.store.read import catalog, schema
from rag.store.read.connection import (
    connect,
    connect_to,
    database_folder,
    engine_errors,
    open_if_there,
    table_folder,
)
from rag.store.write import collection_tables, table_maintenance
from rag.store.write.access_claim import KEPT_FORMER, revised
from rag.store.write.access_writer import access_table, create_access_table
from rag.store.write.change_collection import CATALOG_WAIT_SECONDS, open_writer
from rag.store.write.desk_folder import flush_folder, note_tenant, prepare, read_key, write_whole
from rag.store.write.locks import locked
from rag.store.write.source_ids import PURGED, SourceIds
from rag.uris import ID_CHARS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    import lancedb

    from rag.corpus import AccessRecord, Collection
    from rag.store.care.tenant_backup import Archive

RESTORING = "restoring"
"""The folder, in the data folder, of a restore that is not in force yet."""
LOCK = "restore"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. Sources are named by their paths.

    `narrowed` have narrower rights than in the backup. `returned` were removed since the backup. `purged`
    were removed and purged since, and stay away. `dropped` were added since, and are gone. `others` are
    collections that the backup doesn't have, and that stay as they are. `keys` is the backup's part of keys.
    """

    tenant: str
    collections: Mapping[str, int]
    at: str = ""
    narrowed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    purged: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    keys: bytes = b""


@dataclass(slots=True)
class _Loaded:
    """What was read from an archive.

    `sources` are the collections of the restored sources by id, `purged` the URIs of those that stay away.
    """

    key: bytes = b""
    keys: bytes = b""
    records: dict[str, AccessRecord] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    purged: dict[str, str] = field(default_factory=dict)

    def kept(self, collection: str, kind: str, rows: pa.Table, away: frozenset[str]) -> pa.Table:
        """The rows of sources that don't stay away, nor do their copies in tags; sources are noted."""
        column = "id" if kind == "sources" else "source_id"
        for row in rows.select(["id", "uri"]).to_pylist() if kind == "sources" else ():
            if (schema.original_id(row["id"]) or row["id"]) in away:
                self.purged[row["id"]] = row["uri"]
            else:
                self.sources[row["id"]] = collection
        originals = pc.utf8_slice_codeunits(rows[column], 0, ID_CHARS)
        return rows.filter(pc.invert(pc.is_in(originals, value_set=pa.array(sorted(away), pa.string()))))


async def restore(
    data: Path,
    backup: Archive,
    tenant: str,
    *,
    exact: bool = False,
    overwrite: bool = False,
    forgotten: Iterable[str] = (),
) -> Restored:
    """Bring a checked backup into force, as this tenant.

    With `exact` access records are those of the backup, and purged sources come back. `forgotten` are ids of
    sources that were purged without leaving an access record.

    Raises:
        ConfigurationError: the tenant has one of the collections and `overwrite` is false, or the data folder
            belongs to another key and has collections; or the backup gives access to what isn't its tenant's.
        BusyError: another process writes to one of them.
        StoreError: the storage failed.
    """
    wanted = [_collection(one, tenant) for one in backup.about.collections]
    _refuse_foreign_tables(data, wanted)
    prepare(data)
    with ExitStack() as stack:
        stack.enter_context(locked(data, LOCK, seconds=0))
        for name in sorted(one.name for one in wanted):
            stack.enter_context(locked(data, f"{tenant}.{name}", seconds=0))
        stack.enter_context(engine_errors("restoring the backup"))
        present = await _present(data, tenant)
        if not overwrite and (there := sorted({one.name for one in wanted} & present.keys())):
            raise ConfigurationError(
                f"The tenant {tenant!r} already has the collections of the backup: {', '.join(there)}. Add "
                "--yes to replace them."
            )
        folder = stack.enter_context(_folder(data))
        records = await _records(data, tenant)
        gone = {id_ for id_, one in records.items() if not one.present and one.uri.startswith(PURGED)}
        away = frozenset() if exact else frozenset(gone | {*forgotten} - records.keys())
        loaded = await _load(folder, backup, wanted, away)
        if not exact:
            wanted = [_narrowed(one, present.get(one.name)) for one in wanted]
        result = await _switch(data, folder, backup.about.tenant, wanted, loaded, exact=exact)
        others = tuple(sorted(present.keys() - {one.name for one in wanted}))
    for one in wanted:
        if not one.attached:
            async with open_writer(data, one) as writer:  # updates labels, and drops what no source names
                await writer.finish()
    purged = tuple(sorted({local_path(uri) or uri for uri in loaded.purged.values()}))
    return replace(result, at=backup.about.at, purged=purged, others=others, keys=loaded.keys)


@contextmanager
def _folder(data: Path) -> Iterator[Path]:
    """The folder for tables that are not in force yet."""
    folder = data.absolute() / RESTORING
    shutil.rmtree(folder, ignore_errors=True)  # of a restore that was killed
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _collection(member: tenant_backup.Member, tenant: str) -> Collection:
    row = {
        "tenant": tenant,
        "name": member.name,
        "created_at": datetime.fromisoformat(member.created_at),
        "definition": member.definition,
    }
    try:
        # The backup has the tables that were searched, and no others.
        return replace(catalog.collection_record(row), build=0, former=None, coming=None)
    except TypeError as error:  # it has a property that we don't know
        raise ConfigurationError(
            f"The collection {member.name!r} of the backup was made by another version of refdesk. Use "
            "that one."
        ) from error


def _narrowed(wanted: Collection, present: Collection | None) -> Collection:
    """The collection, hidden by default if it is that now."""
    hidden = present is not None and present.visibility == "restricted"
    return replace(wanted, visibility="restricted") if hidden else wanted


async def _present(data: Path, tenant: str) -> dict[str, Collection]:
    """The tenant's collections by name."""
    table = await open_if_there(await connect(data), schema.COLLECTIONS)
    if table is None:
        return {}
    rows = (await table.query().where(f"(tenant = {literal(tenant)})").to_arrow()).to_pylist()
    return {one.name: one for one in map(catalog.collection_record, rows)}


async def _records(data: Path, tenant: str) -> dict[str, AccessRecord]:
    """The tenant's access records by id."""
    if await open_if_there(await connect(data), schema.access_table(tenant)) is None:
        return {}
    async with access_table(data, tenant) as table:
        return await table.records()


def _refuse_foreign_tables(data: Path, wanted: Iterable[Collection]) -> None:
    """Refuse a collection that is attached to a table of this desk: it would pass by that table's rights."""
    tables = database_folder(data).resolve()
    for collection in wanted:
        attached = collection.attached
        if attached and "://" not in attached.table and Path(attached.table).resolve().is_relative_to(tables):
            raise ConfigurationError(
                f"The collection {collection.name!r} of the backup is attached to {attached.table}, a table "
                "of this desk. refdesk writes no such backup: somebody changed it. Nothing was restored."
            )


def _keys_of(backup: Archive, content: bytes) -> bytes:
    """The API keys of the backup, all of which are its tenant's."""
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


async def _load(folder: Path, backup: Archive, wanted: Sequence[Collection], away: frozenset[str]) -> _Loaded:
    """Make the tables of the backup in a folder, without the sources that stay away."""
    loaded = _Loaded()
    database = await connect_to(str(folder))
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
            case ["collections", collection, kind, _]:
                (one,) = [one for one in wanted if one.name == collection]
                rows = loaded.kept(collection, kind, tenant_backup.rows_of(content), away)
                await _add(database, tables, one, kind, rows)
    for one in wanted:
        if not one.attached:
            chunks, sources = (tables[name] for name in _names(one))
            await table_maintenance.create_chunk_indexes(chunks)
            await table_maintenance.compact(chunks, sources, one)
    return loaded


async def _add(
    database: lancedb.AsyncConnection,
    tables: dict[str, lancedb.AsyncTable],
    collection: Collection,
    kind: str,
    rows: pa.Table,
) -> None:
    """Add rows to a table, which the first ones make."""
    chunks, sources = _names(collection)
    name = chunks if kind == "chunks" else sources
    if name not in tables:
        needed = schema.SOURCES_SCHEMA
        if kind == "chunks":
            needed = schema.chunks_schema(collection.embedder.dimension, collection.fields)
        if lacking := [one.name for one in needed if not one.nullable and one.name not in rows.schema.names]:
            raise ConfigurationError(f"The backup has no {lacking[0]!r} of {kind}: another version made it.")
        tables[name] = await database.create_table(name, schema=rows.schema)
    if rows.num_rows:
        await tables[name].add(rows)


def _names(collection: Collection) -> tuple[str, str]:
    return collection_tables.table_names(collection)


async def _switch(
    data: Path, folder: Path, from_tenant: str, wanted: Sequence[Collection], loaded: _Loaded, *, exact: bool
) -> Restored:
    """Bring the tables and the access records into force. The caller holds the locks of the collections."""
    tenant, names, started = wanted[0].tenant, [one.name for one in wanted], time.time()
    table_maintenance.sync_to_disk(folder, 0)
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS):
        if not table_folder(data, schema.COLLECTIONS).exists():
            write_whole(data / "key", loaded.key)
        backup = {id_: one for id_, one in loaded.records.items() if id_ not in loaded.purged}
        backup = with_ids_of(read_key(data), backup, wanted, from_tenant, loaded.key)
        database = await connect(data)
        collections = await database.create_table(
            schema.COLLECTIONS, schema=schema.COLLECTIONS_SCHEMA, exist_ok=True
        )
        await create_access_table(database, tenant)
        note_tenant(data, tenant, filterable=any(one.fields for one in wanted))
        await collections.delete(f"(tenant = {literal(tenant)}) AND {schema.one_of('name', names)}")
        table_maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)
        async with access_table(data, tenant) as table:
            rights = merged_records(await table.records(), backup, loaded.sources, names, exact=exact)
            await table.put(rights.records)
        for one in wanted:
            await collection_tables.drop_tables(data, database, tenant, one.name)
            for name in _names(one) if not one.attached else ():
                (folder / f"{name}.lance").rename(table_folder(data, name))
        flush_folder(database_folder(data))
        await collections.add(pa.concat_tables([catalog.collection_row(one) for one in wanted]))
        table_maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)
    return Restored(
        tenant,
        {one.name: sum(name == one.name for name in loaded.sources.values()) for one in wanted},
        narrowed=_paths(rights.narrowed),
        returned=_paths(rights.returned),
        dropped=_paths(rights.dropped),
    )


def _paths(records: Iterable[AccessRecord]) -> tuple[str, ...]:
    return tuple(sorted(local_path(one.uri) or one.uri for one in records))


# Which access records a restored tenant gets: those of the backup, narrowed by the present ones.


@dataclass(frozen=True, slots=True)
class MergedRecords:
    """The records to write.

    Among them those that are narrower than in the backup (`narrowed`), those of sources that were removed
    since (`returned`), and those of sources that the backup doesn't have (`dropped`).
    """

    records: Sequence[AccessRecord]
    narrowed: Sequence[AccessRecord]
    returned: Sequence[AccessRecord]
    dropped: Sequence[AccessRecord]


def merged_records(
    present: Mapping[str, AccessRecord],
    backup: Mapping[str, AccessRecord],
    restored: Container[str],
    collections: Container[str],
    *,
    exact: bool,
) -> MergedRecords:
    """The records of a tenant whose `collections` get the state of a backup, with the sources `restored`.

    A record that both have becomes the narrower of both, unless `exact`. Records of sources that are not
    restored stay: they apply if the document comes back.
    """
    put, narrowed, returned = [], [], []
    for id_, one in backup.items():
        own = present.get(id_)
        if one.is_folder:
            put.append(one if exact or own is None else replace(one, access=narrower(one.access, own.access)))
        elif id_ in restored:
            kept = _merged_source(one, own, exact=exact)
            put.append(kept)
            narrowed += [] if same_access(kept.access, one.access) else [kept]
            returned += [kept] if own and not own.present else []
        elif own is None:
            put.append(replace(one, present=False, copied=True))
    dropped = [
        one
        for id_, one in present.items()
        if one.present and one.collection in collections and id_ not in restored
    ]
    put += [replace(one, present=False, copied=True) for one in dropped]
    return MergedRecords(put, narrowed, returned, dropped)


def _merged_source(one: AccessRecord, own: AccessRecord | None, *, exact: bool) -> AccessRecord:
    if own is None:
        return replace(one, present=True)
    known = dict.fromkeys((*one.former, own.content, own.uri, *own.former))
    former = tuple(part for part in known if part and part not in {one.content, one.uri})[:KEPT_FORMER]
    restored = replace(one, present=True, former=former)
    access = one.access if exact else narrower(one.access, own.access)
    return restored if same_access(access, one.access) else revised(restored, access)


def with_ids_of(
    key: bytes,
    records: Mapping[str, AccessRecord],
    collections: Sequence[Collection],
    tenant: str,
    old: bytes,
) -> dict[str, AccessRecord]:
    """The records by id, with folders under the ids that they have in a data folder with this key.

    The records were made with the key `old`, for `tenant`; `collections` are of the tenant that gets them.
    """
    ids = [(SourceIds(replace(one, tenant=tenant), old), SourceIds(one, key)) for one in collections]
    changed = {}
    for id_, record in records.items():
        new = (now.of_folder(record.uri) for before, now in ids if before.of_folder(record.uri) == id_)
        here = next(new, id_) if record.is_folder else id_
        changed[here] = replace(record, id=here)
    return changed
