"""Edit the text of JSON with comments: comments, order, indentation and trailing commas stay as they are.

VS Code and Zed allow comments and trailing commas, and people write them into the files of other hosts, too.
Spaces in their place make strict JSON of the same length, so the positions in it are those in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rag.text.plain_text import without_json_comments, without_trailing_commas

_REST_OF_LINE = re.compile(r",?(?:[ \t]|/\*[^\n]*?\*/)*(?://[^\n\r]*)?(?=\r?\n|\Z)")
_WHITE = re.compile(r"\s*")
INDENT = "  "  # where the file shows none


@dataclass(frozen=True, slots=True)
class _Part:
    """A value and its position in the text. As a member it begins at its key, and has the comma after it."""

    start: int
    value_start: int
    end: int
    value: Any
    comma: int | None = None


def parse(text: str) -> Any:  # noqa: ANN401 any JSON
    """The value; None for a text that is blank or holds only comments.

    Raises:
        ValueError: the text isn't JSON, with or without comments. The message names the line.
    """
    strict = without_trailing_commas(without_json_comments(text))
    try:
        return json.loads(strict) if strict.strip() else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def put(text: str, path: Sequence[str], entry: Any) -> str:  # noqa: ANN401 any JSON
    """The text with this value at a path of keys. Missing objects on the path are added.

    Raises:
        ValueError: the text isn't JSON, or a value on the path isn't an object.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    clean = without_json_comments(text)
    if not clean.strip():
        json_text = _json_text(_value_at_path(path, entry), "", INDENT, newline)
        return text + (newline if text and not text.endswith("\n") else "") + json_text + newline
    root = _root(text, clean)
    part, missing = _deepest(clean, root, path)
    step = _step(text, _members(clean, root), root)
    if not missing:
        like = text[part.value_start : part.end]
        json_text = _json_text(entry, _indentation(text, part.value_start), step, newline, like=like)
        return text[: part.value_start] + json_text + text[part.end :]
    is_next_item = isinstance(part.value, list) and missing[0] == str(len(part.value))
    if not isinstance(part.value, dict) and not is_next_item:
        raise ValueError(f"{'.'.join(path[: len(path) - len(missing)]) or 'it'} is not an object")
    members = list(_members(clean, part).values())
    return _with_member(text, part, members, missing[0], _value_at_path(missing[1:], entry), step)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the value at a path of keys, which must exist."""
    clean = without_json_comments(text)
    parent, _ = _deepest(clean, _root(text, clean), path[:-1])
    members = _members(clean, parent)
    keys = list(members)
    member, at = members[path[-1]], keys.index(path[-1])
    start, end = member.start, (member.comma or member.end - 1) + 1
    if text[:start].rpartition("\n")[2].isspace() and (
        line_end := re.compile(r"[ \t]*\r?\n").match(text, end)
    ):
        start, end = text.rfind("\n", 0, start) + 1, line_end.end()
    elif member.comma is None:
        start = len(text[:start].rstrip(" \t"))
    else:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    text = text[:start] + text[end:]
    before = members[keys[at - 1]].comma if at else None
    if before is not None and member.comma is None:
        text = text[:before] + text[before + 1 :]  # it was the last member: the comma before it goes, too
    return text


def _with_member(
    text: str,
    part: _Part,
    members: Sequence[_Part],
    key: str,
    value: Any,  # noqa: ANN401 any JSON
    step: str,
) -> str:
    """The text with a new member at the end of an object or array that has these members."""
    newline = "\r\n" if "\r\n" in text else "\n"
    outer, begin, end = _indentation(text, part.value_start), part.value_start + 1, part.end - 1
    name = f"{json.dumps(key)}: " if isinstance(part.value, dict) else ""
    if not members:
        inner = outer + step
        member = name + _json_text(value, inner, step, newline)
        body = text[begin:end].rstrip()  # comments, if anything
        return f"{text[:begin]}{body}{newline}{inner}{member}{newline}{outer}{text[end:]}"
    last = members[-1]
    if "\n" not in text[part.value_start : last.start]:  # all on one line
        member = name + json.dumps(value, ensure_ascii=False)
        return f"{text[: last.end]}, {member}{text[last.end :]}"
    inner = _indentation(text, last.start)
    member = newline + inner + name + _json_text(value, inner, step, newline)
    if last.comma is not None:  # the file's own style, kept
        member += ","
    trailing = _REST_OF_LINE.match(text, last.end)
    # After a comment on the same line, which belongs to the member before.
    at = trailing.end() if trailing else (last.comma or last.end - 1) + 1
    comma = "" if last.comma is not None else ","
    return f"{text[: last.end]}{comma}{text[last.end : at]}{member}{text[at:]}"


def _value_at_path(keys: Sequence[str], value: Any) -> Any:  # noqa: ANN401 any JSON
    """("a", "b"), 1 -> {"a": {"b": 1}}."""
    for key in reversed(keys):
        value = {key: value}
    return value


def _json_text(value: Any, indentation: str, step: str, newline: str, like: str = "\n") -> str:  # noqa: ANN401 any JSON
    """A value as JSON at an indentation; on one line if the text that it replaces (`like`) is."""
    if "\n" not in like and value:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=step).split("\n")
    return (newline + indentation).join(lines)


def _indentation(text: str, at: int) -> str:
    """The indentation of the line of a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str, members: dict[str, _Part], root: _Part) -> str:
    """The file's indentation step: how far its first member is indented, if it has a line of its own."""
    first = next(iter(members.values()), None)
    if first is None or "\n" not in text[root.value_start : first.start]:
        return INDENT
    return _indentation(text, first.start) or INDENT


def _deepest(clean: str, part: _Part, path: Sequence[str]) -> tuple[_Part, Sequence[str]]:
    """The last existing value on a path, and the rest of the path."""
    for at, key in enumerate(path):
        members = _members(clean, part)
        if key not in members:
            return part, path[at:]
        part = members[key]
    return part, ()


def _root(text: str, clean: str) -> _Part:
    start = _after_white(clean, 0)
    return _Part(start, start, len(clean.rstrip()), parse(text))


def _members(clean: str, part: _Part) -> dict[str, _Part]:
    """The members of an object, or of an array by their indexes; of several with one key, the last.

    `clean` is the text without its comments.
    """
    strict, decoder = without_trailing_commas(clean), json.JSONDecoder()
    members: dict[str, _Part] = {}
    at = _after_white(strict, part.value_start + 1)
    while isinstance(part.value, dict | list) and at < part.end - 1:
        start, key = at, str(len(members))
        if isinstance(part.value, dict):
            key, colon = decoder.raw_decode(strict, at)
            at = _after_white(strict, _after_white(strict, colon) + 1)
        value, end = decoder.raw_decode(strict, at)
        behind = _after_white(clean, end)
        comma = behind if clean[behind] == "," else None
        members.pop(key, None)  # so that the last one also has the last place
        members[key] = _Part(start, at, end, value, comma)
        at = _after_white(strict, end if comma is None else comma + 1)
    return members


def _after_white(text: str, at: int) -> int:
    match = _WHITE.match(text, at)
    return match.end() if match else at
