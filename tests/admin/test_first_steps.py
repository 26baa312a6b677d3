"""The first steps: refdesk-admin alone names the next one, init writes settings, demo shows all of it."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from rag.access.rule import in_words, valid_name
from rag.admin.demo_command import QUESTIONS, RESULTS
from rag.admin.main import main
from rag.config.settings import Settings
from rag.corpus import Access
from rag.ingest.report import NOT_THERE
from tests.refusals import refusal

if TYPE_CHECKING:
    from tests.admin.conftest import Desk, Run, Screen
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow


NO_FOLDER = "There is no folder {}."


@pytest.fixture
def environment(scripts: Scripts, tmp_path: Path) -> dict[str, str]:
    """Somebody with no hosts, no settings and no documents yet."""
    assert scripts
    home = str(tmp_path)
    return {"HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": f"{home}/share"}


def lines_of_no_command(scripts: Scripts, environment: dict[str, str]) -> list[str]:
    run = scripts.admin(env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("\n\nAll commands: refdesk-admin --help\n")
    return run.stdout.splitlines()


def test_the_next_step_follows_from_how_the_desk_stands(
    scripts: Scripts, environment: dict[str, str], clock_room: Path, tmp_path: Path
) -> None:
    lines = lines_of_no_command(scripts, environment)
    assert lines[0] == f"Data folder  {tmp_path}/share/refdesk"
    assert "Documents    none yet" in lines
    assert "Next: refdesk-admin ingest PATH" in lines
    served = environment | {"REFDESK_DATA": str(clock_room)}
    lines = lines_of_no_command(scripts, served)
    assert "Documents    17 in 1 collection" in lines
    assert lines[-4:-2] == ["", "Next: refdesk-admin connect HOST"]
    (tmp_path / ".gemini").mkdir()
    assert "Next: refdesk-admin connect gemini-cli" in lines_of_no_command(scripts, served)
    assert scripts.admin("connect", "gemini-cli", "--yes", env=served).returncode == 0
    lines = lines_of_no_command(scripts, served)
    assert "Hosts        gemini-cli" in lines
    assert "To see what a host sees: refdesk-admin connect gemini-cli --check" in lines


def test_a_data_folder_that_is_a_file_is_misuse_also_without_a_command(
    inside: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert inside
    (tmp_path / "data").write_text("")
    monkeypatch.setenv("REFDESK_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "argv", ["refdesk-admin"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2


@pytest.fixture
def answer(inside: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for the file, for somebody without a folder of documents."""
    assert inside
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "new" / "mine.toml"


