"""A mail message: its headers, its readable bodies, and its attachments.

Headers can be broken, charsets wrong, dates missing. The standard library's older policy (compat32) is used
on purpose: it keeps headers as they are written, while the newer policy raises on some broken headers and
takes quadratic time on long ones.

Outlook wraps what it attaches in winmail.dat. Source: [MS-OXTNEF].
"""

from __future__ import annotations

import codecs
import email.generator  # which `Message.as_bytes` would import later, when it can't
import email.parser
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.utils import getaddresses
from pathlib import PurePath

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.decode import Decoded, decode, decode_part
from rag.ingest.parse.document_parts import UniqueNames, clean, date, title_line
from rag.ingest.parse.mail import calendars
from rag.text.plain_text import one_line, words

MAX_HEADER = 20_000  # characters, some thousand recipients; longer headers take too long to decode

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_USUAL = {"from", "to", "subject", "date", "received", "message-id", "return-path", "mime-version"}


def message_of(data: bytes) -> Message:
    """The message in a file.

    Raises:
        EmptyFileError: the file is empty or blank.
        ParseError: the file has no headers of a mail.
    """
    if not data.strip():
        raise EmptyFileError("the mail has no content")
    message = email.parser.BytesParser().parsebytes(_mail_bytes(data))
    if _USUAL.isdisjoint(name.lower() for name, _ in message.raw_items()):
        raise ParseError("it is not a mail: it has neither sender, nor subject, nor date")
    return message


def header(message: Message, name: str) -> str:
    """The first header of this name, decoded, on one line; "" if it is missing."""
    raw = next((value for key, value in message.raw_items() if key.lower() == name), "")
    return decoded_header(str(raw)[:MAX_HEADER])


def decoded_header(raw: str) -> str:
    """The text of a header: "=?utf-8?q?K=C3=A4se?=" -> "Käse". What can't be decoded stays as it is."""
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
    raw = [value if len(value) <= MAX_HEADER else value[:MAX_HEADER].rpartition(",")[0] for value in whole]
    persons = (_person(decoded_header(words), address) for words, address in getaddresses(raw))
    return list(dict.fromkeys(filter(None, persons))) or [
        text for value in raw if (text := decoded_header(value))
    ]


def _person(name: str, address: str) -> str:
    return f"{name} <{address}>" if name and address and name != address else name or address


def sent_at(message: Message) -> datetime | None:
    """When a message was sent, else when the first server received it; None if neither is stated."""
    received = [str(value) for key, value in message.raw_items() if key.lower() == "received"]
    dates = [header(message, "date"), *(value.rpartition(";")[2] for value in reversed(received))]
    return next(filter(None, map(date, dates)), None)


def text_of(part: Message) -> Decoded:
    """The text of a part without subparts; its real charset may differ from the stated one."""
    decoded = decode_part(_content(part), _stated_charset(part))
    return decoded._replace(text=clean(decoded.text))


