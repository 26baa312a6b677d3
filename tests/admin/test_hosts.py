"""Where each host keeps its servers, and what is put there beside what people wrote, which stays."""

from __future__ import annotations

import json
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rag.admin.connect.known_hosts import HOSTS, Folders, Launch, Remote
from rag.admin.connect.text_edits import (
    drop_json,
    drop_toml,
    drop_yaml,
    parse_json,
    parse_yaml,
    put_json,
    put_toml,
    put_yaml,
)

HOME = Path("/h")
FILES = {
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
        "AppData/Roaming/Claude/claude_desktop_config.json",
    ),
    "claude-code": (".claude.json",) * 3,
    "vscode": (
        ".config/Code/User/mcp.json",
        "Library/Application Support/Code/User/mcp.json",
        "AppData/Roaming/Code/User/mcp.json",
    ),
    "cursor": (".cursor/mcp.json",) * 3,
    "windsurf": (".codeium/windsurf/mcp_config.json",) * 3,
    "zed": (".config/zed/settings.json", ".config/zed/settings.json", "AppData/Roaming/Zed/settings.json"),
    "gemini-cli": (".gemini/settings.json",) * 3,
    "copilot-cli": (".copilot/mcp-config.json",) * 3,
    "codex": (".codex/config.toml",) * 3,
    "goose": (
        ".config/goose/config.yaml",
        ".config/goose/config.yaml",
        "AppData/Roaming/Block/goose/config/config.yaml",
    ),
    "lm-studio": (".lmstudio/mcp.json",) * 3,
}
LOCAL = Launch("/v/refdesk", ["--data", "/d"])
PLAIN = {"command": "/v/refdesk", "args": ["--data", "/d"]}
STDIO = {"type": "stdio", **PLAIN}
URL = "https://desk.example/mcp"


def bearer(reference: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {reference}"}}


ENTRIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "claude-desktop": (
        "mcpServers",
        PLAIN,
        {
            "command": "npx",
            "args": ["-y", "mcp-remote", URL, "--header", "Authorization:${DESK_AUTHORIZATION}"],
            "env": {"DESK_AUTHORIZATION": "Bearer K"},
        },
    ),
    "claude-code": (
        "mcpServers",
        {**STDIO, "alwaysLoad": True},
        {"type": "http", "url": URL, **bearer("${K}"), "alwaysLoad": True},
    ),
    "vscode": ("servers", STDIO, {"type": "http", "url": URL, **bearer("${input:K}")}),
    "cursor": ("mcpServers", PLAIN, {"url": URL, **bearer("${env:K}")}),
    "windsurf": ("mcpServers", PLAIN, {"serverUrl": URL, **bearer("${env:K}")}),
    "zed": ("context_servers", PLAIN, {"url": URL, **bearer("K")}),
    "gemini-cli": ("mcpServers", PLAIN, {"type": "http", "url": URL, **bearer("${K}")}),
    "copilot-cli": (
        "mcpServers",
        {"type": "local", **PLAIN, "tools": ["*"], "deferTools": "never"},
        {"type": "http", "url": URL, **bearer("K"), "tools": ["*"], "deferTools": "never"},
    ),
    "codex": ("mcp_servers", PLAIN, {"url": URL, "bearer_token_env_var": "K"}),
    "goose": (
        "extensions",
        {
            "enabled": True,
            "type": "stdio",
            "name": "n",
            "description": "Searches the documents of refdesk",
            "cmd": "/v/refdesk",
            "args": ["--data", "/d"],
            "envs": {},
            "env_keys": [],
            "timeout": 300,
        },
        {
            "enabled": True,
            "type": "streamable_http",
            "name": "n",
            "description": "Searches the documents of refdesk",
            "uri": URL,
            **bearer("${K}"),
            "envs": {},
            "env_keys": ["K"],
            "timeout": 300,
        },
    ),
    "lm-studio": ("mcpServers", PLAIN, {"url": URL, **bearer("K")}),
}


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("name", HOSTS)
def test_each_host_s_file_is_where_it_looks_for_it(name: str, platform: str) -> None:
    file = HOSTS[name].file(Folders(platform, HOME, {}))
    assert file == HOME / FILES[name][["linux", "darwin", "win32"].index(platform)]


