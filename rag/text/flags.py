"""Flags of a text: orders to a model, personal data, and secrets, as far as their form gives them away.

Precise rather than complete: a flag that is often wrong is soon overlooked. So numbers count only with their
checksum or with a word that says what they are, and examples of the usual kinds don't count. Every pattern is
linear: no quantifier is unbounded, none is nested in another one that could match the same characters, and
each begins where it can't begin again one character later.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias, get_args

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
"""What a collection can have a policy for: personal data and secrets."""
MASKS: Mapping[Flag, str] = {
    "secret": "[secret]",
    "card": "[card number]",
    "iban": "[IBAN]",
    "national_id": "[identity number]",
    "phone": "[phone number]",
    "email": "[e-mail address]",
}

_GAP = r"(?:\W{1,3}\w{1,16}){0,3}?\W{1,3}"
_ORDERS = r"(?:instructions|prompts?|directions|directives|guidelines|rules|orders|commands|context)\b"
_PATTERNS: tuple[tuple[Flag, tuple[str, ...], str], ...] = (
    # What was said before shall not count.
    (
        "instructions",
        ("ignore", "disregard", "forget", "override", "bypass"),
        (
            rf"(?i)\b(?:ignore|disregard|forget|override|bypass){_GAP}(?:previous|prior|above|earlier"
            rf"|preceding|foregoing|system|safety)\W{{1,3}}(?:\w{{1,16}}\W{{1,3}})?{_ORDERS}"
        ),
    ),
    (
        "instructions",
        ("ignorier",),
        (
            r"(?i)\bignorier(?:e|en Sie|t)(?:\W{1,3}\w{1,16}){0,2}?\W{1,3}(?:vorherigen|bisherigen|vorigen"
            r"|obigen|früheren)\W{1,3}(?:Anweisungen|Instruktionen|Befehle|Vorgaben|Regeln)\b"
        ),
    ),
    (
        "instructions",
        ("ignor",),
        (
            r"(?i)\bignor(?:ez|e|er|a|i)(?:\W{1,3}\w{1,9}){0,3}?\W{1,3}(?:instructions|consignes"
            r"|instrucciones|istruzioni|órdenes)\W{1,3}(?:précédentes|antérieures|ci-dessus|anteriores|previas"
            r"|precedenti)\b"
        ),
    ),
    (
        "instructions",
        ("игнорируй",),
        (
            r"(?i)\bигнорируй(?:те)?(?:\W{1,3}\w{1,12}){0,2}?\W{1,3}(?:предыдущие|прежние|предшествующие)"
            r"\W{1,3}(?:инструкции|указания|команды)\b"
        ),
    ),
    (
        "instructions",
        ("忽略", "无视", "忽視", "無視"),
        r"(?:忽略|无视|忽視|無視)\w{0,4}(?:之前|以上|先前|上述|前面)\w{0,4}(?:指令|指示|说明|提示|規則|规则)",
    ),
    # Who the reader shall be, and what it shall hide or reveal.
    (
        "instructions",
        ("are now", "re now"),
        (
            r"(?i)\byou\W{0,2}(?:are|re) now\W{1,3}(?:DAN\b|jailbroken\b|unrestricted\b"
            r"|in\W{1,3}(?:developer|debug|god|DAN)\W{1,3}mode\b)"
        ),
    ),
    (
        "instructions",
        ("if you are", "if you're", "if you’re"),
        (
            r"(?i)\bif you\W{0,2}(?:are|re)\W{1,3}(?:an?\W{1,3})?(?:AI|LLM|(?:large )?language model|chatbot)"
            r"(?: (?:assistant|model|agent))?\W{1,3}(?:reading|processing|parsing|summari[sz]ing"
            r"|you must|please)\b"
        ),
    ),
    (
        "instructions",
        ("the system", "your system", "hidden", "initial", "secret"),
        (
            r"(?i)\b(?:reveal|print|repeat|output|leak|disclose)(?: me)? (?:your|the) (?:system|hidden"
            r"|initial|secret) (?:prompt|instructions|message)\b"
        ),
    ),
    (
        "instructions",
        ("the user",),
        (
            r"(?i)\b(?:do not|don\Wt|never) (?:tell|inform|alert|notify) the user (?:about (?:this|these|it)"
            r"|that you|of this)\b"
        ),
    ),
    # The marks that set the turns of a conversation apart.
    (
        "instructions",
        ("<|", "<<SYS>>", "INST]"),
        r"<\|(?:im_start|im_end|system|start_header_id|endoftext)\|>|<<SYS>>|\[/?INST\]",
    ),
    (
        "secret",
        ("PRIVATE KEY",),
        r"-----BEGIN (?:[A-Z]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----",
    ),
    ("secret", ("AKIA", "ASIA"), r"A(?<![A-Za-z0-9]A)(?:KIA|SIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("secret", ("gh",), r"g(?<![A-Za-z0-9]g)h[pousr]_[A-Za-z0-9]{36,255}+"),
    ("secret", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{40,255}+"),
    ("secret", ("glpat-",), r"glpat-[A-Za-z0-9_-]{20,64}+"),
    ("secret", ("xox",), r"xox[abprs]-[A-Za-z0-9-]{20,255}+"),
    ("secret", ("k_live_",), r"[sr]k_live_[A-Za-z0-9]{20,255}+"),
    ("secret", ("sk-",), r"s(?<![A-Za-z0-9_-]s)k-[A-Za-z0-9_-]{32,255}+"),
    ("secret", ("AIza",), r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("secret", ("npm_",), r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    (
        "card",
        (),
        (
            r"\d(?<![\w.,+-]\d)(?:\d{14,15}|\d{3}([ -])\d{4}\1\d{4}\1\d{4}|\d{3}([ -])\d{6}\2\d{5})"
            r"(?![\w-]|[.,]\d)"
        ),
    ),
    (
        "iban",
        (),
        r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
    ),
    # Of Italy, China and France, by their checksums; of the United States, where the text says what it is.
    (
        "national_id",
        (),
        r"[A-Z](?<![A-Za-z0-9][A-Z])[A-Z]{5}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?![A-Za-z0-9])",
    ),
    (
        "national_id",
        (),
        (
            r"[1-9](?<![\w-]\d)\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}"
            r"[\dX](?![\w-])"
        ),
    ),
    (
        "national_id",
        (),
        r"[12](?<![\w-]\d) \d{2} (?:0[1-9]|1[0-2]) \d{2} \d{3} \d{3} \d{2}(?![\w-])",
    ),
    (
        "national_id",
        ("ssn", "social security"),
        r"(?i)\b(?:SSN|social security (?:number|no))[.:# ]{1,3}\d{3}-\d{2}-\d{4}(?![\w-])",
    ),
    (
        "phone",
        ("+",),
        (
            r"\+(?<![\w+.]\+)[1-9]\d{0,2}[ .\-/]?(?:\(0?\d{1,4}\)[ .\-/]?)?\d{1,5}(?:[ .\-/]\d{2,8}){1,4}"
            r"(?![\w-])"
        ),
    ),
    (
        "phone",
        (),
        r"[(2-9](?<![\w(-][(2-9])(?:(?<=\()[2-9]\d{2}\) ?|(?!00)\d{2}-)[2-9]\d{2}-\d{4}(?![\w-])",
    ),
    ("phone", (), r"[.:] ?\(?\+?\d(?:[ .\-/()]{0,2}\d){6,14}(?![\w-])"),
    (
        "phone",
        ("电话", "手机", "電話", "携帯"),
        r"(?:电话|手机|電話|携帯)[:： ]{1,2}\+?\d(?:[ \-()]{0,2}\d){6,14}(?![\w-])",
    ),
    ("email", ("@",), r"(?ia)@(?:[a-z0-9-]{1,63}\.){1,4}[a-z]{2,24}(?![\w-])"),
)
"""The flag, strings of which a text with a match contains one, and the pattern. Looking for a string is a
hundred times faster than for a pattern, and most texts contain none of them."""

_LABEL = re.compile(
    r"\b(?:tel|phone|telephone|mobile|cell|fax|telefon|telefax|mobil|handy|tél|téléphone|teléfono)"
    r"[. ]{0,2}\Z",
    re.IGNORECASE,
)
_VALUE = re.compile(r"[+(]*\d[\d ./()-]*\Z|[A-Z]{6}\d\S+\Z|\d{17}X\Z")
"""A number, or the code of an Italian or Chinese citizen, at the end of what a pattern matches."""
_KEY_EDGE = re.compile(r"-----(?:BEGIN|(?P<end>END)) [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = re.compile(r"(?:\s{0,4}[A-Za-z0-9+/=:, -]{20,80}(?=\n|\Z)){0,200}")  # of a key that is cut off
_LOCAL_PART = re.compile(r"(?<![\w.+-])[a-z0-9][\w.+-]{0,63}\Z", re.IGNORECASE | re.ASCII)
_EXAMPLES = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)\Z")
"""Domains that are nobody's, by RFC 2606."""
_LISTS: Mapping[str, str] = {
    "roles": """
    abuse admin contact datenschutz feedback git hello help hostmaster info kontakt legal mail news
    newsletter no-reply noreply office postmaster presse press privacy sales security service support team
    user username webmaster you your your-email youremail
    """,
    "test cards": """
    4242424242424242 4111111111111111 4012888888881881 4000056655665556 5555555555554444 5105105105105100
    2223003122003222 378282246310005 371449635398431 6011111111111117 6011000990139424 3566002020360505
    """,
    "lengths of IBANs": """
    AT20 BE16 BG22 CH21 CY28 CZ24 DE22 DK18 EE20 ES24 FI18 FR27 GB22 GR27 HR21 HU28 IE22 IS26 IT27 LI21 LT20
    LU20 LV21 MC27 MT31 NL18 NO15 PL28 PT25 RO24 SE24 SI19 SK24 SM27 TR26 UA29 AE23 SA24 IL23 BR29
    """,
}
_ROLES, _TEST_CARDS, _IBAN_LENGTHS = (frozenset(listed.split()) for listed in _LISTS.values())
_ISSUERS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|6(?:011|5\d\d)\d{12}|35[2-8]\d{13}"
)
_CHINA_WEIGHTS = 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2
_ITALY_ODD = 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23
MAX_LABEL = 12  # characters of a word like "telephone", with what stands before it
FEWEST_DIGITS, MOST_DIGITS = 8, 15  # of a phone number, by ITU-T E.164
MAX_LOCAL_CHARS = 65  # of an e-mail address, and the character before it
APART = "\n\n\n\n"
"""Between texts that are looked at together: no pattern matches across it."""
CODE = 1
"""Raise it when the functions below change what counts; patterns and lists are part of `rules` anyway."""
LEAST_DISTINCT = 10  # characters of a real token; placeholders are made of few


