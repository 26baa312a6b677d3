"""Texts in one form for comparing: any letter case, width, Unicode form, white space and typography.

`folded_text` finds positions in Python. `literal_pattern` makes the same comparison a pattern, which RE2 and
the engine's regex read alike, because it has only classes, groups and plain characters. Compiling it in
Python, which blocks the interpreter, took up to 0.7 s.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from rag.text.plain_text import Span
from rag.text.scripts import USUAL_FORM

SPACE = "[\\s\x0b\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
UNSPACED = (  # scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
SOUND_MARKS = "\u3099\u309a\uff9e\uff9f"  # of kana
MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
"""Accents. A letter and an accent after it are one character, so that e doesn't match the e of é."""
NOT_A_WORD = rf"[^\pL\pM\pN_]|[{UNSPACED}]"
"""The characters that may stand next to a whole word."""
_ALIKE = {  # typographic and Hebrew quotes and hyphens
    "'": "'\u2019\u02bc\u05f3",
    "-": "-\u2010\u2011\u2212\u05be",
    '"': '"\u201c\u201d\u201e\u05f4',
}
_WIDTHS = {
    chr(code): unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xFF01, 0xFF5F), *range(0xFF66, 0xFFA0))
}
"""Full-width letters and signs, and half-width katakana with its sound marks, with their usual forms."""
_ZEROS = "\u0660\u06f0\u0966\u09e6\u0e50"  # of Arabic, Persian, Hindi, Bengali and Thai digits
_SPACED = {code: " " for code in range(0x3001) if chr(code).isspace()}
_PLAIN: dict[str, str] = {
    **{variant: plain.casefold() for variant, plain in _WIDTHS.items()},
    **{variant: plain for plain, alike in _ALIKE.items() for variant in alike[1:]},
    **{chr(ord(zero) + digit): str(digit) for zero in _ZEROS for digit in range(10)},
    **{chr(form): usual for form, usual in USUAL_FORM.items()},
    "\u0131": "i",  # whose capital is I, as that of i in most languages
    "\u0364": "\u0308",  # the small e over a vowel of old print is its umlaut
}
"""Characters that match another character regardless of case, with that one."""
_LIGATURES = {"ae": "\xe6\xc6", "oe": "\u0153\u0152"}  # which Unicode doesn't take apart
_ONE_FORM: dict[int, int | str] = {
    **_SPACED,
    **{ord(variant): plain for variant, plain in _PLAIN.items()},
    **{ord(ligature): plain for plain, ligatures in _LIGATURES.items() for ligature in ligatures},
}
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
_DOT_ABOVE = "\u0307"
_LAST = 0x1FFFF  # no letter beyond has two cases
_LONGEST_RUN = 4  # letters that ligatures may stand for; all spellings are tried
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SPACES = re.compile(SPACE)
_SEVERAL = f"{SPACE[:-1]}{{2,}}"
_COMPOSED = f".[{MARKS}{SOUND_MARKS}]+|[\u1100-\u115f][\u1160-\u11ff]+"
"""A sequence that composes to one character: a letter with its accents, a syllable of Korean."""


