"""The tests of rights that outlive files can fail: builds that are broken on purpose, and what notices each.

Each broken build differs from the real one in one place. Each check is red by an assertion on what it
defends; where its positive control fails, that somebody who may see a document does, it proves nothing.
"""

from __future__ import annotations

import os
import pkgutil
import secrets
import threading
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
from anyio import to_thread

from rag.answers import SearchRequest
from rag.config.settings import AccessRule, IngestSettings, SearchSettings
from rag.corpus import Access, AccessRecord, Principal
from rag.errors import NotFoundError, StoreError
from rag.ingest.access_decision import Floor, Situation
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Report
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.read.connection import connect, table_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import access_writer
from rag.store.write.access_claim import Claim, Policy, revised
from rag.store.write.access_writer import AccessTable, access_table
from rag.store.write.change_collection import open_writer
from rag.store.write.desk_folder import SourceIds, read_key
from rag.store.write.make_collection import ensure_collection
from tests.ingest.shelf import mail
from tests.tables import table_of

if TYPE_CHECKING:
    import lancedb

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.usefixtures("without_compaction", "parsing_here"),
]

ANYBODY, HR = Principal("default"), Principal("default", "eve", frozenset({"hr"}))
ONLY_HR = RequestedAccess("restricted", ("group:hr",))
SALARIES = "The salaries of all, pendulum included.\n"


class VoidError(Exception):
    """The positive control failed, so the check says nothing."""


def control(holds: object) -> None:
    """Hold that who may see a thing finds it."""
    if not holds:
        raise VoidError


@dataclass(frozen=True, slots=True)
class Office:
    """A folder of documents, what was made of it, and a desk that is open."""

    small: ModuleType
    folder: Path
    data: Path
    desk: Desk

    def write(self, name: str, text: str = SALARIES) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def ingest(
        self,
        path: str = "",
        requested: RequestedAccess | None = None,
        *,
        meanwhile: Callable[[], None] | None = None,
        **more: Any,  # noqa: ANN401 rights
    ) -> Report:
        embedder = self.small.BagOfWords()
        collection = await ensure_collection(self.data, "default", "documents", embedder.identity)
        instructions = Instructions(IngestSettings(), Rights(collection.visibility, requested, **more))
        async with open_writer(self.data, collection) as writer:
            watcher = self.small.Progress()
            if meanwhile:
                watcher.started = lambda _files, _work: meanwhile()
            return await ingest(writer, embedder, [self.folder / path], instructions, watcher)

    async def ingest_for_hr(self, name: str) -> Path:
        """A stored document that was restricted to the group later."""
        path = self.write(name)
        await self.ingest()
        await self.change(name, _only_hr)
        return path

    async def change(self, path: str, changed: Callable[[Access | None], Access]) -> None:
        """As `access` does, but for the copies in the chunks."""
        id_ = (await self.ids())[path]
        await access_writer.change_access(self.data, "default", [id_], changed)

    async def restrict_folder(self, path: str) -> None:
        """As `access set FOLDER --restricted` does, but for the copies in the chunks."""
        ids = [id_ for name, id_ in (await self.ids()).items() if name.startswith(f"{path}/")]
        (collection,) = await DeskReader(self.data, timeout_seconds=15).collections("default")
        uri = (self.folder / path).as_uri()
        folder_id = SourceIds(collection, read_key(self.data)).of_folder(uri)
        folder = AccessRecord(folder_id, "", uri, Access("tenant", revision=1))
        await access_writer.change_access(self.data, "default", ids, _only_hr, [folder])

    async def ids(self) -> dict[str, str]:
        listed = await (await table_of(self.data)).all_sources()
        root = self.folder.as_uri()
        return {stored.source.uri.removeprefix(f"{root}/"): stored.source.id for stored in listed}

    async def names_seen(self, who: Principal) -> set[str]:
        answer = await self.desk.search(who, SearchRequest("pendulum", limit=50))
        return {hit.source.uri.removeprefix(f"{self.folder.as_uri()}/") for hit in answer.hits}

    async def reads(self, who: Principal, path: str) -> bool:
        try:
            await self.desk.extract(who, (await self.ids())[path], max_chars=99)
        except NotFoundError:
            return False
        return True


