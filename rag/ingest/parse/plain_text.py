"""Plain text and logs."""

from __future__ import annotations

import re
from itertools import pairwise

from rag.corpus import Document
from rag.ingest.parse.blocks import block, paragraphs
from rag.ingest.parse.headers import rfc822_headers

SUFFIXES = (".txt", ".text", ".log", "readme", "license", "licence", "changelog", "authors", "notice")

MAX_WRITERS = 4  # of a chat that its title names

_TITLES = (
    re.compile(r"\s*#{1,6}[ \t]+(\S[^\n]{0,98})(?:\n|\Z)"),
    re.compile(r"\s*(?:[=*#~-]{3,}[ \t]*\n[ \t]*)?(\S[^\n]{0,98})\n[ \t]*[=*#~-]{3,}[ \t]*(?:\n|\Z)"),
    re.compile(r"\s*(\S[^\n]{0,98}[^\n.,;])\n\s*\n"),
)
"""A first line that is marked as a heading, is underlined, or stands alone and isn't a sentence."""


_MESSAGE = re.compile(
    r"^\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},? \d{1,2}:\d\d(?::\d\d)?(?:[ \u202f][AaPp]\.?[Mm]\.?)?"
    r"(?:\]| -) (?P<who>[^\n:]{1,80}): ",
    re.MULTILINE,
)
"""A line that begins a message of a chat, as WhatsApp exports it: "[12.03.23, 14:05:33] Ann: Hello"."""
_FEWEST = 3  # such lines make a text a chat, if a quarter of its lines are such


def _messages(text: str) -> list[re.Match[str]]:
    """Where the messages of a chat begin, with who wrote them; none of another text."""
    begins = [*_MESSAGE.finditer(text)]
    return begins if len(begins) >= _FEWEST and 4 * len(begins) >= text.count("\n") else []


def _chat(text: str, messages: list[re.Match[str]], name: str) -> Document:
    """The document of a chat: a block for each message, so that none is cut where it fits.

    Phones call every chat "_chat.txt", so such a file is called after those who write in it.
    """
    borders = pairwise([0, *(message.start() for message in messages), len(text)])
    blocks = tuple(part for start, end in borders for part in block(text, "paragraph", start, end))
    writers = [*dict.fromkeys(message["who"].strip(" ~") for message in messages)]
    title = f"Chat: {', '.join(writers[:MAX_WRITERS])}" if name == "_chat.txt" else name
    return Document(text, title, "text/plain", blocks)


def parse(text: str, name: str) -> Document:
    """The document of a plain text: a paragraph ends at a blank line; a log is cut between lines."""
    if name.lower().endswith(".log"):
        return Document(text, name, "text/plain", tuple(paragraphs(text, kind="code")))
    if messages := _messages(text):
        return _chat(text, messages, name)
    headers = rfc822_headers(text)
    heading = next((match[1] for pattern in _TITLES if (match := pattern.match(text))), "")
    title = headers.title or heading or name
    blocks = tuple(paragraphs(text))
    return Document(text, title, "text/plain", blocks, date=headers.date, metadata=headers.metadata)