def literal_pattern(text: str, *, case: bool) -> str:
    r"""A pattern for `text`. White space stands for any white space, and é for both of its Unicode forms.

    Without `case`, letters match in either case (ß is ss, İ and ı are i), in either width (Ａ is a, and ﾊﾟ is
    パ), and digits in any of several scripts (٣ is 3). The quotes and the hyphen of a keyboard match
    typographic ones. Several accents of a letter match in the order in which they are written.
    Example: "a b", case=False -> "[aAａＡ]" + SPACE + "[bBｂＢ]".
    """
    words = _SPACES.split(text)
    return SPACE.join(_exact_pattern(word) if case else _folded_pattern(word) for word in words)


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text for finding words in any form by comparing characters, with the origins of its parts.

    Part k begins at `starts[k]`, and in the original at `origins[k]`. Its characters correspond to the
    original's one by one, unless it is `whole`: then it is the folded form of one letter.
    """

    text: str
    starts: tuple[int, ...]
    origins: tuple[int, ...]
    whole: tuple[bool, ...]

    def origin(self, at: int) -> int | None:
        """The position in the original; None inside of a letter."""
        part = bisect_right(self.starts, at) - 1
        if self.whole[part]:
            return None if at > self.starts[part] else self.origins[part]
        return self.origins[part] + at - self.starts[part]

    def find(self, words: str, at: int) -> tuple[Span, int] | None:
        """The next occurrence of folded words from a position on: its original span, and its start here."""
        while (at := self.text.find(words, at)) >= 0:
            start, end = self.origin(at), self.origin(at + len(words))
            if start is not None and end is not None:
                return Span(start, end), at
            at += 1
        return None


def folded_text(text: str, *, case: bool) -> FoldedText:
    r"""A text for comparing: composed, white space as one space and, without `case`, in one case and width.

    It takes time in proportion to the length of any text.
    Example: "Stra\xdfe  A", case=False -> "strasse a"
    """
    parts: list[str] = []
    starts, origins, whole = [0], [0], [False]
    length = at = 0

    def add(part: str, origin: int, *, is_whole: bool) -> None:
        nonlocal length
        # A new part only where positions stop running in step: a plain text is one part.
        if is_whole or whole[-1] or origin - origins[-1] != length - starts[-1]:
            starts.append(length)
            origins.append(origin)
            whole.append(is_whole)
        parts.append(part)
        length += len(part)

    for match in _irregular(case=case).finditer(text):
        start, end = match.span()
        if start > at:
            add(_alike(text[at:start], case=case), at, is_whole=False)
        part = " " if match[0].isspace() else _alike(_composed(match[0], case=case), case=case)
        is_ligature = len(_alike(match[0][:1], case=case)) > 1  # with an accent as long as its letters
        add(part, start, is_whole=len(part) != end - start or is_ligature)
        at = end
    add(_alike(text[at:], case=case), at, is_whole=False)
    starts.append(length)
    origins.append(len(text))
    whole.append(False)
    return FoldedText("".join(parts), tuple(starts), tuple(origins), tuple(whole))


def folded(text: str) -> str:
    """A name as it is compared with others: equal if `folded_text` makes both equal.

    It is made by no regular expression, because each document is asked for its names.
    Example: "\uff21 \u3000\uff92\uff93" -> "a \u30e1\u30e2".
    """
    return text.casefold().strip() if is_plain(text) else _folded(text)


@lru_cache(1 << 14)
def _folded(text: str) -> str:
    """Cached: it takes 8 us."""
    composed = unicodedata.normalize("NFC", text.casefold().translate(_ONE_FORM))
    return " ".join(composed.replace(f"i{_DOT_ABOVE}", "i").split())


def is_plain(text: str) -> bool:
    """Whether a text is in one form but for its letter case."""
    return text.isascii() and text.isprintable() and "  " not in text


def _composed(letter: str, *, case: bool) -> str:
    """A letter with its marks as one character; half-width katakana first become ordinary ones."""
    return unicodedata.normalize("NFC", letter if case else letter.translate(_ONE_FORM))


def _alike(text: str, *, case: bool) -> str:
    if case:
        return text.translate(_SPACED)
    return text.casefold().translate(_ONE_FORM).replace(f"i{_DOT_ABOVE}", "i")


@cache
def _irregular(*, case: bool) -> re.Pattern[str]:
    """Matches sequences whose length may change by folding: letters with accents, ligatures, white space."""
    ligatures = "" if case else "".join(_letters()[1].values())
    return re.compile(f"{_COMPOSED}|{_SEVERAL}" + (f"|[{ligatures}]" if ligatures else ""), re.DOTALL)


def is_in_word(character: str) -> bool:
    """Whether a character next to a match makes it a part of a longer word."""
    belongs = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    return belongs and not _UNSPACED.match(character)


def _exact_pattern(word: str) -> str:
    return "".join(_in_both_forms(letter, _escape) for letter in word)


def _folded_pattern(word: str) -> str:
    folded = folded_text(word, case=False).text
    parts, at, ligatures = [], 0, _letters()[1]
    while at < len(folded):
        end = at + 1
        while end < len(folded) and end - at < _LONGEST_RUN and _touches(folded, at, end, ligatures):
            end += 1
        parts.append(_spellings(folded[at:end]))
        at = end
    return "".join(parts)


def _touches(folded: str, start: int, end: int, ligatures: Mapping[str, str]) -> bool:
    """Whether a ligature may stand for letters on both sides of `end`."""
    return any(
        folded[first:last] in ligatures
        for first in range(max(start, end - 2), end)
        for last in range(end + 1, min(first + 3, len(folded)) + 1)
    )


@lru_cache(maxsize=1024)
def _spellings(folded: str) -> str:
    """All ways to write folded letters: "ss" -> two letters, or one ß."""
    if not folded:
        return ""
    ligatures = _letters()[1]
    ways = [_letter(folded[0]) + _spellings(folded[1:])]
    ways += [
        f"[{ligatures[folded[:length]]}]{_spellings(folded[length:])}"
        for length in (2, 3)
        if len(folded) >= length and folded[:length] in ligatures
    ]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _letter(folded: str) -> str:
    """A folded letter in any case, width and Unicode form; a digit in those of several scripts."""
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
    letters = _letters()[0].get(folded, folded) + _variants().get(folded, "")
    return f"[{''.join(map(_escaped_in_class, letters))}]" if len(letters) > 1 else _escape(letters)


@cache
def _variants() -> Mapping[str, str]:
    """The other characters that match each plain character."""
    variants: dict[str, str] = {}
    for variant, plain in _PLAIN.items():
        variants[plain] = variants.get(plain, "") + variant
    return variants


@cache
def _letters() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """For each folded letter all letters that fold to it, itself first; for ss and ae, ligatures: ß, æ."""
    single: dict[str, str] = {}
    several = dict(_LIGATURES)
    for letter in map(chr, range(0x41, _LAST)):
        folded = letter.casefold()
        if folded != letter:
            letters = single if len(folded) == 1 else several
            letters[folded] = letters.get(folded, folded if letters is single else "") + letter
    return single, several


def _escape(character: str) -> str:
    return f"\\{character}" if character in _SPECIAL else character


def _escaped_in_class(character: str) -> str:
    return f"\\{character}" if character in r"\]^-[&~" else character


def without_accents(text: str) -> str:
    """A composed text with plain letters for accented ones, in the same places."""
    return text.translate(_plain_letters())


@cache
def _plain_letters() -> Mapping[int, str]:
    """Each letter with accents, and some with a stroke, as the plain one."""
    apart = {code: unicodedata.normalize("NFD", chr(code)) for code in range(0xC0, 0x2000)}
    accented = re.compile(f"[^{MARKS}][{MARKS}]+")
    plain = {code: letters[0] for code, letters in apart.items() if accented.fullmatch(letters)}
    return plain | {ord(letter): base for letter, base in zip("łŁøØđĐ", "lLoOdD", strict=True)}


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether the match `text[start:end]` is not a part of a longer word.

    Example: "leave" in "leave-taking" and in "(leave)", but not in "leaves". Scripts without spaces have no
    such parts.
    """
    first = not start or not (is_in_word(text[start]) and is_in_word(text[start - 1]))
    return first and (end == len(text) or not (is_in_word(text[end - 1]) and is_in_word(text[end])))
