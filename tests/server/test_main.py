"""How a server starts: with settings that are wrong, on a data folder that is, and for whom."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from rag.access.keys import keys_file
from rag.config.load import load_settings
from rag.home import check_data_folder
from server import call_audit, metrics
from server.http import application, auth, clients
from server.main import main
from server.start import start as start_server
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Era, Remote, Start, Wire, World

pytestmark = pytest.mark.slow


SECRET = "sk-" + "zebrafish" * 3
WRONG = {"REFDESK_SEARCH_LIMIT": "many"}
MISTAKE = "REFDESK_SEARCH_LIMIT must be a whole number, not 'many'."
EXPLANATION = (
    f"refdesk can't work, because its configuration is wrong. {MISTAKE} Correct that, then restart refdesk."
)
START_SECONDS = 60  # far more than a start takes


def explanation_of(wire: Wire) -> str:
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


def test_after_a_correction_and_a_restart_the_server_works(
    start: Start, clock_room: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[search]\nlimit = 5 5\n")
    assert refusal(load_settings, config, {}) in explanation_of(
        start(clock_room, env={"REFDESK_CONFIG": str(config)})
    )
    config.write_text("[search]\nlimit = 5\n")
    wire = start(clock_room, env={"REFDESK_CONFIG": str(config)}).begun()
    assert len(wire.tool("search", {"query": "clock"})["structuredContent"]["results"]) == 5
    assert wire.leave(within=START_SECONDS) == 0


@pytest.mark.parametrize(
    ("text", "flags", "words"),  # "" is what load_settings says
    [
        ("[search]\nlimt = 5\n", [], ""),
        ("[principal]\ntenant = 'acme'\n", [], "There is no tenant 'acme' in"),
        (f"[embedder]\napi_key = '{SECRET}'\n", [], ""),
        (f"[embedder]\napi_key_env = '{SECRET}'\n", [], ""),
        ("", ["--config", "nowhere.toml"], refusal(load_settings, Path("nowhere.toml"), {})),
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
    words = words or refusal(load_settings, config, {})
    wire = start(clock_room, env={"REFDESK_CONFIG": str(config)}, flags=flags)
    explanation = explanation_of(wire)
    assert words in explanation
    assert SECRET not in explanation
    assert wire.leave(within=START_SECONDS) == 2
    assert words in wire.stderr()
    assert SECRET not in wire.stderr()


def test_a_model_folder_that_is_missing_is_told_and_the_tools_are_listed_all_the_same(
    start: Start, admin: Admin, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    admin("collection", "create", "papers", "--field", "year=integer", "--data", data)
    env = {"REFDESK_EMBEDDER_PROVIDER": "onnx", "REFDESK_EMBEDDER_MODEL": str(tmp_path / "model")}
    wire = start(data, env=env).begun()
    assert [tool["name"] for tool in wire.result("tools/list")["tools"]] == ["search", "get_source"]
    assert str(tmp_path / "model") in wire.tool_error("search", {"query": "clock"})


@pytest.mark.parametrize("flags", [["--http"], ["--http", "--tenat"], ["--http", "--port", "many"]])
def test_a_wrong_setting_ends_a_server_that_listens_at_once(scripts: Scripts, flags: list[str]) -> None:
    run = scripts.serve(*flags, env=WRONG)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)


def test_a_wrong_setting_ends_a_server_without_a_host_at_once(scripts: Scripts) -> None:
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


def test_a_person_at_a_terminal_reads_what_refdesk_is_and_does_not_wait(
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


@pytest.fixture(scope="module")
def drive(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose only tenant has a name of its own. Tests move it to where it belongs."""
    folder = tmp_path_factory.mktemp("drive")
    note = folder / "note.md"
    note.write_text("# Note\n\nThe pendulum swings.\n")
    admin("tenant", "create", "acorn", "--data", folder / "data")
    admin("ingest", note, "--data", folder / "data")
    return folder / "data"


def titles(reply: dict[str, Any]) -> list[str]:
    return [hit["cite_as"] for hit in reply["structuredContent"]["results"]]


def ask(wire: Wire) -> str:
    return wire.tool_error("search", {"query": "pendulum"})


