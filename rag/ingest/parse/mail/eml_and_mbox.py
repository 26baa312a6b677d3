"""Mails (RFC 5322) as people, date and text; mailboxes (MBOX) as a list of their messages.

Attachments of a mail and messages of a mailbox are documents of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import Message
from hashlib import sha256
from itertools import pairwise

from rag.corpus import Block, Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import html_page
from rag.ingest.parse.document_parts import GAP, Member, UniqueNames, block, facts, paragraphs, shifted
from rag.ingest.parse.html_layout import is_no_data, without_layout_tables
from rag.ingest.parse.json_and_csv import records_document
from rag.ingest.parse.mail.mail_message import Parts, header, message_of, parts_of, people, safe_name, sent_at
from rag.ingest.parse.markdown import markdown_blocks
from rag.uris import web_address

MAIL_SUFFIXES = (".eml",)
PAGE_SUFFIXES = (".mht", ".mhtml")

_REPLIES = re.compile(
    r"^(?:"
    r"[ \t>]*-{2,} ?(?:original message|forwarded message|ursprüngliche nachricht|message d'origine) ?-{2,}"
    r"|>?(?:On|Am|Le|El|Il|Op)\s[^\n]{6,200}(?:\n[^\n]{1,100})?"
    r"(?:wrote|schrieb|a écrit|escribió|ha scritto|schreef)[^\n]{0,80}:"
    r"|\**(?:from|von|de):\**[^\n]{1,300}(?=\n(?:[^\n]{0,100}\n)?\**(?:sent|date|gesendet|datum|envoyé|to|an):)"
    r")[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Lines that mail programs write above the quoted mail."""


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


def mail_members(data: bytes, name: str) -> Iterator[Member]:
    """The attachments of a mail; see `members_of`."""
    del name
    yield from members_of(message_of(data))


def members_of(message: Message) -> Iterator[Member]:
    """The attachments of a message, except empty files. An attached message is a .eml file.

    Other files get the sender and the date of the mail.
    """
    sent, writers = sent_at(message), facts(**{"from": people(message, "from")})
    stated = writers | ({"date": sent.isoformat()} if sent else {})
    for attachment in parts_of(message).attached:
        if data := attachment.data:
            yield Member(attachment.name, data, {} if attachment.name.lower().endswith(".eml") else stated)


def document_of(message: Message, name: str, mime_type: str = "message/rfc822") -> Document:
    """The document of a message.

    Raises:
        EmptyFileError: the message has neither text, subject nor attachments.
    """
    parts = parts_of(message)
    subject, sent = header(message, "subject"), sent_at(message)
    about = {key: people(message, key) for key in ("from", "to", "cc")}
    lines = [f"{key.title()}: {', '.join(names)}" for key, names in about.items() if names]
    lines += [f"Date: {sent:%Y-%m-%d %H:%M} UTC"] if sent else []
    lines += [f"Attachments: {attached}"] if (attached := _attachment_list(parts)) else []
    if not (parts.bodies or attached or subject or parts.remarks):
        raise EmptyFileError("the mail has no content")
    text = "\n".join(lines)
    blocks = [*block(text, "paragraph", 0, len(text))]
    for body, kind in parts.bodies:
        text += GAP if text else ""
        inner, inner_blocks = _body(body, kind, name)
        blocks += shifted(inner_blocks, len(text))
        text += inner
    metadata = facts(
        author=[person.partition(" <")[0] for person in about["from"]],
        language=header(message, "content-language").partition(",")[0],
        keywords=header(message, "keywords"),
        **about,
    )
    remarks = tuple(dict.fromkeys(parts.remarks))
    return Document(text, subject or name, mime_type, tuple(blocks), (), sent, None, metadata, remarks)


def _attachment_list(parts: Parts) -> str:
    return ", ".join(f"{attachment.name} ({_size(len(attachment.data))})" for attachment in parts.attached)


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1000 else f"{count / 1000:,.0f} KB"  # noqa: PLR2004 a kilobyte


def _body(text: str, kind: str, name: str) -> tuple[str, list[Block]]:
    if kind == "text/html":
        text = html_page.parse(without_layout_tables(text, is_no_data), name, is_site=False).text
        return text, [*_sections(text, markdown_blocks)]
    return text, [*_sections(text, paragraphs)]


def _sections(text: str, blocks_of: Callable[[str], Iterator[Block]]) -> Iterator[Block]:
    """The blocks of a text; a line above a quoted mail is a heading."""
    marks = [match.span() for match in _REPLIES.finditer(text)]
    for (start, end), (next_, _) in pairwise([(0, 0), *marks, (len(text), 0)]):
        title = text[start:end].replace("*", "").strip("-> \t")
        yield from block(text, "heading", start, end, level=1, title=title)
        yield from shifted(blocks_of(text[end:next_]), end)


MAILBOX_SUFFIXES = (".mbox", ".mbx")

_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?\s{0,99}|(?<=\n))From ([^\r\n]*)\r?\n")
_DATED = re.compile(rb"\S+[ \t]+(?:[A-Z][a-z]{2},?[ \t]|\d)[^\r\n]*\d\d:\d\d")  # sender and date
_ADDRESS = re.compile(rb"\S+@\S+[ \t]*(?:[ \t][A-Z\d]|$)|MAILER-DAEMON\b")
_FIELD = re.compile(rb"[A-Za-z-]{1,76}:")
_USUAL_FIELD = re.compile(rb"(?im)^(?:from|to|subject|date|received|message-id|return-path|mime-version):")
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


def mailbox_members(data: bytes, name: str) -> Iterator[Member]:
    """The messages, named by their ids, which stay the same when other messages are deleted."""
    del name
    names = UniqueNames()
    for message in _messages(data):
        try:
            id_ = header(message_of(_head(message)), "message-id").strip("<>")
        except ParseError:
            id_ = ""
        yield Member(names.take(safe_name(f"{id_ or sha256(message).hexdigest()[:16]}.eml")), message)


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
    sent = sent_at(message)
    row: dict[str, object] = {"subject": header(message, "subject"), "from": people(message, "from")}
    return {**row, "date": f"{sent:%Y-%m-%d}" if sent else ""}