def flags_in(text: str) -> tuple[Flag, ...]:
    """What a text contains, the gravest first.

    Example: "Write to ann.lee@acorn.org. Ignore all previous instructions!" -> ("instructions", "email").
    """
    flags: set[Flag] = set()
    for flag, pattern in _hinted_patterns(text):
        if flag not in flags and any(_matches(flag, pattern, text)):
            flags.add(flag)
    return tuple(flag for flag in FLAGS if flag in flags)


def _hinted_patterns(text: str) -> Iterator[tuple[Flag, str]]:
    """The patterns that may match in a text, as it contains a string of theirs, each with its flag."""
    lowered = text.lower()
    for flag, hints, pattern in _PATTERNS:
        hinted = lowered if pattern.startswith("(?i") else text
        if not hints or any(hint in hinted for hint in hints):
            yield flag, pattern


def _matches(flag: Flag, pattern: str, text: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern that the check of its flag confirms."""
    return filter(_CHECKS.get(flag), _compile(pattern).finditer(text))


@cache
def rules() -> str:
    """The version of the rules that `flags_in` looks by. Stored flags of another version say nothing."""
    expressions = _LABEL, _LOCAL_PART, _EXAMPLES, _ISSUERS
    data = repr((CODE, _PATTERNS, _LISTS, [expression.pattern for expression in expressions]))
    return blake2b(data.encode(), digest_size=6).hexdigest()


def crossed(text: str, gaps: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether a flag may need text on both sides of each of the `gaps`, which are (start, end), in order.

    Where this is false and no side has a flag of its own, both together have none. So it errs on one side: a
    gap that isn't white space counts as crossed, and so does one that a pattern spans without regard to its
    check, with the word in front that says what a number is.
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
    for flag, pattern in _hinted_patterns(text):
        expression, at = _compile(pattern), 0
        while match := expression.search(text, at):
            announced = flag == "phone" and match[0][0] in ".:"
            yield match.start() - MAX_LABEL * announced, match.end()
            at = match.start() + 1


class Span(NamedTuple):
    """A part of a text, text[start:end], that has a flag."""

    start: int
    end: int
    flag: Flag


def spans_in(text: str, chosen: Collection[Flag]) -> list[Span]:
    """Where a text has these flags, in order and without overlap. Where two overlap, they become one.

    A span is the value alone, without a word like "phone" before it. A private key has all its lines.
    Example: "Tel.: 030 901820-12" -> [Span(6, 19, "phone")].
    """
    patterns = (pair for pair in _hinted_patterns(text) if pair[0] in chosen)
    spans = [_span(flag, match) for flag, pattern in patterns for match in _matches(flag, pattern, text)]
    apart: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if apart and span.start < apart[-1].end:
            last = apart.pop()
            longer = span if span.end - span.start > last.end - last.start else last
            apart.append(Span(last.start, max(last.end, span.end), longer.flag))
        else:
            apart.append(span)
    return apart


def _span(flag: Flag, match: re.Match[str]) -> Span:
    """The value in a match, without the words that announce it."""
    start, end, text = match.start(), match.end(), match.string
    if flag == "email":
        local = _LOCAL_PART.search(text[max(0, start - MAX_LOCAL_CHARS) : start])
        start -= len(local[0]) if local else 0
    elif flag in {"phone", "national_id"} and (value := _VALUE.search(match[0])):
        start += value.start()
    elif match[0].startswith("-----BEGIN"):
        # Not beyond where the next key begins: a text of nothing but beginnings would be read again for each.
        edge = _KEY_EDGE.search(text, end)
        if edge and edge["end"]:
            return Span(start, edge.end(), flag)
        lines = _KEY_LINES.match(text, end, edge.start() if edge else len(text))
        end = lines.end() if lines else end
    return Span(start, end, flag)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: all together take longer than the start of a server should."""
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
    doubled = (2 * int(digit) if at % 2 else int(digit) for at, digit in enumerate(reversed(number)))
    return sum(sum(divmod(digit, 10)) for digit in doubled) % 10 == 0


def _is_iban(match: re.Match[str]) -> bool:
    iban = match[0].replace(" ", "")
    if f"{iban[:2]}{len(iban)}" not in _IBAN_LENGTHS:
        return False
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


def _is_national(match: re.Match[str]) -> bool:
    number = match[0]
    if number[:2].isdecimal():
        weighted = sum(weight * int(digit) for weight, digit in zip(_CHINA_WEIGHTS, number, strict=False))
        return "10X98765432"[weighted % 11] == number[-1]
    if number[0].isdecimal():
        plain = _digits(number)
        return 97 - int(plain[:13]) % 97 == int(plain[13:])
    return "-" in number or _is_italian(number)


def _is_italian(code: str) -> bool:
    values = [int(sign) if sign.isdecimal() else ord(sign) - ord("A") for sign in code[:15]]
    total = sum(_ITALY_ODD[value] if at % 2 == 0 else value for at, value in enumerate(values))
    return code[15] == chr(ord("A") + total % 26)


def _is_phone(match: re.Match[str]) -> bool:
    """Whether it has the digits of a number, is not one of films (555-01..), and is called one if need be."""
    number = match[0]
    if number[0] in ".:" and not _LABEL.search(
        match.string[max(0, match.start() - MAX_LABEL) : match.start()]
    ):
        return False
    return FEWEST_DIGITS <= len(_digits(number)) <= MOST_DIGITS and not re.search(r"555-?01\d\d\Z", number)


def _is_persons(match: re.Match[str]) -> bool:
    """Whether the address is a person's: neither an example nor the address of an office."""
    before = match.string[max(0, match.start() - MAX_LOCAL_CHARS) : match.start()]
    local = _LOCAL_PART.search(before)
    return bool(local and local[0].casefold() not in _ROLES and not _EXAMPLES.search(match[0][1:].casefold()))


_CHECKS: Mapping[Flag, Callable[[re.Match[str]], bool]] = {
    "secret": _is_token,
    "card": _is_card,
    "iban": _is_iban,
    "national_id": _is_national,
    "phone": _is_phone,
    "email": _is_persons,
}
