"""How a run looks, on a terminal, through a pipe and as a log; and the history of runs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.access.rule import in_words
from rag.admin.ingest_output import unread_text
from rag.admin.runs_command import MOST_RUNS, begin_run, end_run
from rag.config.settings import Settings
from rag.corpus import Access
from rag.ingest.known_sources import GONE
from rag.ingest.parse.decode import BINARY
from rag.ingest.report import Outcome
from rag.run_history import FIRST, IngestionRun, last_runs, runs_of
from server.metrics import LastRuns

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
VISIBLE = f"3 added: 3 {in_words(Access('tenant'))}"


def test_a_terminal_shows_a_bar_of_work_and_keeps_the_notes_of_added_files_and_one_line_of_what_was_not_read(
    desk: Desk, screen: Screen, folder: Path
) -> None:
    code, output = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    assert re.search(r"B of [\d.]+B, .*B/s, \S+ left, \d of 8 files", output)
    assert "3 chunks" in output
    connect = f"Connect an assistant: refdesk-admin connect HOST --data {desk.data}"
    assert left_on_screen(output) == [*news(folder), *COUNTS, VISIBLE, connect]


def test_files_that_are_gone_are_said_above_the_bar(desk: Desk, screen: Screen, folder: Path) -> None:
    desk.run("ingest", folder, code=3)
    for name in ("one.md", "two.md"):
        (folder / name).unlink()
    code, output = screen("ingest", folder, "--data", desk.data)
    assert code == 3
    gone = [line for line in left_on_screen(output) if line.startswith("removed")]
    assert sorted(gone) == [f"removed   {folder}/{name}: {GONE}" for name in ("one.md", "two.md")]


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
    assert sorted(line.split("/folder/")[1].split(":")[0] for line in lines[1 : len(files) + 1]) == files
    assert lines[len(files) + 1 :] == [f"Wrote {page}."]
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
    text = (folder / "one.md").read_text()
    for page, path in [(folder / "report.html", folder), (folder / "one.md", folder / "one.md")]:
        run = desk.run("ingest", path, "--report", page, code=2)
        assert f"The report {page} lies in {path}, so the next run would ingest it." in run.stderr
    assert (folder / "one.md").read_text() == text
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


def left_on_screen(output: str) -> list[str]:
    """The lines of a terminal at the end: what follows a carriage return writes over what was there."""
    lines = []
    for line in output.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return [line for line in lines if line]


BEGAN = datetime(2026, 11, 23, 5, tzinfo=UTC)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "leave.md").write_text("# Leave\n\nEverybody has thirty days of leave.\n")
    (folder / "bad.json").write_text("[")
    (folder / "noise.md").write_bytes(b"\0\1\2")
    return folder


def test_runs_are_listed_with_their_results_and_shown_with_what_failed(inside: Desk, notes: Path) -> None:
    assert "There are no runs yet. Add documents with refdesk-admin ingest PATH" in inside.run("runs").stdout
    ended = inside.run("ingest", notes, code=3)
    assert "Failed: 1 damaged, 1 unsupported" in ended.stdout.splitlines()
    (notes / "bad.json").unlink()
    (notes / "noise.md").unlink()
    inside.run("ingest", notes, "--collection", "others")
    head, first, second = inside.run("runs").stdout.splitlines()
    assert head.split() == ["ID", "BEGAN", "TOOK", "COLLECTION", "COMMAND", "RESULT", "FILES"]
    assert re.fullmatch(
        r"1 +\d{4}-\d\d-\d\d [\d:]{8} +\d+:\d\d +documents +ingest +partial +1 added, 2 skipped", first
    )
    assert re.search(r"2 .* others +ingest +complete +1 added$", second)
    printed = inside.run("runs", "1").stdout
    assert f"Input  {notes}" in printed
    assert "Failed 1 damaged, 1 unsupported" in printed
    assert f"    {notes}/noise.md: {BINARY}" in printed
    (run,) = inside.json("runs", "--collection", "others")["runs"]
    assert (run["id"], run["result"], run["counts"]["added"], run["causes"]) == (2, "complete", 1, {})
    refused = inside.run("runs", "9", code=1)
    assert (
        refused.stderr == "refdesk-admin: There is no run 9. refdesk-admin runs lists those that are kept.\n"
    )


def test_a_run_in_which_every_file_fails_has_failed(inside: Desk, notes: Path) -> None:
    (notes / "leave.md").unlink()
    inside.run("ingest", notes, code=1)
    (run,) = inside.json("runs")["runs"]
    assert (run["result"], run["causes"]) == ("failed", {"damaged": 1, "unsupported": 1})
    assert {failure["path"] for failure in run["failed"]} == {f"{notes}/bad.json", f"{notes}/noise.md"}


def test_a_purge_and_the_removal_of_a_tenant_take_the_names_of_files_along(inside: Desk, notes: Path) -> None:
    inside.run("ingest", notes, code=3)
    assert _files_with(inside.data, b"noise.md")
    inside.run("purge")
    assert not _files_with(inside.data, b"noise.md")
    (run,) = inside.json("runs")["runs"]
    assert run["counts"]["skipped"] == 2
    inside.run("tenant", "remove", "default", "--yes")
    assert list((inside.data / "runs").iterdir()) == []


def test_a_collection_that_was_removed_has_no_failed_run_any_more(inside: Desk, notes: Path) -> None:
    inside.run("ingest", notes, code=3)
    inside.run("ingest", notes, "--collection", "old", code=3)
    assert "runs --collection old" in inside.run("status").stdout
    inside.run("collection", "remove", "old", "--yes")
    assert [run["collection"] for run in inside.json("runs")["runs"]] == ["documents"]
    assert "refdesk-admin: " in inside.failure("collection", "remove", "old", "--yes")


def test_a_sync_forgets_failed_runs_into_collections_that_were_never_made(
    inside: Desk, notes: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"

    def sync(collection: str, folder: Path, code: int) -> list[str]:
        origin = f'[origins.wiki]\ntype = "folder"\npath = "{folder}"\ncollection = "{collection}"\n'
        config.write_text(origin)
        inside.run("sync", "--config", config, code=code)
        return sorted(run["collection"] for run in inside.json("runs")["runs"])

    inside.run("ingest", notes, "--collection", "other", code=3)
    begin_run(inside.data, "default", _run("typo", ended=BEGAN, result="failed"))
    assert sync("wiki", tmp_path / "gone", 1) == ["other", "wiki"]  # which the origin still feeds
    assert sync("handbook", notes, 3) == ["handbook", "other"]


def test_a_failed_run_into_a_collection_that_was_never_made_can_be_removed(inside: Desk, notes: Path) -> None:
    inside.run("ingest", notes, code=3)
    begin_run(inside.data, "default", _run("typo", ended=BEGAN, result="failed"))
    inside.run("collection", "remove", "typo", "--yes")
    assert [run["collection"] for run in inside.json("runs")["runs"]] == ["documents"]


def _files_with(data: Path, name: bytes) -> list[Path]:
    return [file for file in (data / "runs").rglob("*.json") if name in file.read_bytes()]


def test_a_history_that_cant_be_written_stops_no_run(inside: Desk, notes: Path) -> None:
    inside.data.mkdir(mode=0o700)
    (inside.data / "runs").write_text("in the way")
    run = inside.run("ingest", notes, code=3)
    note = "Note: this run is not kept in the history (refdesk-admin runs): "
    assert [line for line in run.stderr.splitlines() if line.startswith(note)]
    assert inside.paths() == ["leave.md"]


def test_the_progress_as_json_lines_has_each_file_with_news_and_its_cause_and_notes(
    inside: Desk, notes: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    run = inside.run("ingest", notes, empty, "--log", code=3)
    started, *files, note = [json.loads(line) for line in run.stderr.splitlines()]
    assert (note["event"], note["level"]) == ("note", "warning")
    assert str(empty) in note["text"]
    assert (started["event"], started["files"], started["level"]) == ("started", 3, "info")
    by_path = {file["path"]: file for file in files}
    bad, added = by_path[f"{notes}/bad.json"], by_path[f"{notes}/leave.md"]
    assert (bad["level"], bad["outcome"], bad["cause"]) == ("error", "skipped", "damaged")
    assert (added["level"], added["outcome"], added["chunks"]) == ("info", "added", 1)
    assert datetime.fromisoformat(added["time"]).tzinfo


def test_files_are_counted_by_format_if_there_are_several(inside: Desk, notes: Path, tmp_path: Path) -> None:
    (notes / "more.md").write_text("# More\n\nMore leave.\n")
    (notes / "plan.txt").write_text("A plan for the year.\n")
    page = tmp_path / "report.html"
    run = inside.run("ingest", notes, "--report", page, code=3)
    assert "Stored: 2 .md, 1 .txt" in run.stdout.splitlines()
    rows = re.findall(r"<tr><th>(\.\w+)</th>(.*?)</tr>", page.read_text())
    counts = {name: re.findall(r"<td>(.*?)</td>", cells) for name, cells in rows}
    assert counts == {".md": ["1", "2", "2"], ".json": ["1", "", "0"], ".txt": ["", "1", "1"]}
    assert "Stored" not in inside.run("ingest", notes, code=3).stdout


def _run(collection: str = "notes", **more: object) -> IngestionRun:
    return IngestionRun.model_validate(
        {"collection": collection, "command": "ingest", "began": BEGAN, **more}
    )


def test_a_run_without_an_end_is_interrupted_once_the_next_of_its_collection_begins(tmp_path: Path) -> None:
    killed = begin_run(tmp_path, "acorn", _run())
    begin_run(tmp_path, "acorn", _run("others"))
    assert runs_of(tmp_path, "acorn")[killed].result == "running"  # another's
    begin_run(tmp_path, "acorn", _run())
    assert [run.result for run in runs_of(tmp_path, "acorn").values()] == [
        "interrupted",
        "running",
        "running",
    ]
    assert runs_of(tmp_path, "other") == {}


def test_the_oldest_runs_make_room_and_the_last_of_each_collection_is_found(tmp_path: Path) -> None:
    for _ in range(MOST_RUNS + 5):
        id_ = begin_run(tmp_path, "acorn", _run())
        end_run(tmp_path, "acorn", id_, _run(ended=BEGAN, result="complete", counts={"added": id_}))
    running = begin_run(tmp_path, "acorn", _run())
    assert list(runs_of(tmp_path, "acorn")) == list(range(running - MOST_RUNS + 1, running + 1))
    (last,) = last_runs(tmp_path, "acorn")
    assert last.counts == {"added": running - 1}  # the last that ended
    (tmp_path / "runs/acorn/000104.notes.json").write_text("{")
    assert 104 not in runs_of(tmp_path, "acorn")


def test_the_last_run_of_an_origin_stays_however_often_others_run(tmp_path: Path) -> None:
    begin_run(tmp_path, "acorn", _run("first"))
    seldom = _run(command="sync", inputs=["wiki"], ended=BEGAN, result="failed")
    ids = [begin_run(tmp_path, "acorn", seldom) for _ in range(2)]
    for _ in range(MOST_RUNS + 5):
        begin_run(tmp_path, "acorn", _run(ended=BEGAN, result="complete"))
    assert {FIRST, *ids} & runs_of(tmp_path, "acorn").keys() == {ids[-1]}
    assert [run.origin for run in last_runs(tmp_path, "acorn")] == ["", "wiki"]


def test_the_metrics_of_a_server_have_the_causes_of_the_last_run_that_ended(tmp_path: Path) -> None:
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants/acorn").touch()
    before = begin_run(tmp_path, "acorn", _run())
    end_run(tmp_path, "acorn", before, _run(ended=BEGAN, result="partial", causes={"timeout": 7}))
    begin_run(tmp_path, "acorn", _run())
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in LastRuns(Settings(data=tmp_path)).collect()
        for sample in metric.samples
    }
    assert values["refdesk_ingestion_failures", "acorn", "notes", "", "timeout"] == 7
    assert values["refdesk_ingestion_complete", "acorn", "notes", ""] == 0
    assert values["refdesk_ingestion_ended_timestamp_seconds", "acorn", "notes", ""] == BEGAN.timestamp()
