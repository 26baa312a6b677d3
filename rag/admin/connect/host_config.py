"""Change a host's configuration: read the file, edit its text, check the result, replace the file.

A `Wish` is the desired content: an entry and what belongs to it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from rag.admin.connect.known_hosts import Host, Remote
from rag.admin.connect.text_edits import FORMATS
from rag.errors import ConfigurationError, if_system_refuses

Keys: TypeAlias = "tuple[str, ...]"
"""A path in a configuration: ("mcpServers", "refdesk"), or ("inputs", "0") in an array."""
BYTE_ORDER_MARK = "\ufeff"
BACKUP = ".before-refdesk"  # behind the file's name
SECRET_SECTIONS = frozenset({"headers", "http_headers", "env", "envs", "environment"})  # of entries


@dataclass(frozen=True, slots=True)
class HostFile:
    """A host's configuration as it was read: its text, and the values in it."""

    path: Path
    raw: bytes
    text: str
    values: Any

    @classmethod
    def read(cls, path: Path) -> HostFile:
        """The file, or its backup; a missing file is empty.

        Raises:
            ConfigurationError: the file can't be read or parsed.
        """
        try:
            raw = path.read_bytes() if path.exists() else b""
            text = raw.decode()
            format_ = FORMATS[Path(path.name.removesuffix(BACKUP)).suffix]
            values = format_.parse(text.removeprefix(BYTE_ORDER_MARK))
        except OSError as error:
            raise ConfigurationError(f"{path} can't be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} is not text in UTF-8. {_by_hand(path)}") from error
        except ValueError as error:
            raise ConfigurationError(f"{path} can't be understood: {error}. {_by_hand(path)}") from error
        if not isinstance(values, dict | None):
            raise ConfigurationError(f"{path} doesn't hold an object. {_by_hand(path)}")
        return cls(path, raw, text, values or {})

    @classmethod
    def of(cls, host: Host, path: Path) -> HostFile:
        """The host's file, if the host can read it, too.

        Raises:
            ConfigurationError: the file can't be read or parsed, here or by the host.
        """
        file = cls.read(path)
        if host.reads_plain_json and file.values:
            try:
                json.loads(file.text.removeprefix(BYTE_ORDER_MARK))
            except ValueError as error:
                raise ConfigurationError(
                    f"{host.title} can't read {path}: {error}. Mend that line: plain JSON has no "
                    "comments, and no comma before a closing bracket."
                ) from error
        return file

    def at(self, keys: Keys) -> Any:  # noqa: ANN401 whatever stands there
        """The value at a path of keys; None if it is missing."""
        value = self.values
        for key in keys:
            if isinstance(value, list):
                value = _by_index(value)
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def edited(self, edits: Mapping[Keys, Any]) -> str:
        """The text with these values at their paths of keys; None removes a value. The rest stays as it is.

        Raises:
            ConfigurationError: the text can't be edited in this way.
        """
        mark = BYTE_ORDER_MARK if self.text.startswith(BYTE_ORDER_MARK) else ""
        text, kind = self.text.removeprefix(BYTE_ORDER_MARK), FORMATS[self.path.suffix]
        expected = self.values
        try:
            for keys, value in edits.items():
                text = kind.drop(text, keys) if value is None else kind.put(text, keys, value)
                expected = _values_after(expected, keys, value)
            became = kind.parse(text) or {}
        except ValueError as error:
            raise ConfigurationError(
                f"{self.path} can't be changed: {error}. {_by_hand(self.path)}"
            ) from error
        sections = {keys[0] for keys in edits}
        if _without_empty(became, sections) != _without_empty(expected, sections):
            raise ConfigurationError(
                f"{self.path} is written in a way that can't be changed. {_by_hand(self.path)}"
            )
        return f"{mark}{text}"

    def diff(self, text: str) -> Iterator[str]:
        """The lines that change, with one line of context."""
        before, after = (content.removeprefix(BYTE_ORDER_MARK).splitlines() for content in (self.text, text))
        lines = unified_diff(before, after, lineterm="", n=1)
        return (line for line in lines if not line.startswith(("---", "+++", "@@")))

    @property
    def secrets(self) -> set[str]:
        """The values that may be secrets: of headers and environment variables, also of other entries."""
        return {*_secrets(self.values)}

    def replace(self, text: str) -> Path | None:
        """Replace the file's text atomically. Returns the path of its backup, the oldest one.

        A symbolic link stays; its target is replaced.

        Raises:
            ConfigurationError: the file can't be written or backed up, or has changed since it was read.
        """
        real = self.path.resolve()
        if real.exists() and not real.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(f"{real} is read-only. {_by_hand(self.path)}")
        remedy = f"If its host is running, quit it first. {_by_hand(self.path)}"
        with if_system_refuses(ConfigurationError, f"{real} can't be written", remedy):
            real.parent.mkdir(parents=True, exist_ok=True)
            backup = self._keep_old(real)
            self._swap(real, text)
        return backup

    def _keep_old(self, real: Path) -> Path | None:
        """Back the file up, unless a backup of an earlier state exists."""
        backup = self.path.with_name(self.path.name + BACKUP)
        if not os.path.lexists(backup):
            if not real.exists():
                return None
            _copy_new(real, backup)
        elif not stat.S_ISREG(mode := backup.lstat().st_mode):
            kind = "a link" if stat.S_ISLNK(mode) else "not a file"
            raise ConfigurationError(
                f"{backup} is {kind}, but {self.path.name} is to be kept there as it was. Move it away, and "
                "run the command again."
            )
        return backup

    def _swap(self, real: Path, text: str) -> None:
        """Write a temporary file and rename it, so that a host never reads half of it."""
        handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        new = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            if real.exists():
                shutil.copymode(real, new)
            if (real.read_bytes() if real.exists() else b"") != self.raw:
                raise ConfigurationError(f"{real} changed in the meantime. Run the command again.")
            new.replace(real)
        finally:
            new.unlink(missing_ok=True)


