"""Decodes bytes, in the few encodings that can be distinguished with certainty."""

from __future__ import annotations

import codecs
import re
from itertools import islice

from rag.errors import ParseError
from rag.ingest.parse.blocks import clean

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CONTROL = re.compile(r"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # not white space, bell, backspace, escape
_CONTROL_SHARE = 100  # one in 100 characters; more means binary data


def decode(data: bytes) -> tuple[str, str]:
    """The text without invisible characters, its line ends as LF, and the name of its encoding.

    That is the encoding of the byte order mark, else UTF-8, else Windows-1252 if all bytes are defined in it.

    Raises:
        ParseError: it is none of these, or not text at all.
    """
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise ParseError(f"invalid {encoding.upper()} text") from error
        text, encoding = _windows(data), "cp1252"
    if "\x00" in text or _many(_CONTROL, text):
        raise ParseError("binary data, not text", "unsupported")
    return clean(text), encoding


def _windows(data: bytes) -> str:
    if b"\x00" in data:
        raise ParseError("binary data, not text", "unsupported")
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError as error:
        raise ParseError("neither UTF-8 nor Windows-1252 text") from error


def _many(pattern: re.Pattern[str], text: str) -> bool:
    return any(islice(pattern.finditer(text), len(text) // _CONTROL_SHARE, None))
