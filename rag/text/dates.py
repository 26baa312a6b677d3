"""Dates as people write them: in numbers, and in words of 35 languages and more.

And the validity of a document, as its first lines state it: "Gültig ab 01.01.2019", "Last amended 3 May
2024". Every reader goes by it, whatever the time of the file. The words for it are in `validity.toml`.
"""

from __future__ import annotations

import re
import tomllib
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import merge
from itertools import pairwise, product
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple
from unicodedata import category, decimal, normalize, numeric


class Era(NamedTuple):
    """An era, whose months and days are the common ones: its names, short ones first, and its first day."""

    names: tuple[str, str, str]
    first: tuple[int, int, int]

    @property
    def year_0(self) -> int:
        """The common year before its first one."""
        return self.first[0] - 1


JAPANESE_ERAS = (
    Era(("R", "令", "令和"), (2019, 5, 1)),
    Era(("H", "平", "平成"), (1989, 1, 8)),
    Era(("S", "昭", "昭和"), (1926, 12, 25)),
    Era(("T", "大", "大正"), (1912, 7, 30)),
    Era(("M", "明", "明治"), (1868, 1, 25)),
)
"""The newest first."""
REPUBLIC = Era(("民國", "民國", "中華民國"), (1912, 1, 1))
"""The calendar of Taiwan."""
_BUDDHIST, _BUDDHIST_YEARS = 543, range(2400, 2600)  # the years that Thailand is ahead; of its calendar
_YEARS_0 = {
    **{name: era.year_0 for era in JAPANESE_ERAS for name in era.names},
    **dict.fromkeys(("民國", "民国", ""), REPUBLIC.year_0),
    **dict.fromkeys(("พ.ศ.", "ปี"), -_BUDDHIST),
}
_OF_ERA = re.compile(
    r"(?:中[華华])?(?P<mark>令和|平成|昭和|大正|明治|民[國国]|(?:พ\.ศ\.|ปี)(?= ?2[45]\d\d)"
    r"|(?<!\d)(?=1\d\d年(?:度|\d{1,2}月))"
    r"|(?<![A-Za-z0-9])[RHST](?=\d{1,2}(?:年|\.\d{1,2}\.\d{1,2}(?!\.?\d))))"
    r" ?(?P<count>元(?=年)|(?:\d{1,3}|2[45]\d\d)(?!\d))"
)
"""A year of an era: 令和6, 平成元, R6 in R6年 and R6.5.31; 民國113, 113 in 113年度; พ.ศ. 2567."""
_DIGIT = "[一二三四五六七八九]"
_NUMERALS = re.compile(f"[〇零一二三四五六七八九]{{4}}(?=年)|(?<![0-9]){_DIGIT}?十?{_DIGIT}?(?=[年月日号號])")
_EASTERN = re.compile("[\u0e00-\u0e7f\u3040-\u9fff]")  # among other letters, R8.1.2 is a release
_DATE_BY_LETTER = re.compile(r"[RHST]\d{1,2}(?:\.\d{1,2}){2}")

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
    """A day, or a month if `day` is 0, or a year if both are."""

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

    @property
    def iso(self) -> str:
        """As precise as known: 2025-03-08, 2025-03, 2025."""
        return "-".join([str(self.year), *(f"{number:02}" for number in self[1:] if number)])


@dataclass(frozen=True, slots=True)
class WrittenDate:
    """The position of a date in a text, and its readings: two days if month and day can't be told apart."""

    start: int
    end: int
    readings: tuple[Day, ...]


def dates_in(text: str) -> Iterator[WrittenDate]:
    """The dates of a text in NFKC that have a year, and a month at least.

    Examples: "8. März 2025", "March 8th, 2025", "令和7年3月8日", "08.03.2025", "2025-03-08" -> 8 March 2025;
    "03/04/2025" -> 4 March and 3 April; "mars 2025", "2025-03" -> March 2025.
    """
    end = 0
    of_eras = _OF_ERA.finditer(text) if _EASTERN.search(text) else ()
    for match in merge(of_eras, _YEAR.finditer(text), key=methodcaller("start")):
        if match.start() >= end and (date := _date_around(text, match, end)):
            end = date.end
            yield date


def _date_around(text: str, year: re.Match[str], after: int) -> WrittenDate | None:
    start, end = year.span()
    before = text[max(after, start - _BEFORE) : start]
    for pattern in _BESIDE_YEAR:
        is_before = pattern.pattern.endswith("$")
        match = pattern.search(before) if is_before else pattern.match(text, end)
        if match and (readings := _readings(_common_year(year), match.groupdict())):
            first = start - len(before) + match.start() if is_before else start
            return WrittenDate(first, end if is_before else match.end(), readings)
    return None


