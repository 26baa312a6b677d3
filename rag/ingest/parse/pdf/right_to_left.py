"""The order of words and letters in Hebrew and Arabic lines of a PDF, as people write and store them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rag.ingest.parse.pdf.text_page import TextPage, Word, as_read, box_around

_LETTERS = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_ANY_LETTER = re.compile(r"[^\W\d_]")
_LINE = re.compile(r"[^\r\n]+")
_OPENING, _CLOSING = str.maketrans(")]}", "([{"), str.maketrans("([{", ")]}")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_LATIN_RUN = re.compile(r"(?:[LN][LNS]*)?L")  # of kinds of words from right to left
_MIXED = re.compile(r"(?=.*R)(?=.*[LN])(?!L.*L\Z).*")  # kinds of words: not only Hebrew, and no Latin line
_ARABIC = re.compile(r"[\u0620-\u06d3]")
_SIGN = r"[.,:;!?()\[\]{}\"'«»،]*"
_SIGN_ENDS = re.compile(rf"(?P<before>{_SIGN})(?P<words>.*?)(?P<behind>{_SIGN})", re.DOTALL)
_ARABIC_NUMBER = re.compile(r"(?<!\d)[+-]?\d(?:[\d.,:/]*\d)?")  # what keeps its order in a number
_NUMBER = re.compile(r"(?<!\d)[+-]?[$€£₪]?\d(?:[\d.,:/+-]*\d)?[%$€£₪]?")


def runs_left(text: str) -> bool:
    """Whether most letters are Hebrew or Arabic."""
    return 2 * len(_LETTERS.findall(text)) > len(_ANY_LETTER.findall(text)) > 0


def page_runs_left(text: str) -> bool:
    """Whether a page is Hebrew or Arabic: most lines have such letters, and these are a fourth of all."""
    lines = [bool(_LETTERS.search(line)) for line in _LINE.findall(text)]
    return 2 * sum(lines) > len(lines) and 4 * len(_LETTERS.findall(text)) > len(_ANY_LETTER.findall(text))


def number_pattern(text: str) -> re.Pattern[str]:
    """What keeps its order as a number on a page with this text."""
    return _ARABIC_NUMBER if _ARABIC.search(text) else _NUMBER


def is_mixed(words: Sequence[Word]) -> bool:
    """Whether words from right to left are a line that runs left, and some of them run right."""
    return _MIXED.fullmatch("".join(map(_kind, words))) is not None


def in_order(page: TextPage, word: Word, quarter: int, number: re.Pattern[str]) -> Word:
    """A word of a right-to-left line in its order; pdfium mixes those up that have no such letters."""
    if _kind(word) == "R" or word.text.isalpha():
        return word
    places = range(word.at, min(word.at + len(word.text), len(page.text)))
    letters = [Word(page.text[at], box, at) for at in places if (box := page.box_at(at))]
    letters.sort(key=lambda letter: as_read(letter.box, quarter).left)
    text = "".join(letter.text for letter in letters)
    if sorted(text) != sorted(word.text):
        return word
    if not _LATIN.search(text):
        text = number.sub(lambda match: match[0][::-1], text)[::-1]
    return word._replace(text=text, box=box_around(letter.box for letter in letters))


def logical_order(words: Sequence[Word]) -> Iterator[str]:
    """The words of a right-to-left line in logical order.

    pdfium leaves brackets as they look. Latin words run to the right, with the numbers behind them.
    """
    kinds = "".join(map(_kind, words))
    at = 0
    for run in _LATIN_RUN.finditer(kinds):
        yield from (word.text.translate(_MIRRORED) for word in words[at : run.start()])
        latin = words[run.start() : run.end()]
        texts = " ".join(word.text for word in sorted(latin, key=lambda word: word.box.left))
        if match := _SIGN_ENDS.fullmatch(texts):  # signs at its ends belong to the line
            begin, end = match["behind"][::-1].translate(_OPENING), match["before"][::-1].translate(_CLOSING)
            yield begin + match["words"] + end
        at = run.end()
    yield from (word.text.translate(_MIRRORED) for word in words[at:])


def _kind(word: Word) -> str:
    """The kind of a word: right to left, Latin, a number, or signs."""
    if any(map(str.isalpha, _LETTERS.findall(word.text))):
        return "R"
    return "L" if _LATIN.search(word.text) else "N" if any(map(str.isdigit, word.text)) else "S"
