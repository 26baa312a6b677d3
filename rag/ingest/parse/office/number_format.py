"""Number formats of spreadsheets: 0.256 as "25.6%", 45413 as "2024-05-01"."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

BUILT_IN = {
    0: "General",
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    14: "yyyy-mm-dd",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "yyyy-mm-dd h:mm",
    37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)",
    41: "#,##0;(#,##0);-",
    42: "$#,##0;$(#,##0);$-",
    43: "#,##0.00;(#,##0.00);-",
    44: "$#,##0.00;$(#,##0.00);$-",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
}
"""Formats that files name by number. Excel shows 14 and 22 in the order of the user's country; ISO 8601 is
clear everywhere."""

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]-]*)[^\]]*\]'
    r"|\[(?P<elapsed>h+|m+|s+)\]|\[[^\]]*\]|(?P<general>General)|(?P<half>AM/PM|A/P|am/pm|a/p)"
    r"|(?P<scientific>E[+-]0+)|(?P<fraction>[#?0]+\s*[#?0]*/\s*[#?\d]+)|(?P<date>y+|m+|d+|h+|s+)(?P<split>\.0+)?"
    r"|(?P<digits>[0#?][0#?,.]*|\.[0#?]+)|(?P<percent>%)|(?P<text>@)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_LAST_DAY = 2_958_465.999_99  # 9999-12-31
_MAX_DECIMALS = 15
_MAX_FORMAT = 255  # characters, as in Excel


class _Token(NamedTuple):
    kind: str
    text: str


def formatted(number: float, form: str, *, since_1904: bool = False) -> str:
    """A number in a format such as "#,##0.00;[Red](#,##0.00)", in English notation.

    A format that can't be parsed has no effect.
    """
    sections = _sections(form[:_MAX_FORMAT])
    at = 0
    if number < 0 and len(sections) > 1:
        at = 1
    elif number == 0 and len(sections) > 2:  # noqa: PLR2004 positive, negative, zero
        at = 2
    tokens = sections[at]
    kinds = {token.kind for token in tokens}
    if kinds & {"date", "elapsed"}:
        return _date(number, tokens, since_1904=since_1904)
    size = abs(number) if at == 1 else number
    if "digits" not in kinds and "fraction" not in kinds:
        return "".join(
            general_format(size) if token.kind in {"general", "text"} else token.text for token in tokens
        ).strip()
    return _number(size, tokens).strip()


def general_format(number: float) -> str:
    """A number without a format: "12", "0.3", "1.5E+20"."""
    if number == int(number) and abs(number) < 1e15:  # noqa: PLR2004 digits of a float
        return str(int(number))
    return f"{number:.10g}".replace("e", "E")


def is_date(form: str) -> bool:
    """Whether a format shows a date or a time."""
    return any(token.kind in {"date", "elapsed"} for token in _sections(form[:_MAX_FORMAT])[0])


@lru_cache(maxsize=512)
def _sections(form: str) -> list[list[_Token]]:
    sections: list[list[_Token]] = [[]]
    for match in _TOKEN.finditer(form or "General"):
        kind, text = match.lastgroup or "", match[0]
        if kind == "split":
            sections[-1] += [_Token("date", match["date"].lower()), _Token("split", match["split"])]
        elif kind == "other" and text == ";":
            sections.append([])
        elif kind in {"quoted", "escaped", "currency", "elapsed"}:
            sections[-1].append(_Token("elapsed" if kind == "elapsed" else "literal", match[kind] or ""))
        elif kind == "other":
            sections[-1].append(_Token("literal", text))
        elif kind:
            sections[-1].append(_Token(kind, text.lower() if kind == "date" else text))
    return sections


def _number(number: float, tokens: list[_Token]) -> str:
    percents = sum(token.kind == "percent" for token in tokens)
    digits = [token.text for token in tokens if token.kind == "digits"]
    if len(digits) > 1 and not any("." in digit_group or "," in digit_group for digit_group in digits):
        return _digits_between_marks(number, tokens)
    scientific = any(token.kind == "scientific" for token in tokens)
    texts, first = [], True
    for token in tokens:
        if token.kind == "digits":
            texts.append(_digits(number * 100**percents, token.text, scientific=scientific) if first else "")
            first = False
        elif token.kind == "fraction":
            texts.append(_fraction(number, token.text))
        elif token.kind != "scientific":
            texts.append(token.text)
    return "".join(texts)


def _digits(number: float, pattern: str, *, scientific: bool) -> str:
    whole, point, decimals = pattern.partition(".")
    thousands = len(pattern) - len(pattern.rstrip(","))
    number /= 1000**thousands
    max_decimals, min_decimals = min(len(decimals.rstrip(",")), _MAX_DECIMALS), decimals.count("0")
    if scientific:
        return f"{number:.{max_decimals}E}"
    text = f"{number:{',' if ',' in whole.rstrip(',') else ''}.{max_decimals}f}"
    while max_decimals > min_decimals and text.endswith("0"):
        text, max_decimals = text[:-1], max_decimals - 1
    text = text.removesuffix(".") if not min_decimals else text
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    before, dot, after = text.partition(".")
    zeros = min(whole.count("0"), _MAX_DECIMALS)
    if "," not in before:
        before = before.zfill(zeros)
    if not zeros and before == "0" and dot and point:
        before = ""
    return f"{sign}{before}{dot}{after}"


def _digits_between_marks(number: float, tokens: list[_Token]) -> str:
    """The digits of a number between marks: 5551234 as "000-0000" -> "555-1234"."""
    remaining = f"{abs(number):.0f}"
    texts: list[str] = []
    first = next(at for at, token in enumerate(tokens) if token.kind == "digits")
    for at, token in reversed(list(enumerate(tokens))):
        if token.kind != "digits":
            texts.append(token.text)
            continue
        size = len(remaining) if at == first else len(token.text)
        part, remaining = remaining[-size:] if size else "", remaining[:-size] if size else remaining
        texts.append(part.rjust(token.text.count("0"), "0"))
    return "".join(reversed(texts))


def _fraction(number: float, pattern: str) -> str:
    whole_shown, below = " " in pattern.strip(), pattern.rpartition("/")[2].strip()
    nearest = Fraction(number).limit_denominator(10 ** min(len(below), 4) - 1)
    whole, fraction = divmod(abs(nearest), 1)
    sign = "-" if nearest < 0 else ""
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole} {fraction}" if whole_shown and whole else f"{sign}{abs(nearest)}"


def _date(number: float, tokens: list[_Token], *, since_1904: bool) -> str:
    if not 0 <= number <= _LAST_DAY:
        return general_format(number)
    days = number + 1 if not since_1904 and 1 <= number < 60 else number  # noqa: PLR2004 Excel's 1900-02-29
    start = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 sheets have no zones
    fine = any(token.kind == "split" for token in tokens)
    seconds = round(days * 86_400, 3 if fine else 0)
    try:
        moment = start + timedelta(seconds=seconds)
    except OverflowError:
        return general_format(number)
    halves = any(token.kind == "half" for token in tokens)
    texts = []
    for at, token in enumerate(tokens):
        if token.kind == "date":
            minutes = token.text[0] == "m" and _is_minutes(tokens, at)
            texts.append(_part(token.text, moment, halves=halves, minutes=minutes))
        elif token.kind == "split":
            texts.append(f"{moment.microsecond / 1e6:.{min(len(token.text) - 1, 6)}f}"[1:])
        elif token.kind == "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[token.text[0].lower()]
            texts.append(str(int(round(number * 86_400) // unit)).zfill(len(token.text)))
        elif token.kind == "half":
            texts.append("AM" if moment.hour < 12 else "PM")  # noqa: PLR2004 noon
        elif token.kind != "text":
            texts.append(token.text)
    return "".join(texts).strip()


def _is_minutes(tokens: list[_Token], at: int) -> bool:
    """Whether an "m" after hours or before seconds is minutes, not months."""
    parts = [
        (index, token.text[0].lower())
        for index, token in enumerate(tokens)
        if token.kind in {"date", "elapsed"}
    ]
    position = next(number for number, (index, _) in enumerate(parts) if index == at)
    before = parts[position - 1][1] if position else ""
    after = parts[position + 1][1] if position + 1 < len(parts) else ""
    return len(tokens[at].text) < 3 and (before == "h" or after == "s")  # noqa: PLR2004 "mmm" is a month


def _part(pattern: str, moment: datetime, *, halves: bool, minutes: bool) -> str:
    size = len(pattern)
    match pattern[0]:
        case "y":
            return f"{moment.year:04}" if size > 2 else f"{moment.year % 100:02}"  # noqa: PLR2004 "yy"
        case "d":
            name = _DAYS[moment.weekday()]
            return [str(moment.day), f"{moment.day:02}", name[:3], name][min(size, 4) - 1]
        case "h":
            hour = (moment.hour - 1) % 12 + 1 if halves else moment.hour
            return f"{hour:0{min(size, 2)}}"
        case "s":
            return f"{moment.second:0{min(size, 2)}}"
        case _ if minutes:
            return f"{moment.minute:0{min(size, 2)}}"
        case _:
            name = _MONTHS[moment.month - 1]
            return [str(moment.month), f"{moment.month:02}", name[:3], name, name[0]][min(size, 5) - 1]
