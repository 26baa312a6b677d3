"""reStructuredText: its headings, lists, tables and literal blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Document
from rag.ingest.parse.blocks import Lines, first_heading, line_blocks
from rag.ingest.parse.headers import Headers, field_list, rfc822_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rag.corpus import BlockKind

SUFFIXES = (".rst", ".rest")

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*")
_EXPLICIT = re.compile(r"\.\.(\s|$)")  # directives, comments, targets
_ITEM = re.compile(r"([-*+•]|\(?(\d+|[a-zA-Z#])[.)])\s")
_TABLE = re.compile(r"\+[-=+]{3,}|={2,}(\s+={2,})+\s*$")
_ROLE = re.compile(r":[\w:.-]{1,40}:`[~!]?([^`<>]+?)(?:\s*<[^<>`]*>)?`")
_SHORT = 4  # characters: an underline shorter than this must be as long as the title


class _Heading(NamedTuple):
    title: str
    style: str  # two characters: over and under the title
    lines: int


def parse(text: str, name: str) -> Document:
    """The document of a reStructuredText file; directives and literal text are code."""
    blocks = tuple(line_blocks(text, _parts(text.split("\n"))))
    headers = rfc822_headers(text)
    if not headers.title:  # fields come first, or after the title
        after = next((block.end for block in blocks if block.kind == "heading"), 0)
        headers = next(filter(None, map(_fields, (text, text[after:]))), headers)
    title = headers.title or first_heading(blocks) or name
    return Document(text, title, "text/x-rst", blocks, date=headers.date, metadata=headers.metadata)


def _fields(text: str) -> Headers | None:
    headers = field_list(text)
    return headers if headers.title or headers.date or headers.metadata else None


def _parts(lines: Sequence[str]) -> Iterator[Lines]:
    styles: list[str] = []  # in the order of their first use, which is their level
    at, literal = 0, False
    while at < len(lines):
        if not lines[at].strip():
            at += 1
        elif heading := _heading(lines, at):
            styles += [heading.style] if heading.style not in styles else []
            level = styles.index(heading.style) + 1
            yield Lines("heading", at, at + heading.lines, level, heading.title)
            at += heading.lines
        else:
            kind, end = _body(lines, at, literal=literal)
            yield Lines(kind, at, end)
            literal = kind == "paragraph" and lines[end - 1].rstrip().endswith("::")
            at = end


def _heading(lines: Sequence[str], at: int) -> _Heading | None:
    line, below, last = (lines[i].rstrip() if i < len(lines) else "" for i in (at, at + 1, at + 2))
    if _ADORNMENT.fullmatch(line):
        framed = below and line == last
        return _Heading(_plain(below.strip()), 2 * line[0], 3) if framed else None
    underlined = _ADORNMENT.fullmatch(below) and len(below) >= min(len(line), _SHORT)
    return _Heading(_plain(line), " " + below[0], 2) if underlined and not line[0].isspace() else None


def _plain(title: str) -> str:
    """A title without the markup in it: ":mod:`!json` --- ``JSON`` files" -> "json --- JSON files"."""
    return _ROLE.sub(r"\1", title[:1000]).replace("``", "").replace("**", "")


def _body(lines: Sequence[str], at: int, *, literal: bool) -> tuple[BlockKind, int]:
    """The kind of block that begins at a line, and the line after its end."""

    def inside(i: int) -> bool:
        return not lines[i].strip() or lines[i][0].isspace()

    def item(i: int) -> bool:
        return bool(_ITEM.match(lines[i])) and not _heading(lines, i)

    line = lines[at]
    if _EXPLICIT.match(line) or (literal and line[0].isspace()):
        return "code", _end(lines, at, inside)
    if item(at):
        return "list", _end(lines, at, lambda i: inside(i) or item(i))
    kind: BlockKind = "table" if _TABLE.match(line) else "code" if line.startswith(">>>") else "paragraph"
    return kind, _end(lines, at, lambda i: bool(lines[i].strip()))


def _end(lines: Sequence[str], at: int, belongs: Callable[[int], bool]) -> int:
    return next((i for i in range(at + 1, len(lines)) if not belongs(i)), len(lines))
