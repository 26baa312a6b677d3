"""Cells as the number formats of spreadsheets show them: 0.256 as "25.6%", 45413 as "2024-05-01"."""

from __future__ import annotations

import locale
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import NamedTuple, TypeVar

from rag.ingest.parse.document_parts import toml_beside
from rag.text.dates import JAPANESE_ERAS, REPUBLIC, Era

_DATA = toml_beside(__file__)
BUILT_IN: dict[int, str] = {
    int(number): form for numbers, form in _DATA["built_in"].items() for number in numbers.split()
}
"""Formats that files name by number."""
WORKSHEETS: Mapping[str, str] = _DATA["worksheets"]
"""The languages of Excel by what they call worksheets."""
_SEPARATORS = {
    tag: str.maketrans(",.", marks) for tags, marks in _DATA["separators"].items() for tag in tags.split()
}

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|(?:\\|!(?=[-.,/:%]|[^\x00-\x7f]))(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]-]*)(?:-(?P<locale>[\w-]+))?[^\]]*\]'
    r"|\[(?P<elapsed>h+|m+|s+)\]|\[(?P<condition>(?:<>|[<>]=?|=)[-+.\d]+)\]|\[[^\]]*\]"
    r"|(?P<general>General|G/(?:通用格式|標準|표준))|(?P<half>AM/PM|A/P|上午/下午|午前/午後|오전/오후)|B[12](?=[dmyeg])"
    r"|(?P<scientific>E[+-]0+)|(?P<fraction>[#?0]+\s*[#?0]*/\s*[#?\d]+)|(?P<date>y+|m+|d+|h+|s+)(?P<split>\.0+)?"
    r"|(?P<digits>[0#?][0#?,.]*|\.[0#?]+)|(?P<percent>%)|(?P<text>@)|(?P<calendar>e+|g+|a{3,4})|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_LAST_DAY = 2_958_465.999_99  # 9999-12-31
_MAX_DECIMALS = 15
_MAX_FORMAT = 255  # characters, as in Excel


class _Token(NamedTuple):
    kind: str
    text: str


def formatted(number: float, form: str, *, since_1904: bool = False, language: str = "") -> str:
    """A number in a format such as "#,##0.00;[Red](#,##0.00)".

    Numbers are in the notation of the `language` of the program, as in Excel, whatever the format says; else
    of English. Months and days have their names in the language of the format, else of the program, else in
    English. A format that can't be parsed has no effect. What isn't a number is "#NUM!", as in Excel.
    """
    if not isfinite(number):
        return "#NUM!"
    of_section, is_negative = _section(number, form)
    tokens = [token for token in of_section if token.kind != "locale"]
    kinds = {token.kind for token in tokens}
    is_number = bool(kinds & {"digits", "fraction", "general"})  # whose letters are words, such as a unit
    if kinds & {"date", "elapsed"} or ("calendar" in kinds and not is_number):
        return _date(number, tokens, _language(of_section, language), since_1904=since_1904)
    size = abs(number) if is_negative else number
    marks = _of_language(_SEPARATORS, language) or {}
    if "digits" not in kinds and "fraction" not in kinds:
        return _with(_general_format(size).translate(marks), tokens).strip()
    return _number(size, tokens, marks).strip()


def formatted_text(text: str, form: str) -> str:
    """A text in a format such as '@" Inc."'; one that doesn't say how to show texts has no effect."""
    for tokens in reversed(_sections(form[:_MAX_FORMAT])):
        if text and any(token.kind == "text" for token in tokens):
            return _with(text, [token for token in tokens if token.kind != "locale"])
    return text


def _with(value: str, tokens: Iterable[_Token]) -> str:
    return "".join(value if token.kind in {"general", "text"} else token.text for token in tokens)


