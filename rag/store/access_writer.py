"""Changing a tenant's access records, under the access lock.

It is not the lock of an ingestion, so taking a right away never waits for one. Reading, changing and writing
are one step under this lock: of two changes at once, neither is lost.

A change is in force with its one commit, from the next request of every server on. The gate checks every hit
against these records. Searches use the copies of the labels in the chunks, and the records themselves where a
copy is stale. `CollectionWriter.copy_labels` updates the copies.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from rag.access.rule import is_narrowed, narrower
from rag.errors import StoreError
from rag.store import maintenance, schema
from rag.store.connection import connect, engine_errors, open_if_there, table_folder
from rag.store.folder import prepare, spending_reserve
from rag.store.locks import locked
from rag.store.schema import original_id
from rag.store.settle import revised

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import lancedb

    from rag.corpus import Access, AccessRecord

WAIT_SECONDS = 15  # for another change; each takes milliseconds
COMPACTED = 32  # commits; each leaves a file


class AccessTable:
    """A tenant's access records, for the holder of the access lock."""

    def __init__(self, table: lancedb.AsyncTable, folder: Path) -> None:
        self._table = table
        self._folder = folder

    async def records(self, where: str | None = None) -> dict[str, AccessRecord]:
        """All records by id, or those that satisfy a predicate on the table's columns."""
        rows = (await self.columns(schema.RECORD_COLUMNS, where)).to_pylist()
        return {row["id"]: schema.stored_record(row) for row in rows}

    async def columns(self, names: Sequence[str], where: str | None = None) -> pa.Table:
        """These columns of all records, or of those that satisfy a predicate."""
        with engine_errors("reading access records"):
            query = self._table.query().select([*names])
            return await (query.where(where) if where else query).to_arrow()

    async def of(self, ids: Iterable[str]) -> dict[str, AccessRecord]:
        """The records of these ids, by id; missing ones are left out."""
        wanted = sorted({*ids})
        return await self.records(schema.one_of("id", wanted)) if wanted else {}

    async def put(self, records: Sequence[AccessRecord]) -> None:
        """Write records in one commit, in place of those with the same ids."""
        if not records:
            return
        with engine_errors("changing access"):
            rows = pa.Table.from_pylist([schema.access_row(one) for one in records], schema.ACCESS_SCHEMA)
            upsert = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.use_index(use_index=False).execute(
                rows
            )  # with one, the engine has inserted keys twice

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete records. A document that comes back under their URIs is a new one."""
        with engine_errors("forgetting access records"):
            if wanted := sorted({*ids}):
                await self._table.delete(schema.one_of("id", wanted))

    async def compact(self) -> None:
        """Merge the files that many changes have left."""
        with engine_errors("compacting access records"):
            if await self._table.version() % COMPACTED == 0:
                await maintenance.compact_records(self._table)

    async def purge(self) -> None:
        """Rewrite the table, so that no file contains what was deleted."""
        with engine_errors("purging access records"):
            await maintenance.purge_records(self._table, self._folder)


@asynccontextmanager
async def access_table(data: Path, tenant: str) -> AsyncIterator[AccessTable]:
    """A tenant's records under the access lock. Changes are flushed to disk when the block ends.

    Raises:
        BusyError: another process has held the lock for longer than any change takes.
        StoreError: they can't be read.
    """
    name = schema.access_table(tenant)
    with locked(data, f"{tenant}.access", seconds=WAIT_SECONDS):
        started = time.time()
        maintenance.repair(table_folder(data, name))
        with engine_errors("opening access records"):
            table = await (await connect(data)).open_table(name)
            before = await table.version()
        opened = AccessTable(table, table_folder(data, name))
        yield opened
        if await table.version() != before:
            with suppress(StoreError):  # on a full disk; the change itself is committed
                await opened.compact()
            maintenance.sync_to_disk(table_folder(data, name), started)


async def mark_removed(data: Path, tenant: str, ids: Iterable[str]) -> None:
    """Remove sources for every reader, from the next request on. Their access records stay.

    It waits for no ingestion: the records become tombstones, and who holds the collection's lock, now or
    next, deletes the rows (`CollectionWriter.finish_removals`). On a full disk the data folder's reserve is
    used.
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
    """Enclose the change in nothing."""
    return nullcontext()


async def change_access(
    data: Path,
    tenant: str,
    ids: Iterable[str],
    changed: Callable[[Access | None], Access],
    *,
    around: Around = nothing_around,
) -> Pairs:
    """Change who may see these sources. `around` encloses the change.

    It is in force with the one commit. A record that stays equal gets a new revision, too, so that a running
    ingestion notices it and doesn't widen it. `rag.store.collections.copy_labels` updates the copies in the
    chunks. A part, such as the attachment of a mail, gets nothing wider than what contains it has or gets,
    as in an ingestion. On a full disk the data folder's reserve is used, unless the change lets anybody in.

    Raises:
        StoreError: the change lets somebody in, and the reserve, by which that could be taken back on a full
            disk, can't be made whole.
    """
    async with access_table(data, tenant) as table:
        there = await table.of(ids)
        pairs: Pairs = {id_: (one, revised(one, changed(one.access))) for id_, one in there.items()}
        pairs |= await _within_containers(table, pairs)
        after = [record for _, record in pairs.values()]
        gives = any(is_narrowed(one.access, pairs[id_][1].access) for id_, one in there.items())
        if gives:
            prepare(data)
        with around(pairs):
            for attempt in [nullcontext()] if gives else spending_reserve(data):
                with attempt:
                    await table.put(after)
    return pairs


async def _within_containers(table: AccessTable, pairs: Pairs) -> Pairs:
    """Those of the pairs that are parts, no wider afterwards than what contains them."""
    around_part = {id_: _containers(one.uri) for id_, (one, _) in pairs.items() if one and "#" in one.uri}
    uris = sorted({uri for outer in around_part.values() for uri in outer})
    there = (await table.records(schema.one_of("uri", uris))).values() if uris else ()
    access: dict[tuple[str, str], list[Access | None]] = defaultdict(list)
    for one in there:
        if one.present and not original_id(one.id):
            access[one.collection, one.uri].append(pairs[one.id][1].access if one.id in pairs else one.access)
    capped: Pairs = {}
    for id_, outer in around_part.items():
        before, after = pairs[id_]
        outer_access = [record for uri in outer for record in access[after.collection, uri]]
        within = narrower(after.access, *outer_access)
        capped[id_] = before, replace(after, access=within)
    return capped


def _containers(part: str) -> list[str]:
    """The URIs of what may contain a part.

    Example: file:///d/x.zip#b/m.eml/n.txt -> file:///d/x.zip, file:///d/x.zip#b, file:///d/x.zip#b/m.eml.
    """
    outermost, _, inside = part.partition("#")
    names = inside.split("/")
    return [outermost, *(f"{outermost}#{'/'.join(names[:end])}" for end in range(1, len(names)))]
