"""What `refdesk-admin connect` tells: what changes, what is left to do, and which hosts have this desk."""

from __future__ import annotations

import json
import os
import re
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rag.admin.connect_skill import skill
from rag.admin.console import echo, print_json, print_table, same_desk
from rag.admin.hosts.file import HostFile
from rag.admin.hosts.launch import secret_names
from rag.admin.hosts.table import HOSTS, Folders
from rag.admin.hosts.wish import key_variable
from rag.config.data_folder import data_folder_problem
from rag.config.exposure import LOOPBACK
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.admin.hosts.table import Host
    from rag.admin.hosts.wish import Wish
    from rag.config.settings import Settings

CONNECTED, NOT_CONNECTED = "connected", "not connected"
OTHERS_MAY_READ = 0o044
UNQUOTED_CHARS = 4  # of a value that is hidden wherever it stands; "1" stands in other words, too
TEMPORARY = re.compile(r"[/\\](archive|builds|environments)-v\d+[/\\]")  # where uv keeps what uvx runs


def show_change(file: HostFile, text: str, key: str = "") -> None:
    """Print what changes in a file, without the key, and without what its headers and environments hold."""
    echo(file.path, err=True, bold=True)
    hidden = sorted(file.secrets | ({key} if key else set()), key=len, reverse=True)
    for line in file.diff(text):
        colour = {"+": "green", "-": "red"}.get(line[0])
        echo(reduce(_without, hidden, line), err=True, fg=colour)


def _without(line: str, secret: str) -> str:
    """A line in which a secret is hidden, however it is quoted; a short one only where it is."""
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
    """Print where the key of an entry comes from that doesn't hold it, on standard error."""
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
        echo(f"{url} is not encrypted: whoever sees the traffic can use the key and read along.", err=True)


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
    if names := [name for name in secret_names(settings) if name in os.environ]:
        echo(f"{wish.host.title} must also set {', '.join(names)} for the server.", err=True)


def names_of_entries(file: HostFile, host: Host) -> str:
    """Which entries a file has, in a sentence."""
    names = file.at((host.section,))
    return f"It has {', '.join(names)}." if names and isinstance(names, dict) else "It has none."


def show_hosts(*, as_json: bool) -> None:
    """Print the hosts, and what each has of refdesk."""
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
        entries = connected(host, path)
    except ConfigurationError:
        return "can't be read"
    if entries:
        return f"{CONNECTED}: {', '.join(entries)}"
    return NOT_CONNECTED if is_here(path) else "not found"


def print_skill(settings: Settings, name: str, *, as_json: bool) -> None:
    """Print what teaches an agent to use the desk."""
    text = skill(name, settings.server)
    if as_json:
        print_json({"skill": text})
    else:
        echo(text.removesuffix("\n"))


def how_to_connect() -> str:
    """The command that connects this desk to a host of this machine; empty if one has an entry already."""
    if connected_hosts():
        return ""
    folders = Folders.of_this_machine(os.environ)
    found = (host.name for host in HOSTS.values() if _state(host, host.file(folders)) == NOT_CONNECTED)
    return f"refdesk-admin connect {next(found, 'HOST')}{same_desk()}"


def connected_hosts() -> list[str]:
    """The hosts of this machine that have an entry of refdesk."""
    folders = Folders.of_this_machine(os.environ)
    paths = {host: host.file(folders) for host in HOSTS.values()}
    return [host.name for host, path in paths.items() if _state(host, path).startswith(CONNECTED)]


def is_here(path: Path) -> bool:
    """Whether the host seems to be installed: its file is there, or the folder that it made for it."""
    return path.exists() or (path.parent != Path.home() and path.parent.exists())


def connected(host: Host, path: Path) -> list[str]:
    """The names of a host's entries that are refdesk's, as far as one can tell.

    Raises:
        ConfigurationError: its file can't be read.
    """
    section = HostFile.read(path).at((host.section,))
    if not isinstance(section, dict):
        return []
    return [str(name) for name, entry in section.items() if _is_ours(name, entry)]


def _is_ours(name: object, entry: Any) -> bool:  # noqa: ANN401 whatever stands there
    started = (entry.get("command") or entry.get("cmd") or "") if isinstance(entry, dict) else ""
    return name == "refdesk" or re.split(r"[/\\]", str(started))[-1] in {"refdesk", "refdesk.exe"}
