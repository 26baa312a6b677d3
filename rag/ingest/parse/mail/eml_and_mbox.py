"""Mails (RFC 5322) as people, date and text; mailboxes (MBOX) as a list of their messages.

Attachments of a mail and messages of a mailbox are documents of their own. Headers can be broken, charsets
wrong, dates missing. The standard library's older policy (compat32) is used on purpose: it keeps headers as
they are written, while the newer policy raises on some broken headers and takes quadratic time on long ones.

Outlook wraps what it attaches in winmail.dat. Source: [MS-OXTNEF].
"""

from __future__ import annotations

import email.generator  # which `Message.as_bytes` would import later, when it can't
import email.parser
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.policy import Compat32
from email.utils import getaddresses
from hashlib import sha256
from itertools import pairwise
from pathlib import PurePath

from rag.corpus import Block, Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import html_page
from rag.ingest.parse.decode import decode_part, decoded_unicode
from rag.ingest.parse.document_parts import (
    SUFFIXES_OF_TYPES,
    Member,
    Part,
    UniqueNames,
    block,
    clean,
    compose,
    facts,
    moment,
    paragraphs,
    shifted,
    title_line,
    toml_beside,
    utc,
)
from rag.ingest.parse.html_tables import is_no_data, without_layout_tables
from rag.ingest.parse.mail import calendars
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.records import Piece, joined, records_document
from rag.text.plain_text import Span, one_line, words
from rag.uris import web_address

MAIL_SUFFIXES = (".eml",)
PAGE_SUFFIXES = (".mht", ".mhtml")
MAILBOX_SUFFIXES = (".mbox", ".mbx")
_WROTE, _FROM, _NEXT = (
    "|".join(re.escape(word) for line in listed.split("\n") if line for word in line.split(" | "))
    for listed in map(toml_beside(__file__).get, ("wrote", "from", "next"), ("", "", ""))
)
_COPIED_HEAD = re.compile(
    r"^(?:"
    r"[ \t>]*-{2,} ?(?:original message|forwarded message|ursprüngliche nachricht|message d'origine) ?-{2,}"
    rf"|[>*]*(?:{_FROM})[ \u00a0]?[::]\**[^\n]{{1,300}}"
    rf"(?=\n(?:[^\n]{{0,100}}\n)?[>*]*(?:{_NEXT})[ \u00a0]?[::])"
    r")[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""A line that mail programs write above the copied head of a quoted mail, or the first line of that."""
_WRITTEN = re.compile(
    rf"\b(?:{_WROTE})\b[^\n]{{0,80}}(?:\n[^\n<>]{{0,80}}>|\n<[^\n<>]{{1,80}}>)?[::][ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""The end of a line that tells who wrote the quoted mail below; an address may be wrapped."""
_HAS_DATE = re.compile(
    r"\d[:.]\d\d|\d{1,4}[-./]\d{1,2}[-./]\d|\b\d{1,2}\b[^\n]{0,30}\b20\d\d|\b20\d\d\b[^\n]{0,30}\b\d{1,2}\b"
)
_SENTENCE_END = re.compile(r"(?<![\s.]\w)[.?!:][ \t]*\n")  # not that of an abbreviation: "a.m.", "John F."
_MOST_WRITTEN = 300  # characters of such a line
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]+\)")
_MAIL_BRACKETS = re.compile(  # as Outlook writes links into plain text
    r"(?P<same>(?<=[^\s<>\[\]])<mailto:[^<>\s]+>)|\s*[\[<]mailto:(?P<address>[^<>\[\]\s]+)[\]>]",
    re.IGNORECASE,
)


def parse_mail(data: bytes, name: str) -> Document:
    """The document of a mail: its subject as title, the people and the date, then the text.

    A quoted mail is a section of its own, so that a citation doesn't ascribe it to the sender.
    """
    return document_of(message_of(data), name)


