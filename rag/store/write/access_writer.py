"""Changes access records under the access lock: a tenant's, and a collection's for its writer.

The access lock isn't the lock of an ingestion. It is held for milliseconds, never while texts are parsed,
embedded or stored, so a revocation never waits for an ingestion. Each change reads and writes under this
lock, by `refdesk-admin access` and by ingestions alike, so no concurrent change is lost.

A change is in force with its one commit, from the next request of every server on. Searches use the copies of
the labels in the chunks, and the records themselves where a copy is stale.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rag.access.rule import is_narrowed, narrower
from rag.corpus import Access, AccessRecord, Collection
from rag.errors import StoreError
from rag.home import Bucket, Home
from rag.runtime import grouped
from rag.store.read import schema
from rag.store.read.connection import connect, engine_errors, open_if_there
from rag.store.write import table_maintenance, table_rows
from rag.store.write.access_claim import Claim, limits, revised, settle
from rag.store.write.desk_folder import PURGED, SourceIds, is_uri, prepare, spending_reserve
from rag.store.write.locks import locked, open_in_turn
from rag.store.write.table_maintenance import Condition, rows_of, upsert
from rag.store.write.table_rows import KeyedRows

if TYPE_CHECKING:
    import lancedb

WAIT_SECONDS = 15  # for another change; each takes milliseconds
COMPACTED = 32  # commits; each leaves a file
FOLDERS = {"collection": ""}  # the records of folders


class AccessTable:
    """A tenant's access records, for the holder of the access lock."""

    def __init__(self, table: lancedb.AsyncTable, data: Home) -> None:
        self._table = table
        self._data = data

    async def records(self, condition: Condition | None = None) -> dict[str, AccessRecord]:
        """All records by id, or those that satisfy a condition."""
        return dict(await self.keyed(condition))

    async def keyed(self, condition: Condition | None = None) -> KeyedRows[AccessRecord]:
        """As `records`, each made on access."""
        return KeyedRows(await self.columns(schema.RECORD_COLUMNS, condition), "id", schema.stored_record)

    async def columns(self, names: Sequence[str], condition: Condition | None = None) -> pa.Table:
        """These columns of all records, or of those that satisfy a condition."""
        with engine_errors("reading access records"):
            return await rows_of(self._table, names, condition)

    async def of(self, ids: Iterable[str]) -> dict[str, AccessRecord]:
        """The records of these ids, by id; missing ones are left out."""
        wanted = {*ids}
        return await self.records({"id": wanted}) if wanted else {}

    async def put(self, records: Sequence[AccessRecord]) -> None:
        """Write records in one commit, in place of those with the same ids."""
        if not records:
            return
        with engine_errors("changing access"):
            rows = pa.Table.from_pylist(
                [table_rows.access_row(record) for record in records], schema.ACCESS_SCHEMA
            )
            await upsert(self._table, rows)

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete records. A document that comes back under their URIs is a new one."""
        with engine_errors("forgetting access records"):
            if ids_in_order := sorted({*ids}):
                await self._table.delete(schema.one_of("id", ids_in_order))

    async def compact(self, *, due: bool = True) -> None:
        """Merge the files that changes have left, if that is `due` or there are many."""
        with engine_errors("compacting access records"):
            if due or await self._table.version() % COMPACTED == 0:
                await table_maintenance.compact_records(self._table)

    async def purge(self) -> None:
        """Rewrite the table, so that no file contains what was deleted."""
        with engine_errors("purging access records"):
            await table_maintenance.purge_rows(self._data, self._table, "uri")


@asynccontextmanager
async def access_table(data: Home, tenant: str) -> AsyncIterator[AccessTable]:
    """A tenant's records under the access lock. Changes are flushed to disk when the block ends.

    Raises:
        BusyError: another process has held the lock for longer than any change takes.
        StoreError: they can't be read.
    """
    name = schema.access_table(tenant)
    with locked(data, f"{tenant}.access", seconds=WAIT_SECONDS) as lease:
        started = time.time()
        table_maintenance.repair(data, name)  # an empty version, as after a power failure, hides everything
        _, (table,) = await open_in_turn(data, lease, name)
        before = await table.version()
        opened = AccessTable(table, data)
        yield opened
        if await table.version() != before:
            with suppress(StoreError):  # on a full disk; the change itself is committed
                await opened.compact(due=False)
            table_maintenance.sync_table(data, name, started)


@asynccontextmanager
async def read_table(data: Home, tenant: str) -> AsyncIterator[AccessTable]:
    """A tenant's records as they are now, to read them. In a bucket that takes no lease."""
    if not isinstance(data, Bucket):
        async with access_table(data, tenant) as table:
            yield table
        return
    with engine_errors("opening access records"):
        opened = await (await connect(data, writes=True)).open_table(schema.access_table(tenant))
    yield AccessTable(opened, data)


