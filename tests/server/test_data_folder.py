"""A server on a wrong data folder says so, and searches the right one as soon as it is there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from rag.access.keys import keys_file
from server.http import application, auth, callers, listening
from server.main import main
from server.telemetry import call_audit, metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Era, Remote, Start, Wire

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def drive(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose only tenant has a name of its own. Tests move it to where it belongs."""
    folder = tmp_path_factory.mktemp("drive")
    note = folder / "note.md"
    note.write_text("# Note\n\nThe pendulum swings.\n")
    assert scripts.admin("tenant", "create", "acorn", "--data", folder / "data").returncode == 0
    assert scripts.admin("ingest", note, "--data", folder / "data").returncode == 0
    return folder / "data"


def titles(reply: dict[str, Any]) -> list[str]:
    return [hit["title"] for hit in reply["structuredContent"]["results"]]


def ask(wire: Wire) -> str:
    return wire.tool_error("search", {"query": "pendulum"})


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_folder_that_the_first_ingestion_makes_is_searched_without_a_restart(
    scripts: Scripts, start: Start, tmp_path: Path, era: Era
) -> None:
    data, note = tmp_path / "not" / "there", tmp_path / "note.md"
    note.write_text("# Note\n\nThe pendulum swings.\n")
    wire = start(data, era=era)
    wire.begin()
    assert ask(wire).startswith(f"There is no data folder {data}.")
    assert str(data) in wire.tool_error("get_source", {"id": "a" * 16})
    assert str(data) in wire.error("resources/list")["message"]
    assert [tool["name"] for tool in wire.result("tools/list")["tools"]] == ["search", "get_source"]
    assert not data.parent.exists()
    assert scripts.admin("ingest", note, "--data", data).returncode == 0
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]
    assert wire.leave() == 0
    assert f"There is no data folder {data}." in wire.stderr().splitlines()[0]


def test_a_drive_that_is_mounted_later_brings_its_tenant_with_it(
    start: Start, tmp_path: Path, drive: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    wire = start(mounted)
    wire.begin()
    assert ask(wire).startswith(f"The data folder {mounted} is empty. If its drive is not mounted, mount it.")
    mounted.rmdir()
    mounted.symlink_to(drive)
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]
    mounted.unlink()
    assert wire.tool("search", {"query": "pendulum"})["isError"] is True
    mounted.symlink_to(drive)
    assert titles(wire.tool("search", {"query": "pendulum"})) == ["Note"]


def test_a_file_in_the_place_of_the_folder_is_named_as_one(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n")
    wire = start(file)
    wire.begin()
    assert ask(wire).startswith(f"The data folder {file} is a file")
    assert wire.leave() == 0
    assert f"The data folder {file} is a file" in wire.stderr()


def test_a_server_that_listens_says_so_and_is_not_ready_until_the_folder_is_there(
    listen: Callable[..., Remote], tmp_path: Path, drive: Path
) -> None:
    mounted = tmp_path / "mounted"
    remote = listen(mounted, probe="/healthz", http_authentication="")
    (told,) = [json.loads(line) for line in remote.noise.read_text().splitlines() if "no data" in line]
    assert told["message"].startswith(f"There is no data folder {mounted}.")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    search = call | {"params": {"name": "search", "arguments": {"query": "pendulum"}}}
    assert remote.post(body=search).json()["result"]["isError"] is True
    probes = [f"{remote.base}/readyz", f"http://127.0.0.1:{remote.metrics_port}/readyz"]

    def ready() -> set[int]:
        return {httpx2.get(probe).status_code for probe in probes}

    assert ready() == {503}
    mounted.symlink_to(drive)
    assert titles(remote.post(body=search).json()["result"]) == ["Note"]
    assert ready() == {200}
    mounted.unlink()
    assert ready() == {503}


@pytest.mark.parametrize("part", ["tenants", "keys.json"])
def test_a_server_over_http_ends_with_one_line_where_the_folder_is_another_users(
    plain_folder: Path, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert all(
        (listening, application, auth, callers, call_audit, metrics)
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
