"""The checks of `refdesk-admin doctor`: on a data folder, and on the tables of its collections.

A check only reads. Most of them take an opened folder. Its findings may have a function that repairs the
problem; a repair that can lose a text says so in `loses`. Nothing here widens a right: a damaged access
record is never replaced by an older one.

A writer marks an access record as copied once the chunks hold its labels in its revision. If a copied record
and the chunks have different revisions (`torn_copies`), the newest versions of a table were lost, as after a
partial restore of the folder. The engine filters by the chunks' labels and the gate checks the record, so a
search shows only what both allow.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread

from rag.access.rule import access_of
from rag.access.tenants import tenant_file
from rag.corpus import Access, Collection
from rag.errors import ConfigurationError, StoreError
from rag.home import closed_part, refusal
from rag.report import counted
from rag.store.read import schema
from rag.store.read.catalog import collection_record
from rag.store.read.connection import (
    connect,
    database_folder,
    engine_errors,
    refused_by_system,
    table_folder,
)
from rag.store.write import collection_tables, desk_folder, table_maintenance
from rag.store.write.change_collection import (
    CATALOG_WAIT_SECONDS,
    change_collection,
    open_writer,
    replace_tables,
)
from rag.store.write.collection_tables import forget_swept, table_names
from rag.store.write.locks import held_locks, locked

if TYPE_CHECKING:
    import lancedb
    import pyarrow as pa

KEY_BYTES = 32
FIX = "Run refdesk-admin doctor --fix."
Mend: TypeAlias = "Callable[[], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check on a part of the desk, which is fine if `problem` is empty.

    `remedy` tells the operator what to do, `mend` repairs it with --fix, and `loses` says what that may lose.
    A `note` needn't be a problem.
    """

    check: str
    part: str
    problem: str = ""
    remedy: str = ""
    mend: Mend | None = None
    loses: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """A data folder whose catalog could be read."""

    data: Path
    database: lancedb.AsyncConnection
    collections: Sequence[Collection]
    locks: frozenset[str] = field(default_factory=frozenset)

    @property
    def own(self) -> list[Collection]:
        """The collections that have tables here."""
        return [collection for collection in self.collections if not collection.attached]


Check: TypeAlias = "Callable[[OpenFolder], Awaitable[list[Finding]]]"


def _of_each(check: Callable[[OpenFolder, Collection], Awaitable[Finding]]) -> Check:
    """A check of every collection that has tables here."""

    @wraps(check)
    async def check_all(desk: OpenFolder) -> list[Finding]:
        return [await check(desk, collection) for collection in desk.own]

    return check_all


def check_closed(data: Path) -> Finding | None:
    """The finding on what this user may not read, because of which all other checks would be wrong."""
    if not (path := closed_part(data)):
        return None
    problem = "This user may not read or write all of it, so nothing else in it was checked."
    return Finding("folder", str(data), problem, refusal(path, data))


async def check_files(data: Path) -> list[Finding]:
    """The plain files of the folder. They are checked even if the catalog can't be read."""
    return [_check_reserve(data), _check_key(data)]


def _check_reserve(data: Path) -> Finding:
    folders = [data, data / "locks", data / "tenants", database_folder(data)]
    mend = partial(to_thread.run_sync, desk_folder.prepare, data)
    if missing := [folder.name for folder in folders if not folder.is_dir()]:
        return Finding("folder", missing[0], "The folder is missing.", FIX, mend)
    file = desk_folder.reserve_file(data)
    if not file.exists() or file.stat().st_size < desk_folder.RESERVE_BYTES:
        problem = "The reserve, which lets rights be taken away on a full disk, is not complete."
        return Finding("folder", file.name, problem, FIX, mend)
    if closed := [folder for folder in folders if not os.access(folder, os.W_OK)]:
        note = (
            f"{closed[0]} can't be written: its disk is read-only, or this user may not. Servers can search "
            "it, but nothing can be ingested, changed or mended from here."
        )
        return Finding("folder", str(data), note=note)
    return Finding("folder", str(data))


