"""Needles, what exact search looks for: words in any form, quoted phrases, or a regular expression.

A pattern tells whether a text may have them; words are then located in its `folded_text`, as it is stored
and as its reader sees it (`seen_text`).

A regular expression is checked first. RE2 takes time proportional to the text and to the size of the pattern
with its repetitions written out, so that size is limited. Two escapes are refused because they don't work
when a text is matched in windows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import get_args

from rag.answers import Match
from rag.errors import InvalidRequestError
from rag.filters.folded_text import (
    MARKS,
    NOT_A_WORD,
    SOUND_MARKS,
    UNSPACED,
    FoldedText,
    folded,
    folded_text,
    is_in_word,
    is_plain,
    literal_pattern,
    stands_alone,
    without_accents,
)
from rag.filters.seen_text import has_marks, parts_of, seen_pattern, seen_text
from rag.text.plain_text import Span, question_spans, with_replacements, without_hidden


def cleaned_text(text: str) -> str:
    """`text` as stored texts are: composed, without invisible characters and white space around it."""
    return unicodedata.normalize("NFC", without_hidden(text)).strip()


_PAIRS = {
    '"': '"',
    "\uff02": "\uff02",
    "\u201c": "\u201d\u201c",
    "\u201d": "\u201d",
    "\u201e": "\u201c\u201d",
    "\u00ab": "\u00bb",
    "\u00bb": "\u00ab\u00bb",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
"""Each opening mark with its closing marks: English, German, Swedish, French and Japanese."""
QUOTES = frozenset("".join([*_PAIRS, *_PAIRS.values()]))
_OPENS = re.compile(r"[\s(\[{<=:,;/|—–-]")  # may precede an opening mark; a digit may not: 5" pipe
_CLOSES = re.compile(r"[\s)\]}>.,;:!?/|'’—–-]")
_UNSPACED_MARKS = frozenset("\u300c\u300e")
_SPACED_MARKS = frozenset("\u00ab\u00bb")  # French has a space inside


def phrases(query: str) -> tuple[str, ...]:
    """The phrases in quotation marks, each once, in order. A mark without its other half is ordinary text.

    A mark opens a phrase at the beginning or after a space or a bracket, and closes it before a space,
    punctuation or the end. So inches are no quotes.
    Example: '"leave of absence" policy “form A”' -> leave of absence, form A; '5" or 6" pipe' -> nothing.
    """
    return tuple(dict.fromkeys(query[start + 1 : end].strip() for start, end in _phrase_marks(query)))


def without_quotes(query: str) -> str | None:
    """The query with its phrases as ordinary words; None if it has no phrases, or no words besides them.

    Example: '"leave of absence" policy' -> leave of absence policy; '"leave of absence"' -> None.
    """
    quoted = [*_phrase_marks(query)]
    edges = [0, *(at + after for span in quoted for at, after in zip(span, (0, 1), strict=True)), len(query)]
    besides = "".join(query[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    if not quoted or not any(map(str.isalnum, besides)):
        return None
    marks = {at for span in quoted for at in span}
    return "".join(" " if at in marks else character for at, character in enumerate(query)).strip()


_MESSAGE = rf" ?:\s*+(?![{''.join(_PAIRS)}]|\Z)"  # 'the error: "too many requests"' has a phrase
_SIGNS_OF_CODE = (
    r"=>? ?[\"']",  # an assignment, an attribute, a field of a log
    r"[\[{]\s*+[\"']|[\"']\s*+:\s*+[\"'\[{]|\"\.\"|\"\s*+\{|\";[ \t]*$",  # JSON, columns, blocks, statements
    r"\w\([\"']|(?<!\S)(?:-[a-zA-Z]|--[a-z][\w-]*+)[ =][\"']|^[ \t]*+\$ \w",  # a call, an option, a prompt
    r"^[ \t]*+File \"|[0-9]{2}:[0-9]{2}:[0-9]{2}",  # a traceback, a log
    r"\b(?:SELECT|INSERT INTO|DELETE FROM|ALTER TABLE|CREATE TABLE)\b",
    r"(?:(?i:error|exception|fatal|panic|warning|fehler|erreur)|Error(?: [^\s\":]++){1,3}|\w\.[A-Z]\w*+)"
    + _MESSAGE,  # of an error
    r"^[ \t]*+(?:- )?[a-z][\w./-]*+:(?:[ \t][^\n]*+)?\n[ \t]*+(?:- )?[a-z][\w./-]*+:(?=\s)",  # YAML
)
_CODE = re.compile("|".join(_SIGNS_OF_CODE), re.MULTILINE)


def without_marks_of_code(query: str) -> str:
    """The query without the quotation marks of code, logs and errors that are pasted into it.

    If it has a sign of these outside of quotation marks, only sentences that ask have phrases, and none if
    the sign is inside. A space stands for each mark, so that the words stay.
    Example: 'level=error msg="no space"' -> level=error msg= no space ; 'who has "form A"?' stays.
    """
    inside = [(start + 1, end, " " * (end - start - 1)) for start, end in _phrase_marks(query)]
    outside = with_replacements(query, inside)
    if not _CODE.search(outside):
        return query
    asking = [span for span in question_spans(query) if not _CODE.search(outside, *span)]
    edges = [0, *(edge for span in asking for edge in span), len(query)]
    parts = [query[start:end] for start, end in pairwise(edges)]
    parts[::2] = [part.translate(_AS_SPACES) for part in parts[::2]]
    return "".join(parts)


_AS_SPACES = dict.fromkeys(map(ord, QUOTES), " ")


def _phrase_marks(query: str) -> Iterator[Span]:
    """The positions of the opening and the closing mark of each phrase, in order."""
    unclosed: set[str] = set()  # marks without a closing one in the remaining text: each is looked for once
    at = 0
    while at < len(query):
        is_open = query[at] not in unclosed and _is_opening(query, at)
        end = _closing(query, at) if is_open else None
        if end is None:
            unclosed |= {query[at]} if is_open else set()
            at += 1
            continue
        yield Span(at, end)
        at = end + 1


def _is_opening(query: str, at: int) -> bool:
    mark, after = query[at], query[at + 1 : at + 2]
    if mark not in _PAIRS or not after or after in _PAIRS[mark]:
        return False
    if after.isspace() and mark not in _SPACED_MARKS:
        return False
    return mark in _UNSPACED_MARKS or not at or bool(_OPENS.match(query[at - 1]))


def _closing(query: str, opening: int) -> int | None:
    """The position that closes the phrase that opens here; None if nothing does."""
    mark = query[opening]
    for at in range(opening + 2, len(query)):
        if query[at] not in _PAIRS[mark] or (query[at - 1].isspace() and mark not in _SPACED_MARKS):
            continue
        if at + 1 == len(query) or mark in _UNSPACED_MARKS or _CLOSES.match(query[at + 1]):
            return at
    return None


MAX_SIZE = 1000
"""The most steps for a character of text: up to 30 µs, measured on one core."""
INVALID = (
    "The regular expression is not valid. It follows RE2's syntax: without lookaround like (?=…) and without "
    r"references like \1. Put a backslash before ( ) [ ] { } . * + ? | ^ $ to find the character itself, or "
    "use match text."
)
TOO_LARGE = (
    "The regular expression is too large. Repeat fewer times: {{2,50}} rather than {{2,500}}. "
    "A class counts {wide}, another character 1, times each repetition around it; the maximum is {most}."
)
EMPTY = "The regular expression also matches an empty text, so it matches everywhere. Use + rather than *."
_WIDE = 10  # the size of a class of Unicode characters, which is a whole automaton
_TOKEN = re.compile(
    r"(?P<escape>\\(?:[pP](?:\{[^}]*\}|.)|x\{[^}]*\}|.))"
    r"|(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\])"
    r"|(?P<times>\{(?P<least>\d+)(?:(?P<open>,)(?P<most>\d*))?\})"
    r"|(?P<one>.)",
    re.DOTALL,
)
_CLASSES = frozenset((r"\p", r"\P", r"\W", r"\D", r"\S"))
_FREE = frozenset("?*+|^$")
_REFUSED = {r"\A": "^", r"\z": "$", r"\C": "."}


def check_regex(pattern: str) -> None:
    """Check everything about a pattern except its syntax, which RE2 checks.

    Raises:
        InvalidRequestError: it is too large, or has an escape that isn't supported.
    """
    for match in _TOKEN.finditer(pattern):
        if instead := _REFUSED.get(match["escape"] or ""):
            raise InvalidRequestError(f"Regular expressions here have no {match[0]}; use {instead}.")
    if pattern_size(pattern) > MAX_SIZE:
        raise InvalidRequestError(TOO_LARGE.format(wide=_WIDE, most=MAX_SIZE))


def pattern_size(pattern: str) -> int:
    r"""The number of steps of a pattern with its repetitions written out, a class counting `_WIDE`.

    A parenthesis that is not closed or not opened counts as a character; RE2 refuses it.
    Example: "ab{3}" -> 4; "(a.){5}" -> 55; "\pL{0,7}" -> 70; "x{2,}" -> 3.
    """
    groups: list[list[int]] = [[]]
    for match in _TOKEN.finditer(pattern):
        if match["times"] and groups[-1]:
            groups[-1][-1] *= _times(match)
        elif match[0] == "(":
            groups.append([])
        elif match[0] in _FREE:
            continue
        elif match[0] == ")" and len(groups) > 1:
            inside = sum(groups.pop())
            groups[-1].append(inside)
        else:
            groups[-1].append(_weight(match))
    return sum(map(sum, groups))


def _times(match: re.Match[str]) -> int:
    least, maximum = int(match["least"]), int(match["most"] or 0)
    return max(least + bool(match["open"] and not match["most"]), maximum, 1)


def _weight(match: re.Match[str]) -> int:
    is_wide = match["class"] or match[0] == "." or match[0][:2] in _CLASSES
    return _WIDE if is_wide else 1


MAX_NEEDLE_CHARS = 1000
MOST_PARTS = 40  # words and characters between them, in a pattern of what is seen; all took 0.1 s to compile
_WORDS = re.compile(rf"[^\W_{UNSPACED}]+")
_MARK = re.compile(f"[{MARKS}]")
_NO_MARK = f"(?:$|[^{MARKS}{SOUND_MARKS}])"  # follows, which would make the last letter another one


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to search for, or a regular expression.

    A text without a match of `pattern` has none. Only RE2 and the engine's regex run it, because a caller may
    have written it, and both take linear time. Every match contains a match of `core`, which is faster.
    `words` are the words to find in a folded text, empty for a regular expression, and `seen` those to find
    in what a reader sees of it; if `match` asks for whole words, they must also stand alone. In a phrase, the
    punctuation between words doesn't count.
    """

    query: str
    match: Match
    case: bool
    core: str
    pattern: str
    words: str = ""
    seen: str = ""
    is_phrase: bool = False

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in a text, in order, none overlapping another. Not for a regular expression."""
        in_one_form = folded_text(text, case=self.case)
        spans: Iterable[Span] = self._spans_in(text, in_one_form, self.words)
        if self._may_be_seen_in(text, in_one_form.text):
            spans = self._with_seen(spans, text)
        end = 0
        for span in spans:
            if span.start >= end:
                yield span
                end = span.end

    def occurs_in(self, text: str) -> bool:
        """Whether a text has a match. Not for a regular expression."""
        return any(True for _ in self.spans(text))

    def _spans_in(self, text: str, in_one_form: FoldedText, words: str) -> Iterator[Span]:
        at = 0
        while words and (match := in_one_form.find(words, at)):
            span, at = match
            if _is_whole(text, span.end) and (self.match == "text" or stands_alone(text, *span)):
                yield span
                at += len(words)
            else:  # a match that is a part of a word may hide one that begins inside of it
                at += 1

    def _may_be_seen_in(self, text: str, in_one_form: str) -> bool:
        """Whether a text may read otherwise than it is stored, and has all the words."""
        is_plain = not self.is_phrase and self.seen.replace(" ", "").isalnum()
        if not self.seen or (is_plain and not has_marks(text)):
            return False
        return all(word in in_one_form for word in _WORDS.findall(self.seen))

    def _with_seen(self, spans: Iterable[Span], text: str) -> list[Span]:
        seen = seen_text(text, is_phrase=self.is_phrase)
        in_seen = self._spans_in(seen.text, folded_text(seen.text, case=self.case), self.seen)
        return sorted({*spans, *map(seen.origin, in_seen)})


def is_in(text: str, value: str, *, at_end: bool = False) -> bool:
    """Whether a name or a value has a text somewhere, or `at_end`, in any form."""
    searched = fragment(text)
    if is_plain(value):
        return value.casefold().endswith(searched.words) if at_end else searched.words in value.casefold()
    if not at_end:
        return searched.words.strip() in folded(value) and any(searched.spans(value))
    in_one_form = folded_text(value, case=False)
    match = in_one_form.find(searched.words, max(0, len(in_one_form.text) - len(searched.words)))
    return bool(match and match[0].end == len(value))


def needle(query: str, match: Match = "text", *, case: bool = False, is_phrase: bool = False) -> Needle:
    """Check a text to search for, and compile it.

    Raises:
        InvalidRequestError: it is too long, has no visible character, or is a regular expression that is too
            large. Whether its syntax is valid, RE2 finds out (`rag.store.read.text_scan.check_syntax`).
    """
    if match not in get_args(Match):
        raise InvalidRequestError(f"match must be one of {', '.join(get_args(Match))}, not {match!r}.")
    if len(query) > MAX_NEEDLE_CHARS:
        raise InvalidRequestError(
            f"An exact search takes at most {MAX_NEEDLE_CHARS} characters, not {len(query)}. Shorten it."
        )
    if match == "regex":
        check_regex(query)
        pattern = f"(?{'' if case else 'i'}m){query}"
        return Needle(query, match, case, pattern, pattern)
    text = cleaned_text(query)
    if not text:
        raise InvalidRequestError("There is no visible character to search for.")
    core = literal_pattern(text, case=case)
    words = folded_text(text, case=case).text
    seen = folded_text(seen_text(text, is_phrase=is_phrase).text, case=case).text.strip()
    parts = parts_of(seen)
    if len(parts) == 1 and (match == "text" or not is_in_word(seen[0])):
        seen = ""  # marks around it change nothing
    elif seen != words or len(parts) > 1:
        core = f"(?:{core}|{seen_pattern(parts[:MOST_PARTS], case=case, is_phrase=is_phrase)})"
    before = f"(?:^|{NOT_A_WORD})_*" if match == "words" and is_in_word(text[0]) else ""
    after = f"_*(?:$|{NOT_A_WORD})" if match == "words" and is_in_word(text[-1]) else _NO_MARK
    pattern = f"{before}{core}{after}" if len(parts) <= MOST_PARTS else core
    return Needle(query, match, case, core, pattern, words, seen, is_phrase)


@lru_cache(maxsize=1024)
def fragment(text: str) -> Needle:
    """The needle of a part of a name or a value in any form; spaces around it count."""
    core, words = literal_pattern(text, case=False), folded_text(text, case=False).text
    return Needle(text, "text", case=False, core=core, pattern=core + _NO_MARK, words=words)


_APART = "[\\s.,/'()+-]"
_LEAST_DIGITS, _NUMBER_CHARS = 5, range(6, 65)
_IN_FORMULA = r"(?:\s|</?su[bp]>|[\^_~{}])"
"""What may stand within a formula or before a unit: 4.7 kΩ, 10^-3, H~2~O, H<sub>2</sub>O."""
_FORMULA_CHARS = range(2, 65)
_PARTS = re.compile(r"</?su[bp]>|([0-9]+|[^\s^_~{}])")
_HEIGHTS = [str.maketrans("0123456789+-", signs) for signs in ("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "₀₁₂₃₄₅₆₇₈₉₊₋")]
_AS_TYPED = {sign: chr(typed) for signs in _HEIGHTS for typed, sign in signs.items()} | {
    ord("×"): "x",
    ord("μ"): "u",
    ord("−"): "-",
}
"""What a keyboard has for a sign: CO₂ is typed CO2, 40×40 is 40x40, and 10 µF is 10 uF."""


def otherwise_written(needle: Needle, text: str) -> str | None:
    """The form of a needle in a composed text if accents don't count, nor how numbers and units are typed.

    It is on one line; None if it doesn't occur.
    Example: "zoe bronte" and "Zoë Brontë wrote it." -> "Zoë Brontë"; "1250000", "₹12,50,000" -> "12,50,000";
    "CO2", "The CO₂ content" -> "CO₂"; "4.7kΩ", "R1 is 4.7 kΩ" -> "4.7 kΩ".
    """
    if not needle.words:
        return None
    plain = replace(needle, words=without_accents(needle.words), seen=without_accents(needle.seen))
    span = (
        next(plain.spans(without_accents(text)), None)
        or _span_of_number(needle.words, text)
        or _span_of_formula(needle.words, text)
    )
    return " ".join(text[slice(*span)].split()) if span else None


def _span_of_number(words: str, text: str) -> Span | None:
    """Where a text has a number with other spaces and signs: an IBAN, an amount, a telephone number.

    Half of its characters are digits.
    """
    number = re.sub(_APART, "", words)  # in both, because either side may be grouped
    if not (number.isascii() and number.isalnum() and len(number) in _NUMBER_CHARS):
        return None
    if sum(map(str.isdecimal, number)) < max(_LEAST_DIGITS, len(number) / 2):
        return None
    return _span_with(f"{_APART}{{0,2}}", number, text)


def _span_of_formula(words: str, text: str) -> Span | None:
    """Where a text has a formula, or a number with its unit, as other people type it. It has a digit."""
    parts = [*filter(None, _PARTS.findall(words.translate(_AS_TYPED)))]
    if len(words) not in _FORMULA_CHARS or not any(map(str.isdecimal, parts)):
        return None
    return _span_with(f"{_IN_FORMULA}{{0,3}}", map(_any_height, parts), text)


@lru_cache(maxsize=1024)
def _any_height(part: str) -> str:
    """A pattern of a number or a sign as typed, raised, lowered, or as the sign that is typed so."""
    signs = (chr(sign) for sign, typed in _AS_TYPED.items() if typed == part)
    forms = dict.fromkeys([part, *(part.translate(height) for height in _HEIGHTS), *signs])
    return f"(?:{'|'.join(map(re.escape, forms))})"


def _span_with(between: str, patterns: Iterable[str], text: str) -> Span | None:
    """Where a text has these patterns, `between` every two of them, and no more of a word around them."""
    match = re.search(rf"(?<![^\W_]){between.join(patterns)}(?![^\W_])", text, re.IGNORECASE)
    return Span(*match.span()) if match else None


def _is_whole(text: str, end: int) -> bool:
    """Whether no accent follows the last letter of a match, which would make it another letter."""
    return not _MARK.match(text, end)
