"""`refdesk-admin connect`: put this desk into a host's configuration, or print a link that does."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import click

from rag.access.tenants import local_principal
from rag.admin.command_line import asker_arguments, command, settings_file
from rag.admin.connect.connect_output import (
    is_here,
    names_of_entries,
    print_skill,
    show_change,
    show_hosts,
    tell_change,
    tell_of_key,
    tell_rest,
)
from rag.admin.connect.host_config import HostFile, Keys, Wish, input_index, key_variable, remote_wish
from rag.admin.connect.known_hosts import HOSTS, Folders, Host, launch
from rag.admin.terminal import ask_secretly, confirm, echo, print_json
from rag.config.settings import Settings
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.home import check_data_folder

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


@command("connect", of_asker=True, on_bucket=True)
@click.argument("host", required=False, metavar="[HOST]", type=click.Choice([*HOSTS]))
@click.option("--name", default="refdesk", metavar="NAME", help="Name of the entry. Default: refdesk.")
@click.option("--remote", metavar="URL", help="Connect to a server at this address instead of starting one.")
@click.option(
    "--key-in",
    type=click.Choice(["variable", "file", "nowhere"]),
    help="With --remote: name a variable that holds the key, write the key into the file, or send none. "
    "Default: variable, or file if the host knows no variables.",
)
@click.option("--print", "prints", is_flag=True, help="Only print the entry, to put in by hand.")
@click.option("--link", "links", is_flag=True, help="Only print a link that installs it with one click.")
@click.option("--remove", "removes", is_flag=True, help="Take the entry out.")
@click.option(
    "--check", "checks", is_flag=True, help="Start the server as the host would; show what it sees."
)
@click.option("--skill", is_flag=True, help="Print a text that teaches an agent to use the desk: a skill.")
@click.option("--yes", is_flag=True, help="Don't ask. Also replace another entry of the same name.")
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
    as_json: bool,
) -> None:
    """Connect an assistant to this desk. Without HOST: list the hosts on this machine.

    HOST is claude-desktop, claude-code, vscode, cursor, windsurf, zed, gemini-cli, codex, goose or lm-studio.
    Its configuration gets an entry that starts this desk's server with the data folder, settings, tenant and
    user of this command. On a terminal you see what changes and are asked before it is written; elsewhere, a
    host that seems not to be installed needs --yes. Nothing is written that could not start. Comments and
    other servers stay, and a copy of the earlier file is kept next to it.

    With --remote, the entry leads to a server that was started with refdesk --http. If the key belongs into
    the file, it is asked for, or read from standard input.

    --skill prints a skill for agents. Claude Code reads it from ~/.claude/skills/refdesk/SKILL.md.
    """
    if skill:
        print_skill(settings, name, as_json=as_json)
        return
    if host is None:
        show_hosts(as_json=as_json)
        return
    chosen = HOSTS[host]
    key_alone = bool(key_in) and remote is None
    _check_options(chosen, name, key_in=key_alone, only=(prints, links, removes, checks))
    path = chosen.file(Folders.of_this_machine(os.environ))
    if removes:
        _remove(chosen, name, path, yes=yes, as_json=as_json)
        return
    if checks:
        from rag.admin.connect.connect_check import check_entry  # noqa: PLC0415 no other command needs the SDK

        await check_entry(HostFile.read(path), chosen, name, _key, as_json=as_json)
        return
    if remote is not None:
        wish = remote_wish(chosen, name, remote, key_in, _placeholder if prints or links else _key)
    else:
        _check_start(settings)
        started = launch(settings, settings_file(), asker_arguments())
        wish = Wish(chosen, name, chosen.local(name, started), {})
    if prints or links:
        _print_link(wish, as_json=as_json) if links else _print_entry(wish, path, as_json=as_json)
        tell_of_key(wish, remote)
    elif _add(wish, path, yes=yes, as_json=as_json):
        tell_rest(settings, wish, path, remote)


def _check_options(host: Host, name: str, *, key_in: bool, only: tuple[bool, ...]) -> None:
    """Raise UsageError for options that can't be combined, or that this host doesn't have."""
    if sum(only) > 1:
        raise click.UsageError("Give only one of --print, --link, --remove and --check.")
    if not NAME.fullmatch(name):
        raise click.UsageError("--name begins with a letter and has up to 48 letters, digits and hyphens.")
    if key_in:
        raise click.UsageError("--key-in needs --remote.")
    if only[1] and host.name not in WITH_LINKS:
        raise click.UsageError(f"{host.title} takes no links that install a server. Leave out --link.")


def _check_start(settings: Settings) -> None:
    """Check that the server of an entry could start. A missing data folder is fine: it may be mounted later.

    Raises:
        ConfigurationError: the tenant is unknown or ambiguous, or the folder isn't a data folder of refdesk.
    """
    with suppress(StoreError):  # a bucket that answers later is served then
        local_principal(settings)
    data = settings.data
    if not settings.storage.uri and (data.is_file() or (data.is_dir() and any(data.iterdir()))):
        check_data_folder(data)


def _placeholder() -> str:
    return PLACEHOLDER


def _key() -> str:
    """The key, from a person or standard input.

    Raises:
        ConfigurationError: the input is empty or isn't a key.
    """
    line = ask_secretly("API key") if sys.stdin.isatty() else sys.stdin.readline()
    key = line.strip()
    if not key or not key.isascii() or any(letter.isspace() for letter in key):
        raise ConfigurationError(
            "The API key is missing, or has characters that no key has. Type it when you are asked, or send "
            "it to standard input. refdesk-admin key create creates one."
        )
    return key


def _add(wish: Wish, path: Path, *, yes: bool, as_json: bool) -> bool:
    """Add an entry to a host's file, unless the user declines. Returns whether it is there."""
    file = HostFile.read(path)
    there, edits = file.at(wish.keys), wish.edits(file)
    if all(file.at(keys) == value for keys, value in edits.items()):
        tell_change(wish, path, "unchanged", None, as_json=as_json)
        return True
    another = there is not None and there != edits[wish.keys]
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
    tell_change(wish, path, "replaced" if another else "added", backup, as_json=as_json)
    return True


