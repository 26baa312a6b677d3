"""Checks of the tables of collections, for `refdesk-admin doctor`; see `rag.store.care.folder_checks`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from rag.corpus import Access, Collection
from rag.errors import StoreError
from rag.report.text_and_html import counted
from rag.store.care.folder_checks import FIX, Finding, Mend, OpenFolder, lock_name
from rag.store.care.table_damage import disagreements, index_problem, roll_back, table_damage, torn_copies
from rag.store.read.connection import CHECK_THE_DISK
from rag.store.write import table_maintenance
from rag.store.write.change_collection import change_collection, make_tables_anew, open_writer
from rag.store.write.collection_tables import forget_swept
from rag.store.write.collection_writer import table_folders
from rag.store.write.locks import locked

NAMED = 5  # documents in a finding; --fix mends all


async def check_tables(desk: OpenFolder) -> list[Finding]:
    """Whether all rows of each collection can be read."""
    return [await _check_tables(desk, collection) for collection in desk.own]


async def _check_tables(desk: OpenFolder, collection: Collection) -> Finding:
    part = lock_name(collection)
    for folder in table_folders(desk.data, collection):
        if not folder.exists():
            remedy = (
                "Restore a backup (refdesk-admin restore FILE --yes). Or make it again, empty (refdesk-admin "
                "doctor --fix --yes), and ingest again: access records and settings stay."
            )
            problem, loses = (
                f"The table {folder.name} is missing.",
                "the texts in the collection's other table",
            )
            return Finding("tables", part, problem, remedy, partial(_make_anew, desk, collection), loses)
        if table_maintenance.empty_manifests(folder):
            problem = f"A power failure left the table {folder.name} unreadable."
            return Finding("tables", part, problem, FIX, partial(repair_collection, desk, collection))
        try:
            wrong = await table_damage(desk.database, folder.stem)
        except StoreError as error:
            return Finding("tables", part, f"The table {folder.name} can't be read. {error}", CHECK_THE_DISK)
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
    forget_swept(desk.data, collection.tenant, collection.name)
    async with open_writer(desk.data, collection):  # which repairs and sweeps
        pass


async def _make_anew(desk: OpenFolder, collection: Collection) -> None:
    await make_tables_anew(desk.data, collection)
    await repair_collection(desk, collection)
    await _let_readers_open_anew(desk, collection)


async def _roll_back(desk: OpenFolder, collection: Collection, folder: Path) -> None:
    with locked(desk.data, lock_name(collection), seconds=0):
        await roll_back(desk.database, folder)
    await repair_collection(desk, collection)
    await _let_readers_open_anew(desk, collection)


async def _let_readers_open_anew(desk: OpenFolder, collection: Collection) -> None:
    """Commit to the catalog, so that servers drop rows in memory: versions and addresses are reused now."""
    await change_collection(desk.data, collection.tenant, collection.name, lambda now: now)


async def check_indexes(desk: OpenFolder) -> list[Finding]:
    """Whether every index exists, can be read and covers its rows."""
    findings = []
    for collection in desk.own:
        problem = await index_problem(desk.database, collection)
        mend = partial(_rebuild_indexes, desk, collection) if problem else None
        findings.append(Finding("indexes", lock_name(collection), problem, FIX if problem else "", mend))
    return findings


async def _rebuild_indexes(desk: OpenFolder, collection: Collection) -> None:
    async with open_writer(desk.data, collection, mends_indexes=True):
        pass


async def check_leftovers(desk: OpenFolder) -> list[Finding]:
    """Whether chunks, sources and access records agree."""
    findings = []
    for collection in desk.own:
        problem, remedy, mend = "", "", None
        if lock_name(collection) not in desk.locks:  # a running ingestion is between two steps
            problem, remedy, mend = await _leftovers_problem(desk, collection)
        findings.append(Finding("leftovers", lock_name(collection), problem, remedy, mend))
    return findings


async def _leftovers_problem(desk: OpenFolder, collection: Collection) -> tuple[str, str, Mend | None]:
    try:
        wrong = await disagreements(desk.database, collection)
    except StoreError:
        return "A table is damaged, so the tables can't be compared.", "Mend the tables first.", None
    if wrong.orphans or wrong.records:
        problem = (
            f"{wrong.orphans} chunks belong to no source, and {wrong.records} access records don't fit: a "
            "run was killed. Nobody sees them."
        )
        return problem, FIX, partial(repair_collection, desk, collection)
    if wrong.incomplete:
        problem = f"{wrong.incomplete} sources lack chunks, as after a power failure."
        return problem, f"Run refdesk-admin ingest again for the files of {collection.name}.", None
    return "", "", None


async def check_rights(desk: OpenFolder) -> list[Finding]:
    """Whether the labels of chunks match the access records."""
    findings = []
    for collection in desk.own:
        copies: Mapping[str, Access | None] = {}
        if lock_name(collection) not in desk.locks:  # a running ingestion is between two steps
            with suppress(StoreError):  # which other findings say
                copies = await torn_copies(desk.database, collection)
        findings.append(_rights_finding(desk, collection, copies))
    return findings


def _rights_finding(desk: OpenFolder, collection: Collection, copies: Mapping[str, Access | None]) -> Finding:
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


async def check_versions(desk: OpenFolder) -> list[Finding]:
    """Whether old versions have built up."""
    findings = []
    for collection in desk.own:
        there = [folder for folder in table_folders(desk.data, collection) if folder.exists()]
        old = max(map(table_maintenance.old_versions, there), default=0)
        problem, mend = "", None
        if old > 2 * table_maintenance.MAX_OLD_VERSIONS:
            problem = f"{old} old versions are kept; an ingestion drops them, but none has run since."
            mend = partial(_rebuild_indexes, desk, collection)
        findings.append(Finding("versions", lock_name(collection), problem, FIX if mend else "", mend))
    return findings
