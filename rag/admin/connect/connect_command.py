"""`refdesk-admin connect`: put this desk into a host's configuration, or print a link that does."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from rag.access.tenants import local_principal
from rag.admin.command_line import asker_arguments, command, flag, same_desk, settings_file
from rag.admin.connect.host_config import HostFile, Keys, Wish, input_index, key_variable, remote_wish
from rag.admin.connect.known_hosts import HOSTS, Folders, Host, launch, other_variables
from rag.admin.terminal import ask_secretly, confirm, echo, print_json, print_result, print_table
from rag.config.server_settings import LOOPBACK
from rag.config.settings import Settings
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.home import check_data_folder, data_folder_problem

CONNECTED, NOT_CONNECTED = "connected", "not connected"
OTHERS_MAY_READ = 0o044
KEY_ITSELF = re.compile(r"Bearer (?!\$)", re.IGNORECASE)  # "Bearer ${VARIABLE}" names a variable with it
UNQUOTED_CHARS = 4  # from this length on, a secret is masked without quotes, too; "1" would hide other text
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


def tell_change(wish: Wish, path: Path, change: str, backup: Path | None) -> None:
    """Print what was done, and on standard error that the copy of the file has a key of this entry."""
    if backup and _has_key(backup, wish):
        echo(
            f"{backup} still has a key of {wish.name}. Remove that file when you don't need it any more.",
            err=True,
        )
    words = {
        "added": f"Added {wish.name} to {wish.host.title}.",
        "replaced": f"Replaced {wish.name} in {wish.host.title}.",
        "removed": f"Removed {wish.name} from {wish.host.title}.",
        "unchanged": f"{wish.host.title} has this entry already.",
    }
    result = {"host": wish.host.name, "name": wish.name, "file": path, "change": change, "backup": backup}
    print_result(result, words[change] + (f" The oldest copy of the file is {backup}." if backup else ""))


def _has_key(backup: Path, wish: Wish) -> bool:
    """Whether the entry of this name in a copy holds a key: in headers, an environment or arguments."""
    with suppress(ConfigurationError):
        return bool(KEY_ITSELF.search(str(HostFile.read(backup).at(wish.keys))))
    return False


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
    """Print on standard error how the host gets the key, if the entry doesn't hold it."""
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
    if not has_env_file and (names := other_variables(settings)):
        echo(f"{wish.host.title} must also set {', '.join(names)} for the server.", err=True)


def show_hosts() -> None:
    """Print the hosts with their state and the names of refdesk's entries."""
    states = _states()
    print_json({"hosts": [{"host": host.name, "file": path, "state": state} for host, state, path in states]})
    print_table([("HOST", "STATE", "FILE"), *((host.name, state, path) for host, state, path in states)])
    echo(
        "\nConnect one with refdesk-admin connect HOST. It shows what changes, and asks before it writes.",
        err=True,
    )


def _states() -> list[tuple[Host, str, Path]]:
    folders = Folders.of_this_machine(os.environ)
    files = ((host, host.file(folders)) for host in HOSTS.values())
    return [(host, _state(host, path), path) for host, path in files]


def _state(host: Host, path: Path) -> str:
    """Example: "connected: refdesk, handbook"."""
    try:
        entries = connected_entries(host, path)
    except ConfigurationError:
        return "can't be read"
    if entries:
        return f"{CONNECTED}: {', '.join(entries)}"
    return NOT_CONNECTED if is_here(path) else "not found"


def print_skill(settings: Settings, name: str) -> None:
    """Print the skill that teaches an agent to use the desk."""
    from rag.search.agents import skill  # noqa: PLC0415 no other output needs it

    text = skill(name, settings.server.tools)
    print_result({"skill": text}, text.removesuffix("\n"))


def how_to_connect() -> str:
    """The command that connects this desk to a host of this machine; empty if one has an entry already."""
    states = _states()
    if any(state.startswith(CONNECTED) for _, state, _ in states):
        return ""
    host = next((host.name for host, state, _ in states if state == NOT_CONNECTED), "HOST")
    return f"refdesk-admin connect {host}{same_desk()}"


def connected_hosts() -> list[str]:
    """The hosts of this machine that have an entry of refdesk."""
    return [host.name for host, state, _ in _states() if state.startswith(CONNECTED)]


def is_here(path: Path) -> bool:
    """Whether the host seems to be installed: its file is there, or the folder that it made for it."""
    return path.exists() or (path.parent != Path.home() and path.parent.exists())


