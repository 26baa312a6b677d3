"""The hosts that `refdesk-admin connect` knows: where each keeps its servers, and the form of an entry.

An entry holds the command that starts this desk's server, or the address of a running server. The forms
follow the documentation of each host; server/README.md says what was tried, and how.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rag.config.settings import Settings, variables_in_use
from rag.runtime import installed_command

AS_ARGUMENTS = {"REFDESK_CONFIG", "REFDESK_DATA"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that a host starts, from whatever folder. The environment holds no secrets."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of this server in the form that most hosts read."""
        return {"command": self.command, "args": [*self.args]} | ({"env": dict(self.env)} if self.env else {})


@dataclass(frozen=True, slots=True)
class Remote:
    """A server at an address, and the header that opens it; empty if it needs none.

    `variable` is the environment variable that the header names instead of the key itself; empty if it
    holds the key.
    """

    url: str
    header: str
    variable: str = ""


def launch(settings: Settings, config: Path, asker: Sequence[str] = ()) -> Launch:
    """How a host starts this installation's server on this data folder, as this asker.

    Raises:
        ConfigurationError: the server is not installed.
    """
    options = ["--config", str(config.absolute())] if config.exists() else []
    args = [*options, "--data", str(settings.data.absolute()), *asker]
    return Launch(str(Path(installed_command("refdesk")).absolute()), args, environment())


