"""The parts of a mail: what is to be read as its body, and what is attached to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.message import Message
from pathlib import PurePath
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.blocks import title_line
from rag.ingest.parse.mail import calendars, tnef
from rag.ingest.parse.mail.message import file_name, header, text_of
from rag.ingest.parse.member import Names
from rag.text.segments import words

if TYPE_CHECKING:
    from collections.abc import Iterable

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
class Attached:
    """A part that is a file of its own: its name, and its content."""

    name: str
    part: Message

    @property
    def data(self) -> bytes:
        """The content. That of a message is the message."""
        if self.part.get_content_maintype() == "message":
            return b"".join(one.as_bytes() for one in _parts_in(self.part)[:1])
        payload = self.part.get_payload(decode=True)
        return payload if isinstance(payload, bytes) else b""


def _parts_in(part: Message) -> list[Message]:
    """The parts of a container, or the message that a part of type message/rfc822 holds."""
    payload = part.get_payload()
    return [one for one in payload if isinstance(one, Message)] if isinstance(payload, list) else []


@dataclass(slots=True)
class Parts:
    """What a mail consists of. `remarks` say what could not be read."""

    bodies: list[tuple[str, str]] = field(default_factory=list)
    """Texts to read, in order, each with its MIME type: text/plain or text/html."""
    attached: list[Attached] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    names: Names = field(default_factory=Names)

    def attach(self, name: str, part: Message) -> None:
        """Attach a part by this name, or by it with a number if another one has it."""
        self.attached.append(Attached(self.names.take(name), part))


def parts_of(message: Message) -> Parts:
    """The parts of a message, without signatures, and without images that its text shows."""
    parts = Parts()
    _collect(message, parts, 0)
    return parts


def _collect(part: Message, parts: Parts, depth: int) -> None:
    kind, inner = part.get_content_type(), _parts_in(part)
    if depth > _DEPTH:
        raise ParseError("nested too deeply")
    if kind == "multipart/encrypted" or _is_encrypted(part, kind):
        parts.remarks.append("it is encrypted, so only its headers were read")
    elif kind == "multipart/alternative":
        _collect_best(inner, parts, depth)
    elif part.get_content_maintype() == "multipart":
        for one in inner:
            _collect(one, parts, depth + 1)
    elif _is_body(part, kind):
        decoded = text_of(part)
        parts.bodies += _body(decoded.text, part, kind)
        parts.remarks += filter(None, [decoded.remark])
    elif _WRAPPED.fullmatch(kind) or file_name(part).lower() == "winmail.dat":
        _unwrap(part, parts)
    elif not _is_hidden(part, kind):
        parts.attach(_name(part, kind), part)


def _unwrap(part: Message, parts: Parts) -> None:
    """Attach the files that Outlook wrapped; without any it held nothing but the layout of the text."""
    payload = part.get_payload(decode=True)
    for name, data in tnef.files_in(payload if isinstance(payload, bytes) else b""):
        file = Message()
        file.set_type("application/octet-stream")
        file["Content-Transfer-Encoding"] = "8bit"
        file.set_payload(data.decode("ascii", "surrogateescape"))
        parts.attach(safe_name(name or "part"), file)


def _is_encrypted(part: Message, kind: str) -> bool:
    return bool(_ENCRYPTED.match(kind)) and part.get_param("smime-type") != "signed-data"


def _collect_best(inner: list[Message], parts: Parts, depth: int) -> None:
    """Of alternatives the plain text, unless the HTML says much more; and a meeting in any case."""
    offers = [Parts() for _ in inner]
    for one, offer in zip(inner, offers, strict=True):
        _collect(one, offer, depth + 1)
        parts.attached += offer.attached
        parts.names.add(attached.name for attached in offer.attached)
        parts.remarks += offer.remarks
    plain, rich, events = (
        [offer.bodies for offer in offers if offer.bodies and offer.bodies[0][1] == kind]
        for kind in ("text/plain", "text/html", "text/calendar")
    )
    is_better = _SHARE * _count(plain[:1]) < _count(rich[-1:])
    for bodies in [*(rich[-1:] if is_better else plain[:1] or rich[-1:]), *events[:1]]:
        parts.bodies += bodies


def _count(offers: Iterable[list[tuple[str, str]]]) -> int:
    return sum(len(words(_TAG.sub(" ", text))) for bodies in offers for text, _ in bodies)


def _is_body(part: Message, kind: str) -> bool:
    readable = kind in {"text/plain", "text/html", "text/calendar", "text/enriched"}
    return readable and part.get_content_disposition() != "attachment" and not file_name(part)


def _body(text: str, part: Message, kind: str) -> list[tuple[str, str]]:
    if kind == "text/calendar":
        text = calendars.readable(text)
    elif part.get_param("format") == "flowed":
        text = _SOFT_END.sub("" if part.get_param("delsp") == "yes" else " ", text)
    text = _GAP.sub("\n\n", text).strip()
    return [(text, kind)] if text else []


def _is_hidden(part: Message, kind: str) -> bool:
    """Whether a part is a signature, or an image that the text shows."""
    if _SIGNATURES.match(kind):
        return True
    shown = part.get_content_disposition() != "attachment" or not file_name(part)
    return part.get_content_maintype() == "image" and (shown or bool(header(part, "content-id")))


def _name(part: Message, kind: str) -> str:
    """A file name without folders; that of a message is its subject."""
    named = file_name(part)
    if not named and kind == "message/rfc822":
        named = "".join(header(one, "subject") for one in _parts_in(part)[:1])
    suffix = _SUFFIXES.get(kind, "")
    if not PurePath(named).suffix or (kind == "message/rfc822" and not named.lower().endswith(suffix)):
        named = (named or "part") + suffix
    return safe_name(named)


def safe_name(named: str) -> str:
    """A file name in which nothing names a folder, and that is not too long."""
    path = PurePath(title_line(_UNSAFE.sub(" ", named)).strip(" .") or "part")
    return path.stem[:_LENGTH] + path.suffix
