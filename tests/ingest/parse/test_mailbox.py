"""Mailboxes: a list of their messages, and each message."""

from __future__ import annotations

import pytest

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.parsers import members, parse

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
    assert not any(one.data.endswith((b"\n\n", b"\n\r\n")) for one in found)  # that is the next one's
    assert next(iter(members(BOX[BOX.index(b"From bo") :], "team.mbox"))) == found[1]


@pytest.mark.parametrize("data", [b"Just text.\n", b"\x00" * 50, b"From: a@x.org\n\nA mail.\n"])
def test_what_is_no_mailbox_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="not a mailbox"):
        parse(data, "a.mbox")


DATED = "From ann@x.org Mon Jan  1 10:00:00 2024\n"
SECOND = "From bo@x.org Tue Jan  2 10:00:00 2024\n"


@pytest.mark.parametrize(
    "box",
    [
        f"{DATED}\nOne.\n\n{SECOND}\nTwo.\n",  # no headers at all
        f"{DATED}X-Status: R\n\nOne.\n\n{SECOND}X-Status: R\n\nTwo.\n",
        f"{DATED}Subject: a\n\nOne.\n{SECOND}Subject: b\n\nTwo.\n",  # no empty line between them
        "From ann@x.org\nSubject: a\n\nOne.\n\nFrom bo@x.org\nSubject: b\n\nTwo.\n",
        "From ann@x.org Mon Jan  1 2024\nSubject: a\n\nOne.\n\nFrom bo@x.org 2024\nSubject: b\n\nTwo.\n",
        f"\ufeff{DATED}Subject: a\n\nOne.\n\n{SECOND}Subject: b\n\nTwo.\n",
        f"\n\n{DATED}Subject: a\n\nOne.\n\n{SECOND}Subject: b\n\nTwo.\n",
        f"{DATED}Subject: a\n\nOne.\nFrom then on, 10:30 it was:\n\nFrom Rome\nat 5.\n\n{SECOND}\nTwo.\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_list_of_a_mailbox_and_its_messages_agree(box: str, end: str) -> None:
    data = box.replace("\n", end).encode()
    rows = parse(data, "simple.mbox").text.split("\n\n")
    mails = [parse(member.data, member.name) for member in members(data, "simple.mbox")]
    assert len(rows) == len(mails) == 2
    assert all(word in mail.text for word, mail in zip(("One.", "Two."), mails, strict=True))


def test_a_message_without_headers_has_the_sender_and_date_of_its_line() -> None:
    (mail,) = (parse(one.data, one.name) for one in members(f"{DATED}\nNote: this\n".encode(), "a.mbox"))
    assert mail.metadata["from"] == "ann@x.org"
    assert mail.date is not None
    assert mail.date.isoformat() == "2024-01-01T10:00:00+00:00"
    assert mail.text.endswith("Note: this")


def test_a_mailbox_of_empty_messages_has_no_content() -> None:
    with pytest.raises(EmptyFileError):
        parse(f"{DATED}\n\n{SECOND}".encode(), "a.mbox")


@pytest.mark.usefixtures("within_a_minute")
def test_many_lines_that_begin_no_message_take_linear_time() -> None:
    message = f"{DATED}Subject: a\n\n" + "From the start\n" * 20 + "\nFrom x y\n\n"
    assert sum(1 for _ in members((message * 5000).encode(), "a.mbox")) == 5000