def _check_key(data: Path) -> Finding:
    try:
        size = (data / "key").stat().st_size
    except OSError:
        if not table_folder(data, schema.COLLECTIONS).exists():
            return Finding("key", "key")
        size = 0
    if size == KEY_BYTES:
        return Finding("key", "key")
    return Finding(
        "key",
        "key",
        "The key that source ids are derived from is missing or damaged. Documents can be found, but not "
        "ingested: purged documents would not be recognised.",
        f"Put it back from a backup (tar xf BACKUP key, then move it to {data}).",
    )


async def open_folder(data: Path) -> tuple[OpenFolder | None, Finding]:
    """The folder with its catalog, None if that can't be read; and the finding on the catalog."""
    folder = table_folder(data, schema.COLLECTIONS)
    database = await connect(data)
    locks = frozenset(held_locks(data))
    if not folder.exists():
        return OpenFolder(data, database, (), locks), Finding("catalog", "collections")
    if table_maintenance.empty_manifests(folder):
        mend = partial(to_thread.run_sync, table_maintenance.repair, data, schema.COLLECTIONS)
        return None, Finding("catalog", "collections", "A power failure left it unreadable.", FIX, mend)
    try:
        table = await database.open_table(schema.COLLECTIONS)
        rows = (await table.query().to_arrow()).to_pylist()
        collections = [collection_record(row) for row in rows]
    except ConfigurationError as error:
        return None, Finding("catalog", "collections", "Its format is not the present one.", str(error))
    except (RuntimeError, ValueError, OSError) as error:
        if refused := refused_by_system(error):
            return None, Finding("catalog", "collections", f"It can't be read. {refused}")
        remedy = "Restore a backup into a new data folder (refdesk-admin restore FILE --data DIR)."
        return None, Finding("catalog", "collections", "It is damaged: no document can be found.", remedy)
    collections.sort(key=lock_name)
    return OpenFolder(data, database, collections, locks), Finding("catalog", "collections")


def lock_name(collection: Collection) -> str:
    """The name of a collection's lock; findings use it for the collection."""
    return f"{collection.tenant}.{collection.name}"


async def check_tenants(desk: OpenFolder) -> list[Finding]:
    """Whether every tenant that has collections is in the list of tenants."""
    findings = []
    for tenant in sorted({collection.tenant for collection in desk.collections}):
        missing = not tenant_file(desk.data, tenant).exists()
        problem = "It has collections, but is not in the list of tenants." if missing else ""
        mend = partial(to_thread.run_sync, desk_folder.note_tenant, desk.data, tenant)
        findings.append(Finding("tenant", tenant, problem, FIX, mend))
    return findings


async def check_access(desk: OpenFolder) -> list[Finding]:
    """Whether the access records of each tenant can be read. Older ones never replace them."""
    findings = []
    for tenant in sorted({collection.tenant for collection in desk.collections}):
        folder = table_folder(desk.data, schema.access_table(tenant))
        if folder.exists() and table_maintenance.empty_manifests(folder):
            problem = "A power failure left them unreadable: nobody finds anything."
            mend = partial(
                to_thread.run_sync, table_maintenance.repair, desk.data, schema.access_table(tenant)
            )
            findings.append(Finding("access records", tenant, problem, FIX, mend))
        else:
            findings.append(await _records_of(desk, tenant))
    return findings


async def _records_of(desk: OpenFolder, tenant: str) -> Finding:
    try:
        damaged = await table_damage(desk.database, schema.access_table(tenant))
    except StoreError as error:  # the system refuses to read it, which a backup wouldn't mend
        return Finding("access records", tenant, f"Nobody finds anything. {error}")
    if damaged:
        remedy = "Restore a backup (refdesk-admin restore FILE --yes) into a new data folder."
        problem = "They are damaged: nobody finds anything. Earlier ones could give more rights."
        return Finding("access records", tenant, problem, remedy)
    return Finding("access records", tenant)


