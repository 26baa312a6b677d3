"""Outlook's messages, calendars and address books."""

from __future__ import annotations

import re
import struct
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from rag.errors import ParseError
from rag.ingest.parse.mail.calendars import time_zones
from rag.ingest.parse.mail.eml_and_mbox import part_of
from rag.ingest.parse.mail.outlook import decompressed_rtf, multipart, rich_text_body
from rag.ingest.parse.parsers import members, parse
from tests.ingest.parse.document_shape import texts_of

# Outlook's messages.

WORD = re.compile(r"\w+")
SAMPLES = {
    "markitdown/test_outlook_msg": ("Test Email Message", "2024-12-22", "M. C. Kurtuluş", []),
    "unstructured/fake-email": ("Test Email", "2023-03-28", "Matthew Robinson", []),
    "unstructured/fake-email-attachment": (
        "Fake email with attachment",
        "2023-04-20",
        "Mallori Harrell",
        ["fake-attachment.txt"],
    ),
    "unstructured/fake-email-with-cc-and-bcc": (
        "Fake email with cc and bcc recipients",
        "2024-07-29",
        "John",
        [],
    ),
    "unstructured/fake-encrypted": ("fake encrypted", "2023-08-25", "Michael Elkins", []),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_messages_have_the_title_date_author_and_files_that_a_person_sees(
    judged: Path, name: str
) -> None:
    data = (judged / "office" / f"{name}.msg").read_bytes()
    document = parse(data, f"{name}.msg")
    assert document.date
    names = [member.name for member in members(data, f"{name}.msg")]
    envelope = (document.title, document.date.date().isoformat(), document.metadata["author"], names)
    assert envelope == SAMPLES[name]


def test_a_message_says_who_wrote_what_to_whom(judged: Path) -> None:
    data = (judged / "office" / "unstructured" / "fake-email-with-cc-and-bcc.msg").read_bytes()
    assert parse(data, "a.msg").text == (
        "From: John <johnjennings702@gmail.com>\nTo: John Jennings <john-ctr@unstructured.io>\n"
        "Cc: steve@unstructured.io\nDate: 2024-07-29 20:38 UTC\n\n"
        "This is a test email. Please ignore.\n\nAll the best,\nJohn"
    )


def test_a_truncated_message_is_damaged_or_read_as_far_as_it_goes(judged: Path) -> None:
    data = (judged / "office" / "unstructured" / "fake-email-attachment.msg").read_bytes()
    for end in range(0, len(data), 1000):
        try:
            assert parse(data[:end], "a.msg").blocks
        except ParseError as error:
            assert str(error)  # noqa: PT017 either end is fine


@pytest.mark.parametrize(
    "data", [b"From: a@x.org\n\nA mail.\n", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 2000]
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="not a message of Outlook"):
        parse(data, "a.msg")


BODIES = ("1000001F", "1000001E", "10130102", "1013001F")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_message_that_has_only_rich_text_reads_as_it_does_with_all_of_its_bodies(
    judged: Path, name: str
) -> None:
    data = (judged / "office" / f"{name}.msg").read_bytes()
    only = data
    for body in BODIES:  # the streams of the other bodies get names that nobody looks for
        only = only.replace(body.encode("utf-16-le"), body.replace("10", "7F", 1).encode("utf-16-le"))
    assert only != data
    assert WORD.findall(parse(only, "a.msg").text) == WORD.findall(parse(data, "a.msg").text)
    assert not [member.name for member in members(only, "a.msg") if member.name.endswith(".rtf")]


def test_an_attached_message_has_the_same_bytes_each_time_and_its_parts() -> None:
    def attached() -> bytes:
        bodies = [part_of("text/plain", b"The pendulum."), part_of("text/html", b"<p>The pendulum.</p>")]
        body = multipart(Message(), "alternative", bodies)
        return multipart(Message(), "mixed", [body, part_of("text/plain", b"Oil.")]).as_bytes()

    assert attached() == attached()
    payloads = [part.get_payload(decode=True) for part in message_from_bytes(attached()).walk()]
    assert [*filter(None, payloads)] == [b"The pendulum.", b"<p>The pendulum.</p>", b"Oil."]


def test_html_in_rich_text_is_taken_out_with_its_characters() -> None:
    rich = (
        rb"{\rtf1\ansi\ansicpg1252\fromhtml1 {\fonttbl{\f0 Arial;}}{\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 "
        rb"Caf\'e9 \u8364?5 & \{more\}\htmlrtf\par}\htmlrtf0 {\*\htmltag72 </p>}{\*\mhtmltag <b>}}"
    )
    assert rich_text_body(rich) == ("html", "<p>Café €5 &amp; {more}</p>".encode())
    assert rich_text_body(rb"{\rtf1\ansi\pard Plain.\par}") == ("plain", b"Plain.")
    assert rich_text_body(rb"{\rtf1\ansi\pard }") == ("plain", b"")


def test_html_in_rich_text_is_read_in_the_code_pages_of_its_fonts() -> None:
    rich = (
        rb"{\rtf1\ansi\ansicpg1252\fromhtml1 "
        rb"{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}}"
        rb"{\*\htmltag64 <p>}{\f1 \'d2\'e8\'e4} \f2\'89"
        b"\r\n"
        rb"\'b7\'95\\ \f0 caf\'e9{\*\htmltag72 </p>}}"
    )
    assert rich_text_body(rich) == ("html", "<p>Тид 温表 café</p>".encode())


def test_rich_text_is_unpacked() -> None:
    """The example of [MS-OXRTFCP] 3.1.1."""
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert decompressed_rtf(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    assert decompressed_rtf(struct.pack("<II4sI", 7, 5, b"MELA", 0) + b"{\\rtf}") == b"{\\rtf"


@pytest.mark.parametrize("data", [b"", b"x" * 15, b"x" * 40])
def test_damaged_rich_text_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        decompressed_rtf(data)


# Calendars and address books.

CALENDAR = r"""BEGIN:VCALENDAR
X-WR-CALNAME:Clock room
BEGIN:VEVENT
UID:1
DTSTART;TZID=Europe/Berlin:20240501T100000
SUMMARY:Oil\, and wind
RRULE:FREQ=DAILY
EXDATE;TZID=Europe/Berlin:20240502T100000,20240503T100000
ATTENDEE;CN="Lee, Ann";ROLE=REQ-PARTICIPANT:mailto:ann@x.org
ATTENDEE:mailto:bo@x.org
DESCRIPTION:Bring the
  key.\nAnd oil.
BEGIN:VALARM
DESCRIPTION:Ring
END:VALARM
END:VEVENT
BEGIN:VEVENT
SUMMARY:Oil
RECURRENCE-ID:20240504T080000Z
DTSTART:20240504T090000Z
END:VEVENT
BEGIN:VTODO
SUMMARY:Dust
DUE;VALUE=DATE:20240502
END:VTODO
END:VCALENDAR
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_calendar_is_a_row_for_each_appointment(end: str) -> None:
    document = parse(CALENDAR.replace("\n", end).encode(), "a.ics")
    assert (document.title, document.mime_type) == ("Clock room", "text/calendar")
    assert texts_of(document) == [
        (
            "Event: Oil, and wind\nStart: 2024-05-01 10:00 (Europe/Berlin)\nRepeats: FREQ=DAILY\n"
            "Except on: 2024-05-02 10:00 (Europe/Berlin), 2024-05-03 10:00 (Europe/Berlin)\n"
            "Attendees: Lee, Ann <ann@x.org>, bo@x.org\nDescription: Bring the key.\nAnd oil."
        ),
        "Event: Oil\nStart: 2024-05-04 09:00 UTC\nInstead of the one on: 2024-05-04 08:00 UTC",
        "Task: Dust\nDue: 2024-05-02",
    ]


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("DTEND;VALUE=DATE:20260413", "\nEnd: 2026-04-12"),
        ("DTEND;VALUE=DATE:20260411", ""),  # one day
        ("DTEND;VALUE=DATE:20260410", ""),  # none, as some programs write it
        ("DTEND:20260413T000000Z", "\nEnd: 2026-04-13 00:00 UTC"),
    ],
)
def test_whole_days_end_on_the_last_of_them(end: str, last: str) -> None:
    event = f"BEGIN:VEVENT\nSUMMARY:Closed\nDTSTART;VALUE=DATE:20260410\n{end}\nEND:VEVENT"
    document = parse(f"BEGIN:VCALENDAR\n{event}\nEND:VCALENDAR".encode(), "a.ics")
    assert document.text == f"Event: Closed\nStart: 2026-04-10{last}"


def event(*lines: str, head: str = "VERSION:2.0") -> list[str]:
    """The lines of an appointment in a calendar with this head."""
    calendar = ["BEGIN:VCALENDAR", head, "BEGIN:VEVENT", "SUMMARY:Oil", *lines, "END:VEVENT", "END:VCALENDAR"]
    first, *others = parse("\n".join(calendar).encode(), "a.ics").text.split("\n")
    assert first == "Event: Oil"
    return others


@pytest.mark.parametrize(
    ("person", "written"),
    [
        ("PARTSTAT=ACCEPTED;CN=Ann:mailto:ann@x.org", "Ann <ann@x.org> (accepted)"),
        ("partstat=declined;X-NUM-GUESTS=0:MAILTO:ann@x.org", "ann@x.org (declined)"),
        ("ROLE=OPT-PARTICIPANT;PARTSTAT=TENTATIVE;CN=Ann:mailto:a@x", "Ann <a@x> (optional, tentative)"),
        ("PARTSTAT=NEEDS-ACTION;ROLE=REQ-PARTICIPANT:mailto:ann@x.org", "ann@x.org (no answer)"),
        ("CUTYPE=ROOM;PARTSTAT=ACCEPTED;CN=Attic:mailto:attic@x.org", "Attic <attic@x.org> (room, accepted)"),
        ("PARTSTAT=X-MAYBE;CN=Ann:invalid:nomail", "Ann"),
        ("CN=ann@x.org:mailto:ann@x.org", "ann@x.org"),
        ("RSVP=TRUE:urn:uuid:1", "urn:uuid:1"),
    ],
)
def test_an_attendee_has_the_answer_that_was_given(person: str, written: str) -> None:
    assert event(f"ATTENDEE;{person}") == [f"Attendees: {written}"]
    assert event(f"ORGANIZER;{person}") == [f"Organizer: {written}"]


@pytest.mark.parametrize(
    ("zone", "time", "written"),
    [
        ("Europe/Berlin", ":20240410T060000Z", "2024-04-10 08:00 (Europe/Berlin)"),
        ("Europe/Berlin", ":20241231T233000Z", "2025-01-01 00:30 (Europe/Berlin)"),
        ("Europe/Berlin", ";TZID=Asia/Tokyo:20240410T060000", "2024-04-10 06:00 (Asia/Tokyo)"),
        ("Europe/Berlin", ":20240410T060000", "2024-04-10 06:00"),
        ("Europe/Berlin", ";VALUE=DATE:20240410", "2024-04-10"),
        ("Europe/Berlin", ":20240230T060000Z", "2024-02-30 06:00 UTC"),
        ("Europe/Berlin", ":99991231T235900Z", "9999-12-31 23:59 UTC"),
        ("../../etc/passwd", ":20240410T060000Z", "2024-04-10 06:00 UTC"),
        ("", ":20240410T060000Z", "2024-04-10 06:00 UTC"),
    ],
)
def test_times_in_utc_are_written_in_the_zone_that_the_calendar_names(
    zone: str, time: str, written: str
) -> None:
    if "Berlin" in zone and zone not in time_zones():
        pytest.skip("this machine has no time zones")
    lines = event(f"DTSTART{time}", f"RECURRENCE-ID{time}", head=f"X-WR-TIMEZONE:{zone}")
    assert lines == [f"Start: {written}", f"Instead of the one on: {written}"]


def test_each_calendar_of_a_file_has_its_own_zone_and_purpose() -> None:
    heads = ("X-WR-TIMEZONE:Europe/Berlin\nMETHOD:CANCEL", "METHOD:PUBLISH")
    calendars = [CALENDAR.replace("X-WR-CALNAME:Clock room", head) for head in heads]
    first, second = texts_of(parse("".join(calendars).encode(), "a.ics"))[1::3]
    assert "Message: cancellation\nStart: 2024-05-04 1" in first
    assert second == "Event: Oil\nStart: 2024-05-04 09:00 UTC\nInstead of the one on: 2024-05-04 08:00 UTC"


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("CANCEL", ["Message: cancellation"]),
        ("reply", ["Message: answer to an invitation"]),
        ("COUNTER", ["Message: proposal of a change"]),
        ("DECLINECOUNTER", ["Message: refusal of a proposed change"]),
        ("REQUEST", []),
        ("PUBLISH", []),
    ],
)
def test_an_appointment_says_that_it_was_sent_to_cancel_it_or_to_answer(
    method: str, lines: list[str]
) -> None:
    written = [*lines, "Start: 2024-04-10 06:00 UTC"]
    assert event("DTSTART:20240410T060000Z", head=f"METHOD:{method}") == written
    body = "BEGIN:VCALENDAR\nMETHOD:{}\nBEGIN:VEVENT\nDTSTART:20240410T060000Z\nEND:VEVENT\nEND:VCALENDAR"
    head = "From: a@x.org\nSubject: Oil\nMIME-Version: 1.0\nContent-Type: text/calendar"
    mail = parse(f"{head}\n\n{body.format(method)}".encode(), "a.eml")
    assert mail.text.split("\n\n", 1)[1].split("\n") == written


PAGE = "X-ALT-DESC;FMTTYPE=text/html:<!DOCTYPE HTML><html><body><p>A <b>page</b></p></body></html>"


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        (["DESCRIPTION:<p>Ask: <b>Ann</b></p><ul><li>key</li></ul>"], "Ask: **Ann**\n\n- key"),
        ([r"DESCRIPTION:One\nTwo <a href='https://x.org'>three</a>"], "One  \nTwo [three](https://x.org)"),
        ([r"DESCRIPTION:One\n<two> & <https://x.org> <a@x.org>"], "One\n<two> & <https://x.org> <a@x.org>"),
        (["DESCRIPTION:<p>" + "<span>" * 5000], "<p>" + "<span>" * 5000),
        (["DESCRIPTION:A text", PAGE], "A text"),
        ([r"DESCRIPTION:\n", PAGE], "A **page**"),
        ([PAGE], "A **page**"),
    ],
)
def test_a_description_is_written_without_tags(lines: list[str], written: str) -> None:
    assert event(*lines) == f"Description: {written}".split("\n")


def test_an_appointment_that_moves_with_all_later_ones_says_so_and_an_answer_has_its_comment() -> None:
    assert event("RECURRENCE-ID;RANGE=THISANDFUTURE:20240410", "COMMENT:I am <b>ill</b>") == [
        "Instead of the one on: 2024-04-10 and all later ones",
        "Comment: I am **ill**",
    ]


def test_a_card_is_a_person_without_the_picture() -> None:
    lines = ["FN:Ann Lee", "item1.EMAIL;TYPE=work:ann@x.org", "ADR:;;Main 1;Bonn;;53;DE", "PHOTO:eA=="]
    document = parse("\n".join(["BEGIN:VCARD", *lines, "END:VCARD"]).encode(), "a.vcf")
    assert (document.title, document.mime_type) == ("Ann Lee", "text/vcard")
    assert document.text == "Name: Ann Lee\nE-mail (work): ann@x.org\nAddress: Main 1, Bonn, 53, DE"


def card(*lines: str) -> str:
    return parse("\n".join(["BEGIN:VCARD", "FN:Ann Lee", *lines, "END:VCARD"]).encode(), "a.vcf").text


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("TEL;TYPE=WORK,FAX:+49 30 777", "Phone (work, fax): +49 30 777"),
        ("TEL;TYPE=WORK;TYPE=FAX:+49 30 777", "Phone (work, fax): +49 30 777"),
        ("TEL;WORK;FAX:+49 30 777", "Phone (work, fax): +49 30 777"),
        ('TEL;PREF=1;TYPE="voice,cell":tel:+49-30-6;ext=7', "Phone (mobile, preferred): +49-30-6 ext. 7"),
        ("TEL;CELL;VOICE:55512345", "Phone (mobile): 55512345"),
        ("EMAIL;PREF;INTERNET:a@x.org", "E-mail (preferred): a@x.org"),
        ("item1.TEL:1\nitem1.X-ABLabel:_$!<HomeFAX>!$_\nTEL:2", "Phone (home fax): 1\nPhone: 2"),
        ("item1.TEL:1\nitem1.X-ABLabel:Beach", "Phone (Beach): 1"),
        ("TEL;TYPE=CELL:1\nTEL;TYPE=WORK:2\nTEL;TYPE=CELL:3", "Phone (mobile): 1; 3\nPhone (work): 2"),
        ("LABEL;WORK;ENCODING=QUOTED-PRINTABLE:Work St 2=0D=0ABonn", "Address label (work): Work St 2\nBonn"),
        ("TEL:1", "Phone: 1"),
    ],
)
def test_a_number_has_the_kind_that_the_card_tells(line: str, written: str) -> None:
    assert card(*line.split("\n")) == f"Name: Ann Lee\n{written}"


def test_addresses_end_where_they_end() -> None:
    lines = (
        "ADR;TYPE=HOME:;;Home St 1;Berlin;;1;DE",
        "ADR;TYPE=WORK:;;Work St 2\\; rear;Bonn;;2;DE",
        "ADR;TYPE=HOME:;;;Ulm",
    )
    assert card(*lines).split("\n")[1:] == [
        "Address (home): Home St 1, Berlin, 1, DE; Ulm",
        "Address (work): Work St 2; rear, Bonn, 2, DE",
    ]


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("NICKNAME:Annie", "Nickname: Annie"),
        ("IMPP;X-SERVICE-TYPE=Jabber;type=HOME:xmpp:a@b", "Messenger (home, jabber): xmpp:a@b"),
        ("X-SKYPE:annie", "Messenger (skype): annie"),
        ("X-SOCIALPROFILE;type=twitter:http://x.com/ann", "Profile (twitter): http://x.com/ann"),
        ("RELATED;TYPE=friend;VALUE=text:Bo", "Related (friend): Bo"),
        ("item1.X-ABRELATEDNAMES:Bo\nitem1.X-ABLabel:_$!<Spouse>!$_", "Related (spouse): Bo"),
        ("X-MANAGER:Bo", "Related (manager): Bo"),
        ("ANNIVERSARY:20100102", "Anniversary: 2010-01-02"),
        ("BDAY;X-APPLE-OMIT-YEAR=1604:1604-04-03", "Birthday: --04-03"),
        ("BDAY:--0403", "Birthday: --04-03"),
        ("BDAY:19960415T000000Z", "Birthday: 1996-04-15"),
    ],
)
def test_what_is_known_of_a_person_is_written(line: str, written: str) -> None:
    assert card(*line.split("\n")) == f"Name: Ann Lee\n{written}"


@pytest.mark.parametrize(
    "line",
    [
        "UID:1",
        "REV:20240501T100000Z",
        "RELATED:urn:uuid:1",
        "KEY:data:a;base64,eA==",
        "X-ABLabel:Beach",
        "TEL:",
    ],
)
def test_ids_keys_and_pictures_of_a_person_are_left_out(line: str) -> None:
    assert card(line) == "Name: Ann Lee"


OLD_CARDS = """BEGIN:VCARD
VERSION:2.1
FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=4A=C3=BC=72=67=65=6E
NOTE;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=45=72=73=74=65=0D=0A=
=7A=77=65=69=74=65
END:VCARD
BEGIN:VCARD
N;QUOTED-PRINTABLE;CHARSET=ISO-8859-1:M=FCller;Ann;;Dr.;
EMAIL:ann@x.org
END:VCARD
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cards_of_old_phones_are_read_with_their_letters_and_names(end: str) -> None:
    document = parse(OLD_CARDS.replace("\n", end).encode(), "a.vcf")
    assert document.text == "Name: Jürgen\nNote: Erste\nzweite\n\nName: Dr. Ann Müller\nE-mail: ann@x.org"


@pytest.mark.parametrize("text", ["text", "BEGIN:VCALENDAR\nEND:VCALENDAR", "BEGIN:VEVENT\n" + "A;" * 99_999])
def test_without_appointments_and_people_it_is_no_calendar(text: str) -> None:
    with pytest.raises(ParseError, match="neither appointments nor people"):
        parse(text.encode(), "a.ics")
