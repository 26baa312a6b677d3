"""Plain text and logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import paragraphs

if TYPE_CHECKING:
    from rag.corpus import BlockKind

SUFFIXES = (".txt", ".text", ".log", "readme", "license", "licence", "changelog", "authors", "notice")

_TITLE = re.compile(
    r"\s*(\S[^\n]{0,98}[^\n.,;])\n\s*\n"
)  # a first line that stands alone and isn't a sentence


def parse(text: str, name: str) -> Document:
    """The document of a plain text: a paragraph ends at a blank line; a log is cut between lines."""
    kind: BlockKind = "code" if name.lower().endswith(".log") else "paragraph"
    title = _TITLE.match(text) if kind == "paragraph" else None
    return Document(text, title[1] if title else name, "text/plain", tuple(paragraphs(text, kind=kind)))
