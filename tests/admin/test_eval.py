"""refdesk-admin eval: a set is asked, its runs are kept, and looked at again."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from rag.admin.eval_command import complaints_about
from rag.evaluate.compare_runs import EvaluationRun, Latency, QuestionResult, Summary
from rag.home import check_data_folder
from rag.ingest.parse.parsers import EMPTY
from rag.store.write.evaluation_runs import StoredRun, save_runs
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.admin.conftest import Desk, Screen

pytestmark = pytest.mark.slow

NO_BOUND = "is not like nDCG@10=0.70."
TEXTS = {
    "sundial": "A sundial shows the hour by the shadow of its gnomon.",
    "pendulum": "Huygens built the first pendulum clock in 1656.",
    "water": "The clepsydra measured time by water that ran out of a vessel.",
    "empty": "",
}
QUESTIONS = {
    "sundial": "what shows the hour by a shadow?",
    "pendulum": "who built the first pendulum clock?",
    "water": "timekeepers driven by falling liquid",  # none of the document's words
}
DRY = {"_id": "sundial", "text": QUESTIONS["sundial"]}
WET = {"_id": "water", "text": QUESTIONS["water"]}
SUMMARY = {"id", "set", "profile", "mode", "started_at", "queries", "left_out", "leaks"} | {
    "metrics",
    "latency_ms",
    "settings",
    "versions",
}
METRICS = {"nDCG@10", "MRR@10", "MAP@100", "recall@5", "recall@10", "recall@20", "recall@100"} | {
    "precision@5",
    "precision@10",
    "hit_rate@5",
    "hit_rate@10",
    "shown_nDCG@10",
    "shown_recall",
    "shown_chars",
}


def write_set(folder: Path, *queries: Mapping[str, object], judged: str = "", **texts: str) -> Path:
    """A set in BEIR's form; a query is about the document that it names in `doc`, or the one of its id."""
    folder.mkdir()
    corpus = [{"_id": id_, "text": text} for id_, text in (TEXTS | texts).items()]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judged = judged or "".join(f"{query['_id']}\t{query.get('doc', query['_id'])}\t1\n" for query in queries)
    (folder / "qrels.tsv").write_text(judged)
    return folder


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three questions on four documents, one of them empty; words alone don't answer the third."""
    queries = [{"_id": id_, "text": text} for id_, text in QUESTIONS.items()]
    return write_set(tmp_path_factory.mktemp("sets") / "clocks", *queries)


@pytest.fixture(scope="module")
def three_runs(
    desk_at: Callable[[Path], Desk], clocks: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Desk, Any]:
    """A desk with three runs, one in each mode, and what making them printed. Only for reading."""
    desk = desk_at(tmp_path_factory.mktemp("kept"))
    return desk, desk.json("eval", clocks, "--fresh", "--mode", "dense,sparse,hybrid")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders come and go."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def test_every_mode_is_a_run_with_its_metrics_and_latency(three_runs: tuple[Desk, Any]) -> None:
    _, printed = three_runs
    assert set(printed) == {"runs", "comparisons"}
    runs = printed["runs"]
    assert [(run["id"], run["profile"], run["mode"], run["queries"]) for run in runs] == [
        (1, "default", "dense", 3),
        (2, "default", "sparse", 3),
        (3, "default", "hybrid", 3),
    ]
    for run in runs:
        assert set(run) == SUMMARY
        assert set(run["metrics"]) == METRICS
        assert set(run["latency_ms"]) == {"p50", "p95"}
        assert (run["set"], run["left_out"], run["leaks"]) == ("clocks", 0, 0)
    ndcg = [run["metrics"]["nDCG@10"] for run in runs]
    assert ndcg == [1, pytest.approx(2 / 3), 1]