@pytest.mark.parametrize("name", HOSTS)
def test_each_host_gets_an_entry_of_its_own_form(name: str) -> None:
    host = HOSTS[name]
    remote = Remote(
        URL, f"Bearer {host.reference % 'K' if host.reference else 'K'}", "K" if host.reference else ""
    )
    assert (host.section, host.local("n", LOCAL), host.remote("n", remote)) == ENTRIES[name]


@pytest.mark.parametrize("name", HOSTS)
def test_settings_of_the_environment_come_along_and_no_header_where_none_is_needed(name: str) -> None:
    host = HOSTS[name]
    entry = host.local("n", Launch("/v/refdesk", [], {"REFDESK_SEARCH_LIMIT": "5"}))
    assert entry.get("env", entry.get("envs")) == {"REFDESK_SEARCH_LIMIT": "5"}
    open_ = host.remote("n", Remote("http://127.0.0.1:8300/mcp", ""))
    assert "Bearer" not in str(open_)
    assert "Authorization" not in str(open_)
    assert ("--allow-http" in str(open_)) == (name == "claude-desktop")


def test_a_key_in_the_file_of_codex_is_a_header() -> None:
    entry = HOSTS["codex"].remote("n", Remote(URL, "Bearer K"))
    assert entry == {"url": URL, "http_headers": {"Authorization": "Bearer K"}}


@pytest.mark.parametrize(
    ("name", "platform", "environment", "file"),
    [
        ("zed", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("zed", "darwin", {"XDG_CONFIG_HOME": "/x"}, "/h/.config/zed/settings.json"),
        ("vscode", "win32", {"APPDATA": "/a"}, "/a/Code/User/mcp.json"),
        ("codex", "linux", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": ""}, "/h/.claude.json"),
    ],
)
def test_a_variable_can_move_a_host_s_folder(
    name: str, platform: str, environment: dict[str, str], file: str
) -> None:
    assert HOSTS[name].file(Folders(platform, HOME, environment)) == Path(file)


def test_the_claude_desktop_of_windows_store_keeps_its_file_elsewhere(tmp_path: Path) -> None:
    folders = Folders("win32", HOME, {"LOCALAPPDATA": str(tmp_path)})
    host = HOSTS["claude-desktop"]
    assert host.file(folders) == HOME / FILES["claude-desktop"][2]
    store = tmp_path / "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
    store.mkdir(parents=True)
    assert host.file(folders) == store / "Claude" / "claude_desktop_config.json"


ENTRY = {"command": "/opt/ré desk/refdesk", "args": ["--data", 'C:\\a "b"\\c']}
JSON_PATH = ("mcpServers", "refdesk")
TOML_PATH = ("mcp_servers", "refdesk")
YAML_PATH = ("extensions", "refdesk")

COMMENTED = """\
// Mine
{
    "theme": "dark", // at night
    "mcpServers": {
        /* "old": {}, */
        "git": {"command": "git-mcp"} // pinned
        // "tickets": {}
    },
    "last": [1, 2,],
}
"""


def test_comments_order_indentation_and_other_servers_stay_where_they_were() -> None:
    assert (
        put_json(COMMENTED, JSON_PATH, {"command": "refdesk"})
        == """\
// Mine
{
    "theme": "dark", // at night
    "mcpServers": {
        /* "old": {}, */
        "git": {"command": "git-mcp"}, // pinned
        "refdesk": {
            "command": "refdesk"
        }
        // "tickets": {}
    },
    "last": [1, 2,],
}
"""
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "r": {\n      "c": 1\n    }\n  }\n}\n'),
        ("// none yet", '// none yet\n{\n  "s": {\n    "r": {\n      "c": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "r": {\n      "c": 1\n    }\n  }\n}'),
        ('{"a":1}', '{"a":1, "s": {"r": {"c": 1}}}'),
        ('{\r\n\t"s": {}\r\n}\r\n', '{\r\n\t"s": {\r\n\t\t"r": {\r\n\t\t\t"c": 1\r\n\t\t}\r\n\t}\r\n}\r\n'),
        (
            '{\n  "s": {\n    "x": 1,\n  },\n}',
            '{\n  "s": {\n    "x": 1,\n    "r": {\n      "c": 1\n    },\n  },\n}',
        ),
        ('{\n  "s": {"x": 1}}', '{\n  "s": {"x": 1, "r": {"c": 1}}}'),
        (
            '{\n  "s": {\n    // why\n  }\n}',
            '{\n  "s": {\n    // why\n    "r": {\n      "c": 1\n    }\n  }\n}',
        ),
        (
            '{\n  "s": {\n    "r": {"c": 2}, // x\n    "y": 1\n  }\n}',
            '{\n  "s": {\n    "r": {"c": 1}, // x\n    "y": 1\n  }\n}',
        ),
        (
            '{\n  "s": {\n    "r": {\n      "c": 2\n    }\n  }\n}',
            '{\n  "s": {\n    "r": {\n      "c": 1\n    }\n  }\n}',
        ),
    ],
)
def test_an_entry_of_json_takes_the_style_of_its_neighbours(before: str, after: str) -> None:
    assert put_json(before, ("s", "r"), {"c": 1}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"s": {"r": 1}}', '{"s": {}}'),
        ('{"s": {"r": 1, "x": 2}}', '{"s": {"x": 2}}'),
        ('{"s": {"x": 2, "r": 1}}', '{"s": {"x": 2}}'),
        ('{\n  "s": {\n    "x": 2, // two\n    "r": 1\n  }\n}', '{\n  "s": {\n    "x": 2 // two\n  }\n}'),
        ('{\n  "s": {\n    "x": 2,\n    "r": 1,\n  }\n}', '{\n  "s": {\n    "x": 2,\n  }\n}'),
        ('{\n  "s": {\n    "r": 1,\n    "x": 2\n  }\n}', '{\n  "s": {\n    "x": 2\n  }\n}'),
    ],
)
def test_an_entry_of_json_is_taken_out_with_its_comma(before: str, after: str) -> None:
    assert drop_json(before, ("s", "r")) == after


