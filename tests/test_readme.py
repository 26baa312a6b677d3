"""The README promises nothing that isn't there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from rag.admin.main import COMMANDS, commands
from rag.config.load import environment_name, load_settings, setting_keys
from rag.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Scripts

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = (ROOT / "config.example.toml").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def admin_calls() -> Iterator[list[str]]:
    """Every call of refdesk-admin in a shell block or between backticks, as its arguments."""
    for text in [*re.findall(r"`([^`\n]+)`", README), *"".join(blocks("sh")).splitlines()]:
        for part in text.split("&&"):
            _, called, arguments = part.partition("refdesk-admin")
            if called:
                yield shlex.split(arguments)


def options_of(arguments: list[str]) -> set[str]:
    """The options of the command that the arguments call, or of its command run where they name none."""
    command: click.Command = commands
    for name in arguments:
        if isinstance(command, click.Group):
            here = click.Context(command)
            command = command.get_command(here, name) or command.get_command(here, "run") or command
    assert not isinstance(command, click.Group), arguments
    return {option for parameter in command.params for option in parameter.opts}


def test_its_commands_and_their_options_exist() -> None:
    calls = [call for call in admin_calls() if call]
    assert len(calls) > 8
    for arguments in calls:
        given = {argument for argument in arguments if argument.startswith("-")}
        assert given <= options_of(arguments), arguments


def test_its_table_of_commands_is_complete() -> None:
    rows = re.findall(r"^\| (`refdesk-admin .*?`) \|", README, re.MULTILINE)
    named = [call.removeprefix("refdesk-admin ") for row in rows for call in re.findall("`(.*?)`", row)]
    assert {call.split()[0] for call in named} == set(COMMANDS)


def test_its_test_command_installs_the_development_extras_and_runs_the_tests() -> None:
    (command,) = (line for line in "".join(blocks("sh")).splitlines() if "pytest" in line)
    assert command == 'python3 -m venv .venv && .venv/bin/pip install -e ".[dev]" && .venv/bin/pytest'


def test_its_settings_are_real(tmp_path: Path) -> None:
    assert blocks("toml")
    for number, block in enumerate(blocks("toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        assert load_settings(file, {}) != Settings()


@pytest.mark.parametrize("text", [README, EXAMPLE], ids=["README.md", "config.example.toml"])
def test_the_environment_variables_and_sections_that_are_named_are_real(text: str) -> None:
    known = {environment_name(keys) for keys in setting_keys()} | {"REFDESK_CONFIG"}
    named = set(re.findall(r"REFDESK_[A-Z_]+", text))
    assert named
    assert named <= known
    assert set(re.findall(r"(?<!`)`?\[(\w+)\]`?$", text, re.MULTILINE)) <= set(Settings.model_fields)


def test_its_configurations_for_hosts_name_a_server_to_start() -> None:
    claude, code = (json.loads(block) for block in blocks("json"))
    assert set(claude["mcpServers"]["refdesk"]) == {"command"}
    assert code["servers"]["refdesk"] == {"type": "stdio"} | claude["mcpServers"]["refdesk"]


def test_its_programs_find_something(clock_room: Path, scripts: Scripts, tmp_path: Path) -> None:
    program, tools = blocks("python")
    with_tools = f"{tools}\nprint(await search('who may sign?'))\nprint(answer.hits[0])"
    body = textwrap.indent(program + textwrap.indent(with_tools, "    "), "    ")
    whole = f"import anyio\nasync def main():\n{body}\nanyio.run(main)"
    (tmp_path / "refdesk").symlink_to(clock_room)
    environment = scripts.environment | {"XDG_DATA_HOME": str(tmp_path)}
    command = [sys.executable, "-c", whole]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    context, reply, hit = run.stdout.partition('{"results":[{"id"')
    assert re.match(r"\[[a-z2-7]{16}/\d+\]\n", context), run.stderr
    assert reply
    assert "\nHit(chunk=Chunk(" in hit


def test_its_listing_of_folders_names_what_is_there() -> None:
    (listing,) = (block for block in blocks("") if block.startswith("server/"))
    top = ""
    for line in listing.splitlines():
        if line[0] != " ":
            top = line.split()[0]
            assert (ROOT / top).is_dir()
        for name in re.findall(r"(?:^| {2,})(\w+(?:\.py|/))(?= )", line):
            assert (ROOT / (name if line.startswith(name) else f"{top}{name}")).exists(), name


def test_its_links_within_the_project_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {"#" + heading.lower().replace(" ", "-") for heading in headings}
    for link in links:
        assert link in anchors or (ROOT / link).exists(), link


def test_its_installed_commands_are_on_the_machine(scripts: Scripts) -> None:
    for name in ("refdesk", "refdesk-admin"):
        assert os.access(scripts.folder / name, os.X_OK)