async def mark_removed(data: Home, tenant: str, ids: Iterable[str]) -> None:
    """Remove sources for every reader, from the next request on. Their access records stay.

    It waits for no ingestion: the records become tombstones, and the present or next holder of the
    collection's lock deletes the rows (`CollectionWriter.follow_others`). On a full disk the data folder's
    reserve is used.
    """
    async with access_table(data, tenant) as table:
        present = [record for record in (await table.of(ids)).values() if record.present]
        for attempt in spending_reserve(data):
            with attempt:
                await table.put([replace(record, present=False, copied=False) for record in present])


async def create_access_table(database: lancedb.AsyncConnection, tenant: str) -> None:
    """Create the table of a tenant's records if it doesn't exist."""
    name = schema.access_table(tenant)
    if await open_if_there(database, name) is None:
        await database.create_table(name, schema=schema.ACCESS_SCHEMA)


Pairs: TypeAlias = "dict[str, tuple[AccessRecord | None, AccessRecord]]"
"""Records before and after a change, by id; None before means a new record."""
Around: TypeAlias = "Callable[[Pairs], AbstractContextManager[None]]"
"""A context that encloses a change, under the lock. An exception on entry prevents the change."""


def nothing_around(_pairs: Pairs) -> AbstractContextManager[None]:
    """A context that does nothing."""
    return nullcontext()


async def change_access(
    data: Home,
    tenant: str,
    ids: Iterable[str],
    changed: Callable[[Access | None], Access],
    folders: Sequence[AccessRecord] = (),
    *,
    around: Around = nothing_around,
) -> Pairs:
    """Change who may see these sources, and files that come into `folders` later.

    `changed` maps the present access to the new one. `folders` are records that folders without one would
    get, before the change. `around` encloses the change.

    It is in force with its one commit. An equal record gets a new revision, too, so that a running ingestion
    notices it and doesn't widen it. `change_collection.copy_labels` updates the copies in the chunks. A part,
    such as the attachment of a mail, is never visible more widely than its container. On a full disk the data
    folder's reserve is used, unless the change grants a right.

    Raises:
        StoreError: the change grants a right, and the reserve is incomplete: without it the right couldn't be
            revoked on a full disk.
    """
    async with access_table(data, tenant) as table:
        there = await table.of(ids)
        pairs: Pairs = {
            id_: (record, revised(record, changed(record.access))) for id_, record in there.items()
        }
        pairs |= await _within_containers(table, pairs)
        pairs |= await _of_folders(table, folders, changed)
        after = [record for _, record in pairs.values()]
        gives = any(is_narrowed(before.access, record.access) for before, record in pairs.values() if before)
        if gives:  # completes the reserve, or refuses: on a full disk the right couldn't be revoked
            prepare(data)
        with around(pairs):
            for attempt in [nullcontext()] if gives else spending_reserve(data):  # it is for revocations
                with attempt:
                    await table.put(after)
    return pairs


async def _of_folders(
    table: AccessTable, folders: Sequence[AccessRecord], changed: Callable[[Access | None], Access]
) -> Pairs:
    """The changed records of folders and of the folders in them.

    A folder without a record gets one only if the change narrows the access that new files get by the nearest
    folder above it: changing present documents must not widen later ones.
    """
    stored = [*(await table.records(FOLDERS)).values()] if folders else []
    pairs: Pairs = {}
    for folder in folders:
        inside = [record for record in stored if f"{record.uri}/".startswith(f"{folder.uri}/")]
        for record in inside:
            # `copied`, because no chunk has labels of a folder.
            pairs[record.id] = record, replace(revised(record, changed(record.access)), copied=True)
        if all(record.uri != folder.uri for record in inside):
            above = [record for record in stored if folder.uri.startswith(f"{record.uri}/")]
            nearest = max(above, key=lambda record: len(record.uri), default=folder)
            access = changed(nearest.access)
            if is_narrowed(access, nearest.access):
                pairs[folder.id] = None, replace(folder, access=replace(access, revision=1))
    return pairs


