"""iCalendar and vCard: appointments, tasks and people as readable lines."""

from __future__ import annotations

import quopri
import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.json_and_csv import records_document
from rag.text.plain_text import one_line

SUFFIXES = (".ics", ".ical", ".vcf", ".vcard")

_LINE = re.compile(r"(?P<name>[A-Za-z0-9.-]++)(?P<parameters>(?:;(?:[^:;\"]|\"[^\"]*\")*+)*+):(?P<value>.*)")
_PARAMETER = re.compile(r";([A-Za-z-]+)=(\"[^\"]*\"|[^;:]*)")
_QUOTED_PRINTABLE = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE(?:;|$)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([\\;,nN:])")
_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z?))?")
_RECORDS = {"VEVENT", "VTODO", "VJOURNAL", "VCARD"}
_SUMMARIES = {"VEVENT": "Event", "VTODO": "Task", "VJOURNAL": "Entry"}
_LABELS = {
    "FN": "Name",
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "DURATION": "Duration",
    "COMPLETED": "Completed",
    "RRULE": "Repeats",
    "RDATE": "Also on",
    "EXDATE": "Except on",
    "RECURRENCE-ID": "Instead of the one on",
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
"""Labels of the properties that are written, in this order, after the summary. Pictures, keys and ids are
omitted."""
_ORDER = [*_SUMMARIES.values(), *_LABELS.values()]


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


def _records(entries: Iterable[_Entry]) -> list[dict[str, str]]:
    records: dict[int, dict[str, list[str]]] = {}
    names: dict[int, str] = {}  # of people whose card has no whole name, as version 2.1 allows
    for entry in entries:
        if entry.kind == "VCARD" and _property(entry) == "N":
            family, given, middle, prefix, suffix = [*_unescaped(entry.value).split(";"), *4 * [""]][:5]
            names[entry.record] = one_line(f"{prefix} {given} {middle} {family} {suffix}")
        if entry.kind in _RECORDS and (label := _label(entry)):
            record = records.setdefault(entry.record, {})
            record.setdefault(label, []).append(_value(entry))
    for number, name in names.items():
        records.setdefault(number, {}).setdefault("Name", [name])
    return [
        _with_last_day(
            {name: ", ".join(filter(None, record[name])) for name in sorted(record, key=_ORDER.index)}
        )
        for record in records.values()
    ]


def _with_last_day(record: dict[str, str]) -> dict[str, str]:
    """The record of whole days with its last one as the end. By RFC 5545, the end is the day after it."""
    try:
        last = (date.fromisoformat(record.get("End", "")) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):  # it has none, or one with a time
        return record
    without_end = {name: value for name, value in record.items() if name != "End"}
    return without_end if last <= record.get("Start", "") else {**record, "End": last}


def _label(entry: _Entry) -> str:
    """The label of a property that is written, or ""."""
    name = _property(entry)
    return _SUMMARIES.get(entry.kind, "") if name == "SUMMARY" else _LABELS.get(name, "")


def _property(entry: _Entry) -> str:
    """The name of a property without its group: "item1.ADR" -> "ADR"."""
    return entry.name.rpartition(".")[2]


def _entries(text: str) -> Iterator[_Entry]:
    """The lines of all records, each with the number and the kind of its component."""
    open_: list[tuple[int, str]] = []
    number = 0
    lines = iter(re.sub(r"=?\n[ \t]", "", text).split("\n"))
    for line in lines:
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
            if _QUOTED_PRINTABLE.search(match["parameters"]):
                parts = [value]
                while parts[-1].endswith("=") and (rest := next(lines, None)) is not None:
                    parts.append(rest.strip())
                octets = quopri.decodestring("\n".join(parts).encode("utf-8", "replace"))
                value = decode_part(octets, parameters.get("CHARSET", "utf-8")).text.replace("\r\n", "\n")
            yield _Entry(*open_[-1], name, parameters, value)


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)


def _value(entry: _Entry) -> str:
    value = _unescaped(entry.value)
    dates = [*filter(None, map(_DATE.fullmatch, value.split(",")))]
    if len(dates) > value.count(","):
        return ", ".join(_date_in_words(date, entry.parameters.get("TZID")) for date in dates)
    if value.lower().startswith("mailto:"):
        name = entry.parameters.get("CN", "")
        return f"{name} <{value[7:]}>" if name and name != value[7:] else value[7:]
    if _property(entry) in {"ADR", "ORG"}:
        return ", ".join(filter(None, (part.strip() for part in value.split(";"))))
    return value.strip()


def _date_in_words(date: re.Match[str], zone: str | None) -> str:
    year, month, day, hour, minute, utc = date.groups()
    in_zone = " UTC" if utc else f" ({zone})" if zone else ""
    return f"{year}-{month}-{day}" + (f" {hour}:{minute}{in_zone}" if hour else "")
