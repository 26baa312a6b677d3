"""Patterns for words as people mean them: case, Unicode form and white space may differ.

The patterns hold nothing but classes, groups and plain characters. So RE2, the engine's regex and Python read
them alike, and each takes linear time.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from rag.hidden import without_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SPACE = "[\\s\x0b\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
UNSPACED = (  # scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
"""Accents. A letter and an accent after it are one character, so that e doesn't match the e of é."""
NOT_A_WORD = rf"[^\pL\pM\pN_]|[{UNSPACED}]"
"""What may stand beside a whole word."""
_ALIKE = {"'": "'\u2019\u02bc", "-": "-\u2010\u2011", '"': '"\u201c\u201d\u201e'}
_FULL_WIDTH = {code + 0xFEE0: code for code in range(0x21, 0x7F)}
"""Not the other way round: RE2 finds a pattern faster that begins with ASCII only."""
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
_DOT_ABOVE = "\u0307"
_LAST = 0x1FFFF  # no letter beyond has two cases
_LONGEST_RUN = 6  # letters that ligatures may stand for; all ways to write them are tried
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SPACES = re.compile(SPACE)


def literal_pattern(written: str, *, case: bool) -> str:
    r"""A pattern for `written`. White space stands for any white space, and é for both of its Unicode forms.

    Without `case`, letters match in either case (ß is ss, and İ is i), and those with full width match
    ordinary ones. The quotes and the hyphen of a keyboard match typographic ones. Several accents of a letter
    match in the order in which they are written.
    Example: "a b", case=False -> "[aA]" + SPACE + "[bB]".
    """
    words = _SPACES.split(cleaned(written))
    return SPACE.join(_exact(word) if case else _folded(word) for word in words)


def cleaned(written: str) -> str:
    """`written` as stored texts are: composed, without invisible characters and white space around it."""
    return unicodedata.normalize("NFC", without_hidden(written)).strip()


def is_in_word(character: str) -> bool:
    """Whether a character beside a match makes it a part of a longer word."""
    belongs = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return belongs and not _UNSPACED.match(character)


def _exact(word: str) -> str:
    return "".join(_in_both_forms(letter, _escaped) for letter in word)


def _folded(word: str) -> str:
    folded = word.casefold().replace(f"i{_DOT_ABOVE}", "i")
    parts, at, ligatures = [], 0, _letters()[1]
    while at < len(folded):
        end = at + 1
        while end < len(folded) and end - at < _LONGEST_RUN and _touches(folded, at, end, ligatures):
            end += 1
        parts.append(_written(folded[at:end]))
        at = end
    return "".join(parts)


def _touches(folded: str, start: int, end: int, ligatures: Mapping[str, str]) -> bool:
    """Whether a ligature may stand for letters on both sides of `end`."""
    return any(
        folded[first:last] in ligatures
        for first in range(max(start, end - 2), end)
        for last in range(end + 1, min(first + 3, len(folded)) + 1)
    )


def _written(folded: str) -> str:
    """All ways to write folded letters: "ss" -> two letters, or one ß."""
    if not folded:
        return ""
    ligatures = _letters()[1]
    ways = [_letter(folded[0]) + _written(folded[1:])]
    ways += [
        f"[{ligatures[folded[:length]]}]{_written(folded[length:])}"
        for length in (2, 3)
        if len(folded) >= length and folded[:length] in ligatures
    ]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _letter(folded: str) -> str:
    """A folded letter in any case, width and Unicode form."""
    if folded == "i":
        return f"(?:{_class('i')}{_DOT_ABOVE}?|\u0130)"
    return _in_both_forms(folded, _class)


def _in_both_forms(letter: str, pattern: Callable[[str], str]) -> str:
    """The pattern of a letter, and of the same with its accents apart."""
    apart = unicodedata.normalize("NFD", letter)
    if apart == letter:
        return pattern(letter)
    return f"(?:{pattern(letter)}|{''.join(map(pattern, apart))})"


def _class(folded: str) -> str:
    letters = _letters()[0].get(folded, folded) + _ALIKE.get(folded, "")[1:]
    if plain := _FULL_WIDTH.get(ord(folded)):
        letters += _letters()[0].get(chr(plain), chr(plain))
    return f"[{''.join(map(_escaped_in_class, letters))}]" if len(letters) > 1 else _escaped(letters)


@cache
def _letters() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """For each folded letter all that fold to it, itself first; and the same for ligatures, like ß for ss."""
    single: dict[str, str] = {}
    several: dict[str, str] = {}
    for letter in map(chr, range(0x41, _LAST)):
        folded = letter.casefold()
        if folded != letter:
            kept = single if len(folded) == 1 else several
            kept[folded] = kept.get(folded, folded if kept is single else "") + letter
    return single, several


def _escaped(character: str) -> str:
    return f"\\{character}" if character in _SPECIAL else character


def _escaped_in_class(character: str) -> str:
    return f"\\{character}" if character in r"\]^-[&~" else character
