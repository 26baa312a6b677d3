"""A local server whose configuration is wrong lives to tell its host; one that listens ends at once."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Era, Start, Wire

pytestmark = pytest.mark.slow

SECRET = "sk-" + "zebrafish" * 3
WRONG = {"REFDESK_SEARCH_LIMIT": "many"}
MISTAKE = "REFDESK_SEARCH_LIMIT must be a whole number, not 'many'."
EXPLANATION = (
    f"refdesk can't work, because its configuration is wrong. {MISTAKE} Correct that, then restart refdesk."
)
START_SECONDS = 60  # far more than a start takes


def told(wire: Wire) -> str:
    wire.begin()
    return wire.tool_error("search", {"query": "clock"})


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_every_call_is_answered_with_the_mistake(start: Start, clock_room: Path, era: Era) -> None:
    wire = start(clock_room, era=era, env=WRONG)
    assert wire.begin()["instructions"] == EXPLANATION
    assert [tool["name"] for tool in wire.result("tools/list")["tools"]] == ["search", "get_source"]
    assert wire.tool_error("search", {"query": "clock"}) == EXPLANATION
    assert wire.tool_error("search", {"limit": "many"}) == EXPLANATION
    assert wire.tool_error("get_source", {"id": "a" * 16}) == EXPLANATION
    assert wire.result("prompts/list")["prompts"]
    assert wire.error("resources/list")["message"] == EXPLANATION
    assert wire.error("resources/templates/list")["message"] == EXPLANATION
    assert wire.error("resources/read", {"uri": "refdesk://documents/a"})["message"] == EXPLANATION
    assert wire.error("prompts/get", {"name": "answer"})["message"] == EXPLANATION
    assert wire.leave(within=START_SECONDS) == 2
    assert wire.stderr() == f"{MISTAKE}\n"


def test_after_the_mend_and_a_restart_it_works(start: Start, clock_room: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[search]\nlimit = 5 5\n")
    assert "is not valid TOML" in told(start(clock_room, env={"REFDESK_CONFIG": str(config)}))
    config.write_text("[search]\nlimit = 5\n")
    wire = start(clock_room, env={"REFDESK_CONFIG": str(config)})
    wire.begin()
    assert len(wire.tool("search", {"query": "clock"})["structuredContent"]["results"]) == 5
    assert wire.leave(within=START_SECONDS) == 0


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("[search]\nlimt = 5\n", [], "there is no setting search.limt; did you mean search.limit?"),
        ("[principal]\ntenant = 'acme'\n", [], "There is no tenant 'acme' in"),
        (f"[embedder]\napi_key = '{SECRET}'\n", [], "there is no setting embedder.api_key"),
        (
            f"[embedder]\napi_key_env = '{SECRET}'\n",
            [],
            "embedder.api_key_env: write the name of an environment",
        ),
        ("", ["--config", "nowhere.toml"], "There is no settings file nowhere.toml."),
        ("", ["--config", "/"], "The settings file / can't be read"),
        ("", [f"--tenat={SECRET}"], "refdesk has no option --tenat. Run refdesk --help"),
        ("", ["--port"], "Argument --port: expected one argument. Run refdesk --help"),
    ],
)
def test_each_kind_of_mistake_is_told_and_no_secret(
    start: Start, clock_room: Path, tmp_path: Path, text: str, flags: list[str], words: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    wire = start(clock_room, env={"REFDESK_CONFIG": str(config)}, flags=flags)
    explanation = told(wire)
    assert words in explanation
    assert SECRET not in explanation
    assert wire.leave(within=START_SECONDS) == 2
    assert words in wire.stderr()
    assert SECRET not in wire.stderr()


def test_a_model_folder_that_is_missing_is_told_and_the_tools_are_listed_all_the_same(
    start: Start, scripts: Scripts, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    made = scripts.admin("collection", "create", "papers", "--field", "year=integer", "--data", data)
    assert made.returncode == 0, made.stderr
    env = {"REFDESK_EMBEDDER_PROVIDER": "onnx", "REFDESK_EMBEDDER_PATH": str(tmp_path / "model")}
    wire = start(data, env=env)
    wire.begin()
    assert [tool["name"] for tool in wire.result("tools/list")["tools"]] == ["search", "get_source"]
    assert str(tmp_path / "model") in wire.tool_error("search", {"query": "clock"})


@pytest.mark.parametrize("flags", [["--http"], ["--http", "--tenat"], ["--http", "--port", "many"]])
def test_a_server_that_listens_ends_at_once(scripts: Scripts, flags: list[str]) -> None:
    run = subprocess.run(
        [scripts.server, *flags],
        env=scripts.environment | WRONG,
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)


def test_without_a_host_it_ends_at_once(scripts: Scripts) -> None:
    ours, theirs = pty.openpty()
    try:
        for nobody in (theirs, subprocess.DEVNULL):
            run = subprocess.run(
                [scripts.server],
                env=scripts.environment | WRONG,
                stdin=nobody,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (run.returncode, run.stdout, run.stderr) == (2, "", f"{MISTAKE}\n")
    finally:
        for end in (ours, theirs):
            os.close(end)


def test_a_person_at_a_terminal_reads_what_it_is_and_does_not_wait(
    scripts: Scripts, clock_room: Path
) -> None:
    ours, theirs = pty.openpty()
    try:
        run = subprocess.run(
            [scripts.server, "--data", clock_room],
            env=scripts.environment,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        for end in (ours, theirs):
            os.close(end)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.startswith("refdesk serves your documents to AI assistants")
    named = re.findall(r"^  (refdesk\S*) (--)?(\w*)", run.stderr, re.MULTILINE)
    assert [(script, word) for script, _, word in named] == [
        *(("refdesk-admin", ""), ("refdesk-admin", "connect"), ("refdesk-admin", "search")),
        ("refdesk", "http"),
    ]
