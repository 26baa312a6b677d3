"""Markdown: blocks as CommonMark sees them, with pipe tables and front matter."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from rag.corpus import Block, Document
from rag.ingest.parse.blocks import Lines, date, line_blocks
from rag.ingest.parse.facts import with_facts
from rag.ingest.parse.front_matter import split_front_matter
from rag.ingest.parse.office.properties import left_out
from rag.ingest.parse.titles import heading_words, markdown_title
from rag.text.segments import without_note_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

    from rag.corpus import BlockKind

MIME_TYPE = "text/markdown"
SUFFIXES = (".md", ".markdown", ".mkd", ".qmd", ".rmd")

_PARSER = MarkdownIt("commonmark").enable("table")
_PARSER.disable("reference")  # its lines wouldn't be in any block
_PARSER.core.ruler.enableOnly(["normalize", "block"])  # inline markup is not needed

_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}
_SLICE = 1 << 18  # characters; parsing takes some twenty bytes of memory for each
_HEADING_OR_FENCE = re.compile(r"^(?:#{1,6} |(?P<fence> {0,3}(?:```|~~~)))", re.MULTILINE)

_HINT = re.compile(r"%%|[ \n]\^[\w-]|!\[\[|::|:LOGBOOK:|\ntype_: |<!--|<a[ \t]|\{\{#")
_UNSHOWN = re.compile(
    r"(?P<code>^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n(?s:.*?)(?:^ {0,3}(?P=fence)|\Z)|`[^`\n]+`"
    r"|^(?: {4}|\t)(?![ \t]*(?:[-*+]|\d{1,9}[.)]|:LOGBOOK:|id::|collapsed::))[^\n]*)"
    r"|(?P<comment>(?:(?<=\s)|^)%%(?![%{])(?s:.{0,5000}?)%%(?=\s|\Z)|<!--(?s:.{0,5000}?)-->)"
    r"|<a[ \t]+(?:id|name)=(?:\"[^\"<>\n]*\"|'[^'<>\n]*'|[\w.:-]+)[ \t]*/?>(?:(?P<anchored>[^<\n]*)</a>)?"
    r"|(?<!\\)\{\{#[a-z_]+[^{}\n]*\}\}"  # of mdBook, which puts other files there
    r"|(?:^|[ \t])\^(?:[a-z][a-z0-9-]+|[0-9a-f]{6})[ \t]*+$"  # the id of a block
    r"|(?P<picture>!\[\[[^\[\]\n]+\.(?:png|jpe?g|gif|svg|webp|bmp|avif)(?:[|#][^\[\]\n]*)?\]\])"
    r"|^[ \t]*(?:id:: [0-9a-f]{8}-[0-9a-f-]{27}|collapsed:: (?:true|false))[ \t]*+(?:\n|\Z)"
    r"|^[ \t]*:LOGBOOK:(?s:.{0,5000}?):END:[ \t]*+(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_DIRECTIVE = re.compile(r"^[ \t]*\{\{#[a-z_]+[^{}\n]*\}\}[ \t]*\n", re.MULTILINE)
_EMPTY_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[^\n]*\n\s*\1\Z")
_JOPLIN = re.compile(r"\n\nid: [0-9a-f]{32}\n(?:[a-z_]+:[^\n]*\n){1,60}type_: \d+\s*\Z")


def parse(text: str, name: str) -> Document:
    """The document of a Markdown file, without its front matter and what programs for notes don't show."""
    (entries, remarks), body = split_front_matter(text)
    body, comments = _as_shown(without_note_ids(body))
    remarks = (*remarks, *left_out(comments, "comment"))
    blocks = tuple(markdown_blocks(body))
    day = date(entries.get("date", ""))
    known = {"title", "date"} if day else {"title"}
    return Document(
        text=body,
        title=markdown_title(body, blocks, entries) or name,
        mime_type=MIME_TYPE,
        blocks=blocks,
        date=day,
        metadata=with_facts({key: value for key, value in entries.items() if key not in known}),
        remarks=remarks,
    )


def _as_shown(text: str) -> tuple[str, int]:
    """A text without comments, and without what Obsidian, Logseq, Joplin and mdBook write for themselves.

    These are ids, pictures, anchors and directives. Code stays as it is, but for directives in it. The number
    is that of the comments.
    Example: "Seen. ^intro %% unseen %%" -> ("Seen.", 1).
    """
    if not _HINT.search(text):
        return text, 0
    comments = 0

    def shown(match: re.Match[str]) -> str:
        nonlocal comments
        if match["code"]:
            code = _DIRECTIVE.sub("", match[0])
            return "" if code != match[0] and _EMPTY_FENCE.fullmatch(code) else code
        comments += bool(match["comment"])
        return "(picture)" if match["picture"] else match["anchored"] or ""

    return _UNSHOWN.sub(shown, _JOPLIN.sub("", text)), comments


def markdown_blocks(text: str) -> Iterator[Block]:
    """The blocks of a Markdown text. A code block inside a list or a quotation is a block of its own."""
    for start, end in _slices(text):
        part = text[start:end]
        lines = _gapless(_parts(_PARSER.parse(part)), part.count("\n") + 1)
        yield from line_blocks(text, lines, start, end)


def _slices(text: str) -> Iterator[tuple[int, int]]:
    """Slices of a large text that end before a heading: parsing it at once would take too much memory."""
    start, in_code = 0, False
    for mark in _HEADING_OR_FENCE.finditer(text):
        if mark["fence"]:
            in_code = not in_code
        elif not in_code and mark.start() - start > _SLICE:
            yield start, mark.start()
            start = mark.start()
    yield start, len(text)


def _parts(tokens: Sequence[Token]) -> Iterator[Lines]:
    """Top-level blocks, each followed by the code blocks inside it."""
    for token, following in pairwise([*tokens, *tokens[-1:]]):
        kind = _KINDS.get(token.type, "paragraph")
        if token.map and (token.level == 0 or kind == "code"):
            level = int(token.tag[1]) if kind == "heading" else 0
            title = heading_words(following.content) if kind == "heading" else ""
            yield Lines(kind, token.map[0], token.map[1], level, title)


def _gapless(parts: Iterator[Lines], lines: int) -> Iterator[Lines]:
    """The parts without overlap and without gaps. A code block inside a list cuts the list in two."""
    outer, at = Lines("paragraph", 0, 0), 0
    for part in parts:
        if at < part.first:
            yield outer._replace(first=at, last=part.first)
        if part.last <= outer.last:
            yield part
            at = part.last
        else:
            outer, at = part, part.first
    yield outer._replace(first=at, last=lines)
