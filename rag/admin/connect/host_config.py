"""Change a host's configuration: read the file, edit its text, check the result, replace the file.

A `Wish` is what shall stand in it: an entry, and what belongs to that.
"""

from __future__ import annotations

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

from rag.admin.connect import jsonc, toml_text, yaml_text
from rag.admin.connect.known_hosts import Host, Remote
from rag.errors import ConfigurationError

Keys: TypeAlias = "tuple[str, ...]"
"""A path in a configuration: ("mcpServers", "refdesk"), or ("inputs", "0") in an array."""
BYTE_ORDER_MARK = "\ufeff"
BACKUP = ".before-refdesk"  # behind the file's name
FORMATS = {".json": jsonc, ".toml": toml_text, ".yaml": yaml_text}
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
        """The file; an empty one if there is none.

        Raises:
            ConfigurationError: it can't be read, or not be understood.
        """
        try:
            raw = path.read_bytes() if path.exists() else b""
            text = raw.decode()
            values = _format(path).parse(text.removeprefix(BYTE_ORDER_MARK))
        except OSError as error:
            raise ConfigurationError(f"{path} can't be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} is not text in UTF-8. {_by_hand(path)}") from error
        except ValueError as error:
            raise ConfigurationError(f"{path} can't be understood: {error}. {_by_hand(path)}") from error
        if not isinstance(values, dict | None):
            raise ConfigurationError(f"{path} doesn't hold an object. {_by_hand(path)}")
        return cls(path, raw, text, values or {})

    def at(self, keys: Keys) -> Any:  # noqa: ANN401 whatever stands there
        """What stands at a path of keys; None if nothing does."""
        value = self.values
        for key in keys:
            if isinstance(value, list):
                value = dict(zip(map(str, range(len(value))), value, strict=True))
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def edited(self, edits: Mapping[Keys, Any]) -> str:
        """The text with these values at their paths of keys, without those that are None, and else as it was.

        Raises:
            ConfigurationError: that can't be done with this text.
        """
        mark = BYTE_ORDER_MARK if self.text.startswith(BYTE_ORDER_MARK) else ""
        text, kind, expected = self.text.removeprefix(BYTE_ORDER_MARK), _format(self.path), self.values
        try:
            for keys, value in edits.items():
                text = kind.drop(text, keys) if value is None else kind.put(text, keys, value)
                expected = _changed(expected, keys, value)
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
        """The lines that change, with a line around them."""
        before, after = (content.removeprefix(BYTE_ORDER_MARK).splitlines() for content in (self.text, text))
        lines = unified_diff(before, after, lineterm="", n=1)
        return (line for line in lines if not line.startswith(("---", "+++", "@@")))

    @property
    def secrets(self) -> set[str]:
        """The texts that may be secrets: of headers and environment variables, whoever's they are."""
        return {*_secrets(self.values)}

    def replace(self, text: str) -> Path | None:
        """Put this text into the file, in one step. Returns where it is kept as it was at first.

        A link stays, and what it leads to is replaced.

        Raises:
            ConfigurationError: the file can't be written or kept, or has changed since it was read.
        """
        real = self.path.resolve()
        if real.exists() and not real.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(f"{real} is read-only. {_by_hand(self.path)}")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            backup = self._keep_old(real)
            self._swap(real, text)
        except OSError as error:
            raise ConfigurationError(
                f"{real} can't be written: {error.strerror}. If its host is running, quit it first. "
                f"{_by_hand(self.path)}"
            ) from error
        return backup

    def _keep_old(self, real: Path) -> Path | None:
        """Keep the file as it is, unless an earlier state is kept.

        Raises:
            ConfigurationError: a link is in the place, through which another file would be lost, or a folder.
        """
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
        """Write beside the file and rename, so that a host never reads half of it."""
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
    """Copy a file to where there is nothing, not even a link that leads nowhere yet."""
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


def _format(path: Path) -> Any:  # noqa: ANN401 one of three modules with the same functions
    return FORMATS[path.suffix]


def _changed(values: Any, keys: Sequence[str], value: Any) -> Any:  # noqa: ANN401 whatever stands there
    """The values that are meant to come out: {"a": {"b": 1}}, ("a", "c"), 2 -> {"a": {"b": 1, "c": 2}}."""
    if not keys:
        return value
    if isinstance(values, list):
        values = dict(zip(map(str, range(len(values))), values, strict=True))
        return list(_changed(values, keys, value).values())
    members = dict(values or {})
    below = _changed(members.pop(keys[0], None), keys[1:], value)
    return members if below is None else members | {keys[0]: below}


def _without_empty(values: Mapping[str, Any], sections: Collection[str]) -> dict[str, Any]:
    """TOML drops a section with its last table, JSON keeps it: both are fine."""
    return {key: value for key, value in values.items() if value or key not in sections}


def _by_hand(path: Path) -> str:
    return f"Mend {path.name}, or add by hand what --print shows."


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
                edits["inputs", str(input_index(file, self.inputs["id"]))] = self.inputs
            else:
                edits["inputs",] = [self.inputs]
        return edits

    def _beside(self, there: object) -> dict[str, Any]:
        """The entry, with what a person or the host has set beside it in the one that is there.

        Hosts keep in an entry which tools are allowed, or that it is switched off.
        """
        if not isinstance(there, dict):
            return self.entry
        extras = {name: value for name, value in there.items() if name not in REACHES}
        entry = {**self.entry, **extras}
        for variables in ("env", "envs"):
            environment = there.get(variables)
            if isinstance(environment, dict) and ("args" in self.entry or "cmd" in self.entry):
                theirs = {
                    name: value for name, value in environment.items() if not str(name).startswith(OURS)
                }
                if merged := {**theirs, **self.entry.get(variables, {})}:
                    entry[variables] = merged
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

    It may not begin like a setting of ours: a server that finds one that it doesn't know refuses to start.
    """
    return f"MCP_{name.upper().replace('-', '_')}_KEY"


def input_index(file: HostFile, id_: str) -> int:
    """The position of an input of VS Code in their list, or the one behind the last."""
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