def in_common_years(text: str) -> str:
    """A text with digits from 0 to 9, and the years of eras as common ones.

    Examples: "令和六年4月1日" -> "2024年4月1日"; "H30年度" -> "2018年度"; "२०२४" -> "2024".
    """
    text = "".join(str(decimal(letter, letter)) for letter in text)
    if not _EASTERN.search(text) and not _DATE_BY_LETTER.fullmatch(text):
        return text
    return _OF_ERA.sub(lambda match: str(_common_year(match)), _NUMERALS.sub(_in_digits, text))


def _in_digits(numerals: re.Match[str]) -> str:
    """Chinese numerals in digits: 二〇二四 -> 2024, 十二 -> 12, 三十 -> 30."""
    tens, ten, units = (
        "".join(f"{numeric(numeral):.0f}" for numeral in part) for part in numerals[0].partition("十")
    )
    return f"{tens or 1}{units or 0}" if ten else tens


def _common_year(year: re.Match[str]) -> int:
    """The common year of a match of `_YEAR` or `_OF_ERA`."""
    if year.re is _YEAR:
        return int(year[0])
    count = 1 if year["count"] == "元" else int(year["count"])
    return _YEARS_0[year["mark"]] + count


def _readings(year: int, parts: dict[str, str | None]) -> tuple[Day, ...]:
    """The days of the calendar that the parts of a date may mean."""
    name, first, second, month, day = (
        parts.get(key) or "" for key in ("name", "first", "second", "month", "day")
    )
    if year in _BUDDHIST_YEARS and (name or first or day):
        year -= _BUDDHIST
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


VALIDITY = "validity"
"""The key of the metadata that has it, as an interval of ISO 8601."""
HEAD = 1_000  # characters: a title, a letterhead, and the lines in which a document says what it is

_TO = r"(?<!\w)(?:bis|do|fino|hasta|through|till?|to|tot|until|até|до|по)(?!\w)"
_LAST_DAY = re.compile(rf"\s{{0,2}}(?:[-–—~〜～至]|から|{_TO}|(?<!\w)(?:al?|au|t/m|jusqu'au)(?!\w))\D{{0,5}}")
"""What stands between the first and the last day of validity."""
_BEFORE_DATE = {
    "replaced": re.compile(  # one colon or border: behind a second one stands the date of something else
        r"[^.;:|\n\d]{0,24}(?:[:|] {0,3}[^.;:,|\n\d]{0,24})?(?:\d+(?:\.\d+)*[^.;:|\n\d]{1,10})?\s{0,3}"
    ),
    "from": re.compile(rf"(?!.*(?:\d|{_TO}))\D{{0,14}}", re.DOTALL),
    "until": re.compile(r"\D{0,14}"),
    "amended": re.compile(r"(?:.|\n(?!\n)){0,80}"),
    "by": re.compile(r"[^:;,|\n\d]{0,60}|\W{0,6}"),
    "label": re.compile(r"\W{0,6}"),
    "version": re.compile(  # a number, signs, and a word like "vom"
        r"(?:[\s:|]{0,4}(?:v|n[ro]\.?|n°)? ?\d{1,3}(?:\.\d{1,3})*(?!\w)|\s?[:|])\W{0,5}"
        rf"(?:(?!{_TO})[^\W\d]{{1,5}}\W{{1,2}})?"
    ),
    "alone": re.compile(r"\W{0,6}"),
}
"""What may stand between words and their date: " ab dem ", " durch Artikel 3 des Gesetzes vom "."""
_BESIDE = {  # what may not stand before words, or in the rest of the line of the words and the date
    "by": re.compile(r"[\w,)\]\"'»”][ *_]*\n"),
    "version": re.compile(r"-\n"),
    "alone": re.compile(r"\w\w"),
}
_TABLE = re.compile(r"\|([^\n]+)\|\n\|[-:| ]+\|\n((?:\|[^\n]*(?:\n|$))+)")
_ACT = re.compile(
    r"\d{4}[a-z]\d{4}(?:-\d+)? ?[—–-] ?[a-z]{2} ?[—–-] ?(?=\d)"
    r"|^[| ]*(?=\d\d?\.\d\d?\.\d{4}[| ]+[a-z]{2}[| ]+[^\n|,.\d]{10,60}[| ]+[lc] ?\d+/\d)",
    re.MULTILINE,
)
"""What stands before the day of an act of the European Union in the line above it, in any language.

Of a consolidated text: "02014L0049 — EN — 09.01.2024"; of an Official Journal: "27.6.2013 EN
Official Journal of the European Union L 176/1".
"""
_NO_COLUMN = frozenset(
    {"version", "until", "replaced"}
)  # kinds of words that don't name a column of first days
_LONGEST_TABLE = 4 * HEAD  # characters up to its end
_YEAR_ALONE = re.compile(r"(?<![\w./-])(?:19|20)\d\d(?!\w|[./-]\d)")
_UNPARTED = "\u3040-\u9fff\uac00-\ud7a3"  # words have no borders there