def test_an_array_is_edited_by_its_positions() -> None:
    text = '{\n  "inputs": [\n    {"id": "a"} // first\n  ]\n}'
    more = put_json(text, ("inputs", "1"), {"id": "b"})
    assert more == '{\n  "inputs": [\n    {"id": "a"}, // first\n    {\n      "id": "b"\n    }\n  ]\n}'
    assert parse_json(drop_json(more, ("inputs", "0"))) == {"inputs": [{"id": "b"}]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1', "line 1"),
        ('{"a": 1}\n}', "line 2"),
        ('{\n"a": oops}', "line 2"),
        ("{a: 1}", "line 1"),
        ('{"a" 1}', "line 1"),
        ('{"a": 1 "b": 2}', "line 1"),
        ("[1 2]", "line 1"),
        ('{"a": "\n"}', "line 1"),
        ("{/* }", "line 1"),
        ('{"a": :}', "line 1"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"mcpServers": null}', "mcpServers is not an object"),
        ("7", "it is not an object"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        put_json(text, JSON_PATH, ENTRY)


def test_of_keys_that_are_there_twice_the_last_one_counts_as_for_hosts() -> None:
    text = '{"mcpServers": {"a": 1}, "mcpServers": {"b": 2}}'
    assert json.loads(put_json(text, JSON_PATH, {})) == {"mcpServers": {"b": 2, "refdesk": {}}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["refdesk", "git", "tickets", "x"])
DOCUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3).flatmap(
    lambda document: st.dictionaries(NAMES, VALUES, max_size=4).map(
        lambda servers: document | {"mcpServers": servers}
    )
)


@pytest.mark.slow
@given(
    DOCUMENTS, st.sampled_from([None, 1, 4, "\t"]), st.dictionaries(st.text(max_size=3), VALUES, max_size=3)
)
def test_whatever_stands_in_a_file_of_json_comes_out_as_it_was(
    document: dict[str, Any], indent: int | str | None, entry: dict[str, Any]
) -> None:
    for text in _styles(json.dumps(document, indent=indent)):
        more = put_json(text, JSON_PATH, entry)
        meant = document | {"mcpServers": document["mcpServers"] | {"refdesk": entry}}
        assert parse_json(more) == meant
        if text == json.dumps(document, indent=indent):
            assert json.loads(more) == meant  # as strict hosts read it
        assert more.count("/* note */") == text.count("/* note */")
        less = parse_json(drop_json(more, JSON_PATH))
        del meant["mcpServers"]["refdesk"]
        assert less == meant


def _styles(text: str) -> list[str]:
    """The text with a comment and with a trailing comma, where that can't be inside of a string."""
    if '"' in text.replace('\\"', "") and any(mark in text for mark in ("{/", "\\")):
        return [text]
    return [text, "/* note */" + text, text[:-1] + ",}" if len(text) > 2 else text]


TOML = """\
# Codex
model = "o9"   # the best

[mcp_servers.git]
command = "git-mcp"

[mcp_servers.git.env]
A = "b"

# About the profile
[profiles.x]
note = '''
[mcp_servers.x]
'''
"""


def test_a_table_of_toml_is_put_at_the_end_replaced_in_its_place_and_taken_out() -> None:
    more = put_toml(TOML, TOML_PATH, ENTRY | {"env": {"A B": "c", "d": ""}})
    assert more.startswith(TOML)
    assert tomllib.loads(more)["mcp_servers"]["refdesk"] == ENTRY | {"env": {"A B": "c", "d": ""}}
    moved = put_toml(more + "\n[last]\na = 1\n", TOML_PATH, {"url": "http://a"})
    assert moved.endswith('\n[mcp_servers.refdesk]\nurl = "http://a"\n\n[last]\na = 1\n')
    assert drop_toml(more, TOML_PATH) == TOML


def test_what_only_looks_like_our_table_of_toml_is_not_replaced() -> None:
    text = TOML.replace("servers.x", "servers.refdesk")
    assert put_toml(text, TOML_PATH, ENTRY).startswith(text)


@pytest.mark.parametrize(
    "around",
    [
        "note = '''\n[mcp_servers.refdesk]\na = 1\n'''\n{}",
        '{}[other]\nnote = """\n[mcp_servers.refdesk]\n"""\n',
        "[other]\nlists = [\n  ['a'],\n[\n'b']]\n{}",
        "# a comment\u2028[mcp_servers.refdesk]\n{}",
    ],
)
def test_our_table_of_toml_is_told_from_values_that_look_like_its_header(around: str) -> None:
    table = "[mcp_servers.refdesk]\ntext = '''\n[mcp_servers.x]\n'''\nlists = [\n  ['a'],\n]\n"
    changed = put_toml(around.format(table), TOML_PATH, {"url": "u"})
    assert changed == around.format('[mcp_servers.refdesk]\nurl = "u"\n')
    assert drop_toml(around.format(table), TOML_PATH) == around.format("")


def test_a_table_of_toml_goes_with_the_tables_below_it_and_leaves_the_next_one_s_comment() -> None:
    text = "[mcp_servers.refdesk]\ncommand = 'a' # x\n[mcp_servers.refdesk.env]\nA = 'b'\n"
    text += "\n# next\n[other]\nb = 1\n"
    assert drop_toml(text, TOML_PATH) == "\n# next\n[other]\nb = 1\n"
    assert (
        put_toml(text, TOML_PATH, {"url": "u"})
        == '[mcp_servers.refdesk]\nurl = "u"\n\n# next\n[other]\nb = 1\n'
    )
    assert drop_toml('[mcp_servers."refdesk"]\r\na = 1\r\n', TOML_PATH) == ""
    assert put_toml("a = 1\r\n", TOML_PATH, {"b": 1}) == "a = 1\r\n\r\n[mcp_servers.refdesk]\r\nb = 1\r\n"


YAML = """\
# Goose
GOOSE_PROVIDER: x  # fast
extensions:
  # built in
  developer:
    enabled: true
    args:
      - a
      - b  # two

# more
keys: [1, 2]
"""


def test_a_mapping_of_yaml_is_put_below_its_neighbours_replaced_and_taken_out() -> None:
    more = put_yaml(YAML, YAML_PATH, {"enabled": True, "args": ["--data", "C:\\x"]})
    added = '  refdesk:\n    enabled: true\n    args: ["--data", "C:\\\\x"]\n'
    assert more == YAML.replace("      - b  # two\n", f"      - b  # two\n{added}")
    assert yaml.safe_load(more)["extensions"]["refdesk"]["args"] == ["--data", "C:\\x"]
    again = put_yaml(more, YAML_PATH, {"enabled": False})
    assert again == YAML.replace("      - b  # two\n", "      - b  # two\n  refdesk:\n    enabled: false\n")
    assert drop_yaml(more, YAML_PATH) == YAML


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "extensions:\n  refdesk:\n    a: 1\n"),
        ("x: 1", "x: 1\nextensions:\n  refdesk:\n    a: 1\n"),
        ("x: 1\r\n", "x: 1\r\nextensions:\r\n  refdesk:\r\n    a: 1\r\n"),
        ("extensions:\nx: 1\n", "extensions:\n  refdesk:\n    a: 1\nx: 1\n"),
        ("extensions: {}  # none\n", "extensions:  # none\n  refdesk:\n    a: 1\n"),
        (
            "extensions:\n    g:\n        b: |\n          t\n",
            "extensions:\n    g:\n        b: |\n          t\n    refdesk:\n      a: 1\n",
        ),
        ("extensions:\n  g: {b: 1}", "extensions:\n  g: {b: 1}\n  refdesk:\n    a: 1\n"),
    ],
)
def test_an_entry_of_yaml_takes_the_style_of_its_neighbours(before: str, after: str) -> None:
    assert put_yaml(before, YAML_PATH, {"a": 1}) == after