def test_every_further_run_is_compared_with_the_first(three_runs: tuple[Desk, Any]) -> None:
    sparse, hybrid = three_runs[1]["comparisons"]
    assert sparse | {"p_value": 1} == {
        "one": 1,
        "other": 2,
        "metric": "nDCG@10",
        "difference": pytest.approx(-1 / 3),
        "p_value": 1,
        "won": [],
        "lost": ["water"],
    }
    assert (hybrid["other"], hybrid["difference"], hybrid["p_value"]) == (3, 0, 1)


def test_a_run_is_printed_as_a_table_and_on_standard_error_what_happens(desk: Desk, clocks: Path) -> None:
    run = desk.run("eval", clocks, "--fresh")
    headings, row = run.stdout.splitlines()
    assert re.split(r"  +", headings) == [
        *("RUN", "SET", "PROFILE", "MODE", "QUERIES"),
        *("nDCG@10", "MRR@10", "recall@10", "recall@100", "shown_nDCG@10", "shown_recall", "shown_chars"),
        *("P50 MS", "P95 MS"),
    ]
    assert row.split()[:11] == ["1", "clocks", "default", "hybrid", "3", *["1.0000"] * 6]
    assert 500 < int(row.split()[11]) < 2_000
    first, skipped, *lines = run.stderr.splitlines()
    assert first == "Ingesting 4 documents"
    assert re.fullmatch(rf"ignored   \S+\.txt: {EMPTY}", skipped)
    assert lines == [
        "Asking 3 questions: profile default, mode hybrid",
        "Documents that failed to ingest, which no search finds: empty",
    ]
    again = desk.run("eval", "run", "--fresh", clocks)
    assert again.stdout.splitlines()[1].split()[:9] == ["2", *row.split()[1:9]]
    assert again.stderr.splitlines()[2:] == lines


def test_a_terminal_shows_bars_that_are_gone_at_the_end(desk: Desk, clocks: Path, screen: Screen) -> None:
    code, output = screen("eval", clocks, "--fresh", "--data", desk.data)
    assert code == 0
    assert "of 4 documents" in output
    assert "of 3 questions" in output
    assert re.search(r"of 3 questions\r +\rRUN  SET", output)
    assert "documentsIngesting" not in output


def test_profiles_of_the_settings_are_asked_side_by_side_and_their_differences_listed(
    desk: Desk, clocks: Path, tmp_path: Path
) -> None:
    config = tmp_path / "desk.toml"
    config.write_text('[search.profiles.words]\nmode = "sparse"\n[search.profiles.meaning]\nmode = "dense"\n')
    profiles: list[str | Path] = ["--profile", "meaning", "--profile", "words", "--config", config]
    run = desk.run("eval", clocks, "--fresh", *profiles, "--diff")
    _, meaning, words, *diff = run.stdout.splitlines()
    assert [line.split()[2:4] for line in (meaning, words)] == [["meaning", "dense"], ["words", "sparse"]]
    assert diff[0].startswith("Run 2 (words, sparse) against Run 1 (meaning, dense): nDCG@10 -0.3333 (p = ")
    assert diff[0].endswith("); 0 questions won, 1 lost, 2 alike.")
    assert diff[1] == "  Lost  1.000 -> 0.000  water  timekeepers driven by falling liquid"
    hint = "Show one: refdesk-admin "
    assert diff[2] == f"{hint}eval compare 1 2 --question water"
    before, after = desk.run(*shlex.split(diff[2].removeprefix(hint))).stdout.split("Run 2")
    assert before.startswith("Run 1 (meaning, dense): water  timekeepers driven by falling liquid\n")
    assert "  finds water\n" in before
    assert "finds" not in after
    unknown = desk.run("eval", clocks, "--fresh", "--profile", "letters", code=2)
    assert "There is no profile 'letters'. Profiles: default, fast, fresh, precise." in unknown.stderr