def connected_entries(host: Host, path: Path) -> list[str]:
    """The names of a host's entries that seem to be refdesk's.

    Raises:
        ConfigurationError: the host's file can't be read.
    """
    section = HostFile.of(host, path).at((host.section,))
    if not isinstance(section, dict):
        return []
    return [str(name) for name, entry in section.items() if _is_ours(name, entry)]


def _is_ours(name: object, entry: Any) -> bool:  # noqa: ANN401 whatever stands there
    started = (entry.get("command") or entry.get("cmd") or "") if isinstance(entry, dict) else ""
    return name == "refdesk" or re.split(r"[/\\]", str(started))[-1] in {"refdesk", "refdesk.exe"}


WITH_LINKS = ("vscode", "cursor", "lm-studio")


def link(host: str, name: str, entry: Mapping[str, Any], inputs: list[Any]) -> str:
    """The link that installs an entry in a host of `WITH_LINKS`. `inputs` is what VS Code asks for."""
    if host == "vscode":
        whole = {"name": name, **entry} | ({"inputs": inputs} if inputs else {})
        return f"vscode:mcp/install?{quote(_compact(whole), safe='')}"
    config = base64.b64encode(_compact(entry).encode()).decode()
    beginning = {
        "cursor": "cursor://anysphere.cursor-deeplink/mcp/install",
        "lm-studio": "lmstudio://add_mcp",
    }
    return f"{beginning[host]}?{urlencode({'name': name, 'config': config})}"


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,47}")  # what every host takes
PLACEHOLDER = "YOUR_KEY"


@command("connect", of_desk=True, of_asker=True)
@click.argument("host", required=False, metavar="[HOST]", type=click.Choice([*HOSTS]))
@click.option("--name", default="refdesk", metavar="NAME", help="Name of the entry. Default: refdesk.")
@click.option("--remote", metavar="URL", help="Connect to a server at this address instead of starting one.")
@click.option(
    "--key-in",
    type=click.Choice(["variable", "file", "nowhere"]),
    help="With --remote: name a variable that holds the key, write the key into the file, or send none. "
    "Default: variable, or file if the host knows no variables.",
)
@flag("--print", "prints", help="Only print the entry, to put in by hand.")
@flag("--link", "links", help="Only print a link that installs it with one click.")
@flag("--remove", "removes", help="Take the entry out.")
@flag("--check", "checks", help="Start the server as the host would; show what it sees.")
@flag("--skill", help="Print a text that teaches an agent to use the desk: a skill.")
@flag("--yes", help="Don't ask. Also replace another entry of the same name.")
async def connect_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    host: str | None,
    name: str,
    remote: str | None,
    key_in: str | None,
    prints: bool,
    links: bool,
    removes: bool,
    checks: bool,
    skill: bool,
    yes: bool,
) -> None:
    """Connect an assistant to this desk. Without HOST: list the hosts on this machine.

    HOST is claude-desktop, claude-code, vscode, cursor, windsurf, zed, gemini-cli, codex, goose, lm-studio
    or copilot-cli. Its configuration gets an entry that starts this desk's server with the data folder,
    settings, tenant and user of this command. On a terminal you see what changes and are asked before it is
    written; elsewhere, a host that seems not to be installed needs --yes. An entry that could not start is
    refused. Comments and other servers stay, and a copy of the earlier file is kept next to it.

    With --remote, the entry leads to a server that was started with refdesk --http. A key for the file is
    asked for, or read from standard input.

    --skill prints a skill for agents. Claude Code reads it from ~/.claude/skills/refdesk/SKILL.md.
    """
    if skill:
        print_skill(settings, name)
        return
    if host is None:
        show_hosts()
        return
    chosen = HOSTS[host]
    key_alone = bool(key_in) and remote is None
    _check_options(chosen, name, key_in=key_alone, only=(prints, links, removes, checks))
    path = chosen.file(Folders.of_this_machine(os.environ))
    if removes:
        _remove(chosen, name, path, yes=yes)
        return
    if checks:
        from rag.admin.connect.connect_check import check_entry  # noqa: PLC0415 no other command needs the SDK

        await check_entry(HostFile.of(chosen, path), chosen, name, _key)
        return
    if remote is not None:
        wish = remote_wish(chosen, name, remote, key_in, (lambda: PLACEHOLDER) if prints or links else _key)
    else:
        _check_start(settings)
        started = launch(settings, settings_file(), asker_arguments())
        wish = Wish(chosen, name, chosen.local(name, started), {})
    if prints or links:
        if links:
            url = link(host, name, wish.entry, [wish.inputs] if wish.inputs else [])
            print_result({"host": host, "name": name, "link": url}, url)
        else:
            _print_entry(wish, path)
        tell_of_key(wish, remote)
    elif _add(wish, path, yes=yes):
        tell_rest(settings, wish, path, remote)


