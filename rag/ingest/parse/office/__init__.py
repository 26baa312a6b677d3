"""Tells office formats apart by their content: people rename files, and programs call them by older names."""

from __future__ import annotations

import re

from rag.ingest.parse.zipped import ZIP

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Office before 2007 begin, and newer ones that are encrypted."""

_PARTS = {
    ".docx": b"word/document",
    ".pptx": b"ppt/presentation.xml",
    ".xlsx": b"xl/workbook.xml",
}
_STREAMS = {
    ".doc": "WordDocument",
    ".ppt": "PowerPoint Document",
    ".xls": "Workbook",
}
_MIME = re.compile(rb"application/vnd\.oasis\.opendocument\.(text|spreadsheet|presentation)")
_OPEN = {b"text": ".odt", b"spreadsheet": ".ods", b"presentation": ".odp"}
_FIRST_ENTRY = 200  # bytes that hold the first entry of an OpenDocument file: its MIME type, not compressed


def office_format(data: bytes, suffix: str) -> str:
    """The suffix of the office format that a file is in beyond doubt, "" if it is none.

    A file can contain others. If `suffix` names one of its formats, that one counts.
    Example: (the content of a DOCX, ".doc") -> ".docx".
    """
    if data.startswith(b"{\\rtf"):
        return ".rtf"
    if data.startswith(ZIP):
        if match := _MIME.search(data[:_FIRST_ENTRY]):
            return _OPEN[match[1]]
        found = {one: data.rfind(part) for one, part in _PARTS.items()}
    elif data.startswith(OLE):
        found = {one: data.rfind(name.encode("utf-16-le")) for one, name in _STREAMS.items()}
    else:
        return ""
    found = {one: at for one, at in found.items() if at >= 0}
    if suffix in found:
        return suffix
    return max(found, key=lambda one: found[one]) if found else ""
