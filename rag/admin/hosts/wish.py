"""What is to stand in a host's configuration: an entry, and what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rag.admin.hosts.launch import Remote
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.admin.hosts.file import HostFile, Keys
    from rag.admin.hosts.table import Host


OURS = ("REFDESK_", "DESK_AUTHORIZATION")
REACHES = {
    *("type", "command", "cmd", "args", "env", "envs", "env_keys"),
    *("url", "serverUrl", "uri", "headers", "http_headers", "bearer_token_env_var"),
}
"""What of an entry says how a server is reached. The rest of it is the host's and its user's."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to stand in a host's configuration, and under which name."""

    host: Host
    name: str
    entry: dict[str, Any]
    inputs: dict[str, Any]
    key: str = ""

    @property
    def keys(self) -> Keys:
        """Where the entry stands."""
        return self.host.section, self.name

    def edits(self, file: HostFile) -> dict[Keys, Any]:
        """The values to put into a file. VS Code's inputs are a list of their own, beside the servers."""
        edits: dict[Keys, Any] = {self.keys: self._beside(file.at(self.keys))}
        if self.inputs:
            if isinstance(file.at(("inputs",)), list):
                edits["inputs", str(place_of_input(file, self.inputs["id"]))] = self.inputs
            else:
                edits["inputs",] = [self.inputs]
        return edits

    def _beside(self, there: object) -> dict[str, Any]:
        """The entry, with what a person or the host has set beside it in the one that is there.

        Hosts keep in an entry which tools are allowed, or that it is switched off.
        """
        if not isinstance(there, dict):
            return self.entry
        kept = {name: value for name, value in there.items() if name not in REACHES}
        entry = {**self.entry, **kept}
        for variables in ("env", "envs"):
            given = there.get(variables)
            if isinstance(given, dict) and ("args" in self.entry or "cmd" in self.entry):
                theirs = {name: value for name, value in given.items() if not str(name).startswith(OURS)}
                if both := {**theirs, **self.entry.get(variables, {})}:
                    entry[variables] = both
        return entry


def remote_wish(host: Host, name: str, url: str, key_in: str | None, key: Callable[[], str]) -> Wish:
    """An entry that leads to a server at an address. `key` is called only if the file must hold the key.

    Raises:
        ConfigurationError: that is no address, or the host can't take the key from a variable.
    """
    _check_url(url)
    if key_in == "variable" and not host.reference:
        raise ConfigurationError(f"{host.title} can't take a key from a variable. Use --key-in file.")
    if key_in == "nowhere":
        return Wish(host, name, host.remote(name, Remote(url, "")), {})
    if host.reference and key_in != "file":
        variable = key_variable(name)
        entry = host.remote(name, Remote(url, f"Bearer {host.reference % variable}", variable))
        asked = {
            "type": "promptString",
            "id": variable,
            "description": f"API key of {name}",
            "password": True,
        }
        return Wish(host, name, entry, asked if host.name == "vscode" else {})
    secret = key()
    return Wish(host, name, host.remote(name, Remote(url, f"Bearer {secret}")), {}, secret)


def key_variable(name: str) -> str:
    """The environment variable of an entry's key: "refdesk" -> "MCP_REFDESK_KEY".

    It may not begin like a setting of ours: a server that finds one that it doesn't know refuses to start.
    """
    return f"MCP_{name.upper().replace('-', '_')}_KEY"


def place_of_input(file: HostFile, id_: str) -> int:
    """The position of an input of VS Code in their list, or the one behind the last."""
    inputs = file.at(("inputs",))
    if not isinstance(inputs, list):
        return 0
    ids = [one.get("id") if isinstance(one, dict) else None for one in inputs]
    return ids.index(id_) if id_ in ids else len(ids)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.username or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError(f"{url!r} is not an address like https://desk.example.com/mcp.")
