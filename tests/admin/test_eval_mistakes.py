"""What goes wrong in an evaluation, or is asked for wrongly, from outside."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.store.write.evaluation_runs import StoredRun, save_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow

TEXTS = {"sundial": "A sundial shows the hour by a shadow.", "water": "The clepsydra ran out.", "empty": ""}
DRY = {"_id": "sundial", "text": "what shows the hour by a shadow?"}
WET = {"_id": "water", "text": "timekeepers driven by falling liquid"}


def write_set(folder: Path, *queries: Mapping[str, object], judged: str = "", **texts: str) -> Path:
    folder.mkdir()
    corpus = [{"_id": id_, "text": text} for id_, text in (TEXTS | texts).items()]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judged = judged or "".join(f"{one['_id']}\t{one.get('doc', one['_id'])}\t1\n" for one in queries)
    (folder / "qrels.tsv").write_text(judged)
    return folder


@pytest.fixture
def clocks(tmp_path: Path) -> Path:
    return write_set(tmp_path / "clocks", DRY, WET)


@pytest.fixture
def mine(desk: Desk, tmp_path: Path) -> Desk:
    """Two collections with a document each."""
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.md").write_text(f"The {name} clock.")
        desk.run("ingest", tmp_path / name, "--collection", name)
    return desk


def test_a_question_with_empty_quotes_only_is_left_out(mine: Desk, tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    good = '[[questions]]\ntext = "alpha?"\nexpect = ["alpha.md"]\n'
    file.write_text(f'{good}[[questions]]\ntext = "what?"\nquotes = [""]\n')
    assert "Left out: 1" in mine.run("eval", file).stderr


def test_a_floor_that_is_no_number_is_misuse(desk: Desk, clocks: Path) -> None:
    desk.run("eval", clocks, "--fresh", "--fail-under", "nDCG@10=nan", code=2)


def test_a_question_about_another_collection_than_the_one_asked_is_no_leak(
    mine: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "q.toml"
    file.write_text('[[questions]]\ntext = "clock?"\nexpect = ["alpha.md"]\ncollections = ["beta"]\n')
    run = mine.scripts.admin("eval", file, "--collection", "alpha", "--data", mine.data)
    assert "leaks" not in run.stderr


def test_runs_of_another_version_are_no_traceback(desk: Desk) -> None:
    anyio.run(save_runs, desk.data, "default", [StoredRun('{"set": "x"}', "[]")])
    run = desk.scripts.admin("eval", "runs", "--data", desk.data)
    assert "Traceback" not in run.stderr


def test_a_terminal_is_left_without_scraps(desk: Desk, clocks: Path, screen: Screen) -> None:
    _, shown = screen("eval", clocks, "--fresh", "--data", desk.data)
    assert "documentsIngesting" not in shown


def test_a_metric_that_was_not_measured_doesn_t_hide_the_runs(desk: Desk, clocks: Path) -> None:
    options = ["--fresh", "--mode", "dense,sparse", "--metric", "token_IoU@5"]
    run = desk.scripts.admin("eval", clocks, *options, "--data", desk.data)
    assert "clocks" in run.stdout or "Asking" not in run.stderr


def test_an_unknown_collection_is_found_before_anything_is_asked_and_its_question_named(
    mine: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "q.toml"
    file.write_text(
        '[[questions]]\ntext = "clock?"\nexpect = ["alpha.md"]\n'
        '[[questions]]\nid = "second"\ntext = "clock?"\nexpect = ["alpha.md"]\ncollections = ["gamma"]\n'
    )
    run = mine.scripts.admin("eval", file, "--data", mine.data)
    assert "second" in run.stderr


def test_a_query_without_text_is_left_out_and_counted(desk: Desk, tmp_path: Path) -> None:
    blank = {"_id": "blank", "text": " ", "doc": "sundial"}
    run = desk.run("eval", write_set(tmp_path / "s", DRY, blank), "--fresh")
    assert "Left out: 1" in run.stderr


def test_a_restriction_may_name_a_document_that_could_not_be_ingested(desk: Desk, tmp_path: Path) -> None:
    desk.run("eval", write_set(tmp_path / "s", DRY | {"exclude_sources": ["empty"]}), "--fresh")


def test_what_is_ingested_otherwise_doesn_t_matter_to_a_set_s_own_documents(
    desk: Desk, clocks: Path, tmp_path: Path
) -> None:
    config = tmp_path / "desk.toml"
    config.write_text('[ingest]\ninclude = ["*.pdf"]\n')
    desk.run("eval", clocks, "--fresh", "--config", config)


def test_the_hint_works_for_any_id(desk: Desk, tmp_path: Path) -> None:
    clocks = write_set(tmp_path / "clocks", DRY, WET | {"_id": "it's wet", "doc": "water"})
    run = desk.run("eval", clocks, "--fresh", "--mode", "dense,sparse", "--diff")
    desk.run(*shlex.split(run.stdout.splitlines()[-1].removeprefix("Show one: refdesk-admin ")))


def test_runs_that_were_not_kept_are_not_pointed_to(desk: Desk, clocks: Path) -> None:
    desk.data.touch()
    run = desk.run("eval", clocks, "--fresh", "--mode", "dense,sparse", "--diff", code=1)
    assert "compare 0 0" not in run.stdout


def test_compare_with_a_question_and_json_prints_that_question(desk: Desk, clocks: Path) -> None:
    desk.run("eval", clocks, "--fresh", "--mode", "dense,sparse")
    whole, one = ["eval", "compare", "1", "2"], ["eval", "compare", "1", "2", "--question", "water"]
    assert desk.json(*whole) != desk.json(*one)


def test_an_id_beyond_64_bits_is_refused(desk: Desk, clocks: Path) -> None:
    desk.run("eval", clocks, "--fresh")
    assert "not in the range" in desk.run("eval", "show", "99999999999999999999", code=2).stderr


def test_a_new_file_of_questions_can_be_read_under_its_name(
    desk: Desk, clock_room: Path, tmp_path: Path
) -> None:
    shutil.copytree(clock_room, desk.data)
    for name in ("q.jsonl", "q"):
        run = desk.scripts.admin("eval", "new", tmp_path / name, "--data", desk.data)
        if run.returncode == 0:
            again = desk.run("eval", tmp_path / name, code=2)
            assert "left out" in again.stderr


def test_a_fresh_run_in_which_nothing_could_be_ingested_doesn_t_advise_fresh(
    desk: Desk, tmp_path: Path
) -> None:
    judged = write_set(tmp_path / "s", DRY, sundial="", water="")
    assert "--fresh" not in desk.run("eval", judged, "--fresh", code=2).stderr


def test_two_queries_of_one_id_are_an_error_in_every_form(desk: Desk, tmp_path: Path) -> None:
    judged = write_set(tmp_path / "s", DRY, DRY | {"text": "what else?"})
    desk.run("eval", judged, "--fresh", code=2)


def test_blank_lines_in_qrels_are_skipped_as_in_lines_of_json(desk: Desk, tmp_path: Path) -> None:
    judged = write_set(tmp_path / "s", DRY, judged="sundial\tsundial\t1\n\n")
    desk.run("eval", judged, "--fresh")
