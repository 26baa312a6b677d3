"""iCalendar and vCard: appointments, tasks and people as readable lines."""

from __future__ import annotations

import quopri
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse import html_page
from rag.ingest.parse.decode import decode_part
from rag.ingest.parse.document_parts import toml_beside
from rag.ingest.parse.records import records_document
from rag.text.plain_text import one_line

SUFFIXES = (".ics", ".ical", ".vcf", ".vcard")
LIBRARIES = ("zoneinfo",)

_LINE = re.compile(r"(?P<name>[A-Za-z0-9.-]++)(?P<parameters>(?:;(?:[^:;\"]|\"[^\"]*\")*+)*+):(?P<value>.*)")
_PARAMETER = re.compile(r";([A-Za-z0-9-]++)(=?)((?:\"[^\"]*\"|[^\";:])*+)")
_QUOTED_PRINTABLE = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE(?:;|$)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([\\;,nN:])")
_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?(Z?))?")
_LINE_TAG = re.compile(r"(?i)<(?:br|p|div|[uo]l|h[1-6]|table|body)\b[^<>]*>")
_TAG = re.compile(rf"{_LINE_TAG.pattern}|</(?:a|b|i|u|span|strong|em)>")
_SUMMARIES = {"VEVENT": "Event", "VTODO": "Task", "VJOURNAL": "Entry"}
_WORDS: dict[str, dict[str, str]] = toml_beside(__file__)
_LABELS, _MESSAGES, _PARTICIPATION = (_WORDS[name] for name in ("appointment", "messages", "participation"))
_PERSON_LABELS = {name: label for label, names in _WORDS["person"].items() for name in names.split()}
_ORDER = [*_SUMMARIES.values(), "Message", *_LABELS.values()]
_MESSENGERS = ("X-AIM", "X-ICQ", "X-JABBER", "X-MSN", "X-YAHOO", "X-SKYPE", "X-QQ", "X-GOOGLE-TALK")
_RELATIONS = ("X-SPOUSE", "X-MANAGER", "X-ASSISTANT")
_APPLE_LABEL = re.compile(r"_\$!<(.*)>!\$_")
_DAY = re.compile(r"(\d{4}|--)-?(\d\d)-?(\d\d)(?:T.*)?")
_PERSON_ORDER = [*_PERSON_LABELS]
_DATES_OF_PEOPLE = {"BDAY", "ANNIVERSARY", "X-ANNIVERSARY", "X-ABDATE", "DEATHDATE"}
_KIND_WORDS = {"cell": "mobile", "pref": "preferred"}
_NO_KINDS = {"", "voice", "internet", "intl", "postal", "parcel"}  # what RFC 2426 takes where nothing is said
_NO_KINDS |= {"quoted-printable", "base64", "8bit", "7bit"}  # encodings, which version 2.1 writes as kinds


class _Entry(NamedTuple):
    record: int
    kind: str
    name: str
    parameters: dict[str, str]
    value: str


@cache
def time_zones() -> Mapping[str, ZoneInfo]:
    """All time zones by name; none in a confined process that didn't load them before (0.1 s)."""
    try:
        return {name: ZoneInfo(name) for name in available_timezones()}
    except OSError:
        return {}


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
    people: dict[int, list[_Entry]] = {}
    calendars: dict[int, dict[str, str]] = {}
    calendar: dict[str, str] = {}  # the one whose appointments follow
    for entry in entries:
        if entry.kind == "VCALENDAR":
            calendar = calendars.setdefault(entry.record, {})
            calendar[entry.name] = entry.value
        elif entry.kind == "VCARD":
            people.setdefault(entry.record, []).append(entry)
        elif entry.kind in _SUMMARIES and (label := _label(entry)):
            message = _MESSAGES.get(calendar.get("METHOD", "").upper())
            # A cancellation or an answer that came by mail must not read like the appointment itself.
            record = records.setdefault(entry.record, {"Message": [message]} if message else {})
            name = calendar.get("X-WR-TIMEZONE")
            record.setdefault(label, []).append(_value(entry, time_zones().get(name) if name else None))
    return [*map(_appointment, records.values()), *filter(None, map(_person, people.values()))]


