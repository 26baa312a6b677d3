"""Edit a mapping of mappings in YAML in its own text: all else, comments too, stays as it is.

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
    """The values.

    Raises:
        ValueError: it isn't YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with this mapping at a path of two keys, in the place of one that is there.

    Raises:
        ValueError: the mapping that it belongs into is written in braces.
    """
    above, name = path
    newline = "\r\n" if "\r\n" in text else "\n"
    found = _member(yaml.compose(text, Loader=yaml.SafeLoader), above)
    if found is None:
        text += newline if text and not text.endswith("\n") else ""
        return f"{text}{above}:{newline}{_written(name, entry, STEP, newline)}"
    key, section = found
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
    return before + _written(name, entry, column, newline) + text[at:]


def drop(text: str, path: Sequence[str]) -> str:
    """The text without what is at a path of two keys, which is there.

    Raises:
        ValueError: the mapping that it belongs to is written in braces.
    """
    found = _member(yaml.compose(text, Loader=yaml.SafeLoader), path[0])
    if found is None or found[1].flow_style:
        raise ValueError(f"{path[0]} is not a mapping with a line for each key")
    (above, section), (start, end) = found, _span(text, found[1], path[1])
    text = text[:start] + text[end:]
    if len(section.value) == 1:  # an empty value would be null
        text = f"{text[: above.end_mark.index]}: {{}}{text[above.end_mark.index + 1 :]}"
    return text


def _written(name: str, entry: Mapping[str, Any], column: int, newline: str) -> str:
    """A key and its mapping from a column on. Values are written as in JSON, which is YAML, too."""
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
    """From where to where the lines of a key and its value go."""
    found = _member(section, name)
    assert found is not None  # noqa: S101 the caller's part
    key, value = found
    return text.rfind("\n", 0, key.start_mark.index) + 1, _line_end(text, _end(value) or key.end_mark.index)


def _end(node: Any) -> int:  # noqa: ANN401 the same
    """Where a value ends. A block's own mark stands behind the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1]) if isinstance(last, tuple) else _end(last)


def _line_end(text: str, at: int) -> int:
    """The beginning of the next line; of this one if the place is its beginning."""
    if at and text[at - 1] == "\n":
        return at
    return (text.find("\n", at) + 1) or len(text)
