"""How a run looks: a bar on a terminal, plain lines through a pipe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rag.admin.ingest_output import unread_text
from rag.ingest.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow


EMPTY = "Not read: 1 .bin; 2 pictures; 1 empty file"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents, a third with the text of the first, a bad one, and what is not read."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one.md").write_text("# One\n\nThe first document.\n")
    (folder / "two.md").write_text("# Two\n\nThe second document.\n")
    (folder / "twin.md").write_text("# One\n\nThe first document.\n")
    (folder / "bad.json").write_text("[")
    for name in ("empty.md", "a.png", "b.JPG", "c.bin"):
        (folder / name).touch()
    return folder


def news(folder: Path) -> list[str]:
    """The lines of files that anybody must see."""
    return [
        f"skipped   {folder}/bad.json: line 1: invalid JSON (Expecting value, column 2)",
        f"added     {folder}/twin.md (1 chunk): same content as {folder}/one.md",
    ]


COUNTS = ["3 added, 0 replaced, 0 unchanged, 0 removed, 1 skipped, 4 ignored", "Failed: 1 damaged", EMPTY]
VISIBLE = "3 added: 3 open to the tenant"


def test_a_terminal_shows_a_bar_of_work_and_keeps_the_notes_of_added_files_and_one_line_of_what_was_not_read(
    desk: Desk, screen: Screen, folder: Path
) -> None:
    code, shown = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    assert re.search(r"B of [\d.]+B, .*B/s, \S+ left, \d of 8 files", shown)
    assert "3 chunks" in shown
    connect = f"Connect an assistant: refdesk-admin connect HOST --data {desk.data}"
    assert left_on_screen(shown) == [*news(folder), *COUNTS, VISIBLE, connect]


def test_files_that_are_gone_are_said_above_the_bar(desk: Desk, screen: Screen, folder: Path) -> None:
    desk.run("ingest", folder, code=3)
    for name in ("one.md", "two.md"):
        (folder / name).unlink()
    code, shown = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    gone = [line for line in left_on_screen(shown) if line.startswith("removed")]
    assert sorted(gone) == [f"removed   {folder}/{name}: the file is gone" for name in ("one.md", "two.md")]


def test_a_pipe_gets_a_line_for_each_file_that_was_read_and_the_counts_on_standard_output(
    desk: Desk, folder: Path
) -> None:
    run = desk.run("ingest", folder, code=3)
    bad, twin = news(folder)
    lines = [f"added     {folder}/{name} (1 chunk)" for name in ("one.md", "two.md")]
    assert run.stderr.splitlines()[0] == "8 files"
    assert sorted(run.stderr.splitlines()[1:]) == sorted([bad, twin, *lines])
    assert run.stdout.splitlines() == [*COUNTS, VISIBLE]
    again = desk.run("ingest", folder, code=3)
    assert again.stderr.splitlines() == ["8 files", bad]


KINDS = (("1 file", "skipped"), ("4 files", "ignored"), ("4 files", "unchanged"))


def test_verbose_lists_every_file_and_a_report_has_them_all(desk: Desk, folder: Path, tmp_path: Path) -> None:
    (folder / "<b>&.md").write_text("Markup in a name.")
    page = tmp_path / "report.html"
    desk.run("ingest", folder, code=3)
    run = desk.run("ingest", folder, "--verbose", "--report", page, code=3)
    files = sorted(path.name for path in folder.iterdir())
    lines = run.stderr.splitlines()
    assert lines[0] == "9 files"
    assert sorted(line.split("/folder/")[1].split(":")[0] for line in lines[1:-1]) == files
    assert lines[-1] == f"Wrote {page}."
    written = page.read_text()
    assert all(name in written for name in files if "<" not in name)
    assert "&lt;b&gt;&amp;.md" in written
    assert EMPTY in written
    places = [written.index(f"{count} {kind}") for count, kind in KINDS]
    assert places == sorted(places)


def test_a_report_that_can_not_be_written_is_an_error_that_names_it(desk: Desk, folder: Path) -> None:
    run = desk.run("ingest", folder / "one.md", "--report", folder / "no" / "report.html", code=2)
    assert f"Cannot write the report {folder}/no/report.html: No such file or directory." in run.stderr
    assert not desk.data.exists()


def test_a_report_that_the_next_run_would_ingest_is_refused(desk: Desk, folder: Path) -> None:
    one = (folder / "one.md").read_text()
    for page, path in [(folder / "report.html", folder), (folder / "one.md", folder / "one.md")]:
        run = desk.run("ingest", path, "--report", page, code=2)
        assert f"The report {page} lies in {path}, so the next run would ingest it." in run.stderr
    assert (folder / "one.md").read_text() == one
    assert not (folder / "report.html").exists()
    assert not desk.data.exists()


def test_the_report_of_an_earlier_run_stays_until_there_is_a_new_one(desk: Desk, folder: Path) -> None:
    page = folder.parent / "report.html"
    desk.run("ingest", folder / "one.md", "--report", page)
    earlier = page.read_text()
    desk.run("ingest", folder, "--collection", "Not A Name", "--report", page, code=2)
    assert page.read_text() == earlier
    desk.run("ingest", folder / "one.md", "--report", page)
    assert page.read_text() != earlier


def test_a_folder_of_empty_files_and_pictures_is_no_failure(desk: Desk, folder: Path) -> None:
    (folder / "bad.json").unlink()
    run = desk.run("ingest", folder)
    assert run.stdout.splitlines()[1] == EMPTY


def outcomes(**kinds: int) -> Iterator[Outcome]:
    for suffix, count in kinds.items():
        for number in range(count):
            yield Outcome(f"/a/{number}.{suffix}", "ignored", kind="unsupported")


def test_what_was_not_read_is_told_by_kind_the_most_frequent_first() -> None:
    assert unread_text([]) == ""
    bare = Outcome("/a/x", "ignored", kind="unsupported")
    many = [*outcomes(pptx=58, docx=117, png=500, jpeg=78, eml=42, mp3=1), bare]
    assert unread_text(many) == "117 .docx, 58 .pptx, 42 .eml, 1 without a suffix; 578 pictures; 1 recording"
    assert unread_text(outcomes(**{f"x{n}": 1 for n in range(10)})).endswith(".x7 and 2 more")


def left_on_screen(shown: str) -> list[str]:
    """The lines of a terminal at the end: what follows a carriage return writes over what was there."""
    lines = []
    for line in shown.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return [line for line in lines if line]
