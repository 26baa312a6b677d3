"""The history of ingestion runs, and the progress as a log."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.admin.run_log import MOST_RUNS, begin_run, end_run
from rag.run_history import IngestionRun, last_runs, runs_of
from server.telemetry.metrics import LastRuns

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

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
    shown = inside.run("runs", "1").stdout
    assert f"Input  {notes}" in shown
    assert "Failed 1 damaged, 1 unsupported" in shown
    assert f"    {notes}/noise.md: binary data, not text" in shown
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
    assert {one["path"] for one in run["failed"]} == {f"{notes}/bad.json", f"{notes}/noise.md"}


def test_a_purge_and_the_removal_of_a_tenant_take_the_names_of_files_along(inside: Desk, notes: Path) -> None:
    inside.run("ingest", notes, code=3)
    assert _files_with(inside.data, b"noise.md")
    inside.run("purge")
    assert not _files_with(inside.data, b"noise.md")
    (run,) = inside.json("runs")["runs"]
    assert run["counts"]["skipped"] == 2
    inside.run("tenant", "remove", "default", "--yes")
    assert list((inside.data / "runs").iterdir()) == []


def _files_with(data: Path, name: bytes) -> list[Path]:
    return [file for file in (data / "runs").rglob("*.json") if name in file.read_bytes()]


def test_a_history_that_cant_be_written_stops_no_run(inside: Desk, notes: Path) -> None:
    inside.data.mkdir(mode=0o700)
    (inside.data / "runs").write_text("in the way")
    run = inside.run("ingest", notes, code=3)
    note = "Note: this run is not kept in the history (refdesk-admin runs): "
    assert [line for line in run.stderr.splitlines() if line.startswith(note)]
    assert inside.paths() == ["leave.md"]


def test_the_progress_as_json_lines_has_each_file_with_news_and_its_cause(inside: Desk, notes: Path) -> None:
    run = inside.run("ingest", notes, "--log", code=3)
    started, *files = [json.loads(line) for line in run.stderr.splitlines()]
    assert (started["event"], started["files"], started["level"]) == ("started", 3, "info")
    by_path = {one["path"]: one for one in files}
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
    assert [one.result for one in runs_of(tmp_path, "acorn").values()] == [
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


def test_the_metrics_of_a_server_have_the_causes_of_the_last_run_that_ended(tmp_path: Path) -> None:
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants/acorn").touch()
    before = begin_run(tmp_path, "acorn", _run())
    end_run(tmp_path, "acorn", before, _run(ended=BEGAN, result="partial", causes={"timeout": 7}))
    begin_run(tmp_path, "acorn", _run())
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in LastRuns(tmp_path).collect()
        for sample in metric.samples
    }
    assert values["refdesk_ingestion_failures", "acorn", "notes", "timeout"] == 7
    assert values["refdesk_ingestion_complete", "acorn", "notes"] == 0
    assert values["refdesk_ingestion_ended_timestamp_seconds", "acorn", "notes"] == BEGAN.timestamp()