def _copy_new(file: Path, copy: Path) -> None:
    """Copy a file to a path that doesn't exist, not even as a dangling link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(copy, flags, stat.S_IRUSR | stat.S_IWUSR), "wb") as target:
        target.write(file.read_bytes())
    shutil.copystat(file, copy, follow_symlinks=False)


def _secrets(value: Any, *, inside: bool = False) -> Iterator[str]:  # noqa: ANN401 whatever stands there
    if isinstance(value, str) and inside and value:
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _secrets(member, inside=inside or str(key).lower() in SECRET_SECTIONS)
    elif isinstance(value, list):
        for member in value:
            yield from _secrets(member, inside=inside)


def _values_after(values: Any, keys: Sequence[str], value: Any) -> Any:  # noqa: ANN401 whatever stands there
    """The expected values after an edit: {"a": {"b": 1}}, ("a", "c"), 2 -> {"a": {"b": 1, "c": 2}}."""
    if not keys:
        return value
    if isinstance(values, list):
        return list(_values_after(_by_index(values), keys, value).values())
    members = dict(values or {})
    below = _values_after(members.pop(keys[0], None), keys[1:], value)
    return members if below is None else members | {keys[0]: below}


def _by_index(values: Sequence[Any]) -> dict[str, Any]:
    return {str(at): value for at, value in enumerate(values)}


def _without_empty(values: Mapping[str, Any], sections: Collection[str]) -> dict[str, Any]:
    """The values without empty sections: TOML drops a section with its last table, JSON keeps it."""
    return {key: value for key, value in values.items() if value or key not in sections}


def _by_hand(path: Path) -> str:
    return f"Mend {path.name}, or add by hand what --print shows."


OURS = ("REFDESK_", "DESK_AUTHORIZATION")
REACHES = {
    *("type", "command", "cmd", "args", "env", "envs", "env_keys"),
    *("url", "serverUrl", "uri", "headers", "http_headers", "bearer_token_env_var"),
}
"""The keys of an entry that say how a server is reached. The others belong to the host and its user."""


@dataclass(frozen=True, slots=True)
class Wish:
    """An entry to put into a host's configuration under a name."""

    host: Host
    name: str
    entry: dict[str, Any]
    inputs: dict[str, Any]
    key: str = ""

    @property
    def keys(self) -> Keys:
        """The path of the entry."""
        return self.host.section, self.name

    def edits(self, file: HostFile) -> dict[Keys, Any]:
        """The values to put into a file. VS Code has a separate list of inputs."""
        edits: dict[Keys, Any] = {self.keys: self._beside(file.at(self.keys))}
        if self.inputs:
            if isinstance(file.at(("inputs",)), list):
                edits["inputs", str(input_index(file, self.inputs["id"]))] = self.inputs
            else:
                edits["inputs",] = [self.inputs]
        return edits

    def _beside(self, present: object) -> dict[str, Any]:
        """The entry with the additional keys of the present one.

        Hosts and their users set keys of their own in an entry: allowed tools, or that it is switched off.
        """
        if not isinstance(present, dict):
            return self.entry
        extras = {name: value for name, value in present.items() if name not in REACHES}
        entry = {**self.entry, **extras}
        for variables in ("env", "envs"):
            environment = present.get(variables)
            if isinstance(environment, dict) and ("args" in self.entry or "cmd" in self.entry):
                of_host = {
                    name: value for name, value in environment.items() if not str(name).startswith(OURS)
                }
                if merged := {**of_host, **self.entry.get(variables, {})}:
                    entry[variables] = merged
        return entry


def remote_wish(host: Host, name: str, url: str, key_in: str | None, key: Callable[[], str]) -> Wish:
    """An entry for a server at an address. `key` is called only if the file must hold the key.

    Raises:
        ConfigurationError: the address is not valid, or the host can't take the key from a variable.
    """
    _check_url(url)
    if key_in == "variable" and not host.reference:
        raise ConfigurationError(f"{host.title} can't take a key from a variable. Use --key-in file.")
    if key_in == "nowhere":
        return Wish(host, name, host.remote(name, Remote(url, "")), {})
    if host.reference and key_in != "file":
        variable = key_variable(name)
        entry = host.remote(name, Remote(url, f"Bearer {host.reference % variable}", variable))
        prompt = {
            "type": "promptString",
            "id": variable,
            "description": f"API key of {name}",
            "password": True,
        }
        return Wish(host, name, entry, prompt if host.name == "vscode" else {})
    secret = key()
    return Wish(host, name, host.remote(name, Remote(url, f"Bearer {secret}")), {}, secret)


def key_variable(name: str) -> str:
    """The environment variable of an entry's key: "refdesk" -> "MCP_REFDESK_KEY".

    It must not begin with REFDESK_: the server refuses to start with unknown settings.
    """
    return f"MCP_{name.upper().replace('-', '_')}_KEY"


def input_index(file: HostFile, id_: str) -> int:
    """The index of an input in VS Code's list, or the index after the last."""
    inputs = file.at(("inputs",))
    if not isinstance(inputs, list):
        return 0
    ids = [entry.get("id") if isinstance(entry, dict) else None for entry in inputs]
    return ids.index(id_) if id_ in ids else len(ids)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.username or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigurationError(f"{url!r} is not an address like https://desk.example.com/mcp.")
