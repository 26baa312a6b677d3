"""What a text is searched for: a text, whole words, or a regular expression, which is checked first.

RE2 takes time proportional to the text, but also to the size of a pattern whose repetitions are written out.
So the size is limited. Two escapes are refused because they don't fit matching a text in windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from rag.answers import Match
from rag.errors import InvalidRequestError
from rag.needles.words_and_phrases import (
    MARKS,
    NOT_A_WORD,
    cleaned_text,
    folded_text,
    is_in_word,
    literal_pattern,
)
from rag.text.plain_text import Span

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
_WIDE = 10  # a class of Unicode characters is an automaton of its own
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
_MARK = re.compile(f"[{MARKS}]")


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to search for, or a regular expression.

    `pattern` finds out whether a text has a match, with RE2 or the engine's regex. Only these run it: a
    caller may have written it, and both take linear time. Every match has one of `core`, which is faster.
    `words` are what is looked for in a folded text, empty for a regular expression; where `match` asks for
    whole words, they also have to stand alone.
    """

    query: str
    match: Match
    case: bool
    core: str
    pattern: str
    words: str = ""

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in a text, in order, none overlapping another. Not for a regular expression."""
        in_one_form, at = folded_text(text, case=self.case), 0
        while self.words and (match := in_one_form.find(self.words, at)):
            span, at = match
            if _is_whole(text, span.end) and (self.match == "text" or stands_alone(text, *span)):
                yield span
                at += len(self.words)
            else:
                at += 1


def needle(query: str, match: Match = "text", *, case: bool = False) -> Needle:
    """Check what is searched for, and compile it.

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
    before = f"(?:^|{NOT_A_WORD})" if match == "words" and is_in_word(text[0]) else ""
    after = f"(?:$|{NOT_A_WORD})" if match == "words" and is_in_word(text[-1]) else f"(?:$|[^{MARKS}])"
    return Needle(query, match, case, core, f"{before}{core}{after}", words)


def _is_whole(text: str, end: int) -> bool:
    """Whether the last letter of a match has no accent behind it, with which it would be another."""
    return not _MARK.match(text, end)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether the match `text[start:end]` is not a part of a longer word.

    Example: "leave" in "leave-taking" and in "(leave)", but not in "leaves". Scripts without spaces have no
    such parts.
    """
    first = not start or not (is_in_word(text[start]) and is_in_word(text[start - 1]))
    return first and (end == len(text) or not (is_in_word(text[end - 1]) and is_in_word(text[end])))
