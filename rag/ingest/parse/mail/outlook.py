"""Outlook's messages (.msg), converted to mails.

A message is an OLE file whose streams are named by property and type, such as `__substg1.0_0037001F`.
Source: [MS-OXMSG] and [MS-OXPROPS].
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.header import Header
from email.message import Message
from email.utils import format_datetime, formataddr
from hashlib import sha256
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.document_parts import Member
from rag.ingest.parse.mail.eml_and_mbox import document_of, header, members_of, part_of
from rag.ingest.parse.office import rtf

if TYPE_CHECKING:
    from olefile import OleFileIO

SUFFIXES = (".msg", ".oft")
LIBRARIES = ("olefile",)

_SUBJECT, _BODY, _HTML, _RTF, _ID = "0037", "1000", "1013", "1009", "1035"
_SENDER_NAME, _SENDER, _SENDER_SMTP = ("0042", "0C1A"), ("0065", "0C1F"), ("5D02", "5D01")
_NAME, _SMTP, _ADDRESS = "3001", "39FE", "3003"
_LONG_NAME, _SHORT_NAME, _DATA, _MIME, _CONTENT_ID = "3707", "3704", "3701", "370E", "3712"
_SENT, _RECEIVED, _CODEPAGE, _KIND_OF_RECIPIENT = 0x0039, 0x0E06, 0x3FFD, 0x0C15
_KINDS = {1: "To", 2: "Cc"}
_HEADS = (32, 24, 8)  # bytes before the properties of a message, of one inside, and of recipients and files
_PROPERTY = struct.Struct("<HHI8s")
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


def parse(data: bytes, name: str) -> Document:
    """The document of a message, as of a mail."""
    return document_of(_message(data), name, "application/vnd.ms-outlook")


def members(data: bytes, _name: str) -> Iterator[Member]:
    """The attachments. An attached message is a .eml file."""
    return members_of(_message(data))


def _message(data: bytes) -> Message:
    import olefile  # noqa: PLC0415 needed in the child process only

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as ole:
            message = _Folder(ole, "", _HEADS[0]).message()
    except (RecursionError, ParseError):
        raise
    except Exception as error:  # the library raises all kinds of errors on damaged files
        raise ParseError("it is damaged, or not a message of Outlook") from error
    if not {*message.keys()} - {"MIME-Version", "Subject"} and not header(message, "subject"):
        raise ParseError("it is not a message of Outlook: it has neither sender, nor subject, nor date")
    return message


def multipart(message: Message, kind: str, parts: list[Message]) -> Message:
    """The message, of the type multipart/`kind`, with these parts.

    The boundary comes of the parts. A random one, as by default, would change an attached message each time
    that it is read.
    """
    message.set_type(f"multipart/{kind}")
    message.set_payload([*parts])
    texts = (text for part in parts for leaf in part.walk() if isinstance(text := leaf.get_payload(), str))
    message.set_boundary(sha256("".join(texts).encode("utf-8", "replace")).hexdigest())
    return message


class _Folder:
    """A storage of the file: a message, a recipient or an attached file."""

    def __init__(self, ole: OleFileIO[str], path: str, head: int) -> None:
        self._ole, self.path = ole, path
        raw = self._stream("__properties_version1.0")[head:]
        whole = len(raw) // _PROPERTY.size * _PROPERTY.size
        self.numbers = {number: value for _, number, _, value in _PROPERTY.iter_unpack(raw[:whole])}

    def message(self) -> Message:
        """The message in this storage, with its bodies and files."""
        message = Message()
        self._address(message)
        message["Subject"] = _encoded_header(self.text(_SUBJECT))
        if moment := self._moment():
            message["Date"] = format_datetime(moment)
        if id_ := self.text(_ID):
            message["Message-ID"] = _encoded_header(id_)
        message["MIME-Version"] = "1.0"
        files = [*self._files()]
        encrypted = any(file.get_content_type() == "application/pgp-encrypted" for file in files)
        return multipart(message, "encrypted" if encrypted else "mixed", [*self._bodies(), *files])

    def _address(self, message: Message) -> None:
        name, address = (self.first(*ids) for ids in (_SENDER_NAME, (*_SENDER_SMTP, *_SENDER)))
        if name or address:
            message["From"] = _person(name, address)
        people: dict[str, list[str]] = {}
        for recipient in self._folders("__recip_version1.0_"):
            kind = _KINDS.get(int.from_bytes(recipient.numbers.get(_KIND_OF_RECIPIENT, b"\1")[:4], "little"))
            if kind:
                people.setdefault(kind, []).append(
                    _person(recipient.text(_NAME), recipient.first(_SMTP, _ADDRESS))
                )
        for kind, them in people.items():
            message[kind] = ", ".join(them)

    def _bodies(self) -> list[Message]:
        """The text and the HTML, else those in the rich text; unreadable rich text becomes an attachment."""
        alternatives = [("plain", self.text(_BODY).encode("utf-8", "replace")), ("html", self._html())]
        parts = [part_of(f"text/{kind}", data) for kind, data in alternatives if data.strip()]
        # Outlook may keep the HTML of a mail in its rich text alone.
        if not parts and (packed := self._stream(f"__substg1.0_{_RTF}0102")):
            return _rich_text_parts(packed)
        if len(parts) < len(alternatives):
            return parts
        return [multipart(Message(), "alternative", parts)]

    def _html(self) -> bytes:
        return self.text(_HTML).encode("utf-8", "replace") or self._stream(f"__substg1.0_{_HTML}0102")

    def _files(self) -> Iterator[Message]:
        for attachment in self._folders("__attach_version1.0_"):
            name = attachment.first(_LONG_NAME, _SHORT_NAME, _NAME)
            inner = f"{attachment.path}__substg1.0_{_DATA}000D/"
            if self._ole.exists(f"{inner}__properties_version1.0"):
                part = Message()
                part.set_type("message/rfc822")
                part.set_payload([_Folder(self._ole, inner, _HEADS[1]).message()])
            else:
                part = part_of(attachment.text(_MIME) or "application/octet-stream", attachment.data())
                if id_ := attachment.text(_CONTENT_ID):
                    part["Content-ID"] = _encoded_header(id_)
            yield _with_file_name(part, name or "part")

    def data(self) -> bytes:
        """The content of an attached file."""
        return self._stream(f"__substg1.0_{_DATA}0102")

    def text(self, id_: str) -> str:
        """A text property, or ""."""
        if wide := self._stream(f"__substg1.0_{id_}001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        page = int.from_bytes(self.numbers.get(_CODEPAGE, b"")[:4], "little")
        narrow = self._stream(f"__substg1.0_{id_}001E").rstrip(b"\0")
        return decode_part(narrow, f"cp{page}" if page else "").text

    def first(self, *ids: str) -> str:
        """The first of these text properties that isn't empty, or ""."""
        return next(filter(None, map(self.text, ids)), "")

    def _moment(self) -> datetime | None:
        ticks = (int.from_bytes(self.numbers.get(id_, b""), "little") for id_ in (_SENT, _RECEIVED))
        try:
            return next((_EPOCH + timedelta(microseconds=count // 10) for count in ticks if count), None)
        except OverflowError:
            return None

    def _folders(self, prefix: str) -> Iterator[_Folder]:
        depth = self.path.count("/")
        names = {
            entry[depth]
            for entry in self._ole.listdir(streams=False, storages=True)
            if len(entry) == depth + 1
            and "".join(f"{part}/" for part in entry[:depth]) == self.path
            and entry[depth].startswith(prefix)
        }
        for name in sorted(names):
            yield _Folder(self._ole, f"{self.path}{name}/", _HEADS[2])

    def _stream(self, name: str) -> bytes:
        path = self.path + name
        return bytes(self._ole.openstream(path).read()) if self._ole.exists(path) else b""


def _rich_text_parts(packed: bytes) -> list[Message]:
    data = decompressed_rtf(packed)
    try:
        kind, text = rich_text_body(data)
    except ParseError:
        return [_with_file_name(part_of("application/rtf", data), "message.rtf")]
    return [part_of(f"text/{kind}", text)] if text.strip() else []


def _with_file_name(part: Message, name: str) -> Message:
    part.add_header("Content-Disposition", "attachment", filename=("utf-8", "", name))
    return part


def _person(name: str, address: str) -> str:
    name = name.removesuffix(f"<{address}>").strip()
    display_name = name if name != address else ""
    if address.isascii() and "@" in address:
        return formataddr((display_name, address))
    return _encoded_header(display_name or address)


def _encoded_header(words: str) -> str:
    words = " ".join(words.split())
    return words if words.isascii() else Header(words, "utf-8", maxlinelen=10_000).encode()


# The compressed rich text in Outlook's messages. Source: [MS-OXRTFCP].

_HEADER = struct.Struct("<II4sI")
# compressed-rtf (1.0.7) was tried: the same bytes, but of a damaged or truncated message none at all.
_STORED, _COMPRESSED = b"MELA", b"LZFu"
_WINDOW = 4096  # bytes that a reference reaches back
_USUAL = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans "
    rb"SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""What the window holds at the start, 207 bytes."""


def decompressed_rtf(data: bytes) -> bytes:
    """The rich text of a message, decompressed.

    Raises:
        ParseError: the data is damaged.
    """
    if len(data) < _HEADER.size:
        raise ParseError("its rich text is damaged")
    _, size, kind, _ = _HEADER.unpack_from(data)
    if kind == _STORED:
        return data[_HEADER.size : _HEADER.size + size]
    if kind != _COMPRESSED:
        raise ParseError("its rich text is damaged")
    return _decompress(data[_HEADER.size :], size)


def _decompress(packed: bytes, size: int) -> bytes:
    window = bytearray(_USUAL.rjust(_WINDOW))  # followed by the decompressed bytes
    remaining = iter(packed)
    for flags in remaining:
        for bit in range(8):
            if len(window) - _WINDOW >= size:
                break
            if flags >> bit & 1:
                reference = next(remaining, 0) << 8 | next(remaining, 0)
                back = (len(window) + len(_USUAL) - (reference >> 4)) % _WINDOW
                if not back:  # a reference to the write position ends the data
                    return bytes(window[_WINDOW:])
                for _ in range((reference & 15) + 2):
                    window.append(window[-back])
            elif (byte := next(remaining, None)) is not None:
                window.append(byte)
    return bytes(window[_WINDOW : _WINDOW + size])


# The rich text of Outlook's messages often encapsulates HTML. Source: [MS-OXRTFEX].

_IS_HTML = re.compile(rb"\\fromhtml1?\b")
_HEAD = 1000  # bytes in which rich text states that it encapsulates HTML


def rich_text_body(data: bytes) -> tuple[str, bytes]:
    """The type of the text in rich text, "html" or "plain", and the text in UTF-8.

    Raises:
        ParseError: the data is damaged.
    """
    if _IS_HTML.search(data[:_HEAD]):
        return "html", rtf.wrapped_html(data).encode("utf-8", "replace")
    try:
        return "plain", rtf.parse(data, "").text.encode("utf-8", "replace")
    except EmptyFileError:
        return "plain", b""
