"""Commands that somebody ends: --watch, which goes on until then, and Ctrl-C during an ingestion."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from rag.runtime import LOWEST_PRIORITY
from tests.admin.conftest import AT_MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen
    from tests.endpoint import Endpoint, Reply

pytestmark = pytest.mark.slow


PATIENCE = 60  # seconds for a run on a machine that does other things, too


class Watching:
    """A command that watches, and what it prints: a JSON object for each run, and lines on standard error."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.told: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        self.told += self.process.stderr

    def run(self) -> Any:  # noqa: ANN401 any JSON
        """The next run's report."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())["counts"]

    def until_told(self, words: str) -> None:
        end = time.monotonic() + PATIENCE
        while not any(words in line for line in list(self.told)):
            assert time.monotonic() < end, self.told
            time.sleep(0.05)

    def end(self, by: signal.Signals) -> int:
        self.process.send_signal(by)
        code = self.process.wait(PATIENCE)
        self._reader.join()
        return code


@contextmanager
def watching(desk: Desk, *arguments: str | Path, program: Path | None = None) -> Iterator[Watching]:
    command = [program or desk.scripts.forked_admin, *arguments, "--watch", "--json", "--data", desk.data]
    with desk.scripts.process(*command) as process:
        yield Watching(process)


def test_a_folder_is_brought_in_when_it_changes_and_comes_back(desk: Desk, tmp_path: Path) -> None:
    """The data folder lies in the watched one: what runs write there begins no others."""
    folder, away = tmp_path / "data-and-notes", tmp_path / "away"
    desk = type(desk)(desk.scripts, folder / "data")
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "a.md").write_text("# A\n\nThe pendulum.\n")
    with watching(desk, "ingest", folder, folder / "notes" / "a.md") as watched:
        assert watched.run()["added"] == 1
        (folder / "notes" / "b.md").write_text("# B\n\nThe escapement.\n")
        assert watched.run() | {"ignored": 0} == counts(added=1, unchanged=1)
        (folder / "notes" / "b.md").unlink()
        assert watched.run() == counts(removed=1, unchanged=1)
        shutil.move(folder / "notes", away)
        watched.until_told("is gone. Waiting for it.")
        (away / "c.md").write_text("# C\n\nThe balance.\n")
        shutil.move(away, folder / "notes")
        while watched.run()["added"] == 0:
            pass
        assert watched.end(signal.SIGTERM) == 0
    assert watched.told[-1] == "Watching has ended.\n"
    assert sorted(path.rpartition("/")[2] for path in desk.paths()) == ["a.md", "c.md"]


def test_a_link_is_followed_to_where_it_leads_now(desk: Desk, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.md").write_text(f"# {name}\n\nThe pendulum of the {name}.\n")
    link = tmp_path / "current"
    link.symlink_to("first")
    with watching(desk, "ingest", link) as watched:
        assert watched.run()["added"] == 1
        link.unlink()
        link.symlink_to("second")
        while watched.run()["added"] == 0:
            pass
        (tmp_path / "second" / "later.md").write_text("# Later\n\nThe escapement.\n")
        while watched.run()["added"] == 0:
            pass
        assert watched.end(signal.SIGTERM) == 0
    assert sorted(path.rpartition("/")[2] for path in desk.paths()) == ["first.md", "later.md", "second.md"]


def test_a_gentle_command_takes_one_processor_at_the_lowest_priority(desk: Desk, corpus: Path) -> None:
    program = desk.scripts.folder / "refdesk-admin"  # whose own process is looked at
    with watching(desk, "ingest", corpus / "glossary.txt", "--gentle", program=program) as watched:
        assert watched.run()["added"] == 1
        process = psutil.Process(watched.process.pid)
        assert (process.nice(), len(process.cpu_affinity())) == (LOWEST_PRIORITY, 1)
        assert watched.end(signal.SIGTERM) == 0


def test_a_run_that_fails_ends_nothing(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nThe pendulum.\n")
    desk.data.write_text("in the way")
    with watching(desk, "ingest", folder) as watched:
        watched.until_told("The next change begins another run.")
        desk.data.unlink()
        (folder / "b.md").write_text("# B\n\nThe escapement.\n")
        assert watched.run()["added"] == 2
        assert watched.end(signal.SIGINT) == 0


def test_only_folders_can_be_watched(inside: Desk, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[origins.code]\ntype = "git"\nrepository = "/srv/code"\n')
    refusal = inside.misuse("sync", "code", "--watch", "--config", config)
    assert (
        refusal == "refdesk-admin: code is not a folder, so it can't be watched. Sync it from a scheduler.\n"
    )
    refusal = inside.misuse("ingest", tmp_path, "--watch", "--dry-run")
    assert "Give only one of" in refusal


def counts(**differing: int) -> dict[str, int]:
    kinds = ("added", "replaced", "moved", "unchanged", "removed", "missing", "skipped", "ignored")
    return dict.fromkeys(kinds, 0) | differing


FILES = 3
PARAGRAPHS = 1_001  # of a file: more than go into one commit
SHORT = ("collection", "create", "documents", "--chunking", "structure,max=32")
INTERRUPTED = "Interrupted. Completed work is kept. Run the same command again to continue."


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Some documents that take a second each."""
    folder = tmp_path / "books"
    folder.mkdir()
    for book in range(FILES):
        paragraphs = (
            f"Paragraph {number} of book {book} tells what happened to the keeper of the lighthouse."
            for number in range(PARAGRAPHS)
        )
        (folder / f"{book}.txt").write_text("\n\n".join(paragraphs))
    return folder


def test_an_interrupted_run_says_so_keeps_what_it_wrote_and_is_completed_by_the_next(
    desk: Desk, books: Path, provider: Endpoint, tmp_path: Path
) -> None:
    config, interrupted = tmp_path / "desk.toml", threading.Event()
    embedder = f'[embedder]\nprovider = "openai"\nmodel = "tiny"\nbase_url = "{provider.url}"\n'
    config.write_text(embedder)
    command = ["ingest", str(books), "--config", str(config)]

    def waiting(request: dict[str, Any]) -> Reply:
        if any(f"of book {FILES - 1}" in text for text in request["input"]):
            interrupted.wait(AT_MOST_SECONDS)
        return provider.embedding(request)

    provider.script = [waiting]
    desk.run(*SHORT, "--config", config)
    assert desk.interrupt(*command, at="added")[-1] == INTERRUPTED
    interrupted.set()
    written = desk.paths()
    assert 1 <= len(written) < FILES

    counts = desk.json(*command)["counts"]
    assert [run["result"] for run in desk.json("runs")["runs"]] == ["interrupted", "complete"]
    assert counts["unchanged"] == len(written)
    assert counts["added"] == FILES - len(written)
    assert len(desk.paths()) == FILES


def test_on_a_terminal_the_bar_gives_way_to_one_line(desk: Desk, books: Path, screen: Screen) -> None:
    desk.run(*SHORT)
    code, output = screen("ingest", books, "--data", desk.data, interrupt_at=b"256 chunks")
    assert code == 130
    assert output.endswith(f"\r\n{INTERRUPTED}\r\n")
    assert "Traceback" not in output
