"""Words that lines of a PDF cut, joined by the vocabulary of the whole document."""

from __future__ import annotations

import re
from collections.abc import Callable

from rag.ingest.parse.pdf.text_page import HYPHEN

_CUT = re.compile(rf"(?P<start>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<end>[^\W_]+)")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def dehyphenator(text: str) -> Callable[[str], str]:
    """A function that rejoins words hyphenated at line ends, by the vocabulary of the document `text`.

    If the document has the word elsewhere, with or without its hyphen, that spelling wins. Otherwise the
    hyphen stays before a capital letter or a digit, in documents that rarely end a line with a hyphen, and
    between two words of the document if no line certainly hyphenates a word. In all other cases it goes.
    """
    words = frozenset(word.casefold() for word in _WORD.findall(_CUT.sub(" ", text)))
    cuts = sum(_is_cut(match["start"], match["end"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_certainly_cut(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        start, end = match["start"], match["end"]
        whole = (start + end).casefold()
        if whole in words and f"{start}-{end}".casefold() not in words:
            return start + end
        is_compound = is_rare or (not cuts_words and {start.casefold(), end.casefold()} <= words)
        if is_compound or not _is_cut(start, end) or f"{start}-{end}".casefold() in words:
            return f"{start}-{end}"
        return start + end

    def whole(part: str) -> str:
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


def with_next_line(cell: str, next_line: str) -> str:
    """A cell and its next line, joined by a space, or by a line feed below a hyphenated word."""
    line = f"{cell}\n{next_line}"
    last_word = max(cell.rfind("\n"), cell.rfind(" ")) + 1  # a cell can be all the rows of a page
    return line if _CUT.search(line, last_word) else f"{cell} {next_line}".strip()


def _is_cut(start: str, end: str) -> bool:
    return start[-1].islower() and end[0].islower() and not any(map(str.isdigit, start + end))


def _is_certainly_cut(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line certainly hyphenates a word: a half isn't in the vocabulary, or the whole is."""
    start, end = match["start"].casefold(), match["end"].casefold()
    return _is_cut(match["start"], match["end"]) and (start + end in words or not {start, end} <= words)
