"""AsciiDoc: headings, lists, tables and code, without attributes, comments and block marks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import Part, composed, date, first_heading
from rag.ingest.parse.draft import pipe_row, rule
from rag.ingest.parse.facts import facts
from rag.ingest.parse.questions import starred, with_questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.corpus import BlockKind

SUFFIXES = (".adoc", ".asciidoc", ".asc")

_HEADING = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<title>\S.*?)(?:[ \t]+(?:=+|#+))?[ \t]*$")
_ATTRIBUTE = re.compile(r":(?P<key>!?[\w-]+!?):(?:[ \t]+(?P<value>.*))?$")
_BLOCK_ATTRIBUTES = re.compile(r"\[(?:\[[^\]]*\]|[^\[\]]*)\][ \t]*$")
_SOURCE = re.compile(r"\[(?:source)?,\s*(\w[\w+-]*)")
_COLUMNS = re.compile(r"cols\s*=\s*\"?([^\"\]]+)")
_DIRECTIVE = re.compile(r"(?:ifdef|ifndef|ifeval|endif)::")
_INCLUDE = re.compile(r"include::([^\[\]]+)\[")
_BLOCK_TITLE = re.compile(r"\.([^\s.].*)$")
_FENCE = re.compile(r"(?:-{4,}|\.{4,}|`{3,}\w*|\+{4,}|/{4,})[ \t]*$")
_BOX = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\"\")[ \t]*$")
_TABLE = re.compile(r"[|,:!]={3,}[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:\*{1,6}|\.{1,6}|-|\d+\.)[ \t]+\S|\S.*?:{2,4}(?:[ \t]|$)")
_AUTHOR = re.compile(r"(?P<name>[^\W\d_][^<>:=|]{1,80}?)[ \t]*(?:<[^<>\s]+>)?(?:;.*)?$")
_REVISION = re.compile(r"(?:v[\d.]+,?[ \t]*)?(?P<day>\d{4}-\d\d-\d\d)")
_LINK = re.compile(r"(?:link:|xref:)?((?:https?://|mailto:)[^\s\[\]<>]+)\[([^\[\]]+)\]")
_REFERENCE = re.compile(
    r"<<[^<>,]+,\s*([^<>]+)>>|(?:xref|link):[^\s\[\]]+\[([^\[\]]+)\]"
    r"|image::?[^\s\[\]]+\[([^\[\],]*)[^\]]*\]"
)
_CELL = re.compile(r"(?:\d+(?:\.\d+)?[+*])?[<^>.]{0,3}[aehlmdsv]?\|")


def parse(text: str, name: str) -> Document:
    """The document of an AsciiDoc file; its header states the title, the author and the date."""
    lines = text.split("\n")
    stated: dict[str, str] = {}
    for match in filter(None, map(_ATTRIBUTE.match, lines)):
        stated.setdefault(match["key"].casefold(), match["value"] or "")
    start, author, day = _header(lines)
    body, blocks = composed(_parts(lines, start, author))
    blocks = with_questions(body, blocks, bold=starred(body, blocks))
    included = [match[1] for match in filter(None, map(_INCLUDE.match, lines))]
    return Document(
        text=body,
        title=stated.get("title", "") or first_heading(blocks) or stated.get("navtitle", "") or name,
        mime_type="text/asciidoc",
        blocks=blocks,
        date=date(stated.get("revdate", "") or day),
        metadata=facts(
            author=stated.get("author") or stated.get("authors") or author,
            keywords=stated.get("keywords") or stated.get("page-tags"),
            language=stated.get("lang"),
            description=stated.get("description"),
        ),
        remarks=tuple(f"it includes {one}, which was not read with it" for one in included),
    )


def _header(lines: Sequence[str]) -> tuple[int, str, str]:
    """The line after the header, and the author and the date in it. Without a title there is no header."""
    at = next((i for i, line in enumerate(lines) if line.strip() and not _is_left_out(line)), 0)
    if not lines[at].startswith("= "):
        return 0, "", ""
    author = day = ""
    for number, line in enumerate(lines[at + 1 : at + 4], at + 1):
        if not line.strip() or _ATTRIBUTE.match(line):
            return number, author, day
        if match := _REVISION.match(line):
            day = match["day"]
        elif not author and (match := _AUTHOR.match(line)):
            author = match["name"]
    return at + 1, author, day


def _parts(lines: Sequence[str], start: int, author: str) -> Iterator[Part]:
    kept: list[str] = []
    kind: BlockKind = "paragraph"
    attributes = ""
    at = 0
    while at < len(lines):
        line, first = lines[at].rstrip(), at
        at += 1
        if 0 < first < start and author and not _HEADING.match(line):
            continue
        special = line[:4] == "////" or any(
            pattern.match(line) for pattern in (_FENCE, _TABLE, _BOX, _HEADING, _BLOCK_TITLE)
        )
        here: BlockKind = "list" if _ITEM.match(line) else kind if kept else "paragraph"
        if special or not line or here != kind or _is_left_out(line):
            yield Part(kind, _readable("\n".join(kept)))
            kept, kind = [], here
        if _FENCE.match(line):
            at = _end(lines, at, line)
            yield _code(lines[first + 1 : at - 1], line, attributes)
        elif _TABLE.match(line):
            at = _end(lines, at, line)
            yield Part("table", _table(lines[first + 1 : at - 1], attributes))
        elif match := _HEADING.match(line):
            yield Part("heading", line, len(match["marks"]), _readable(match["title"]))
        elif match := _BLOCK_TITLE.match(line):
            yield Part("paragraph", match[1])
        elif line and not special and not _is_left_out(line):
            kept.append("" if line == "+" else line)
        if not _BLOCK_TITLE.match(line):
            attributes = line if _BLOCK_ATTRIBUTES.match(line) else ""
    yield Part(kind, _readable("\n".join(kept)))


def _code(lines: Sequence[str], fence: str, attributes: str) -> Part:
    """A listing; what is between slashes is a comment."""
    code = "\n".join(lines).strip("\n")
    if not code.strip() or fence.startswith("////"):
        return Part("code", "")
    language = _SOURCE.match(attributes)
    return Part("code", f"```{language[1] if language else ''}\n{code}\n```")


def _table(lines: Sequence[str], attributes: str) -> str:
    """Pipe rows. The columns are those that are stated, or the cells of the first line."""
    stated = _COLUMNS.search(attributes)
    cells: list[str] = []
    columns = 0
    for line in lines:
        first, *others = _CELL.split(line)
        if cells and first.strip():
            cells[-1] = f"{cells[-1]} {first.strip()}"
        cells += [cell.strip() for cell in others]
        columns = columns or len(others)
    if stated:
        times = re.match(r"\s*(\d+)\*", stated[1])
        columns = int(times[1]) if times else 1 + stated[1].count(",")
    columns = min(max(columns, 1), 100)
    rows = [pipe_row(map(_readable, cells[at : at + columns])) for at in range(0, len(cells), columns)]
    return "\n".join([*rows[:1], *([rule(columns)] if len(rows) > 1 else []), *rows[1:]])


def _end(lines: Sequence[str], at: int, mark: str) -> int:
    """The line after the next one that is this mark; the end if there is none."""
    mark = mark.rstrip() if mark[:1] != "`" else "```"
    return next((i + 1 for i in range(at, len(lines)) if lines[i].rstrip() == mark), len(lines) + 1)


def _is_left_out(line: str) -> bool:
    is_comment = line.startswith("//") and not line.startswith("////")
    patterns = (_ATTRIBUTE, _BLOCK_ATTRIBUTES, _DIRECTIVE, _INCLUDE)
    return is_comment or line.strip() in {"<<<", "'''"} or any(pattern.match(line) for pattern in patterns)


def _readable(text: str) -> str:
    text = _LINK.sub(r"[\2](\1)", text)
    return _REFERENCE.sub(lambda match: next(filter(None, match.groups()), ""), text)
