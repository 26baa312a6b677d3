"""The compressed rich text in Outlook's messages. Source: [MS-OXRTFCP]."""

from __future__ import annotations

import struct

from rag.errors import ParseError

_HEADER = struct.Struct("<II4sI")
_STORED, _COMPRESSED = b"MELA", b"LZFu"
_WINDOW = 4096  # bytes that a reference reaches back
_USUAL = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans "
    rb"SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""What the window holds at the start, 207 bytes."""


def uncompressed(data: bytes) -> bytes:
    """The rich text.

    Raises:
        ParseError: it is damaged.
    """
    if len(data) < _HEADER.size:
        raise ParseError("its rich text is damaged")
    _, size, kind, _ = _HEADER.unpack_from(data)
    if kind == _STORED:
        return data[_HEADER.size : _HEADER.size + size]
    if kind != _COMPRESSED:
        raise ParseError("its rich text is damaged")
    return _unpacked(data[_HEADER.size :], size)


def _unpacked(packed: bytes, size: int) -> bytes:
    window = bytearray(_USUAL.rjust(_WINDOW))  # and after it what is unpacked
    left = iter(packed)
    for flags in left:
        for bit in range(8):
            if len(window) - _WINDOW >= size:
                break
            if flags >> bit & 1:
                reference = next(left, 0) << 8 | next(left, 0)
                back = (len(window) + len(_USUAL) - (reference >> 4)) % _WINDOW
                if not back:
                    return bytes(window[_WINDOW:])
                for _ in range((reference & 15) + 2):
                    window.append(window[-back])
            elif (byte := next(left, None)) is not None:
                window.append(byte)
    return bytes(window[_WINDOW : _WINDOW + size])