def _section(number: float, form: str) -> tuple[list[_Token], bool]:
    """The section of a format that applies to a number, and whether it is for negative numbers.

    They are for positive and negative numbers, zero and text, unless the first or second has a condition:
    then the first whose condition holds applies, else the one after these.
    """
    sections = _sections(form[:_MAX_FORMAT])
    conditions = [_condition(tokens) for tokens in sections[:2]]
    if any(conditions):
        holds = (at for at, condition in enumerate(conditions) if condition and condition(number))
        at = next(holds, 2 if all(conditions) else 1)
        return [token for token in sections[min(at, len(sections) - 1)] if token.kind != "condition"], False
    at = 1 if number < 0 else 2 if number == 0 else 0
    at = at if at < len(sections) else 0
    return sections[at], at == 1


_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


def _condition(tokens: Iterable[_Token]) -> Callable[[float], bool] | None:
    """Whether a number satisfies the condition of a section, like `[<=9999999]`; None without one."""
    text = next((token.text for token in tokens if token.kind == "condition"), "")
    limit = text.lstrip("<>=")
    try:
        compare, bound = _COMPARISONS[text.removesuffix(limit)], float(limit)
    except (KeyError, ValueError):
        return None
    return lambda number: compare(number, bound)


def _general_format(number: float) -> str:
    """A number without a format: "12", "0.3", "1.5E+20"."""
    if number == int(number) and abs(number) < 1e15:  # noqa: PLR2004 digits of a float
        return str(int(number))
    return f"{number:.10g}".replace("e", "E")  # without the noise of a float's last digits


@lru_cache(maxsize=512)
def _sections(form: str) -> list[list[_Token]]:
    sections: list[list[_Token]] = [[]]
    for match in _TOKEN.finditer(form or "General"):
        kind, text = match.lastgroup or "", match[0]
        if kind == "split":
            sections[-1] += [_Token("date", match["date"].lower()), _Token("split", match["split"])]
        elif kind == "other" and text == ";":
            sections.append([])
        elif kind == "locale":
            sections[-1] += [_Token("literal", match["currency"]), _Token("locale", match["locale"])]
        elif kind in {"quoted", "escaped", "currency"}:
            sections[-1].append(_Token("literal", match[kind] or ""))
        elif kind in {"elapsed", "condition"}:
            sections[-1].append(_Token(kind, match[kind]))
        elif kind == "other":
            sections[-1].append(_Token("slash" if text == "/" else "literal", text))
        elif kind:
            sections[-1].append(_Token(kind, text.lower() if kind == "date" else text))
    return sections


def _number(number: float, tokens: list[_Token], marks: dict[int, int]) -> str:
    percents = sum(token.kind == "percent" for token in tokens)
    digits = [token.text for token in tokens if token.kind == "digits"]
    if len(digits) > 1 and not re.search("[.,].", "0".join(digits).rstrip(",")):
        thousands = len(digits[-1]) - len(digits[-1].rstrip(","))
        return _digits_between_marks(number / 1000**thousands, tokens)
    scientific = any(token.kind == "scientific" for token in tokens)
    texts, first = [], True
    for token in tokens:
        if token.kind == "digits":
            text = _digits(number * 100**percents, token.text, scientific=scientific) if first else ""
            texts.append(text.translate(marks))
            first = False
        elif token.kind == "fraction":
            texts.append(_fraction(number, token.text))
        elif token.kind != "scientific":
            texts.append(token.text)
    return "".join(texts)


_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)  # a float has at most 309 digits before its point


def _rounded(number: float, decimals: int) -> Decimal:
    """A number rounded to decimals. Programs round half up, and keep 15 digits: 64.125 -> 64.13."""
    return Decimal(f"{number:.15g}").quantize(Decimal(1).scaleb(-decimals), context=_EXACT)


def _digits(number: float, pattern: str, *, scientific: bool) -> str:
    whole, point, decimals = pattern.partition(".")
    thousands = len(pattern) - len(pattern.rstrip(","))
    number /= 1000**thousands  # a comma behind the digits divides by a thousand
    max_decimals, min_decimals = min(len(decimals.rstrip(",")), _MAX_DECIMALS), decimals.count("0")
    if scientific:
        digits = Context(prec=max_decimals + 1, rounding=ROUND_HALF_UP)
        return f"{float(digits.create_decimal(f'{number:.15g}')):.{max_decimals}E}"
    text = f"{_rounded(number, max_decimals):{',' if ',' in whole.rstrip(',') else ''}f}"
    while max_decimals > min_decimals and text.endswith("0"):
        text, max_decimals = text[:-1], max_decimals - 1
    text = text.removesuffix(".") if not min_decimals else text
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    before, dot, after = text.partition(".")
    zeros = min(whole.count("0"), _MAX_DECIMALS)
    if "," not in before:
        before = before.zfill(zeros)
    if not zeros and before == "0" and (dot or not point):
        before = ""
    return f"{sign}{before}{dot}{after}"


