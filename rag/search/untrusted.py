"""Document text made safe to hand to a model: still data, but nothing hidden and nothing fetched.

Invisible characters never get this far: parsers leave them out of a source's text.
"""

from __future__ import annotations

import re

MAX_LABEL_CHARS = 200  # of a title, heading or metadata value

_PARAGRAPH_END = re.compile(r"(\n[ \t]*\n)")  # no image reaches over one
_HTML_IMAGE = re.compile(r"<(?=im(?:g|age)\b)", re.IGNORECASE)


def without_images(text: str) -> str:
    r"""`text` with every image spoiled, so that a renderer shows its source and fetches nothing.

    A hostile document can put what a model read into an image's address. Code is treated like the
    rest, as nobody can tell where a fence begins in a part of a document; brackets after ! that no
    image can be made of, as in Rust's vec![1], stay.
    Example: "![a map](http://x/y.png) <img src=z>" -> "!\[a map](http://x/y.png) &lt;img src=z>".
    """
    text = _HTML_IMAGE.sub("&lt;", text)
    if "![" not in text:
        return text
    if "]:" in text:  # it may define what ![alt] alone refers to
        return _spoiled(text)
    return "".join(map(_spoiled_to_last_target, _PARAGRAPH_END.split(text)))


def label(text: str) -> str:
    """A title or the like on one line, without images, cut to `MAX_LABEL_CHARS`."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * MAX_LABEL_CHARS]).split())
    line = without_images(line)
    return line if len(line) <= MAX_LABEL_CHARS else line[: MAX_LABEL_CHARS - 1] + "…"


def _spoiled(text: str) -> str:
    return text.replace("![", r"!\[")


def _spoiled_to_last_target(paragraph: str) -> str:
    """An image's brackets are followed by (address) or [reference]: after the last such, nothing is one."""
    end = max(0, paragraph.rfind("]("), paragraph.rfind("]["))
    return _spoiled(paragraph[:end]) + paragraph[end:]