def test_modes_and_depth_that_the_operator_fixed_for_others_are_asked_all_the_same(
    desk: Desk, clocks: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[search]\noverrides = []\n")
    report = desk.json("eval", clocks, "--fresh", "--mode", "dense,sparse", "--config", config)
    assert [run["mode"] for run in report["runs"]] == ["dense", "sparse"]


def test_runs_are_listed_again_as_they_were_printed(three_runs: tuple[Desk, Any]) -> None:
    desk, printed = three_runs
    assert desk.json("eval", "runs") == {"runs": printed["runs"]}
    headings, *rows = desk.run("eval", "runs").stdout.splitlines()
    assert headings.startswith("RUN  SET     PROFILE  MODE    QUERIES  nDCG@10")
    assert [row.split()[:6] for row in rows] == [
        ["1", "clocks", "default", "dense", "3", "1.0000"],
        ["2", "clocks", "default", "sparse", "3", "0.6667"],
        ["3", "clocks", "default", "hybrid", "3", "1.0000"],
    ]


def test_a_run_is_shown_whole_or_one_question_of_it(three_runs: tuple[Desk, Any]) -> None:
    desk, printed = three_runs
    whole = desk.run("eval", "show", "2").stdout.splitlines()
    assert whole[0] == "Run 2: clocks, profile default, mode sparse"
    assert "  nDCG@10                  0.6667" in whole
    assert "  queries                  3" in whole
    run = desk.json("eval", "show", "2")
    questions = run.pop("questions")
    assert run == printed["runs"][1]
    assert [question["id"] for question in questions] == list(QUESTIONS)

    title, expected, scores, hit = desk.run("eval", "show", "2", "--question", "sundial").stdout.splitlines()
    assert title == "Run 2 (default, sparse): sundial  what shows the hour by a shadow?"
    assert expected == "  expected: sundial (1)"
    assert scores.startswith("  nDCG@10 1.000, MRR@10 1.000, ")
    assert re.fullmatch(r"   1\. score 1\.000  similarity 0\.\d{3}  \[\w+/0\]  document  finds sundial", hit)
    of_sundial = desk.json("eval", "show", "2", "--question", "sundial")
    assert of_sundial["questions"] == [questions[0]]
    assert set(questions[0]) == {"id", "text", "metrics", "latency_ms", "expected", "hits", "leaks"}


def test_a_run_or_question_that_isn_t_kept_is_refused_by_its_name(
    three_runs: tuple[Desk, Any], desk: Desk
) -> None:
    full, _ = three_runs
    missing = full.run("eval", "compare", "1", "7", code=1)
    assert re.fullmatch(r"refdesk-admin: .* 7\. refdesk-admin eval runs .*\n", missing.stderr)
    assert "not in the range" in full.misuse("eval", "show", "99999999999999999999")
    question = full.run("eval", "show", "1", "--question", "moondial", code=1)
    assert (
        "Run 1 has no question 'moondial'. List them with refdesk-admin eval show 1 --json."
        in question.stderr
    )
    assert (
        desk.run("eval", "runs").stdout == "There are no runs yet. Make one with refdesk-admin eval PATH.\n"
    )
    assert not desk.data.exists()


def test_two_runs_are_compared_with_each_other(three_runs: tuple[Desk, Any]) -> None:
    desk, printed = three_runs
    *table, summary, lost, hint = desk.run("eval", "compare", "1", "2").stdout.splitlines()
    assert [row.split()[0] for row in table] == ["RUN", "1", "2"]
    assert summary.startswith("Run 2 (default, sparse) against Run 1 (default, dense): nDCG@10 -0.3333")
    assert lost.startswith("  Lost  1.000 -> 0.000  water")
    assert hint.endswith("eval compare 1 2 --question water")
    assert desk.json("eval", "compare", "1", "2") == printed["comparisons"][0]
    assert desk.json("eval", "compare", "1", "2", "--question", "water") != printed["comparisons"][0]
    back = desk.json("eval", "compare", "2", "1", "--metric", "recall@5")
    assert (back["metric"], back["difference"]) == ("recall@5", pytest.approx(1 / 3))
    assert (back["won"], back["lost"]) == (["water"], [])


def test_a_metric_under_its_floor_fails_the_run(desk: Desk, clocks: Path) -> None:
    ask: list[str | Path] = ["eval", clocks, "--fresh", "--mode", "sparse"]
    run = desk.run(
        *ask,
        "--fail-under",
        "nDCG@10=0.67",
        "--fail-under",
        "recall@5=0.66",
        "--fail-under",
        "token_IoU@5=0.1",
        code=1,
    )
    assert run.stderr.splitlines()[-2:] == [
        "Run 1 (default, sparse): nDCG@10 is 0.6667; --fail-under requires 0.67.",
        "Run 1 (default, sparse): token_IoU@5 was not measured; --fail-under requires 0.1.",
    ]
    assert run.stdout.splitlines()[1].split()[:4] == ["1", "clocks", "default", "sparse"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--mode", "dense,fuzzy"], "'fuzzy' is not one of 'dense', 'sparse', 'hybrid', 'exact'."),
        (["--fail-under", "nDCG=0.7"], "'nDCG' is not a metric. Metrics: nDCG@10, MRR@10, "),
        (["--fail-under", "nDCG@10"], f"'nDCG@10' {NO_BOUND}"),
        (["--fail-under", "nDCG@10=nan"], f"'nDCG@10=nan' {NO_BOUND}"),
        (["--fail-under", "nDCG@10=high"], f"'nDCG@10=high' {NO_BOUND}"),
        (["--metric", "F1"], "'F1' is not one of 'nDCG@10', "),
        (["--fresh", "--collection", "documents"], "Leave out --collection: --fresh uses a temporary"),
        (["--language", "German"], "--language needs --fresh"),
        (["--language", "Klingon", "--fresh"], "'Klingon' is not one of"),
    ],
)
def test_options_of_eval_that_contradict_each_other_are_misuse(
    desk: Desk, clocks: Path, options: list[str], complaint: str
) -> None:
    run = desk.run("eval", clocks, *options, code=2)
    assert complaint in " ".join(run.stderr.split())
    assert run.stdout == ""
    assert not desk.data.exists()


