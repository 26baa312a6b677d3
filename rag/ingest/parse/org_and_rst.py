"""Org and reStructuredText: headings, lists, tables and code, without comments, drawers and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from rag.corpus import BlockKind, Document
from rag.ingest.parse.document_draft import omission_remarks, unread_files
from rag.ingest.parse.document_parts import Lines, Part, compose, date, facts, line_blocks, listing
from rag.ingest.parse.text_and_settings import field_list, rfc822_headers
from rag.ingest.parse.titles_and_questions import heading_words, starred, with_questions

ORG_SUFFIXES = (".org",)

_KEYWORD = re.compile(r"[ \t]*#\+(?P<key>[A-Za-z_]+(?:\[[^\]]*\])?):[ \t]*(?P<value>.*)$")
_ORG_CAPTION = re.compile(r"[ \t]*#\+caption(?:\[[^\]]*\])?:[ \t]*(?P<text>.*)$", re.IGNORECASE)
_BEGIN = re.compile(r"[ \t]*#\+begin_(?P<kind>\w+)[ \t]*(?P<language>[\w+-]*)", re.IGNORECASE)
_DRAWER = re.compile(r"[ \t]*:(?!END:)[A-Za-z_-]+:[ \t]*$", re.IGNORECASE)
_ORG_HEADING = re.compile(
    r"(?P<stars>\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+)?(?:\[#[A-Z]\][ \t]*)?"
    r"(?P<title>.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$"
)
_ORG_LABELS = re.compile(r"warning|caution|danger|important|note|tip", re.IGNORECASE)
_ORG_ITEM = re.compile(r"[ \t]*(?:[-+]|\d+[.)])[ \t]|[ \t]+\*[ \t]")
_ORG_LINK = re.compile(r"\[\[(?:file:)?([^\[\]]+)\](?:\[([^\[\]]+)\])?\]")
_TIMESTAMP = re.compile(r"[<\[](\d{4}-\d\d-\d\d)[^>\]]*[>\]]")
_CODE = {"src", "example", "export"}


def parse_org(text: str, _name: str) -> Document:
    """The document of an Org file, without comments, drawers and settings."""
    lines = text.split("\n")
    stated: dict[str, list[str]] = {}
    for line in lines:
        if match := _KEYWORD.match(line):
            stated.setdefault(match["key"].casefold(), []).append(match["value"].strip())
    body, blocks = compose(_org_parts(lines))
    blocks = with_questions(body, blocks, bold=starred(body, blocks))
    day = _TIMESTAMP.sub(r"\1", " ".join(stated.get("date", [])))
    return Document(
        text=body,
        title=heading_words(_readable_org(" ".join(stated.get("title", [])))),
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
        remarks=tuple(unread_files(path.split(" :")[0] for path in stated.get("include", []))),
    )


def _org_parts(lines: list[str]) -> Iterator[Part]:
    block_lines: list[str] = []
    kind: BlockKind = "paragraph"
    at, drawers_end = 0, True
    while at < len(lines):
        line, first = lines[at], at
        begin, at = _BEGIN.match(line), at + 1
        here = _org_kind(line, kind if block_lines else "paragraph")
        special = begin or _ORG_HEADING.match(line) or _is_omitted_org(line)
        if special or here != kind or not line.strip():
            yield Part(kind, _readable_org("\n".join(block_lines)))
            block_lines, kind = [], here
        if begin:
            at = _org_end(lines, at, f"#+end_{begin['kind']}")
            yield from _block_parts(begin, lines[first + 1 : at - 1])
        elif drawers_end and _DRAWER.match(line):
            end = _org_end(lines, at, ":end:")
            drawers_end = lines[end - 1].strip().casefold() == ":end:"  # else no later one ends either
            at = end if drawers_end else at
        # Org exports neither such a heading nor anything below it.
        elif (match := _ORG_HEADING.match(line)) and match["title"].partition(" ")[0] == "COMMENT":
            at = _subtree_end(lines, at, len(match["stars"]))
        elif match:
            yield Part("heading", line, len(match["stars"]), heading_words(_readable_org(match["title"])))
        elif caption := _ORG_CAPTION.match(line):
            yield Part("paragraph", _readable_org(caption["text"]))
        elif not special and line.strip():
            block_lines.append(line)
    yield Part(kind, _readable_org("\n".join(block_lines)))


def _block_parts(begin: re.Match[str], lines: list[str]) -> Iterator[Part]:
    """The parts of a block: code as code, a quotation or a note as text, nothing of a comment."""
    kind = begin["kind"].casefold()
    if kind in _CODE:
        yield listing("\n".join(lines), begin["language"])
    elif kind != "comment":
        label = f"{kind.upper()}: " if _ORG_LABELS.fullmatch(kind) else ""
        yield from _org_parts([label + lines[0], *lines[1:]] if label and lines else lines)


def _org_kind(line: str, above: BlockKind) -> BlockKind:
    if line.lstrip().startswith("|"):
        return "table"
    if _ORG_ITEM.match(line) or (above == "list" and line[:1].isspace() and line.strip()):
        return "list"
    return "paragraph"


def _is_omitted_org(line: str) -> bool:
    keyword = _KEYWORD.match(line)
    is_comment = line.lstrip() == "#" or line.lstrip().startswith("# ")
    return bool(keyword or is_comment or _DRAWER.match(line))


def _org_end(lines: list[str], at: int, mark: str) -> int:
    """The line after the next line with this mark, else the end."""
    folded_mark = mark.casefold()
    return next(
        (i + 1 for i in range(at, len(lines)) if lines[i].strip().casefold() == folded_mark), len(lines)
    )


def _subtree_end(lines: list[str], at: int, level: int) -> int:
    """The line of the next heading that isn't below this level, else the end."""
    headings = ((i, _ORG_HEADING.match(lines[i])) for i in range(at, len(lines)))
    return next((i for i, heading in headings if heading and len(heading["stars"]) <= level), len(lines))