def _appointment(record: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The lines of an appointment. Of two descriptions, Outlook's page says the same as the plain text."""
    lines = {label: ", ".join(filter(None, record[label])) for label in sorted(record, key=_ORDER.index)}
    page = lines.pop(_LABELS["X-ALT-DESC"], "")
    if page and not lines.get("Description"):
        lines["Description"] = page
    return _with_last_day(lines)


def _with_last_day(record: dict[str, str]) -> dict[str, str]:
    """The record of whole days with its last one as the end. By RFC 5545, the end is the day after it."""
    try:
        last = (date.fromisoformat(record.get("End", "")) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):  # it has none, or one with a time
        return record
    without_end = {name: value for name, value in record.items() if name != "End"}
    return without_end if last <= record.get("Start", "") else {**record, "End": last}


def _label(entry: _Entry) -> str:
    name = _property(entry)
    return _SUMMARIES.get(entry.kind, "") if name == "SUMMARY" else _LABELS.get(name, "")


def _property(entry: _Entry) -> str:
    """The name of a property without its group: "item1.ADR" -> "ADR"."""
    return entry.name.rpartition(".")[2]


def _entries(text: str) -> Iterator[_Entry]:
    open_: list[tuple[int, str]] = []
    number = 0
    lines = iter(re.sub(r"=?\n[ \t]", "", text).split("\n"))  # long lines are folded, also amid a word
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
            parameters = _parameters(match["parameters"])
            if _QUOTED_PRINTABLE.search(match["parameters"]):
                parts = [value]
                while parts[-1].endswith("=") and (following := next(lines, None)) is not None:
                    parts.append(following.strip())
                octets = quopri.decodestring("\n".join(parts).encode("utf-8", "replace"))
                value = decode_part(octets, parameters.get("CHARSET", "utf-8")).text.replace("\r\n", "\n")
            yield _Entry(*open_[-1], name, parameters, value)


def _parameters(text: str) -> dict[str, str]:
    """The parameters of a property. Those without a name are types, as in version 2.1 of vCard.

    Example: ";TYPE=work;TYPE=fax" and ";WORK;FAX" -> {"TYPE": "work,fax"} and {"TYPE": "WORK,FAX"}.
    """
    parameters: dict[str, str] = {}
    for name, equals, value in _PARAMETER.findall(text):
        key, words = (name.upper(), value.replace('"', "")) if equals else ("TYPE", name)
        parameters[key] = f"{parameters[key]},{words}" if key in parameters else words
    return parameters


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)


def _value(entry: _Entry, zone: ZoneInfo | None) -> str:
    value = _unescaped(entry.value)
    dates = [*filter(None, map(_DATE.fullmatch, value.split(",")))]
    if len(dates) > value.count(","):
        days = ", ".join(_date_in_words(date, entry.parameters.get("TZID"), zone) for date in dates)
        return f"{days} and all later ones" if entry.parameters.get("RANGE") == "THISANDFUTURE" else days
    if value.lower().startswith("mailto:") or "CN" in entry.parameters:
        return _attendee(value, entry.parameters)
    if _property(entry) in {"DESCRIPTION", "X-ALT-DESC", "COMMENT"}:
        value = _without_tags(value)
    return value.strip()


def _attendee(value: str, parameters: Mapping[str, str]) -> str:
    """A person or a room, with the part that it takes: "Ann <ann@x.org> (optional, declined)"."""
    address = value[7:] if value.lower().startswith("mailto:") else ""
    person = named_address(parameters.get("CN", ""), address) or value
    stated = (parameters.get(key, "").upper() for key in ("CUTYPE", "ROLE", "PARTSTAT"))
    parts = [_PARTICIPATION[part] for part in stated if part in _PARTICIPATION]
    return f"{person} ({', '.join(parts)})" if parts else person


def named_address(name: str, address: str) -> str:
    """A person as "Name <address>", or what is known of both."""
    return f"{name} <{address}>" if name and address and name != address else name or address