def test_a_path_that_is_no_set_and_a_desk_without_documents_are_misuse(
    desk: Desk, clocks: Path, tmp_path: Path
) -> None:
    assert "is not a judged set" in desk.misuse("eval", tmp_path / "nothing.toml")
    assert "There are no documents in" in desk.misuse("eval", clocks)
    assert not desk.data.exists()


def test_hits_that_were_not_for_who_asked_fail_the_run() -> None:
    def result(id_: str, *leaks: str) -> QuestionResult:
        return QuestionResult(id=id_, text="?", metrics={}, latency_ms=1, expected={}, hits=(), leaks=leaks)

    summary = Summary(
        set="clocks",
        profile="default",
        mode="dense",
        started_at="",
        queries=2,
        left_out=0,
        leaks=2,
        metrics={"nDCG@10": 1},
        latency_ms=Latency(p50=1, p95=1),
        settings={},
        versions={},
    )
    run = EvaluationRun(id=4, summary=summary, questions=(result("1"), result("2", "a/0", "b/0")))
    floors = {"nDCG@10": 1.0}
    assert complaints_about(run, floors) == [
        "Run 4 (default, dense) leaks: 2 hits that the asker may not see: 2."
    ]
    tight = run.model_copy(update={"summary": summary.model_copy(update={"leaks": 0})})
    assert complaints_about(tight, floors) == []


