"""Plain text and logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import paragraphs
from rag.ingest.parse.headers import rfc822_headers

if TYPE_CHECKING:
    from rag.corpus import BlockKind

SUFFIXES = (".txt", ".text", ".log", "readme", "license", "licence", "changelog", "authors", "notice")

_TITLES = (
    re.compile(r"\s*#{1,6}[ \t]+(\S[^\n]{0,98})(?:\n|\Z)"),
    re.compile(r"\s*(?:[=*#~-]{3,}[ \t]*\n[ \t]*)?(\S[^\n]{0,98})\n[ \t]*[=*#~-]{3,}[ \t]*(?:\n|\Z)"),
    re.compile(r"\s*(\S[^\n]{0,98}[^\n.,;])\n\s*\n"),
)
"""A first line that is marked as a heading, is underlined, or stands alone and isn't a sentence."""


def parse(text: str, name: str) -> Document:
    """The document of a plain text: a paragraph ends at a blank line; a log is cut between lines."""
    kind: BlockKind = "code" if name.lower().endswith(".log") else "paragraph"
    blocks = tuple(paragraphs(text, kind=kind))
    if kind == "code":
        return Document(text, name, "text/plain", blocks)
    headers = rfc822_headers(text)
    heading = next((match[1] for pattern in _TITLES if (match := pattern.match(text))), "")
    title = headers.title or heading or name
    return Document(text, title, "text/plain", blocks, date=headers.date, metadata=headers.metadata)
