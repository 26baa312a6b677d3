"""Words that a PDF cuts at the end of a line, put together again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.ingest.parse.pdf.words import HYPHEN

if TYPE_CHECKING:
    from collections.abc import Callable

_CUT = re.compile(rf"(?P<one>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<other>[^\W_]+)")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def joiner(text: str) -> Callable[[str], str]:
    """What joins the cut words in parts of a document, by all words of the document.

    Where the document has the whole word, it is that: with its hyphen or without. Otherwise a hyphen stays
    between two words that the document has, if none of its lines cuts a word for sure, and before a capital
    letter or a digit; else it goes. A document with few hyphens at ends of lines cuts no words.
    """
    words = frozenset(word.casefold() for word in _WORD.findall(_CUT.sub(" ", text)))
    cuts = sum(_is_cut(match["one"], match["other"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_sure(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        one, other = match["one"], match["other"]
        whole = (one + other).casefold()
        if whole in words and f"{one}-{other}".casefold() not in words:
            return one + other
        is_compound = is_rare or (not cuts_words and {one.casefold(), other.casefold()} <= words)
        if is_compound or not _is_cut(one, other) or f"{one}-{other}".casefold() in words:
            return f"{one}-{other}"
        return one + other

    def whole(part: str) -> str:
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


def with_next_line(cell: str, more: str) -> str:
    """A cell with its next line, which stays a line of its own only below a cut word."""
    line = f"{cell}\n{more}"
    return line if _CUT.search(line, cell.rfind("\n") + 1) else f"{cell} {more}".strip()


def _is_cut(one: str, other: str) -> bool:
    return one[-1].islower() and other[0].islower() and not any(map(str.isdigit, one + other))


def _is_sure(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line cuts a word: its halves are none, or the whole is one."""
    one, other = match["one"].casefold(), match["other"].casefold()
    return _is_cut(match["one"], match["other"]) and (one + other in words or not {one, other} <= words)
