"""Files of Office before 2007: streams in an OLE container, with the properties of the document."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rag.errors import ParseError
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.office.properties import Properties
from rag.ingest.parse.zipped import ENCRYPTED

if TYPE_CHECKING:
    from olefile import OleFileIO

LIBRARIES = ("olefile",)
_UTF_16 = 1200  # a code page
_LABELS = {10000: "macintosh", 10007: "x-mac-cyrillic"}
"""Encodings by the numbers of code pages, where they are not called after them."""


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
    codepage = about.codepage
    saved = about.last_saved_time
    return Properties(
        title=_decoded(about.title, codepage),
        author=_decoded(about.author, codepage),
        keywords=_decoded(about.keywords, codepage),
        subject=_decoded(about.subject, codepage),
        description=_decoded(about.comments, codepage),
        modified=saved.isoformat() if saved else "",
    )


def _decoded(text: bytes | str | None, codepage: int | None) -> str:
    """A property, which is in the code page of its document, or in another one: many programs state 1252."""
    if not isinstance(text, bytes):
        return (text or "").strip("\x00 ")
    number = (codepage or 1252) & 0xFFFF
    if number == _UTF_16:
        return text.decode("utf-16-le", "replace").strip("\x00 ")
    return decode_part(text.strip(b"\x00 "), _LABELS.get(number, f"cp{number}")).text
