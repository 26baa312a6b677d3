"""Plain text and logs."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import block, paragraphs
from rag.ingest.parse.headers import rfc822_headers

if TYPE_CHECKING:
    from rag.corpus import Block, BlockKind

SUFFIXES = (".txt", ".text", ".log", "readme", "license", "licence", "changelog", "authors", "notice")

_TITLES = (
    re.compile(r"\s*#{1,6}[ \t]+(\S[^\n]{0,98})(?:\n|\Z)"),
    re.compile(r"\s*(?:[=*#~-]{3,}[ \t]*\n[ \t]*)?(\S[^\n]{0,98})\n[ \t]*[=*#~-]{3,}[ \t]*(?:\n|\Z)"),
    re.compile(r"\s*(\S[^\n]{0,98}[^\n.,;])\n\s*\n"),
)
"""A first line that is marked as a heading, is underlined, or stands alone and isn't a sentence."""


_MESSAGE = re.compile(
    r"^\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},? \d{1,2}:\d\d(?::\d\d)?(?:[ \u202f][AaPp]\.?[Mm]\.?)?"
    r"(?:\]| -) [^\n:]{1,80}: ",
    re.MULTILINE,
)
"""A line that begins a message of a chat, as WhatsApp exports it: "[12.03.23, 14:05:33] Ann: Hello"."""
_FEWEST = 3  # such lines make a text a chat, if a quarter of its lines are such


def _messages(text: str) -> list[Block]:
    """A block for each message of a chat, so that none is cut where it fits; none of another text."""
    starts = [match.start() for match in _MESSAGE.finditer(text)]
    if len(starts) < _FEWEST or 4 * len(starts) < text.count("\n"):
        return []
    borders = pairwise([0, *starts, len(text)])
    return [one for start, end in borders for one in block(text, "paragraph", start, end)]


def parse(text: str, name: str) -> Document:
    """The document of a plain text: a paragraph ends at a blank line; a log is cut between lines."""
    kind: BlockKind = "code" if name.lower().endswith(".log") else "paragraph"
    blocks = tuple(_messages(text) or paragraphs(text, kind=kind))
    if kind == "code":
        return Document(text, name, "text/plain", blocks)
    headers = rfc822_headers(text)
    heading = next((match[1] for pattern in _TITLES if (match := pattern.match(text))), "")
    title = headers.title or heading or name
    return Document(text, title, "text/plain", blocks, date=headers.date, metadata=headers.metadata)
