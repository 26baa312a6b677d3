"""Edit the text of JSON with comments: comments, order, indentation and trailing commas stay as they are.

VS Code and Zed allow comments and trailing commas, and people write them into the files of other hosts, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r'(?P<blank>\s+|//[^\n\r]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")|(?P<mark>[{}\[\],:])|'
    r'(?P<word>[^\s{}\[\],:"/]+)',
    re.DOTALL,
)
_REST_OF_LINE = re.compile(r",?(?:[ \t]|/\*[^\n]*?\*/)*(?://[^\n\r]*)?(?=\r?\n|\Z)")
INDENT = "  "  # where the file shows none


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and its position in the text. Of members with the same key the last one counts.

    The keys of an array are its indexes: "0", "1", …
    """

    value: Any
    start: int
    end: int
    members: dict[str, _Member] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Member:
    """The start of a member, at its key if it has one; its value; and the position of the comma after it."""

    start: int
    node: _Node
    comma: int | None


def parse(text: str) -> Any:  # noqa: ANN401 any JSON
    """The value; None for a text that is blank or holds only comments.

    Raises:
        ValueError: the text isn't JSON, with or without comments. The message names the line.
    """
    root = _root_node(text)
    return root.value if root else None


def put(text: str, path: Sequence[str], entry: Any) -> str:  # noqa: ANN401 any JSON
    """The text with this value at a path of keys. Missing objects on the path are added.

    Raises:
        ValueError: the text isn't JSON, or a value on the path isn't an object.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _root_node(text)
    if root is None:
        json_text = _json_text(_value_at_path(path, entry), "", INDENT, newline)
        return text + (newline if text and not text.endswith("\n") else "") + json_text + newline
    node, missing = _deepest(root, path)
    step = _step(text, root)
    if not missing:
        json_text = _json_text(
            entry, _indentation(text, node.start), step, newline, like=text[node.start : node.end]
        )
        return text[: node.start] + json_text + text[node.end :]
    if not isinstance(node.value, dict) and not (
        isinstance(node.value, list) and missing[0] == str(len(node.members))
    ):
        raise ValueError(f"{'.'.join(path[: len(path) - len(missing)]) or 'it'} is not an object")
    return _with_member(text, node, missing[0], _value_at_path(missing[1:], entry), step)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the value at a path of keys, which must exist."""
    root = _root_node(text)
    assert root is not None  # noqa: S101 the caller's part
    parent, _ = _deepest(root, path[:-1])
    keys = list(parent.members)
    member, at = parent.members[path[-1]], keys.index(path[-1])
    start, end = member.start, (member.comma or member.node.end - 1) + 1
    if text[:start].rpartition("\n")[2].isspace() and (
        line_end := re.compile(r"[ \t]*\r?\n").match(text, end)
    ):
        start, end = text.rfind("\n", 0, start) + 1, line_end.end()
    elif member.comma is None:
        start = len(text[:start].rstrip(" \t"))
    else:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    text = text[:start] + text[end:]
    before = parent.members[keys[at - 1]].comma if at else None
    if before is not None and member.comma is None:
        text = text[:before] + text[before + 1 :]  # it was the last member: the comma before it goes, too
    return text


