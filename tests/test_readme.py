"""The README gets a newcomer started: its commands, its entries for hosts, its map of the code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.admin.main import COMMANDS

if TYPE_CHECKING:
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAX_LINES = 150


def blocks(language: str) -> list[str]:
    code = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in code if name == language]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES


def test_the_readme_lists_every_command() -> None:
    rows = re.findall(r"^\| (`refdesk-admin .*?`) \|", README, re.MULTILINE)
    named = [call.removeprefix("refdesk-admin ") for row in rows for call in re.findall("`(.*?)`", row)]
    assert {call.split()[0] for call in named} == set(COMMANDS)


def test_the_set_up_command_installs_refdesk_and_runs_the_demo() -> None:
    command, *_ = (line for line in "".join(blocks("sh")).splitlines() if line.startswith("python3 "))
    assert command == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/refdesk-admin demo"


def test_the_test_command_installs_the_development_extras_and_runs_the_tests() -> None:
    (command,) = (line for line in "".join(blocks("sh")).splitlines() if "pytest" in line)
    assert command == 'python3 -m venv .venv && .venv/bin/pip install -e ".[dev]" && .venv/bin/pytest -n 3'


def test_the_configurations_for_hosts_name_a_server_to_start() -> None:
    claude, code = (json.loads(block) for block in blocks("json"))
    assert set(claude["mcpServers"]["refdesk"]) == {"command"}
    assert code["servers"]["refdesk"] == {"type": "stdio"} | claude["mcpServers"]["refdesk"]


def test_the_map_of_the_code_names_what_is_there() -> None:
    (listing,) = (block for block in blocks("") if block.startswith("server/"))
    top = ""
    for line in listing.splitlines():
        if line[0] != " ":
            top = line.split()[0]
            assert (ROOT / top).is_dir()
        for name in re.findall(r"(?:^| {2,})(\w+(?:\.py|/))(?= )", line):
            assert (ROOT / (name if line.startswith(name) else f"{top}{name}")).exists(), name


def test_the_map_of_the_code_names_every_folder_of_the_library() -> None:
    (listing,) = (block for block in blocks("") if block.startswith("server/"))
    packages = {path.parent.name for path in (ROOT / "rag").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"(\w+)/", listing))


def test_the_installed_commands_are_on_the_machine(scripts: Scripts) -> None:
    for name in ("refdesk", "refdesk-admin"):
        assert os.access(scripts.folder / name, os.X_OK)
