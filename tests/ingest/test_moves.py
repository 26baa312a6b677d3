"""What becomes of a source whose file moves, is copied, vanishes and comes back, and of who may see it."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from rag.config.settings import AccessRule, IngestSettings
from rag.corpus import Access
from rag.ingest import known_sources
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import AS_NEW, Outcome, Report
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import StoredSource
from rag.store.write.access_writer import change_access
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.ingest.shelf import keep, restore
from tests.small_desk import Counting
from tests.tables import table_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("without_compaction", "parsing_here"),
    pytest.mark.slow,
]

TWIN = "it has or had the same content as"
OPEN = Access("tenant", revision=1)
ONLY_HR = Access("restricted", frozenset({"group:hr"}))
SALARIES = "# Salaries\n\nThe director earns 9000 crowns.\n"
MENU = "# Menu\n\nThere is soup on Monday.\n"


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder of files and the data folder that they are ingested into."""

    small: ModuleType
    folder: Path
    data: Path
    embedder: Counting

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def move(self, name: str, new: str) -> None:
        (self.folder / new).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).rename(self.folder / new)

    async def ingest(
        self,
        *names: str,
        requested: RequestedAccess | None = None,
        set_access: bool = False,
        of_documents: bool = False,
        removes: bool = False,
        collection: str = "documents",
        rules: tuple[AccessRule, ...] = (),
        **settings: object,
    ) -> Report:
        in_collection = await ensure_collection(self.data, "default", collection, self.embedder.identity)
        rights = Rights(
            in_collection.visibility, requested, rules, set_access=set_access, of_documents=of_documents
        )
        files = IngestSettings.model_validate(settings)
        async with open_writer(self.data, in_collection) as writer:
            paths = [self.folder / name for name in names] or [self.folder]
            instructions = Instructions(files, rights, removes)
            return await ingest(writer, self.embedder, paths, instructions, self.small.Progress())

    async def table(self, name: str = "documents") -> CollectionReader:
        return await table_of(self.data, name)

    async def sources(self, collection: str = "documents") -> dict[str, StoredSource]:
        """What is stored, by path below the folder."""
        stored = await (await self.table(collection)).all_sources()
        prefix = self.folder.as_uri() + "/"
        return {row.source.uri.removeprefix(prefix): row for row in stored}

    async def access(self, collection: str = "documents") -> dict[str, tuple[str, set[str]]]:
        stored = await self.sources(collection)
        return {
            name: (row.access.visibility, set(row.access.allow)) if row.access else ("", set())
            for name, row in stored.items()
        }

    async def give(self, name: str, access: Access) -> None:
        id_ = (await self.sources())[name].source.id
        await change_access(self.data, "default", [id_], lambda _before: access)


HR = ("restricted", {"group:hr"})
TENANT = ("tenant", set[str]())
NOBODY = ("restricted", set[str]())


def archive_in(place: Path, small: ModuleType) -> Archive:
    return Archive(small, place / "notes", place / "data", Counting(small.BagOfWords()))


def fill(archive: Archive) -> None:
    archive.write("hr/salaries.md", SALARIES)
    archive.write("menu.md", MENU)


@pytest.fixture
def archive(small_desk: ModuleType, tmp_path: Path) -> Archive:
    """Two files that no run has met."""
    archive = archive_in(tmp_path, small_desk)
    fill(archive)
    return archive


