"""What a text is searched for: a text, whole words, or a regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from rag.answers import Match
from rag.errors import InvalidRequestError
from rag.needles.literal import MARKS, NOT_A_WORD, cleaned, folded, is_in_word, literal_pattern
from rag.needles.regex import check_regex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.text import Span

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

    written: str
    match: Match
    case: bool
    core: str
    pattern: str
    words: str = ""

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in a text, in order, none overlapping another. Not for a regular expression."""
        in_one_form, at = folded(text, case=self.case), 0
        while self.words and (place := in_one_form.find(self.words, at)):
            span, at = place
            if _is_whole(text, span.end) and (self.match == "text" or stands_alone(text, *span)):
                yield span
                at += len(self.words)
            else:
                at += 1


def needle(written: str, match: Match = "text", *, case: bool = False) -> Needle:
    """Check what is searched for, and compile it.

    Raises:
        InvalidRequestError: it is too long, has no visible character, or is a regular expression that is too
            large. Whether its syntax is valid, RE2 finds out (`rag.store.read.text_scan.check_syntax`).
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
    words = folded(text, case=case).text
    before = f"(?:^|{NOT_A_WORD})" if match == "words" and is_in_word(text[0]) else ""
    after = f"(?:$|{NOT_A_WORD})" if match == "words" and is_in_word(text[-1]) else f"(?:$|[^{MARKS}])"
    return Needle(written, match, case, core, f"{before}{core}{after}", words)


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
