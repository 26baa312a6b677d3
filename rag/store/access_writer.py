"""What changes a tenant's access records: under a lock of their own, so that no ingestion is waited for.

Read, changed and written is one step. A change is in force with its one commit, from the next request of
every server on: the gate goes by these records, and searches go by them too where the chunks' copies of the
labels are behind. `rag.store.writer` brings the copies up to date when it writes to the collection anyway.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from rag.errors import StoreError
from rag.store import maintenance, schema
from rag.store.connection import connect, engine_errors, open_if_there, table_folder
from rag.store.folder import locked, spending_reserve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import lancedb

    from rag.corpus import Access, AccessRecord

WAIT_SECONDS = 15  # for another change; each takes milliseconds
COMPACTED = 32  # commits; each leaves a file


class AccessTable:
    """A tenant's access records, to be changed by whoever holds their lock."""

    def __init__(self, table: lancedb.AsyncTable, folder: Path) -> None:
        self._table = table
        self._folder = folder

    async def records(self, where: str | None = None) -> dict[str, AccessRecord]:
        """All records, or those that satisfy a predicate on the table's columns, by id."""
        with engine_errors("reading access records"):
            query = self._table.query().select(schema.RECORD_COLUMNS)
            query = query.where(where) if where else query
            rows = (await query.to_arrow()).to_pylist()
        return {row["id"]: schema.stored_record(row) for row in rows}

    async def of(self, ids: Iterable[str]) -> dict[str, AccessRecord]:
        """Those of these ids that there are."""
        wanted = sorted({*ids})
        return await self.records(schema.one_of("id", wanted)) if wanted else {}

    async def put(self, records: Sequence[AccessRecord]) -> None:
        """Write records in one commit; those of the same ids are replaced."""
        if not records:
            return
        with engine_errors("changing access"):
            rows = pa.Table.from_pylist([schema.access_row(one) for one in records], schema.ACCESS_SCHEMA)
            upsert = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.execute(rows)

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete records: what comes back under their URIs has no rights of before."""
        with engine_errors("forgetting access records"):
            if wanted := sorted({*ids}):
                await self._table.delete(schema.one_of("id", wanted))

    async def compact(self) -> None:
        """Fold what many changes have left into few files."""
        with engine_errors("compacting access records"):
            if await self._table.version() % COMPACTED == 0:
                await maintenance.compact_records(self._table)

    async def purge(self) -> None:
        """Write everything anew, so that no file holds what was forgotten."""
        with engine_errors("purging access records"):
            await maintenance.purge_records(self._table, self._folder)


@asynccontextmanager
async def access_table(data: Path, tenant: str) -> AsyncIterator[AccessTable]:
    """A tenant's records under their lock; what was changed is on the disk when the block ends.

    Raises:
        BusyError: another process changes them, and goes on for longer than any change takes.
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
            with suppress(StoreError):  # on a full disk; the change is made all the same
                await opened.compact()
            maintenance.sync_to_disk(table_folder(data, name), started)


async def create_access_table(database: lancedb.AsyncConnection, tenant: str) -> None:
    """The table of a tenant's records, if it isn't there."""
    name = schema.access_table(tenant)
    if await open_if_there(database, name) is None:
        await database.create_table(name, schema=schema.ACCESS_SCHEMA)


Pairs: TypeAlias = "dict[str, tuple[AccessRecord | None, AccessRecord]]"
"""Records before and after a change, by id; None for one that there was not."""
Around: TypeAlias = "Callable[[Pairs], AbstractContextManager[None]]"
"""What a change goes on inside of, under the lock; what it raises stops the change."""


def nothing_around(_pairs: Pairs) -> AbstractContextManager[None]:
    """Change, and do nothing else."""
    return nullcontext()


async def change_access(
    data: Path,
    tenant: str,
    ids: Iterable[str],
    changed: Callable[[Access | None], Access],
    *,
    around: Around = nothing_around,
) -> Pairs:
    """Change who may see these sources; what was changed goes on inside of `around`.

    In force with the one commit. A record that stays as it is gets its next revision, too, so that a run that
    is about to change it hears of that. The chunks' copies are brought up to date by
    `rag.store.writer.copy_labels`. On a full disk the reserve of the data folder is spent.
    """
    async with access_table(data, tenant) as table:
        there = await table.of(ids)
        pairs: Pairs = {id_: (one, revised(one, changed(one.access))) for id_, one in there.items()}
        with around(pairs):
            for attempt in spending_reserve(data):
                with attempt:
                    await table.put([after for _, after in pairs.values()])
    return pairs


def revised(record: AccessRecord, access: Access | None) -> AccessRecord:
    """The record with its next revision, which the chunks don't hold yet."""
    before = record.access.revision if record.access else 0
    return replace(record, access=access and replace(access, revision=before + 1), copied=False)
