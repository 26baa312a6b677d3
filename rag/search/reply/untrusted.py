"""Document text made safe to hand to a model: still data, but nothing hidden, and nothing that is fetched.

Parsers leave out what is hidden; a desk can hold texts from before they did, so here it is left out again.
"""

from __future__ import annotations

import re

from rag.hidden import JOINERS, with_line_ends, without_hidden

MAX_LABEL_CHARS = 200  # of a title, heading or metadata value
ALTERED = (
    "Not verbatim: spaces were inserted where markup could load something (< img, ! [, ] :), and hidden "
    "characters were removed. Quotes of this text still pass a citation check."
)

_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_REFERENCE = re.compile(  # [name]: at the start of a line, whose name some renderers let have brackets
    r"^(?:[ \t>*+-]|\d+[.)])*\[(?:[^\n]*|(?:[^\[\]\\]|\\.)*)\]:", re.MULTILINE | re.DOTALL
)


def disarmed(text: str) -> str:
    """`text` without anything hidden, and with a blank in all markup that could make a renderer fetch.

    A hostile document can put what a model read into the address of an image, a frame or a style, and a
    renderer asks for it. So no < begins a tag or a comment, no ! an image, and no line says what a reference
    means, in this text or in another one beside it. Code is treated like the rest, as nobody can tell where
    a fence begins in a part of a document; most of it means the same with a blank there.
    `rag.search.cite.parse` takes the blanks out again.
    Example: "![a map](http://x/y.png) <img src=z>" -> "! [a map](http://x/y.png) < img src=z>".
    """
    text = without_hidden(with_line_ends(text))
    text = _TAG.sub("< ", text.replace("![", "! ["))
    return _REFERENCE.sub(_without_meaning, text) if "]:" in text else text


def label(text: str) -> str:
    """A title or the like on one line, shown safely, cut to `MAX_LABEL_CHARS`."""
    seen = without_hidden(with_line_ends(text[: 2 * MAX_LABEL_CHARS]))
    line = " ".join("".join(c if c.isprintable() or c in JOINERS else " " for c in seen).split())
    line = disarmed(line)
    return line if len(line) <= MAX_LABEL_CHARS else line[: MAX_LABEL_CHARS - 1] + "…"


def _without_meaning(line: re.Match[str]) -> str:
    return line[0].replace("]:", "] :")