def _digits_between_marks(number: float, tokens: list[_Token]) -> str:
    """The digits of a number between marks: 5551234 as "000-0000" -> "555-1234"."""
    remaining = f"{abs(_rounded(number, 0)):f}"
    texts: list[str] = []
    first = next(at for at, token in enumerate(tokens) if token.kind == "digits")
    for at, token in reversed(list(enumerate(tokens))):
        if token.kind != "digits":
            texts.append(token.text)
            continue
        size = len(remaining) if at == first else len(token.text.rstrip(","))
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


def _date(number: float, tokens: list[_Token], language: _Language, *, since_1904: bool) -> str:
    if not 0 <= number <= _LAST_DAY:
        return _general_format(number)
    days = number + 1 if not since_1904 and 1 <= number < 60 else number  # noqa: PLR2004 Excel's 1900-02-29
    start = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 sheets have no zones
    fine = any(token.kind == "split" for token in tokens)
    seconds = round(days * 86_400, 3 if fine else 0)  # a float of 12:00 may be 11:59:59.9999
    try:
        moment = start + timedelta(seconds=seconds)
    except OverflowError:
        return _general_format(number)
    return "".join(_date_part(number, moment, tokens, at, language) for at in range(len(tokens))).strip()


def _date_part(number: float, moment: datetime, tokens: list[_Token], at: int, language: _Language) -> str:
    token = tokens[at]
    text = token.text
    match token.kind:
        case "date" if len(text) > 2 and text[0] in "dm":  # noqa: PLR2004 "mmm" is a name
            text = _name(text, moment, language)
        case "calendar":
            text = _east_asian(text.lower(), moment, language)
        case "date":
            text = _digits_of(text, moment, tokens, is_minutes=_is_minutes(tokens, at))
        case "split":
            text = f"{moment.microsecond / 1e6:.{min(len(text) - 1, 6)}f}"[1:]
        case "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[text[0].lower()]
            text = str(int(round(number * 86_400) // unit)).zfill(len(text))
        case "half":
            text = text.split("/")[moment.hour >= 12]  # noqa: PLR2004 noon
        case "slash":
            text = language.separator
        case "text":
            text = ""
    return text


def _is_minutes(tokens: list[_Token], at: int) -> bool:
    """Whether an "m" after hours or before seconds is minutes, not months."""
    before, after = (
        next((token.text[0].lower() for token in beside if token.kind in {"date", "elapsed"}), "")
        for beside in (reversed(tokens[:at]), tokens[at + 1 :])
    )
    return tokens[at].text[0] == "m" and (before == "h" or after == "s")


def _digits_of(pattern: str, moment: datetime, tokens: list[_Token], *, is_minutes: bool) -> str:
    """A part of a date or time in digits: "yyyy", "yy", "d", "hh"."""
    size = len(pattern)
    if pattern[0] == "y":
        return f"{moment.year:04}" if size > 2 else f"{moment.year % 100:02}"  # noqa: PLR2004 "yy"
    in_halves = any(token.kind == "half" for token in tokens)
    number = {
        "d": moment.day,
        "m": moment.minute if is_minutes else moment.month,
        "h": (moment.hour - 1) % 12 + 1 if in_halves else moment.hour,
        "s": moment.second,
    }[pattern[0]]
    return str(number) if size == 1 else f"{number:02}"


class _Language(NamedTuple):
    eras: tuple[Era, ...]
    separator: str
    months: tuple[str, ...]
    days: tuple[str, ...]
    short_months: tuple[str, ...]
    short_days: tuple[str, ...]


_NO_SUFFIX = re.compile("星期|曜日|요일")  # of days


@lru_cache
def _languages() -> dict[str, _Language]:
    languages: dict[str, _Language] = {}
    for tag, names in _DATA["names"].items():
        separator, *whole = names.split()
        short = _DATA["short_names"].get(tag, "").split() or [_NO_SUFFIX.sub("", name)[:3] for name in whole]
        of_tag = (tuple(part) for part in (whole[:12], whole[12:], short[:12], short[12:]))
        languages[tag] = _Language((), separator, *of_tag)
    languages["ja"] = languages["ja"]._replace(eras=JAPANESE_ERAS)
    return languages | {"zh-tw": languages["zh"]._replace(eras=(REPUBLIC,))}


def _language(tokens: Iterable[_Token], of_program: str) -> _Language:
    """The language that a format names by its number in Windows or its tag, `[$-407]` or `[$-de-DE]`.

    Without one, it is that of the program. Unknown ones count as English.
    """
    tag = _stated_tag(tokens, least=0) or _untold_language(tokens) or of_program
    languages = _languages()
    return _of_language(languages, tag) or languages["en"]


_OF_PROGRAM = {"x-sysdate", "x-systime"}  # name no language: "[$-x-sysdate]dddd, mmmm dd, yyyy"
_LEAST_LOCALE = 0x400  # smaller numbers are of no country: "[$€-2]"


def _stated_tag(tokens: Iterable[_Token], least: int = _LEAST_LOCALE) -> str:
    """The tag of the language that a format names, or ""."""
    tag = next((token.text for token in tokens if token.kind == "locale"), "")
    if tag.lower() in _OF_PROGRAM:
        return ""
    if not re.fullmatch("[0-9A-F]{1,8}", tag, re.IGNORECASE):
        return tag
    number = int(tag, 16)
    # Other bits choose a calendar, digits or a form: the lowest ten are the language.
    codes = (number & 0xFFFF, number & 0x3FF | 0x400) if number & 0xFFFF >= least else ()
    return next(filter(None, map(locale.windows_locale.get, codes)), "")


def named_language(forms: Iterable[str]) -> str:
    """The language that formats name, "" if they name several or none."""
    tags = {_stated_tag(section) for form in forms for section in _sections(form[:_MAX_FORMAT])} - {""}
    return tags.pop() if len(tags) == 1 else ""


T = TypeVar("T")


def _of_language(table: Mapping[str, T], tag: str) -> T | None:
    """What a table has for a language in a country, else for the language."""
    parts = re.split("[_-]", tag.lower())
    return table.get("-".join(parts[:2])) or table.get(parts[0])


def _untold_language(tokens: Iterable[_Token]) -> str:
    """For eras and "aaa", the East Asian language of words in the format, else Japanese. Otherwise ""."""
    if not any(token.kind == "calendar" and token.text[0] not in "eE" for token in tokens):
        return ""
    words = "".join(token.text for token in tokens if token.kind == "literal")
    return "ko" if re.search("[가-힣]", words) else "zh" if re.search("[周週星]", words) else "ja"


def _name(pattern: str, moment: datetime, language: _Language) -> str:
    """The name of a month or day of the week: "mmm", "dddd"."""
    is_short = len(pattern) == 3  # noqa: PLR2004 "mmm", "ddd"
    if pattern[0] == "d":
        return (language.short_days if is_short else language.days)[moment.weekday()]
    name = (language.short_months if is_short else language.months)[moment.month - 1]
    return name[0] if pattern == "mmmmm" else name


def _east_asian(pattern: str, moment: datetime, language: _Language) -> str:
    """A day of the week, "aaa"; the name of an era, "g" to "ggg", or its year, "e", else the common year."""
    if pattern[0] == "a":
        return _name("d" * len(pattern), moment, language)
    era = next((era for era in language.eras if era.first <= moment.timetuple()[:3]), None)
    if pattern[0] == "g":
        return era.names[min(len(pattern), 3) - 1] if era else ""
    return str(moment.year - (era.year_0 if era else 0)).zfill(len(pattern))
