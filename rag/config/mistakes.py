"""Describes mistakes in settings: where each one is, what is wrong with the value, and what to write instead.

Pydantic finds the mistakes. Its own messages are written for programmers, so none of them is shown.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SHOWN_CHARS = 40  # of a wrong value
_SENTENCES = {
    "value_error": "{name}: {error}.",
    "literal_error": "{name} must be {expected}, not {value}.",
    "greater_than": "{name} must be more than {gt}, not {value}.",
    "greater_than_equal": "{name} must be at least {ge}, not {value}.",
    "less_than": "{name} must be less than {lt}, not {value}.",
    "less_than_equal": "{name} must be at most {le}, not {value}.",
    "too_long": "{name} has {actual_length} items; give at most {max_length}.",
    "too_short": "{name} has {actual_length} items; give at least {min_length}.",
    "missing": "{name} is missing.",
    "extra_forbidden": "{name} is not a known key.",
    "union_tag_invalid": "{name}: there is no {kind} '{tag}'; use one of {expected_tags}.",
    "string_unicode": "{name} must be text in UTF-8.",
    "union_tag_not_found": "{name}: {kind} is missing; write {example}, for example.",
}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a string",
    "path": "a path",
    "tuple": "a list",
    "list": "a list",
    "dict": "a table",
    "model": "a table",
}
"""By the first word of an error type: int_type, int_parsing, int_from_float and so on."""
_EXAMPLES = {"stage": "stage = 'dedupe'", "type": "type = 'folder'"}
"""By the key that tells the kind of a table."""


def describe_mistake(name: str, details: ErrorDetails) -> str:
    """One of pydantic's errors about the setting `name`, as a sentence that says what to write instead.

    Example: the value 101 of "search.limit" -> "search.limit must be at most 100, not 101."
    """
    kind, location = details["type"], details["loc"]
    is_item = bool(location) and isinstance(location[-1], int)
    if kind == "missing" and is_item:
        return f"{name} has too few items."
    expected = _EXPECTED.get(kind.partition("_")[0], "a valid value")
    sentence = _SENTENCES.get(kind, f"{{name}} must be {expected}, not {{value}}.")
    subject = f"each item of {name}" if is_item and sentence.startswith("{name} must") else name
    context = {key: _whole(value) for key, value in details.get("ctx", {}).items()}
    if (key := str(context.get("discriminator", "")).strip("'")) in _EXAMPLES:
        context |= {"kind": key, "example": _EXAMPLES[key]}
    return sentence.format_map(context | {"name": subject, "value": _value_text(details["input"])})


def _whole(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _value_text(value: object) -> str:
    """A wrong value as TOML has it: quotes tell a string from a number. Tables and lists are only named."""
    match value:
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:SHOWN_CHARS])
    return str(value)[:SHOWN_CHARS]


def path_of(location: Sequence[int | str]) -> tuple[str, ...]:
    """The path of an error: keys, and the indexes of tables in their list, but not the kind of a table.

    Pydantic puts the kind of a stage after its index: ("search", "stages", 0, "dedupe", "threshold"), and the
    type of an origin after its name.
    """
    parts = [part for part in location if part != "[key]"]
    two_before = [None, None, *parts]
    kinds = {"stages", "origins"}
    return tuple(str(part) for part, table in zip(parts, two_before, strict=False) if table not in kinds)


def name_of(path: Sequence[str]) -> str:
    """A path as people write it: ("search", "stages", "0", "threshold") -> "search.stages.threshold"."""
    return ".".join(part for part in path if not part.isdecimal())


def line_of(path: tuple[str, ...], text: str) -> int | None:
    r"""The 1-based line of a valid TOML text, however it is formatted, nearest to where a path begins.

    Example: ("server", "tools", "1", "name") in "server.tools = [\n{name = 'a'},\n{name = 'b'}]" -> 3.
    """
    nearest, depth = None, 0
    for here, line in _lines_of_keys(text):
        common = min(len(here), len(path))
        if common > depth and here[:common] == path[:common]:
            nearest, depth = line, common
    return nearest


def _lines_of_keys(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The path of every table, value and item of a list, and the line that it begins in."""
    section: tuple[str, ...] = ()
    tables = Counter[tuple[str, ...]]()
    for line, statement, lines_of_items in _statements(text):
        # The parser knows all ways to write a key: "quoted", dotted.like.this, in an = {inline = "table"}.
        paths = list(_paths_in(tomllib.loads(statement)))
        if not statement.lstrip().startswith("["):
            for path in paths:
                index = next((part for part in path if isinstance(part, int)), len(lines_of_items))
                yield (*section, *map(str, path)), (*lines_of_items[index:], line)[0]
            continue
        section, is_item = (), statement.lstrip().startswith("[[")
        header = [part for part in paths[-1] if isinstance(part, str)]
        for depth, key in enumerate(header, 1):
            section = (*section, key)
            tables[section] += is_item and depth == len(header)
            section = (*section, str(tables[section] - 1)) if tables[section] else section
        yield section, line


def _paths_in(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of a parsed value's tables, lists and values, each before what is inside it."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _paths_in(part, (*path, key))


_TOKEN = re.compile(
    r'"""(?:[^\\"]|\\.|"(?!""))*+"{3,5}|'  # a string of several lines can end with two quotes of its own
    r"'''(?:[^']|'(?!''))*+'{3,5}|"
    r'"(?:[^\\"]|\\.)*+"|'
    r"'[^']*+'|"
    r"#[^\n]*+|"
    r"[\[\]{},\n]|"
    r"""[^\[\]{},\n"'#]++""",
    re.DOTALL,
)


def _statements(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Each header and assignment of a TOML text: its first line, its text, and the lines of its items."""
    line = first = 1
    begin = depth = 0
    items: list[int] = []
    in_list = awaits_item = False
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if awaits_item and sign.strip() and sign[0] not in "#]},":
            items.append(line)
            awaits_item = False
        depth += (sign in {"[", "{"}) - (sign in {"]", "}"})
        in_list |= sign == "[" and depth == 1
        awaits_item |= in_list and depth == 1 and sign in {"[", ","}
        line += sign.count("\n")
        if sign == "\n" and depth == 0:
            yield first, text[begin : token.end()], items
            first, begin, items = line, token.end(), []
            in_list = awaits_item = False
    yield first, text[begin:], items


def suggestion(name: str, candidates: Iterable[str], *, cutoff: float = 0.75) -> str:
    """The end of a sentence about an unknown `name`: "; did you mean …?" if a known one is similar.

    What counts is the last part: "embedder.kind" has most of its letters in common with "embedder.pooling".
    """
    near = [candidate for candidate in candidates if _alike(_last(candidate), _last(name)) >= cutoff]
    best = max(near, key=lambda one: _alike(one, name), default="")
    return f"; did you mean {best}?" if best else "."


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alike(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()