def _only_hr(_before: Access | None) -> Access:
    return Access("restricted", frozenset({"group:hr"}))


def _everybody(_before: Access | None) -> Access:
    return Access("tenant")


def _denied(entry: str) -> Callable[[Access | None], Access]:
    def denied(before: Access | None) -> Access:
        assert before
        return replace(before, deny=before.deny | {entry})

    return denied


Check: TypeAlias = "Callable[[Office], Awaitable[None]]"
Replacement: TypeAlias = "Callable[[Any], Any]"


# The checks.


async def what_is_restricted_is_moved_and_stays_so(office: Office) -> None:
    await office.ingest_for_hr("hr/salaries.md")
    (office.folder / "it").mkdir()
    (office.folder / "hr/salaries.md").rename(office.folder / "it/pay.md")
    await office.ingest()
    control(await office.names_seen(HR) == {"it/pay.md"})
    assert await office.names_seen(ANYBODY) == set()


async def a_move_to_an_open_folder_opens_nothing(office: Office) -> None:
    office.write("hr/salaries.md")
    office.write("open/menu.md", "A pendulum for lunch.")
    await office.ingest("hr", ONLY_HR)
    await office.ingest("open", RequestedAccess("tenant"))
    (office.folder / "hr/salaries.md").rename(office.folder / "open/salaries.md")
    await office.ingest()
    control(await office.names_seen(HR) == {"open/salaries.md", "open/menu.md"})
    assert await office.names_seen(ANYBODY) == {"open/menu.md"}


async def what_was_away_for_a_run_comes_back_with_its_rights(office: Office) -> None:
    office.write("backup.xyz", "not read, but the folder isn't empty")
    path = await office.ingest_for_hr("salaries.md")
    path.unlink()
    await office.ingest()
    office.write("salaries.md")
    await office.ingest()
    control(await office.names_seen(HR) == {"salaries.md"})
    assert await office.names_seen(ANYBODY) == set()


async def an_edited_document_keeps_its_record(office: Office) -> None:
    await office.ingest_for_hr("salaries.md")
    office.write("salaries.md", f"{SALARIES} New ones.")
    await office.ingest()
    control(await office.names_seen(HR) == {"salaries.md"})
    assert await office.names_seen(ANYBODY) == set()


async def another_document_at_the_place_of_a_removed_one_is_no_wider(office: Office) -> None:
    office.write("backup.xyz", "not read, but the folder isn't empty")
    path = await office.ingest_for_hr("salaries.md")
    path.unlink()
    await office.ingest()
    office.write("salaries.md", f"{SALARIES} New ones.")
    await office.ingest()
    control(await office.names_seen(HR) == {"salaries.md"})
    assert await office.names_seen(ANYBODY) == set()


async def a_copy_is_no_wider_than_the_original(office: Office) -> None:
    await office.ingest_for_hr("hr/salaries.md")
    office.write("open/copy.md")
    office.write("open/menu.md", "A pendulum for lunch.")
    await office.ingest()
    control(await office.names_seen(HR) == {"hr/salaries.md", "open/copy.md", "open/menu.md"})
    assert await office.names_seen(ANYBODY) == {"open/menu.md"}


