"""Texts as the reader of a page sees them, without the marks of Markdown, for finding what is quoted.

    seen_text('It was *[a disgrace](https://x.example)*[^1] - "fully".') -> "It was a disgrace-'fully'."

Left out are marks of emphasis and code, targets of links, marks of notes, backslashes before signs, and the
bars of a block quote from its second line on. All quotation marks are one, and so are dashes with or without
spaces. A mark counts only with its other half in the same paragraph, and none within code, so that `int *p`
and `snake_case` stay.

`seen_pattern` lets all of these stand between words, whether they have an effect or not: what it doesn't
find, `seen_text` doesn't contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TypeAlias

from rag.filters.folded_text import SPACE, is_in_word, literal_pattern
from rag.text.plain_text import Span

Change: TypeAlias = tuple[int, int, str]
"""A stretch of a text, and what replaces it: nothing, or one character."""
_QUOTES = (
    "\"'\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033\xab\xbb\u2039\u203a\u02bc\u05f3\u05f4"
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u05be-"
_ONE_SIGN = dict.fromkeys(_QUOTES, "'") | dict.fromkeys(_DASHES, "-")
_TARGET = r'\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s"[^"\n]*")?\)'
_MARKS = re.compile(
    r"(?P<fence>^[ \t]*(?P<ticks>```|~~~)[\s\S]*?(?:^[ \t]*(?P=ticks)|\Z))|(?P<code>`[^`\n]{1,500}`)"
    r"|(?P<note>\[(?:\^[^\[\]\s]{1,60}\](?!:)|(?<=[.,;:!?\u2019\u201d]\[)\d{1,3}\](?!\())"
    r"|\^(?:(?<=[.,;:!?\u2019\u201d]\^)|(?<=[^\W\d_]{4}\^))\d{1,3}(?![\w^]))"
    rf"|(?P<escape>\\[!-/:-@\[-`{{-~])|(?P<picture>!\[[^\[\]\n]{{0,500}}\]{_TARGET})"
    rf"|(?P<opens>\[)|(?P<link>\](?P<target>{_TARGET}|\[[^^\[\]\n][^\[\]\n]{{0,99}}\])?)"
    r"|(?P<run>\*+|_+)|(?P<bar>^[ \t]{0,3}(?!>>>)>[> \t]*)|(?P<gap>\n[ \t]*\n)",
    re.MULTILINE,
)
"""What may be a mark, or has none inside: a fenced block, code, a picture."""
_HAS_MARKS = re.compile(r"[*_`\[\\^]|^[ \t]*>", re.MULTILINE)
_NOTE = re.compile(r"\[?[\d*\u2020\u2021]{1,4}\]?")
_LONGEST_RUN = 3  # ***both***
_OPENS_NOTHING = frozenset(".,;:!?)]}/=")  # behind a mark of emphasis
_SIGN = re.compile(f"[\xab\xbb]|[{_DASHES}]{{1,3}}")
_LONG_DASHES = frozenset("\u2014\u2015")
_BESIDE_QUOTE = " \xa0\u202f"
_BETWEEN_WORDS = re.compile(r"(?:['()\[\]{}.,;:!?\u2026\s]|-(?!\d))+")
_MARK = (  # RE2 and the engine take these classes alike, and those of ASCII are small in both
    r"[*_`\\\[]|\](?:\([^() \t\n]*(?:\([^() \t\n]*\)[^() \t\n]*)*(?:\s\x22[^\x22\n]*\x22)?\)|\[[^\[\]\n]*\])"
    r"|\[\^[^\[\] \n]*\]|\[[0-9]+\]|\^[0-9]+|\[?[0-9*†‡]+\]?\]\([^() \t\n]*\)"
)
_AT_BORDER = f"(?:{_MARK})*"
_GAP = f"{SPACE}|>|{_MARK}"
_PATTERNS = {
    " ": f"(?:{_GAP})+",
    "'": f"[ \xa0\u202f]?[{_QUOTES}][ \xa0\u202f]?",
    "-": f"(?:{_GAP})*[{_DASHES}]{{1,3}}(?:{_GAP})*",
}
_WITH_MARKS = {" ", "-"}  # their patterns contain those of marks
_PATTERN_OF_PHRASE = {" ": rf"(?:{_GAP}|[()\[\]{{}}.,;:!?\x{{2026}}{_QUOTES}{_DASHES}])+"}


@dataclass(frozen=True, slots=True)
class SeenText:
    """A text with the position of each of its characters in the original."""

    text: str
    origins: Sequence[int]

    def origin(self, span: Span) -> Span:
        """Where a stretch, which is not empty, stands in the original, without marks around it."""
        return Span(self.origins[span.start], self.origins[span.end - 1] + 1)

    def changed(self, changes: Iterable[Change]) -> SeenText:
        """The text after changes, by their start. One that begins inside an earlier one is gone with it."""
        parts: list[str] = []
        origins: list[int] = []
        at = 0
        for start, end, instead in changes:
            if start >= at:
                parts += [self.text[at:start], instead]
                origins += self.origins[at : start + len(instead)]
                at = end
        return SeenText("".join([*parts, self.text[at:]]), [*origins, *self.origins[at:]]) if at else self


def seen_text(text: str, *, is_phrase: bool = False) -> SeenText:
    """A text as it is seen; for a phrase, without the punctuation between words, too.

    It takes time in proportion to the length of any text.
    """
    seen = SeenText(text, range(len(text)))
    if has_marks(text):
        seen = seen.changed(sorted(_marks(text)))
    seen = seen.changed(_signs(seen.text))
    for variant, sign in _ONE_SIGN.items():  # `translate` takes 80 times as long
        seen = replace(seen, text=seen.text.replace(variant, sign))
    return seen.changed(_punctuation(seen.text)) if is_phrase else seen


def has_marks(text: str) -> bool:
    """Whether a text may have marks of Markdown."""
    return bool(_HAS_MARKS.search(text))


def parts_of(seen: str) -> list[str]:
    r"""The words of a folded `seen_text`, and characters between them: marks may stand at their borders.

    An underscore is between words here, because Markdown writes `snake\_case`.
    """
    runs = ((is_word, [*characters]) for is_word, characters in groupby(seen, _is_part_of_word))
    return [part for is_word, run in runs for part in (["".join(run)] if is_word else run)]


def seen_pattern(parts: Sequence[str], *, case: bool, is_phrase: bool) -> str:
    """A pattern that each text matches whose folded `seen_text` has these parts, and a few other texts."""
    patterns = _PATTERNS | _PATTERN_OF_PHRASE if is_phrase else _PATTERNS
    pieces = []
    for part, following in pairwise([*parts, " "]):
        has_gap = not {part, following}.isdisjoint(_WITH_MARKS)
        pieces.append(
            (patterns.get(part) or literal_pattern(part, case=case)) + ("" if has_gap else _AT_BORDER)
        )
    return "".join(pieces)


def _marks(text: str) -> Iterator[Change]:
    brackets: list[int] = []
    runs: dict[str, Span] = {}
    above: re.Match[str] | None = None
    for match in _MARKS.finditer(text):
        start, end = match.span()
        match match.lastgroup:
            case "note":
                yield start, end, ""
            case "escape":
                yield start, start + 1, ""
            case "code":
                yield start, start + 1, ""
                yield end - 1, end, ""
            case "opens":
                brackets.append(start)
            case "link":
                yield from _link(text, brackets.pop(), match) if brackets else ()
            case "run":
                yield from _emphasis(text, Span(start, end), runs)
            case "bar":
                yield from _bar(text, above, match)
                above = match
            case "gap":
                brackets.clear()
                runs.clear()


def _link(text: str, start: int, closing: re.Match[str]) -> Iterator[Change]:
    """The marks of a link; all of a note's. Behind a word it needs an address: `handlers[key](event)`."""
    target = closing["target"] or ""
    is_address = target.startswith("(")
    # Without a copy of the words: links in one another would take quadratic time.
    is_note = is_address and "#" in target and _NOTE.fullmatch(text, start + 1, closing.start())
    if is_note and text[start - 1 : start].strip():
        yield start, closing.end(), ""
    elif target and (is_address or text[start + 1].isalpha()):
        behind_word = start > 0 and is_in_word(text[start - 1])
        if not behind_word or (is_address and not {*"/#:"}.isdisjoint(target)):
            yield start, start + 1, ""
            yield *closing.span(), ""


