"""Upgrading a data folder of an older format in place. Texts, vectors, ids and rights stay.

Format 2 kept the access records in the table of sources. They are copied to the tenant's table of records,
in one commit, before their old columns are dropped and before the catalog says that the collection has the
present format. Until then it can't be opened: a kill at any moment shows nothing, and a second run goes on.

Chunks of format 3 may lack their words (`rag.store.words`). They are searched all the same, and the next
ingestion completes them, or this does.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rag.corpus import AccessRecord
from rag.errors import ConfigurationError
from rag.filters.predicate import literal
from rag.store import maintenance, schema
from rag.store.access_writer import access_table, create_access_table
from rag.store.builds import table_names
from rag.store.catalog import collection_record
from rag.store.collections import CATALOG_WAIT_SECONDS, open_writer
from rag.store.connection import connect, engine_errors, open_if_there, table_folder
from rag.store.folder import prepare
from rag.store.locks import locked
from rag.store.words import lacks_words

if TYPE_CHECKING:
    from pathlib import Path

    import lancedb

    from rag.corpus import Collection

OLDEST = 2
_OLD_COLUMNS = (*schema.LABEL_COLUMNS, *schema.ACCESS_COLUMNS)
"""The columns of the sources that format 3 doesn't have any more."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A collection that has the present format now, and how many access records were carried over."""

    tenant: str
    name: str
    from_format: int
    records: int


async def upgrade(data: Path) -> list[Upgraded]:
    """Give all collections of a data folder the present format. Returns those that had an older one.

    Raises:
        BusyError: another process is writing to one of them.
        ConfigurationError: one has a format that can't be upgraded; then nothing is changed.
        StoreError: the storage failed; run it again.
    """
    prepare(data)
    with locked(data, "catalog", seconds=CATALOG_WAIT_SECONDS), engine_errors("upgrading the data folder"):
        maintenance.repair(table_folder(data, schema.COLLECTIONS))
        database = await connect(data)
        catalog = await open_if_there(database, schema.COLLECTIONS)
        rows = [] if catalog is None else (await catalog.query().to_arrow()).to_pylist()
        old = [row for row in rows if _format(row) != schema.FORMAT]
        for row in old:
            _check(row)
        return [await _upgraded(data, database, row) for row in old]


def _format(row: dict[str, Any]) -> int:
    return int(json.loads(row["definition"]).get("format", 1))


def _check(row: dict[str, Any]) -> None:
    found = _format(row)
    if found > schema.FORMAT:
        raise ConfigurationError(
            f"The collection {row['name']!r} was written by a later version of refdesk (format {found}). Use "
            "that version."
        )
    if found < OLDEST:
        raise ConfigurationError(
            f"The collection {row['name']!r} has format {found}, which can't be upgraded. Ingest into a new "
            "data folder (--data DIR) and set the access rights again."
        )


async def complete_all_words(data: Path) -> list[Collection]:
    """Give the chunks of all collections their words. Returns the collections in which they were missing.

    Raises:
        BusyError: another process is writing to one of them.
        StoreError: the storage failed; run it again.
    """
    completed = []
    with engine_errors("upgrading the data folder"):
        database = await connect(data)
        catalog = await open_if_there(database, schema.COLLECTIONS)
        rows = [] if catalog is None else (await catalog.query().to_arrow()).to_pylist()
        own = [one for one in map(collection_record, rows) if not one.attached]
        lacking = [one for one in own if await _lacks_words(database, one)]
    for one in lacking:
        started = time.time()
        async with open_writer(data, one) as writer:  # which completes them
            await writer.finish()
        maintenance.sync_to_disk(table_folder(data, table_names(one)[0]), started)
        completed.append(one)
    return completed


async def _lacks_words(database: lancedb.AsyncConnection, collection: Collection) -> bool:
    return await lacks_words(await database.open_table(table_names(collection)[0]))


async def _upgraded(data: Path, database: lancedb.AsyncConnection, row: dict[str, Any]) -> Upgraded:
    """Upgrade one collection. The caller has the lock of the catalog."""
    tenant, name, found, started = row["tenant"], row["name"], _format(row), time.time()
    with locked(data, f"{tenant}.{name}", seconds=0):
        sources = await database.open_table(schema.sources_table(tenant, name))
        there = set((await sources.schema()).names)
        await create_access_table(database, tenant)
        records = 0
        if there.issuperset(_OLD_COLUMNS):  # no earlier run has come so far
            records = await _carry_records(data, tenant, name, sources)
            await sources.drop_columns(list(_OLD_COLUMNS))
        for table in (schema.sources_table(tenant, name), schema.access_table(tenant)):
            maintenance.sync_to_disk(table_folder(data, table), started)
        definition = json.dumps(json.loads(row["definition"]) | {"format": schema.FORMAT})
        catalog = await database.open_table(schema.COLLECTIONS)
        where = f"(tenant = {literal(tenant)}) AND (name = {literal(name)})"
        await catalog.update({"definition": definition}, where=where)
        maintenance.sync_to_disk(table_folder(data, schema.COLLECTIONS), started)
    return Upgraded(tenant, name, found, records)


async def _carry_records(data: Path, tenant: str, name: str, sources: lancedb.AsyncTable) -> int:
    """Copy the rights of sources to the table of records, where there is none yet."""
    columns = ["id", "uri", "revision", *schema.ACCESS_COLUMNS]
    rows = (await sources.query().select(columns).to_arrow()).to_pylist()
    found = [AccessRecord(row["id"], name, row["uri"], schema.access_record(row)) for row in rows]
    async with access_table(data, tenant) as table:
        present = await table.of(one.id for one in found)
        await table.put([one for one in found if one.id not in present])
    return len(found)
