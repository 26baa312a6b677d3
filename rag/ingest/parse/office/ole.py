"""Files of Office before 2007: streams in an OLE container, with the properties of the document."""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, Any

from rag.errors import ParseError
from rag.ingest.parse.office.properties import Properties
from rag.ingest.parse.zipped import ENCRYPTED

if TYPE_CHECKING:
    from olefile import OleFileIO

LIBRARIES = ("olefile",)
_CODECS = {1200: "utf-16-le", 10000: "mac-roman", 65001: "utf-8"}
"""Codecs by the numbers of code pages, where they are not called after them."""


def opened(data: bytes) -> OleFileIO:
    """The container in a file's content.

    Raises:
        ParseError: it is damaged, or holds a document that is encrypted.
    """
    import olefile  # noqa: PLC0415 needed in the child process only

    try:
        container = olefile.OleFileIO(io.BytesIO(data))
    except Exception as error:  # it raises all kinds of errors on damaged files
        raise ParseError("the file is damaged: it is no document of Office") from error
    if container.exists("EncryptedPackage"):
        raise ParseError(ENCRYPTED, "encrypted")
    return container


def stream(container: OleFileIO, name: str) -> bytes:
    """The content of a stream, empty if there is none.

    Raises:
        ParseError: it is damaged.
    """
    try:
        return bytes(container.openstream(name).read()) if container.exists(name) else b""
    except Exception as error:
        raise ParseError(f"the file is damaged: its stream {name} can't be read") from error


def summary(data: bytes) -> Properties:
    """The properties of a document; none if they are damaged."""
    try:
        about: Any = opened(data).get_metadata()
    except Exception:  # noqa: BLE001 as above; the document can be read without them
        return Properties()
    codec = _codec(about.codepage)
    saved = about.last_saved_time
    return Properties(
        title=_decoded(about.title, codec),
        author=_decoded(about.author, codec),
        keywords=_decoded(about.keywords, codec),
        subject=_decoded(about.subject, codec),
        description=_decoded(about.comments, codec),
        modified=saved.isoformat() if saved else "",
    )


def _codec(codepage: int | None) -> str:
    number = (codepage or 1252) & 0xFFFF
    codec = _CODECS.get(number, f"cp{number}")
    try:
        codecs.lookup(codec)
    except LookupError:
        return "cp1252"
    return codec


def _decoded(text: bytes | str | None, codec: str) -> str:
    decoded = text.decode(codec, "replace") if isinstance(text, bytes) else text or ""
    return decoded.strip("\x00 ")
