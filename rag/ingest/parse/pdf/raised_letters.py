"""Which letters of a PDF page are superscripts, and which words are scripts of the word before them.

10 to the 11th is not 1011: what is set smaller and higher is marked for `typefaces`. What is set lower stays
a part of its word, as in CO2 and VCC, which people search for like this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rag.ingest.parse.pdf.text_page import Box, TextPage, Word, as_read
from rag.ingest.parse.typefaces import SUP_END, as_script

_SMALL, _LEAST = 0.9, 0.5  # times the size of their base: letters of a script; less is text beside an initial
_RAISED = 0.2  # times the size of its base: how far the foot of a superscript is above the line at least
_TOUCHING = 0.1  # times the height of a line: the most between a word and its script
_SHARED = 0.25  # times the height of the lower of two words: what a script has in common with its base
_SLASHES = "/\u2044\u2215"


def are_of_two_sizes(boxes: Iterable[Box]) -> bool:
    """Whether of some letters, given by their boxes as one reads them, some may be scripts."""
    heights = [box.height for box in boxes]
    return min(heights) < _SMALL * max(heights)


def is_script(page: TextPage, at: int, base: int) -> bool:
    """Whether a character is as small as a script of another one."""
    size = page.size_at(base)
    return _LEAST * size < page.size_at(at) < _SMALL * size


def is_raised(page: TextPage, at: int, base: int, quarter: int) -> bool:
    """Whether a character stands higher than the line of another one."""
    return page.foot_at(base, quarter) - page.foot_at(at, quarter) > _RAISED * page.size_at(base)


def begins_with_script(page: TextPage, first: Word, letter: Word, quarter: int) -> bool:
    """Whether letters begin with the superscript of a word before them, and one of their own follows."""
    if letter.text in _SLASHES or as_read(first.box, quarter).height >= as_read(letter.box, quarter).height:
        return False
    return is_script(page, first.at, letter.at) and is_raised(page, first.at, letter.at, quarter)


def script_heights(page: TextPage, letters: Sequence[Word], quarter: int) -> dict[int, int]:
    """The letters of a word that are raised (1), and the denominators of fractions (-1), by their places."""
    heights: dict[int, int] = {}
    base, last = letters[0], letters[0]
    for letter in letters:
        if not is_script(page, letter.at, base.at):
            base = letter
        elif is_raised(page, letter.at, base.at, quarter):
            heights[letter.at] = 1
        elif heights and (last.text in _SLASHES or heights.get(last.at) == -1):
            heights[letter.at] = -1
        last = letter
    return heights


def touch(before: Word, word: Word, quarter: int) -> bool:
    """Whether a word goes on with the word before it, without a space, on one line or a little off it."""
    box, following = as_read(before.box, quarter), as_read(word.box, quarter)
    shared = min(box.bottom, following.bottom) - max(box.top, following.top)
    is_beside = shared > _SHARED * min(box.height, following.height)
    return is_beside and abs(following.left - box.right) < _TOUCHING * box.height


def parted_by_script(page: TextPage, before: Word, word: Word, quarter: int) -> bool:
    """Whether words are one that pdfium parts because one of them is, or ends with, a script."""
    if not touch(before, word, quarter):
        return False
    end = min(before.at + len(before.text), len(page.text)) - 1
    is_small = is_script(page, word.at, before.at) or is_script(page, end, before.at)
    return is_small or before.text.endswith(SUP_END)


def as_one(page: TextPage, before: Word, word: Word, quarter: int) -> Word:
    """Two words as one, the second of which is marked if it is a superscript of the first one."""
    raised = is_script(page, word.at, before.at) and is_raised(page, word.at, before.at, quarter)
    return Word(before.text + as_script(word.text, raised), before.box.around(word.box), before.at)


def with_scripts_joined(page: TextPage, words: Iterable[Word], quarter: int) -> list[Word]:
    """The words of a line, with those that are scripts, and what touches these, in the word before them."""
    joined: list[Word] = []
    goes_on = False
    for word in words:
        touches = bool(joined) and touch(joined[-1], word, quarter)
        is_small = touches and is_script(page, word.at, joined[-1].at)
        if touches and (is_small or goes_on or joined[-1].text.endswith(SUP_END)):
            joined[-1] = as_one(page, joined[-1], word, quarter)
        else:
            joined.append(word)
        goes_on = is_small
    return joined