def _emphasis(text: str, run: Span, opened: dict[str, Span]) -> Iterator[Change]:
    """The marks of emphasis that ends here; else they may begin here. `__name__` is code."""
    marks, before, after = text[slice(*run)], text[run.start - 1 : run.start], text[run.end : run.end + 1]
    closes = before and not before.isspace() and not _is_part_of_word(after)
    if closes and (first := opened.pop(marks, None)):
        if not marks.startswith("__") or any(map(str.isspace, text[first.end : run.start])):
            yield *first, ""
            yield *run, ""
        return
    opens = after and not after.isspace() and after not in _OPENS_NOTHING
    if opens and len(marks) <= _LONGEST_RUN and not _is_part_of_word(before):
        opened[marks] = run


def _is_part_of_word(beside: str) -> bool:
    """Whether the character beside a mark, if any, is one of a word; other marks aren't."""
    return bool(beside) and beside != "_" and is_in_word(beside)


def _bar(text: str, above: re.Match[str] | None, bar: re.Match[str]) -> Iterator[Change]:
    """The bar of a line of a block quote, if the line above belongs to it."""
    if above and above[0].count(">") == bar[0].count(">") and text.find("\n", above.end()) == bar.start() - 1:
        yield *bar.span(), ""


def _signs(text: str) -> Iterator[Change]:
    """What is left out of a dash with the spaces around it, and the spaces within French quotation marks."""
    for match in _SIGN.finditer(text):
        start, end = match.span()
        before, after = text[start - 1 : start], text[end : end + 1]
        if match[0] == "\xab":  # which closes a quotation in German
            if after and after in _BESIDE_QUOTE and (not before or before.isspace() or before == "("):
                yield end, end + 1, ""
        elif match[0] == "\xbb":
            if before and before in _BESIDE_QUOTE and not after.isalnum():
                yield start - 1, start, ""
        else:
            yield from _dash(text, match[0], Span(start, end))


def _dash(text: str, signs: str, span: Span) -> Iterator[Change]:
    start, end = span
    while start and text[start - 1].isspace() and text[start - 1] != "\n":  # an item begins a line
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    is_apart = (start < span.start or not start) and (end > span.end or end == len(text))
    joins_words = len(signs) > 1 and text[start - 1 : start].isalnum() and text[end : end + 1].isalnum()
    if is_apart or joins_words or not _LONG_DASHES.isdisjoint(signs):
        yield start, span.start, ""
        yield span.start + 1, end, ""


def _punctuation(seen: str) -> Iterator[Change]:
    """What stands between two words that follow each other, as one space, and nothing at the ends."""
    for match in _BETWEEN_WORDS.finditer(seen):
        if match.start() == 0 or match.end() == len(seen):
            yield *match.span(), ""
        elif "-" in match[0] or any(map(str.isspace, match[0])):
            yield *match.span(), " "