def _remove(host: Host, name: str, path: Path, *, yes: bool, as_json: bool) -> None:
    file, wish = HostFile.read(path), Wish(host, name, {}, {})
    if file.at(wish.keys) is None:
        raise RefdeskError(f"{host.title} has no entry {name}. {names_of_entries(file, host)}")
    edits: dict[Keys, Any] = {wish.keys: None}
    input_keys = "inputs", str(input_index(file, key_variable(name)))
    if file.at(input_keys) is not None:
        edits[input_keys] = None
    text = file.edited(edits)
    show_change(file, text)
    if _may_write("Write this?", yes=yes):
        backup = file.replace(text)
        tell_change(wish, path, "removed", backup, as_json=as_json)
        if backup and "headers" in str(file.at(wish.keys)):
            echo(f"{backup} still has the key. Remove that file when you don't need it any more.", err=True)


def _may_write(question: str, *, yes: bool) -> bool:
    """Whether to write: without a terminal, running the command is consent."""
    return yes or not sys.stdin.isatty() or confirm(question)


def _print_entry(wish: Wish, path: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"host": wish.host.name, "name": wish.name, "file": path, "entry": wish.entry})
        return
    empty = HostFile(path, b"", "", {})
    echo(f"For {wish.host.title}, in {path}:", err=True)
    echo(empty.edited(wish.edits(empty)).removesuffix("\n"))


def _print_link(wish: Wish, *, as_json: bool) -> None:
    url = link(wish.host.name, wish.name, wish.entry, [wish.inputs] if wish.inputs else [])
    if as_json:
        print_json({"host": wish.host.name, "name": wish.name, "link": url})
    else:
        echo(url)