def piped(monkeypatch: pytest.MonkeyPatch, *lines: object) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_the_answers_become_a_file_that_is_valid_and_has_comments(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documents = tmp_path / 'Zoë "B"'
    documents.mkdir()
    piped(monkeypatch, documents, tmp_path / "store", "handbook", "nobody", "https://desk.example/")
    run = inside.run("init", "--config", answer)
    text = answer.read_text()
    for part in text.split("\n\n"):
        assert part.startswith("#") or "\n# " in part
    values = tomllib.loads(text)
    assert values["data"] == str(tmp_path / "store")
    origin = {"type": "folder", "path": str(documents), "collection": "handbook", "visibility": "restricted"}
    assert values["origins"] == {"handbook": origin}
    assert values["http"]["public_url"] == "https://desk.example"
    assert Settings.load(answer).principal.user == ""
    steps = [f"refdesk-admin {step} --config {answer}" for step in ("sync", "key create")]
    assert (
        run.stdout
        == f"Wrote {answer}.\nNext: {', then '.join(steps)}, then refdesk --http --config {answer}\n"
    )


def test_the_defaults_are_for_one_person_and_one_machine(inside: Desk, answer: Path, tmp_path: Path) -> None:
    run = inside.run("init", "--yes", "--config", answer)
    assert tomllib.loads(answer.read_text()) == {"data": str(inside.data), "principal": {"user": ""}}
    assert run.stdout.endswith(
        f"Next: refdesk-admin ingest PATH --config {answer}, then refdesk-admin connect --config {answer}\n"
    )
    (tmp_path / "Documents").mkdir()
    second = answer.with_name("other.toml")
    assert inside.json("init", "--yes", "--config", second)["settings_file"] == str(second)
    origin = tomllib.loads(second.read_text())["origins"]["documents"]
    assert (origin["path"], origin["visibility"]) == (str(tmp_path / "Documents"), "tenant")


def test_without_a_folder_the_answers_go_to_the_next_command(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, "", "", "notes", "nobody")
    run = inside.run("init", "--config", answer)
    assert f"ingest PATH --collection notes --visibility restricted --config {answer}" in run.stdout


def test_a_file_that_is_there_is_never_overwritten(inside: Desk, answer: Path) -> None:
    answer.parent.mkdir()
    answer.write_text("# mine\n")
    run = inside.run("init", "--yes", "--config", answer, code=2)
    assert f"There is {answer} already. Edit it, or name another file with --config." in run.stderr
    assert answer.read_text() == "# mine\n"
    answer.unlink()
    answer.symlink_to(answer.with_name("nowhere"))
    assert "already" in inside.misuse("init", "--yes", "--config", answer)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["/nowhere/at/all"], NO_FOLDER.format("/nowhere/at/all")),
        (["", "", "My Notes"], refusal(valid_name, "My Notes")),
        (["", "", "", "some"], "Answer everybody or nobody, not 'some'."),
        (["", "", "", "", "desk.example"], "is not a URL without a path"),
        (["", "", "", "", "", "klingon"], "Answer as the documents, english or any, not 'klingon'."),
    ],
)
def test_a_wrong_answer_from_a_pipe_writes_nothing(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], words: str
) -> None:
    piped(monkeypatch, *lines)
    assert words in inside.misuse("init", "--config", answer)
    assert not answer.exists()