async def a_copy_in_another_encoding_is_no_wider_than_the_original(office: Office) -> None:
    text = "# Gehälter\n\nDie Gehälter aller in München, auch die für das pendulum.\n"
    office.write("hr/salaries.md").write_bytes(text.encode("cp1252"))
    await office.ingest()
    await office.change("hr/salaries.md", _only_hr)
    copies = {f"open/{encoding}.md" for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le")}
    for name in copies:
        office.write(name).write_bytes(text.replace("\n", "\r\n").encode(name[5:-3]))
    office.write("open/menu.md", "A pendulum for lunch.")
    await office.ingest()
    control(await office.names_seen(HR) == {"hr/salaries.md", "open/menu.md", *copies})
    assert await office.names_seen(ANYBODY) == {"open/menu.md"}


async def a_renamed_and_edited_file_is_no_wider_than_what_is_gone(office: Office) -> None:
    path = await office.ingest_for_hr("hr/salaries.md")
    path.unlink()
    office.write("hr/pay.md", f"{SALARIES} New ones.")
    await office.ingest()
    control(await office.names_seen(HR) == {"hr/pay.md"})
    assert await office.names_seen(ANYBODY) == set()


async def files_that_change_names_open_nothing(office: Office) -> None:
    office.write("salaries.md")
    office.write("menu.md", "A pendulum for lunch.")
    await office.ingest()
    await office.change("salaries.md", _only_hr)
    office.write("menu.md")
    office.write("salaries.md", "A pendulum for lunch.")
    await office.ingest()
    control(await office.names_seen(HR) == {"salaries.md", "menu.md"})
    assert not await office.reads(ANYBODY, "menu.md")


async def what_takes_the_place_of_a_copied_document_is_as_narrow_as_it_was(office: Office) -> None:
    office.write("salaries.md")
    menu = office.write("menu.md", "A pendulum for lunch.")
    await office.ingest()
    await office.change("salaries.md", _only_hr)
    menu.rename(office.folder / "old-menu.md")
    (office.folder / "salaries.md").rename(menu)
    menu.write_text(f"{SALARIES} New ones.")
    await office.ingest()
    control(await office.names_seen(HR) == {"old-menu.md", "menu.md"})
    assert not await office.reads(ANYBODY, "menu.md")


async def what_appears_later_is_as_its_folder_was_ingested(office: Office) -> None:
    office.write("hr/salaries.md")
    office.write("hr/menu.md", "A pendulum for lunch.")
    await office.ingest("hr", ONLY_HR)
    await office.change("hr/menu.md", _everybody)  # so not all files of the folder are restricted
    office.write("hr/2026/bonus.md", "A pendulum as a bonus.")
    await office.ingest()
    control(await office.names_seen(HR) == {"hr/salaries.md", "hr/menu.md", "hr/2026/bonus.md"})
    assert await office.names_seen(ANYBODY) == {"hr/menu.md"}


async def a_new_folder_is_as_confidential_as_all_around_it(office: Office) -> None:
    office.write("hr/salaries.md")
    office.write("menu.md", "A pendulum for lunch.")
    await office.ingest()
    await office.change("hr/salaries.md", _only_hr)
    office.write("hr/2026/bonus.md", "A pendulum as a bonus.")
    office.write("menus/2026.md", "A pendulum for dinner.")
    await office.ingest()
    control(await office.names_seen(HR) == {"hr/salaries.md", "menu.md", "hr/2026/bonus.md", "menus/2026.md"})
    assert await office.names_seen(ANYBODY) == {"menu.md", "menus/2026.md"}


async def a_folder_is_no_wider_than_the_one_around_it(office: Office) -> None:
    office.write("hr/salaries.md")
    await office.ingest("hr", ONLY_HR)
    office.write("hr/2026/bonus.md", "A pendulum as a bonus.")
    report = await office.ingest("hr/2026", RequestedAccess("tenant"))
    control(await office.names_seen(HR) == {"hr/salaries.md", "hr/2026/bonus.md"})
    assert await office.names_seen(ANYBODY) == set()
    assert any("--set-access" in note for note in report.notes)


async def a_rule_counts_whichever_folder_is_ingested(office: Office) -> None:
    office.write("hr/salaries.md")
    rules = (AccessRule(path="hr/*", allow=("group:hr",)),)
    await office.ingest("hr", rules=rules)
    control(await office.names_seen(HR) == {"hr/salaries.md"})
    assert await office.names_seen(ANYBODY) == set()


async def a_document_s_own_word_opens_nothing(office: Office) -> None:
    await office.ingest_for_hr("salaries.md")
    office.write("salaries.md", f"---\nvisibility: tenant\n---\n{SALARIES}")
    await office.ingest(of_documents=True)
    control(await office.names_seen(HR) == {"salaries.md"})
    assert await office.names_seen(ANYBODY) == set()


async def of_two_revocations_at_once_both_hold(office: Office) -> None:
    office.write("salaries.md")
    await office.ingest()
    read_records = AccessTable.of
    threads: list[threading.Thread] = []

    def revoke_from_bob() -> None:
        anyio.run(office.change, "salaries.md", _denied("user:bob"))

    async def overtaken(table: AccessTable, ids: Any) -> object:  # noqa: ANN401 the real one's
        records = await read_records(table, ids)
        if not threads:
            threads.append(threading.Thread(target=revoke_from_bob))
            threads[0].start()
            await to_thread.run_sync(
                threads[0].join, 1.0
            )  # the real build lets it wait until this one is done
        return records

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AccessTable, "of", overtaken)
        await office.change("salaries.md", _denied("user:ann"))
        await to_thread.run_sync(threads[0].join)
    control(await office.names_seen(ANYBODY) == {"salaries.md"})
    for name in ("ann", "bob"):
        assert await office.names_seen(Principal("default", name)) == set()


