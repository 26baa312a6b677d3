"""How a run looks: a bar on a terminal, plain lines through a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one.md").write_text("# One\n\nThe first document.\n")
    (folder / "two.md").write_text("# Two\n\nThe second document.\n")
    (folder / "empty.md").touch()
    return folder


def test_a_terminal_shows_a_bar_and_at_the_end_only_what_counts(
    desk: Desk, screen: Screen, folder: Path
) -> None:
    code, shown = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    assert "of 3 files" in shown
    assert "2 chunks" in shown
    assert left_on_screen(shown) == [
        f"skipped   {folder}/empty.md: the file has no content",
        "2 added, 0 replaced, 0 unchanged, 0 removed, 1 skipped, 0 ignored",
        "2 added: 2 open to the tenant",
    ]


def test_files_that_are_gone_are_said_above_a_bar_that_doesn_t_count_them(
    desk: Desk, screen: Screen, folder: Path
) -> None:
    desk.run("ingest", folder, code=3)
    for name in ("one.md", "two.md"):
        (folder / name).unlink()
    code, shown = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    assert "| 2 of " not in shown
    gone = [line for line in left_on_screen(shown) if line.startswith("removed")]
    assert sorted(gone) == [f"removed   {folder}/{name}: the file is gone" for name in ("one.md", "two.md")]


def test_a_pipe_gets_a_line_per_file_on_standard_error_and_the_counts_on_standard_output(
    desk: Desk, folder: Path
) -> None:
    run = desk.run("ingest", folder, code=3)
    assert run.stderr.splitlines() == [
        "3 files",
        f"skipped   {folder}/empty.md: the file has no content",
        f"added     {folder}/one.md (1 chunk)",
        f"added     {folder}/two.md (1 chunk)",
    ]
    assert run.stdout.splitlines() == [
        "2 added, 0 replaced, 0 unchanged, 0 removed, 1 skipped, 0 ignored",
        "2 added: 2 open to the tenant",
    ]


def left_on_screen(shown: str) -> list[str]:
    """The lines of a terminal at the end: what follows a carriage return writes over what was there."""
    lines = []
    for line in shown.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return [line for line in lines if line]
