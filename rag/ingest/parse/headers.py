"""Headers at the top of a text: those of RFC 822, as in letters and PEPs, and reStructuredText's fields."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from rag.ingest.parse.blocks import date
from rag.ingest.parse.titles import numbered_title
from rag.text.segments import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_MAX_CHARS = 8_000  # of all headers
_HEADER = re.compile(r"([A-Za-z][\w-]{0,40}):(?:[ \t]+(\S.*))?$")
_FIELD = re.compile(r":([A-Za-z][\w -]{0,40}):(?:[ \t]+(\S.*))?$")
_TITLES, _DATES = ("title", "subject"), ("date", "created")


class Headers(NamedTuple):
    """What headers say of a document: its title and its date, if they do, and the rest."""

    title: str = ""
    date: datetime | None = None
    metadata: Mapping[str, str] = MappingProxyType({})


_NONE = Headers()


def rfc822_headers(text: str) -> Headers:
    r"""The headers that a text begins with, by name in small letters. Without a title or subject it has none.

    Example: "PEP: 8\nTitle: Style\n Guide\n\nText" -> title "PEP 8 – Style Guide", metadata {"pep": "8"}.
    """
    entries = _entries(text, _HEADER)
    return _headers(entries) if any(entries.get(name) for name in _TITLES) else _NONE


def field_list(text: str) -> Headers:
    r"""The fields that reStructuredText begins with: ":Author: Ann\n\nText" -> metadata {"author": "Ann"}."""
    return _headers(_entries(text, _FIELD))


def _headers(entries: dict[str, str]) -> Headers:
    titled = next((name for name in _TITLES if entries.get(name)), "")
    dated, day = next(((name, day) for name in _DATES if (day := _day(entries.get(name, "")))), ("", None))
    rest = {name: value for name, value in entries.items() if value and name not in {titled, dated}}
    return Headers(numbered_title(entries.get(titled, ""), rest), day, rest)


def _day(written: str) -> datetime | None:
    return date(written) or date(written.replace("-", " ") + " 00:00:00 +0000")  # as in 05-Jul-2001


def _entries(text: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """The entries up to the first blank line; none if a line is neither an entry nor goes on with one."""
    entries: dict[str, str] = {}
    name = ""
    for line in text.lstrip("\n")[:_MAX_CHARS].split("\n"):
        if not line.strip():
            return entries
        if name and line[0].isspace():
            entries[name] = one_line(f"{entries[name]} {line}")
        elif match := pattern.match(line.rstrip()):
            name = match[1].casefold()
            entries[name] = ", ".join(filter(None, (entries.get(name), match[2])))
        else:
            return {}
    return {}