def _with_member(text: str, node: _Node, key: str, value: Any, step: str) -> str:  # noqa: ANN401 any JSON
    """The text with a new member at the end of an object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indentation(text, node.start)
    name = f"{json.dumps(key)}: " if isinstance(node.value, dict) else ""
    if not node.members:
        inner = outer + step
        member = name + _json_text(value, inner, step, newline)
        body = text[node.start + 1 : node.end - 1].rstrip()  # comments, if anything
        return f"{text[: node.start + 1]}{body}{newline}{inner}{member}{newline}{outer}{text[node.end - 1 :]}"
    last = list(node.members.values())[-1]
    if "\n" not in text[node.start : last.start]:  # all on one line
        member = name + json.dumps(value, ensure_ascii=False)
        return f"{text[: last.node.end]}, {member}{text[last.node.end :]}"
    inner = _indentation(text, last.start)
    member = newline + inner + name + _json_text(value, inner, step, newline)
    if last.comma is not None:  # the file's own style, kept
        member += ","
    trailing = _REST_OF_LINE.match(text, last.node.end)
    # After a comment on the same line, which belongs to the member before.
    at = trailing.end() if trailing else (last.comma or last.node.end - 1) + 1
    comma = "" if last.comma is not None else ","
    return f"{text[: last.node.end]}{comma}{text[last.node.end : at]}{member}{text[at:]}"


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


def _step(text: str, root: _Node) -> str:
    """The file's indentation step: how far its first member is indented, if it has a line of its own."""
    first = next(iter(root.members.values()), None)
    if first is None or "\n" not in text[root.start : first.start]:
        return INDENT
    return _indentation(text, first.start) or INDENT


def _deepest(node: _Node, path: Sequence[str]) -> tuple[_Node, Sequence[str]]:
    """The last existing value on a path, and the rest of the path."""
    for at, key in enumerate(path):
        if key not in node.members:
            return node, path[at:]
        node = node.members[key].node
    return node, ()


def _root_node(text: str) -> _Node | None:
    tokens = _tokens(text)
    if not tokens:
        return None
    try:
        node, at = _value(tokens, 0)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except IndexError as error:
        raise ValueError("it ends too early") from error
    if at != len(tokens):
        raise _syntax_error(tokens[at])
    return node


def _value(tokens: Sequence[_Token], at: int) -> tuple[_Node, int]:
    """The value that begins with a token, and the index of the token after it."""
    token = tokens[at]
    if token.text == "{":
        return _object(tokens, at)
    if token.text == "[":
        return _array(tokens, at)
    if token.kind == "mark":
        raise _syntax_error(token)
    return _Node(_scalar(token), token.start, token.end), at + 1


def _object(tokens: Sequence[_Token], at: int) -> tuple[_Node, int]:
    start, at, members = tokens[at].start, at + 1, dict[str, _Member]()
    while tokens[at].text != "}":
        key = tokens[at]
        if key.kind != "string":
            raise _syntax_error(key)
        if tokens[at + 1].text != ":":
            raise _syntax_error(tokens[at + 1])
        node, at = _value(tokens, at + 2)
        comma = tokens[at].start if tokens[at].text == "," else None
        if comma is None and tokens[at].text != "}":
            raise _syntax_error(tokens[at])
        name = str(_scalar(key))
        members.pop(name, None)  # so that the last one also has the last place
        members[name] = _Member(key.start, node, comma)
        at += comma is not None
    value = {name: member.node.value for name, member in members.items()}
    return _Node(value, start, tokens[at].end, members), at + 1


def _array(tokens: Sequence[_Token], at: int) -> tuple[_Node, int]:
    start, at, members = tokens[at].start, at + 1, dict[str, _Member]()
    while tokens[at].text != "]":
        begins = tokens[at].start
        node, at = _value(tokens, at)
        comma = tokens[at].start if tokens[at].text == "," else None
        if comma is None and tokens[at].text != "]":
            raise _syntax_error(tokens[at])
        members[str(len(members))] = _Member(begins, node, comma)
        at += comma is not None
    return _Node([member.node.value for member in members.values()], start, tokens[at].end, members), at + 1


def _scalar(token: _Token) -> Any:  # noqa: ANN401 any JSON
    try:
        return json.loads(token.text)
    except ValueError as error:
        raise _syntax_error(token) from error


def _tokens(text: str) -> list[_Token]:
    tokens, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"line {line} has something that is not JSON")
        if match.lastgroup != "blank":
            tokens.append(_Token(str(match.lastgroup), match[0], at, match.end(), line))
        at, line = match.end(), line + match[0].count("\n")
    return tokens


def _syntax_error(token: _Token) -> ValueError:
    return ValueError(f"line {token.line} has {token.text[:20]!r} where it can't be")