@pytest.fixture(scope="module")
def stored(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place of an archive whose files are stored, the salaries for HR alone."""
    place = tmp_path_factory.mktemp("archive") / "place"

    async def store(archive: Archive) -> None:
        fill(archive)
        await archive.ingest()
        await archive.give("hr/salaries.md", ONLY_HR)

    anyio.run(store, archive_in(place, small_desk))
    keep(place)
    return place


@pytest.fixture
def restricted(stored: Path, small_desk: ModuleType) -> Archive:
    """Two files that are stored, the salaries for HR alone. The test may change them."""
    restore(stored)
    return archive_in(stored, small_desk)


def _outcome_of(report: Report, name: str) -> Outcome:
    (outcome,) = [outcome for outcome in report.outcomes if outcome.path.endswith(f"/{name}")]
    return outcome


async def test_a_renamed_file_keeps_its_id_its_vectors_and_its_rights(restricted: Archive) -> None:
    before = (await restricted.sources())["hr/salaries.md"].source
    restricted.embedder.texts.clear()
    restricted.move("hr/salaries.md", "hr/pay/salaries-2026.md")
    report = await restricted.ingest()
    assert report.counts["moved"] == 1
    assert "it was" in _outcome_of(report, "salaries-2026.md").reason
    after = (await restricted.sources())["hr/pay/salaries-2026.md"].source
    assert (after.id, after.digest, after.metadata["path"]) == (
        before.id,
        before.digest,
        "hr/pay/salaries-2026.md",
    )
    assert await restricted.access() == {"hr/pay/salaries-2026.md": HR, "menu.md": TENANT}
    assert restricted.embedder.texts == []
    assert (await restricted.ingest()).counts["unchanged"] == 2


async def test_a_day_of_a_chat_has_the_name_of_its_folder_and_a_document_with_a_title_has_not(
    archive: Archive,
) -> None:
    said = '[{"type": "message", "user": "U1", "ts": "1704445001.0", "text": "Hello"}]'
    archive.write("old/2024-01-05.json", said)
    archive.write("old/2024-01-05.md", MENU)
    archive.write("old/2024-01-05.txt", "No title in here.")
    await archive.ingest()
    before, embedded = await archive.sources(), len(archive.embedder.texts)
    archive.move("old", "new")
    await archive.ingest()
    after = await archive.sources()
    assert {name: row.source.title for name, row in after.items() if name.startswith("new/")} == {
        "new/2024-01-05.json": "new, 2024-01-05",
        "new/2024-01-05.md": "Menu",
        "new/2024-01-05.txt": "2024-01-05",
    }
    assert {row.source.id for row in after.values()} == {row.source.id for row in before.values()}
    assert len(archive.embedder.texts) == embedded + 1  # the day, whose passages have its title


async def test_a_document_whose_title_is_its_file_s_name_gets_the_new_one_and_keeps_its_id(
    archive: Archive,
) -> None:
    archive.write("plain.txt", "No title in here.")
    await archive.ingest()
    before = (await archive.sources())["plain.txt"].source
    archive.move("plain.txt", "other.txt")
    assert _outcome_of(await archive.ingest(), "other.txt").outcome == "moved"
    after = (await archive.sources())["other.txt"].source
    assert (after.id, before.title, after.title) == (before.id, "plain", "other")


async def test_where_only_the_new_place_is_ingested_nothing_stands_twice(archive: Archive) -> None:
    await archive.ingest("hr", "menu.md")
    ids = {row.source.id for row in (await archive.sources()).values()}
    archive.move("hr", "people")
    report = await archive.ingest("people")
    assert (report.counts["moved"], report.counts["removed"]) == (1, 0)
    assert {row.source.id for row in (await archive.sources()).values()} == ids


async def test_a_document_has_one_path_whether_its_folder_or_one_above_is_ingested(archive: Archive) -> None:
    """The path below the outermost folder, also of parts of archives, of new files and of changed ones."""

    def pack(name: str) -> None:
        with zipfile.ZipFile(archive.folder / name, "w") as packed:
            packed.writestr("minutes.md", "# Minutes\n\nThe meeting of the watchmakers.\n")

    async def paths() -> set[str]:
        return {stored.source.metadata["path"] for stored in (await archive.sources()).values()}

    pack("hr/old.zip")
    await archive.ingest("hr", archives=True)
    assert await paths() == {"salaries.md", "old.zip/minutes.md"}
    archive.embedder.texts.clear()
    report = await archive.ingest(archives=True)
    assert (report.counts["unchanged"], report.counts["added"]) == (2, 1)
    whole = {"hr/salaries.md", "hr/old.zip/minutes.md", "menu.md"}
    assert await paths() == whole
    assert len(archive.embedder.texts) == 1  # of the menu
    archive.write("hr/salaries.md", SALARIES + "The porter earns 90.\n")
    archive.write("hr/new.md", "# New\n\nThe clerk.\n")
    pack("hr/new.zip")
    await archive.ingest("hr", archives=True)
    await archive.ingest("hr/salaries.md", archives=True)
    assert await paths() == whole | {"hr/new.md", "hr/new.zip/minutes.md"}


async def test_what_comes_to_the_place_of_a_moved_file_is_another_document(archive: Archive) -> None:
    await archive.ingest()
    before = (await archive.sources())["menu.md"].source.id
    archive.move("menu.md", "old-menu.md")
    await archive.ingest()
    archive.write("menu.md", "# Menu\n\nThere is fish on Friday.\n")
    await archive.ingest()
    ids = {name: row.source.id for name, row in (await archive.sources()).items()}
    assert ids["old-menu.md"] == before
    assert ids["menu.md"] != before
    await archive.ingest()
    assert {name: row.source.id for name, row in (await archive.sources()).items()} == ids


async def test_a_file_that_was_absent_for_a_run_comes_back_with_its_rights_and_id(
    restricted: Archive,
) -> None:
    before = (await restricted.sources())["hr/salaries.md"].source.id
    restricted.move("hr/salaries.md", "../away.md")
    assert (await restricted.ingest()).counts["removed"] == 1
    restricted.move("../away.md", "hr/salaries.md")
    report = await restricted.ingest()
    assert "it is back, with its earlier rights" in _outcome_of(report, "salaries.md").reason
    assert (await restricted.sources())["hr/salaries.md"].source.id == before
    assert (await restricted.access())["hr/salaries.md"] == HR


async def test_a_folder_that_comes_back_as_it_was_has_all_its_rights_again(archive: Archive) -> None:
    archive.write("hr/rules.md", "# Rules\n\nLeave ends in March.\n")
    await archive.ingest()
    await archive.give("hr/salaries.md", ONLY_HR)
    before = await archive.access()
    archive.move("hr", "../away")
    await archive.ingest()
    archive.move("../away", "hr")
    await archive.ingest()
    assert (
        await archive.access() == before == {"hr/salaries.md": HR, "hr/rules.md": TENANT, "menu.md": TENANT}
    )


async def test_a_file_that_comes_back_under_another_name_is_no_wider(restricted: Archive) -> None:
    restricted.move("hr/salaries.md", "../away.md")
    await restricted.ingest()
    restricted.move("../away.md", "public.md")
    report = await restricted.ingest()
    assert f"restricted to group:hr: {TWIN}" in _outcome_of(report, "public.md").reason
    assert (await restricted.access())["public.md"] == HR


async def test_a_copy_is_no_wider_than_the_original(restricted: Archive) -> None:
    restricted.write("public.md", SALARIES)
    restricted.write("control.md", "# Control\n\nNothing secret.\n")
    await restricted.ingest()
    assert await restricted.access() == {
        "hr/salaries.md": HR,
        "public.md": HR,
        "menu.md": TENANT,
        "control.md": TENANT,
    }


async def test_files_that_change_names_with_each_other_are_no_wider(restricted: Archive) -> None:
    restricted.write("hr/salaries.md", MENU)
    restricted.write("menu.md", SALARIES)
    await restricted.ingest()
    assert await restricted.access() == {"hr/salaries.md": HR, "menu.md": HR}


async def test_a_changed_and_renamed_file_is_no_wider_than_what_is_gone_from_its_folder(
    restricted: Archive,
) -> None:
    restricted.move("hr/salaries.md", "hr/pay.md")
    restricted.write("hr/pay.md", f"{SALARIES}\nThe clerk earns 3000.\n")
    restricted.write("control.md", "# Control\n\nIn another folder.\n")
    report = await restricted.ingest()
    assert (await restricted.access())["hr/pay.md"] == HR
    assert (await restricted.access())["control.md"] == TENANT
    assert "which is gone" in _outcome_of(report, "pay.md").reason


async def test_a_new_file_is_like_the_others_of_its_folder_where_all_are_restricted(
    restricted: Archive,
) -> None:
    restricted.write("hr/new.md", "# New\n\nSomething else.\n")
    restricted.write("new.md", "# New\n\nIn another folder.\n")
    await restricted.ingest()
    assert (await restricted.access())["hr/new.md"] == HR
    assert (await restricted.access())["new.md"] == TENANT


async def test_a_document_that_moves_to_a_folder_with_other_rights_gets_the_narrower(
    archive: Archive,
) -> None:
    archive.write("hr/rules.md", "# Rules\n\nLeave ends in March.\n")
    await archive.ingest("hr", requested=RequestedAccess(allow=("group:hr",)))
    await archive.ingest("menu.md")
    archive.move("menu.md", "hr/menu.md")
    archive.move("hr/rules.md", "rules.md")
    report = await archive.ingest()
    assert await archive.access() == {"hr/menu.md": HR, "hr/salaries.md": HR, "rules.md": HR}
    assert "now restricted to group:hr" in _outcome_of(report, "menu.md").reason


async def test_a_folder_s_rights_hold_for_what_appears_in_it_later(archive: Archive) -> None:
    await archive.ingest("hr", requested=RequestedAccess(allow=("group:hr",)))
    archive.write("hr/deep/new.md", "# New\n\nSomething else.\n")
    await archive.ingest()
    assert await archive.access() == {"hr/salaries.md": HR, "hr/deep/new.md": HR, "menu.md": TENANT}


async def test_what_a_folder_above_is_ingested_with_narrows_what_a_folder_in_it_was(archive: Archive) -> None:
    archive.write("hr/open/a.md", "# A\n\nOpen to all.\n")
    await archive.ingest("hr/open", requested=RequestedAccess("tenant"))
    await archive.ingest("hr", requested=RequestedAccess(allow=("group:hr",)))
    archive.write("hr/open/b.md", "# B\n\nNew in there.\n")
    await archive.ingest()
    assert (await archive.access())["hr/open/a.md"] == TENANT
    assert (await archive.access())["hr/open/b.md"] == HR


async def test_a_folder_s_rights_become_wider_only_when_the_run_is_told_to(archive: Archive) -> None:
    await archive.ingest("hr", requested=RequestedAccess(allow=("group:hr",)))
    report = await archive.ingest("hr", requested=RequestedAccess("tenant"))
    assert any("ingested that way before. Add --set-access to change that" in note for note in report.notes)
    archive.write("hr/new.md", "# New\n\nSomething else.\n")
    await archive.ingest("hr")
    assert (await archive.access())["hr/new.md"] == HR
    await archive.ingest("hr", requested=RequestedAccess("tenant"), set_access=True)
    archive.write("hr/newer.md", "# Newer\n\nSomething else again.\n")
    await archive.ingest()
    assert set(map(str, (await archive.access()).values())) == {str(TENANT)}


async def test_a_run_tells_how_many_sources_have_other_rights_than_it_asks_for(archive: Archive) -> None:
    await archive.ingest()
    report = await archive.ingest(requested=RequestedAccess("restricted"))
    assert await archive.access() == {"hr/salaries.md": TENANT, "menu.md": TENANT}
    assert any("2 sources keep their earlier rights" in note for note in report.notes)
    assert (await archive.ingest()).notes == report.notes
    await archive.ingest(requested=RequestedAccess("restricted"), set_access=True)
    assert await archive.access() == {"hr/salaries.md": NOBODY, "menu.md": NOBODY}
    assert (await archive.ingest()).notes == ()


async def test_a_document_may_tighten_its_rights_whenever_it_changes(archive: Archive) -> None:
    archive.write("plan.md", "# Plan\n\nMore leave.\n")
    await archive.ingest(of_documents=True)
    assert (await archive.access())["plan.md"] == TENANT
    archive.write("plan.md.meta.toml", 'allow = ["group:hr"]\n')
    report = await archive.ingest(of_documents=True)
    assert "now restricted to group:hr" in _outcome_of(report, "plan.md").reason
    assert (await archive.access())["plan.md"] == HR

    archive.write("plan.md.meta.toml", 'visibility = "tenant"\n')
    report = await archive.ingest(of_documents=True)
    assert "it requests to be open to the tenant, which is wider" in _outcome_of(report, "plan.md").reason
    assert (await archive.access())["plan.md"] == HR
    await archive.ingest(of_documents=True, set_access=True)
    assert (await archive.access())["plan.md"] == TENANT


async def test_a_document_is_heard_as_soon_as_documents_are(archive: Archive) -> None:
    """Its file need not change: the setting did. The text is parsed once more, and nothing embedded."""
    for name in ("plan.md", "moves.md"):
        archive.write(name, f"---\nallow: group:hr\n---\n# {name}\n\nMore leave.\n")
    await archive.ingest()
    assert (await archive.access())["plan.md"] == TENANT
    before = len(archive.embedder.texts)
    archive.move("moves.md", "moved.md")
    report = await archive.ingest(of_documents=True)
    assert _outcome_of(report, "plan.md").outcome == "unchanged"
    assert "now restricted to group:hr" in _outcome_of(report, "plan.md").reason
    access = await archive.access()
    assert (access["plan.md"], access["moved.md"], access["menu.md"]) == (HR, HR, TENANT)
    assert len(archive.embedder.texts) == before + 1  # what moved, as its title may hang on its name

    await archive.give("plan.md", Access("tenant"))
    await archive.ingest(of_documents=True)
    assert (await archive.access())["plan.md"] == TENANT


async def test_a_file_that_comes_back_is_not_taken_for_a_copy_with_wider_rights(restricted: Archive) -> None:
    restricted.write("copy.md", SALARIES)
    await restricted.ingest()
    await restricted.give("copy.md", Access("tenant"))
    restricted.move("hr/salaries.md", "../away.md")
    await restricted.ingest()
    restricted.move("../away.md", "hr/salaries.md")
    (restricted.folder / "copy.md").unlink()
    report = await restricted.ingest(removes=True)
    assert (await restricted.access())["hr/salaries.md"] == HR
    assert "restricted to group:hr" in _outcome_of(report, "hr/salaries.md").reason


async def test_a_move_that_could_be_a_copy_of_what_is_restricted_is_no_wider_than_that(
    archive: Archive,
) -> None:
    """Its own file is gone, and another of the same words is there still: either may have come here."""
    archive.write("open.md", SALARIES)
    archive.write("hr/clear.md", "# Clear\n\nNo other file says this.\n")
    await archive.ingest()
    await archive.give("hr/salaries.md", ONLY_HR)
    for name in ("open.md", "hr/clear.md"):
        archive.move(name, f"hr/new-{name.rpartition('/')[2]}")
    report = await archive.ingest()
    access = await archive.access()
    assert access["hr/new-open.md"] == HR
    assert TWIN in _outcome_of(report, "hr/new-open.md").reason
    assert access["hr/new-clear.md"] == TENANT


async def test_an_unchanged_request_of_the_document_does_not_undo_what_an_administrator_opened(
    archive: Archive,
) -> None:
    archive.write("plan.md", "---\nvisibility: restricted\n---\n# Plan\n\nMore leave.\n")
    await archive.ingest(of_documents=True)
    assert (await archive.access())["plan.md"] == NOBODY
    await archive.give("plan.md", ONLY_HR)
    archive.write("plan.md", "---\nvisibility: restricted\n---\n# Plan\n\nStill more leave.\n")
    await archive.ingest(of_documents=True)
    assert (await archive.access())["plan.md"] == HR


async def test_another_text_in_the_place_of_one_that_went_elsewhere_is_ingested_like_a_new_one(
    archive: Archive,
) -> None:
    """No file is missing: only the text that turned up elsewhere tells that this may be another document."""
    archive.write("plan.md", "# Plan\n\nMore leave.\n")
    await archive.ingest()
    archive.move("plan.md", "kept.md")
    archive.write("plan.md", "# Names\n\nWho is to go.\n")
    archive.write("menu.md", f"{MENU}And bread.\n")
    await archive.ingest(requested=RequestedAccess("restricted"))
    access = await archive.access()
    assert (access["plan.md"], access["kept.md"]) == (NOBODY, NOBODY)
    assert access["menu.md"] == TENANT


async def test_who_had_the_name_before_does_not_hide_what_a_file_could_be(archive: Archive) -> None:
    archive.write("hr/plan.md", "# Plan\n\nMore leave.\n")
    archive.write("hr/other.md", "# Other\n\nNothing secret.\n")
    await archive.ingest()
    await archive.give("hr/salaries.md", ONLY_HR)
    archive.move("hr/plan.md", "hr/leave.md")
    await archive.ingest()
    archive.move("hr/salaries.md", "hr/plan.md")
    archive.write("hr/plan.md", f"{SALARIES}The clerk earns 3000.\n")
    report = await archive.ingest()
    assert (await archive.access())["hr/plan.md"] == HR
    assert "restricted to group:hr" in _outcome_of(report, "plan.md").reason
    assert (await archive.access())["hr/other.md"] == TENANT


async def test_rights_are_set_without_embedding_anything(archive: Archive) -> None:
    await archive.ingest()
    archive.embedder.texts.clear()
    report = await archive.ingest(requested=RequestedAccess(allow=("group:hr",)), set_access=True)
    assert await archive.access() == {"hr/salaries.md": HR, "menu.md": HR}
    assert "now restricted to group:hr" in _outcome_of(report, "menu.md").reason
    assert archive.embedder.texts == []


async def test_rights_follow_a_document_into_another_collection(restricted: Archive) -> None:
    await restricted.ingest(collection="other")
    assert await restricted.access("other") == {"hr/salaries.md": HR, "menu.md": TENANT}


async def test_a_folder_of_which_much_is_gone_is_left_alone_until_one_insists(archive: Archive) -> None:
    for number in range(12):
        archive.write(f"many/{number}.md", f"# {number}\n\nText {number}.\n")
    await archive.ingest()
    for number in range(11):
        (archive.folder / f"many/{number}.md").unlink()
    report = await archive.ingest()
    assert (report.counts["missing"], report.counts["removed"], report.complete) == (11, 0, False)
    assert any("11 files of" in note and "--yes" in note for note in report.notes)
    assert len(await archive.sources()) == 14
    report = await archive.ingest(removes=True)
    assert (report.counts["missing"], report.counts["removed"], report.complete) == (0, 11, True)
    assert len(await archive.sources()) == 3


@pytest.mark.parametrize("stays", ["", ".hidden.md", "deep/er/"])
async def test_a_folder_without_a_file_to_read_is_left_alone_until_one_insists(
    archive: Archive, stays: str
) -> None:
    archive.write("few/a.md", "# A\n\nText a.\n")
    archive.write("few/b.md", "# B\n\nText b.\n")
    await archive.ingest()
    if stays.endswith("/"):
        (archive.folder / "few" / stays).mkdir(parents=True)
    elif stays:
        archive.write(f"few/{stays}", "of the system\n")
    for name in ("few/a.md", "few/b.md"):
        (archive.folder / name).unlink()
    report = await archive.ingest("few")
    assert (report.counts["missing"], report.counts["removed"], report.complete) == (2, 0, False)
    assert any("2 files of" in note and "--yes" in note for note in report.notes)
    report = await archive.ingest("few", removes=True)
    assert (report.counts["missing"], report.counts["removed"], report.complete) == (0, 2, True)


async def test_a_folder_that_has_another_file_now_loses_its_last_document(archive: Archive) -> None:
    archive.write("few/a.md", "# A\n\nText a.\n")
    await archive.ingest()
    (archive.folder / "few/a.md").unlink()
    archive.write("few/new.md", "# New\n\nSomething else.\n")
    assert (await archive.ingest("few")).counts["removed"] == 1


async def test_a_file_in_whose_place_a_link_is_is_not_said_to_be_gone(archive: Archive) -> None:
    archive.write("few/a.md", "# A\n\nText a.\n")
    archive.write("few/b.md", "# B\n\nText b.\n")
    archive.write("few/stays.md", "# C\n\nText c.\n")
    await archive.ingest("few")
    (archive.folder / "few/a.md").unlink()
    (archive.folder / "few/a.md").symlink_to(archive.folder / "menu.md")
    (archive.folder / "few/b.md").unlink()
    outcomes = (await archive.ingest("few")).outcomes
    reasons = {
        Path(outcome.path).name: outcome.reason for outcome in outcomes if outcome.outcome == "removed"
    }
    assert reasons == {"a.md": known_sources.REPLACED, "b.md": known_sources.GONE}


async def test_what_an_ignore_file_leaves_out_is_removed_though_nothing_else_is_there(
    archive: Archive,
) -> None:
    archive.write("few/a.md", "# A\n\nText a.\n")
    await archive.ingest()
    archive.write("few/.refdeskignore", "*.md\n")
    assert (await archive.ingest("few")).counts["removed"] == 1


async def test_a_folder_may_lose_a_third_or_ten_of_its_files(archive: Archive) -> None:
    for number in range(40):
        archive.write(f"many/{number}.md", f"# {number}\n\nText {number}.\n")
    await archive.ingest()
    for number in range(13):
        (archive.folder / f"many/{number}.md").unlink()
    assert (await archive.ingest()).counts["removed"] == 13
    for number in range(13, 23):
        (archive.folder / f"many/{number}.md").unlink()
    assert (await archive.ingest()).counts["removed"] == 10


async def test_a_folder_that_moves_as_a_whole_loses_nothing(archive: Archive) -> None:
    for number in range(20):
        archive.write(f"many/{number}.md", f"# {number}\n\nText {number}.\n")
    await archive.ingest()
    archive.move("many", "elsewhere/many")
    report = await archive.ingest()
    assert (report.counts["moved"], report.counts["missing"], report.counts["removed"]) == (20, 0, 0)


# A folder that is named by a link, and one of which an origin in the settings states the access.

HR_ONLY = RequestedAccess("restricted", ("group:hr",))


def _linked(archive: Archive) -> Path:
    """A link to the folder of a first release."""
    archive.write("releases/1/a.md", "# A\n\nText a.\n")
    archive.write("releases/2/b.md", "# B\n\nText b of the second release.\n")
    link = archive.folder / "current"
    link.symlink_to(archive.folder / "releases/1")
    return link


def _switch(link: Path, target: Path) -> None:
    link.unlink()
    link.symlink_to(target)


@pytest.mark.parametrize("named", ["current", "current/b.md", "hr/../current", "newest"])
async def test_what_a_folder_was_ingested_with_counts_wherever_its_link_leads(
    archive: Archive, named: str
) -> None:
    link = _linked(archive)
    await archive.ingest("current", requested=HR_ONLY)
    assert await archive.access() == {"releases/1/a.md": HR}
    _switch(link, archive.folder / "releases/2")
    (archive.folder / "newest").symlink_to("current")
    await archive.ingest(named)
    assert (await archive.access())["releases/2/b.md"] == HR
    await archive.ingest("menu.md")  # the control: what isn't read through it
    assert (await archive.access())["menu.md"] == TENANT


async def test_a_link_within_the_named_path_is_a_name_of_the_folder_too(archive: Archive) -> None:
    archive.write("releases/1/docs/a.md", "# A\n\nText a.\n")
    archive.write("releases/2/docs/b.md", "# B\n\nText b of the second release.\n")
    archive.write("releases/2/else/c.md", "# C\n\nText c of the second release.\n")
    link = archive.folder / "current"
    link.symlink_to(archive.folder / "releases/1")
    await archive.ingest("current/docs", requested=HR_ONLY)
    _switch(link, archive.folder / "releases/2")
    await archive.ingest("current")
    access = await archive.access()
    assert (access["releases/2/docs/b.md"], access["releases/2/else/c.md"]) == (HR, TENANT)


async def test_what_is_set_anew_for_a_link_counts(archive: Archive) -> None:
    link = _linked(archive)
    await archive.ingest("current", requested=HR_ONLY)
    _switch(link, archive.folder / "releases/2")
    await archive.ingest("current", requested=RequestedAccess("tenant"), set_access=True)
    archive.write("releases/2/c.md", "# C\n\nText c.\n")
    await archive.ingest("current")
    access = await archive.access()
    assert (access["releases/2/b.md"], access["releases/2/c.md"]) == (TENANT, TENANT)


async def test_a_rule_for_the_name_of_a_link_counts_for_what_is_read_through_it(archive: Archive) -> None:
    _linked(archive)
    rule = AccessRule(path="current/*", visibility="restricted", allow=("group:hr",))
    report = await archive.ingest("current", "menu.md", rules=(rule,))
    assert await archive.access() == {"releases/1/a.md": HR, "menu.md": TENANT}
    assert report.unmatched_rules == ()


async def test_a_copy_that_is_as_narrow_as_what_is_new_is_no_narrower_for_its_original(
    archive: Archive,
) -> None:
    archive.write("open/menu.md", MENU)
    await archive.ingest("open", requested=RequestedAccess("tenant"))
    archive.write("new/copy.md", MENU)
    report = await archive.ingest("new", requested=RequestedAccess(allow=("group:hr",)))
    assert _outcome_of(report, "copy.md").reason.endswith(AS_NEW)
    assert TWIN not in _outcome_of(report, "copy.md").reason


UNTELLABLE = {
    "menu.md": "---\nvisibility: private\n---\n" + MENU,
    "menu.md ": "---\nallow: [group:hr\n---\n" + MENU,
    "menu.md.meta.toml": "visibility = restricted\n",
    "menu.md.meta.toml ": '[access]\nallow = ["group:hr"]\n',
    "old.zip.meta.toml": "allow = group:hr\n",
}


@pytest.mark.parametrize("name", UNTELLABLE)
async def test_a_stored_document_goes_while_its_own_rights_cannot_be_read(
    archive: Archive, name: str
) -> None:
    """Perhaps they were to hide it. It comes back with the rights that it had."""
    with zipfile.ZipFile(archive.folder / "old.zip", "w") as packed:
        packed.writestr("minutes.md", "# Minutes\n\nThe meeting.\n")
    settings: dict[str, Any] = {"of_documents": True, "archives": True}
    await archive.ingest(**settings)
    before = await archive.access()
    file = archive.folder / name.strip()
    text = file.read_text() if file.exists() else None
    file.write_text(UNTELLABLE[name])
    unheard = await archive.ingest(archives=True)  # it has no say
    assert unheard.counts["removed"] == 0
    for _ in range(2):
        report = await archive.ingest(**settings)
        assert report.counts["skipped"] == 1
        affected = "old.zip#minutes.md" if "zip" in name else "menu.md"
        assert await archive.access() == {path: access for path, access in before.items() if path != affected}
    file.unlink() if text is None else file.write_text(text)
    await archive.ingest(**settings)
    assert await archive.access() == before