def test_the_last_entry_of_yaml_leaves_an_empty_mapping_and_braces_are_not_ours_to_edit() -> None:
    assert drop_yaml("extensions:\n  refdesk:\n    a: 1\nx: 1\n", YAML_PATH) == "extensions: {}\nx: 1\n"
    for edit in (partial(put_yaml, entry={}), drop_yaml):
        with pytest.raises(ValueError, match="extensions is not a mapping with a line for each key"):
            edit("extensions: {refdesk: {a: 1}}\n", path=YAML_PATH)
    with pytest.raises(ValueError, match="line 1, column 5"):
        parse_yaml("a: [")


@pytest.mark.parametrize(
    "text",
    [
        YAML,
        YAML.replace("\n", "\r\n"),
        YAML.replace("      - ", "    - "),
        "---\n# mine\nextensions:\n  g: {}\n...\n",
        "extensions:\n\n    g:\n        b: |\n          t\n\n    h:\n        a: 1\n\n\nlast: 1\n",
        "a:   1\nb : 2\nc: 0x1F\ne: ~\nf:\ng: 'it''s'\nh: \"\\u00e9\"\nextensions:\n  g:\n    on: off\n",
        "base: &b\n  x: 1\nextensions:\n  g:\n    <<: *b\n    y: 2\n",
        "extensions:\n  g: {}\nlong: " + "word " * 40 + "\n",
    ],
)
def test_an_entry_of_yaml_comes_and_goes_without_a_trace(text: str) -> None:
    more = put_yaml(text, YAML_PATH, ENTRY)
    assert parse_yaml(more)["extensions"]["refdesk"] == ENTRY
    assert drop_yaml(more, YAML_PATH) == text


@pytest.mark.parametrize(
    "text",
    [
        TOML,
        TOML.replace("\n", "\r\n"),
        "[mcp_servers]\n# mine\n\n[mcp_servers.other]\ncommand='o'\n\n# the rest\n[profiles.a]\nx = 0x1F\n",
        "mcp_servers.other.command = 'o'\n",
        "a    =   1_000\nc = [\n  1, # one\n  2,\n]\n",
    ],
)
def test_a_table_of_toml_comes_and_goes_without_a_trace(text: str) -> None:
    more = put_toml(text, TOML_PATH, ENTRY)
    assert tomllib.loads(more)["mcp_servers"]["refdesk"] == ENTRY
    assert drop_toml(more, TOML_PATH) == text