async def check_stray(desk: OpenFolder) -> list[Finding]:
    """Whether the folder has leftovers that nothing uses."""
    findings = []
    spool = desk.data / "spool"
    for folder in sorted(spool.iterdir()) if spool.is_dir() else ():
        if folder.name not in desk.locks:
            problem = "A killed run left copies of documents."
            mend = partial(_remove_spool, desk, folder)
            findings.append(Finding("stray", f"spool/{folder.name}", problem, FIX, mend))
    if "catalog" not in desk.locks:
        findings += _stray_tables(desk)
    return findings or [Finding("stray", str(desk.data))]


async def _remove_spool(desk: OpenFolder, folder: Path) -> None:
    with locked(desk.data, folder.name, seconds=0):
        shutil.rmtree(folder)


def _stray_tables(desk: OpenFolder) -> list[Finding]:
    """Tables without a collection in the catalog, left by a killed command, and unfinished rebuilds."""
    used = {f"{table}.lance" for build in desk.own for table in collection_tables.named_tables(build)}
    folder = database_folder(desk.data)
    rebuilt = [collection for collection in desk.own if collection.coming]
    findings = [
        _unfinished_rebuild(collection) for collection in rebuilt if lock_name(collection) not in desk.locks
    ]
    for name in sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else ():
        kind, _, key = name.removesuffix(".lance").partition("__tenant_")
        # A table without a row is also what a running command has just made.
        is_held = ".".join(key.partition("__build_")[0].split("__src_")) in desk.locks
        if kind in {"chunks", "sources"} and name not in used and not is_held:
            problem = "The catalog has no collection for this table. Nobody finds what is in it."
            remedy = (
                "If a restore was killed, run it again. Otherwise delete the table: refdesk-admin doctor "
                "--fix --yes."
            )
            mend = partial(_drop, desk, *key.split("__src_"))
            findings.append(Finding("stray", name, problem, remedy, mend, "the documents in it"))
    return findings


def _unfinished_rebuild(collection: Collection) -> Finding:
    return Finding(
        "stray",
        lock_name(collection),
        "A rebuild of the collection was interrupted. Searches use the tables from before it.",
        f"To complete it, run refdesk-admin collection rebuild {collection.name}; to drop it, "
        "refdesk-admin purge.",
    )


async def _drop(desk: OpenFolder, tenant: str, name: str) -> None:
    """Drop the tables of a collection, or of builds, that the catalog doesn't name."""
    name, _, _ = name.partition("__build_")
    by_lock = {lock_name(collection): collection for collection in desk.own}
    collection = by_lock.get(f"{tenant}.{name}")
    with (
        locked(desk.data, f"{tenant}.{name}", seconds=0),
        locked(desk.data, "catalog", seconds=CATALOG_WAIT_SECONDS),
    ):
        if collection:
            await collection_tables.drop_others(desk.data, collection)
        else:
            await collection_tables.drop_tables(desk.data, desk.database, tenant, name)


NAMED = 5  # documents in a finding; --fix mends all


@_of_each
async def check_tables(desk: OpenFolder, collection: Collection) -> Finding:
    """Whether all rows of a collection can be read."""
    part = lock_name(collection)
    for folder in (table_folder(desk.data, name) for name in table_names(collection)):
        if not folder.exists():
            remedy = (
                "Restore a backup (refdesk-admin restore FILE --yes). Or make it again, empty (refdesk-admin "
                "doctor --fix --yes), and ingest again: access records and settings stay."
            )
            problem, loses = (
                f"The table {folder.name} is missing.",
                "the texts in the collection's other table",
            )
            return Finding("tables", part, problem, remedy, partial(_replace_tables, desk, collection), loses)
        if table_maintenance.empty_manifests(folder):
            problem = f"A power failure left the table {folder.name} unreadable."
            return Finding("tables", part, problem, FIX, partial(repair_collection, desk, collection))
        try:
            wrong = await table_damage(desk.database, folder.stem)
        except StoreError as error:
            return Finding("tables", part, f"The table {folder.name} can't be read. {error}")
        if wrong:
            mend = partial(_roll_back, desk, collection, folder)
            remedy = (
                "Restore a backup (refdesk-admin restore FILE --yes). Or go back to the newest version that "
                "can be read (refdesk-admin doctor --fix --yes), and ingest again."
            )
            loses = "what was ingested since that version, until it is ingested again"
            return Finding(
                "tables", part, f"The table {folder.name} is damaged: {wrong}.", remedy, mend, loses
            )
    return Finding("tables", part)