async def _within_containers(table: AccessTable, pairs: Pairs) -> Pairs:
    """The pairs of parts, with new access no wider than that of their containers."""
    around_part = {
        id_: _containers(record.uri) for id_, (record, _) in pairs.items() if record and "#" in record.uri
    }
    uris = sorted({uri for outer in around_part.values() for uri in outer})
    there = (await table.records({"uri": uris})).values() if uris else ()
    access: dict[tuple[str, str], list[Access | None]] = defaultdict(list)
    for container in there:
        if container.present and not schema.original_id(container.id):  # a tag's copy has the same URI
            access[container.collection, container.uri].append(
                pairs[container.id][1].access if container.id in pairs else container.access
            )
    capped: Pairs = {}
    for id_, outer in around_part.items():
        before, after = pairs[id_]
        outer_access = [record for uri in outer for record in access[after.collection, uri]]
        within = narrower(after.access, *outer_access)
        capped[id_] = before, replace(after, access=within)
    return capped


def _containers(part: str) -> list[str]:
    """The URIs of the possible containers of a part.

    Example: file:///d/x.zip#b/m.eml/n.txt -> file:///d/x.zip, file:///d/x.zip#b, file:///d/x.zip#b/m.eml.
    """
    outermost, _, inside = part.partition("#")
    names = inside.split("/")
    return [outermost, *(f"{outermost}#{'/'.join(names[:end])}" for end in range(1, len(names)))]


@dataclass(frozen=True, slots=True)
class Pending:
    """What the rows of a collection don't hold yet of its access records.

    `removed` are the ids of sources whose removal is in force, and whose rows may still be stored; `stale`
    the records whose labels the chunks lack, grouped by equal labels.
    """

    removed: Sequence[str] = ()
    stale: Iterable[Sequence[AccessRecord]] = ()