def parse_page(data: bytes, name: str) -> Document:
    """The document of a web page that a browser saved with its images (MHTML).

    Raises:
        ParseError: the file has no HTML.
    """
    message = message_of(data)
    pages = [text for text, kind in parts_of(message).bodies if kind == "text/html"]
    if not pages:
        raise ParseError("it holds no web page")
    page = html_page.parse(pages[0], name)
    address = web_address(header(message, "snapshot-content-location"))
    return replace(page, title=header(message, "subject") or page.title, url=page.url or address)


def mail_members(data: bytes, _name: str) -> Iterator[Member]:
    """The attachments of a mail; see `members_of`."""
    return members_of(message_of(data))


def members_of(message: Message) -> Iterator[Member]:
    """The attachments of a message, except empty files. An attached message is a .eml file.

    Other files get the sender and the date of the mail.
    """
    sent, writers = sent_at(message), facts(**{"from": people(message, "from")})
    stated = writers | ({"date": sent.isoformat()} if sent else {})
    for name, part in parts_of(message).attached:
        if data := _data(part):
            yield Member(name, data, {} if name.lower().endswith(".eml") else stated)


def document_of(message: Message, name: str, mime_type: str = "message/rfc822") -> Document:
    """The document of a message.

    Raises:
        EmptyFileError: the message has neither text, subject nor attachments.
    """
    parts = parts_of(message)
    subject, sent = header(message, "subject"), _sent_in_zone(message)
    about = {key: people(message, key) for key in ("from", "to", "cc")}
    lines = [f"{key.title()}: {', '.join(names)}" for key, names in about.items() if names]
    # As its sender saw it: "2024-03-04 23:30 -0500".
    lines += [f"Date: {sent:%Y-%m-%d %H:%M} {sent:%z}".replace("+0000", "UTC")] if sent else []
    attached = ", ".join(f"{name} ({_size(len(_data(part)))})" for name, part in parts.attached)
    lines += [f"Attachments: {attached}"] if attached else []
    if not (parts.bodies or attached or subject or parts.remarks):
        raise EmptyFileError("the mail has no content")
    head = compose([Part("paragraph", "\n".join(lines))])
    text, blocks = joined([head, *(_document_body(*body, name) for body in parts.bodies)])
    metadata = facts(
        author=[person.partition(" <")[0] for person in about["from"]],
        language=header(message, "content-language").partition(",")[0],
        keywords=header(message, "keywords"),
        **about,
    )
    remarks = tuple(dict.fromkeys(parts.remarks))
    return Document(text, subject or name, mime_type, blocks, (), sent_at(message), None, metadata, remarks)


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1000 else f"{count / 1000:,.0f} KB"  # noqa: PLR2004 a kilobyte


def _document_body(text: str, kind: str, name: str) -> Piece:
    if kind == "text/html":
        # Mails are laid out by tables: as cells of these, each text would be a single line.
        text = html_page.parse(without_layout_tables(text, is_no_data), name, is_site=False).text
    return text, tuple(_sections(text, markdown_blocks if kind == "text/html" else paragraphs))


def _sections(text: str, blocks_of: Callable[[str], Iterator[Block]]) -> Iterator[Block]:
    # A line can be of both kinds: "Da: Bo wrote on 3.3.2024:".
    ends = dict([*(match.span() for match in _COPIED_HEAD.finditer(text)), *_written_lines(text)])
    for (start, end), (next_, _) in pairwise([(0, 0), *sorted(ends.items()), (len(text), 0)]):
        title = _quoted_heading(text[start:end])
        yield from block(text, "heading", start, end, level=1, title=title)
        yield from shifted(blocks_of(text[end:next_]), end)


def _written_lines(text: str) -> Iterator[Span]:
    """The lines that tell when and by whom the mail below was written; some are wrapped into two."""
    for match in _WRITTEN.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        above = text.rfind("\n", 0, max(start - 1, 0)) + 1
        if not _HAS_DATE.search(text, start, match.end()) and not _SENTENCE_END.search(text[above:start]):
            start = above
        if match.end() - start <= _MOST_WRITTEN and _HAS_DATE.search(text, start, match.end()):
            yield Span(start, match.end())


