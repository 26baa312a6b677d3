"""Ctrl-C while documents are brought in."""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow

FILES = 3
PARAGRAPHS = 1_001  # of a file: more than go into one commit
INTERRUPTED = "Interrupted. Completed work is kept. Run the same command again to continue."
AT_MOST_SECONDS = 60  # a run that hangs is killed, and its test fails


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Some documents that take a second each."""
    folder = tmp_path / "books"
    folder.mkdir()
    (tmp_path / "desk.toml").write_text("[chunking]\nmax_tokens = 32\n")
    for book in range(FILES):
        paragraphs = (
            f"Paragraph {number} of book {book} tells what happened to the keeper of the lighthouse."
            for number in range(PARAGRAPHS)
        )
        (folder / f"{book}.txt").write_text("\n\n".join(paragraphs))
    return folder


def test_an_interrupted_run_says_so_keeps_what_it_wrote_and_is_completed_by_the_next(
    desk: Desk, books: Path, tmp_path: Path
) -> None:
    command = ["ingest", str(books), "--config", str(tmp_path / "desk.toml")]
    with subprocess.Popen(
        [desk.scripts.folder / "refdesk-admin", *command, "--data", desk.data],
        env=desk.scripts.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        killer = threading.Timer(AT_MOST_SECONDS, process.kill)
        killer.start()
        assert process.stderr
        for line in process.stderr:
            if line.startswith("added"):
                process.send_signal(signal.SIGINT)
                break
        out, rest = process.communicate()
        killer.cancel()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == INTERRUPTED
    assert "Traceback" not in rest
    assert out == ""
    written = desk.paths()
    assert 1 <= len(written) < FILES

    counts = desk.json(*command)["counts"]
    assert [run["result"] for run in desk.json("runs")["runs"]] == ["interrupted", "complete"]
    assert counts["unchanged"] == len(written)
    assert counts["added"] == FILES - len(written)
    assert len(desk.paths()) == FILES


def test_on_a_terminal_the_bar_gives_way_to_one_line(
    desk: Desk, books: Path, tmp_path: Path, screen: Screen
) -> None:
    options = ["--config", tmp_path / "desk.toml", "--data", desk.data]
    code, shown = screen("ingest", books, *options, interrupt_at=b"256 chunks")
    assert code == 130
    assert shown.endswith(f"\r\n{INTERRUPTED}\r\n")
    assert "Traceback" not in shown