class CollectionAccess:
    """The access records of a collection's sources and folders. `around` encloses every change of rights."""

    def __init__(self, data: Home, collection: Collection, ids: SourceIds, around: Around) -> None:
        self._data = data
        self._collection = collection
        self._ids = ids
        self._around = around
        self._began: Mapping[str, AccessRecord] = {}
        self._settled: dict[str, AccessRecord] = {}  # by this writer, since then
        self._looked: AccessTable | None = None

    async def look(self) -> None:
        """Open the records. In a bucket, `pending` is as of now, or of a later own change."""
        if isinstance(self._data, Bucket):
            async with read_table(self._data, self._collection.tenant) as table:
                self._looked = table

    async def read(self, *, as_looked: bool = False) -> Mapping[str, AccessRecord]:
        """All records of the tenant by id, also of removed sources; with `as_looked`, as of `look`.

        No claim of this writer undoes a change that another process makes after this call, or after `look`.
        """
        async with self._read() if as_looked else read_table(self._data, self._collection.tenant) as table:
            began = await table.keyed()
        self._began, self._settled = began, {}
        return began

    async def settle(
        self, claims: Mapping[str, tuple[str, Claim]]
    ) -> tuple[dict[str, AccessRecord], list[AccessRecord]]:
        """Settle claims, with URIs, by source id: all records, and those whose labels the chunks lack.

        A source that was removed since `read` stays removed: its record is returned unchanged, not present. A
        folder that somebody narrowed since then limits the sources that come into it.
        """
        async with self._locked() as table:
            needed = {*claims, *chain.from_iterable(claim.floor for _, claim in claims.values())}
            stored = await table.of(needed)
            folders = await self._overtaken_folders(table)
            settled: dict[str, AccessRecord] = {}
            overtaken, removed = set[str](), set[str]()
            for id_, (uri, claim) in claims.items():
                present = stored | settled  # a part may come in one batch with its container, or later
                record = stored.get(id_)
                if record and self._was_removed(record):
                    settled[id_] = record
                    removed.add(id_)
                    continue
                if record and self._is_overtaken(record):
                    overtaken.add(id_)
                fresh, limiting = self._record(id_, uri, claim), limits(claim, present, self._is_overtaken)
                limiting += [folder.access for folder in folders if _comes_into(folder, uri, record)]
                settled[id_] = settle(record, claim, limiting, fresh, overtaken=id_ in overtaken)
            changed = {id_: record for id_, record in settled.items() if record != stored.get(id_)}
            # The audit log encloses the change, so that no right is granted without a line in it.
            with self._around({id_: (stored.get(id_), record) for id_, record in changed.items()}):
                await table.put(list(changed.values()))
        # Records that this run settled aren't overtaken. Overtaken ones stay so for later claims.
        self._settled |= {
            id_: record for id_, record in settled.items() if id_ not in overtaken and id_ not in removed
        }
        behind = [
            record
            for record in settled.values()
            if record.present and not record.copied and record.id in stored
        ]
        return settled, behind

    def _was_removed(self, record: AccessRecord) -> bool:
        """Whether somebody removed the source since this writer read the records or stored the source."""
        before = self._before(record.id)
        return not record.present and before is not None and before.present

    def _is_overtaken(self, record: AccessRecord) -> bool:
        """Whether somebody else changed the record since this writer read the records.

        Then that change wins: the run computed its claims from the earlier records.
        """
        return record.access != (self._before(record.id) or record).access

    async def _overtaken_folders(self, table: AccessTable) -> list[AccessRecord]:
        """The folders whose access somebody else changed since this writer read the records."""
        folders = (await table.records(FOLDERS)).values()
        pairs = ((folder, self._before(folder.id)) for folder in folders)
        return [folder for folder, before in pairs if before is None or folder.access != before.access]

    def _before(self, id_: str) -> AccessRecord | None:
        """The record as this writer last read or settled it."""
        return self._settled.get(id_) or self._began.get(id_)

    def _record(self, id_: str, uri: str, claim: Claim) -> AccessRecord:
        return AccessRecord(id_, self._collection.name, uri, claim.access, claim.content, claim.requested)

    async def mend(self, copies: Mapping[str, Access | None]) -> None:
        """Narrow records to what their copies allow, too, where the copy is of a later record.

        A record that is later than its copy stays. Both kinds are copied to the chunks again.
        """
        async with self._locked() as table:
            stored = await table.of(copies)
            await table.put([_mend(record, copies[id_]) for id_, record in stored.items()])

    async def remember_folders(self, folders: Mapping[str, Access]) -> None:
        """Record the access of ingested folders, by URI; it applies to later files in them."""
        records = [
            AccessRecord(self._ids.of_folder(uri), "", uri, replace(access, revision=1))
            for uri, access in folders.items()
        ]
        async with self._locked() as table:
            stored = await table.of(record.id for record in records)
            overtaken = {folder.id: folder for folder in await self._overtaken_folders(table)}
            records = [_narrowed(overtaken.get(record.id), record) for record in records]
            with self._around({record.id: (stored.get(record.id), record) for record in records}):
                await table.put(records)
        self._settled |= {record.id: record for record in records if record.id not in overtaken}

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete the records of removed sources and of folders, so that nothing applies if they come back."""
        async with self._locked() as table:
            gone = [
                id_ for id_, record in (await table.of(ids)).items() if not record.present or record.is_folder
            ]
            await table.forget(gone)

    async def note_removed(self, ids: Iterable[str]) -> None:
        """Mark sources as removed. Their records stay, and apply again if the documents come back."""
        async with self._locked() as table:
            stored = (await table.of(ids)).values()
            await table.put([replace(record, present=False, copied=True) for record in stored])

    async def states(self) -> pa.Table:
        """Whether each record is `present` and `copied`, beside its `id`."""
        async with self._read() as table:
            return await table.columns(["id", "present", "copied"], self._ours)

    async def pending(self) -> Pending:
        """What the rows lack, in one look."""
        async with self._read() as table:
            behind = await table.records(self._ours | {"copied": False})
        present = (record for record in behind.values() if record.present)
        alike = grouped((json.dumps(table_rows.label_values(record.access)), record) for record in present)
        return Pending([id_ for id_, record in behind.items() if not record.present], [*alike.values()])

    async def note_copied(self, copied: Sequence[AccessRecord]) -> None:
        """Mark records whose labels the chunks hold, except those that changed again meanwhile."""
        if not copied:
            return
        async with self._locked() as table:
            stored = await table.of(record.id for record in copied)
            await table.put(
                [replace(record, copied=True) for record in copied if stored.get(record.id) == record]
            )

    async def repair(self, sources: pa.Table, states: pa.Table) -> bool:
        """Make the records agree with the stored sources, given by their columns `id` and `uri`.

        A source whose record was lost gets a deny-all record (fail closed). Returns whether the `states` of
        the records disagreed.
        """
        if agree(states, sources):
            return False
        async with self._locked() as table:
            ours = await table.records(self._ours)
            uris = {row["id"]: row["uri"] for row in sources.to_pylist()}
            # A tombstone stays: the source's rows are yet to be deleted.
            wrong = [
                record
                for id_, record in ours.items()
                if record.present != (id_ in uris) and not record.is_tombstone
            ]
            name = self._collection.name
            missing = [(id_, uri) for id_, uri in uris.items() if id_ not in ours]
            lost = [AccessRecord(id_, name, uri, None, copied=False) for id_, uri in missing]
            flipped = [replace(record, present=not record.present) for record in wrong]
            # One that isn't present gets `copied`, or it would be a tombstone: of rows that are gone already.
            await table.put(
                [*(record if record.present else replace(record, copied=True) for record in flipped), *lost]
            )
        return True

    async def compact(self) -> None:
        """Merge the files that a run's changes left. In a bucket, changes do that when it is due."""
        if isinstance(self._data, Bucket):
            return  # would take forty requests
        async with self._locked() as table:
            await table.compact()

    async def purge(self) -> None:
        """Hide the names of removed sources and rewrite the table, so that no file holds them."""
        async with self._locked() as table:
            gone = await table.records(self._ours | {"present": False})
            nameable = [record for record in gone.values() if not record.uri.startswith(PURGED)]
            await table.put([self._nameless(record) for record in nameable])
            await table.purge()

    def _nameless(self, record: AccessRecord) -> AccessRecord:
        former = (self._ids.purged(name) if is_uri(name) else name for name in record.former)
        return replace(record, uri=self._ids.purged(record.uri), former=tuple(former))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[AccessTable]:
        self._looked = None  # read before the lock: others may have changed it
        async with access_table(self._data, self._collection.tenant) as table:
            yield table
        if isinstance(self._data, Bucket):  # each look there is a request, and this table is as we left it
            self._looked = table

    def _read(self) -> AbstractAsyncContextManager[AccessTable]:
        return nullcontext(self._looked) if self._looked else read_table(self._data, self._collection.tenant)

    @property
    def _ours(self) -> dict[str, str | bool]:
        return {"collection": self._collection.name}