def environment() -> dict[str, str]:
    """The settings in the environment without the two that are passed as arguments. None is a secret."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("REFDESK_")}
    return {name: value for name, value in settings.items() if name not in AS_ARGUMENTS}


def other_variables(settings: Settings) -> dict[str, str]:
    """What the server needs of this environment besides `environment`: keys, credentials, proxies."""
    names = variables_in_use(settings, os.environ, in_bucket=bool(settings.storage.uri))
    return {name: os.environ[name] for name in sorted(names) if not name.startswith("REFDESK_")}


Entry: TypeAlias = "dict[str, Any]"
STARTS_SLOWLY = 300  # seconds that Goose waits for an answer, its own default
STORE = "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"  # of the Claude Desktop that came from the Store


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a person's settings lie on a platform ("linux", "darwin", "win32")."""

    platform: str
    home: Path
    environment: Mapping[str, str]

    @classmethod
    def of_this_machine(cls, environment: Mapping[str, str]) -> Folders:
        """The folders of the current user."""
        return cls(sys.platform, Path.home(), environment)

    @property
    def windows(self) -> Path:
        """%APPDATA%."""
        return self._folder("APPDATA", self.home / "AppData" / "Roaming")

    @property
    def dot_config(self) -> Path:
        """~/.config, also on macOS."""
        standard = self.home / ".config"
        return self._folder("XDG_CONFIG_HOME", standard) if self.platform == "linux" else standard

    @property
    def of_applications(self) -> Path:
        """Where desktop applications keep their settings."""
        if self.platform == "win32":
            return self.windows
        return self.home / "Library" / "Application Support" if self.platform == "darwin" else self.dot_config

    def own(self, variable: str, standard: str) -> Path:
        """A host's own folder in the home folder, which a variable can move."""
        return self._folder(variable, self.home / standard)

    def _folder(self, variable: str, standard: Path) -> Path:
        value = self.environment.get(variable)
        return Path(value) if value else standard


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its file, the key of its servers, the forms of a local and a remote entry, and what to do then.

    `reference` is how the file names a variable for a key; empty if the file must hold the key itself.
    `loads_tools` are the members of an entry without which the host keeps tools out of a conversation until
    its model looks for them. `hides_tools` says when it does so whatever the entry says; empty if we know of
    no such case. A host that `reads_plain_json` can't use a file with a comment or a comma too many.
    """

    name: str
    title: str
    file: Callable[[Folders], Path]
    section: str
    local_form: Callable[[str, Launch], Entry]
    remote_form: Callable[[str, Remote], Entry]
    reference: str
    afterwards: str
    loads_tools: Mapping[str, object] = field(default_factory=dict, hash=False)
    hides_tools: str = ""
    reads_plain_json: bool = False

    def local(self, name: str, launch: Launch) -> Entry:
        """The entry of a server that the host starts."""
        return {**self.local_form(name, launch), **self.loads_tools}

    def remote(self, name: str, remote: Remote) -> Entry:
        """The entry of a server at an address."""
        return {**self.remote_form(name, remote), **self.loads_tools}


def _plain(_name: str, launch: Launch) -> Entry:
    return launch.entry


def _stdio(_name: str, launch: Launch) -> Entry:
    return {"type": "stdio", **launch.entry}


def _copilot(_name: str, launch: Launch) -> Entry:
    return {"type": "local", **launch.entry, "tools": ["*"]}


def _goose(name: str, launch: Launch) -> Entry:
    reached = {"cmd": launch.command, "args": [*launch.args], "envs": dict(launch.env), "env_keys": []}
    return _goose_entry("stdio", name, reached)


def _url(_name: str, remote: Remote) -> Entry:
    return {"url": remote.url} | _headers(remote)


def _typed_url(name: str, remote: Remote) -> Entry:
    return {"type": "http", **_url(name, remote)}


def _copilot_url(name: str, remote: Remote) -> Entry:
    return {**_typed_url(name, remote), "tools": ["*"]}


def _server_url(_name: str, remote: Remote) -> Entry:
    return {"serverUrl": remote.url} | _headers(remote)


def _bridge(_name: str, remote: Remote) -> Entry:
    """Claude Desktop's file takes programs only; mcp-remote is one that talks to an address.

    The header goes through the environment: Claude Desktop on Windows breaks arguments at spaces.
    """
    insecure = ["--allow-http"] if remote.url.startswith("http://") else []
    header = ["--header", "Authorization:${DESK_AUTHORIZATION}"] if remote.header else []
    args = ["-y", "mcp-remote", remote.url, *insecure, *header]
    return Launch("npx", args, {"DESK_AUTHORIZATION": remote.header} if remote.header else {}).entry


def _bearer_variable(_name: str, remote: Remote) -> Entry:
    if remote.variable:
        return {"url": remote.url, "bearer_token_env_var": remote.variable}
    return {"url": remote.url} | _headers(remote, "http_headers")


def _goose_url(name: str, remote: Remote) -> Entry:
    key = {"envs": {}, "env_keys": [remote.variable] if remote.variable else []}
    return _goose_entry("streamable_http", name, {"uri": remote.url, "headers": {}} | _headers(remote) | key)


def _goose_entry(kind: str, name: str, reached: Entry) -> Entry:
    about = {"name": name, "description": "Searches the documents of refdesk"}
    return {"enabled": True, "type": kind, **about, **reached, "timeout": STARTS_SLOWLY}


def _headers(remote: Remote, member: str = "headers") -> Entry:
    return {member: {"Authorization": remote.header}} if remote.header else {}


def _claude_desktop(folders: Folders) -> Path:
    local = folders.environment.get("LOCALAPPDATA")
    if folders.platform == "win32" and local and (Path(local) / STORE).is_dir():
        return Path(local) / STORE / "Claude" / "claude_desktop_config.json"
    return folders.of_applications / "Claude" / "claude_desktop_config.json"


def _in_home(file: str) -> Callable[[Folders], Path]:
    return lambda folders: folders.home / file


def _zed(folders: Folders) -> Path:
    folder = folders.windows / "Zed" if folders.platform == "win32" else folders.dot_config / "zed"
    return folder / "settings.json"


def _goose_file(folders: Folders) -> Path:
    if folders.platform == "win32":
        return folders.windows / "Block" / "goose" / "config" / "config.yaml"
    return folders.dot_config / "goose" / "config.yaml"


_ALL = (
    Host(
        *("claude-desktop", "Claude Desktop", _claude_desktop, "mcpServers", _plain, _bridge),
        reference="",
        afterwards="Quit Claude Desktop and start it again.",
        reads_plain_json=True,
    ),
    Host(
        *(
            "claude-code",
            "Claude Code",
            lambda folders: folders.own("CLAUDE_CONFIG_DIR", "") / ".claude.json",
        ),
        *("mcpServers", _stdio, _typed_url),
        reference="${%s}",
        afterwards="Start a new session; /mcp shows the server.",
        loads_tools={"alwaysLoad": True},
        reads_plain_json=True,
    ),
    Host(
        *("vscode", "VS Code", lambda folders: folders.of_applications / "Code" / "User" / "mcp.json"),
        *("servers", _stdio, _typed_url),
        reference="${input:%s}",
        afterwards="VS Code asks whether you trust the server when it starts it for the first time.",
        hides_tools="With more than 128 tools of all servers and extensions, VS Code groups them, and the "
        "model must open a group first. Switch off tools that you don't need.",
    ),
    Host(
        *("cursor", "Cursor", _in_home(".cursor/mcp.json"), "mcpServers", _plain, _url),
        reference="${env:%s}",
        afterwards="If the server is off, switch it on in Cursor's settings, under MCP.",
        hides_tools="Cursor tells the model the names of tools alone; it reads a description when it needs "
        "one. Say in a rule of your project when to search these documents.",
    ),
    Host(
        *("windsurf", "Windsurf", _in_home(".codeium/windsurf/mcp_config.json"), "mcpServers"),
        *(_plain, _server_url),
        reference="${env:%s}",
        afterwards="Refresh the MCP servers in Cascade, or restart Windsurf.",
        hides_tools="Windsurf uses 100 tools of all servers at most. Switch off tools that you don't need.",
    ),
    Host(
        *("zed", "Zed", _zed, "context_servers", _plain, _url),
        reference="",
        afterwards="Zed starts the server at once; the settings of its agent show it.",
    ),
    Host(
        *("gemini-cli", "Gemini CLI", _in_home(".gemini/settings.json"), "mcpServers", _plain, _typed_url),
        reference="${%s}",
        afterwards="Start a new session; /mcp shows the server.",
    ),
    Host(
        *("copilot-cli", "Copilot CLI", _in_home(".copilot/mcp-config.json"), "mcpServers"),
        *(_copilot, _copilot_url),
        reference="",
        afterwards="Start a new session; /mcp show lists the server.",
        loads_tools={"deferTools": "never"},
    ),
    Host(
        *("codex", "Codex", lambda folders: folders.own("CODEX_HOME", ".codex") / "config.toml"),
        *("mcp_servers", _plain, _bearer_variable),
        reference="%s",
        afterwards="Start a new session; /mcp shows the server.",
        hides_tools="With more than 100 tools of all servers, Codex hides them until the model searches for "
        "tools. Switch off servers that you don't need.",
    ),
    Host(
        *("goose", "Goose", _goose_file, "extensions", _goose, _goose_url),
        reference="${%s}",
        afterwards="Start a new session.",
        hides_tools="With its extension Code Mode, Goose hides tools until the model looks for them. Switch "
        "that extension off, or ask for refdesk by name.",
    ),
    Host(
        *("lm-studio", "LM Studio", _in_home(".lmstudio/mcp.json"), "mcpServers", _plain, _url),
        reference="",
        afterwards="Switch the server on next to the chat, where LM Studio lists its integrations.",
    ),
)
HOSTS = {host.name: host for host in _ALL}
