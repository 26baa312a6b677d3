"""The files in winmail.dat, in which Outlook wraps what it attaches. Source: [MS-OXTNEF]."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import clean
from rag.ingest.parse.decode import decode_part

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNATURE = struct.pack("<I", 0x223E9F78)
_HEAD = struct.Struct("<BII")  # level, name and length of an attribute; after its data come two bytes
_START, _CHECK = 6, 2
_BEGIN, _TITLE, _DATA = 0x00069002, 0x00018010, 0x0006800F
_CODEPAGE = 0x00069007


def files_in(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files, as far as it is complete; none if it is something else."""
    name, content, codepage = "", b"", ""
    for attribute, value in _attributes(data):
        if attribute == _BEGIN:
            if content:
                yield name, content
            name, content = "", b""
        elif attribute == _TITLE:
            name = clean(decode_part(value.rstrip(b"\0"), codepage).text)
        elif attribute == _CODEPAGE:
            codepage = f"cp{int.from_bytes(value[:4], 'little')}"
        elif attribute == _DATA:
            content = value
    if content:
        yield name, content


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = _START if data.startswith(_SIGNATURE) else len(data)
    while at + _HEAD.size <= len(data):
        _, attribute, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield attribute, data[at : at + length]
        at += length + _CHECK
