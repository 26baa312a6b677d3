"""What a text is searched for: a text, whole words, or a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from rag.answers import Match
from rag.errors import InvalidRequestError
from rag.needles.literal import MARKS, NOT_A_WORD, cleaned, is_in_word, literal_pattern
from rag.needles.regex import check_regex
from rag.text import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NEEDLE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to search for, or a regular expression.

    `pattern` finds out whether a text has a match, with RE2 or the engine's regex. Only these run it: a
    caller may have written it, and both take linear time. Every match has one of `core`, which is faster.
    `located` finds the matches of what is not a regular expression; where `match` asks for whole words, they
    also have to stand alone.
    """

    written: str
    match: Match
    case: bool
    core: str
    pattern: str
    located: re.Pattern[str] | None = None

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in a text, in order, none overlapping another. Not for a regular expression."""
        at = 0
        while self.located and (found := self.located.search(text, at)):
            start, end = found.span()
            if self.match == "text" or stands_alone(text, start, end):
                yield Span(start, end)
                at = end
            else:
                at = start + 1


def needle(written: str, match: Match = "text", *, case: bool = False) -> Needle:
    """Check what is searched for, and compile it.

    Raises:
        InvalidRequestError: it is too long, has no visible character, or is a regular expression that is too
            large. Whether its syntax is valid, RE2 finds out (`rag.store.scan.check_syntax`).
    """
    if match not in get_args(Match):
        raise InvalidRequestError(f"match must be one of {', '.join(get_args(Match))}, not {match!r}.")
    if len(written) > MAX_NEEDLE_CHARS:
        raise InvalidRequestError(
            f"An exact search takes at most {MAX_NEEDLE_CHARS} characters, not {len(written)}. Shorten it."
        )
    if match == "regex":
        check_regex(written)
        pattern = f"(?{'' if case else 'i'}m){written}"
        return Needle(written, match, case, pattern, pattern)
    text = cleaned(written)
    if not text:
        raise InvalidRequestError("There is no visible character to search for.")
    core = literal_pattern(text, case=case)
    located = re.compile(f"{core}(?![{MARKS}])")
    before = f"(?:^|{NOT_A_WORD})" if match == "words" and is_in_word(text[0]) else ""
    after = f"(?:$|{NOT_A_WORD})" if match == "words" and is_in_word(text[-1]) else f"(?:$|[^{MARKS}])"
    return Needle(written, match, case, core, f"{before}{core}{after}", located)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether the match `text[start:end]` is not a part of a longer word.

    Example: "leave" in "leave-taking" and in "(leave)", but not in "leaves". Scripts without spaces have no
    such parts.
    """
    first = not start or not (is_in_word(text[start]) and is_in_word(text[start - 1]))
    return first and (end == len(text) or not (is_in_word(text[end - 1]) and is_in_word(text[end])))
