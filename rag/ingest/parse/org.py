"""Org files: headings, lists, tables and code, without drawers and settings of Emacs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import Part, composed, date, first_heading
from rag.ingest.parse.facts import facts
from rag.ingest.parse.questions import starred, with_questions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import BlockKind

SUFFIXES = (".org",)

_KEYWORD = re.compile(r"[ \t]*#\+(?P<key>[A-Za-z_]+(?:\[[^\]]*\])?):[ \t]*(?P<value>.*)$")
_BEGIN = re.compile(r"[ \t]*#\+begin_(?P<kind>\w+)[ \t]*(?P<language>[\w+-]*)", re.IGNORECASE)
_DRAWER = re.compile(r"[ \t]*:(?!END:)[A-Za-z_-]+:[ \t]*$", re.IGNORECASE)
_HEADING = re.compile(
    r"(?P<stars>\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+)?(?:\[#[A-Z]\][ \t]*)?"
    r"(?P<title>.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$"
)
_PLANNED = re.compile(r"[ \t]*(?:SCHEDULED|DEADLINE|CLOSED):[ \t]*[<\[]")
_ITEM = re.compile(r"[ \t]*(?:[-+]|\d+[.)])[ \t]|[ \t]+\*[ \t]")
_LINK = re.compile(r"\[\[(?:file:)?([^\[\]]+)\](?:\[([^\[\]]+)\])?\]")
_TIMESTAMP = re.compile(r"[<\[](\d{4}-\d\d-\d\d)[^>\]]*[>\]]")
_CODE = {"src", "example", "export"}


def parse(text: str, name: str) -> Document:
    """The document of an Org file, without comments, drawers and settings; title and author are facts."""
    lines = text.split("\n")
    stated: dict[str, list[str]] = {}
    for line in lines:
        if match := _KEYWORD.match(line):
            stated.setdefault(match["key"].casefold(), []).append(match["value"].strip())
    body, blocks = composed(_parts(lines))
    blocks = with_questions(body, blocks, bold=starred(body, blocks))
    included = stated.get("include", [])
    day = _TIMESTAMP.sub(r"\1", " ".join(stated.get("date", [])))
    return Document(
        text=body,
        title=" ".join(stated.get("title", [])) or first_heading(blocks) or name,
        mime_type="text/org",
        blocks=blocks,
        date=date(day),
        metadata=facts(
            author=stated.get("author"),
            keywords=[
                *stated.get("keywords", []),
                *(tag for line in stated.get("filetags", []) for tag in line.split(":")),
            ],
            language=stated.get("language", [])[:1],
            description=" ".join(stated.get("description", [])),
        ),
        remarks=tuple(f"it includes {one.split(' :')[0]}, which was not read with it" for one in included),
    )


def _parts(lines: list[str]) -> Iterator[Part]:
    kept: list[str] = []
    kind: BlockKind = "paragraph"
    at = 0
    while at < len(lines):
        line, first = lines[at], at
        begin, at = _BEGIN.match(line), at + 1
        here = _kind(line, kind if kept else "paragraph")
        special = begin or _HEADING.match(line) or _is_left_out(line)
        if special or here != kind or not line.strip():
            yield Part(kind, _readable("\n".join(kept)))
            kept, kind = [], here
        if begin:
            at = _end(lines, at, f"#+end_{begin['kind']}")
            yield from _inside(begin, lines[first + 1 : at - 1])
        elif _DRAWER.match(line):
            end = _end(lines, at, ":end:")
            at = end if lines[end - 1].strip().casefold() == ":end:" else at
        elif match := _HEADING.match(line):
            yield Part("heading", line, len(match["stars"]), _readable(match["title"]))
        elif not special and line.strip():
            kept.append(line)
    yield Part(kind, _readable("\n".join(kept)))


def _inside(begin: re.Match[str], lines: list[str]) -> Iterator[Part]:
    """What a block holds: code as code, a quotation or a note as text, a comment not at all."""
    kind = begin["kind"].casefold()
    if kind in _CODE:
        code = "\n".join(lines).strip("\n")
        yield Part("code", f"```{begin['language']}\n{code}\n```" if code.strip() else "")
    elif kind != "comment":
        yield from _parts(lines)


def _kind(line: str, above: BlockKind) -> BlockKind:
    if line.lstrip().startswith("|"):
        return "table"
    if _ITEM.match(line) or (above == "list" and line[:1].isspace() and line.strip()):
        return "list"
    return "paragraph"


def _is_left_out(line: str) -> bool:
    keyword = _KEYWORD.match(line)
    is_comment = line.lstrip() == "#" or line.lstrip().startswith("# ")
    return bool(keyword or is_comment or _DRAWER.match(line) or _PLANNED.match(line))


def _end(lines: list[str], at: int, mark: str) -> int:
    """The line after the one with this mark; the end if there is none."""
    wanted = mark.casefold()
    return next((i + 1 for i in range(at, len(lines)) if lines[i].strip().casefold() == wanted), len(lines))


def _readable(text: str) -> str:
    return _LINK.sub(lambda link: f"[{link[2]}]({link[1]})" if link[2] else link[1], text)