def _quoted_heading(line: str) -> str:
    """The words of a line above a quoted mail: "**Von:** Bo [mailto:b@x.org]" -> "Von: Bo <b@x.org>"."""
    line = _MAIL_BRACKETS.sub(lambda mark: "" if mark["same"] else f" <{mark['address']}>", line)
    return _LINK.sub(r"\1", line).replace("*", "").lstrip("-> \t").rstrip("- \t")


MAX_HEADER = 20_000  # characters, some thousand recipients; longer headers take too long to decode

_USUAL = {"from", "to", "subject", "date", "received", "message-id", "return-path", "mime-version"}


class _AsWritten(Compat32):
    """Gives headers in raw UTF-8 (RFC 6532) to `decoded_header`, not with a mark for each of their bytes."""

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002 a signature of the library
        return value


def message_of(data: bytes) -> Message:
    """The message in a file.

    Raises:
        EmptyFileError: the file is empty or blank.
        ParseError: the file has no headers of a mail.
    """
    if not data.strip():
        raise EmptyFileError("the mail has no content")
    message = email.parser.BytesParser(policy=_AsWritten()).parsebytes(_mail_bytes(data))
    # The library takes any text for a mail without headers.
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
    persons = (calendars.named_address(*map(decoded_header, person)) for person in getaddresses(raw))
    return list(dict.fromkeys(filter(None, persons))) or [
        text for value in raw if (text := decoded_header(value))
    ]


def sent_at(message: Message) -> datetime | None:
    """When a message was sent, else when the first server received it, in UTC; None if neither is stated."""
    sent = _sent_in_zone(message)
    return utc(sent) if sent else None


def _sent_in_zone(message: Message) -> datetime | None:
    received = [str(value) for key, value in message.raw_items() if key.lower() == "received"]
    # Each server writes its line above the others: the last one is of the first server.
    dates = [header(message, "date"), *(value.rpartition(";")[2] for value in reversed(received))]
    return next(filter(None, map(moment, dates)), None)


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
    decoded = decoded_unicode(data)
    data = decoded.text.encode() if decoded else data
    return data.lstrip(b"\r\n\t ") if data[:1].isspace() else data


_SIGNATURES = re.compile(r"application/(pgp-signature|(x-)?pkcs7-signature)")
_WRAPPED = re.compile(r"application/(vnd\.)?ms-tnef")
_ENCRYPTED = re.compile(r"application/(x-)?pkcs7-mime")
_SHARE = 2  # HTML with that many times the words of the plain text says more than it
_LENGTH = 120  # characters of a name without its suffix
_FLOWING = re.compile(r"^(?![^\S\n]*>|-- $)(.*\S) \n(?=[^>\s])", re.MULTILINE)
"""A line that goes on, by RFC 3676; one of a quotation doesn't, because an answer may follow it."""
_GAP = re.compile(r"\n(?:[^\S\n]*+\n){2,}")
_TAG = re.compile(
    r"<(style|script|title)\b(?:[^<]|<(?!/?\1\b))*+</\1\s*>|<!--(?:[^<]|<(?!!--))*?-->|<[a-z/!][^<>]*>|&[a-z]+;",
    re.IGNORECASE,
)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")


def _data(part: Message) -> bytes:
    """The content of an attachment; of an attached message, the message in bytes."""
    if part.get_content_maintype() == "message":
        return b"".join(message.as_bytes() for message in _parts_in(part)[:1])
    return _content(part)


def _parts_in(part: Message) -> list[Message]:
    """The parts of a container, or the message that a part of type message/rfc822 holds."""
    payload = part.get_payload()
    return [inner for inner in payload if isinstance(inner, Message)] if isinstance(payload, list) else []


