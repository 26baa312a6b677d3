"""The output of `refdesk-admin connect`: what changes, what is left to do, and which hosts have this desk."""

from __future__ import annotations

import json
import os
import re
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rag.admin.command_line import same_desk
from rag.admin.connect.host_config import HostFile, Wish, key_variable
from rag.admin.connect.known_hosts import HOSTS, Folders, Host, secret_names
from rag.admin.terminal import echo, print_json, print_table
from rag.config.server_settings import LOOPBACK
from rag.config.settings import Settings
from rag.errors import ConfigurationError
from rag.home import data_folder_problem

CONNECTED, NOT_CONNECTED = "connected", "not connected"
OTHERS_MAY_READ = 0o044
UNQUOTED_CHARS = 4  # of a value that is hidden wherever it stands; "1" stands in other words, too
TEMPORARY = re.compile(r"[/\\](archive|builds|environments)-v\d+[/\\]")  # where uv keeps what uvx runs


def show_change(file: HostFile, text: str, key: str = "") -> None:
    """Print the diff of a file, with the key and the values of headers and environments masked."""
    echo(file.path, err=True, bold=True)
    hidden = sorted(file.secrets | ({key} if key else set()), key=len, reverse=True)
    for line in file.diff(text):
        colour = {"+": "green", "-": "red"}.get(line[0])
        echo(reduce(_without_secret, hidden, line), err=True, fg=colour)


def _without_secret(line: str, secret: str) -> str:
    """The line with a secret masked, however it is quoted. A short secret is masked only in quotes."""
    for quoted in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), f"'{secret}'"):
        line = line.replace(quoted, '"…"')
    return line.replace(secret, "…") if len(secret) >= UNQUOTED_CHARS else line


def tell_change(wish: Wish, path: Path, change: str, backup: Path | None, *, as_json: bool) -> None:
    """Print what was done."""
    if as_json:
        done = {"host": wish.host.name, "name": wish.name, "file": path, "change": change, "backup": backup}
        print_json(done)
        return
    words = {
        "added": f"Added {wish.name} to {wish.host.title}.",
        "replaced": f"Replaced {wish.name} in {wish.host.title}.",
        "removed": f"Removed {wish.name} from {wish.host.title}.",
        "unchanged": f"{wish.host.title} has this entry already.",
    }
    echo(words[change] + (f" The file as it was before the first change is {backup}." if backup else ""))


def tell_rest(settings: Settings, wish: Wish, path: Path, remote: str | None) -> None:
    """Print what is left to do, on standard error."""
    title = wish.host.title
    if remote:
        _tell_of_address(remote)
    tell_of_key(wish, remote)
    if remote and wish.entry.get("command") == "npx":
        echo(f"{title} reaches addresses through mcp-remote from npm: Node.js must be installed.", err=True)
    if not remote:
        _tell_of_launch(settings, wish)
    if wish.key and os.name == "posix" and path.resolve().stat().st_mode & OTHERS_MAY_READ:
        echo(f"Other users can read the key in {path}. Fix it: chmod 600 '{path}'", err=True)
    echo(wish.host.afterwards, err=True)


def tell_of_key(wish: Wish, remote: str | None) -> None:
    """Print on standard error where the key comes from if the entry doesn't hold it."""
    title, variable = wish.host.title, key_variable(wish.name)
    if wish.inputs:
        echo(f"{title} will ask for the key and keep it.", err=True)
    elif remote and variable in str(wish.entry):
        echo(f"Set {variable} to the key where {title} is started from.", err=True)


def _tell_of_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.path in {"", "/"}:
        echo(f"{url} has no path. refdesk serves at /mcp, unless http.path says otherwise.", err=True)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        echo(f"{url} is not encrypted: anybody who sees the traffic can read it and use the key.", err=True)


def _tell_of_launch(settings: Settings, wish: Wish) -> None:
    started = str(wish.entry.get("command") or wish.entry.get("cmd"))
    if TEMPORARY.search(started):
        echo(
            f"{started} lies in a cache that uv empties from time to time. Install refdesk for good "
            "(uv tool install, pipx or pip), and run this command again from there.",
            err=True,
        )
    if problem := data_folder_problem(settings.home):
        echo(problem, err=True)
    has_env_file = "--env-file" in (wish.entry.get("args") or ())
    names = [name for name in secret_names(settings) if name in os.environ and not has_env_file]
    if names:
        echo(f"{wish.host.title} must also set {', '.join(names)} for the server.", err=True)


def names_of_entries(file: HostFile, host: Host) -> str:
    """The names of a file's entries, in a sentence."""
    names = file.at((host.section,))
    return f"It has {', '.join(names)}." if names and isinstance(names, dict) else "It has none."


def show_hosts(*, as_json: bool) -> None:
    """Print the hosts with their state and the names of refdesk's entries."""
    folders = Folders.of_this_machine(os.environ)
    paths = [(host, host.file(folders)) for host in HOSTS.values()]
    if as_json:
        hosts = [{"host": host.name, "file": path, "state": _state(host, path)} for host, path in paths]
        print_json({"hosts": hosts})
        return
    print_table([("HOST", "STATE", "FILE"), *((host.name, _state(host, path), path) for host, path in paths)])
    echo(
        "\nConnect one with refdesk-admin connect HOST. It shows what changes, and asks before it writes.",
        err=True,
    )


def _state(host: Host, path: Path) -> str:
    """Example: "connected: refdesk, handbook"."""
    try:
        entries = connected_entries(host, path)
    except ConfigurationError:
        return "can't be read"
    if entries:
        return f"{CONNECTED}: {', '.join(entries)}"
    return NOT_CONNECTED if is_here(path) else "not found"


def print_skill(settings: Settings, name: str, *, as_json: bool) -> None:
    """Print the skill that teaches an agent to use the desk."""
    from rag.search.agents import skill  # noqa: PLC0415 no other output needs it

    text = skill(name, settings.server.tools)
    if as_json:
        print_json({"skill": text})
    else:
        echo(text.removesuffix("\n"))


def how_to_connect() -> str:
    """The command that connects this desk to a host of this machine; empty if one has an entry already."""
    if connected_hosts():
        return ""
    folders = Folders.of_this_machine(os.environ)
    unconnected = (host.name for host in HOSTS.values() if _state(host, host.file(folders)) == NOT_CONNECTED)
    return f"refdesk-admin connect {next(unconnected, 'HOST')}{same_desk()}"


def connected_hosts() -> list[str]:
    """The hosts of this machine that have an entry of refdesk."""
    folders = Folders.of_this_machine(os.environ)
    paths = {host: host.file(folders) for host in HOSTS.values()}
    return [host.name for host, path in paths.items() if _state(host, path).startswith(CONNECTED)]


def is_here(path: Path) -> bool:
    """Whether the host seems to be installed: its file is there, or the folder that it made for it."""
    return path.exists() or (path.parent != Path.home() and path.parent.exists())


def connected_entries(host: Host, path: Path) -> list[str]:
    """The names of a host's entries that seem to be refdesk's.

    Raises:
        ConfigurationError: the host's file can't be read.
    """
    section = HostFile.read(path).at((host.section,))
    if not isinstance(section, dict):
        return []
    return [str(name) for name, entry in section.items() if _is_ours(name, entry)]


def _is_ours(name: object, entry: Any) -> bool:  # noqa: ANN401 whatever stands there
    started = (entry.get("command") or entry.get("cmd") or "") if isinstance(entry, dict) else ""
    return name == "refdesk" or re.split(r"[/\\]", str(started))[-1] in {"refdesk", "refdesk.exe"}