async def what_is_revoked_in_the_middle_of_a_run_stays_so(office: Office) -> None:
    office.write("salaries.md")
    await office.ingest()

    def revoke(name: str) -> None:
        change = _denied(f"user:{name}")
        revoking = threading.Thread(target=anyio.run, args=(office.change, "salaries.md", change))
        revoking.start()
        revoking.join()

    for name, text in (("bob", SALARIES), ("ann", f"{SALARIES} New ones.")):
        office.write("salaries.md", text)
        report = await office.ingest(
            "", RequestedAccess("tenant"), set_access=True, meanwhile=partial(revoke, name)
        )
        control(await office.names_seen(ANYBODY) == {"salaries.md"})
        assert await office.names_seen(Principal("default", name)) == set()
        assert f"user:{name}" in report.outcomes[0].reason


async def an_attachment_is_as_narrow_as_its_mail_was_made_in_the_middle_of_a_run(office: Office) -> None:
    (office.folder / "a.eml").write_bytes(mail(SALARIES))
    await office.ingest()

    def revoke() -> None:
        revoking = threading.Thread(target=anyio.run, args=(office.change, "a.eml", _denied("user:bob")))
        revoking.start()
        revoking.join()

    (office.folder / "a.eml").write_bytes(mail(SALARIES, more_md=b"# More\n\nA pendulum.\n"))
    await office.ingest("", RequestedAccess("tenant"), set_access=True, meanwhile=revoke)
    control(await office.names_seen(ANYBODY) == {"a.eml", "a.eml#more.md"})
    assert await office.names_seen(Principal("default", "bob")) == set()


async def a_folder_that_is_restricted_in_the_middle_of_a_run_opens_nothing(office: Office) -> None:
    def restrict() -> None:
        restricting = threading.Thread(target=anyio.run, args=(office.restrict_folder, "hr"))
        restricting.start()
        restricting.join()

    office.write("hr/salaries.md")
    office.write("menu.md", "A pendulum for lunch.")
    office.write("moving.md", "A pendulum that moves.")
    await office.ingest()
    office.write("hr/bonus.md", "A pendulum as a bonus.")
    (office.folder / "moving.md").rename(office.folder / "hr/moving.md")
    await office.ingest("", RequestedAccess("tenant"), meanwhile=restrict)
    office.write("hr/later.md", "A later pendulum.")
    await office.ingest()
    restricted = {"hr/salaries.md", "hr/bonus.md", "hr/moving.md", "hr/later.md"}
    control(await office.names_seen(HR) == {"menu.md", *restricted})
    assert await office.names_seen(ANYBODY) == {"menu.md"}


