"""A disk that answers with errors (EIO): what commands and a running server say, and what is left.

A small library (eio.c) that is loaded before the program makes reads, writes or syncs of chosen files fail.
By default some kinds of errors are tried; all are with `--hypothesis-profile=nightly`, each night.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.conftest import Scripts
    from tests.server.conftest import Start

pytestmark = pytest.mark.slow

FAILS = "The disk fails (input/output error)"
NEXT = "when the disk works again, run refdesk-admin doctor"
ERRORS = (
    *("write _versions 1", "write chunks__ 0", "write sources__ 0", "write access__ 0", "sync tables 0"),
    *("read chunks__ 3", "read sources__ 1", "read access__ 0", "read tables/collections 0"),
)
"""What fails, in which files, and how many calls succeed before."""

AT_NIGHT = settings.default.max_examples >= 100  # type: ignore[union-attr]  # there always is one


@dataclass(frozen=True, slots=True)
class Disk:
    """A data folder with six documents, on a disk that fails when told."""

    scripts: Scripts
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.folder / "eio.so"), "EIO_CONTROL": str(self.folder / "control")}

    def write(self, name: str, text: str) -> None:
        (self.folder / "docs" / name).write_text(f"# {name}\n\nThe pendulum {text}.\n")

    def fail(self, what: str) -> None:
        (self.folder / "control").write_text(what)

    def work(self) -> None:
        (self.folder / "control").unlink()

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command, forked while the disk works: only then it can do without the library."""
        fails = (self.folder / "control").exists()
        return self.scripts.admin(*arguments, "--data", self.data, env=self.environment if fails else None)

    def ingest(self) -> subprocess.CompletedProcess[str]:
        return self.run("ingest", self.folder / "docs")

    def texts(self) -> list[str]:
        """The texts that are found, the first words of each."""
        run = self.run("search", "pendulum", "--mode", "sparse", "--limit", "20", "--json")
        assert run.returncode == 0, run.stderr
        return sorted(hit["text"] for hit in json.loads(run.stdout)["results"])


@pytest.fixture
def disk(scripts: Scripts, tmp_path: Path) -> Disk:
    if sys.platform != "linux" or not (compiler := shutil.which("cc")):
        pytest.skip("to let a disk fail takes Linux and a C compiler (apt-get install gcc libc6-dev)")
    source = Path(__file__).with_name("eio.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "eio.so", source, "-ldl"], check=True)
    disk = Disk(scripts, tmp_path)
    (tmp_path / "docs").mkdir()
    for name in ("one.md", "two.md", "three.md"):
        disk.write(name, "swings")
    assert disk.ingest().returncode == 0
    return disk


@pytest.mark.parametrize("what", ERRORS if AT_NIGHT else ERRORS[:1])
def test_a_run_ends_in_words_and_the_next_one_completes_it(disk: Disk, what: str) -> None:
    before = disk.texts()
    disk.write("one.md", "stands still")
    disk.write("four.md", "is new")
    disk.fail(what)
    run = disk.ingest()
    assert run.returncode == 1
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("refdesk-admin:")]
    assert FAILS in line
    assert NEXT in line
    assert "Traceback" not in run.stderr
    doctor = disk.run("doctor", "--fix", "--yes")
    if what.startswith("read"):
        assert FAILS in doctor.stdout + doctor.stderr
    disk.work()
    after = disk.texts()
    assert len(after) >= len(before)  # nothing that was acknowledged is lost, and each text is old or new
    assert {*before} - {*after} <= {path for path in before if "one.md" in path}
    assert disk.run("doctor", "--fix").returncode == 0
    assert disk.ingest().returncode == 0
    assert len(disk.texts()) == 4
    assert any("stands still" in text for text in disk.texts())
    assert disk.run("doctor").returncode == 0


def test_doctor_gives_up_nothing_that_a_failing_disk_does_not_read(disk: Disk) -> None:
    """What can't be read now may be whole: going back to an earlier version would lose documents."""
    disk.write("four.md", "is new")
    assert disk.ingest().returncode == 0
    before = disk.texts()
    for what in ("read chunks__ 3", "read chunks__ 0", "read sources__ 2")[: None if AT_NIGHT else 1]:
        disk.fail(what)
        run = disk.run("doctor", "--fix", "--yes")
        assert (run.returncode, FAILS in run.stdout) == (1, True)
        disk.work()
        assert disk.texts() == before
    assert not list(disk.data.rglob("*.damaged"))


def test_a_server_names_a_failing_disk_and_answers_once_it_works_again(disk: Disk, start: Start) -> None:
    wire = start(disk.data, env=disk.environment).begun()
    assert len(wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]) == 3
    disk.write("four.md", "is new")
    assert disk.ingest().returncode == 0
    disk.fail("read tables 0")
    words = wire.tool_error("search", {"query": "pendulum"})
    assert "storage engine failed" in words
    assert FAILS in words
    disk.work()
    assert len(wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]) == 4
    assert wire.leave() == 0
