"""refdesk-admin connect: an assistant's host gets this desk, and keeps all else that its owner wrote."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from rag.admin.connect.connect_command import connect_command
from rag.admin.connect.host_config import HostFile
from rag.admin.connect.known_hosts import HOSTS, Folders
from rag.admin.connect.text_edits import NO_TABLES, parse_json, put_json, put_yaml
from rag.config.server_settings import ServerSettings
from rag.home import check_data_folder
from rag.search.agents import skill, skill_name
from rag.search.reply.search_reply import HitRecord, SearchReply
from rag.search.reply.source_reply import SourceReply
from server.start import EXPLANATION
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.admin.conftest import Desk, Run, Screen
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow


NO_LINES = refusal(put_yaml, "extensions: {x: {a: 1}}\n", ("extensions", "x"), {})
NOWHERE = refusal(check_data_folder, Path("/nowhere"))
SAME_ENTRY = "has this entry already."
NO_OBJECT = refusal(put_json, '{"mcpServers": []}', ("mcpServers", "refdesk"), {})
NO_TEXT = "is not text in UTF-8"
NO_ADDRESS = "is not an address like https://desk.example.com/mcp."
UNREACHED = "The server can't be reached:"
URL = "https://desk.example/mcp"
KEY = "rd_key_secret"
HAS_KEY = "still has a key of "


@pytest.fixture
def home(inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of somebody whose name is not ASCII, in which all hosts were started before."""
    assert inside
    folder = tmp_path / "Zoë B" / "hôme"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for moved in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(moved, raising=False)
    for host in HOSTS:
        file_of(host, folder).parent.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def http_desk(clock_desk: Desk, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server over HTTP with the demo corpus: its address, and a key."""
    data = shutil.copytree(clock_desk.data, tmp_path / "served")
    key = replace(clock_desk, data=data).run("key", "create").stdout.strip()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [clock_desk.scripts.forked_server, "--http", "--port", str(port), "--data", str(data)]
    environment = clock_desk.scripts.environment | {"REFDESK_HTTP_METRICS_PORT": "0"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp", key
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    for _ in range(1200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail("the server did not start")


def file_of(host: str, home: Path) -> Path:
    return HOSTS[host].file(Folders(sys.platform, home, {}))


def written(path: Path) -> Any:  # noqa: ANN401 any configuration
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def test_the_help_names_every_host() -> None:
    listed = (connect_command.help or "").partition("HOST is ")[2].partition(".")[0]
    assert {*listed.replace(",", " ").split()} == {*HOSTS, "or"}


@pytest.mark.parametrize("host", HOSTS)
def test_each_host_gets_an_entry_once_and_loses_it_again(inside: Desk, home: Path, host: str) -> None:
    path, section = file_of(host, home), HOSTS[host].section
    assert inside.run("connect", host, "--yes").stdout == f"Added refdesk to {HOSTS[host].title}.\n"
    (entry,) = written(path)[section].values()
    command = entry.get("command") or entry["cmd"]
    assert command == inside.scripts.server
    assert entry["args"] == ["--data", str(inside.data)]
    before = path.read_bytes()
    assert inside.run("connect", host).stdout == f"{HOSTS[host].title} {SAME_ENTRY}\n"
    assert path.read_bytes() == before
    inside.run("connect", host, "--remove")
    assert not written(path).get(section)
    assert "has no entry refdesk. It has none." in inside.failure("connect", host, "--remove")


def test_settings_tenant_and_user_come_along_as_absolute_paths(
    inside: Desk, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFDESK_SEARCH_LIMIT", "5")
    Path("mine.toml").write_text('[principal]\nuser = "bob"\n')
    asker = ("--tenant", "acme", "--user", "ann", "--group", "hr", "--group", "it")
    inside.run("connect", "cursor", "--config", "mine.toml", *asker)
    entry = written(file_of("cursor", home))["mcpServers"]["refdesk"]
    assert entry["args"] == ["--config", str(tmp_path / "mine.toml"), "--data", str(inside.data), *asker]
    assert entry["env"] == {"REFDESK_SEARCH_LIMIT": "5"}


MINE = """\
// Mine
{
    "servers": {
        "git": {"command": "git-mcp"} // pinned
    },
}
"""


def test_what_changes_is_shown_and_the_file_as_it_was_is_kept(inside: Desk, home: Path) -> None:
    path = file_of("vscode", home)
    path.write_text(MINE)
    run = inside.run("connect", "vscode")
    backup = path.with_name("mcp.json.before-refdesk")
    assert run.stdout == f"Added refdesk to VS Code. The oldest copy of the file is {backup}.\n"
    assert backup.read_text() == MINE
    added = [line[1:] for line in run.stderr.splitlines() if line.startswith("+")]
    assert added[0] == '        "git": {"command": "git-mcp"}, // pinned'
    assert path.read_text().splitlines()[4:-2] == added[1:]
    inside.run("connect", "vscode", "--remove")
    assert path.read_text() == MINE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "mcpServers": {"fs": {"command": "npx"}},\n}\n', "line 3"),
        ('{\n  // mine\n  "mcpServers": {}\n}\n', "line 2"),
    ],
)
def test_a_file_that_its_host_can_not_read_is_named_with_the_line_and_stays(
    inside: Desk, home: Path, text: str, line: str
) -> None:
    path = file_of("claude-desktop", home)
    path.write_text(text)
    for options in ("--yes", "--check"):
        told = inside.misuse("connect", "claude-desktop", options)
        assert f"Claude Desktop can't read {path}: " in told
        assert line in told
    assert path.read_text() == text
    assert re.search("claude-desktop +can't be read", inside.run("connect").stdout)


def test_the_first_original_is_kept_however_often_it_is_changed(inside: Desk, home: Path) -> None:
    path = file_of("vscode", home)
    path.write_text(MINE)
    path.chmod(0o640)
    backup = path.with_name("mcp.json.before-refdesk")
    for options in ([], ["--user", "ann", "--yes"], ["--name", "hr"], ["--remove", "--name", "hr"]):
        assert str(backup) in inside.run("connect", "vscode", *options).stdout
        assert backup.read_text() == MINE
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder"])
def test_nothing_is_written_through_a_link_in_the_place_of_the_copy(
    inside: Desk, home: Path, tmp_path: Path, kind: str
) -> None:
    path, precious = file_of("vscode", home), tmp_path / "precious"
    path.write_text(MINE)
    backup = path.with_name("mcp.json.before-refdesk")
    if kind == "folder":
        backup.mkdir()
    else:
        backup.symlink_to(precious)
    if kind == "link":
        precious.write_text("precious")
    run = inside.run("connect", "vscode", code=2)
    assert str(backup) in run.stderr
    assert path.read_text() == MINE
    assert precious.exists() == (kind == "link")
    assert kind != "link" or precious.read_text() == "precious"


def test_two_desks_stand_beside_each_other_under_two_names(inside: Desk, home: Path) -> None:
    inside.run("connect", "codex")
    inside.run("connect", "codex", "--name", "hr-desk", "--user", "ann")
    servers = written(file_of("codex", home))["mcp_servers"]
    assert [len(entry["args"]) for entry in servers.values()] == [2, 4]
    listed = inside.json("connect")["hosts"]
    assert [entry["state"] for entry in listed if entry["host"] == "codex"] == ["connected: refdesk, hr-desk"]
    assert {entry["state"] for entry in listed if entry["host"] != "codex"} == {"not connected", "not found"}


def test_another_entry_of_the_same_name_is_replaced_only_on_demand(inside: Desk, home: Path) -> None:
    path = file_of("claude-desktop", home)
    path.write_text('{"mcpServers": {"refdesk": {"command": "other"}, "x": {}}}')
    run = inside.run("connect", "claude-desktop", code=2)
    assert "Claude Desktop has another entry refdesk already. Give this one another --name" in run.stderr
    assert written(path)["mcpServers"]["refdesk"] == {"command": "other"}
    assert inside.run("connect", "claude-desktop", "--yes").stdout.startswith("Replaced refdesk in Claude")
    assert written(path)["mcpServers"].keys() == {"refdesk", "x"}
    assert written(path)["mcpServers"]["refdesk"]["command"] == inside.scripts.server


@pytest.mark.parametrize(("host", "env"), [("cursor", "env"), ("codex", "env"), ("goose", "envs")])
def test_what_a_person_or_the_host_set_beside_the_entry_stays(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch, host: str, env: str
) -> None:
    path, section = file_of(host, home), HOSTS[host].section
    inside.run("connect", host)
    file = HostFile.read(path)
    theirs = {"disabled": True, "timeout": 7, env: {"OPENAI_API_KEY": "sk", "REFDESK_SEARCH_LIMIT": "3"}}
    path.write_text(file.edited({(section, "refdesk"): file.at((section, "refdesk")) | theirs}))
    monkeypatch.setenv("REFDESK_SEARCH_MODE", "dense")
    inside.run("connect", host, "--user", "ann", "--yes")
    entry = written(path)[section]["refdesk"]
    assert (entry["disabled"], entry["timeout"], entry["args"][-1]) == (True, 7, "ann")
    assert entry[env] == {"OPENAI_API_KEY": "sk", "REFDESK_SEARCH_MODE": "dense"}
    assert SAME_ENTRY in inside.run("connect", host, "--user", "ann").stdout
    inside.run("connect", host, "--remote", URL, "--yes")
    entry = written(path)[section]["refdesk"]
    assert entry["disabled"] is True
    assert "OPENAI_API_KEY" not in str(entry)
    assert "args" not in entry
    assert "cmd" not in entry


def test_what_came_out_otherwise_than_meant_is_not_written(inside: Desk, home: Path) -> None:
    path = file_of("codex", home)
    text = "mcp_servers = { refdesk = { command = 'a' } }\n"
    path.write_text(text)
    for arguments in (["--remove"], ["--yes"]):
        run = inside.run("connect", "codex", *arguments, code=2)
        assert "can't be changed" in run.stderr
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("host", "content", "why"),
    [
        ("cursor", b'{"mcpServers": {', refusal(parse_json, '{"mcpServers": {')),
        ("cursor", b'{\n"mcpServers": {},\n!}', "line 3 column 1"),
        ("cursor", b"[]", "doesn't hold an object"),
        ("cursor", b'{"mcpServers": []}', NO_OBJECT),
        ("cursor", b'{"mcpServers": "none"}', NO_OBJECT),
        ("cursor", '{"a": "ü"}'.encode("latin-1"), NO_TEXT),
        ("cursor", '{"a": 1}'.encode("utf-16"), NO_TEXT),
        ("codex", b"[mcp_servers", "can't be understood"),
        ("codex", b"mcp_servers = {}\n", NO_TABLES.format("mcp_servers")),
        ("codex", b"mcp_servers.refdesk.command = 'x'\n", NO_TABLES.format("mcp_servers")),
        ("goose", b"extensions: {x: {a: 1}}\n", NO_LINES),
        ("goose", b"a: [", "can't be understood"),
    ],
)
def test_a_file_that_can_t_be_changed_with_certainty_is_left_alone(
    inside: Desk, home: Path, host: str, content: bytes, why: str
) -> None:
    path = file_of(host, home)
    path.write_bytes(content)
    run = inside.run("connect", host, "--yes", code=2)
    assert why in run.stderr
    assert run.stderr.endswith(f"Mend {path.name}, or add by hand what --print shows.\n")
    assert path.read_bytes() == content
    assert [*path.parent.iterdir()] == [path]
    printed = inside.run("connect", host, "--print")
    assert printed.stderr == f"For {HOSTS[host].title}, in {path}:\n"
    assert inside.scripts.server in printed.stdout


def test_a_byte_order_mark_and_windows_line_ends_stay(inside: Desk, home: Path) -> None:
    path = file_of("zed", home)
    path.write_bytes(b'\xef\xbb\xbf{\r\n\t"theme": "One"\r\n}\r\n')
    inside.run("connect", "zed")
    changed = path.read_bytes()
    assert changed.startswith(b'\xef\xbb\xbf{\r\n\t"theme": "One",\r\n\t"context_servers": {\r\n')
    assert changed.count(b"\n") == changed.count(b"\r\n") == 12
    assert written(path)["context_servers"]["refdesk"]["command"] == inside.scripts.server


@pytest.mark.parametrize("content", [b"", b" \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_like_none(inside: Desk, home: Path, content: bytes) -> None:
    for host in ("lm-studio", "codex", "goose"):
        path = file_of(host, home)
        path.write_bytes(content)
        inside.run("connect", host)
        assert written(path)[HOSTS[host].section]


def test_a_link_into_dotfiles_stays_a_link_and_what_it_leads_to_is_changed(
    inside: Desk, home: Path, tmp_path: Path
) -> None:
    dotfiles = tmp_path / "dotfiles" / "gemini.json"
    dotfiles.parent.mkdir()
    dotfiles.write_text("{}\n")
    dotfiles.chmod(0o640)
    path = file_of("gemini-cli", home)
    path.symlink_to(dotfiles)
    inside.run("connect", "gemini-cli")
    assert path.readlink() == dotfiles
    assert written(dotfiles)["mcpServers"]
    assert dotfiles.stat().st_mode & 0o777 == 0o640
    assert [*dotfiles.parent.iterdir()] == [dotfiles]  # no backup lies in the repository


def test_a_read_only_file_and_one_that_changes_in_the_meantime_are_left_alone(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of("claude-code", home)
    path.write_text("{}")
    path.chmod(0o444)
    assert f"{path} is read-only." in inside.misuse("connect", "claude-code")
    path.chmod(0o600)
    copy = shutil.copystat

    def host_writes(*names: Any, **options: Any) -> None:  # noqa: ANN401 as copystat takes them
        copy(*names, **options)
        path.write_text('{"numStartups": 2}')

    monkeypatch.setattr(shutil, "copystat", host_writes)
    run = inside.run("connect", "claude-code", code=2)
    assert run.stderr.endswith(f"{path} changed in the meantime. Run the command again.\n")
    assert written(path) == {"numStartups": 2}
    assert not [*home.glob("..claude.json.*")]


def test_a_key_stays_in_a_variable_where_the_host_can_read_one(inside: Desk, home: Path) -> None:
    for host in ("claude-code", "cursor", "windsurf", "gemini-cli", "codex", "goose"):
        preview = inside.run("connect", host, "--remote", URL, "--name", "hr-desk", "--print").stderr
        run = inside.run("connect", host, "--remote", URL, "--name", "hr-desk", "--yes")
        for advice in (preview, run.stderr):
            assert f"Set MCP_HR_DESK_KEY to the key where {HOSTS[host].title} is started from.\n" in advice
        assert "MCP_HR_DESK_KEY" in file_of(host, home).read_text()


def test_vs_code_asks_for_the_key_itself(inside: Desk, home: Path) -> None:
    path = file_of("vscode", home)
    path.write_text('{\n  "inputs": [\n    {"id": "other"} // mine\n  ]\n}\n')
    run = inside.run("connect", "vscode", "--remote", URL)
    assert "VS Code will ask for the key and keep it." in run.stderr
    assert '{"id": "other"}, // mine' in path.read_text()
    config = json.loads(path.read_text().replace("// mine", ""))
    assert config["servers"]["refdesk"]["headers"] == {"Authorization": "Bearer ${input:MCP_REFDESK_KEY}"}
    question = {"id": "MCP_REFDESK_KEY", "type": "promptString", "password": True}
    assert question.items() <= config["inputs"][1].items()
    inside.run("connect", "vscode", "--remove")
    assert '{"id": "other"} // mine\n  ]' in path.read_text()


def test_no_key_and_no_secret_of_another_server_is_shown_however_an_entry_changes(
    inside: Desk, home: Path
) -> None:
    path = file_of("cursor", home)
    neighbour = {"command": "other", "env": {"TOKEN": "of-the-other"}}
    ours = {"url": URL, "headers": {"Authorization": "Bearer the-former-key"}}
    path.write_text(json.dumps({"mcpServers": {"other": neighbour, "refdesk": ours}}, indent=2))
    replaced = inside.run("connect", "cursor", "--yes")
    assert "replaced" in replaced.stdout.lower()
    path.write_text(json.dumps({"mcpServers": {"other": neighbour, "refdesk": ours}}, indent=2))
    removed = inside.run("connect", "cursor", "--remove", "--yes")
    assert "refdesk" not in json.loads(path.read_text())["mcpServers"]
    for run in (replaced, removed):
        assert '"Authorization": "…"' in run.stderr
        assert "the-former-key" not in run.stdout + run.stderr
        assert "of-the-other" not in run.stdout + run.stderr
    assert "of-the-other" in path.read_text()  # the control


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "vscode"])
def test_a_copy_with_a_key_of_the_entry_is_named_wherever_the_host_keeps_the_key(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    backup = Path(f"{file_of(host, home)}.before-refdesk")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    added = inside.run("connect", host, "--remote", URL, "--key-in", "file", "--yes")
    assert not backup.exists()
    assert str(backup) not in added.stderr
    removed = inside.run("connect", host, "--remove", "--yes")
    assert KEY in backup.read_text()
    assert f"{backup} {HAS_KEY}" in removed.stderr


@pytest.mark.parametrize("host", [name for name, host in HOSTS.items() if host.reference])
def test_a_copy_without_a_key_of_the_entry_is_not_said_to_have_one(
    inside: Desk, home: Path, host: str
) -> None:
    path = file_of(host, home)
    inside.run("connect", host, "--yes")
    inside.run("connect", host, "--remote", URL, "--name", "two", "--yes")
    inside.run("connect", host, "--remote", URL, "--name", "three", "--yes")
    for name in ("two", "three"):
        assert HAS_KEY not in inside.run("connect", host, "--remove", "--name", name, "--yes").stderr
    path.with_name(f"{path.name}.before-refdesk").unlink()
    inside.run("connect", host, "--remote", URL, "--yes")
    assert HAS_KEY not in inside.run("connect", host, "--remove", "--yes").stderr


def test_a_copy_is_named_for_a_former_key_and_not_for_that_of_another_server(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of("cursor", home)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\nrd_key_new\n"))
    to_file = ("connect", "cursor", "--remote", URL, "--key-in", "file", "--yes")
    inside.run(*to_file)
    assert HAS_KEY not in inside.run("connect", "cursor", "--name", "local", "--yes").stderr
    assert HAS_KEY not in inside.run("connect", "cursor", "--name", "local", "--remove", "--yes").stderr
    assert HAS_KEY in inside.run(*to_file).stderr
    assert KEY not in path.read_text()
    assert HAS_KEY in inside.run("connect", "cursor", "--remove", "--yes").stderr


def test_the_inputs_of_vs_code_are_a_list_also_where_there_were_none(inside: Desk, home: Path) -> None:
    path = file_of("vscode", home)
    for before in (None, "{}", '{"inputs": {"0": {"id": "MCP_REFDESK_KEY"}}}'):
        path.unlink(missing_ok=True)
        if before is not None:
            path.write_text(before)
        inside.run("connect", "vscode", "--remote", URL)
        (question,) = json.loads(path.read_text())["inputs"]
        assert (question["id"], question["type"]) == ("MCP_REFDESK_KEY", "promptString")
        inside.run("connect", "vscode", "--remove")
        assert not json.loads(path.read_text()).get("inputs")


def test_an_address_that_is_empty_is_no_local_server(inside: Desk, home: Path) -> None:
    assert f"'' {NO_ADDRESS}" in inside.misuse("connect", "cursor", "--remote", "")
    assert not file_of("cursor", home).exists()


def test_ctrl_c_at_the_question_writes_nothing(screen: Screen, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    question = {"interrupt_at": b"Write this?", "impatient": True}
    code, screen_text = screen("connect", "cursor", "--data", tmp_path / "data", **question, env=env)
    assert code == 130
    assert "Added" not in screen_text
    assert not (tmp_path / ".cursor" / "mcp.json").exists()


@pytest.mark.parametrize("host", ["claude-desktop", "zed", "lm-studio"])
def test_a_key_that_must_stand_in_the_file_is_read_and_not_shown(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    run = inside.run("connect", host, "--remote", URL)
    path = file_of(host, home)
    assert f"Bearer {KEY}" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert KEY not in run.stdout + run.stderr
    assert "chmod" not in run.stderr
    assert "Bearer …" in run.stderr
    printed = inside.run("connect", host, "--remote", URL, "--print").stdout
    assert "Bearer YOUR_KEY" in printed
    for nothing in ("", "\n", "two words\n", "ключ\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(nothing))
        run = inside.run("connect", host, "--remote", URL, "--name", "x", code=2)
        assert "refdesk-admin key create" in run.stderr


def test_a_key_in_a_file_that_others_can_read_is_warned_of(
    inside: Desk, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of("lm-studio", home)
    path.write_text("{}")
    path.chmod(0o644)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    run = inside.run("connect", "lm-studio", "--remote", URL)
    (mended,) = [line for line in run.stderr.splitlines() if "Fix it: " in line]
    assert shlex.split(mended.partition("Fix it: ")[2]) == ["chmod", "600", str(path)]


def test_an_address_is_one_and_its_dangers_are_said(inside: Desk, home: Path) -> None:
    for wrong in (
        "desk.example",
        "ftp://desk.example",
        "https://",
        "https://a b/mcp",
        "https://u:p@a/mcp",
        "http://[",
    ):
        run = inside.run("connect", "cursor", "--remote", wrong, code=2)
        assert NO_ADDRESS in run.stderr
    assert not file_of("cursor", home).exists()
    run = inside.run("connect", "cursor", "--remote", "http://desk.example")
    assert "has no path. refdesk serves at /mcp" in run.stderr
    assert "is not encrypted" in run.stderr
    run = inside.run(
        "connect", "cursor", "--remote", "http://127.0.0.1:8300/mcp", "--key-in", "nowhere", "--yes"
    )
    assert "encrypted" not in run.stderr
    assert written(file_of("cursor", home))["mcpServers"]["refdesk"] == {"url": "http://127.0.0.1:8300/mcp"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["word"], "'word' is not one of 'claude-desktop'"),
        (["cursor", "--print", "--remove"], "Give only one of --print, --link, --remove and --check."),
        (["cursor", "--name", "my desk"], "--name begins with a letter"),
        (["cursor", "--key-in", "file"], "--key-in needs --remote."),
        (["zed", "--link"], "Zed takes no links"),
        (["zed", "--remote", URL, "--key-in", "variable"], "Zed can't take a key from a variable."),
    ],
)
def test_options_of_connect_that_contradict_each_other_are_refused(
    inside: Desk, home: Path, arguments: list[str], words: str
) -> None:
    assert words in inside.misuse("connect", *arguments)
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_links_hold_the_same_entry(inside: Desk, home: Path) -> None:
    for host in ("cursor", "lm-studio"):
        query = parse_qs(urlsplit(inside.run("connect", host, "--link").stdout.strip()).query)
        assert query["name"] == ["refdesk"]
        (config,) = query["config"]
        assert json.loads(base64.b64decode(config)) == inside.json("connect", host, "--print")["entry"]
    link = inside.run("connect", "vscode", "--link", "--remote", URL).stdout.strip()
    assert link.startswith("vscode:mcp/install?%7B")
    whole = json.loads(unquote(link.partition("?")[2]))
    assert (whole["name"], whole["url"], whole["inputs"][0]["id"]) == ("refdesk", URL, "MCP_REFDESK_KEY")
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("answer", "stands"), [("", True), ("n", False)])
def test_on_a_terminal_a_person_sees_the_change_and_decides(
    screen: Screen,
    tmp_path: Path,
    answer: str,
    stands: bool,  # noqa: FBT001 a case
) -> None:
    code, screen_text = screen(
        *("connect", "cursor", "--data", tmp_path / "data"),
        typed={"Write this? [Y/n]": answer},
        env={"HOME": str(tmp_path)},
    )
    assert code == 0
    assert '\x1b[32m+      "command":' in screen_text
    assert ("Added refdesk to Cursor." in screen_text) == stands
    assert (tmp_path / ".cursor" / "mcp.json").exists() == stands


def test_the_key_is_typed_without_being_seen(screen: Screen, tmp_path: Path) -> None:
    code, screen_text = screen(
        *("connect", "zed", "--remote", URL),
        typed={"API key:": KEY, "Write this?": "y"},
        env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert code == 0
    assert KEY in (tmp_path / "zed" / "settings.json").read_text()
    assert KEY not in screen_text


def outside(scripts: Scripts, home: Path, *arguments: str | Path, code: int = 0) -> Run:
    """A run of the installed command for somebody with this home folder."""
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    run = scripts.admin(*arguments, env=environment)
    assert run.returncode == code, run.stderr
    return run


def test_a_check_starts_the_server_as_the_host_would_and_tells_what_it_sees(
    scripts: Scripts, clock_room: Path, tmp_path: Path
) -> None:
    entry = ("connect", "cursor", "--name", "clocks")
    outside(scripts, tmp_path, *entry, "--data", clock_room, "--yes")
    lines = outside(scripts, tmp_path, *entry, "--check").stdout.splitlines()
    reached = r"Cursor reaches refdesk \S+ \(MCP 2026-07-28\), ready after .* s\."
    assert re.fullmatch(reached, lines[0])
    warning = HOSTS["cursor"].hides_tools
    assert lines[1:4] == ["Tools: search, get_source", warning, "You can search 17 documents here:"]
    assert re.match(r"A first search took .* s and found 8 passages, the first from ", lines[-1])


@pytest.mark.parametrize("host", ["codex", "goose"])
def test_a_check_reads_the_entry_of_each_kind_of_file(
    scripts: Scripts, clock_room: Path, tmp_path: Path, host: str
) -> None:
    entry = ("connect", host, "--name", "clocks")
    outside(scripts, tmp_path, *entry, "--data", clock_room, "--yes")
    report = json.loads(outside(scripts, tmp_path, *entry, "--check", "--json").stdout)
    assert (report["tools"], report["passages"]) == (["search", "get_source"], 8)


@pytest.mark.parametrize(
    ("host", "member"), [("claude-code", '"alwaysLoad": true'), ("copilot-cli", '"deferTools": "never"')]
)
def test_a_check_warns_of_an_entry_that_lets_its_host_hide_the_tools(
    scripts: Scripts, clock_room: Path, tmp_path: Path, host: str, member: str
) -> None:
    outside(scripts, tmp_path, "connect", host, "--data", clock_room, "--yes")
    whole = json.loads(outside(scripts, tmp_path, "connect", host, "--check", "--json").stdout)
    path = file_of(host, tmp_path)
    path.write_text(path.read_text().replace(member, '"other": 1'))
    edited = json.loads(outside(scripts, tmp_path, "connect", host, "--check", "--json").stdout)
    assert (whole["hidden_tools"], member in edited["hidden_tools"]) == ("", True)


def test_a_check_of_an_empty_desk_says_what_is_missing(scripts: Scripts, tmp_path: Path) -> None:
    assert scripts.admin("tenant", "create", "default", "--data", tmp_path / "data").returncode == 0
    outside(scripts, tmp_path, "connect", "cursor", "--data", tmp_path / "data", "--yes")
    report = outside(scripts, tmp_path, "connect", "cursor", "--check").stdout
    assert "There are no documents yet that it may read. Add some: refdesk-admin ingest PATH" in report


def test_an_entry_that_could_not_start_is_not_written(inside: Desk, home: Path, tmp_path: Path) -> None:
    for tenant in ("acme", "beta"):
        inside.run("tenant", "create", tenant)
    path = file_of("cursor", home)
    assert "Name one" in inside.misuse("connect", "cursor", "--yes")
    assert "no tenant 'nope'" in inside.misuse("connect", "cursor", "--yes", "--tenant", "nope")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "holiday.jpg").touch()
    elsewhere = replace(inside, data=tmp_path / "elsewhere")
    assert refusal(check_data_folder, elsewhere.data) in elsewhere.misuse("connect", "cursor", "--yes")
    assert not path.exists()
    inside.run("connect", "cursor", "--yes", "--tenant", "beta")
    assert path.exists()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "/nowhere/refdesk"}, f"{UNREACHED} No such file or directory."),
        ({"command": "false"}, f"{UNREACHED} Connection closed."),
        (
            {"command": "refdesk", "args": ["--nonsense"]},
            f"but can't search: {EXPLANATION.partition(' {')[0]}",
        ),
        ({"command": "refdesk", "args": ["--data", "/nowhere"]}, NOWHERE),
        ({"url": "http://127.0.0.1:9/mcp"}, f"{UNREACHED} All connection attempts failed."),
    ],
)
def test_a_check_says_why_a_host_would_see_nothing(
    scripts: Scripts, tmp_path: Path, entry: dict[str, Any], words: str
) -> None:
    if entry.get("command") == "refdesk":
        entry = entry | {"command": scripts.server}
    path = file_of("cursor", tmp_path)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"refdesk": entry}}))
    run = outside(scripts, tmp_path, "connect", "cursor", "--check", code=1)
    assert words in run.stderr
    assert run.stdout == ""


def test_a_check_needs_an_entry_and_the_variables_that_it_names(inside: Desk, home: Path) -> None:
    run = inside.run("connect", "cursor", "--check", code=2)
    assert f"Cursor has no entry refdesk in {file_of('cursor', home)}." in run.stderr
    for host in ("cursor", "codex", "goose"):
        inside.run("connect", host, "--remote", "http://127.0.0.1:9/mcp")
        assert "MCP_REFDESK_KEY is not set here." in inside.misuse("connect", host, "--check")
    file_of("cursor", home).write_text('{"mcpServers": {"refdesk": {}}}')
    assert "neither a command nor an address" in inside.misuse("connect", "cursor", "--check")


def test_a_check_goes_to_an_address_with_the_key_in_the_way_of_each_host(
    inside: Desk, clock_desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch, http_desk: tuple[str, str]
) -> None:
    url, key = http_desk
    assert clock_desk
    assert home
    for host in ("claude-code", "cursor", "codex", "goose", "windsurf", "gemini-cli"):
        inside.run("connect", host, "--remote", url, "--yes")
        monkeypatch.setenv("MCP_REFDESK_KEY", key)
        assert inside.json("connect", host, "--check")["passages"] == 8
        monkeypatch.setenv("MCP_REFDESK_KEY", f"{key}x")
        assert UNREACHED in inside.failure("connect", host, "--check")
    inside.run("connect", "vscode", "--remote", url)
    for host in ("zed", "vscode", "lm-studio"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{key}\n"))
        if host != "vscode":
            inside.run("connect", host, "--remote", url)
        assert inside.json("connect", host, "--check")["passages"] == 8


def test_after_an_ingestion_a_person_reads_how_to_connect_until_a_host_is(
    screen: Screen, tmp_path: Path, corpus: Path
) -> None:
    env = {"HOME": str(tmp_path)}
    ingest = ("ingest", corpus / "glossary.txt", "--data", tmp_path / "my data")
    line = f"Connect an assistant: refdesk-admin connect {{}} --data '{tmp_path}/my data'"
    assert screen(*ingest, env=env)[1].splitlines()[-1] == line.format("HOST")
    (tmp_path / ".cursor").mkdir()
    screen_text = screen(*ingest, env=env)[1]
    assert screen_text.splitlines()[-1] == line.format("cursor")
    screen("connect", "cursor", "--yes", "--data", tmp_path / "my data", env=env)
    assert "Connect an assistant" not in screen(*ingest, env=env)[1]


def test_a_new_key_comes_with_what_its_host_needs(inside: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = inside.run("key", "create").stderr
    assert (
        "Where the assistant runs: refdesk-admin connect HOST --remote http://127.0.0.1:8300/mcp\n" in advice
    )
    assert "That address is for this machine only. For others, set http.public_url.\n" in advice
    monkeypatch.setenv("REFDESK_HTTP_PUBLIC_URL", "https://desk.example")
    advice = inside.run("key", "create").stderr
    assert "--remote https://desk.example/mcp\n" in advice
    assert "this machine only" not in advice
    assert "Authorization" not in inside.run("key", "create", "--json").stderr


def test_the_installed_command_connects_a_host(scripts: Scripts, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    refused = scripts.admin("connect", "goose", env=environment)
    assert refused.returncode == 2
    assert "seems not to be installed here" in refused.stderr
    assert not (tmp_path / "goose").exists()
    run = scripts.admin("connect", "goose", "--yes", env=environment)
    assert run.returncode == 0, run.stderr
    assert os.access(written(tmp_path / "goose" / "config.yaml")["extensions"]["refdesk"]["cmd"], os.X_OK)
    listed = scripts.admin("connect", env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert "goose           connected: refdesk  " in listed.stdout


GOLDEN = Path(__file__).parents[1] / "server" / "data" / "tools_list.json"
CODE = re.compile(r"`([^`]+)`")


@pytest.fixture
def tools() -> dict[str, Any]:
    """The tools that hosts see, by their names."""
    listed = json.loads(GOLDEN.read_text())
    return {tool["name"]: tool["inputSchema"]["properties"] for tool in listed}


def test_the_skill_names_tools_arguments_and_parts_of_replies_that_exist(tools: dict[str, Any]) -> None:
    arguments = {name for properties in tools.values() for name in properties}
    replies = {name for reply in (HitRecord, SearchReply, SourceReply) for name in reply.model_fields}
    named = set(CODE.findall(skill("refdesk", ServerSettings().tools)))
    assert {"search", "get_source", "query", "cite_as", "id", "next_start", "exact"} <= named
    assert named - tools.keys() - arguments - replies == {"exact"}
    assert "exact" in tools["search"]["mode"]["enum"]
    assert {"query", "limit", "collections", "sources", "filter", "mode"} <= tools["search"].keys()
    assert {"id", "outline", "section", "start"} <= tools["get_source"].keys()


def test_the_skill_has_at_most_60_lines(inside: Desk) -> None:
    text = inside.run("connect", "--skill", "--name", "hr-desk").stdout
    assert len(text.splitlines()) <= 60
    _, front, body = text.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter.keys() == {"name", "description"}
    assert matter["name"] == "hr-desk"
    assert len(matter["description"]) < 1024  # as Claude Code's format has it
    assert body.startswith("\n# ")
    assert inside.json("connect", "--skill", "--name", "hr-desk")["skill"] == text


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("refdesk", "refdesk"),
        ("HR-Desk", "hr-desk"),
        ("Acorn's  desk!", "acorn-s-desk"),
        ("钟", "refdesk"),
        ("2024", "desk-2024"),
    ],
)
def test_the_skill_has_a_name_as_its_format_wants_it_whatever_the_server_s(server: str, name: str) -> None:
    assert skill_name(server) == name
    text = skill(f"{server}\x07", ServerSettings().tools)
    matter = yaml.safe_load(text.split("---\n")[1])
    assert matter["name"] == name
    assert server.split(maxsplit=1)[0] in matter["description"]


def test_the_skill_names_the_desk_s_own_tools(inside: Desk, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(
        '[[server.tools]]\nname = "search_handbook"\nopener = { name = "open_handbook" }\n'
        '[[server.tools]]\nname = "search_tickets"\nopener = { name = "open_ticket" }\n'
    )
    text = inside.run("connect", "--skill", "--config", config).stdout
    assert "`search`" not in text
    assert "`get_source`" not in text
    assert "a tool `search_handbook`, which finds" in " ".join(text.split())
    assert text.endswith("In the same way, for other documents: `search_tickets` with `open_ticket`.\n")
