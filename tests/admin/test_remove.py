"""What is removed, purged or expired: nobody finds it from then on, and a purge takes it off the disk."""

from __future__ import annotations

import json
import subprocess
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import rag
from rag.admin import remove_command
from rag.answers import Answer
from rag.errors import RefdeskError
from rag.home import check_data_folder
from rag.originals import Clock
from rag.store.write import change_collection
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Endpoint


pytestmark = pytest.mark.slow


BUSY = 4


@dataclass(frozen=True, slots=True)
class Ingesting:
    """A desk with three documents, and an ingestion that waits for its embedding model."""

    desk: Desk
    folder: Path
    provider: Endpoint
    environment: dict[str, str]

    def readable(self) -> set[str]:
        """The names of the documents that a search finds."""
        reply = self.desk.json("search", "wombat", "--mode", "sparse")
        return {hit["metadata"]["path"] for hit in reply["results"]}

    @contextmanager
    def ingestion(self) -> Iterator[dict[str, Any]]:
        """The report of a run that has read its files, and goes on when the block ends."""
        embeds, goes_on, report = threading.Event(), threading.Event(), dict[str, Any]()

        def waiting(request: dict[str, Any]) -> Any:  # noqa: ANN401 the endpoint's own
            if any("wombat" in text for text in request["input"]):  # others only ask for the dimension
                embeds.set()
                goes_on.wait(60)
            return self.provider.embedding(request)

        self.provider.script = [waiting]
        with subprocess.Popen(
            [self.desk.scripts.forked_admin, "ingest", self.folder, "--json", "--data", self.desk.data],
            env=self.desk.scripts.environment | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                assert embeds.wait(60)
                yield report
            finally:
                goes_on.set()
            report |= json.loads(process.communicate(timeout=60)[0])
        assert process.returncode == 0


@pytest.fixture
def ingesting(inside: Desk, provider: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ingesting:
    folder = tmp_path / "burrow"
    folder.mkdir()
    for name in ("edited", "kept", "same"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nA wombat, {name}.\n")
    settings = {"provider": "openai", "model": "tiny", "base_url": provider.url}
    environment = {f"REFDESK_EMBEDDER_{name.upper()}": value for name, value in settings.items()}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(change_collection, "WRITER_WAIT_SECONDS", 0.1)  # no ingestion here ends meanwhile
    scene = Ingesting(inside, folder, provider, environment)
    provider.script = [provider.embedding]
    inside.run("ingest", folder)
    (folder / "edited.md").write_text("# edited\n\nA wombat, edited since.\n")
    (folder / "added.md").write_text("# added\n\nA wombat, added.\n")
    assert scene.readable() == {"edited.md", "kept.md", "same.md"}
    return scene


def test_a_removal_is_in_force_while_an_ingestion_runs_and_after_it(ingesting: Ingesting) -> None:
    gone = [ingesting.folder / name for name in ("edited.md", "same.md")]
    with ingesting.ingestion() as report:
        warnings = ingesting.desk.run("remove", *gone).stderr
        assert "no longer find them" in warnings
        assert ingesting.readable() == {"kept.md"}
        assert ingesting.desk.paths() == ["kept.md"]
    assert ingesting.readable() == {"added.md", "kept.md"}
    outcomes = {entry["path"].rpartition("/")[2]: entry["outcome"] for entry in report["files"]}
    assert outcomes["edited.md"] == "removed"
    assert any("Another command removed" in note for note in report["notes"])


def test_what_was_removed_during_a_run_comes_back_with_the_next_one_under_its_own_rights(
    ingesting: Ingesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ingesting.folder / "edited.md"
    ingesting.desk.run("access", "set", file, "--visibility", "restricted", "--allow", "group:hr")
    with ingesting.ingestion():
        ingesting.desk.run("remove", file)
    ingesting.provider.script = [ingesting.provider.embedding]
    report = ingesting.desk.json("ingest", ingesting.folder)
    assert report["counts"]["added"] == 1
    assert "edited.md" not in ingesting.readable()
    monkeypatch.setenv("REFDESK_PRINCIPAL_GROUPS", "hr")
    assert "edited.md" in ingesting.readable()


def test_what_can_not_be_done_during_a_run_is_said_and_the_removal_holds_all_the_same(
    ingesting: Ingesting,
) -> None:
    command = "remove", ingesting.folder / "kept.md", "--forget"
    with ingesting.ingestion():
        warnings = ingesting.desk.run(*command, code=BUSY).stderr
        assert "run the command again" in warnings
        assert "kept.md" not in ingesting.readable()
    assert "kept.md" not in ingesting.readable()
    ingesting.desk.run(*command)


def test_who_removes_a_file_that_is_still_there_learns_that_it_comes_back(ingesting: Ingesting) -> None:
    (ingesting.folder / "same.md").unlink()
    warnings = ingesting.desk.run("remove", ingesting.folder / "same.md").stderr
    assert warnings == ""
    warnings = ingesting.desk.run("remove", ingesting.folder / "kept.md").stderr
    assert str(ingesting.folder / "kept.md") in warnings
    assert ".refdeskignore" in warnings


def test_a_removal_that_was_killed_before_it_deleted_a_row_is_finished_by_the_next_writer(
    ingesting: Ingesting,
) -> None:
    with ingesting.ingestion():
        ingesting.desk.run("remove", ingesting.folder / "kept.md")
        again = ingesting.desk.failure("remove", ingesting.folder / "kept.md")
        assert "kept.md" in again
    ingesting.desk.run("purge")
    assert not ingesting.desk.files_with(b"A wombat, kept", "tables")
    assert ingesting.desk.files_with(b"A wombat, same", "tables")


def test_the_text_of_a_removed_document_is_in_no_file_after_a_purge(desk: Desk, tmp_path: Path) -> None:
    assert refusal(check_data_folder, desk.data) in desk.misuse("purge")
    desk.run("tenant", "create", "default")
    assert "no collections yet" in desk.run("purge").stdout
    papers = tmp_path / "papers"
    papers.mkdir()
    for name, text in [("kept", "pendulum"), ("gone", "zanzibarite")]:
        (papers / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    desk.run("ingest", papers)
    desk.run("remove", papers / "gone.md")
    assert desk.files_with(b"zanzibarite")

    printed = desk.run("purge").stdout
    assert printed.startswith("documents: rewrote 1 source and 1 chunk, rebuilt the indexes, ")
    assert desk.files_with(b"zanzibarite") == []
    assert desk.files_with(b"pendulum")
    assert desk.titles("zanzibarite pendulum") == ["kept"]

    (purged,) = desk.json("purge", "--collection", "documents")["collections"]
    assert purged.keys() == {"name", "sources", "chunks", "freed_bytes", "dropped_rebuild"}
    assert (purged["name"], purged["sources"], purged["chunks"]) == ("documents", 1, 1)
    assert "no collection 'other'" in desk.failure("purge", "--collection", "other")


def test_a_purge_that_makes_the_folder_larger_says_that_it_freed_nothing(
    inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "kept.md").write_text("# Kept\n\nA pendulum.\n")
    inside.run("ingest", tmp_path / "papers")
    sizes = iter((1_000_000, 1_100_000) * 2)
    monkeypatch.setattr(remove_command, "folder_bytes", lambda _data: next(sizes))
    assert inside.run("purge").stdout.endswith("deleted older versions, no disk space freed.\n")
    assert inside.json("purge")["collections"][0]["freed_bytes"] == 0
    assert [remove_command.freed_text(size) for size in (1, 99_999, 100_000, 2_340_000)] == [
        *["less than 0.1 MB freed"] * 2,
        "0.1 MB freed",
        "2.3 MB freed",
    ]


LATER = datetime.now(UTC) + timedelta(days=100)


@dataclass(frozen=True, slots=True)
class Archive:
    """A data folder, and a folder of letters."""

    desk: Desk
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def write(self, name: str, expires: str = "", **metadata: str) -> None:
        entries = metadata | ({"expires": expires} if expires else {})
        front = "".join(f"{key}: {value}\n" for key, value in entries.items())
        (self.folder / name).write_text(f"---\n{front}---\n# {name}\n\nThe pendulum of {name}.\n")

    def ingest(self, code: int = 0) -> dict[str, str]:
        printed = self.desk.json("ingest", self.folder, code=code)
        return {entry["path"].rpartition("/")[2]: entry["outcome"] for entry in printed["files"]}

    def at(self, moment: datetime) -> None:
        """Let searches think that it is this time."""
        self.monkeypatch.setattr(Clock, "now", lambda _clock: moment)

    def found_paths(self, *options: str) -> list[str]:
        return [f"{title}.md" for title in self.desk.titles("pendulum", *options)]


@pytest.fixture
def archive(inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    folder = tmp_path / "letters"
    folder.mkdir()
    return Archive(inside, folder, monkeypatch)


def test_a_document_is_found_until_the_moment_that_it_states_and_not_from_then_on(archive: Archive) -> None:
    archive.write("a.md", LATER.isoformat())
    archive.write("b.md")
    archive.ingest()
    archive.at(LATER - timedelta(microseconds=1))
    assert archive.found_paths() == ["a.md", "b.md"]
    archive.at(LATER)
    assert archive.found_paths() == ["b.md"]


def test_an_expiry_that_is_no_date_is_told_with_its_value_and_what_became_of_the_document(
    archive: Archive,
) -> None:
    archive.write("a.md", "next summer")
    archive.write("b.md", LATER.isoformat())
    assert archive.ingest(code=3) == {"a.md": "skipped", "b.md": "added"}
    archive.write("b.md", "2027-13-45")
    run = archive.desk.run("ingest", archive.folder, code=1)
    assert "Failed: 2 unclear expiry (1 as before" in run.stdout
    for name, value in (("a.md", "next summer"), ("b.md", "2027-13-45")):
        reason = f"its metadata has expires: {value!r}, which isn't a date like 2027-03-31 or"
        assert f"skipped   {archive.folder / name}: {reason}" in run.stderr
    assert run.stderr.count("it isn't stored") == 2
    assert archive.found_paths() == ["b.md"]


def test_days_apply_at_once_to_what_is_stored_and_can_be_taken_back(archive: Archive) -> None:
    archive.write("old.md", date="2020-01-01")
    archive.write("new.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    assert archive.found_paths() == ["new.md"]
    archive.desk.run("collection", "set", "documents", "--keep-days", "0")
    assert archive.found_paths() == ["new.md", "old.md"]


def test_the_next_run_removes_what_has_expired_wherever_it_is_from(archive: Archive, tmp_path: Path) -> None:
    archive.write("old.md", date="2020-01-01")
    archive.write("new.md")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    empty = tmp_path / "other"
    empty.mkdir()
    printed = archive.desk.json("ingest", empty)
    assert [(entry["outcome"], entry["kind"]) for entry in printed["files"]] == [("removed", "expired")]
    assert "1 document expired: 1 removed, the others not stored." in printed["notes"]
    assert archive.desk.paths() == ["new.md"]
    assert archive.ingest() == {"old.md": "ignored", "new.md": "unchanged"}
    archive.write("old.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    assert archive.ingest()["old.md"] == "added"


def test_an_unchanged_and_a_renewed_file_of_an_expired_source(archive: Archive) -> None:
    for name in ("kept.md", "renewed.md"):
        archive.write(name, date="2020-01-01")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    archive.write("renewed.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    assert archive.ingest() == {"kept.md": "removed", "renewed.md": "replaced"}
    assert archive.found_paths() == ["renewed.md"]


def test_the_parts_of_a_file_expire_with_it(archive: Archive, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[ingest]\narchives = true\n")
    with zipfile.ZipFile(archive.folder / "letters.zip", "w") as packed:
        packed.writestr("soon.md", f"---\nexpires: {LATER:%Y-%m-%d}\n---\n# soon\n\nA pendulum.\n")
        packed.writestr("later.md", "# later\n\nA pendulum.\n")
    (archive.folder / "letters.zip.meta.toml").write_text(f"expires = {LATER + timedelta(days=9):%Y-%m-%d}\n")
    archive.desk.run("ingest", archive.folder, "--config", config)
    archive.at(LATER + timedelta(days=1))
    assert archive.found_paths() == ["later.md"]
    archive.at(LATER + timedelta(days=10))
    assert archive.found_paths() == []


async def _seen(data: Path, id_: str) -> list[object]:
    """What a caller gets at every door, for a document of this id."""
    me, replies = rag.Principal("default"), list[object]()
    async with rag.Desk.open(rag.Settings(data=data)) as desk:
        asking: list[Callable[[], Awaitable[object]]] = [
            partial(desk.collections, me),
            partial(desk.overview, me),
            partial(desk.sources_beginning_with, me, "a.md"),
            partial(desk.sources, me, after=("", ""), limit=9),
            partial(desk.extract, me, id_, max_chars=100),
            partial(desk.extract, me, f"{id_}/0", max_chars=100),
            partial(desk.at, me, "documents/a.md"),
            partial(desk.listing, me, "documents"),
            partial(desk.search, me, rag.SearchRequest("pendulum", mode="sparse")),
        ]
        for ask in asking:
            try:
                answer = await ask()
            except RefdeskError as error:
                replies.append((type(error), str(error)))
            else:
                replies.append(
                    [hit.source.id for hit in answer.hits] if isinstance(answer, Answer) else answer
                )
    return replies


@pytest.mark.parametrize("neighbours", [(), ("b.md",)])
def test_who_asks_cannot_tell_an_expired_document_from_one_that_was_removed(
    archive: Archive, neighbours: tuple[str, ...]
) -> None:
    for name in ("a.md", *neighbours):
        archive.write(name, LATER.isoformat() if name == "a.md" else "")
    archive.ingest()
    id_ = next(source["id"] for source in archive.desk.sources() if source["title"] == "a")
    before = anyio.run(_seen, archive.desk.data, id_)
    archive.at(LATER)
    expired = anyio.run(_seen, archive.desk.data, id_)
    (archive.folder / "a.md").unlink()
    (archive.folder / "logo.xyz").touch()  # a folder that is empty keeps its last document
    archive.ingest()
    removed = anyio.run(_seen, archive.desk.data, id_)
    assert expired == removed
    assert all(before_ != after for before_, after in zip(before, removed, strict=True) if neighbours == ())