async def repair_collection(desk: OpenFolder, collection: Collection) -> None:
    """Remove the leftovers of a killed run from a collection's tables, even if they are noted as swept."""
    forget_swept(desk.data, collection.tenant, collection.name)  # the note may be what is wrong
    async with open_writer(desk.data, collection):  # opening repairs and sweeps
        pass


async def _replace_tables(desk: OpenFolder, collection: Collection) -> None:
    await replace_tables(desk.data, collection)
    await _repair_and_reopen(desk, collection)


async def _roll_back(desk: OpenFolder, collection: Collection, folder: Path) -> None:
    with locked(desk.data, lock_name(collection), seconds=0):
        await roll_back(desk.database, folder)
    await _repair_and_reopen(desk, collection)


async def _repair_and_reopen(desk: OpenFolder, collection: Collection) -> None:
    await repair_collection(desk, collection)
    # A commit to the catalog: servers drop rows in memory. The table's versions and addresses repeat.
    await change_collection(desk.data, collection.tenant, collection.name, lambda now: now)


@_of_each
async def check_indexes(desk: OpenFolder, collection: Collection) -> Finding:
    """Whether every index exists, can be read and covers its rows."""
    problem = await _index_problem(desk.database, collection)
    mend = partial(_rebuild_indexes, desk, collection)
    return Finding("indexes", lock_name(collection), problem, FIX, mend)


async def _rebuild_indexes(desk: OpenFolder, collection: Collection) -> None:
    async with open_writer(desk.data, collection, mends_indexes=True):
        pass


@_of_each
async def check_leftovers(desk: OpenFolder, collection: Collection) -> Finding:
    """Whether chunks, sources and access records agree."""
    part = lock_name(collection)
    if part in desk.locks:  # a running ingestion is between two steps
        return Finding("leftovers", part)
    try:
        orphans, records, incomplete = await _disagreements(desk.database, collection)
    except StoreError:
        problem = "A table is damaged, so the tables can't be compared."
        return Finding("leftovers", part, problem, "Mend the tables first.")
    if orphans or records:
        problem = (
            f"{orphans} chunks belong to no source, and {records} access records don't fit: a run was "
            "killed. Nobody sees them."
        )
        return Finding("leftovers", part, problem, FIX, partial(repair_collection, desk, collection))
    if incomplete:
        problem = f"{incomplete} sources lack chunks, as after a power failure."
        remedy = f"Run refdesk-admin ingest again for the files of {collection.name}."
        return Finding("leftovers", part, problem, remedy)
    return Finding("leftovers", part)


@_of_each
async def check_rights(desk: OpenFolder, collection: Collection) -> Finding:
    """Whether the labels of chunks match the access records."""
    copies: Mapping[str, Access | None] = {}
    if lock_name(collection) not in desk.locks:  # a running ingestion is between two steps
        with suppress(StoreError):  # another finding says so
            copies = await torn_copies(desk.database, collection)
    if not copies:
        return Finding("rights", lock_name(collection))
    first = sorted(copies)[:NAMED]
    problem = (
        f"Newer versions of a table were lost, as when a copy of the folder is put back in part: the access "
        f"records of {counted(len(copies), 'document')} and the copies that searches go by differ. A search "
        "shows these only to those whom both let in."
    )
    remedy = (
        f"{FIX} It makes that the record. Then look at them, and set again what was lost: refdesk-admin "
        f"access show {' '.join(first)}{' …' if len(copies) > NAMED else ''}."
    )
    return Finding("rights", lock_name(collection), problem, remedy, partial(_mend_rights, desk, collection))


