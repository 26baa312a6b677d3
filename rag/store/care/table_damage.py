"""Diagnoses damaged tables, and rolls a table back to a readable version.

A writer marks an access record as copied once the chunks hold its labels in its revision. If a copied record
and the chunks have different revisions (`torn_copies`), the newest versions of a table were lost, as after a
partial restore of the folder. The engine filters by the chunks' labels and the gate checks the record, so a
search shows only what both allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.rule import access_of
from rag.corpus import Access, Collection
from rag.errors import StoreError
from rag.store.read import schema
from rag.store.read.connection import disk_fault, engine_errors
from rag.store.write import table_maintenance
from rag.store.write.collection_tables import table_names

if TYPE_CHECKING:
    import lancedb
    import pyarrow as pa

ROWS_AT_ONCE = 1_024
ASIDE = ".damaged"


async def table_damage(database: lancedb.AsyncConnection, table: str) -> str:
    """The damage of a table as part of a sentence; empty if all its rows can be read.

    Raises:
        StoreError: the disk fails, so the table may be whole.
    """
    wrong = "it can't be opened"
    try:
        opened = await database.open_table(table)
        wrong = "some rows can't be read"
        async for _ in await opened.query().to_batches(max_batch_length=ROWS_AT_ONCE):
            pass
    except (RuntimeError, ValueError, OSError) as error:
        if fault := disk_fault(error):
            raise StoreError(fault) from error
        return wrong
    return ""


async def index_problem(database: lancedb.AsyncConnection, collection: Collection) -> str:
    """The problem of a collection's indexes as a sentence; empty if they are fine."""
    try:
        chunks = await database.open_table(table_names(collection)[0])
        needed = await table_maintenance.needed_indexes(chunks, collection)
        indexes = await chunks.list_indices()
        behind = await table_maintenance.is_behind(chunks)
    except (RuntimeError, ValueError, OSError):
        return "They can't be read."
    there = {column for index in indexes for column in index.columns}
    if missing := sorted(needed.keys() - there):
        return f"The index on {', '.join(missing)} is missing: searches are slow or fail."
    for index in indexes:
        try:
            await chunks.prewarm_index(index.name)
        except (RuntimeError, ValueError, OSError):
            return f"The index on {', '.join(index.columns)} is damaged: searches fail."
    return "Rows are missing from them: searches are slow." if behind else ""


@dataclass(frozen=True, slots=True)
class Disagreements:
    """The numbers of chunks without a source, of access records that don't fit, and of incomplete sources."""

    orphans: int
    records: int
    incomplete: int


async def disagreements(database: lancedb.AsyncConnection, collection: Collection) -> Disagreements:
    """Compare the tables of a collection with each other, and with the access records."""
    chunks_name, sources_name = table_names(collection)
    with engine_errors("comparing tables"):
        sources = await _read_columns(database, sources_name, ["id", "generation", "chunk_count"])
        chunks = await _read_columns(database, chunks_name, ["source_id", "generation"])
        records = await _read_columns(
            database, schema.access_table(collection.tenant), ["id", "collection", "present"]
        )
    stored = Counter(zip(chunks["source_id"].to_pylist(), chunks["generation"].to_pylist(), strict=True))
    expected = {(row["id"], row["generation"]): row["chunk_count"] for row in sources.to_pylist()}
    present = {
        row["id"] for row in records.to_pylist() if row["present"] and row["collection"] == collection.name
    }
    return Disagreements(
        sum(count for key, count in stored.items() if key not in expected),
        len(present ^ {id_ for id_, _ in expected}),
        sum(stored[key] != count for key, count in expected.items()),
    )


async def _read_columns(database: lancedb.AsyncConnection, name: str, columns: list[str]) -> pa.Table:
    table = await database.open_table(name)
    return await table.query().select(columns).to_arrow()


def _put_back(aside: Iterable[tuple[Path, Path]]) -> None:
    for manifest, moved in aside:
        moved.rename(manifest)


async def roll_back(database: lancedb.AsyncConnection, folder: Path) -> None:
    """Roll a table back to its newest readable version. The caller holds the collection's lock.

    The later manifests are put aside, with names that end in `.damaged`.

    Raises:
        StoreError: no version can be read, or the disk fails; then nothing has changed.
    """
    aside = []
    for manifest in sorted((folder / "_versions").glob("*.manifest"))[:-1]:  # the newest first
        moved = manifest.with_name(manifest.name + ASIDE)
        manifest.rename(moved)
        aside.append((manifest, moved))
        with suppress(FileNotFoundError):
            (folder / "_versions" / "latest_version_hint.json").unlink()
        try:
            if not await table_damage(database, folder.stem):
                return
        except StoreError:
            _put_back(aside)
            raise
    _put_back(aside)
    raise StoreError(
        f"No version of the table {folder.name} can be read. Restore a backup (refdesk-admin restore FILE "
        f"--yes). Or move {folder} away, run refdesk-admin doctor --fix --yes, and ingest again."
    )


async def torn_copies(
    database: lancedb.AsyncConnection, collection: Collection, ids: Iterable[str] | None = None
) -> dict[str, Access | None]:
    """The access in chunks whose revision differs from the record's, by source id: of all sources, or these.

    Raises:
        StoreError: a table can't be read.
    """
    chunks_name, sources_name = table_names(collection)
    chosen = None if ids is None else [*ids]
    with engine_errors("comparing access records"):
        sources = await database.open_table(sources_name)
        chunks = await database.open_table(chunks_name)
        records = await database.open_table(schema.access_table(collection.tenant))
        # The records last: one that changes meanwhile is not marked as copied.
        columns = ["source_id", "generation", "labels", "revision"]
        first = chunks.query().where(_of("source_id", chosen, "(seq = 0)")).select(columns)
        copies = (await first.to_arrow()).to_pylist()
        stored = sources.query().where(_of("id", chosen)).select(["id", "generation"])
        generations = {row["id"]: row["generation"] for row in (await stored.to_arrow()).to_pylist()}
        copied = records.query().where(_of("id", chosen, f"{schema.PRESENT} AND copied"))
        rows = (await copied.select(["id", "revision"]).to_arrow()).to_pylist()
    revisions = {row["id"]: row["revision"] for row in rows}
    return {
        row["source_id"]: access_of(row["labels"], row["revision"])
        for row in copies
        if row["generation"] == generations.get(row["source_id"])
        and row["revision"] != revisions.get(row["source_id"], row["revision"])
    }


def _of(column: str, ids: list[str] | None, condition: str = "(true)") -> str:
    return condition if ids is None else f"{condition} AND {schema.one_of(column, ids)}"