def _without_tags(text: str) -> str:
    """The text of a description, which Google writes as HTML."""
    if _TAG.search(text):
        with suppress(ParseError):
            return html_page.content_of(text if _LINE_TAG.search(text) else text.replace("\n", "<br>"))
    return text


def _date_in_words(date: re.Match[str], own_zone: str | None, zone: ZoneInfo | None) -> str:
    """A date and time in its own zone; one in UTC in the zone of the calendar, as Google writes both."""
    year, month, day, hour, minute, utc = date.groups()
    if utc and zone:  # Google writes UTC, and names the zone that people see
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}+00:00")
            return f"{moment.astimezone(zone):%Y-%m-%d %H:%M} ({zone})"
    in_zone = " UTC" if utc else f" ({own_zone})" if own_zone else ""
    return f"{year}-{month}-{day}" + (f" {hour}:{minute}{in_zone}" if hour else "")


def _person(entries: Sequence[_Entry]) -> dict[str, str]:
    """A person: a line for each kind of number, address and the like; empty if nothing is known."""
    groups = {_group(entry): entry.value for entry in entries if _property(entry) == "X-ABLABEL"}
    lines: dict[str, list[str]] = {}
    labelled = [entry for entry in entries if _property(entry) in _PERSON_LABELS]
    for entry in sorted(labelled, key=lambda entry: _PERSON_ORDER.index(_property(entry))):
        if value := _person_value(entry):
            lines.setdefault(_person_label(entry, groups.get(_group(entry), "")), []).append(value)
    person = {label: "; ".join(values) for label, values in lines.items()}
    names = [_unescaped(entry.value).split(";") for entry in entries if _property(entry) == "N"]
    if names and "Name" not in person:  # version 2.1 allows cards without a whole name
        family, first, middle, prefix, suffix = [*names[0], *4 * [""]][:5]
        name = one_line(f"{prefix} {first} {middle} {family} {suffix}")
        person = {"Name": name, **person} if name else person
    return person


def _group(entry: _Entry) -> str:
    """The group of a property, which its label shares: "item1.ADR" -> "item1". Without one, its name."""
    return entry.name.rpartition(".")[0] or entry.name


def _person_label(entry: _Entry, own_label: str) -> str:
    """The label with the kinds that the card tells: "Phone (work, fax)". `own_label` is one of Apple's."""
    name = _property(entry)
    label = _PERSON_LABELS[name]
    if name == "FN":
        return label
    types = f"{entry.parameters.get('TYPE', '')},{entry.parameters.get('X-SERVICE-TYPE', '')}".lower()
    types += ",pref" if entry.parameters.get("PREF") == "1" else ""
    types += f",{name}".lower() if name in {*_MESSENGERS, *_RELATIONS} else ""
    kinds = [kind.strip().removeprefix("x-") for kind in types.split(",")]
    kinds = [_KIND_WORDS.get(kind, kind) for kind in kinds if kind not in _NO_KINDS]
    if standard := _APPLE_LABEL.fullmatch(own_label):
        own_label = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", standard[1]).lower()
    kinds += [_unescaped(own_label)] if own_label else []
    return f"{label} ({', '.join(dict.fromkeys(kinds))})" if kinds else label


def _person_value(entry: _Entry) -> str:
    """The value of a person's property as text; "" for an id of another card."""
    name, value = _property(entry), entry.value
    if value.lower().startswith(("urn:", "data:")):
        return ""
    if name in {"ADR", "ORG", "GENDER"}:
        parts = (_unescaped(part).strip() for part in re.split(r"(?<!\\);", value))
        return ", ".join(filter(None, parts))
    if value.lower().startswith("tel:"):
        number, *parameters = value[4:].split(";")
        extensions = (parameter[4:] for parameter in parameters if parameter.lower().startswith("ext="))
        return " ext. ".join([number, *extensions])
    if name in _DATES_OF_PEOPLE and (day := _DAY.fullmatch(value)):
        omitted = day[1] == entry.parameters.get("X-APPLE-OMIT-YEAR", "--")
        return f"{'-' if omitted else day[1]}-{day[2]}-{day[3]}"
    return _unescaped(value[7:] if value.lower().startswith("mailto:") else value).strip()
