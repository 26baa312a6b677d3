"""What `refdesk-admin doctor` looks at around a data folder: from the installed packages to the hosts."""

from __future__ import annotations

import os
import platform
import shlex
import tempfile
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from rag.access.keys import keys_file, read_keys
from rag.access.tenants import tenant_of
from rag.admin import config_checks
from rag.admin.connect_check import address_in, seen_by
from rag.admin.connect_output import connected
from rag.admin.hosts.file import HostFile
from rag.admin.hosts.launch import launch
from rag.admin.hosts.table import HOSTS, Folders
from rag.config.settings_checks import loose_permissions
from rag.errors import ConfigurationError, RefdeskError
from rag.runtime import install_command
from rag.store.care.folder_checks import Finding
from rag.store.read.connection import database_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rag.admin.hosts.table import Host
    from rag.config.settings import Settings

CLOCK_BEHIND = timedelta(minutes=5)  # file systems of other machines may differ by some seconds
EXPIRING = timedelta(days=14)
PACKAGE = "refdesk"


async def check_machine(settings: Settings, config: Path) -> AsyncIterator[Finding]:
    """Whether refdesk is installed well, only its owner can change its files, and the clock is right."""
    yield _check_installation()
    for finding in _check_permissions(settings, config):
        yield finding
    yield _check_clock(settings.data)
    yield check_temporary_folder()
    yield _check_keys(settings.data)


async def check_settings(settings: Settings) -> AsyncIterator[Finding]:
    """Whether what the settings name works. Remote models get one or two small requests each."""
    async for one in config_checks.findings(settings, os.environ):
        if one.state == "wrong":
            yield Finding("settings", one.part, one.text)
        else:
            yield Finding("settings", one.part, note=one.text if one.state == "note" else "")


async def check_clients(settings: Settings, config: Path) -> AsyncIterator[Finding]:
    """Whether a client of this desk can search, and hosts on this machine by the entries that they have."""
    try:
        asker = ("--tenant", tenant_of(settings))
    except ConfigurationError as error:
        yield Finding("client", "refdesk", note=f"Not tried. {error}")
    else:
        started = launch(settings, config, asker)
        entry = {"command": started.command, "args": started.args, "env": started.env}
        yield await _tried("client", "refdesk", entry, "Run refdesk, and read what it logs.")
    for host in HOSTS.values():
        path = host.file(Folders.of_this_machine(os.environ))
        try:
            entries = {name: HostFile.read(path).at((host.section, name)) for name in connected(host, path)}
        except ConfigurationError as error:
            yield Finding("hosts", host.name, str(error))
            continue
        for name, entry in entries.items():
            yield await _tried("hosts", f"{host.name}: {name}", entry, _remedy(host, name, entry))


def _remedy(host: Host, name: str, entry: dict[str, Any]) -> str:
    """What mends an entry: of an address the server there, else the entry anew with all that it asks for."""
    if address_in(entry) or entry.get("command") == "npx":
        return "Start the server at its address, and check the network and the key."
    anew = shlex.join(
        ["refdesk-admin", "connect", host.name, "--name", name, *map(str, entry.get("args", []))]
    )
    return f"Run {anew}, which writes the entry anew."


async def _tried(check: str, part: str, entry: dict[str, Any], remedy: str) -> Finding:
    try:
        with Path(os.devnull).open("w", encoding="utf-8") as log:  # noqa: ASYNC230 never blocks
            seen = await seen_by(entry, _kept_by_host, log)
    except _KeyIsElsewhereError:
        return Finding(check, part, note="Not tried: the host keeps the key.")
    except RefdeskError as error:
        return Finding(check, part, str(error), remedy)
    return Finding(check, f"{part}, {len(seen.tools)} tools, first search after {seen.search_seconds} s")


class _KeyIsElsewhereError(Exception):
    """An entry can't be tried, because its host keeps the key."""


def _kept_by_host() -> str:
    raise _KeyIsElsewhereError


def _check_installation() -> Finding:
    """Whether the installed packages are those that this version was made for."""
    wrong = []
    for line in metadata.requires(PACKAGE) or ():
        needed = Requirement(line)
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{needed.name} is missing")
            continue
        if not needed.specifier.contains(found, prereleases=True):
            wrong.append(f"{needed.name} is {found}, not {needed.specifier}")
    if wrong:
        problem = f"{', '.join(wrong)}."
        return Finding("installation", "packages", problem, f"Run {install_command()}")
    return Finding("installation", f"refdesk {metadata.version(PACKAGE)}, Python {platform.python_version()}")


def _check_permissions(settings: Settings, config: Path) -> list[Finding]:
    warnings = loose_permissions(config, settings.data)
    found = [Finding("permissions", "files and folders", warning) for warning in warnings]
    return found or [Finding("permissions", "files and folders")]


def _check_clock(data: Path) -> Finding:
    """Whether the newest change lies in the future. Keys and documents would then expire late."""
    manifests = database_folder(data).glob("*.lance/_versions/*.manifest")
    newest = max((file.stat().st_mtime for file in manifests), default=0.0)
    now, changed = datetime.now(UTC), datetime.fromtimestamp(newest, UTC)
    if changed - now <= CLOCK_BEHIND:
        return Finding("clock", f"{now:%Y-%m-%d %H:%M} UTC")
    problem = (
        f"It says {now:%Y-%m-%d %H:%M} UTC, but documents were changed at {changed:%Y-%m-%d %H:%M} UTC. "
        "Until then, API keys and documents expire too late."
    )
    return Finding("clock", f"{now:%Y-%m-%d %H:%M} UTC", problem, "Set the clock of this machine.")


def check_temporary_folder() -> Finding:
    """Whether the storage engine can write temporary files. Unlike Python, it tries one folder only."""
    folder = os.environ.get("TMPDIR") or "TMPDIR is not set"
    try:
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"refdesk")
    except OSError as error:
        problem = f"The storage engine can't write there, so changes fail: {error.strerror}."
        return Finding("temporary files", folder, problem, "Set TMPDIR to a folder that you can write.")
    return Finding("temporary files", folder)


def _check_keys(data: Path) -> Finding:
    try:
        keys = read_keys(keys_file(data)).keys
    except ConfigurationError as error:
        return Finding("api keys", "keys.json", "Nobody can use an API key.", str(error))
    now = datetime.now(UTC)
    expired = [key.id for key in keys if key.expires_at <= now]
    soon = [key.id for key in keys if now < key.expires_at <= now + EXPIRING]
    notes = [f"{', '.join(expired)} expired. Remove them with refdesk-admin key revoke."] if expired else []
    if soon:
        replace = "Make others with refdesk-admin key rotate."
        notes.append(f"{', '.join(soon)} will expire within {EXPIRING.days} days. {replace}")
    return Finding("api keys", f"{len(keys)} in keys.json", note=" ".join(notes))