@dataclass(slots=True)
class Parts:
    """The bodies and attachments of a mail. `remarks` say what could not be read."""

    bodies: list[tuple[str, str]] = field(default_factory=list)
    """Texts to read, in order, each with its MIME type: text/plain or text/html."""
    attached: list[tuple[str, Message]] = field(default_factory=list)
    """Their names and parts."""
    remarks: list[str] = field(default_factory=list)
    names: UniqueNames = field(default_factory=UniqueNames)

    def attach(self, name: str, part: Message) -> None:
        """Add an attachment; its name gets a number if it is taken."""
        self.attached.append((self.names.take(name), part))


def parts_of(message: Message) -> Parts:
    """The parts of a message, without signatures, and without images that its text shows."""
    parts = Parts()
    _collect(message, parts)
    return parts


def _collect(part: Message, parts: Parts) -> None:
    kind, inner = part.get_content_type(), _parts_in(part)
    # A signed mail of this type can be read, though encrypted ones have the same.
    is_signed = part.get_param("smime-type") == "signed-data"
    if kind == "multipart/encrypted" or (_ENCRYPTED.match(kind) and not is_signed):
        parts.remarks.append("it is encrypted, so only its headers were read")
    elif kind == "multipart/alternative":
        _collect_best(inner, parts)
    elif part.get_content_maintype() == "multipart":
        for inner_part in inner:
            _collect(inner_part, parts)
    elif _is_body(part, kind):
        decoded = decode_part(_content(part), _stated_charset(part))
        parts.bodies += _body(clean(decoded.text), part, kind)
        parts.remarks += filter(None, [decoded.remark])
    elif _WRAPPED.fullmatch(kind) or file_name(part).lower() == "winmail.dat":
        for name, data in tnef_files(_content(part)):  # without files it holds only the layout of the text
            parts.attach(safe_name(name or "part"), part_of("application/octet-stream", data))
    elif not _is_omitted(part, kind):
        parts.attach(_name(part, kind), part)


def part_of(kind: str, data: bytes) -> Message:
    """A part with this content; of an invalid type it is any data."""
    part = Message()
    part.set_type(kind if kind.count("/") == 1 else "application/octet-stream")
    part["Content-Transfer-Encoding"] = "8bit"
    part.set_payload(data.decode("ascii", "surrogateescape"))
    return part


def _collect_best(inner: list[Message], parts: Parts) -> None:
    """Collect the plain text of alternatives, or the HTML if it says much more, and a meeting in any case."""
    offers = [Parts() for _ in inner]
    for alternative, offer in zip(inner, offers, strict=True):
        _collect(alternative, offer)
        parts.attached += offer.attached
        parts.names.add(name for name, _ in offer.attached)
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
        text = _FLOWING.sub(r"\1" if part.get_param("delsp") == "yes" else r"\1 ", text)
    text = _GAP.sub("\n\n", text).strip()
    return [(text, kind)] if text else []


def _is_omitted(part: Message, kind: str) -> bool:
    if _SIGNATURES.match(kind):
        return True
    is_inline = part.get_content_disposition() != "attachment" or not file_name(part)
    return part.get_content_maintype() == "image" and (is_inline or bool(header(part, "content-id")))


def _name(part: Message, kind: str) -> str:
    """A file name without folders; an attached message is named by its subject."""
    name = file_name(part)
    if not name and kind == "message/rfc822":
        name = "".join(header(message, "subject") for message in _parts_in(part)[:1])
    suffix = SUFFIXES_OF_TYPES.get(kind, "")
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