def test_one_s_own_questions_are_begun_written_and_asked(
    desk: Desk, clock_room: Path, tmp_path: Path
) -> None:
    shutil.copytree(clock_room, desk.data)
    file = tmp_path / "mine.toml"
    new = desk.run("eval", "new", file, "--questions", "5")
    assert (
        new.stdout == f"Created {file} for 5 questions. Fill them in, then run: refdesk-admin eval {file}\n"
    )
    begun = file.read_text()
    assert begun.count("[[questions]]") == begun.count('\ntext = ""\n') == 5
    assert len(set(re.findall(r'expect = \["(.*)"\]', begun)) & set(desk.paths())) == 5
    untouched = desk.run("eval", file, code=2)
    assert "(5 left out)." in untouched.stderr

    questions = begun.split("[[questions]]\n")
    for number in (1, 2, 3):  # the passage itself is the easiest question
        words = " ".join(re.findall(r"[\w ]+", questions[number].split("text =")[0]))
        questions[number] = questions[number].replace('text = ""', f"text = {json.dumps(words[:200])}")
    file.write_text("[[questions]]\n".join(questions))
    for where in ([], ["--collection", "documents"]):
        run = desk.run("eval", file, *where, "--fail-under", "hit_rate@5=1")
        assert run.stdout.splitlines()[1].split()[1:5] == ["mine", "default", "hybrid", "3"]
        assert "Left out: 2 without text or judgement." in run.stderr.splitlines()
    assert "in the collection 'handbook'" in desk.misuse("eval", file, "--collection", "handbook")
    assert "mine has no documents. Leave out --fresh" in desk.misuse("eval", file, "--fresh")


