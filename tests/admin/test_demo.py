"""refdesk-admin demo: files in, a server started, its answers and the hosts' configuration out."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from rag.admin.demo_command import QUESTIONS, RESULTS

if TYPE_CHECKING:
    from tests.admin.conftest import Run
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

ANSWERS = {
    "Who earned her living by telling people the time?": (
        "went round London with the watch in her bag and let her subscribers look at it",
        "letter-on-selling-the-time.txt",
    ),
    "How slow was Harrison's watch when it reached Jamaica?": (
        "the watch was found to be 5.1 seconds slow",
        "the-longitude-problem.pdf",
    ),
    "Why does a public clock in Bristol have an extra hand?": (
        "still has two minute hands, one for Greenwich and one, ten minutes behind it, for Bristol",
        "railway-time.html",
    ),
    "What does _TIME_BITS=64 do?": (
        "**glibc** 2.34 (2021) made it a choice at compile time, with the macro `_TIME_BITS=64`",
        "unix-time-and-2038.md",
    ),
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
    other = shutil.copytree(corpus, tmp_path_factory.mktemp("other") / "demo_corpus")
    run = scripts.admin("ingest", other, "--data", scripts.home / "refdesk-demo", "--include", "railway*")
    assert run.returncode == 0, run.stderr
    run = scripts.admin("demo", "--json")
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    return json.loads(line)


def test_each_question_is_followed_by_passages_with_citations(demo: Run) -> None:
    answers = demo.stdout.partition("\nTo use refdesk")[0].split("\n? ")[1:]
    assert [answer.partition("\n")[0] for answer in answers] == list(QUESTIONS)
    for answer in answers:
        assert len(re.findall(rf"^   {CITATION}  score ", answer, re.MULTILINE)) == RESULTS


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_to_each_question_stands_in_the_passages_under_it(demo: Run, question: str) -> None:
    answer, _ = ANSWERS[question]
    shown = demo.stdout.partition(f"\n? {question}\n")[2].partition("\n? ")[0]
    assert answer in " ".join(shown.split())


def test_one_answer_comes_with_its_page(demo: Run) -> None:
    shown = " ".join(demo.stdout.split())
    section = r"The Longitude Problem: .{,60} › The Longitude Problem › 4\. The watch: .{,60}"
    assert re.search(rf" 1\. {section}, p\. 4 \[", shown)


def test_what_it_is_doing_goes_to_standard_error(demo: Run, scripts: Scripts, corpus: Path) -> None:
    lines = demo.stderr.splitlines()
    assert lines[:2] == [f"Ingesting into {scripts.home}/refdesk-demo", "17 files"]
    assert sorted(lines[2:19]) == [
        line for line in sorted(lines) if line.startswith(f"added     {corpus}/") and "chunk" in line
    ]
    assert lines[19] == "17 added, 0 replaced, 0 unchanged, 0 removed, 0 skipped, 0 ignored"
    assert lines[20] == "Stored: 8 .md, 2 .txt, 2 .html, 1 .py, 1 .csv, 1 .pdf, 1 .json, 1 .rst"
    assert lines[21:] == [
        "Languages: 14 English, 3 without one",
        "17 added: 17 open to the tenant",
        f"Started {scripts.server} (MCP 2026-07-28)",
    ]


def test_for_scripts_it_prints_the_same_as_one_object(demo_json: Any, demo: Run) -> None:  # noqa: ANN401 any JSON
    assert set(demo_json) == {"counts", "answers", "configuration"}
    assert demo_json["counts"]["unchanged"] == 17
    assert [answer["question"] for answer in demo_json["answers"]] == list(QUESTIONS)
    for answer in demo_json["answers"]:
        results, words = answer["results"], ANSWERS[answer["question"]]
        assert len(results) == RESULTS
        assert words[0] in " ".join(results[0]["text"].split())
        assert words[1] == results[0]["metadata"]["path"]
        assert all(f"[{result['id']}]" in demo.stdout for result in results)
    assert demo_json["configuration"] == printed_snippets(demo)


def test_what_the_demo_of_another_installation_left_is_gone(demo_json: Any, scripts: Scripts) -> None:  # noqa: ANN401 any JSON
    assert demo_json["counts"]["added"] == 0
    status = scripts.admin("status", "--data", scripts.home / "refdesk-demo", "--json")
    (collection,) = json.loads(status.stdout)["collections"]
    assert collection["sources"] == 17


def test_it_names_the_command_that_connects_a_host(demo: Run, scripts: Scripts, tmp_path: Path) -> None:
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
    demo: Run, file: str, section: str
) -> None:
    entry = printed_snippets(demo)[file][section]["refdesk"]
    assert entry.get("type", "stdio") == "stdio"
    assert Path(entry["command"]).is_absolute()
    await assert_answers(entry, "What does _TIME_BITS=64 do?", "glibc")


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
    await assert_answers(entry, "How many days off do I have?", "thirty-one")


def test_files_of_which_none_can_be_read_end_it(scripts: Scripts, tmp_path: Path) -> None:
    run = scripts.admin("demo", tmp_path / "no.md", "--ask", "What?", "--data", tmp_path / "data")
    assert run.returncode == 1
    assert "no such file or folder" in run.stderr
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


async def assert_answers(entry: dict[str, Any], question: str, words: str) -> None:
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=entry.get("env"), cwd="/"
    )
    async with Client(server) as client:
        result = await client.call_tool("search", {"query": question, "limit": 1})
        assert result.structured_content
        assert words in result.structured_content["results"][0]["text"]