_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?\s{0,99}|(?<=\n))From ([^\r\n]*)\r?\n")
_DATED = re.compile(rb"\S+[ \t]+(?:[A-Z][a-z]{2},?[ \t]|\d)[^\r\n]*\d\d:\d\d")  # sender and date
_ADDRESS = re.compile(rb"\S+@\S+[ \t]*(?:[ \t][A-Z\d]|$)|MAILER-DAEMON\b")
_FIELD = re.compile(rb"[A-Za-z-]{1,76}:")
_USUAL_FIELD = re.compile(rf"(?im)^(?:{'|'.join(_USUAL)}):".encode())
_BLANK = re.compile(rb"\r?\n\r?\n")
_APART = re.compile(rb"(\n)\r?\n\Z")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)  # escapes text that looks like a separator


def parse_mailbox(data: bytes, name: str) -> Document:
    """The document of a mailbox: a row for each readable message.

    Raises:
        ParseError: no line begins a message.
        EmptyFileError: no message is readable.
    """
    messages = [*_messages(data)]
    if not messages:
        raise ParseError('it is not a mailbox: no line "From ADDRESS DATE" begins a message')
    rows = [row for message in messages if (row := _row(message))]
    if not rows:
        raise EmptyFileError("its messages have no content")
    return records_document(rows, name, "application/mbox")


def mailbox_members(data: bytes, _name: str) -> Iterator[Member]:
    """The messages, named by their ids, which stay the same when other messages are deleted.

    A message without a subject is called by its sender and day: "(no subject), Ann, 2024-03-12".
    """
    names = UniqueNames()
    for message in _messages(data):
        try:
            head = message_of(_head(message))
        except ParseError:
            head = Message()
        id_ = header(head, "message-id").strip("<>") or sha256(message).hexdigest()[:16]
        about = (*(name.partition(" <")[0] for name in people(head, "from")), _day(head))
        title = "" if header(head, "subject") else ", ".join(filter(None, ("(no subject)", *about)))
        yield Member(names.take(safe_name(f"{id_}.eml")), message, facts(title=title))


def _messages(data: bytes) -> Iterator[bytes]:
    end, separator = -1, b""
    for line in filter(_is_separator, _LINE.finditer(data)):
        if end >= 0:
            message = _APART.sub(rb"\1", data[end : line.start()])  # the empty line belongs to the next one
            yield _with_headers(_QUOTED.sub(b"", message), separator)
        end, separator = line.end(), line[1]
    if end >= 0:
        yield _with_headers(_QUOTED.sub(b"", data[end:]), separator)


def _is_separator(line: re.Match[bytes]) -> bool:
    """Whether a line "From ..." begins a message, rather than a sentence.

    It has a sender and a date, or headers follow. Without the empty line above that some programs omit, it
    must have both.
    """
    data, start = line.string, line.start()
    is_apart = not start or data.endswith((b"\n\n", b"\n\r\n"), 0, start)
    is_dated, leads = bool(_DATED.match(line[1])), bool(_FIELD.match(data, line.end()))
    if is_apart:
        return is_dated or (leads and bool(_ADDRESS.match(line[1])))
    return is_dated and leads


def _with_headers(data: bytes, separator: bytes) -> bytes:
    """A message; one without headers gets the sender and date of its separator line."""
    message = data.lstrip(b"\r\n")
    has_fields = bool(_FIELD.match(message)) and message == data
    if not message.strip() or _USUAL_FIELD.search(_head(message)):
        return message
    sender, _, day = separator.partition(b" ")
    return b"From: %s\nDate: %s\n%s" % (sender, day.strip(), message if has_fields else b"\n" + message)


def _head(data: bytes) -> bytes:
    """The headers of a message: reading its parts takes ten times as long."""
    return _BLANK.split(data, maxsplit=1)[0] + b"\n\n"


def _row(data: bytes) -> dict[str, object]:
    try:
        message = message_of(_head(data))
    except ParseError:
        return {}
    row: dict[str, object] = {"subject": header(message, "subject"), "from": people(message, "from")}
    return {**row, "date": _day(message)}


def _day(message: Message) -> str:
    sent = _sent_in_zone(message)
    return f"{sent:%Y-%m-%d}" if sent else ""
