"""How IBANs and phone numbers are written, and the words that say that a phone number follows.

`rag.text.flags` looks for both, and queries name IBANs. What stands here is part of its rules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from unicodedata import normalize

# White space and hyphens in a class of a pattern; and what stands between two groups of a number that the end
# of a line may cut.
SPACE = r" \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
HYPHEN = r"\-\u2010-\u2013"
BETWEEN = rf"[{SPACE}]{{0,2}}(?:[.{HYPHEN}][{SPACE}]?)?(?:\r?\n[{SPACE}]{{0,4}})?"
COUNTRY = (
    r"(?:1(?=\W{0,2}[2-9])|7|2(?:[07]|[1-689]\d)|3(?:[0-469]|[578]\d)|4(?:[013-9]|2\d)|5(?:[1-8]|[09]\d)"
    r"|6(?:[0-6]|[789]\d)|8(?:[1246]|[0578]\d)|9(?:[0-58]|[679]\d))"
)
"""The code of a country in a phone number, by ITU-T E.164."""
_FORMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_IBAN_FORMS: Mapping[str, str] = _FORMS["ibans"]
"""What follows the check digits, by the codes of countries."""


_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}[0-9]{2}(?:[ -]?[0-9A-Za-z]{4}){2,7}(?:[ -]?[0-9A-Za-z]{1,3})?(?!\w)")
_IBAN_GROUP = 4  # characters, as it is printed


def ibans_in(text: str) -> Iterator[re.Match[str]]:
    """The IBANs in a text, each without spaces or in groups of four; their check digits may be wrong."""
    for match in _IBAN.finditer(text):
        number, _ = iban_forms(match[0])
        if _iban_lengths().get(number[:2].upper()) == len(number) or is_iban(number):
            yield match


@cache
def _iban_lengths() -> Mapping[str, int]:
    """The length of the IBANs of each country."""
    return {
        country: len("DE00") + sum(map(int, re.findall(r"\d+", form)))
        for countries, form in _IBAN_FORMS.items()
        for country in countries.split()
    }


def is_iban(number: str) -> bool:
    """Whether the check digits of an IBAN without spaces are right."""
    return int("".join(str(int(character, 36)) for character in number[4:] + number[:4])) % 97 == 1


def iban_forms(iban: str) -> tuple[str, str]:
    """An IBAN without spaces, and in groups of four: "AT611904300234573201" -> "AT61 1904 3002 3457 3201"."""
    whole = re.sub("[ -]", "", iban)
    groups = (whole[first : first + _IBAN_GROUP] for first in range(0, len(whole), _IBAN_GROUP))
    return whole, " ".join(groups)


def iban_ends() -> str:
    """A pattern for what follows the check digits, for each country by a look back at its letters."""
    signs = {"n": "0-9", "a": "A-Za-z", "c": "0-9A-Za-z"}
    ends = []
    for countries, form in _IBAN_FORMS.items():
        codes = "|".join(countries.split() + countries.lower().split())
        parts = re.findall(r"(\d+)([nac])", form)
        end = "".join(rf"(?:{BETWEEN}[{signs[kind]}]){{{count}}}" for count, kind in parts)
        ends.append(rf"(?<=(?:{codes})\d\d){end}")
    return "|".join(ends)


_LABELS: Mapping[str, str] = _FORMS["phone"]["labels"]
_LABEL_ENDS: tuple[str, ...] = tuple(_FORMS["phone"]["ends"])
_LINKS, _VAGUE = (_FORMS["phone"][name] for name in ("links", "vague"))
_DIALLED = re.compile(r"[+(]{0,2}0|\(?\+|\(|(?:1\W)?[2-9]\d\d\W\d{3}\W\d{4}\Z")
_NOT_DIALLED = re.compile(
    r"(?:19|20)\d\d\W{1,3}(?:19|20)\d\d(?!\d)|(?:19|20)\d\d([./-])\d{1,2}\1\d{1,2}(?!\d)"
    r"|\d{1,2}([./-])\d{1,2}\2(?:19|20)\d\d(?!\d)|[1-9]\d{0,2}(?:\.(?:0|1?\d?\d|2[0-4]\d|25[0-5])){3}\Z"
    r"|.*\D000\D000\Z"
)
"""Years, dates, addresses of the internet, and round numbers."""
_GLUE = " \t\u00a0\u2007\u2009\u202f\u3000.:：*_|\"'[()#°№=-"
MAX_LABEL = 48  # characters of a word like "telephone", with what stands before it and after it
RULES = (
    *(_LABELS, _LABEL_ENDS, _LINKS, _VAGUE, _GLUE, MAX_LABEL),
    *(_DIALLED.pattern, _NOT_DIALLED.pattern),
)
"""What `is_called_phone` goes by, for the version of the rules; the rest is in the patterns."""


def is_called_phone(number: re.Match[str]) -> bool:
    """Whether the word before a number says that it is a phone number.

    Example: "Mobile no.: 07700 900123", "call us at 212-717-3298"; not "call 20 000 000".
    """
    text, start = number.string, number.start()
    first = max(0, start - MAX_LABEL)
    before = text[first:start]
    announced = before.rstrip(_GLUE)
    if not announced or announced[-1].isdecimal() or announced[-1] == "\n" or _NOT_DIALLED.match(number[0]):
        return False
    line = announced.rpartition("\n")[2]
    is_cut = first > 0 and line == announced  # the first word may lack its beginning
    words = re.findall(r"\w+", _folded(line))[int(is_cut) :]
    while words and words[-1] in _words(_LINKS):
        words.pop()
    if not words:
        return False
    label, marks = words[-1], before[len(announced) :]
    if label in _words(_VAGUE) and not any(mark in marks for mark in ".:：|="):
        return bool(_DIALLED.match(number[0]))
    return label in _words(*_LABELS.values()) or label.endswith(_LABEL_ENDS)


def _folded(text: str) -> str:
    """In lower case and without accents, which labels in capitals often lack."""
    return re.sub(r"[\u0300-\u036f]", "", normalize("NFD", text.casefold()))


@cache
def _words(*lists: str) -> frozenset[str]:
    return frozenset(_folded(" ".join(lists)).split())
