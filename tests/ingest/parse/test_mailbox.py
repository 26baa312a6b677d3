"""Mailboxes: a list of their messages, and each message."""

from __future__ import annotations

import pytest

from rag.errors import ParseError
from rag.ingest.parse import members, parse

BOX = (
    b"From ann@x.org Wed May  1 10:00:00 2024\nFrom: Ann <ann@x.org>\nSubject: One\nMessage-ID: <1@x/y>\n"
    b"Date: Wed, 01 May 2024 10:00:00 +0000\n\nFrom the start, it ticks.\n>From here on, too.\n>>From it.\n\n"
    b"From bo@x.org Thu May  2 10:00:00 2024\r\nFrom: bo@x.org\r\nSubject: Two\r\n\r\nTock.\r\n\r\n"
    b"From - Thu May  2 11:00:00 2024\nMessage-ID: <1@x/y>\n\nAgain.\n"
)


def test_a_mailbox_lists_its_messages() -> None:
    document = parse(BOX, "team.mbox")
    assert document.title == "team"
    assert document.text == (
        "subject: One\nfrom: Ann <ann@x.org>\ndate: 2024-05-01\n\nsubject: Two\nfrom: bo@x.org"
    )


def test_each_message_is_a_member_whose_name_stays_when_others_are_deleted() -> None:
    found = [*members(BOX, "team.mbox")]
    assert [one.name for one in found][::2] == ["1@x y.eml", "1@x y (2).eml"]
    assert [parse(one.data, one.name).title for one in found] == ["One", "Two", "1@x y (2)"]
    assert parse(found[0].data, "a.eml").text.endswith(
        "From the start, it ticks.\nFrom here on, too.\n>From it."
    )
    assert next(iter(members(BOX[BOX.index(b"From bo") :], "team.mbox"))) == found[1]


@pytest.mark.parametrize("data", [b"Just text.\n", b"\x00" * 50, b"From: a@x.org\n\nA mail.\n"])
def test_what_is_no_mailbox_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="not a mailbox"):
        parse(data, "a.mbox")