@cache
def _validity_words() -> re.Pattern[str]:
    """Words on validity, in groups by their kind; a server, which only searches, needn't compile them.

    The kinds are in the order of the file, so that "valid until" goes before "valid".
    """
    phrases_by_kind = tomllib.loads(Path(__file__).with_name("validity.toml").read_text("utf-8"))
    kinds = "|".join(f"(?P<{kind}>{_any_of(phrases)})" for kind, phrases in phrases_by_kind.items())
    return re.compile(rf"(?:(?<!\w)|(?=[{_UNPARTED}]))(?:{kinds})(?:(?!\w)|(?<=['{_UNPARTED}]))")


def _any_of(phrases: str) -> str:
    """A pattern for any of these phrases; long ones go before those that they begin with."""
    templates = filter(None, map(str.strip, re.split(r"[|\n]", phrases.casefold())))
    distinct = {"".join(parts).strip() for template in templates for parts in _spelled_out(template)}
    by_length = sorted(distinct, key=len, reverse=True)
    return "|".join(r"[\s_-]+".join(map(re.escape, phrase.split())) for phrase in by_length)


def _spelled_out(template: str) -> Iterator[tuple[str, ...]]:
    """The parts of each phrase of a template: "date of (issue/approval)" -> ("date of ", "issue"), …."""
    return product(*(part.split("/") for part in re.split(r"[()]", template)))


class _Written(NamedTuple):
    """A date and where it is."""

    start: int
    end: int
    day: Day


def validity_in(text: str) -> str:
    """The first and the last day of validity that the head of a text states; empty if it states none.

    Of several first days, as of a law and its last amendment, or of a table of versions, it is the latest.
    The date of a version that the document replaces, or of its next review, doesn't count.
    Examples: "Gültig ab 01.01.2019 bis 31.12.2020" -> "2019-01-01/2020-12-31"; "Stand: März 2024" ->
    "2024-03/.."; "Valid until 31 December 2023" -> "../2023-12-31".
    """
    beginning = in_common_years(normalize("NFKC", text[:_LONGEST_TABLE])).casefold().replace("’", "'")
    head = beginning[:HEAD]
    words = [*_validity_words().finditer(head)]
    acts = {match.end() for match in _ACT.finditer(head)}
    dates = _written(head) if words or acts else []
    dated = [(match.lastgroup, date) for match in words if (date := _date_of(match, dates))]
    replaced = {date for kind, date in dated if kind == "replaced"}
    starts = {date for kind, date in dated if kind != "until"} - replaced
    starts |= {date for date in dates if date.start in acts}
    first = max((*(date.day for date in starts), *_days_of_versions(beginning)), default=None)
    ends = [date.day for kind, date in dated if kind == "until"] + [
        last.day
        for date, last in pairwise(dates)
        if date in starts and _LAST_DAY.fullmatch(head, date.end, last.start)
    ]
    last = max((day for day in ends if not first or day >= first), default=None)
    return "/".join(day.iso if day else ".." for day in (first, last)) if first or last else ""


def _written(head: str) -> list[_Written]:
    """The dates of a text, and years alone. Of one whose day and month can't be told apart, only the year."""
    dates = [
        _Written(date.start, date.end, first if len(date.readings) == 1 else Day(first.year, 0, 0))
        for date in dates_in(head)
        for first in date.readings[:1]
        if first.year in _RECENT  # 7100-1-9 is the number of a law
    ]
    alone = (
        year
        for year in _YEAR_ALONE.finditer(head)
        if not any(date.start <= year.start() < date.end for date in dates)
    )
    return sorted([*dates, *(_Written(*year.span(), Day(int(year[0]), 0, 0)) for year in alone)])


def _date_of(words: re.Match[str], dates: Sequence[_Written]) -> _Written | None:
    kind = words.lastgroup or ""
    if kind == "behind":
        return next((date for date in dates if date.end <= words.start() <= date.end + 1), None)
    later = (date for date in dates if date.start >= words.end() and (date.day.month or kind == "from"))
    date = next(later, None)
    if date is None or not _BEFORE_DATE[kind].fullmatch(words.string, words.end(), date.start):
        return None
    before, after = words.string[: words.start()], words.string[date.end :]
    beside = before.rpartition("\n")[2] + "\n" + after.partition("\n")[0]
    return None if kind in _BESIDE and _BESIDE[kind].search(beside) else date


def _days_of_versions(beginning: str) -> Iterator[Day]:
    """The days of the versions in tables that begin in the head, by the first column named for dates."""
    for table in _TABLE.finditer(beginning):
        if table.start() >= HEAD:
            return
        names = [_validity_words().fullmatch(name.strip(" *")) for name in table[1].split("|")]
        kinds = [name.lastgroup if name else "" for name in names]
        column = next((at for at, kind in enumerate(kinds) if kind and kind not in _NO_COLUMN), None)
        if "version" in kinds and column is not None:
            for row in table[2].splitlines():
                yield from (date.day for date in _written("".join(row.split("|")[column + 1 : column + 2])))
