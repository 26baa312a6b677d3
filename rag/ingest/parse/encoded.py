"""Leaves out data that is encoded as text: pictures in Markdown or JSON, attachments of pasted mails.

A megabyte of it makes 2,400 chunks that nobody can read or find, takes seconds to cut and minutes to embed.
"""

from __future__ import annotations

import re

from rag.report.tables import counted

LEFT_OUT = "[encoded data]"
LEAST = 2000  # letters and digits without a space: no word, address, key or checksum is as long
_SIGNS = "A-Za-z0-9+/_%=-"
_RUN = re.compile(rf"(?<![{_SIGNS}])[{_SIGNS}]{{{LEAST},}}+")  # from its beginning, so in linear time
_LINES = re.compile(
    r"(?:^[ \t]*+[A-Za-z0-9+/]{60,80}+\n){20,}+(?:[ \t]*+[A-Za-z0-9+/]{1,80}={0,2}[ \t]*+$)?", re.MULTILINE
)


def without_encoded(text: str) -> tuple[str, str]:
    """The text with a mark in place of encoded data, and a remark on how much that was, or "".

    Data is encoded if it is a run of 2,000 letters, digits and the signs of Base64, or 20 full lines of them.
    """
    shorter = _LINES.sub(_mark, _RUN.sub(_mark, text))
    if left_out := len(text) - len(shorter):
        return shorter, f"{counted(left_out, 'character')} of encoded data left out"
    return text, ""


def _mark(match: re.Match[str]) -> str:
    """The mark. What has no digits or no capitals is something else, and stays."""
    run = match[0]
    return LEFT_OUT if any(map(str.isdigit, run)) and run.lower() != run else run