def test_a_folder_that_the_first_ingestion_makes_is_searched_without_a_restart(
    admin: Admin, start: Start, tmp_path: Path
) -> None:
    data, note = tmp_path / "not" / "there", tmp_path / "note.md"
    note.write_text("# Note\n\nThe pendulum swings.\n")
    wire = start(data).begun()
    assert ask(wire).startswith(refusal(check_data_folder, data))
    assert str(data) in wire.tool_error("get_source", {"id": "a" * 16})
    assert str(data) in wire.error("resources/list")["message"]
    assert [tool["name"] for tool in wire.result("tools/list")["tools"]] == ["search", "get_source"]
    assert not data.parent.exists()
    admin("ingest", note, "--data", data)
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]
    assert wire.leave() == 0
    assert f"{data}." in wire.stderr().splitlines()[0]


def test_a_drive_that_is_mounted_later_brings_its_tenant_with_it(
    start: Start, tmp_path: Path, drive: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    wire = start(mounted).begun()
    assert ask(wire).startswith(refusal(check_data_folder, mounted))
    mounted.rmdir()
    mounted.symlink_to(drive)
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]
    mounted.unlink()
    assert ask(wire).startswith(refusal(check_data_folder, mounted))  # and not: run the doctor
    mounted.symlink_to(drive)
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]


def test_a_file_in_the_place_of_the_folder_is_named_as_one(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n")
    wire = start(file).begun()
    assert ask(wire).startswith(refusal(check_data_folder, file))
    assert wire.leave() == 0
    assert refusal(check_data_folder, file) in wire.stderr()


def test_a_server_that_listens_says_so_and_is_not_ready_until_the_folder_is_there(
    listen: Callable[..., Remote], tmp_path: Path, drive: Path
) -> None:
    mounted = tmp_path / "mounted"
    remote = listen(mounted, probe="/healthz", http_authentication="[]")
    assert refusal(check_data_folder, mounted) in remote.noise.read_text()
    assert remote.tool("", "search", query="pendulum")["isError"] is True
    probes = [f"{remote.base}/readyz", f"http://127.0.0.1:{remote.metrics_port}/readyz"]

    def ready() -> set[int]:
        return {httpx2.get(probe).status_code for probe in probes}

    assert ready() == {503}
    mounted.symlink_to(drive)
    assert titles(remote.tool("", "search", query="pendulum")) == ["Note"]
    assert ready() == {200}
    mounted.unlink()
    assert ready() == {503}


@pytest.mark.parametrize("part", ["tenants", "keys.json"])
def test_a_server_over_http_ends_with_one_line_where_the_folder_is_another_users(
    plain_folder: Path, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert all(
        (start_server, application, auth, clients, call_audit, metrics)
    )  # imported while root may read them
    monkeypatch.setattr("server.main.version", lambda _: "1")  # root's alone, too
    (plain_folder / "tenants").mkdir()
    keys_file(plain_folder).touch()
    (plain_folder / part).chmod(0o000 if part == "tenants" else 0o644)
    (config := plain_folder / "config.toml").touch()
    flags = ["--http", "--port", "1", "--data", str(plain_folder), "--config", str(config)]
    monkeypatch.setattr(sys, "argv", ["refdesk", *flags])
    with pytest.raises(SystemExit) as end:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (end.value.code, str(plain_folder) in line) == (2, True)


@pytest.mark.parametrize(
    ("flags", "titles"),
    [
        ((), {"open"}),
        (("--user", "bob"), {"open"}),
        (("--user", "ann", "--group", "it", "--group", "hr"), {"open", "secret"}),
    ],
)
def test_the_flags_principal_asks_on_standard_input(
    start: Start, world: World, flags: tuple[str, ...], titles: set[str]
) -> None:
    wire = start(world.data, flags=("--tenant", "acorn", *flags)).begun()
    hits = wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]
    assert {hit["cite_as"] for hit in hits} == titles


@pytest.mark.parametrize(
    "flags", [["--user", "ann"], ["--group", "hr"], ["--tenant", "acorn"], ["--user", ""]]
)
def test_where_each_request_says_who_asks_such_flags_are_refused(
    scripts: Scripts, world: World, flags: list[str]
) -> None:
    words = _refusal(scripts, world.data, "--http", *flags)
    assert "Leave them out" in words


def test_a_server_for_many_clients_is_not_started_alone(scripts: Scripts, world: World) -> None:
    assert "--alone is for one host" in _refusal(scripts, world.data, "--http", "--alone")


def test_an_entry_where_a_name_is_wanted_is_refused(scripts: Scripts, world: World) -> None:
    assert "without a prefix: hr, not group:hr" in _refusal(scripts, world.data, "--group", "group:hr")


def _refusal(scripts: Scripts, data: Path, *flags: str) -> str:
    """What the server says when it does not start."""
    run = scripts.serve("--data", data, *flags)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    return run.stderr
