"""Removing documents while another command ingests: in force at once, and nothing brings them back."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
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

    def run(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        run = self.desk.scripts.admin(*arguments, "--data", self.desk.data, env=self.environment)
        assert run.returncode == code, run.stderr
        return run

    def readable(self) -> set[str]:
        """The names of the documents that a search finds."""
        reply = json.loads(self.run("search", "wombat", "--mode", "sparse", "--json").stdout)
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
        admin = self.desk.scripts.folder / "refdesk-admin"
        with subprocess.Popen(
            [admin, "ingest", self.folder, "--json", "--data", self.desk.data],
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
def ingesting(desk: Desk, provider: Endpoint, tmp_path: Path) -> Ingesting:
    folder = tmp_path / "burrow"
    folder.mkdir()
    for name in ("edited", "kept", "same"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nA wombat, {name}.\n")
    settings = {"provider": "openai", "model": "tiny", "base_url": provider.url}
    environment = {f"REFDESK_EMBEDDER_{name.upper()}": value for name, value in settings.items()}
    scene = Ingesting(desk, folder, provider, environment)
    provider.script = [provider.embedding]
    scene.run("ingest", folder)
    (folder / "edited.md").write_text("# edited\n\nA wombat, edited since.\n")
    (folder / "added.md").write_text("# added\n\nA wombat, added.\n")
    assert scene.readable() == {"edited.md", "kept.md", "same.md"}
    return scene


def test_a_removal_is_in_force_while_an_ingestion_runs_and_after_it(ingesting: Ingesting) -> None:
    gone = [ingesting.folder / name for name in ("edited.md", "same.md")]
    with ingesting.ingestion() as report:
        said = ingesting.run("remove", *gone).stderr
        assert "no longer find them" in said
        assert ingesting.readable() == {"kept.md"}
        assert ingesting.desk.paths() == ["kept.md"]
    assert ingesting.readable() == {"added.md", "kept.md"}
    outcomes = {entry["path"].rpartition("/")[2]: entry["outcome"] for entry in report["files"]}
    assert outcomes["edited.md"] == "removed"
    assert any("Another command removed" in note for note in report["notes"])


def test_what_was_removed_during_a_run_comes_back_with_the_next_one_under_its_own_rights(
    ingesting: Ingesting,
) -> None:
    file = ingesting.folder / "edited.md"
    ingesting.run("access", "set", file, "--visibility", "restricted", "--allow", "group:hr")
    with ingesting.ingestion():
        ingesting.run("remove", file)
    ingesting.provider.script = [ingesting.provider.embedding]
    report = json.loads(ingesting.run("ingest", ingesting.folder, "--json").stdout)
    assert report["counts"]["added"] == 1
    assert "edited.md" not in ingesting.readable()
    ingesting.environment["REFDESK_PRINCIPAL_GROUPS"] = "hr"
    assert "edited.md" in ingesting.readable()


@pytest.mark.parametrize("flag", ["--forget", "--all"])
def test_what_can_not_be_done_during_a_run_is_said_and_the_removal_holds_all_the_same(
    ingesting: Ingesting, flag: str
) -> None:
    named = [] if flag == "--all" else [ingesting.folder / "kept.md"]
    with ingesting.ingestion():
        said = ingesting.run("remove", *named, flag, code=BUSY).stderr
        assert "run the command again" in said
        assert "kept.md" not in ingesting.readable()
    assert "kept.md" not in ingesting.readable()
    ingesting.run("remove", *named, flag)


def test_who_removes_a_file_that_is_still_there_learns_that_it_comes_back(ingesting: Ingesting) -> None:
    (ingesting.folder / "same.md").unlink()
    said = ingesting.run("remove", ingesting.folder / "same.md").stderr
    assert said == ""
    said = ingesting.run("remove", ingesting.folder / "kept.md").stderr
    assert str(ingesting.folder / "kept.md") in said
    assert ".refdeskignore" in said


def test_a_removal_that_was_killed_before_it_deleted_a_row_is_finished_by_the_next_writer(
    ingesting: Ingesting,
) -> None:
    with ingesting.ingestion():
        ingesting.run("remove", ingesting.folder / "kept.md")
        again = ingesting.run("remove", ingesting.folder / "kept.md", code=1).stderr
        assert "kept.md" in again
    ingesting.run("purge")
    files = [file for file in (ingesting.desk.data / "tables").rglob("*") if file.is_file()]
    assert not any(b"A wombat, kept" in file.read_bytes() for file in files)
    assert any(b"A wombat, same" in file.read_bytes() for file in files)
