"""The rich text of Outlook's messages, much of which is HTML in disguise. Source: [MS-OXRTFEX]."""

from __future__ import annotations

import re
from html import escape

from rag.errors import EmptyFileError
from rag.ingest.parse.office import rtf

_TOKEN = re.compile(
    rb"\\'([0-9a-fA-F]{2})|\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_IS_HTML = re.compile(rb"\\fromhtml1?\b")
_HEAD = 1000  # bytes in which it says that it was HTML
_SKIPPED = frozenset({b"fonttbl", b"colortbl", b"stylesheet", b"info", b"mhtmltag", b"pntext", b"generator"})
_CHARACTERS = {b"par": "\n", b"line": "\n", b"tab": "\t", b"lquote": "‘", b"rquote": "’", b"bullet": "•"}
_CHARACTERS |= {b"ldblquote": "“", b"rdblquote": "”", b"emdash": "—", b"endash": "–"}
_SYMBOLS = {b"~": "&nbsp;", b"_": "&shy;", b"{": "{", b"}": "}", b"\\": "\\"}


def body_of(data: bytes) -> tuple[str, bytes]:
    """The text of a rich text with its type, "html" or "plain"; empty if it has none.

    Raises:
        ParseError: it is damaged.
    """
    if _IS_HTML.search(data[:_HEAD]):
        return "html", _Html().of(data).encode("utf-8", "replace")
    try:
        return "plain", rtf.parse(data, "").text.encode("utf-8", "replace")
    except EmptyFileError:
        return "plain", b""


class _Html:
    """Takes the HTML out: tags are in groups of their own, and what only rich text needs is marked."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._bytes: list[bytes] = []
        self._codec = "cp1252"
        self._skip = 0
        self._state = ("text", False)  # where it is, and whether that is for rich text only
        self._stack: list[tuple[str, bool]] = []

    def of(self, data: bytes) -> str:
        """The HTML in a rich text."""
        for match in _TOKEN.finditer(data):
            code, word, number, symbol, brace, text = match.groups()
            if plain := bytes([int(code, 16)]) if code else text:
                self._bytes.append(plain[self._skip :])
                self._skip = 0
            else:
                self._flush()
                self._mark(word, number, symbol, brace)
        self._flush()
        return "".join(self._written).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _mark(
        self, word: bytes | None, number: bytes | None, symbol: bytes | None, brace: bytes | None
    ) -> None:
        if brace == b"{":
            self._stack.append(self._state)
        elif brace and self._stack:
            self._state = self._stack.pop()
        elif symbol:
            self._write(_SYMBOLS.get(symbol, ""))
        elif word == b"htmlrtf":
            self._state = (self._state[0], number != b"0")
        elif word == b"htmltag":
            self._state = ("tag", False)
        elif word in _SKIPPED:
            self._state = ("skipped", True)
        elif word == b"ansicpg" and number:
            self._codec = rtf.codec_of(int(number))
        elif word == b"u" and number:
            self._write(chr(int(number) % 0x10000))
            self._skip = 1  # what programs show that don't know the character
        elif word:
            self._write(_CHARACTERS.get(word, ""))

    def _flush(self) -> None:
        if self._bytes:
            written, self._bytes = b"".join(self._bytes).decode(self._codec, "replace"), []
            self._write(written if self._state[0] == "tag" else escape(written, quote=False))

    def _write(self, text: str) -> None:
        if not self._state[1]:
            self._written.append(text)
