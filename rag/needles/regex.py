"""Checks a caller's regular expression before RE2 runs it.

RE2 takes time proportional to the text, but also to the size of a pattern whose repetitions are written out.
So the size is limited. Two escapes are refused because they don't fit matching a text in windows.
"""

from __future__ import annotations

import re

from rag.errors import InvalidRequestError

MAX_SIZE = 1000
"""At most so many steps for a character of text: up to 30 µs, measured on one core."""
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
    if size(pattern) > MAX_SIZE:
        raise InvalidRequestError(TOO_LARGE.format(wide=_WIDE, most=MAX_SIZE))


def size(pattern: str) -> int:
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
    least, most = int(match["least"]), int(match["most"] or 0)
    return max(least + bool(match["open"] and not match["most"]), most, 1)


def _weight(match: re.Match[str]) -> int:
    is_wide = match["class"] or match[0] == "." or match[0][:2] in _CLASSES
    return _WIDE if is_wide else 1
