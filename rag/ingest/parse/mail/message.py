"""Mail messages as they arrive: broken headers, wrong charsets, missing dates.

The standard library's older policy is used on purpose: it keeps headers as they are written, where the newer
one raises on some that are broken, and takes quadratic time on long ones.
"""

from __future__ import annotations

import codecs
import email.generator  # which `Message.as_bytes` would import later, when it can't
import email.parser
from email.errors import MessageError
from email.header import decode_header
from email.utils import getaddresses
from typing import TYPE_CHECKING

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.blocks import clean, date
from rag.ingest.parse.decode import Decoded, decode, decode_part
from rag.text.segments import one_line

if TYPE_CHECKING:
    from datetime import datetime
    from email.message import Message

MAX_HEADER = 20_000  # characters: some thousand recipients; reading more takes long and tells nothing

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_USUAL = {"from", "to", "subject", "date", "received", "message-id", "return-path", "mime-version"}


def message_of(data: bytes) -> Message:
    """The message in a file.

    Raises:
        EmptyFileError: it has no content but white space.
        ParseError: it has no headers of a mail.
    """
    if not data.strip():
        raise EmptyFileError("the mail has no content")
    message = email.parser.BytesParser().parsebytes(_in_bytes(data))
    if _USUAL.isdisjoint(name.lower() for name, _ in message.raw_items()):
        raise ParseError("it is not a mail: it has neither sender, nor subject, nor date")
    return message


def header(message: Message, name: str) -> str:
    """The first header of that name, decoded, on one line; "" if there is none."""
    raw = next((value for key, value in message.raw_items() if key.lower() == name), "")
    return decoded(str(raw)[:MAX_HEADER])


def decoded(raw: str) -> str:
    """A header's words: "=?utf-8?q?K=C3=A4se?=" -> "Käse". What can't be decoded stays as it is."""
    if not raw.isascii():
        return one_line(clean(decode_part(raw.encode("utf-8", "surrogateescape"), "").text))
    try:
        words = [
            part if isinstance(part, str) else decode_part(part, charset or "").text
            for part, charset in decode_header(raw)
        ]
    except (MessageError, ValueError):
        words = [raw]
    return one_line(clean("".join(words)))


def people(message: Message, name: str) -> list[str]:
    """The people in a header, each as "Name <address>"."""
    whole = [str(value) for key, value in message.raw_items() if key.lower() == name]
    raw = [one if len(one) <= MAX_HEADER else one[:MAX_HEADER].rpartition(",")[0] for one in whole]
    shown = (_person(decoded(words), address) for words, address in getaddresses(raw))
    return list(dict.fromkeys(filter(None, shown))) or [one for value in raw if (one := decoded(value))]


def _person(name: str, address: str) -> str:
    return f"{name} <{address}>" if name and address and name != address else name or address


def sent_at(message: Message) -> datetime | None:
    """When it was sent, or else when the first server received it; None if neither is stated."""
    received = [str(value) for key, value in message.raw_items() if key.lower() == "received"]
    written = [header(message, "date"), *(value.rpartition(";")[2] for value in reversed(received))]
    return next(filter(None, map(date, written)), None)


def text_of(part: Message) -> Decoded:
    """The text of a part that is no container of others, in whatever charset it really is."""
    payload = part.get_payload(decode=True)
    decoded = decode_part(payload if isinstance(payload, bytes) else b"", _stated_charset(part))
    return decoded._replace(text=clean(decoded.text))


def _stated_charset(part: Message) -> str:
    try:
        return str(part.get_content_charset("") or "")
    except (LookupError, ValueError):  # of a name that is written in an unknown charset itself
        return ""


def file_name(part: Message) -> str:
    """The file name that a part states, "" if none. It may be in a charset of its own (RFC 2231)."""
    stated = part.get_param("filename", None, "content-disposition") or part.get_param("name", None)
    if isinstance(stated, tuple):
        charset, _, written = stated
        return one_line(clean(decode_part(str(written).encode("latin-1", "replace"), charset or "").text))
    return decoded(str(stated or ""))


def _in_bytes(data: bytes) -> bytes:
    """The file as its sender's system wrote it: some programs save it as UTF-16."""
    data = data.lstrip(b"\r\n\t ") if data[:1].isspace() else data
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")
    if not encoding and b"\x00" in data[:4]:
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        return data.decode(encoding).encode() if encoding else data
    except UnicodeError:
        return decode(data)[0].encode()
