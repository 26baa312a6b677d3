"""Edit a table of tables in the text of a TOML file: all else, comments too, stays as it is.

tomlkit (0.15) was tried in its place. Replacing or deleting a table takes along the comment above the
next one, a new table comes between a comment and the table that it is about, and a file with CRLF gets
lines without.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

NO_TABLES = "{} is an inline table, or written with dotted keys"

_HEADER = re.compile(r"[ \t]*\[")
_SAYS_NOTHING = re.compile(r"[ \t]*(#.*)?\r?\n?$")  # blank, or a comment


def parse(text: str) -> dict[str, Any]:
    """The values; raises ValueError if the text isn't TOML."""
    return tomllib.loads(text)


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with this table at a path of two keys, replacing an existing one, or else at the end.

    Raises:
        ValueError: the tables beside it are within an inline table, or have dotted keys.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_toml_value(value)}" for key, value in entry.items())]
    table = newline.join(lines) + newline
    existing = _lines(text)
    if path[1] in parse(text).get(path[0], {}) and (ours := _lines_of(existing, path)):
        after = "".join(line for at, line in enumerate(existing) if at > ours[0] and at not in ours)
        return "".join(existing[: ours[0]]) + table + after
    if text and not text.endswith("\n"):
        text += newline
    text += (newline if text.strip() else "") + table
    if _is_broken(text):
        raise ValueError(NO_TABLES.format(path[0]))
    return text


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the table at a path of two keys, and the blank line above it."""
    existing = _lines(text)
    ours = _lines_of(existing, path)
    if ours and ours[0] and not existing[ours[0] - 1].strip():
        ours = [ours[0] - 1, *ours]
    return "".join(line for at, line in enumerate(existing) if at not in ours)


def _lines(text: str) -> list[str]:
    """The lines with their ends; TOML ends a line with LF only, while `splitlines` knows eight more ends."""
    return StringIO(text, newline="\n").readlines()


def _lines_of(lines: Sequence[str], path: Sequence[str]) -> list[int]:
    """The indexes of the lines of a table and its subtables, without the comments above the next table."""
    names = r"[ \t]*\.[ \t]*".join(
        rf"(?:{re.escape(key)}|([\"']){re.escape(key)}\{at})" for at, key in enumerate(path, 1)
    )
    header = re.compile(rf"[ \t]*\[[ \t]*{names}[ \t]*[.\]]")
    ours: list[int] = []
    pending: list[int] = []
    inside = False
    for at, line in enumerate(lines):
        names_ours = bool(header.match(line))
        if (inside or names_ours) and _HEADER.match(line) and not _is_broken("".join(lines[:at])):
            inside, pending = names_ours, []
        if inside and _SAYS_NOTHING.match(line):
            pending.append(at)
        elif inside:
            ours += [*pending, at]
            pending = []
    return ours


def _is_broken(text: str) -> bool:
    """Whether this isn't TOML, as a beginning isn't that ends within a text or an array of several lines."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return True
    return False


def _toml_value(value: Any) -> str:  # noqa: ANN401 any JSON
    """A value as TOML. Strings, numbers and arrays have the same form as in JSON."""
    if isinstance(value, dict):
        members = (f"{json.dumps(key)} = {_toml_value(member)}" for key, member in value.items())
        return f"{{ {', '.join(members)} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)
