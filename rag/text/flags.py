"""Flags of a text: orders to a model, personal data, and secrets, recognized by their form.

Precision over recall: a flag that is often wrong is soon ignored. So numbers count only with a valid checksum
or with a word that names them, and usual examples don't count. The patterns are in `flags.toml`.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

from rag.text import number_forms
from rag.text.number_forms import MAX_LABEL, iban_ends, is_called_phone, is_iban

Flag: TypeAlias = Literal["instructions", "secret", "card", "iban", "national_id", "phone", "email"]
FLAGS: tuple[Flag, ...] = get_args(Flag)
"""All flags, the gravest first."""
IN_WORDS: Mapping[Flag, str] = {
    "instructions": "text that looks like instructions to a model",
    "secret": "a private key or an API token",
    "card": "a payment card number",
    "iban": "an IBAN",
    "national_id": "a national identity number",
    "phone": "a phone number",
    "email": "an e-mail address",
}

PERSONAL: tuple[Flag, ...] = FLAGS[1:]
"""The flags that a collection can have a policy for: personal data and secrets."""
MASKS: Mapping[Flag, str] = {
    "secret": "[secret]",
    "card": "[card number]",
    "iban": "[IBAN]",
    "national_id": "[identity number]",
    "phone": "[phone number]",
    "email": "[e-mail address]",
}

# Letters of addresses: of scripts that part words by spaces (with accents that stand apart); and of others.
_ALPHA = (
    r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0300-\u036f\u0370-\u0373\u0376-\u037d\u0386\u0388-\u0556"
    r"\u0561-\u0587\u05d0-\u05ea\u0620-\u0669\u0671-\u06d3\u0900-\u0963\u0966-\u0dff\u10a0-\u10ff\u1e00-\u1fff"
)
_RUN_ON = (
    r"\u0e01-\u0eff\u1000-\u109f\u1780-\u17d3\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe\u3400-\u9fff"
    r"\uac00-\ud7a3\uf900-\ufaff"
)
_PARTS = {"ALPHA": _ALPHA, "RUN_ON": _RUN_ON, "IBAN_ENDS": iban_ends(), **vars(number_forms)}
"""What patterns call by ${NAME}."""
_RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_LISTS: Mapping[str, str] = _RULES.pop("lists")
_PATTERNS: tuple[tuple[Flag, tuple[str, ...], str], ...] = tuple(
    (cast("Flag", flag), (*entry.get("hints", ()),), Template("".join(entry["pattern"])).substitute(_PARTS))
    for flag, entries in _RULES.items()
    for entry in entries
)
"""The flag, its hints (a text without any of these strings has no match), and the pattern."""

_SSN = re.compile(r"\d{3}\W\d{2}\W\d{4}\Z")
_FICTIONAL = re.compile(r"(?:(?:\+|00\W?)?1\W{0,2})?\(?[2-9]\d\d\W{0,2}555\W?01\d\d")
"""Numbers of the North American plan that nobody has."""
_KEY_EDGE = re.compile(r"-----(?:BEGIN|(?P<end>END)) [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = re.compile(r"(?:\s{0,4}[A-Za-z0-9+/=:, -]{20,80}(?=\n|\Z)){0,200}")  # of a key that is cut off
_LOCAL_PART = re.compile(
    rf"(?<![0-9{_ALPHA}_.+-])[_.+-]{{0,3}}((?:[oO]['’])?[0-9{_ALPHA}][0-9{_ALPHA}_.+-]{{0,63}})\Z"
    rf"|(?<![0-9{_ALPHA}{_RUN_ON}_.+-])([{_RUN_ON}]{{1,16}})\Z"
)
"""Of an e-mail address. Words of scripts without spaces that stand right before it don't belong to it."""
_EXAMPLES = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)\Z")
"""Domains that RFC 2606 reserves."""
_ROLES, _TEST_CARDS = (frozenset(listed.split()) for listed in _LISTS.values())
_ISSUERS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|6(?:011|5\d\d)\d{12}|35[2-8]\d{13}"
)
_DOUBLED = str.maketrans("0123456789", "0246813579")  # and the digits of the result added, as Luhn has it
_CHINA_WEIGHTS = 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2
_ITALY_ODD = 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23
FEWEST_DIGITS, MOST_DIGITS = 8, 15  # of a phone number, by ITU-T E.164
LONG_CARD = 16  # digits, in four groups; one of American Express has 15 in three
MAX_LOCAL_CHARS = 70  # of an e-mail address, and what stands before it
APART = "\n\n\n\n"
"""Between texts that are looked at together: no pattern matches across it."""
CODE = 3
"""Raise it when the functions below change what counts; patterns and lists are part of `rules` anyway."""
LEAST_DISTINCT = 10  # characters of a real token; placeholders are made of few