def _check_options(host: Host, name: str, *, key_in: bool, only: tuple[bool, ...]) -> None:
    if sum(only) > 1:
        raise click.UsageError("Give only one of --print, --link, --remove and --check.")
    if not NAME.fullmatch(name):
        raise click.UsageError("--name begins with a letter and has up to 48 letters, digits and hyphens.")
    if key_in:
        raise click.UsageError("--key-in needs --remote.")
    if only[1] and host.name not in WITH_LINKS:
        raise click.UsageError(f"{host.title} takes no links that install a server. Leave out --link.")


def _check_start(settings: Settings) -> None:
    """Check that an entry's server could start. A missing data folder is fine: it may be mounted later."""
    with suppress(StoreError):  # a bucket that answers later is served then
        local_principal(settings)
    data = settings.data
    if not settings.storage.uri and (data.is_file() or (data.is_dir() and any(data.iterdir()))):
        check_data_folder(data)


def _key() -> str:
    line = ask_secretly("API key") if sys.stdin.isatty() else sys.stdin.readline()
    key = line.strip()
    if not key or not key.isascii() or any(letter.isspace() for letter in key):
        raise ConfigurationError(
            "The API key is missing, or has characters that no key has. Type it when you are asked, or send "
            "it to standard input. refdesk-admin key create creates one."
        )
    return key


def _add(wish: Wish, path: Path, *, yes: bool) -> bool:
    """Add an entry to a host's file, unless the user declines. Returns whether it is there."""
    file = HostFile.of(wish.host, path)
    present, edits = file.at(wish.keys), wish.edits(file)
    if all(file.at(keys) == value for keys, value in edits.items()):
        tell_change(wish, path, "unchanged", None)
        return True
    another = present is not None and present != edits[wish.keys]
    if another and not yes and not sys.stdin.isatty():
        raise ConfigurationError(
            f"{wish.host.title} has another entry {wish.name} already. Give this one another --name, or "
            "replace that one with --yes."
        )
    if not is_here(path):
        absent = f"{wish.host.title} seems not to be installed here, or was never started."
        if not yes and not sys.stdin.isatty():
            raise ConfigurationError(f"{absent} To write {path} all the same, add --yes.")
        echo(absent, err=True)
    text = file.edited(edits)
    show_change(file, text, wish.key)
    question = f"Replace the other entry {wish.name}?" if another else "Write this?"
    if not _may_write(question, yes=yes):
        return False
    backup = file.replace(text)
    tell_change(wish, path, "replaced" if another else "added", backup)
    return True


def _remove(host: Host, name: str, path: Path, *, yes: bool) -> None:
    file, wish = HostFile.read(path), Wish(host, name, {}, {})
    if file.at(wish.keys) is None:
        names = file.at((host.section,))
        entries = ", ".join(names) if names and isinstance(names, dict) else "none"
        raise RefdeskError(f"{host.title} has no entry {name}. It has {entries}.")
    edits: dict[Keys, Any] = {wish.keys: None}
    input_keys = "inputs", str(input_index(file, key_variable(name)))
    if file.at(input_keys) is not None:
        edits[input_keys] = None
    text = file.edited(edits)
    show_change(file, text)
    if _may_write("Write this?", yes=yes):
        backup = file.replace(text)
        tell_change(wish, path, "removed", backup)


def _may_write(question: str, *, yes: bool) -> bool:
    """Whether to write: without a terminal, running the command is consent."""
    return yes or not sys.stdin.isatty() or confirm(question)


def _print_entry(wish: Wish, path: Path) -> None:
    empty = HostFile(path, b"", "", {})
    echo(f"For {wish.host.title}, in {path}:", err=True)
    result = {"host": wish.host.name, "name": wish.name, "file": path, "entry": wish.entry}
    print_result(result, empty.edited(wish.edits(empty)).removesuffix("\n"))
