"""Mailboxes (MBOX): a list of their messages, each of which is a document of its own."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.json_data import records_document
from rag.ingest.parse.mail.message import header, message_of, people, sent_at
from rag.ingest.parse.mail.parts import safe_name
from rag.ingest.parse.member import Member, Names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Document

SUFFIXES = (".mbox", ".mbx")

_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?\s{0,99}|(?<=\n))From ([^\r\n]*)\r?\n")
_DATED = re.compile(rb"\S+[ \t]+(?:[A-Z][a-z]{2},?[ \t]|\d)[^\r\n]*\d\d:\d\d")  # as all programs write it
_ADDRESS = re.compile(rb"\S+@\S+[ \t]*(?:[ \t][A-Z\d]|$)|MAILER-DAEMON\b")
_FIELD = re.compile(rb"[A-Za-z-]{1,76}:")
_USUAL_FIELD = re.compile(rb"(?im)^(?:from|to|subject|date|received|message-id|return-path|mime-version):")
_BLANK = re.compile(rb"\r?\n\r?\n")
_APART = re.compile(rb"(\n)\r?\n\Z")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)  # what programs write to tell text from separators


def parse(data: bytes, name: str) -> Document:
    """The document of a mailbox: a row for each message that can be read.

    Raises:
        ParseError: no line begins a message.
        EmptyFileError: there is nothing in them.
    """
    messages = [*_messages(data)]
    if not messages:
        raise ParseError('it is not a mailbox: no line "From ADDRESS DATE" begins a message')
    rows = [row for message in messages if (row := _row(message))]
    if not rows:
        raise EmptyFileError("its messages have no content")
    return records_document(rows, name, "application/mbox")


def members(data: bytes, name: str) -> Iterator[Member]:
    """The messages, called by their ids: they stay the same when others are deleted."""
    del name
    names = Names()
    for message in _messages(data):
        try:
            id_ = header(message_of(_head(message)), "message-id").strip("<>")
        except ParseError:
            id_ = ""
        yield Member(names.take(safe_name(f"{id_ or sha256(message).hexdigest()[:16]}.eml")), message)


def _messages(data: bytes) -> Iterator[bytes]:
    end, separator = -1, b""
    for line in filter(_separates, _LINE.finditer(data)):
        if end >= 0:
            message = _APART.sub(rb"\1", data[end : line.start()])  # the empty line belongs to the next one
            yield _with_headers(_QUOTED.sub(b"", message), separator)
        end, separator = line.end(), line[1]
    if end >= 0:
        yield _with_headers(_QUOTED.sub(b"", data[end:]), separator)


def _separates(line: re.Match[bytes]) -> bool:
    """Whether a line "From ..." begins a message, and is no sentence of one.

    Behind an empty line it has a sender and a date, or headers follow. Where some program left the empty line
    out, both must be so.
    """
    data, start = line.string, line.start()
    is_apart = not start or data.endswith((b"\n\n", b"\n\r\n"), 0, start)
    is_dated, leads = bool(_DATED.match(line[1])), bool(_FIELD.match(data, line.end()))
    if is_apart:
        return is_dated or (leads and bool(_ADDRESS.match(line[1])))
    return is_dated and leads


def _with_headers(data: bytes, separator: bytes) -> bytes:
    """A message. One without headers has the sender and the date of the line that began it."""
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
