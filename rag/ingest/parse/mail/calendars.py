"""iCalendar and vCard: appointments, tasks and people as readable lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.json_and_csv import records_document
from rag.text.plain_text import one_line

SUFFIXES = (".ics", ".ical", ".vcf", ".vcard")

_LINE = re.compile(r"(?P<name>[A-Za-z0-9.-]++)(?P<parameters>(?:;(?:[^:;\"]|\"[^\"]*\")*+)*+):(?P<value>.*)")
_PARAMETER = re.compile(r";([A-Za-z-]+)=(\"[^\"]*\"|[^;:]*)")
_ESCAPE = re.compile(r"\\([\\;,nN:])")
_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z?))?")
_RECORDS = {"VEVENT", "VTODO", "VJOURNAL", "VCARD"}
_LABELS = {
    "SUMMARY": "Event",
    "FN": "Name",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "DURATION": "Duration",
    "RRULE": "Repeats",
    "LOCATION": "Location",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendees",
    "STATUS": "Status",
    "CATEGORIES": "Categories",
    "ORG": "Organization",
    "TITLE": "Position",
    "ROLE": "Role",
    "EMAIL": "E-mail",
    "TEL": "Phone",
    "ADR": "Address",
    "BDAY": "Birthday",
    "URL": "URL",
    "DESCRIPTION": "Description",
    "NOTE": "Note",
}
"""Labels of the properties that are written, in this order. Pictures, keys and ids are omitted."""


class _Entry(NamedTuple):
    record: int
    kind: str
    name: str
    parameters: dict[str, str]
    value: str


def parse(text: str, name: str) -> Document:
    """The document of a calendar or an address book: a block for each appointment or person.

    Raises:
        ParseError: the file has neither appointments nor people.
    """
    entries = list(_entries(text))
    records = _records(entries)
    if not records:
        raise ParseError("it has neither appointments nor people")
    titles = [entry.value for entry in entries if entry.name.upper() == "X-WR-CALNAME"]
    titles += [next(iter(records[0].values()))] if len(records) == 1 else []
    mime_type = "text/vcard" if entries[0].kind == "VCARD" else "text/calendar"
    return records_document(records, one_line(titles[0]) if titles else name, mime_type)


def readable_lines(text: str) -> str:
    """The appointments of a calendar as lines, or ""."""
    records = _records(_entries(text))
    return "\n\n".join("\n".join(f"{name}: {value}" for name, value in record.items()) for record in records)


def _records(entries: Iterator[_Entry] | list[_Entry]) -> list[dict[str, str]]:
    records: dict[int, dict[str, list[str]]] = {}
    for entry in entries:
        if entry.kind in _RECORDS and (label := _LABELS.get(entry.name.upper().rpartition(".")[2])):
            record = records.setdefault(entry.record, {})
            record.setdefault(label, []).append(_value(entry))
    order = list(_LABELS.values())
    return [
        {name: ", ".join(filter(None, record[name])) for name in sorted(record, key=order.index)}
        for record in records.values()
    ]


def _entries(text: str) -> Iterator[_Entry]:
    """The lines of all records, each with the number and the kind of its component."""
    open_: list[tuple[int, str]] = []
    number = 0
    for line in re.sub(r"=?\n[ \t]", "", text).split("\n"):
        match = _LINE.fullmatch(line.strip())
        if not match:
            continue
        name, value = match["name"].upper(), match["value"].strip()
        if name == "BEGIN":
            number += 1
            open_.append((number, value.upper()))
        elif name == "END":
            open_ = open_[:-1]
        elif open_:
            parameters = {
                key.upper(): quoted.strip('"') for key, quoted in _PARAMETER.findall(match["parameters"])
            }
            yield _Entry(*open_[-1], name, parameters, value)


def _value(entry: _Entry) -> str:
    value = _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], entry.value)
    if date := _DATE.fullmatch(value):
        year, month, day, hour, minute, utc = date.groups()
        zone = " UTC" if utc else f" ({entry.parameters['TZID']})" if "TZID" in entry.parameters else ""
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}{zone}" if hour else "")
    if value.lower().startswith("mailto:"):
        name = entry.parameters.get("CN", "")
        return f"{name} <{value[7:]}>" if name and name != value[7:] else value[7:]
    if entry.name.upper().rpartition(".")[2] in {"ADR", "N", "ORG"}:
        return ", ".join(filter(None, (part.strip() for part in value.split(";"))))
    return value.strip()
