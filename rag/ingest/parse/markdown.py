"""Markdown: CommonMark with pipe tables and front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from rag.corpus import Block, BlockKind, Document
from rag.ingest.parse.document_draft import omission_remarks
from rag.ingest.parse.document_parts import NOT_READ_WITH_IT, Lines, date, line_blocks, with_facts
from rag.ingest.parse.front_matter import ACCESS_KEYS, split_front_matter
from rag.ingest.parse.text_and_settings import parse_yaml
from rag.ingest.parse.titles_and_questions import heading_words, markdown_title
from rag.text.plain_text import without_note_ids

if TYPE_CHECKING:
    from markdown_it.token import Token

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
_SENTENCE = 3  # words, at least
_ACCESS = re.compile(
    rf"^[\"']?(?:{'|'.join(sorted(ACCESS_KEYS))})[\"']?[ \t]*[:=][^\n]*(?:\n[ \t-][^\n]*)*+\n?",
    re.MULTILINE | re.IGNORECASE,
)
_SLICE = 1 << 18  # characters; parsing takes some twenty bytes of memory per character
_HEADING_OR_FENCE = re.compile(r"^(?:#{1,6} |(?P<fence> {0,3}(?:```|~~~)))", re.MULTILINE)

_HINT = re.compile(r"%%|[ \n]\^[\w-]|!\[\[|::|:LOGBOOK:|\ntype_: |<!--|<a[ \t]|\{\{#")
_INCLUDE = (  # of mdBook, which puts other files there
    r"\{\{#(?:include|rustdoc_include|playground|playpen|shiftinclude|template)[ \t]+"
    r"(?P<file>[^{}\n:]*)[^{}\n]*\}\}"
)
_IN_LIST_OR_QUOTE = r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
_UNSHOWN = re.compile(
    rf"(?P<code>^{_IN_LIST_OR_QUOTE}(?P<fence>`{{3,}}|~{{3,}})[^\n]*\n(?s:.*?)(?:^[ \t>]*(?P=fence)|\Z)"
    r"|`[^`\n]+`"
    r"|\{%-?[ \t]*highlight\b(?:[^{]|\{(?!%-?[ \t]*(?:end)?highlight\b))*+\{%-?[ \t]*endhighlight"
    r"|<pre\b(?:[^<]|<(?!/?pre\b))*+</pre"
    r"|^(?: {4}|\t)(?![ \t]*(?:[-*+]|\d{1,9}[.)]|:LOGBOOK:|id::|collapsed::))[^\n]*)"
    r"|(?P<comment>(?:(?<=\s)|^)%%(?![%{])(?!(?-i:[A-Z_]+)%%)(?=\S)[^%\n|]*(?<=\S)%%(?=\s|\Z)"
    r"|^[ \t]*%%(?![%{])[^%\n|]*%%[ \t]*$|^%%[ \t]*$(?s:.{0,5000}?)^%%[ \t]*$"
    r"|<!--(?:[^<]|<(?!!--)){0,5000}?-->)"
    r"|<a[ \t]+(?:id|name)=(?:\"[^\"<>\n]*\"|'[^'<>\n]*'|[\w.:-]+)[ \t]*/?>(?:(?P<anchored>[^<\n]*)</a>)?"
    rf"|(?<!\\){_INCLUDE}|(?<!\\)\{{\{{#(?:title|quiz)[ \t]+[^{{}}\n]*\}}\}}"
    r"|(?:^|[ \t])\^(?:[a-z][a-z0-9-]+|[0-9a-f]{6})[ \t]*+$"  # the id of a block
    r"|(?P<picture>!\[\[[^\[\]\n]+\.(?:png|jpe?g|gif|svg|webp|bmp|avif)(?:[|#][^\[\]\n]*)?\]\])"
    r"|^[ \t]*(?:id:: [0-9a-f]{8}-[0-9a-f-]{27}|collapsed:: (?:true|false))[ \t]*+(?:\n|\Z)"
    r"|^[ \t]*:LOGBOOK:(?s:.{0,5000}?):END:[ \t]*+(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_DIRECTIVE = re.compile(rf"^[ \t>]*{_INCLUDE}[ \t]*\n", re.MULTILINE)
_EMPTY_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[^\n]*\n\s*\1\Z")
_JOPLIN = re.compile(r"\n\nid: [0-9a-f]{32}\n(?:[a-z_]+:[^\n]*\n){1,60}type_: \d+\s*\Z")


def parse(text: str, name: str) -> Document:
    """The document of a Markdown file, without front matter and the internal markup of note programs."""
    (entries, remarks), body = split_front_matter(text)
    if not body.strip() and _is_content(entries):
        return _home_page(parse_yaml(_ACCESS.sub("", text.strip("-+ \n")), name), entries, remarks)
    body, omissions = _without_internal_markup(without_note_ids(body))
    blocks = tuple(markdown_blocks(body))
    title = markdown_title(body, blocks, entries) or name
    return _stated(Document(body, title, MIME_TYPE, blocks, remarks=(*remarks, *omissions)), entries)


def _stated(document: Document, entries: Mapping[str, str]) -> Document:
    """The document with the date and the metadata of its front matter."""
    day = date(entries.get("date", ""))
    header_keys = {"title", "date"} if day else {"title"}
    metadata = with_facts({key: value for key, value in entries.items() if key not in header_keys})
    return replace(document, date=day, metadata=metadata)


def _is_content(entries: Mapping[str, str]) -> bool:
    """Whether front matter holds the text of a page: sentences in parts of it, as of a home page."""
    return any("." in name and len(value.split()) >= _SENTENCE for name, value in entries.items())


def _home_page(document: Document, entries: Mapping[str, str], remarks: tuple[str, ...]) -> Document:
    """The document of a page whose text is all in its front matter, as on the home pages of many sites."""
    stated = (entries[key] for key in ("title", "hero.title", "hero.name") if entries.get(key))
    title = next(stated, document.title)
    return _stated(replace(document, title=title, mime_type=MIME_TYPE, remarks=remarks), entries)


def _without_internal_markup(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without comments and internal markup of Obsidian, Logseq, Joplin and mdBook, and remarks.

    Internal markup is ids, pictures, anchors and directives. Code stays, except for directives in it.
    Example: "Seen. ^intro %%unseen%%" -> ("Seen.", ("1 comment was left out",)).
    """
    if not _HINT.search(text):
        return text, ()
    comments, files = 0, dict[str, None]()

    def shown(match: re.Match[str]) -> str:
        nonlocal comments
        if match["code"]:
            files.update(dict.fromkeys(include["file"] for include in _DIRECTIVE.finditer(match[0])))
            code = _DIRECTIVE.sub("", match[0])
            return "" if code != match[0] and _EMPTY_FENCE.fullmatch(code) else code
        comments += bool(match["comment"])
        files.update({match["file"]: None} if match["file"] else {})
        return "(picture)" if match["picture"] else match["anchored"] or ""

    body = _UNSHOWN.sub(shown, _JOPLIN.sub("", text))
    remarks = (NOT_READ_WITH_IT.format(name.strip()) for name in files)
    return body, (*omission_remarks(comments, "comment"), *remarks)


def markdown_blocks(text: str) -> Iterator[Block]:
    """The blocks of a Markdown text. A code block inside a list or a quotation is a block of its own."""
    for start, end in _slices(text):
        part = text[start:end]
        lines = _without_gaps(_parts(_PARSER.parse(part)), part.count("\n") + 1)
        yield from line_blocks(text, lines, start, end)


def _slices(text: str) -> Iterator[tuple[int, int]]:
    """Slices of a large text that end before headings: parsing it at once would take too much memory."""
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


def _without_gaps(parts: Iterator[Lines], lines: int) -> Iterator[Lines]:
    """The parts without overlap and without gaps. A code block inside a list cuts the list in two."""
    outer, at = Lines("paragraph", 0, 0), 0  # the top-level block, and the first line that is in no part yet
    for part in parts:
        if at < part.first:
            yield outer._replace(first=at, last=part.first)
        if part.last <= outer.last:
            yield part
            at = part.last
        else:
            outer, at = part, part.first
    yield outer._replace(first=at, last=lines)
