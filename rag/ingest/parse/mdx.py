"""MDX: Markdown with JSX, of which only the words are read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rag.ingest.parse import markdown
from rag.ingest.parse.blocks import title_line

if TYPE_CHECKING:
    from rag.corpus import Document

SUFFIXES = (".mdx",)

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(
    r"^(?:import\s(?:[^;\n'\"]|\n(?!\n)){0,1000}?['\"][^'\"\n]+['\"];?|export\s(?:default|const|let|var|function|async|\{|\*)"
    r"(?:[^\n]|\n(?!\n))*)[ \t]*$",
    re.MULTILINE,
)
_COMMENT = re.compile(r"\{\s{0,9}/\*.{0,3000}?\*/\s{0,9}\}|<!--.{0,3000}?-->", re.DOTALL)
_TAG = re.compile(
    r"""(?P<code>`[^`\n]+`)|(?<![\w`])<(?P<closing>/?)(?P<name>[A-Z][\w.]*)(?P<attributes>(?:[^<>{}"']|"[^"]*"|'[^']*'"""
    r"""|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*?)(?P<alone>/?)>"""
)
_FRAGMENT = re.compile(r"^[ \t]*</?>[ \t]*$", re.MULTILINE)
_NAMED = re.compile(r"""\b(?:title|label|heading|summary)=(?:\{\s*)?(?:"([^"]+)"|'([^']+)'|`([^`]+)`)""")
_EXPORTED = re.compile(
    r"""export const (?:metadata|meta|frontMatter)\b[^\n]*?(?:\n[^\n]+?){0,20}?\btitle:\s*(["'`])(.+?)\1"""
)
_GAPS = re.compile(r"\n(?:[ \t]*\n){2,}")
_INDENT = 2  # spaces that people put before what is inside a component
_DEPTH = 10  # components within components: people stop earlier


def parse(text: str, name: str) -> Document:
    """The document of an MDX file: as Markdown, without imports, exports, comments and tags of components.

    What a component shows as its title or label stays, as a bold line.
    """
    exported = _EXPORTED.search(text)
    document = markdown.parse(plain_markdown(text), name)
    title = title_line(exported[2]) if exported and document.title == name else document.title
    return replace(document, title=title, mime_type="text/mdx")


def plain_markdown(text: str) -> str:
    """The Markdown in an MDX text. Code stays as it is, except for its indentation inside components."""
    pieces: list[str] = []
    at, depth = 0, 0
    for code in _FENCED.finditer(text):
        piece, depth = _without_jsx(text[at : code.start()], depth)
        pieces += [piece, _dedented(code[0], depth)]
        at = code.end()
    return "".join([*pieces, _without_jsx(text[at:], depth)[0]])


def _without_jsx(text: str, depth: int) -> tuple[str, int]:
    """A text without JSX, and how many components are open at its end if `depth` are at its start."""
    text = _FRAGMENT.sub("", _COMMENT.sub("", _MODULE.sub("", text)))
    pieces: list[str] = []
    at = 0
    for tag in _TAG.finditer(text):
        if tag["code"]:
            continue
        pieces.append(_dedented(text[at : tag.start()], depth))
        at = tag.end()
        named = _NAMED.search(tag["attributes"])
        pieces.append(f"\n\n**{next(filter(None, named.groups()))}**\n\n" if named else "")
        depth = max(0, depth - 1) if tag["closing"] else depth + (not tag["alone"])
    return _GAPS.sub("\n\n", "".join([*pieces, _dedented(text[at:], depth)])), depth


def _dedented(text: str, depth: int) -> str:
    return (
        re.sub(rf"^[ \t]{{1,{_INDENT * min(depth, _DEPTH)}}}", "", text, flags=re.MULTILINE)
        if depth
        else text
    )
