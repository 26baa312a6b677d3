"""Makes document text safe to show: no hidden characters, and no markup that makes a client fetch something.

Ingestion removes hidden characters, too. They are removed again here, because a data folder can hold texts
that an earlier version ingested.
"""

from __future__ import annotations

import re

from rag.hidden import JOINERS, with_line_ends, without_hidden

MAX_LABEL_CHARS = 200  # of a title, a heading, or a metadata key or value
ALTERED = (
    "Not verbatim: spaces were inserted where markup could load something (< img, ! [, ] :), and hidden "
    "characters were removed. Quotes of this text still pass a citation check."
)

# "<" begins markup only before a letter (a tag), "/", "!" (a comment) or "?". "a < b" stays as it is.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# "[name]: address" at the start of a line, also in a quote or list, is where "![text][name]" is loaded from.
# Some renderers accept brackets in the name, or line ends.
_REFERENCE = re.compile(
    r"^(?:[ \t>*+-]|\d+[.)])*\[(?:[^\n]*|(?:[^\[\]\\]|\\.)*)\]:", re.MULTILINE | re.DOTALL
)

_SEPARATORS = re.compile(r"[\r\x0b\x0c\x85\u2028\u2029]")


def disarmed(text: str) -> str:
    """`text` without hidden characters, and with a space in markup that could make a client fetch something.

    A hostile document can tell the model to put what it has read into the address of an image, frame or
    style; the client that renders it then sends this to the address. So no "<" begins a tag, no "!" an image,
    and no line defines a reference, which could serve an image elsewhere in the reply. Code is treated like
    text: a passage may begin inside a code block, so nothing here can tell where code is. Most code means the
    same with the space. `rag.search.cite.parse` removes the spaces again.
    Example: "![a map](http://x/y.png) <img src=z>" -> "! [a map](http://x/y.png) < img src=z>".
    """
    return _without_markup(without_hidden(with_line_ends(text)))


def _without_markup(text: str) -> str:
    text = _TAG.sub("< ", text.replace("![", "! ["))
    return _REFERENCE.sub(_disarmed_reference, text) if "]:" in text else text


def label(text: str) -> str:
    """A title, heading or metadata value on one line, disarmed and truncated to `MAX_LABEL_CHARS`."""
    visible = without_hidden(with_line_ends(text[: 2 * MAX_LABEL_CHARS]))  # it may be as long as a document
    if not visible.isprintable():  # most labels are, and a reply has dozens of them
        visible = without_hidden("".join(c if c.isprintable() or c in JOINERS else " " for c in visible))
    line = _without_markup(" ".join(visible.split()))
    return line if len(line) <= MAX_LABEL_CHARS else line[: MAX_LABEL_CHARS - 1] + "…"


def one_separator(text: str) -> str:
    r"""`text` with LF as its only line separator, so that no other one adds a line.

    Example: "a\r\nb\u2028c" -> "a\nb c".
    """
    return _SEPARATORS.sub(" ", text.replace("\r\n", "\n"))


def numbered(text: str, first: int) -> str:
    r"""`text` with its lines' numbers, each before a tab: ("a\nb", 9) -> "9\ta\n10\tb"."""
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), first))


def _disarmed_reference(line: re.Match[str]) -> str:
    return line[0].replace("]:", "] :")