def _content(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _stated_charset(part: Message) -> str:
    try:
        return str(part.get_content_charset("") or "")
    except (LookupError, ValueError):  # of a name that is written in an unknown charset itself
        return ""


def file_name(part: Message) -> str:
    """The file name that a part states, or "". It may be in a charset of its own (RFC 2231)."""
    stated = part.get_param("filename", None, "content-disposition") or part.get_param("name", None)
    if isinstance(stated, tuple):
        charset, _, encoded = stated
        return one_line(clean(decode_part(str(encoded).encode("latin-1", "replace"), charset or "").text))
    return decoded_header(str(stated or ""))


def _mail_bytes(data: bytes) -> bytes:
    """The mail in bytes as sent: some programs save mails as UTF-16."""
    data = data.lstrip(b"\r\n\t ") if data[:1].isspace() else data
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")
    if not encoding and b"\x00" in data[:4]:
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        return data.decode(encoding).encode() if encoding else data
    except UnicodeError:
        return decode(data)[0].encode()


_SUFFIXES = {
    "application/pdf": ".pdf",
    "message/rfc822": ".eml",
    "text/calendar": ".ics",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/plain": ".txt",
    "text/vcard": ".vcf",
    "text/x-vcard": ".vcf",
}
_SIGNATURES = re.compile(r"application/(pgp-signature|(x-)?pkcs7-signature)")
_WRAPPED = re.compile(r"application/(vnd\.)?ms-tnef")
_ENCRYPTED = re.compile(r"application/(x-)?pkcs7-mime")
_DEPTH = 50  # parts within parts; mail programs refuse more, too
_SHARE = 2  # HTML with that many times the words of the plain text says more than it
_LENGTH = 120  # characters of a name without its suffix
_SOFT_END = re.compile(r"(?<=\S)(?<!\n--) \n(?=[^>\s])")  # a line that goes on, by RFC 3676
_GAP = re.compile(r"\n(?:[^\S\n]*+\n){2,}")
_TAG = re.compile(r"(?is)<(style|script|title)\b.*?</\1\s*>|<!--.*?-->|<[a-z/!][^<>]*>|&[a-z]+;")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment: its name and its part."""

    name: str
    part: Message

    @property
    def data(self) -> bytes:
        """The content; of an attached message, the message in bytes."""
        if self.part.get_content_maintype() == "message":
            return b"".join(message.as_bytes() for message in _parts_in(self.part)[:1])
        return _content(self.part)


def _parts_in(part: Message) -> list[Message]:
    """The parts of a container, or the message that a part of type message/rfc822 holds."""
    payload = part.get_payload()
    return [inner for inner in payload if isinstance(inner, Message)] if isinstance(payload, list) else []


@dataclass(slots=True)
class Parts:
    """The bodies and attachments of a mail. `remarks` say what could not be read."""

    bodies: list[tuple[str, str]] = field(default_factory=list)
    """Texts to read, in order, each with its MIME type: text/plain or text/html."""
    attached: list[Attachment] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    names: UniqueNames = field(default_factory=UniqueNames)

    def attach(self, name: str, part: Message) -> None:
        """Add an attachment; its name gets a number if it is taken."""
        self.attached.append(Attachment(self.names.take(name), part))


def parts_of(message: Message) -> Parts:
    """The parts of a message, without signatures, and without images that its text shows."""
    parts = Parts()
    _collect(message, parts, 0)
    return parts


def _collect(part: Message, parts: Parts, depth: int) -> None:
    kind, inner = part.get_content_type(), _parts_in(part)
    if depth > _DEPTH:
        raise ParseError("nested too deeply")
    is_signed = part.get_param("smime-type") == "signed-data"
    if kind == "multipart/encrypted" or (_ENCRYPTED.match(kind) and not is_signed):
        parts.remarks.append("it is encrypted, so only its headers were read")
    elif kind == "multipart/alternative":
        _collect_best(inner, parts, depth)
    elif part.get_content_maintype() == "multipart":
        for inner_part in inner:
            _collect(inner_part, parts, depth + 1)
    elif _is_body(part, kind):
        decoded = text_of(part)
        parts.bodies += _body(decoded.text, part, kind)
        parts.remarks += filter(None, [decoded.remark])
    elif _WRAPPED.fullmatch(kind) or file_name(part).lower() == "winmail.dat":
        _unwrap(part, parts)
    elif not _is_omitted(part, kind):
        parts.attach(_name(part, kind), part)


def _unwrap(part: Message, parts: Parts) -> None:
    """Attach the files in a winmail.dat; without files it holds only the layout of the text."""
    for name, data in tnef_files(_content(part)):
        parts.attach(safe_name(name or "part"), part_of("application/octet-stream", data))


def part_of(kind: str, data: bytes) -> Message:
    """A part with this content; of an invalid type it is any data."""
    part = Message()
    part.set_type(kind if kind.count("/") == 1 else "application/octet-stream")
    part["Content-Transfer-Encoding"] = "8bit"
    part.set_payload(data.decode("ascii", "surrogateescape"))
    return part


def _collect_best(inner: list[Message], parts: Parts, depth: int) -> None:
    """Collect the plain text of alternatives, or the HTML if it says much more, and a meeting in any case."""
    offers = [Parts() for _ in inner]
    for alternative, offer in zip(inner, offers, strict=True):
        _collect(alternative, offer, depth + 1)
        parts.attached += offer.attached
        parts.names.add(attached.name for attached in offer.attached)
        parts.remarks += offer.remarks
    plain, rich, events = (
        [offer.bodies for offer in offers if offer.bodies and offer.bodies[0][1] == kind]
        for kind in ("text/plain", "text/html", "text/calendar")
    )
    is_better = _SHARE * _word_count(plain[:1]) < _word_count(rich[-1:])
    for bodies in [*(rich[-1:] if is_better else plain[:1] or rich[-1:]), *events[:1]]:
        parts.bodies += bodies


def _word_count(offers: Iterable[list[tuple[str, str]]]) -> int:
    return sum(len(words(_TAG.sub(" ", text))) for bodies in offers for text, _ in bodies)


def _is_body(part: Message, kind: str) -> bool:
    readable = kind in {"text/plain", "text/html", "text/calendar", "text/enriched"}
    return readable and part.get_content_disposition() != "attachment" and not file_name(part)


def _body(text: str, part: Message, kind: str) -> list[tuple[str, str]]:
    if kind == "text/calendar":
        text = calendars.readable_lines(text)
    elif part.get_param("format") == "flowed":
        text = _SOFT_END.sub("" if part.get_param("delsp") == "yes" else " ", text)
    text = _GAP.sub("\n\n", text).strip()
    return [(text, kind)] if text else []


def _is_omitted(part: Message, kind: str) -> bool:
    """Whether a part is a signature or an inline image."""
    if _SIGNATURES.match(kind):
        return True
    is_inline = part.get_content_disposition() != "attachment" or not file_name(part)
    return part.get_content_maintype() == "image" and (is_inline or bool(header(part, "content-id")))


def _name(part: Message, kind: str) -> str:
    """A file name without folders; an attached message is named by its subject."""
    name = file_name(part)
    if not name and kind == "message/rfc822":
        name = "".join(header(message, "subject") for message in _parts_in(part)[:1])
    suffix = _SUFFIXES.get(kind, "")
    if not PurePath(name).suffix or (kind == "message/rfc822" and not name.lower().endswith(suffix)):
        name = (name or "part") + suffix
    return safe_name(name)


def safe_name(name: str) -> str:
    """A file name without folders and control characters, of limited length."""
    path = PurePath(title_line(_UNSAFE.sub(" ", name)).strip(" .") or "part")
    return path.stem[:_LENGTH] + path.suffix


_SIGNATURE = struct.pack("<I", 0x223E9F78)
_HEAD = struct.Struct("<BII")  # level, name and length of an attribute; after its data come two bytes
_START, _CHECK = 6, 2
_BEGIN, _TITLE, _DATA = 0x00069002, 0x00018010, 0x0006800F
_CODEPAGE = 0x00069007


def tnef_files(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files in a TNEF stream, even if it is truncated; none for other data."""
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