async def what_is_removed_in_the_middle_of_a_run_stays_away(office: Office) -> None:
    office.write("menu.md", "A pendulum for lunch.")
    for name, text in (("edited.md", f"{SALARIES} New ones."), ("same.md", f"{SALARIES} The same.")):
        office.write(name)
        office.write("same.md", f"{SALARIES} The same.")
        await office.ingest()
        control(await office.names_seen(ANYBODY) >= {"menu.md", name})
        ids, while_it_ran = await office.ids(), list[set[str]]()

        async def remove(id_: str = ids[name], names_seen: list[set[str]] = while_it_ran) -> None:
            await access_writer.mark_removed(office.data, "default", [id_])
            names_seen.append(await office.names_seen(ANYBODY))

        def removing(remove: Callable[[], Awaitable[None]] = remove) -> None:
            removal = threading.Thread(target=anyio.run, args=(remove,))
            removal.start()
            removal.join()

        office.write(name, text)
        await office.ingest(meanwhile=removing)
        control("menu.md" in while_it_ran[0])
        assert name not in while_it_ran[0]
        assert name not in await office.names_seen(ANYBODY)
        assert name not in await office.ids()


async def the_text_of_before_is_not_opened_with_the_next(office: Office) -> None:
    office.write("salaries.md")
    await office.ingest("", ONLY_HR)
    control(await office.names_seen(HR) == {"salaries.md"})
    office.write("salaries.md", "No salaries any more, but a pendulum.")

    def killed(*_: object) -> None:
        raise RuntimeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag.store.write.collection_writer.CollectionWriter._chunk_rows", killed)
        with pytest.raises(StoreError):
            await office.ingest("", RequestedAccess("tenant"), set_access=True)
    assert await office.names_seen(ANYBODY) == set()
    await office.ingest("", RequestedAccess("tenant"), set_access=True)
    control(await office.names_seen(ANYBODY) == {"salaries.md"})


async def a_change_counts_before_anything_is_copied(office: Office) -> None:
    office.write("salaries.md")
    await office.ingest("", RequestedAccess("restricted"))
    control(await office.names_seen(HR) == set())
    await office.change("salaries.md", _only_hr)
    assert await office.names_seen(HR) == {"salaries.md"}
    await office.change("salaries.md", _denied("user:eve"))
    assert (await office.names_seen(HR), office.desk.alarms) == (set(), 0)


async def a_denial_stops_a_name_in_other_letters(office: Office) -> None:
    office.write("salaries.md")
    await office.ingest()
    control(await office.reads(HR, "salaries.md"))
    await office.change("salaries.md", _denied("group:HR"))
    assert not await office.reads(HR, "salaries.md")
    assert await office.names_seen(HR) == set()


async def a_purge_takes_the_text_off_the_disk_whatever_the_clock_said(office: Office) -> None:
    path = office.write("salaries.md")
    office.write("menu.md", "A pendulum for lunch.")
    await office.ingest()
    path.unlink()
    await office.ingest()
    for file in office.data.rglob("*"):
        os.utime(file, (file.stat().st_atime + 7200, file.stat().st_mtime + 7200))
    control(_holding(office.data, b"salaries of all"))
    (collection,) = await DeskReader(office.data, timeout_seconds=15).collections("default")
    async with open_writer(office.data, collection) as writer:
        await writer.purge()
    control(await office.names_seen(ANYBODY) == {"menu.md"})
    assert _holding(office.data, b"salaries of all") == []


def _holding(data: Path, text: bytes) -> list[Path]:
    return [file for file in data.rglob("*") if file.is_file() and text in file.read_bytes()]


async def a_folder_that_is_not_mounted_removes_nothing(office: Office) -> None:
    names = {f"docs/{number}.md" for number in range(12)}
    for name in names:
        office.write(name, f"{SALARIES} {name}")
    await office.ingest("docs")
    control(await office.names_seen(ANYBODY) == names)
    for name in names:
        (office.folder / name).unlink()
    report = await office.ingest("docs")
    assert await office.names_seen(ANYBODY) == names
    assert not report.complete


