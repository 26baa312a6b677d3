"""Dates as people write them: in numbers, and in words of 35 languages and more."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from unicodedata import category, normalize

_MONTHS = Path(__file__).with_name("months.txt")
"""The names of the months, and their usual short forms. A star stands for any ending."""

_LETTER = r"[^\s\d_.,;:/()\[\]\"'’–-]"  # vowel signs of Hindi included
_NAME = rf"(?<!{_LETTER})ב?(?P<name>{_LETTER}{{2,13}})"
_DAY, _GAP, _TH = r"(?P<day>\d{1,2})", "[ _.,-]{0,2}", r"(?:st|nd|rd|th|er|\.?[oa°])?"
_YEAR = re.compile(r"[1-9][0-9]{3}(?![0-9])(?<![0-9]{5})")  # begins with a digit: fast to search for
_BEFORE = 40  # characters before a year that may belong to its date
_BESIDE_YEAR = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<joint>[-./_]) ?(?P<month>\d{{1,2}})(?P=joint) ?{_DAY}(?!\d)",
        rf" ?[年년] ?(?P<month>\d{{1,2}}) ?[月월](?: ?{_DAY} ?[日號号일])?",
        r"(?<!\d)(?<!\d[./-])(?P<first>\d{1,2})(?P<joint>[-./_]) ?(?P<second>\d{1,2})(?P=joint) ?$",
        rf"{_NAME}{_GAP}{_DAY}{_TH}{_GAP}$",
        rf"(?:(?<!\d){_DAY}{_TH}{_GAP}(?:de |of |d['’])?)?{_NAME}{_GAP}(?:del? |of )?$",
        rf"(?:(?<!\d){_DAY} )?tháng (?P<month>\d{{1,2}})(?:,? (?:năm )?|/)$",
        rf"[ _.-]{{1,2}}(?:m\. )?(?P<name>{_LETTER}{{4,13}}){_GAP}{_DAY}(?!\d)",
        r"-(?P<month>0[1-9]|1[0-2])(?!\d|[-./]\d)",
        r"(?<!\d)(?<!\d[./-])(?P<month>0[1-9]|1[0-2])[./]$",
    )
)
"""The forms of a date before a year, up to its beginning, or behind it. Forms with a day come first."""
_WORDS = frozenset({"set", "out", "ago"})  # short names of months that are more often words
_RECENT = range(1900, 2100)  # years after which a bare number is a month: 03/2025


class Day(NamedTuple):
    """A day, or a month if `day` is 0."""

    year: int
    month: int
    day: int

    @property
    def month_digits(self) -> str:
        """Its month as one number: 202503."""
        return f"{self.year}{self.month:02}"

    @property
    def digits(self) -> str:
        """As one number: 20250308."""
        return f"{self.month_digits}{self.day:02}" if self.day else self.month_digits


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """The position of a date in a text, and its readings: two days if month and day can't be told apart."""

    start: int
    end: int
    readings: tuple[Day, ...]


def dates_in(text: str) -> Iterator[WrittenDate]:
    """The dates of a text in NFKC that have a year, and a month at least.

    Examples: "8. März 2025", "March 8th, 2025", "2025年3月8日", "08.03.2025", "2025-03-08" -> 8 March 2025;
    "03/04/2025" -> 4 March and 3 April; "mars 2025", "2025-03" -> March 2025.
    """
    end = 0
    for match in _YEAR.finditer(text):
        if date := _date_around(text, match, end):
            end = date.end
            yield date


def _date_around(text: str, year: re.Match[str], after: int) -> WrittenDate | None:
    start, end = year.span()
    before = text[max(after, start - _BEFORE) : start]
    for pattern in _BESIDE_YEAR:
        is_before = pattern.pattern.endswith("$")
        match = pattern.search(before) if is_before else pattern.match(text, end)
        if match and (readings := _readings(int(year[0]), match.groupdict())):
            first = start - len(before) + match.start() if is_before else start
            return WrittenDate(first, end if is_before else match.end(), readings)
    return None


def _readings(year: int, parts: dict[str, str | None]) -> tuple[Day, ...]:
    """The days of the calendar that the parts of a date may mean."""
    name, first, second, month, day = (
        parts.get(key) or "" for key in ("name", "first", "second", "month", "day")
    )
    if name:
        pairs = [(str(number), day) for number in _months_named(name) if day or name.casefold() not in _WORDS]
    elif first:
        pairs = [(second, first), (first, second)][: 1 if parts["joint"] == "." else 2]
    else:
        pairs = [(month, day)] if day or year in _RECENT else []
    days = dict.fromkeys(Day(year, int(month), int(day or 0)) for month, day in pairs)
    return tuple(
        day for day in days if day.month in range(1, 13) and day.day <= monthrange(year, day.month)[1]
    )


def _bare(name: str) -> str:
    """A name in small letters without marks, as people often type it."""
    return "".join(letter for letter in normalize("NFD", name.casefold()) if category(letter) != "Mn")


_NAMES_OF_MONTHS = [
    re.compile("|".join(names.replace("*", r"\w{0,5}").split()))
    for names in _bare(_MONTHS.read_text("utf-8")).split("|")
]


@lru_cache(1024)
def _months_named(name: str) -> tuple[int, ...]:
    """The numbers of the months of this name: "March" -> 3; "listopad" -> 10 in Croatian, and 11."""
    bare = _bare(name)
    return tuple(month for month, names in enumerate(_NAMES_OF_MONTHS, 1) if names.fullmatch(bare))