def test_documents_don_t_lie_in_the_data_folder(
    inside: Desk, answer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    piped(monkeypatch, tmp_path, tmp_path)
    assert "Keep them apart." in inside.misuse("init", "--config", answer)


def test_a_person_is_asked_again(screen: Screen, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    code, output = screen(
        *("init", "--config", config, "--data", tmp_path / "data"),
        typed={
            "Folder with your documents:": "/nowhere",
            NO_FOLDER.format("/nowhere"): str(tmp_path),
            "refdesk stores [": "",
            "Name of the collection [documents]:": "",
            "until you grant it [everybody]:": "",
            "if any (https://…):": "",
            "any [as the documents]:": "english",
        },
        env={"HOME": str(tmp_path / "home")},
    )
    assert code == 0, output
    settings = tomllib.loads(config.read_text())
    assert settings["origins"]["documents"]["path"] == str(tmp_path)
    assert settings["embedder"] == {"model": "all-MiniLM-L6-v2"}


ANSWERS = {
    "Who earned her living by telling people the time?": "the watch in her bag",
    "How slow was Harrison's watch when it reached Jamaica?": "the watch was found to be 5.1 seconds slow",
    "Why does a public clock in Bristol have an extra hand?": "one for Greenwich and one, ten",
    "What does _TIME_BITS=64 do?": "with the macro `_TIME_BITS=64`",
}
CITATION = r"\[[a-z2-7]{16}/\d+(-\d+)?\]"


@pytest.fixture(scope="module")
def demo(scripts: Scripts) -> Run:
    """What a newcomer sees."""
    run = scripts.admin("demo")
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture(scope="module")
def demo_json(scripts: Scripts, demo: Run, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 any JSON
    """The demo once more, after another installation's demo has run on its own copy of the documents."""
    assert demo.returncode == 0
    copy = shutil.copytree(corpus, tmp_path_factory.mktemp("other") / "demo_corpus")
    run = scripts.admin("ingest", copy, "--data", scripts.home / "refdesk-demo", "--include", "railway*")
    assert run.returncode == 0, run.stderr
    own = tmp_path_factory.mktemp("own") / "desk"
    run = scripts.admin("demo", "--json", env={"REFDESK_DATA": str(own)})
    assert run.returncode == 0, run.stderr
    assert not own.exists()  # the user's desk gets no clocks
    (line,) = run.stdout.splitlines()
    return json.loads(line)


def test_each_question_is_followed_by_passages_with_citations(demo: Run) -> None:
    answers = demo.stdout.partition("\nTo use refdesk")[0].split("\n? ")[1:]
    assert [answer.partition("\n")[0] for answer in answers] == list(QUESTIONS)
    for answer in answers:
        assert len(re.findall(rf"^   {CITATION}  score ", answer, re.MULTILINE)) == RESULTS


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_to_each_question_stands_in_the_passages_under_it(demo: Run, question: str) -> None:
    answer = ANSWERS[question]
    passages = demo.stdout.partition(f"\n? {question}\n")[2].partition("\n? ")[0]
    assert answer in " ".join(passages.split())


def test_one_answer_comes_with_its_page(demo: Run) -> None:
    text = " ".join(demo.stdout.split())
    section = r"The Longitude Problem: .{,60} › The Longitude Problem › 4\. The watch: .{,60}"
    assert re.search(rf" 1\. {section}, p\. 4 \[", text)


def test_what_it_is_doing_goes_to_standard_error(demo: Run, scripts: Scripts, corpus: Path) -> None:
    lines = demo.stderr.splitlines()
    assert lines[:2] == [f"Ingesting into {scripts.home}/refdesk-demo", "17 files"]
    assert sorted(lines[2:19]) == [
        line for line in sorted(lines) if line.startswith(f"added     {corpus}/") and "chunk" in line
    ]
    assert lines[19] == "17 added, 0 replaced, 0 unchanged, 0 removed, 0 skipped, 0 ignored"
    assert lines[20] == "Stored: 8 .md, 2 .txt, 2 .html, 1 .py, 1 .csv, 1 .pdf, 1 .json, 1 .rst"
    assert lines[21:] == [
        "Languages: 15 English, 2 without one",
        (
            "Embedding model: all-MiniLM-L6-v2, because no language but English was found in the files read "
            "first (--embedder multilingual-e5-small chooses the other one)"
        ),
        f"17 added: 17 {in_words(Access('tenant'))}",
        f"Started {scripts.server} (MCP 2026-07-28)",
    ]


def test_for_scripts_it_prints_the_same_as_one_object(demo_json: Any, demo: Run) -> None:  # noqa: ANN401 any JSON
    assert set(demo_json) == {"counts", "answers", "configuration"}
    assert demo_json["counts"]["unchanged"] == 17
    assert [answer["question"] for answer in demo_json["answers"]] == list(QUESTIONS)
    for answer in demo_json["answers"]:
        results, words = answer["results"], ANSWERS[answer["question"]]
        assert len(results) == RESULTS
        assert words in " ".join(results[0]["text"].split())
        assert all(f"[{result['id']}]" in demo.stdout for result in results)
    assert demo_json["configuration"] == printed_snippets(demo)


def test_what_the_demo_of_another_installation_left_is_gone(demo_json: Any, scripts: Scripts) -> None:  # noqa: ANN401 any JSON
    assert demo_json["counts"]["added"] == 0
    status = scripts.admin("status", "--data", scripts.home / "refdesk-demo", "--json")
    (collection,) = json.loads(status.stdout)["collections"]
    assert collection["sources"] == 17


def test_the_demo_names_the_command_that_connects_a_host(demo: Run, scripts: Scripts, tmp_path: Path) -> None:
    (connect,) = re.findall(
        r"^or let refdesk-admin connect do it: refdesk-admin (.+)$", demo.stdout, re.MULTILINE
    )
    words = [word.replace("HOST", "cursor") for word in shlex.split(connect)]
    entry = json.loads(scripts.admin(*words, "--print", "--json", env={"HOME": str(tmp_path)}).stdout)[
        "entry"
    ]
    assert entry == printed_snippets(demo)["claude_desktop_config.json"]["mcpServers"]["refdesk"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("file", "section"), [("claude_desktop_config.json", "mcpServers"), (".vscode/mcp.json", "servers")]
)
async def test_the_printed_configuration_starts_a_server_that_answers_from_any_folder(
    scripts: Scripts, demo: Run, file: str, section: str
) -> None:
    entry = printed_snippets(demo)[file][section]["refdesk"]
    assert entry.get("type", "stdio") == "stdio"
    await assert_answers(scripts, entry, "What does _TIME_BITS=64 do?", "glibc")


@pytest.mark.anyio
async def test_with_one_s_own_files_it_asks_one_s_own_questions_and_keeps_one_s_own_settings(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leave.md").write_text("# Leave\n\nEverybody has thirty-one days of leave.\n")
    (tmp_path / "empty.md").touch()
    (tmp_path / "desk.toml").write_text('data = "my data"\n[principal]\ntenant = "ours"\n')
    monkeypatch.chdir(tmp_path)
    environment = {"REFDESK_CONFIG": "desk.toml", "REFDESK_SEARCH_MODE": "dense"}
    questions = ["--ask", "How many days off do I have?", "--ask", "Who pays?"]
    run = scripts.admin("demo", "leave.md", "empty.md", *questions, "--json", env=environment)
    assert run.returncode == 0, run.stderr
    assert "Not read: 1 empty file\n" in run.stderr
    printed = json.loads(run.stdout)
    assert [answer["question"] for answer in printed["answers"]] == questions[1::2]
    assert "thirty-one" in printed["answers"][0]["results"][0]["text"]
    entry = printed["configuration"][".vscode/mcp.json"]["servers"]["refdesk"]
    assert entry["args"] == ["--config", f"{tmp_path}/desk.toml", "--data", f"{tmp_path}/my data"]
    assert entry["env"] == {"REFDESK_SEARCH_MODE": "dense"}
    await assert_answers(scripts, entry, "How many days off do I have?", "thirty-one")


def test_a_demo_of_files_that_can_t_be_read_fails(scripts: Scripts, tmp_path: Path) -> None:
    run = scripts.admin("demo", tmp_path / "no.md", "--ask", "What?", "--data", tmp_path / "data")
    assert run.returncode == 1
    assert NOT_THERE in run.stderr
    assert run.stdout == ""


def test_a_question_that_the_server_refuses_is_an_error_in_its_words(scripts: Scripts, demo: Run) -> None:
    assert demo.returncode == 0
    run = scripts.admin("demo", "--ask", "")
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert "The server answered '' with an error: " in last
    assert "query" in last


def printed_snippets(demo: Run) -> dict[str, Any]:
    """The configuration files as a person copies them from the screen."""
    text = demo.stdout.partition("\nTo use refdesk from an assistant")[2]
    snippets = re.findall(r"^[VC][^\n]*: (\S+)\n(\{\n.*?\n\})$", text, re.MULTILINE | re.DOTALL)
    return {file: json.loads(snippet) for file, snippet in snippets}


async def assert_answers(scripts: Scripts, entry: dict[str, Any], question: str, words: str) -> None:
    assert entry["command"] == scripts.server
    environment = scripts.environment | entry.get("env", {})
    server = StdioServerParameters(
        command=scripts.forked_server, args=entry["args"], env=environment, cwd="/"
    )
    async with Client(server) as client:
        result = await client.call_tool("search", {"query": question, "limit": 1})
        assert result.structured_content
        assert words in result.structured_content["results"][0]["text"]