def test_a_file_of_questions_is_never_written_over_nor_made_of_nothing(
    desk: Desk, clock_desk: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "questions.toml"
    assert clock_desk.json("eval", "new", file) == {"file": str(file), "questions": 17}
    begun = file.read_text()
    assert f"Cannot create the file {file}: File exists." in clock_desk.misuse("eval", "new", file)
    assert file.read_text() == begun
    nothing = desk.run("eval", "new", tmp_path / "other.toml", code=2)
    assert refusal(check_data_folder, desk.data) in nothing.stderr
    assert not desk.data.exists()
    desk.run("tenant", "create", "default")
    nothing = desk.run("eval", "new", tmp_path / "other.toml", code=1)
    assert "There are no documents yet. Add some with" in nothing.stderr
    assert not (tmp_path / "other.toml").exists()


def test_runs_that_can_t_be_kept_are_printed_all_the_same(desk: Desk, clocks: Path) -> None:
    desk.data.touch()
    run = desk.run("eval", clocks, "--fresh", "--mode", "dense,sparse", "--diff", code=1)
    assert "compare 0 0" not in run.stdout
    assert [row.split()[:4] for row in run.stdout.splitlines()[1:3]] == [
        ["0", "clocks", "default", "dense"],
        ["0", "clocks", "default", "sparse"],
    ]
    assert "Cannot keep the runs: The data folder" in run.stderr


def test_a_run_that_fails_leaves_nothing_behind(desk: Desk, tmp_path: Path, scratch: Path) -> None:
    too_long = write_set(tmp_path / "long", DRY, WET | {"text": "why? " * 1_000})
    run = desk.run("eval", too_long, "--fresh", code=2)
    assert "refdesk-admin: Question water: query must have at most 4096 characters" in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert not list(scratch.iterdir())
    assert not desk.data.exists()


@pytest.mark.parametrize("at", ["Ingesting", "Asking"])
def test_an_interrupted_run_leaves_nothing_behind(desk: Desk, tmp_path: Path, scratch: Path, at: str) -> None:
    clocks = ({"_id": str(number), "text": f"clock {number}", "doc": "sundial"} for number in range(2_000))
    many = write_set(tmp_path / "many", *clocks)
    desk.interrupt("eval", many, "--fresh", at=at)
    assert not list(scratch.iterdir())
    assert not desk.data.exists()


@pytest.fixture(scope="module")
def mine(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Two collections with a document each."""
    folder = tmp_path_factory.mktemp("mine")
    desk = desk_at(folder / "data")
    for name in ("alpha", "beta"):
        (folder / name).mkdir()
        (folder / name / f"{name}.md").write_text(f"The {name} clock.")
        desk.run("ingest", folder / name, "--collection", name)
    return desk


def test_a_question_with_empty_quotes_only_is_left_out(mine: Desk, tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    good = '[[questions]]\ntext = "alpha?"\nexpect = ["alpha.md"]\n'
    file.write_text(f'{good}[[questions]]\ntext = "what?"\nquotes = [""]\n')
    assert "Left out: 1" in mine.run("eval", file).stderr


def test_a_run_tells_which_collection_it_searched(mine: Desk, tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text('[[questions]]\ntext = "clock?"\nexpect = ["alpha.md"]\n')
    settings = []
    for where in (["--collection", "alpha"], []):
        run = json.loads(mine.run("eval", file, *where, "--json").stdout)["runs"][0]
        settings.append(run["settings"])
    assert settings[0] == {"collection": "alpha"} | settings[1]


def test_a_question_about_another_collection_than_the_one_asked_is_no_leak(
    mine: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "q.toml"
    file.write_text('[[questions]]\ntext = "clock?"\nexpect = ["alpha.md"]\ncollections = ["beta"]\n')
    run = mine.scripts.admin("eval", file, "--collection", "alpha", "--data", mine.data)
    assert "leaks" not in run.stderr


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


def test_runs_of_another_version_are_no_traceback(desk: Desk) -> None:
    anyio.run(save_runs, desk.data, "default", [StoredRun('{"set": "x"}', "[]")])
    run = desk.scripts.admin("eval", "runs", "--data", desk.data)
    assert "Traceback" not in run.stderr


def test_a_metric_that_was_not_measured_doesn_t_hide_the_runs(desk: Desk, clocks: Path) -> None:
    options = ["--fresh", "--mode", "dense,sparse", "--metric", "token_IoU@5"]
    run = desk.scripts.admin("eval", clocks, *options, "--data", desk.data)
    assert "clocks" in run.stdout or "Asking" not in run.stderr


def test_a_set_may_have_blank_queries_and_lines_any_ids_and_documents_without_text(
    desk: Desk, tmp_path: Path
) -> None:
    """Patterns of the settings don't apply to the set's documents, and the hint works for all ids."""
    config = tmp_path / "desk.toml"
    config.write_text('[ingest]\ninclude = ["*.pdf"]\n')
    queries = (DRY | {"exclude_sources": ["empty"]}, WET | {"_id": "it's wet"}, {"_id": "blank", "text": " "})
    judged = "sundial\tsundial\t1\n\nit's wet\twater\t1\nblank\tsundial\t1\n"
    clocks = write_set(tmp_path / "clocks", *queries, judged=judged)
    options = ("--fresh", "--config", config, "--mode", "dense,sparse", "--diff")
    run = desk.run("eval", clocks, *options)
    assert "Left out: 1" in run.stderr
    desk.run(*shlex.split(run.stdout.splitlines()[-1].removeprefix("Show one: refdesk-admin ")))


def test_a_new_file_of_questions_can_be_read_under_its_name(clock_desk: Desk, tmp_path: Path) -> None:
    for name in ("q.jsonl", "q"):
        run = clock_desk.scripts.admin("eval", "new", tmp_path / name, "--data", clock_desk.data)
        if run.returncode == 0:
            again = clock_desk.run("eval", tmp_path / name, code=2)
            assert "left out" in again.stderr


def test_a_fresh_run_in_which_nothing_could_be_ingested_doesn_t_advise_fresh(
    desk: Desk, tmp_path: Path
) -> None:
    judged = write_set(tmp_path / "s", DRY, **dict.fromkeys(TEXTS, ""))
    assert "--fresh" not in desk.misuse("eval", judged, "--fresh")


def test_two_queries_of_one_id_are_an_error_in_every_form(desk: Desk, tmp_path: Path) -> None:
    judged = write_set(tmp_path / "s", DRY, DRY | {"text": "what else?"})
    desk.run("eval", judged, "--fresh", code=2)
