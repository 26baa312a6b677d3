"""YAML, TOML and INI files as they stand: each top-level key or table is a section."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import Lines, line_blocks
from rag.ingest.parse.source_code import code_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

YAML_SUFFIXES = (".yaml", ".yml")
TABLE_SUFFIXES = (".toml", ".ini", ".cfg", ".conf")

_KEY = re.compile(
    r"(?P<key>[^\W\d][\w .$/-]{0,80}|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}')[ \t]*:(?P<value>[ \t].*)?$"
)
_TABLE = re.compile(r"\[{1,2}\s*(?P<name>[^\[\]\n]{1,120}?)\s*\]{1,2}\s*(?:[#;].*)?$")
_TITLE = re.compile(
    r"^(?:title|name)[ \t]*[:=][ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'#{\[&*|>][^\n#]*))", re.MULTILINE
)
_EMPTY = re.compile(r"[ \t]*(?:[|>&!#].*)?$")


def parse_yaml(text: str, name: str) -> Document:
    """The document of a YAML file; a key whose value goes on below it is a section."""
    return _document(text, name, "application/yaml", _keys(text.split("\n")))


def parse_tables(text: str, name: str) -> Document:
    """The document of a TOML or INI file; a table is a section, and one inside of it is a section there."""
    return _document(text, name, "text/plain", _tables(text.split("\n")))


def _document(text: str, name: str, mime_type: str, marks: Iterator[tuple[int, int, str]]) -> Document:
    """The document with headings at these lines, each with its level and its title."""
    found = list(marks)
    blocks = tuple(line_blocks(text, _parts(found, text.count("\n") + 1)) if found else code_blocks(text))
    title = _TITLE.search(text)
    stated = next(filter(None, title.groups()), "").strip() if title else ""
    return Document(text, stated or name, mime_type, blocks)


def _keys(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Keys with values below them. The first other one after such a value ends the section above."""
    within = False
    for number, line in enumerate(lines):
        if match := _KEY.match(line):
            if _EMPTY.fullmatch(match["value"] or ""):
                within = True
                yield number, 1, match["key"].strip("\"'")
            elif within:
                within = False
                yield number, 1, ""


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    for number, line in enumerate(lines):
        if match := _TABLE.match(line):
            yield number, 1 + match["name"].count("."), match["name"]


def _parts(marks: list[tuple[int, int, str]], lines: int) -> Iterator[Lines]:
    if marks[0][0]:
        yield Lines("code", 0, marks[0][0])
    for (first, level, title), (last, _, _) in pairwise([*marks, (lines, 0, "")]):
        yield Lines("heading", first, first + 1, level, title)
        if last > first + 1:
            yield Lines("code", first + 1, last)
