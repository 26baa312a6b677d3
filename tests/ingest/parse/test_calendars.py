"""Calendars and address books."""

from __future__ import annotations

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

CALENDAR = r"""BEGIN:VCALENDAR
X-WR-CALNAME:Clock room
BEGIN:VEVENT
UID:1
DTSTART;TZID=Europe/Berlin:20240501T100000
SUMMARY:Oil\, and wind
ATTENDEE;CN="Lee, Ann";ROLE=REQ-PARTICIPANT:mailto:ann@x.org
ATTENDEE:mailto:bo@x.org
DESCRIPTION:Bring the
  key.\nAnd oil.
BEGIN:VALARM
DESCRIPTION:Ring
END:VALARM
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
    assert [document.text[one.start : one.end] for one in document.blocks] == [
        (
            "Event: Oil, and wind\nStart: 2024-05-01 10:00 (Europe/Berlin)\n"
            "Attendees: Lee, Ann <ann@x.org>, bo@x.org\nDescription: Bring the key.\nAnd oil."
        ),
        "Event: Dust\nDue: 2024-05-02",
    ]


def test_a_card_is_a_person_without_the_picture() -> None:
    lines = ["FN:Ann Lee", "item1.EMAIL;TYPE=work:ann@x.org", "ADR:;;Main 1;Bonn;;53;DE", "PHOTO:eA=="]
    document = parse("\n".join(["BEGIN:VCARD", *lines, "END:VCARD"]).encode(), "a.vcf")
    assert (document.title, document.mime_type) == ("Ann Lee", "text/vcard")
    assert document.text == "Name: Ann Lee\nE-mail: ann@x.org\nAddress: Main 1, Bonn, 53, DE"


@pytest.mark.parametrize("text", ["text", "BEGIN:VCALENDAR\nEND:VCALENDAR", "BEGIN:VEVENT\n" + "A;" * 99_999])
def test_without_appointments_and_people_it_is_no_calendar(text: str) -> None:
    with pytest.raises(ParseError, match="neither appointments nor people"):
        parse(text.encode(), "a.ics")
