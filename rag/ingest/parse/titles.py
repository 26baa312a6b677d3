"""What a document is called: the words of headings, first lines that are titles, and names of files."""

from __future__ import annotations

import html
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import first_heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rag.corpus import Block

LABELS = ("sidebar_label", "linktitle", "nav_title", "navtitle", "short_title", "name")
"""Keys of front matter that site generators show in menus, in lower case, the most telling one first."""

_LINE = 98  # characters: a first line that is longer is a sentence
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_ALT = re.compile(r"""<img\b[^<>]{0,600}?\balt\s?=\s?["']([^"'<>]*)["'][^<>]*>""", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,600}>")
_MARKUP = re.compile(r"`|\*\*|</\w+>|<\w+\s[^<>]*>|\s*\{:?\s*[#.][^{}]*\}\s*$|\s+#+\s*$")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*]+?)\1(?![\w*])")
_H1 = re.compile(r"<h1\b[^<>]{0,600}>(.{1,2000}?)</h1\s*>", re.IGNORECASE | re.DOTALL)
_BOLD = re.compile(r"(\*\*|__)(?=\S)([^*_\n]+)\1:?")
_NO_TITLE = re.compile(r"[<|>!\[{]|[-*+=:] |\d+[.)] |https?:|.*[.,;:!?]$", re.DOTALL)
_PROPOSAL = re.compile(r"(?:[bcdefhijknps]|er|dr)[ei]p|erc|rfc|adr")  # as of Python and Bitcoin
_NOTHING = re.compile(
    r"(?i)[\W_]*|\(?(?:anonymous|unspecified|untitled(?:[ -]document)?|no title|unbenannt|null|undefined)\)?"
)
_NOTION = re.compile(r" [0-9a-f]{32}$")
_JOINED = re.compile(r"[a-z]{2,}(?:-[a-z]{2,})+")


def heading_words(heading: str) -> str:
    """The words of a Markdown heading without its markup.

    Example: "The [`x`](y) [![Build](b.svg)](z) {#anchor}" -> "The x Build".
    """
    words = _ALT.sub(r"\1", heading[:1000])
    for _ in range(2):  # a badge is an image in a link
        words = _LINK.sub(r"\1", words)
    return _MARKUP.sub("", _EMPHASIS.sub(r"\2", words))


def markdown_title(text: str, blocks: tuple[Block, ...], entries: Mapping[str, str]) -> str:
    """The title of a Markdown text, "" if nothing in it looks like one.

    That is the front matter's, or the first heading of level 1 (also an HTML one, as in many READMEs), or
    what the front matter says for menus, or the first heading, or a first line that stands alone.
    """
    named = {key.casefold(): value for key, value in entries.items() if value}
    outermost = (block for block in blocks if block.kind == "heading" and block.level == 1 and block.title)
    first = next(outermost, None)
    candidates = (
        named.get("title", ""),
        _html_heading(text, blocks, before=first.start if first else len(text)),
        first.title if first else "",
        next((named[key] for key in LABELS if named.get(key)), ""),
        first_heading(blocks),
        _first_line(text, blocks),
    )
    return numbered_title(next(filter(None, candidates), ""), named)


def _html_heading(text: str, blocks: Iterable[Block], before: int) -> str:
    for block in blocks:
        if block.start >= before:
            return ""
        if block.kind == "paragraph" and text[block.start] == "<":
            for match in _H1.finditer(text, block.start, block.end):
                if words := html.unescape(_TAG.sub(" ", _ALT.sub(r" \1 ", match[1]))).strip():
                    return words
    return ""


def _first_line(text: str, blocks: tuple[Block, ...]) -> str:
    """The first paragraph if it is one short line that is bold, or no sentence, before other text."""
    shown = (block for block in blocks if not text.startswith(("<!--", "[!["), block.start))
    first = next(shown, None)
    if not first or first is blocks[-1] or first.kind != "paragraph" or first.end - first.start > _LINE:
        return ""
    line = text[first.start : first.end].lstrip("#")  # "#Title" is how people wrote it before CommonMark
    if bold := _BOLD.fullmatch(line):
        return bold[2].rstrip(":")
    return "" if "\n" in line or _NO_TITLE.match(line) else heading_words(line).strip("*_ ")


def numbered_title(title: str, entries: Mapping[str, str]) -> str:
    """The title of a proposal with its number, which people know it by.

    Example: ("Style Guide", {"pep": "8"}) -> "PEP 8 – Style Guide".
    """
    for key, number in entries.items():
        if _PROPOSAL.fullmatch(key.casefold()) and number.isdecimal() and len(number) < 6:  # noqa: PLR2004
            named = f"{key.upper()} {int(number)}"
            return title if not title or named in title.upper() else f"{named} – {title}"
    return title


def is_title(title: str) -> bool:
    """Whether a title says anything: "(anonymous)", "?????" and "***" don't."""
    letters = title.replace("?", "").strip()
    return len(letters) > title.count("?") and not _NOTHING.fullmatch(title.strip())


def file_title(name: str) -> str:
    """What to call a document without a title: the name of its file without its suffix, in words.

    Examples: "state_of_the_union.md" -> "state of the union"; "getting-started.md" -> "getting started";
    "ISO-8601 2024-05.txt" -> "ISO-8601 2024-05"; ".profile" -> ".profile". The id that Notion appends is no
    part of a title.
    """
    stem = _NOTION.sub("", PurePath(name).stem)
    words = stem.replace("_", " ").strip() or stem
    return words.replace("-", " ") if _JOINED.fullmatch(words) else words
