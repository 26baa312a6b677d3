"""Where each host keeps its servers on each platform, and what is written there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag.admin.connect.known_hosts import HOSTS, Folders, Launch, Remote

pytestmark = pytest.mark.slow

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
    "claude-code": ("mcpServers", STDIO, {"type": "http", "url": URL, **bearer("${K}")}),
    "vscode": ("servers", STDIO, {"type": "http", "url": URL, **bearer("${input:K}")}),
    "cursor": ("mcpServers", PLAIN, {"url": URL, **bearer("${env:K}")}),
    "windsurf": ("mcpServers", PLAIN, {"serverUrl": URL, **bearer("${env:K}")}),
    "zed": ("context_servers", PLAIN, {"url": URL, **bearer("K")}),
    "gemini-cli": ("mcpServers", PLAIN, {"type": "http", "url": URL, **bearer("${K}")}),
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
