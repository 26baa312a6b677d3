"""Recognizes formats by how a file begins, where that leaves no doubt."""

from __future__ import annotations

import codecs
import re

_PAGE = re.compile(rb"(?i)<(!doctype html|html)[\s>]")
_XML = re.compile(rb"<\?xml\s")
_MAILBOX = re.compile(rb"(?>From [^\r\n]+?\d\d:\d\d)[^\r\n]*+\r?\n[A-Za-z-]++:")  # the first time only
_HEADER = re.compile(rb"(?im)^(from|to|subject|date|received|message-id|mime-version|return-path):[ \t]*\S")
_FIELD = re.compile(rb"[A-Za-z-]+:[ \t]")
_NOTEBOOK = re.compile(rb'\{\s*"(cells|metadata|nbformat)"\s*:')
_EPUB = b"mimetypeapplication/epub+zip"
_MAIL_HEADERS = 3  # different ones in its first lines; a text may begin with "From:" and "To:"


def recognized(beginning: bytes) -> str:
    """The suffix of the format that a file with this beginning is in beyond doubt, "" if it may be any.

    Example: b"%PDF-1.7 ... obj" -> ".pdf"; b"<!DOCTYPE html>..." -> ".html".
    """
    start = beginning.removeprefix(codecs.BOM_UTF8).lstrip()
    is_xml = bool(_XML.match(start))
    signs = {
        ".pdf": start.startswith(b"%PDF-") and b" obj" in start,
        ".epub": _EPUB in beginning[:100],
        ".html": _PAGE.match(start) or (is_xml and _PAGE.search(start[:1000])),
        ".xml": is_xml,
        ".mbox": _MAILBOX.match(start),
        ".ipynb": _NOTEBOOK.match(start) and b'"cell_type"' in beginning,
        ".eml": _is_mail(start),
    }
    return next((suffix for suffix, found in signs.items() if found), "")


def is_table(beginning: bytes) -> bool:
    """Whether it is a text whose first lines have equally many tabs, semicolons or commas, at least one."""
    lines = [line for line in beginning.splitlines()[:5] if line.strip()]
    if b"\0" in beginning or not lines:
        return False
    return any(
        lines[0].count(sign) > 0 and len({line.count(sign) for line in lines}) == 1 for sign in b"\t;,"
    )


def _is_mail(start: bytes) -> bool:
    head = re.split(rb"\r?\n\r?\n", start, maxsplit=1)[0]
    names = {match[1].lower() for match in _HEADER.finditer(head)}
    is_sent = names & {b"message-id", b"received", b"mime-version"}  # no text that only quotes a mail
    return bool(_FIELD.match(head)) and len(names) >= _MAIL_HEADERS and bool(is_sent)