async def an_empty_folder_removes_nothing_however_little_was_in_it(office: Office) -> None:
    path = office.write("docs/a.md")
    office.write("docs/deep/b.md", f"{SALARIES} Theirs.")
    await office.ingest("docs")
    control(await office.names_seen(ANYBODY) == {"docs/a.md", "docs/deep/b.md"})
    (office.folder / "docs/deep/b.md").unlink()
    await office.ingest("docs")
    control(await office.names_seen(ANYBODY) == {"docs/a.md"})
    path.unlink()
    report = await office.ingest("docs")
    assert await office.names_seen(ANYBODY) == {"docs/a.md"}
    assert not report.complete


async def what_is_read_through_a_link_is_as_its_name_was_ingested(office: Office) -> None:
    office.write("first/a.md")
    office.write("second/b.md", f"{SALARIES} New ones.")
    link = office.folder / "current"
    link.symlink_to("first")
    await office.ingest("current", ONLY_HR)
    link.unlink()
    link.symlink_to("second")
    await office.ingest("current")
    control(await office.names_seen(HR) == {"first/a.md", "second/b.md"})
    assert await office.names_seen(ANYBODY) == set()


async def what_an_origin_states_counts_before_its_own_sync(office: Office) -> None:
    office.write("hr/salaries.md")
    office.write("menu.md", "A pendulum for lunch.")
    stated = {(office.folder / "hr").as_uri(): ONLY_HR.record("tenant")}
    await office.ingest("", RequestedAccess("tenant"), set_access=True, stated=stated)
    control(await office.names_seen(HR) == {"hr/salaries.md", "menu.md"})
    assert await office.names_seen(ANYBODY) == {"menu.md"}


# What is broken in the builds.


def _read_before_the_lock(_real: object) -> object:
    async def change_access(
        data: Path,
        tenant: str,
        ids: Any,  # noqa: ANN401 the real one's
        changed: Callable[[Access | None], Access],
    ) -> None:
        name = schema.access_table(tenant)
        table = await (await connect(data)).open_table(name)
        records = await AccessTable(table, table_folder(data, name)).of(ids)
        async with access_table(data, tenant) as opened:
            await opened.put([revised(record, changed(record.access)) for record in records.values()])

    return change_access


