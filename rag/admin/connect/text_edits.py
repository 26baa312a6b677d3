"""Edit the text of a host's configuration in JSON with comments, TOML or YAML: all else in it stays as it is.

Libraries were tried in its place. tomlkit (0.15) takes along the comment above the next table when it changes
or deletes one, puts a new table between a comment and the table that it is about, and gives a file with CRLF
lines without. ruamel.yaml (0.19, round trip with quotes preserved) indents lists and mappings in its own way,
drops `---` and a file's only comment, and rewrites `~` and escapes; a file with CRLF comes out mixed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, NamedTuple

import yaml

from rag.text.plain_text import without_json_comments, without_trailing_commas


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _with_end(text: str) -> str:
    return text + _newline(text) if text and not text.endswith("\n") else text


# JSON: comments, order, indentation and trailing commas stay. VS Code and Zed allow comments and trailing
# commas, and people write them into the files of other hosts, too. Spaces in their place make strict JSON of
# the same length, so the positions in it are those in the file.

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


def parse_json(text: str) -> Any:  # noqa: ANN401 any JSON
    """The value; None for a text that is blank or holds only comments.

    Raises:
        ValueError: the text isn't JSON, with or without comments. The message names the line.
    """
    strict = without_trailing_commas(without_json_comments(text))
    try:
        return json.loads(strict) if strict.strip() else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def put_json(text: str, path: Sequence[str], entry: Any) -> str:  # noqa: ANN401 any JSON
    """The text with this value at a path of keys. Missing objects on the path are added.

    Raises:
        ValueError: the text isn't JSON, or a value on the path isn't an object.
    """
    newline = _newline(text)
    clean = without_json_comments(text)
    if not clean.strip():
        return _with_end(text) + _json_text(_value_at_path(path, entry), "", INDENT, newline) + newline
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


def drop_json(text: str, path: Sequence[str]) -> str:
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
    newline = _newline(text)
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
    return _Part(start, start, len(clean.rstrip()), parse_json(text))


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


# TOML: a table of tables.

NO_TABLES = "{} is an inline table, or written with dotted keys"

_HEADER = re.compile(r"[ \t]*\[")
_SAYS_NOTHING = re.compile(r"[ \t]*(#.*)?\r?\n?$")  # blank, or a comment


def put_toml(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with this table at a path of two keys, replacing an existing one, or else at the end.

    Raises:
        ValueError: the tables beside it are within an inline table, or have dotted keys.
    """
    newline = _newline(text)
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_toml_value(value)}" for key, value in entry.items())]
    table = newline.join(lines) + newline
    existing = _lines(text)
    if path[1] in tomllib.loads(text).get(path[0], {}) and (ours := _lines_of(existing, path)):
        after = "".join(line for at, line in enumerate(existing) if at > ours[0] and at not in ours)
        return "".join(existing[: ours[0]]) + table + after
    text = _with_end(text) + (newline if text.strip() else "") + table
    if _is_broken(text):
        raise ValueError(NO_TABLES.format(path[0]))
    return text


def drop_toml(text: str, path: Sequence[str]) -> str:
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
    """Whether these lines aren't TOML, because they end within a string or an array of several lines."""
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


# YAML: a mapping of mappings.

STEP = 2


def parse_yaml(text: str) -> Any:  # noqa: ANN401 any YAML
    """The values; raises ValueError if the text isn't YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def put_yaml(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with this mapping at a path of two keys, replacing an existing one.

    Raises:
        ValueError: the outer mapping is written in braces.
    """
    above, name = path
    newline = _newline(text)
    pair = _member(yaml.compose(text, Loader=yaml.SafeLoader), above)
    if pair is None:
        return f"{_with_end(text)}{above}:{newline}{_yaml_lines(name, entry, STEP, newline)}"
    key, section = pair
    if not section.value:  # nothing below it yet
        text = text[: key.end_mark.index] + ":" + text[section.end_mark.index :]
        at, column = _line_end(text, key.end_mark.index), key.start_mark.column + STEP
    elif not isinstance(section, yaml.MappingNode) or section.flow_style:
        raise ValueError(f"{above} is not a mapping with a line for each key")
    else:
        column, at = section.value[0][0].start_mark.column, _line_end(text, _end(section))
        if _member(section, name):
            at, end = _span(text, section, name)
            text = text[:at] + text[end:]
    before = text[:at]
    before += newline if before and not before.endswith("\n") else ""
    return before + _yaml_lines(name, entry, column, newline) + text[at:]


def drop_yaml(text: str, path: Sequence[str]) -> str:
    """The text without the mapping at a path of two keys, which must exist.

    Raises:
        ValueError: the outer mapping is written in braces.
    """
    pair = _member(yaml.compose(text, Loader=yaml.SafeLoader), path[0])
    if pair is None or pair[1].flow_style:
        raise ValueError(f"{path[0]} is not a mapping with a line for each key")
    (above, section), (start, end) = pair, _span(text, pair[1], path[1])
    text = text[:start] + text[end:]
    if len(section.value) == 1:  # an empty value would be null
        text = f"{text[: above.end_mark.index]}: {{}}{text[above.end_mark.index + 1 :]}"
    return text


def _yaml_lines(name: str, entry: Mapping[str, Any], column: int, newline: str) -> str:
    """A key and its mapping, indented to a column. Values are JSON, which is valid YAML."""
    inner = " " * (column + STEP)
    lines = (
        f"{inner}{key}: {json.dumps(value, ensure_ascii=False)}{newline}" for key, value in entry.items()
    )
    return f"{' ' * column}{name}:{newline}{''.join(lines)}"


def _member(mapping: Any, name: str) -> tuple[Any, Any] | None:  # noqa: ANN401 nodes, which have no types
    if not isinstance(mapping, yaml.MappingNode):
        return None
    return next((pair for pair in reversed(mapping.value) if pair[0].value == name), None)


def _span(text: str, section: Any, name: str) -> tuple[int, int]:  # noqa: ANN401 the same
    pair = _member(section, name)
    assert pair is not None  # noqa: S101 the caller's part
    key, value = pair
    return text.rfind("\n", 0, key.start_mark.index) + 1, _line_end(text, _end(value) or key.end_mark.index)


def _end(node: Any) -> int:  # noqa: ANN401 the same
    """The end of a value. The end mark of a block comes after the comments that follow it, so it's no use."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1]) if isinstance(last, tuple) else _end(last)


def _line_end(text: str, at: int) -> int:
    """The start of the next line; the position itself if a line starts there."""
    if at and text[at - 1] == "\n":
        return at
    return (text.find("\n", at) + 1) or len(text)


class TextFormat(NamedTuple):
    """The functions of a format: parse a text, and put or drop a value at a path of keys."""

    parse: Callable[[str], Any]
    put: Callable[[str, Sequence[str], Any], str]
    drop: Callable[[str, Sequence[str]], str]


FORMATS = {
    ".json": TextFormat(parse_json, put_json, drop_json),
    ".toml": TextFormat(tomllib.loads, put_toml, drop_toml),
    ".yaml": TextFormat(parse_yaml, put_yaml, drop_yaml),
}
