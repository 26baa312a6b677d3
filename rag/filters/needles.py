"""Needles, what exact search looks for: words in any form, quoted phrases, or a regular expression.

Words may differ in case, Unicode form and white space. A pattern tells whether a text has them. RE2 and the
engine's regex read it alike, because it has only classes, groups and plain characters. `folded_text` finds
their positions: compiling the pattern in Python, which blocks the interpreter, took up to 0.7 s.

A regular expression is checked first. RE2 takes time proportional to the text and to the size of the pattern
with its repetitions written out, so that size is limited. Two escapes are refused because they don't work
when a text is matched in windows.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import get_args

from rag.answers import Match
from rag.errors import InvalidRequestError
from rag.text.plain_text import Span, without_hidden
from rag.text.scripts import USUAL_FORM

SPACE = "[\\s\x0b\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
UNSPACED = (  # scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SOUND_MARKS = "\u3099\u309a\uff9e\uff9f"  # of kana
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
}
"""Characters that match another character regardless of case, with that one."""
_ONE_FORM: dict[int, int | str] = {**_SPACED, **{ord(variant): plain for variant, plain in _PLAIN.items()}}
_SPECIAL = frozenset(r"\.+*?()|[]{}^$")
_DOT_ABOVE = "\u0307"
_LAST = 0x1FFFF  # no letter beyond has two cases
_LONGEST_RUN = 4  # letters that ligatures may stand for; all spellings are tried
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SPACES = re.compile(SPACE)
_SEVERAL = f"{SPACE[:-1]}{{2,}}"
_COMPOSED = f".[{MARKS}{_SOUND_MARKS}]+|[\u1100-\u115f][\u1160-\u11ff]+"
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
    """A name for comparing with others: equal are those that `folded_text` makes equal.

    It is made by no regular expression, because each document is asked for its names.
    Example: "\uff21 \u3000\uff92\uff93" -> "a \u30e1\u30e2".
    """
    return text.casefold().strip() if _is_plain(text) else _folded(text)


@lru_cache(1 << 14)
def _folded(text: str) -> str:
    """Cached: it takes 8 us."""
    composed = unicodedata.normalize("NFC", text.casefold().translate(_ONE_FORM))
    return " ".join(composed.replace(f"i{_DOT_ABOVE}", "i").split())


def _is_plain(text: str) -> bool:
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


def cleaned_text(text: str) -> str:
    """`text` as stored texts are: composed, without invisible characters and white space around it."""
    return unicodedata.normalize("NFC", without_hidden(text)).strip()


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
    """For each folded letter all letters that fold to it, itself first; and for ligatures, like ß for ss."""
    single: dict[str, str] = {}
    several: dict[str, str] = {}
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


def _phrase_marks(query: str) -> Iterator[Span]:
    """The positions of the opening and the closing mark of each phrase, in order."""
    unclosed: set[str] = set()  # marks without a closing one in the remaining text
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
_MARK = re.compile(f"[{MARKS}]")
_NO_MARK = f"(?:$|[^{MARKS}{_SOUND_MARKS}])"  # follows, which would make the last letter another one


@dataclass(frozen=True, slots=True)
class Needle:
    """A text to search for, or a regular expression.

    `pattern` tells whether a text has a match. Only RE2 and the engine's regex run it, because a caller may
    have written it, and both take linear time. Every match contains a match of `core`, which is faster.
    `words` are the words to find in a folded text, empty for a regular expression; if `match` asks for whole
    words, they must also stand alone.
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


def is_in(text: str, value: str, *, at_end: bool = False) -> bool:
    """Whether a name or a value has a text somewhere, or `at_end`, in any form."""
    searched = fragment(text)
    if _is_plain(value):
        return value.casefold().endswith(searched.words) if at_end else searched.words in value.casefold()
    if not at_end:
        return searched.words.strip() in folded(value) and any(searched.spans(value))
    in_one_form = folded_text(value, case=False)
    match = in_one_form.find(searched.words, max(0, len(in_one_form.text) - len(searched.words)))
    return bool(match and match[0].end == len(value))


def needle(query: str, match: Match = "text", *, case: bool = False) -> Needle:
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
    before = f"(?:^|{NOT_A_WORD})" if match == "words" and is_in_word(text[0]) else ""
    after = f"(?:$|{NOT_A_WORD})" if match == "words" and is_in_word(text[-1]) else _NO_MARK
    return Needle(query, match, case, core, f"{before}{core}{after}", words)


@lru_cache(maxsize=1024)
def fragment(text: str) -> Needle:
    """The needle of a part of a name or a value in any form; spaces around it count."""
    core, words = literal_pattern(text, case=False), folded_text(text, case=False).text
    return Needle(text, "text", case=False, core=core, pattern=core + _NO_MARK, words=words)


_APART = "[\\s.,/'()+-]"
_LEAST_DIGITS, _NUMBER_CHARS = 5, range(6, 65)


def otherwise_written(needle: Needle, text: str) -> str | None:
    """The form of a needle in a composed text if neither accents count nor the spaces and signs in a number.

    It is on one line; None if it doesn't occur.
    Example: "zoe bronte" and "Zoë Brontë wrote it." -> "Zoë Brontë"; "1250000", "₹12,50,000" -> "12,50,000".
    """
    if not needle.words:
        return None
    plain = replace(needle, words=without_accents(needle.words))
    span = next(plain.spans(without_accents(text)), None) or _span_of_number(needle.words, text)
    return " ".join(text[slice(*span)].split()) if span else None


def _span_of_number(words: str, text: str) -> Span | None:
    """Where a text has a number with other spaces and signs: an IBAN, an amount, a telephone number.

    Half of its characters are digits.
    """
    number = re.sub(_APART, "", words)
    if not (number.isascii() and number.isalnum() and len(number) in _NUMBER_CHARS):
        return None
    if sum(map(str.isdecimal, number)) < max(_LEAST_DIGITS, len(number) / 2):
        return None
    match = re.search(rf"(?<![^\W_]){f'{_APART}{{0,2}}'.join(number)}(?![^\W_])", text, re.IGNORECASE)
    return Span(*match.span()) if match else None


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


def _is_whole(text: str, end: int) -> bool:
    """Whether no accent follows the last letter of a match, which would make it another letter."""
    return not _MARK.match(text, end)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether the match `text[start:end]` is not a part of a longer word.

    Example: "leave" in "leave-taking" and in "(leave)", but not in "leaves". Scripts without spaces have no
    such parts.
    """
    first = not start or not (is_in_word(text[start]) and is_in_word(text[start - 1]))
    return first and (end == len(text) or not (is_in_word(text[end - 1]) and is_in_word(text[end])))
