"""The front matter of a Markdown text, in YAML, TOML or JSON: names and values, and what people read of it.

Values stay text, because the fields of the collection decide their types: YAML would read `no` as false,
`12:30` as 750, and `0123` as 83.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate, pairwise
from typing import NamedTuple

import yaml

from rag.ingest.parse.document_parts import clean, date, listed_names, title_line
from rag.text.flags import flags_in
from rag.text.plain_text import one_line

ACCESS_KEYS = frozenset({"visibility", "allow", "deny"})
"""In any letter case. Unreadable values of these keys are kept as "", so that the request isn't lost."""
DATES = ("date", "updated", "modified", "lastmod", "created")
"""Entries that date a text: what its author says, else its last change."""
MAX_CHARS = 64_000  # of front matter; a sidecar may have as many bytes
_MAX_EXPANDED = 4 * MAX_CHARS  # with aliases expanded: ten lines of them can stand for billions
_MAX_DEPTH = 50  # brackets within brackets: the parser takes a second to give up at some 200

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_JSON = re.compile(r'\{\s*"')
_JSON_END = re.compile(r"^\}[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"(?:[^\S\n]*+(?:#[^\n]*+)?\n)*+")
_ENTRY = re.compile(r"""^(?:[^\W\d][\w.-]*+|"[^"\n]++"|'[^'\n]++')[ \t]*+:(?!\S)""", re.MULTILINE)
_BEGIN = re.compile(rf"{_ENTRY.pattern}|{_JSON.pattern}", re.MULTILINE)
_PROSE = re.compile(r"^[^\S\n]*\n(?![^\n]*:(?:\s|$))[^\W\d_][^\n]*$", re.MULTILINE)
"""A blank line, then one that isn't an entry, item or comment: valid YAML has it in quotation marks only."""
_ACCESS_ENTRY = re.compile(rf"\b({'|'.join(sorted(ACCESS_KEYS))})[\"']?\s*[:=]", re.IGNORECASE)
_NULL = "tag:yaml.org,2002:null"
_ITEM = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"\s*+(?=,|\Z)|([^,]*+))(?:,|\Z)')


class FrontMatter(NamedTuple):
    """The entries of front matter, and remarks on what is wrong with it."""

    entries: Mapping[str, str]
    remarks: tuple[str, ...] = ()


class _UnreadableError(ValueError):
    """The YAML is invalid; the message says why."""


def split_front_matter(text: str) -> tuple[FrontMatter, str]:
    r"""The front matter of a text, and the text after it.

    YAML is between lines of three hyphens, TOML of three plus signs; JSON is an object with text after it. A
    list becomes its items, joined as in `listed`, a mapping an entry for each key. Entries without a value
    are omitted. Of invalid YAML, the entries that are valid alone are kept. A text that merely begins with a
    thematic break has no front matter, as invalid YAML with a paragraph between blank lines hasn't.

    Example: "---\ntags: [x, y]\nby: {name: A}\n---\n# B" -> {"tags": "x, y", "by.name": "A"}, "# B".
    """
    if toml := _TOML.match(text):
        return _within_limit(toml[1], _toml), text[toml.end() :]
    if _JSON.match(text):
        return _split_json(text)
    fenced = _FENCED.match(text)
    blank = _BLANK.match(fenced[1]) if fenced else None
    if not fenced or not blank or not _BEGIN.match(fenced[1], blank.end()):
        return FrontMatter({}), text
    front_matter = _within_limit(fenced[1], _yaml)
    # Prose in it tells a text between two lines of hyphens; but no entry on access may get lost.
    if front_matter.remarks and _PROSE.search(fenced[1]) and not _ACCESS_ENTRY.search(fenced[1]):
        return FrontMatter({}), text
    return front_matter, text[fenced.end() :]


def _split_json(text: str) -> tuple[FrontMatter, str]:
    """A JSON object before a text. An invalid object ends at the first line that is a closing brace."""
    try:
        value, end = json.JSONDecoder().raw_decode(text[:MAX_CHARS])
    except (ValueError, RecursionError):
        closing = _JSON_END.search(text)
        if not closing:
            return FrontMatter({}), text
        why = "its front matter is not valid JSON"
        return FrontMatter(_unreadable_access(text[: closing.end()]), (why,)), text[closing.end() :]
    if not value or text[end : end + 1] not in {"", "\n"}:
        return FrontMatter({}), text
    return _within_limit(text[:end], _yaml), text[end:]


def listed(items: Iterable[str]) -> str:
    """Items separated by commas, those that contain one in quotation marks.

    Example: ["law", "Smith, Ann"] -> 'law, "Smith, Ann"'.
    """
    doubled = ((item, item.replace('"', '""')) for item in items)
    return ", ".join(f'"{quoted}"' if "," in item or item[:1] == '"' else item for item, quoted in doubled)


def items_of(text: str) -> list[str]:
    """The items that `listed` joined, without empty ones: 'law, "Smith, Ann"' -> ["law", "Smith, Ann"]."""
    items = ((quoted or "").replace('""', '"') or plain or "" for quoted, plain in _ITEM.findall(text))
    return [item.strip() for item in items if item.strip()]


def _within_limit(block: str, read: Callable[[str], FrontMatter]) -> FrontMatter:
    if len(block) > MAX_CHARS:
        why = f"its front matter has over {MAX_CHARS:,} characters and was not read"
        return FrontMatter(_unreadable_access(block), (why,))
    return read(block)


def _yaml(block: str) -> FrontMatter:
    """The entries of YAML (JSON included); of invalid YAML, the entries that are valid alone."""
    try:
        return _entries(_yaml_node(block))
    except _UnreadableError as error:
        return _entry_by_entry(block, str(error))


def _toml(block: str) -> FrontMatter:
    """The entries of TOML; of invalid TOML, only its access keys, without values."""
    try:
        _check_depth(block)
        return _entries(yaml.SafeDumper("").represent_data(tomllib.loads(block)))
    except (_UnreadableError, ValueError, RecursionError, yaml.YAMLError) as error:
        line = re.search(r"line \d+", str(error))
        where = f" (line {int(line[0][5:]) + 1})" if line else ""  # line 1 is the fence
        why = f"its front matter is not valid TOML{where} and was not read"
        return FrontMatter(_unreadable_access(block), (why,))


def _entries(root: yaml.Node | None) -> FrontMatter:
    """The entries of a document's node.

    Raises:
        _UnreadableError: the node is not a mapping.
    """
    entries: dict[str, str] = {}
    twice: list[str] = []
    names: set[str] = set()
    for name, node in _pairs(root):
        is_access = name.casefold() in ACCESS_KEYS
        key = name.casefold() if is_access else name
        twice += [name] if key in names else []
        values = _values(name, node)
        if is_access:  # a mapping, or a key that is there twice, is ambiguous, so it counts as unreadable
            entries[name] = values.get(name, "") if len(values) == 1 and key not in names else ""
        else:
            entries |= values
        names.add(key)
    return FrontMatter(
        entries, tuple(f"its front matter has {name} twice; the last counts" for name in twice)
    )


def _values(name: str, node: yaml.Node) -> dict[str, str]:
    values_by_name: dict[str, list[str]] = {}
    for path, value in _leaves(name, node):
        values_by_name.setdefault(path, []).append(value)
    is_text = isinstance(node, yaml.ScalarNode)
    return {path: values[0] if is_text else listed(values) for path, values in values_by_name.items()}


def _leaves(name: str, node: yaml.Node) -> Iterator[tuple[str, str]]:
    room = _MAX_EXPANDED
    stack = [(name, node)]
    while stack:
        name, node = stack.pop()
        room -= len(name) + len(node.value) + 1
        if room < 0:
            raise _UnreadableError(f"its aliases stand for over {_MAX_EXPANDED:,} characters")
        if isinstance(node, yaml.MappingNode):
            stack += [(f"{name}.{key}", value) for key, value in reversed([*_pairs(node)])]
        elif isinstance(node, yaml.SequenceNode):
            stack += [(name, item) for item in reversed(node.value)]
        elif node.tag != _NULL and (text := clean(node.value).strip()):
            yield name, text


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _UnreadableError("it is not a mapping of names to values")
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _UnreadableError(f"line {key.start_mark.line + 2}: a name must be plain text")
        yield clean(key.value).strip(), value


def _yaml_node(block: str) -> yaml.Node | None:
    """The YAML as nodes: without construction no tag runs code, and values stay as written."""
    _check_depth(block)
    try:
        return yaml.compose(block, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise _UnreadableError("it is nested too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""  # line 1 is the fence
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or "invalid"
        raise _UnreadableError(where + title_line(str(why))) from error


def _check_depth(block: str) -> None:
    depths = accumulate((mark in "[{") - (mark in "]}") for mark in block)
    if max(depths, default=0) > _MAX_DEPTH:
        raise _UnreadableError("it is nested too deeply")


def _entry_by_entry(block: str, why: str) -> FrontMatter:
    """The readable entries of invalid YAML: those that are valid alone, or on one line."""
    entries: dict[str, str] = {}
    lost: list[str] = []
    starts = [entry.start() for entry in _ENTRY.finditer(block)]
    for start, end in pairwise([*starts, len(block)]):
        part = block[start:end].strip()
        try:
            entries |= _entries(_yaml_node(part)).entries
        except _UnreadableError:
            name, value = (clean(half).strip() for half in part.split(":", 1))
            if "\n" in part or "\n" in value:
                lost.append(name)
            else:  # as in "title: Part one: beginnings", which is not YAML, but clear
                entries[name.strip("\"'")] = value
    remark = f"its front matter is not valid YAML ({why})"
    left_out = f"; left out: {', '.join(lost)}" if lost else ""
    return FrontMatter(entries | _unreadable_access(block), (remark + left_out,))


def _unreadable_access(block: str) -> dict[str, str]:
    """The access keys in an invalid text, with empty values: what it grants can't be trusted."""
    return {key.casefold(): "" for key in _ACCESS_ENTRY.findall(block)}


# What people read of it: Obsidian, Logseq and Bear show plain entries above a note (phone, due, owner). Site
# generators and plugins write others for themselves. These rules are by the keys and values of 21,000 front
# matters in 30 public vaults and sites: there, of 35 entries that are only true or false, three say something
# to a reader, and of nested ones few but names of authors do.

_NAME = re.compile(r"[^\W\d_][\w -]{0,60}")  # a nested entry has a dot in its name
_ELSEWHERE = ACCESS_KEYS | listed_names("""
    alias aliases expires id lang language linktitle locale short_title shorttitle tag tags title uid url uuid
""")
"""Rights and ids, and what is the document's title, names, language, address or expiry."""
_OF_PROGRAMS = listed_names("""
    artwork avatar banner cascade copilot cover css cssclass cssclasses cspell excalidraw favicon globs head
    icon image img layout logo menu nav navigation outputs permalink plugin redirect render sidebar slug spell
    template theme thumbnail toc
""")
"""Words in the names of entries that only a program reads, as in `sidebar_label` and `featuredImage`."""
_OF_ORDER = listed_names("order position rank weight")
"""Words in the names of whole numbers that order the pages of a site."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_UNREAD = re.compile(
    r"(?i)true|false|\.{0,2}/.*|.*(?:\{\{|<%).*|.*\.(?:png|jpe?g|gif|svg|webp|avif)(?:\?\S*)?(?:\]\])?"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Switches, places on a site, templates that nobody has filled in, pictures, and ids."""
_NOTE_LINK = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")


def split_date(entries: Mapping[str, str]) -> tuple[datetime | None, dict[str, str]]:
    """The date that the entries of a text state, and the entries without `date` if that is one.

    The others stay, because a collection may declare fields for them: `created`, `updated`.
    """
    days = {key: day for key in DATES if (day := date(entries.get(key, "")))}
    others = {key: value for key, value in entries.items() if key != "date" or key not in days}
    return next(iter(days.values()), None), others


def readable_lines(entries: Mapping[str, str], title: str) -> list[str]:
    """The entries that people read above a text, as lines; not its title, other names, date and rights.

    Example: {"due": "2024-06-30", "owner": "[[Ann Lee|Ann]]", "layout": "post", "weight": "10"} ->
    ["due: 2024-06-30", "owner: Ann"].
    """
    lines = []
    for name, text in entries.items():
        value = _NOTE_LINK.sub(r"\1", one_line(text))
        is_title = value.casefold() == title.casefold()
        if _is_read(name, one_line(text)) and not is_title and "instructions" not in flags_in(value):
            lines.append(f"{name}: {value}")
    return lines


def _is_read(name: str, text: str) -> bool:
    is_date = name == "date" or (name in DATES and date(text) is not None)
    if is_date or name.casefold() in _ELSEWHERE or not _NAME.fullmatch(name):
        return False
    words = set(_WORD.findall(_CAMEL.sub(" ", name).casefold()))
    is_order = text.isdecimal() and not words.isdisjoint(_OF_ORDER)
    return words.isdisjoint(_OF_PROGRAMS) and not is_order and bool(text) and not _UNREAD.fullmatch(text)
