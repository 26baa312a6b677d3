"""The validity of a document, as its first lines state it: "Gültig ab 01.01.2019", "Last amended 3 May 2024".

Every reader goes by it, whatever the time of the file. The words for it are in `validity.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from rag.text.dates import Day, dates_in, in_common_years

VALIDITY = "validity"
"""The key of the metadata that has it, as an interval of ISO 8601."""
HEAD = 1_000  # characters: a title, a letterhead, and the lines in which a document says what it is

_BETWEEN = {
    "from": re.compile(
        r"(?!.*(?:\d|(?<!\w)(?:bis|do|fino|hasta|through|till?|to|tot|until|até|до|по)(?!\w)))\D{0,14}",
        re.DOTALL,
    ),
    "until": re.compile(r"\D{0,14}"),
    "amended": re.compile(r".{0,80}"),
    "alone": re.compile(" ?"),
}
"""What may stand between words and their date: " ab dem ", " durch Artikel 3 des Gesetzes vom "."""
_YEAR = re.compile(r"(?<![\w./-])(?:19|20)\d\d(?!\w|[./-]\d)")


_EASTERN = "\u3040-\u9fff\uac00-\ud7a3"  # words have no borders there


def _any_of(phrases: str) -> str:
    """A pattern for any of these phrases; long ones go before those that they begin with."""
    distinct = filter(None, map(str.strip, re.split(r"[|\n]", phrases.casefold())))
    by_length = sorted(distinct, key=len, reverse=True)
    return "|".join(r"[\s_-]+".join(map(re.escape, phrase.split())) for phrase in by_length)


_PHRASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_KINDS = "|".join(f"(?P<{kind}>{_any_of(phrases)})" for kind, phrases in _PHRASES.items())
_WORDS = re.compile(rf"(?:(?<!\w)|(?=[{_EASTERN}]))(?:{_KINDS})(?:(?!\w)|(?<=['{_EASTERN}]))")
"""The kinds are in the order of the file: "valid until" goes before "valid"."""


class _Written(NamedTuple):
    """A date and where it is."""

    start: int
    end: int
    day: Day


def validity_in(text: str) -> str:
    """The first day of validity that the head of a text states; else the last one; empty if it states none.

    Of several first days, as of a law and its last amendment, it is the latest.
    Examples: "Gültig ab 01.01.2019 bis 31.12.2020" -> "2019-01-01/.."; "Stand: März 2024" -> "2024-03/..";
    "Valid until 31 December 2023" -> "../2023-12-31".
    """
    head = in_common_years(normalize("NFKC", text[:HEAD])).casefold().replace("’", "'")
    words = [*_WORDS.finditer(head)]
    dates = _written(head) if words else []
    days = {
        kind: [day for match in words if match.lastgroup == kind and (day := _day_of(match, dates))]
        for kind in _PHRASES
    }
    ends = days.pop("until")
    if starts := [*chain(*days.values())]:
        return f"{max(starts).iso}/.."
    return f"../{max(ends).iso}" if ends else ""


def _written(head: str) -> list[_Written]:
    """The dates of a text, and years alone. Of one whose day and month can't be told apart, only the year."""
    dates = [
        _Written(date.start, date.end, first if len(date.readings) == 1 else Day(first.year, 0, 0))
        for date in dates_in(head)
        for first in date.readings[:1]
    ]
    alone = (
        year
        for year in _YEAR.finditer(head)
        if not any(date.start <= year.start() < date.end for date in dates)
    )
    return sorted([*dates, *(_Written(*year.span(), Day(int(year[0]), 0, 0)) for year in alone)])


def _day_of(words: re.Match[str], dates: Sequence[_Written]) -> Day | None:
    """The day, month or year that belongs to these words."""
    kind = words.lastgroup or ""
    if kind == "behind":
        return next((date.day for date in dates if date.end <= words.start() <= date.end + 1), None)
    later = (date for date in dates if date.start >= words.end() and (date.day.month or kind == "from"))
    date = next(later, None)
    if date is None or not _BETWEEN[kind].fullmatch(words.string, words.end(), date.start):
        return None
    before, after = words.string[: words.start()], words.string[date.end :]
    beside = before.rpartition("\n")[2] + after.partition("\n")[0]
    return None if kind == "alone" and re.search(r"\w\w", beside) else date.day