def _narrowed(stored: AccessRecord | None, record: AccessRecord) -> AccessRecord:
    """The record of a folder, no wider than the one that somebody else stored meanwhile."""
    return revised(stored, narrower(stored.access, record.access)) if stored else record


def _comes_into(folder: AccessRecord, uri: str, record: AccessRecord | None) -> bool:
    """Whether a document at a URI comes into a folder: its record, if any, is from elsewhere."""
    inside = f"{folder.uri}/"
    return uri.startswith(inside) and not (record and record.uri.startswith(inside))


def folder_records(records: Mapping[str, AccessRecord]) -> Iterable[AccessRecord]:
    """The records of folders."""
    if isinstance(records, KeyedRows):  # makes no other records
        return records.matching(lambda rows: pc.equal(rows["collection"], pa.scalar("")))
    return (record for record in records.values() if record.is_folder)


def _mend(record: AccessRecord, copy: Access | None) -> AccessRecord:
    if copy is None or record.access is None or copy.revision <= record.access.revision:
        return replace(record, copied=False)
    return revised(replace(record, access=copy), narrower(record.access, copy))


def agree(records: pa.Table, sources: pa.Table) -> bool:
    """Whether the present records are exactly those of the stored sources.

    It makes no object per record, so that a run on one document stays cheap.
    """
    present = pc.equal(pc.is_in(records["id"], sources["id"]), records["present"])
    has_record = pc.is_in(sources["id"], records["id"])
    return all(pc.all(column, min_count=0).as_py() for column in (present, has_record))
