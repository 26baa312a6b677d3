"""Mailboxes (MBOX): a list of their messages, each of which is a document of its own."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.json_data import records_document
from rag.ingest.parse.mail.message import header, message_of, people, sent_at
from rag.ingest.parse.mail.parts import safe_name
from rag.ingest.parse.member import Member, Names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Document

SUFFIXES = (".mbox", ".mbx")

_FROM = re.compile(rb"(?:\A|(?<=\n)\r?\n)(?>From [^\r\n]*?\d\d:\d\d)[^\r\n]*+\r?\n")
_BLANK = re.compile(rb"\r?\n\r?\n")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)  # what programs write to tell text from separators


def parse(data: bytes, name: str) -> Document:
    """The document of a mailbox: a row for each message that can be read.

    Raises:
        ParseError: it has none.
    """
    rows = [row for one in _messages(data) if (row := _row(one))]
    if not rows:
        raise ParseError("it is not a mailbox: no line begins a message")
    return records_document(rows, name, "application/mbox")


def members(data: bytes, name: str) -> Iterator[Member]:
    """The messages, called by their ids: they stay the same when others are deleted."""
    del name
    names = Names()
    for one in _messages(data):
        try:
            id_ = header(message_of(_head(one)), "message-id").strip("<>")
        except ParseError:
            id_ = ""
        yield Member(names.take(safe_name(f"{id_ or sha256(one).hexdigest()[:16]}.eml")), one)


def _messages(data: bytes) -> Iterator[bytes]:
    marks = [match.span() for match in _FROM.finditer(data)]
    for (_, start), (end, _) in pairwise([*marks, (len(data), 0)]):
        yield _QUOTED.sub(b"", data[start:end]).lstrip(b"\r\n")


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