async def _mend_rights(desk: OpenFolder, collection: Collection) -> None:
    async with open_writer(desk.data, collection) as writer:
        await writer.mend_access(await torn_copies(desk.database, collection))
        await writer.finish()


# The damage of a table, and rolling it back to a readable version.

ROWS_AT_ONCE = 1_024
ASIDE = ".damaged"


async def table_damage(database: lancedb.AsyncConnection, table: str) -> str:
    """The damage of a table as part of a sentence; empty if all its rows can be read.

    Raises:
        StoreError: the system refuses to read it; the table itself may be undamaged.
    """
    wrong = "it can't be opened"
    try:
        opened = await database.open_table(table)
        wrong = "some rows can't be read"
        async for _ in await opened.query().to_batches(max_batch_length=ROWS_AT_ONCE):
            pass
    except (RuntimeError, ValueError, OSError) as error:
        if refused := refused_by_system(error):
            raise StoreError(refused) from error
        return wrong
    return ""


async def _index_problem(database: lancedb.AsyncConnection, collection: Collection) -> str:
    """The problem of a collection's indexes as a sentence; empty if they are fine."""
    try:
        chunks = await database.open_table(table_names(collection)[0])
        needed = await table_maintenance.needed_indexes(chunks, collection)
        indexes = await chunks.list_indices()
        behind = await table_maintenance.is_behind(chunks)
    except (RuntimeError, ValueError, OSError):
        return "They can't be read."
    there = {column for index in indexes for column in index.columns}
    if missing := sorted(needed - there):
        return f"The index on {', '.join(missing)} is missing: searches are slow or fail."
    for index in indexes:
        try:
            await chunks.prewarm_index(index.name)
        except (RuntimeError, ValueError, OSError):
            return f"The index on {', '.join(index.columns)} is damaged: searches fail."
    return "Rows are missing from them: searches are slow." if behind else ""


async def _disagreements(database: lancedb.AsyncConnection, collection: Collection) -> tuple[int, int, int]:
    """The numbers of chunks without a source, of access records that don't fit, and of incomplete sources."""
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
    return (
        sum(count for key, count in stored.items() if key not in expected),
        len(present ^ {id_ for id_, _ in expected}),
        sum(stored[key] != count for key, count in expected.items()),
    )


async def _read_columns(database: lancedb.AsyncConnection, name: str, columns: list[str]) -> pa.Table:
    table = await database.open_table(name)
    return await table.query().select(columns).to_arrow()


async def roll_back(database: lancedb.AsyncConnection, folder: Path) -> None:
    """Roll a table back to its newest readable version. The caller holds the collection's lock.

    The later manifests are put aside, with names that end in `.damaged`.

    Raises:
        StoreError: no version can be read, or the system refuses it; then nothing has changed.
    """
    aside = ExitStack()  # puts the manifests back on failure
    # The newest first. The oldest stays in any case: without a manifest, it would be no table.
    for manifest in sorted((folder / "_versions").glob("*.manifest"))[:-1]:
        moved = manifest.with_name(manifest.name + ASIDE)
        manifest.rename(moved)
        aside.callback(moved.rename, manifest)
        with suppress(FileNotFoundError):  # it would still lead to the version that was put aside
            (folder / "_versions" / "latest_version_hint.json").unlink()
        try:
            if not await table_damage(database, folder.stem):
                return
        except StoreError:
            aside.close()
            raise
    aside.close()
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
        # Records are read last: if one changes in between, it isn't marked as copied and doesn't count.
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
