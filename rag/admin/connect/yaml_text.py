"""Edit a mapping of mappings in the text of a YAML file: all else, comments too, stays as it is.

ruamel.yaml (0.19, round trip with quotes preserved) was tried in its place. It indents lists and mappings
in its own way, drops `---` and a file's only comment, and rewrites `~` and escapes. A file with CRLF
comes out mixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

STEP = 2


def parse(text: str) -> Any:  # noqa: ANN401 any YAML
    """The values; raises ValueError if the text isn't YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with this mapping at a path of two keys, replacing an existing one.

    Raises:
        ValueError: the outer mapping is written in braces.
    """
    above, name = path
    newline = "\r\n" if "\r\n" in text else "\n"
    pair = _member(yaml.compose(text, Loader=yaml.SafeLoader), above)
    if pair is None:
        text += newline if text and not text.endswith("\n") else ""
        return f"{text}{above}:{newline}{_yaml_lines(name, entry, STEP, newline)}"
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


def drop(text: str, path: Sequence[str]) -> str:
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
    """A key of a mapping and its value."""
    if not isinstance(mapping, yaml.MappingNode):
        return None
    return next((pair for pair in reversed(mapping.value) if pair[0].value == name), None)


def _span(text: str, section: Any, name: str) -> tuple[int, int]:  # noqa: ANN401 the same
    """The start and end of the lines of a key and its value."""
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