def _by_file_times(_real: object) -> object:
    async def drop_versions(_data: object, table: lancedb.AsyncTable, _before: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await table.optimize(cleanup_older_than=timedelta(0))

    return drop_versions


def _settled(
    claimed: Callable[[AccessRecord | None, Claim], tuple[AccessRecord | None, Claim]],
) -> Replacement:
    return lambda real: (
        lambda own_record, claim, *arguments, **more: real(*claimed(own_record, claim), *arguments, **more)
    )


def _loosened(here: Situation, **columns: Any) -> Replacement:  # noqa: ANN401 a row's
    return lambda table: {**table, here: replace(table[here], **columns)}


async def _nothing(*_: object) -> None:
    pass


async def _none(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Broken:
    """A build with one mistake, at a dotted path, and the check that notices it."""

    name: str
    target: str
    replacement: Replacement
    check: Check


LOOSER_ROWS: list[tuple[Situation, dict[str, Any], Check]] = [
    (Situation.MOVED, {"policy": Policy.REPLACE}, what_is_restricted_is_moved_and_stays_so),
    (Situation.EDITED, {"policy": Policy.REPLACE}, an_edited_document_keeps_its_record),
    (Situation.BACK, {"policy": Policy.REPLACE}, what_was_away_for_a_run_comes_back_with_its_rights),
    (
        Situation.BACK_CHANGED,
        {"policy": Policy.REPLACE},
        another_document_at_the_place_of_a_removed_one_is_no_wider,
    ),
    (Situation.NEW, {"floor": (Floor.URI, Floor.GONE)}, a_copy_is_no_wider_than_the_original),
    (
        Situation.NEW,
        {"floor": (Floor.CONTENT, Floor.URI)},
        a_renamed_and_edited_file_is_no_wider_than_what_is_gone,
    ),
    (Situation.EDITED, {"floor": (Floor.URI,)}, files_that_change_names_open_nothing),
    (
        Situation.DISPLACED,
        {"floor": (Floor.CONTENT, Floor.URI)},
        what_takes_the_place_of_a_copied_document_is_as_narrow_as_it_was,
    ),
]
BROKEN = [
    Broken(
        "records follow the names of files alone",
        "rag.ingest.prepare.content_digest",
        lambda _real: lambda _data: secrets.token_hex(16),
        what_is_restricted_is_moved_and_stays_so,
    ),
    Broken(
        "a text in another encoding is another document",
        "rag.ingest.prepare.recoded",
        lambda _real: lambda data: data,
        a_copy_in_another_encoding_is_no_wider_than_the_original,
    ),
    Broken(
        "a move takes the new place's rights",
        "rag.store.write.access_writer.settle",
        _settled(
            lambda own_record, claim: (
                own_record,
                replace(claim, policy=Policy.REPLACE) if claim.policy is Policy.NARROW else claim,
            )
        ),
        a_move_to_an_open_folder_opens_nothing,
    ),
    Broken(
        "what comes back is new",
        "rag.store.write.access_writer.settle",
        _settled(
            lambda own_record, claim: (own_record if own_record and own_record.present else None, claim)
        ),
        what_was_away_for_a_run_comes_back_with_its_rights,
    ),
    *(
        Broken(
            f"the table: {here.name} has {', '.join(columns)} {[*columns.values()]}",
            "rag.ingest.access_decision.TABLE",
            _loosened(here, **columns),
            check,
        )
        for here, columns, check in LOOSER_ROWS
    ),
    Broken(
        "what is around a new folder doesn't count",
        "rag.ingest.access_decision.Recorded._around",
        lambda _real: lambda _recorded, _folder: (),
        a_new_folder_is_as_confidential_as_all_around_it,
    ),
    Broken(
        "nobody remembers what a folder was ingested with",
        "rag.store.write.collection_writer.CollectionWriter.remember",
        lambda _real: _nothing,
        what_appears_later_is_as_its_folder_was_ingested,
    ),
    Broken(
        "of what folders were ingested with, only their own counts",
        "rag.ingest.access_decision.Claims.remember",
        lambda real: (
            lambda claims, folders: {
                **real(claims, ()),
                **{
                    folder.as_uri(): claims.rights.command.record("tenant")
                    for folder in folders
                    if claims.rights.command
                },
            }
        ),
        a_folder_is_no_wider_than_the_one_around_it,
    ),
    Broken(
        "rules are held against the path below the folder that is ingested",
        "rag.ingest.requested_access._matches",
        lambda real: lambda path, pattern: real(Path("/", path.name), pattern),
        a_rule_counts_whichever_folder_is_ingested,
    ),
    Broken(
        "a document's word widens",
        "rag.store.write.access_writer.settle",
        _settled(
            lambda own_record, claim: (
                own_record,
                replace(claim, access=claim.requested_access, policy=Policy.REPLACE)
                if claim.requested_access
                else claim,
            )
        ),
        a_document_s_own_word_opens_nothing,
    ),
    Broken(
        "what is to be changed is read before the lock is taken",
        "rag.store.write.access_writer.change_access",
        _read_before_the_lock,
        of_two_revocations_at_once_both_hold,
    ),
    Broken(
        "a run with --set-access undoes what was revoked since it began",
        "rag.store.write.access_writer.settle",
        lambda real: lambda *arguments, **_: real(*arguments),
        what_is_revoked_in_the_middle_of_a_run_stays_so,
    ),
    Broken(
        "a run with --set-access gives a part more than its mail, which was revoked since it began",
        "rag.store.write.access_writer.CollectionAccess._is_overtaken",
        lambda _real: lambda _access, _record: False,
        an_attachment_is_as_narrow_as_its_mail_was_made_in_the_middle_of_a_run,
    ),
    Broken(
        "a run gives what comes into a folder what the folder had when the run began",
        "rag.store.write.access_writer.CollectionAccess._overtaken_folders",
        lambda _real: _none,
        a_folder_that_is_restricted_in_the_middle_of_a_run_opens_nothing,
    ),
    Broken(
        "a run stores what was removed since it began",
        "rag.store.write.access_writer.CollectionAccess._was_removed",
        lambda _real: lambda _access, _record: False,
        what_is_removed_in_the_middle_of_a_run_stays_away,
    ),
    Broken(
        "a removal counts when its rows are deleted",
        "rag.store.read.schema.is_tombstone",
        lambda _real: lambda _row: False,
        what_is_removed_in_the_middle_of_a_run_stays_away,
    ),
    Broken(
        "--set-access opens the text that is about to be replaced",
        "rag.store.write.collection_writer.until_stored",
        lambda _real: lambda claim: claim,
        the_text_of_before_is_not_opened_with_the_next,
    ),
    Broken(
        "the copies of the labels count instead of the record",
        "rag.store.read.collection_reader.CollectionReader.uncopied_records",
        lambda _real: _none,
        a_change_counts_before_anything_is_copied,
    ),
    Broken(
        "a denial compares letter case",
        "rag.access.rule.visible",
        lambda real: lambda who, access, _case: real(who, access, "always"),
        a_denial_stops_a_name_in_other_letters,
    ),
    Broken(
        "a purge trusts the files' times",
        "rag.store.write.table_maintenance._drop_versions",
        _by_file_times,
        a_purge_takes_the_text_off_the_disk_whatever_the_clock_said,
    ),
    Broken(
        "a run that finds a folder empty removes all that was in it",
        "rag.ingest.known_sources.perhaps_unmounted",
        lambda _real: lambda *_, **_held: {},
        a_folder_that_is_not_mounted_removes_nothing,
    ),
    Broken(
        "the name of a link says nothing of what is read through it",
        "rag.ingest.discover._names_by_links",
        lambda _real: lambda _path: (),
        what_is_read_through_a_link_is_as_its_name_was_ingested,
    ),
    Broken(
        "what an origin states counts from its own sync on",
        "rag.ingest.requested_access.Rights._nearest",
        lambda real: (
            lambda rights, folders, path: real(rights, {} if folders is rights.stated else folders, path)
        ),
        what_an_origin_states_counts_before_its_own_sync,
    ),
    Broken(
        "a folder that is empty may lose its last ten documents",
        "rag.ingest.known_sources.perhaps_unmounted",
        lambda real: (
            lambda gone, stored, discovery, **held: real(
                gone, stored, replace(discovery, barren=set()), **held
            )
        ),
        an_empty_folder_removes_nothing_however_little_was_in_it,
    ),
]


@pytest.fixture
def office(small_desk: ModuleType, tmp_path: Path) -> Office:
    data, folder = tmp_path / "data", tmp_path / "documents"
    folder.mkdir()
    reader = DeskReader(data, timeout_seconds=15)
    return Office(small_desk, folder, data, Desk(reader, small_desk.BagOfWords(), SearchSettings()))


@pytest.mark.parametrize(
    "check", dict.fromkeys(build.check for build in BROKEN), ids=lambda check: check.__name__
)
async def test_the_checks_pass_on_the_real_build(check: Check, office: Office) -> None:
    await check(office)


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.name)
async def test_each_broken_build_is_caught(
    build: Broken, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.target, build.replacement(pkgutil.resolve_name(build.target)))
    with pytest.raises(AssertionError):
        await build.check(office)


async def test_what_a_killed_run_recorded_of_a_new_source_opens_nothing_in_the_next(office: Office) -> None:
    office.write("salaries.md")

    def killed(*_: object) -> None:
        raise RuntimeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag.store.write.collection_writer.CollectionWriter._chunk_rows", killed)
        with pytest.raises(StoreError):
            await office.ingest()
    await office.ingest("", ONLY_HR)
    control(await office.names_seen(HR) == {"salaries.md"})
    assert await office.names_seen(ANYBODY) == set()