def _readable_org(text: str) -> str:
    return _ORG_LINK.sub(lambda link: f"[{link[2]}]({link[1]})" if link[2] else link[1], text)


RST_SUFFIXES = (".rst", ".rest")

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*")
_EXPLICIT = re.compile(r"\.\.(\s|$)")  # directives, comments, targets
_RST_COMMENT = re.compile(r"\.\.(?:[ \t]+(?!_|\[|\||[\w:.+-]{1,80}[ ]?::)\S|[ \t]*$)")
_REPLACED = re.compile(r"\.\. \|([^|\n]{1,80})\| replace::[ \t]*(\S.{0,199})$")
_USED = re.compile(r"(``[^`\n]*``)|\|([^|\n]{1,80})\|")
_RST_INCLUDE = re.compile(r"\.\. (?:literal)?include::[ \t]*(\S.*)")
_RST_ITEM = re.compile(r"([-*+•]|\(?(\d+|[a-zA-Z#])[.)])\s")
_RST_TABLE = re.compile(r"\+[-=+]{3,}|={2,}(\s+={2,})+\s*$")
_ROLE = re.compile(r":[\w:.-]{1,40}:`[~!]?([^`<>]+?)(?:\s*<[^<>`]*>)?`")
_SHORT = 4  # characters: an underline shorter than this must be as long as the title


class _Heading(NamedTuple):
    title: str
    style: str  # two characters: over and under the title
    lines: int


def parse_rst(text: str, _name: str) -> Document:
    """The document of a reStructuredText file without comments; directives and literal text are code."""
    lines, comments = _without_comments(text.split("\n"))
    lines = _with_replacements(lines)
    text = "\n".join(lines)
    blocks = tuple(line_blocks(text, _rst_parts(lines)))
    included = (match[1].strip() for line in lines if (match := _RST_INCLUDE.match(line)))
    remarks = (*omission_remarks(comments, "comment"), *unread_files(included))
    headers = rfc822_headers(text)
    if not headers.title:  # fields come first, or after the title
        after = next((block.end for block in blocks if block.kind == "heading"), 0)
        headers = next(filter(any, map(field_list, (text, text[after:]))), headers)
    return Document(
        text,
        headers.title,
        "text/x-rst",
        blocks,
        date=headers.date,
        metadata=headers.metadata,
        remarks=remarks,
    )


def _without_comments(lines: Sequence[str]) -> tuple[list[str], int]:
    """The lines without comments, and how many these are. Only one with text takes what is indented below."""
    text_lines: list[str] = []
    at = count = 0
    while at < len(lines):
        if not _RST_COMMENT.match(lines[at]):
            text_lines.append(lines[at])
            at += 1
            continue
        is_alone = lines[at].strip() == ".." and not "".join(lines[at + 1 : at + 2]).strip()
        end = at + 1 if is_alone else _rst_end(lines, at, partial(_is_inside, lines))
        count += not is_alone
        text_lines += [""] if end < len(lines) else []
        at = end
    return text_lines, count


def _with_replacements(lines: list[str]) -> list[str]:
    """The lines with what the file defines for |names| in its text; code stays."""
    texts = {
        match[1]: match[2].strip()
        for line, below in pairwise([*lines, ""])
        if not below[:1].isspace() and (match := _REPLACED.match(line))
    }
    if not texts:
        return lines

    def replaced(match: re.Match[str]) -> str:
        return match[1] or texts.get(match[2], match[0])

    replaced_lines = [*lines]
    for part in _rst_parts(lines):
        if part.kind != "code":
            for at in range(part.first, part.last):
                replaced_lines[at] = _USED.sub(replaced, lines[at])
    return replaced_lines


def _rst_parts(lines: Sequence[str]) -> Iterator[Lines]:
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
    """A title without markup: ":mod:`!json` --- ``JSON`` files" -> "json --- JSON files"."""
    return _ROLE.sub(r"\1", title[:1000]).replace("``", "").replace("**", "")


def _body(lines: Sequence[str], at: int, *, literal: bool) -> tuple[BlockKind, int]:
    """The kind of block that begins at a line, and the line after its end."""
    inside = partial(_is_inside, lines)

    def item(i: int) -> bool:
        return bool(_RST_ITEM.match(lines[i])) and not _heading(lines, i)

    line = lines[at]
    if _EXPLICIT.match(line) or (literal and line[0].isspace()):
        return "code", _rst_end(lines, at, inside)
    if item(at):
        return "list", _rst_end(lines, at, lambda i: inside(i) or item(i))
    kind: BlockKind = "table" if _RST_TABLE.match(line) else "code" if line.startswith(">>>") else "paragraph"
    return kind, _rst_end(lines, at, lambda i: bool(lines[i].strip()))


def _is_inside(lines: Sequence[str], at: int) -> bool:
    """Whether a line is blank or indented, and so in the block above it."""
    return not lines[at].strip() or lines[at][0].isspace()


def _rst_end(lines: Sequence[str], at: int, belongs: Callable[[int], bool]) -> int:
    return next((i for i in range(at + 1, len(lines)) if not belongs(i)), len(lines))
