"""Writing a backup of one tenant, while servers search and ingestions run.

It holds the state of one moment: the versions of all tables of the tenant are read twice, and taken if nobody
has committed in between. What is committed later goes into other versions, which the backup doesn't read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from anyio import sleep, to_thread

from rag.access.keys import Keys, keys_file, read_keys
from rag.errors import BusyError, NotFoundError
from rag.filters.predicate import literal
from rag.store import archive, schema
from rag.store.builds import table_names
from rag.store.catalog import collection_record
from rag.store.connection import connect, engine_errors
from rag.store.folder import read_key

if TYPE_CHECKING:
    from pathlib import Path

    import lancedb

    from rag.corpus import Collection
    from rag.store.archive import ArchiveWriter

ATTEMPTS, PAUSE_SECONDS = 200, 0.05  # to find a moment at which nobody commits
SOURCES_AT_ONCE, CHUNKS_AT_ONCE, RECORDS_AT_ONCE = 64, 2_048, 10_000  # rows per part


@dataclass(frozen=True, slots=True)
class SavedCollection:
    """How much of a collection is in a backup."""

    name: str
    sources: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A written backup."""

    tenant: str
    at: str
    collections: tuple[SavedCollection, ...]
    records: int
    keys: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """A tenant at one moment: its rows of the catalog, its tables, fixed at their versions, and its keys."""

    rows: list[dict[str, Any]]
    tables: dict[str, lancedb.AsyncTable]
    keys: Keys


async def back_up(data: Path, tenant: str, file: Path) -> Saved:
    """Write a backup of a tenant to a file, which is there when it is complete.

    Raises:
        NotFoundError: the tenant has no collections.
        BusyError: the tables change too fast, or were purged meanwhile.
        ConfigurationError, StoreError: something can't be read, or the file can't be written.
    """
    database = await connect(data)
    with engine_errors("reading the tables"):
        moment = await _moment(database, data, tenant)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    members = tuple(
        archive.Member(
            name=row["name"], definition=row["definition"], created_at=row["created_at"].isoformat()
        )
        for row in moment.rows
    )
    about = archive.About(
        format=archive.FORMAT, refdesk=installed("refdesk"), tenant=tenant, at=now, collections=members
    )
    with archive.writing(file) as written:
        written.add(archive.ABOUT, about.model_dump_json(indent=1).encode())
        written.add(archive.KEY, read_key(data))
        written.add(archive.KEYS, moment.keys.model_dump_json(indent=1, exclude_none=True).encode())
        access = moment.tables[schema.access_table(tenant)]
        records = await _rows(written, access, "access", RECORDS_AT_ONCE)
        saved = [
            await _collection(written, collection_record(dict(row)), moment.tables) for row in moment.rows
        ]
    return Saved(tenant, now, tuple(saved), records, len(moment.keys.keys))


async def _collection(
    written: ArchiveWriter, collection: Collection, tables: dict[str, lancedb.AsyncTable]
) -> SavedCollection:
    """Add the tables of a collection; an attached one has none."""
    counts = {"sources": 0, "chunks": 0}
    for table, kind, count in _tables_of(collection):
        if table in tables:
            part = f"collections/{collection.name}/{kind}"
            counts[kind] = await _rows(written, tables[table], part, count)
    return SavedCollection(collection.name, **counts)


def _tables_of(collection: Collection) -> tuple[tuple[str, str, int], ...]:
    """The tables of a collection, with the kinds and numbers of their rows in a part."""
    chunks, sources = table_names(collection)
    return (sources, "sources", SOURCES_AT_ONCE), (chunks, "chunks", CHUNKS_AT_ONCE)


async def _moment(database: lancedb.AsyncConnection, data: Path, tenant: str) -> _Moment:
    """A moment at which nobody committed."""
    for _ in range(ATTEMPTS):
        catalog = await database.open_table(schema.COLLECTIONS)
        version = await catalog.version()
        rows = (await catalog.query().where(f"(tenant = {literal(tenant)})").to_arrow()).to_pylist()
        if not rows:
            raise NotFoundError(f"The tenant {tenant!r} has no collections to back up.")
        rows.sort(key=lambda row: str(row["name"]))
        try:
            tables = {name: await database.open_table(name) for name in _names(tenant, rows)}
            before = [version, *[await table.version() for table in tables.values()]]
            keys = await to_thread.run_sync(_keys_of, data, tenant)
            after = [await table.version() for table in (catalog, *tables.values())]
        except (RuntimeError, ValueError):  # a collection was just removed
            continue
        if before == after and keys == await to_thread.run_sync(_keys_of, data, tenant):
            for table, fixed in zip(tables.values(), before[1:], strict=True):
                await table.checkout(fixed)
            return _Moment(rows, tables, keys)
        await sleep(PAUSE_SECONDS)
    raise BusyError("The tables change too fast for a backup. Try again when less is written.")


def _names(tenant: str, rows: list[dict[str, Any]]) -> list[str]:
    """The tables of a tenant with these collections."""
    names = [schema.access_table(tenant)]
    for row in rows:
        if not (collection := collection_record(dict(row))).attached:
            names += [name for name, _, _ in _tables_of(collection)]
    return names


def _keys_of(data: Path, tenant: str) -> Keys:
    keys = read_keys(keys_file(data)).keys
    return Keys(keys=tuple(key for key in keys if key.tenant == tenant))


async def _rows(written: ArchiveWriter, table: lancedb.AsyncTable, folder: str, count: int) -> int:
    """Add all rows of a table in parts of `count`. Returns how many there were."""
    total = 0
    with engine_errors(f"reading {folder}"):
        part = 0
        async for batch in await table.query().to_batches(max_batch_length=count):
            await to_thread.run_sync(written.add_rows, f"{folder}/{part:05}.arrow", batch)
            part, total = part + 1, total + batch.num_rows
        if not part:  # the columns all the same
            empty = pa.RecordBatch.from_pylist([], schema=await table.schema())
            written.add_rows(f"{folder}/{part:05}.arrow", empty)
    return total
