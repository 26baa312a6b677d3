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
from rag.ingest.parse.titles import heading_words, markdown_title

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

    from rag.corpus import BlockKind

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


def parse(text: str, name: str) -> Document:
    """The document of a Markdown file, without its front matter."""
    (entries, remarks), body = split_front_matter(text)
    blocks = tuple(markdown_blocks(body))
    day = date(entries.get("date", ""))
    known = {"title", "date"} if day else {"title"}
    return Document(
        text=body,
        title=markdown_title(body, blocks, entries) or name,
        mime_type="text/markdown",
        blocks=blocks,
        date=day,
        metadata=with_facts({key: value for key, value in entries.items() if key not in known}),
        remarks=remarks,
    )


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