def flags_in(text: str) -> tuple[Flag, ...]:
    """The flags of a text, the gravest first.

    Example: "Write to ann.lee@acorn.org. Ignore all previous instructions!" -> ("instructions", "email").
    """
    flags: set[Flag] = set()
    for flag, pattern in _hinted_patterns(text):
        if flag not in flags and any(_matches(flag, pattern, text)):
            flags.add(flag)
    return tuple(flag for flag in FLAGS if flag in flags)


def _hinted_patterns(text: str) -> Iterator[tuple[Flag, str]]:
    """The patterns that may match in a text, because it contains one of their strings, each with its flag."""
    lowered = text.lower()
    for flag, hints, pattern in _PATTERNS:
        hinted = lowered if pattern.startswith("(?i") else text
        if not hints or any(hint in hinted for hint in hints):
            yield flag, pattern


def _matches(flag: Flag, pattern: str, text: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern that the check of its flag confirms."""
    expression, check, at = _compile(pattern), _CHECKS.get(flag), 0
    while match := expression.search(text, at):
        is_confirmed = check is None or check(match)
        # A value may begin in what only looked like one.
        at = match.end() if is_confirmed else match.start() + 1
        if is_confirmed:
            yield match


@cache
def rules() -> str:
    """The version of the rules that `flags_in` looks by. Stored flags of another version say nothing."""
    expressions = _LOCAL_PART, _EXAMPLES, _ISSUERS
    lists = _LISTS, number_forms.RULES
    data = repr((CODE, _PATTERNS, lists, [expression.pattern for expression in expressions]))
    return blake2b(data.encode(), digest_size=6).hexdigest()


def crossed(text: str, gaps: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether a flag may need text on both sides of each of the `gaps`, which are (start, end), in order.

    If it is false and neither side has a flag, both together have none. So it errs on the safe side: a gap
    counts as crossed if it isn't white space, or if a pattern (with the word that names a number) spans it,
    even if its check would fail.
    """
    possible = sorted(_possible_spans(text))
    starts = [start for start, _ in possible]
    furthest = [0, *accumulate((end for _, end in possible), max)]
    return [
        bool(text[start:end].strip()) or start >= end or furthest[bisect_left(starts, end)] > start
        for start, end in gaps
    ]


def _possible_spans(text: str) -> Iterator[tuple[int, int]]:
    """What could be a match: from any character on, whatever matched before and whatever its check says."""
    for _, pattern in _hinted_patterns(text):
        expression, at = _compile(pattern), 0
        while match := expression.search(text, at):
            yield match.start() - MAX_LABEL * bool(expression.groupindex), match.end()
            at = match.start() + 1


class FlaggedSpan(NamedTuple):
    """A part of a text, text[start:end], that has a flag."""

    start: int
    end: int
    flag: Flag


def spans_in(text: str, chosen: Collection[Flag]) -> list[FlaggedSpan]:
    """The spans of these flags in a text, in order; overlapping ones become one.

    A span is the value alone, without a word like "phone" before it. A private key has all its lines.
    Example: "Tel.: 030 901820-12" -> [FlaggedSpan(6, 19, "phone")].
    """
    patterns = (pair for pair in _hinted_patterns(text) if pair[0] in chosen)
    spans = [_span(flag, match) for flag, pattern in patterns for match in _matches(flag, pattern, text)]
    apart: list[FlaggedSpan] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if apart and span.start < apart[-1].end:
            last = apart.pop()
            longer = span if span.end - span.start > last.end - last.start else last
            apart.append(FlaggedSpan(last.start, max(last.end, span.end), longer.flag))
        else:
            apart.append(span)
    return apart


def _span(flag: Flag, match: re.Match[str]) -> FlaggedSpan:
    """The value in a match, without the words that announce it."""
    start, end, text = match.start(), match.end(), match.string
    if flag == "email":
        start -= len(_local_part(match))
    elif flag == "iban":
        start -= len("DE")
    elif flag == "phone":
        start += match[0].startswith("(") and ")" not in match[0]
    elif flag == "national_id" and (number := _SSN.search(match[0])):
        start += number.start()
    elif match[0].startswith("-----BEGIN"):
        # Stop at the beginning of the next key: otherwise many beginnings would take quadratic time.
        edge = _KEY_EDGE.search(text, end)
        if edge and edge["end"]:
            return FlaggedSpan(start, edge.end(), flag)
        lines = _KEY_LINES.match(text, end, edge.start() if edge else len(text))
        end = lines.end() if lines else end
    return FlaggedSpan(start, end, flag)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compiled on first use: all together would delay the start of a server."""
    return re.compile(pattern, re.MULTILINE)


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdecimal())


def _is_token(match: re.Match[str]) -> bool:
    token = match[0]
    return token.startswith("-----") or ("EXAMPLE" not in token.upper() and len(set(token)) >= LEAST_DISTINCT)


def _is_card(match: re.Match[str]) -> bool:
    number = _digits(match[0])
    if not _ISSUERS.fullmatch(number) or number in _TEST_CARDS:
        return False
    if sum(map(int, number[-1::-2] + number[-2::-2].translate(_DOUBLED))) % 10:
        return False
    has_groups = len(_groups(match[0])) in {1, 3 if len(number) < LONG_CARD else 4}
    is_in_table = "\n" in match[0] and _stands_among_numbers(match)
    return has_groups and _is_in_one_writing(match[0]) and not is_in_table


def _groups(number: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", number)


def _is_in_one_writing(number: str) -> bool:
    """Whether its groups are parted by the same sign, and by the end of a line once at most."""
    signs = {gap.strip() for gap in re.findall(r"[^A-Za-z0-9]+", number)}
    return len(signs) <= 1 and number.count("\n") <= 1


def _stands_among_numbers(match: re.Match[str]) -> bool:
    """Whether more groups of four digits stand around it: rows of a table may look like a card."""
    before = match.string[max(0, match.start() - 8) : match.start()]
    after = match.string[match.end() : match.end() + 8]
    return bool(re.search(r"(?<!\d)\d{4}\s{1,3}\Z", before) or re.match(r"\s{1,3}\d{4}(?!\d)", after))


def _is_iban(match: re.Match[str]) -> bool:
    number = match.string[match.start() - len("DE") : match.end()]
    groups = _groups(number)
    if not _is_in_one_writing(number) or any(len(group) == 1 for group in groups[:-1]):
        return False
    return is_iban("".join(groups))


def _is_national(match: re.Match[str]) -> bool:
    number = match[0]
    if number[:2].isdecimal():
        weighted = sum(weight * int(digit) for weight, digit in zip(_CHINA_WEIGHTS, number, strict=False))
        return "10X98765432"[weighted % 11] == number[-1]
    if number[0].isdecimal():
        plain = _digits(number)
        return 97 - int(plain[:13]) % 97 == int(plain[13:])
    return bool(_SSN.search(number)) or _is_italian(number)


def _is_italian(code: str) -> bool:
    values = [int(sign) if sign.isdecimal() else ord(sign) - ord("A") for sign in code[:15]]
    total = sum(_ITALY_ODD[value] if at % 2 == 0 else value for at, value in enumerate(values))
    return code[15] == chr(ord("A") + total % 26)


def _is_phone(match: re.Match[str]) -> bool:
    """Whether it has enough digits, isn't fictional, and is named as a phone number if need be."""
    number = match[0]
    if not FEWEST_DIGITS <= len(_digits(number)) <= MOST_DIGITS or "000000" in number:
        return False
    is_called = not match.re.groupindex or is_called_phone(match)
    return is_called and not _FICTIONAL.fullmatch(number)


def _local_part(match: re.Match[str]) -> str:
    """What stands before the "@" of an address and belongs to it."""
    local = _LOCAL_PART.search(match.string[max(0, match.start() - MAX_LOCAL_CHARS) : match.start()])
    return local[local.lastindex or 0] if local else ""


def _is_persons(match: re.Match[str]) -> bool:
    """Whether the address is a person's: neither an example nor the address of an office."""
    local = _local_part(match).casefold()
    return bool(local and local not in _ROLES and not _EXAMPLES.search(match[0][1:].casefold()))


_CHECKS: Mapping[Flag, Callable[[re.Match[str]], bool]] = {
    "secret": _is_token,
    "card": _is_card,
    "iban": _is_iban,
    "national_id": _is_national,
    "phone": _is_phone,
    "email": _is_persons,
}
