"""What all commands have in common: help, errors, exit codes, where output goes."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from rag.access.rule import valid_name
from rag.admin.main import COMMANDS, commands
from rag.config.load import load_settings
from rag.uris import NOT_FOUND
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.admin.conftest import Desk, Screen
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

CONTEXT = click.Context(commands)


def every_command(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command
        yield f"{above}{name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{above}{name} ")


EVERY_COMMAND = dict(every_command(commands))
LEAVES = {name: command for name, command in EVERY_COMMAND.items() if not isinstance(command, click.Group)}


def test_the_help_lists_every_command_with_a_whole_sentence(scripts: Scripts) -> None:
    run = scripts.admin("--help")
    assert run.returncode == 0
    listed = [line.split(maxsplit=1) for line in run.stdout.partition("Commands:\n")[2].splitlines()]
    assert [name for name, _ in listed] == list(COMMANDS)
    assert all(what.endswith(".") and not what.endswith("...") for _, what in listed)


def test_an_option_before_its_command_is_told_where_it_belongs(scripts: Scripts) -> None:
    run = scripts.admin("--config", "x.toml", "sync")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith("refdesk-admin COMMAND --config …\n")
    assert "COMMAND" not in scripts.admin("status", "--nothing").stderr


def test_no_path_and_a_pipe_are_no_file(inside: Desk) -> None:
    for path, reason in (("", "path is empty"), ("-", "one called - is ./-")):
        assert reason in inside.misuse("backup", path)
    assert "no data folder" in inside.misuse("backup", "./-")


def test_closed_standard_streams_stop_no_command(scripts: Scripts, tmp_path: Path) -> None:
    data, admin = tmp_path / "data", scripts.folder / "refdesk-admin"
    (tmp_path / "a.md").write_text("# A\n\nWords.\n")
    closed = '"$0" ingest "$1" --data "$2" <&- >&- 2>&-'
    run = subprocess.run(["sh", "-c", closed, admin, tmp_path / "a.md", data], check=False)
    assert run.returncode == 0
    assert (data / "tables").is_dir()


def test_what_the_list_of_commands_says_is_the_beginning_of_each_ones_own_help() -> None:
    short_help = {name: EVERY_COMMAND[name].get_short_help_str(limit=200) for name in COMMANDS}
    assert short_help == {name: help_line for name, (_, help_line) in COMMANDS.items()}


@pytest.mark.parametrize("typed", ["", "s", "--v", "nothing"])
def test_commands_are_completed_as_if_they_were_imported(typed: str) -> None:
    expected = click.Group.shell_complete(commands, CONTEXT, typed)
    completed = commands.shell_complete(CONTEXT, typed)
    assert [(item.value, item.help) for item in completed] == [(item.value, item.help) for item in expected]


@pytest.mark.parametrize(
    ("typed", "meant"), [(["serach"], "search"), (["access", "shwo"], "show"), (["key", "creat"], "create")]
)
def test_a_commands_typo_gets_its_neighbour(inside: Desk, typed: list[str], meant: str) -> None:
    assert f"Did you mean {meant}?" in inside.misuse(*typed)


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_a_command_says_what_it_does_and_what_each_option_means(name: str) -> None:
    command = EVERY_COMMAND[name]
    assert command.help
    assert command.get_short_help_str(65).endswith((".", "”"))
    assert "..." not in command.get_short_help_str(65)
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_takes_the_common_options(name: str) -> None:
    options = {option for parameter in LEAVES[name].params for option in parameter.opts}
    assert {"--json", "--data", "--config"} <= options


def test_a_command_s_help_is_printed_to_standard_output(scripts: Scripts) -> None:
    run = scripts.admin("ingest", "-h")
    assert run.returncode == 0
    assert run.stdout.startswith("Usage: refdesk-admin ingest [OPTIONS] PATHS...")
    assert run.stderr == ""


def test_the_version_is_that_of_the_distribution(scripts: Scripts) -> None:
    assert scripts.admin("--version").stdout == f"refdesk {version('refdesk')}\n"


def test_a_command_that_deletes_is_suggested_for_no_other(inside: Desk) -> None:
    assert "remove?" not in inside.misuse("collection", "rename")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serch"], "No such command 'serch'"),
        (["search", "a", "--modus", "dense"], "No such option '--modus'"),
        (["search", "a", "--mode", "fast"], "'fast' is not one of 'dense', 'sparse', 'hybrid'"),
        (["search", "a", "--limit", "-1"], "-1 is not in the range 0<=x<=100"),
        (["ingest", "x.md", "--collection", "My Notes"], refusal(valid_name, "My Notes")),
        (["remove"], "Missing argument 'ID|PATH...'"),
        (["demo", "notes"], "Give a question about these files"),
        (["status", "--config", "nowhere.toml"], refusal(load_settings, Path("nowhere.toml"), {})),
    ],
)
def test_misuse_is_said_on_standard_error_and_exits_with_2(
    scripts: Scripts, tmp_path: Path, arguments: list[str], words: str
) -> None:
    run = scripts.admin(*arguments, env={"REFDESK_DATA": str(tmp_path / "data")})
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["source", "aaaaaaaaaaaaaaaa"], NOT_FOUND),
        (["sources", "--collection", "handbook"], "There is no collection 'handbook'"),
        (["search", "a", "--collection", "handbook"], "documents."),
        (["remove", "leap.md"], "id or path 'leap.md'"),
    ],
)
def test_what_is_not_there_is_said_in_one_line_and_exits_with_1(
    clock_desk: Desk, arguments: list[str], words: str
) -> None:
    run = clock_desk.run(*arguments, code=1)
    assert run.stderr.startswith("refdesk-admin: ")
    assert words in run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stdout == ""


def test_a_pipe_that_lacks_a_letter_gets_a_question_mark_and_json_is_always_utf_8(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "smile.md").write_text("# A smile 😀\n")
    desk.run("ingest", tmp_path / "smile.md")
    as_on_windows = {"PYTHONIOENCODING": "cp1252", "REFDESK_DATA": str(desk.data)}
    assert desk.scripts.admin("sources", env=as_on_windows).stdout.endswith("A smile ?\n")
    assert "A smile 😀" in desk.scripts.admin("sources", "--json", env=as_on_windows).stdout


def test_a_document_can_t_move_the_cursor_of_a_terminal(desk: Desk, screen: Screen, tmp_path: Path) -> None:
    (tmp_path / "trap.md").write_text(
        "---\nauthor: \x1b[31mNobody\n---\n# A \x1b]0;trap\x07 title\n\nA \x1b[31mred\x1b[0m herring.\n"
    )
    desk.run("ingest", tmp_path / "trap.md")
    (source,) = desk.sources()
    code, output = screen("source", source["id"], "--text", "--data", desk.data)
    assert code == 0, output
    assert "trap" in output
    assert "Nobody" in output
    assert "\x07" not in output
    assert "\x1b" not in output
