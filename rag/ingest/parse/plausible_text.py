"""Whether a text that was decoded makes words, or is mojibake: what a wrong encoding makes of letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import pairwise
from typing import TypeVar

Line = TypeVar("Line", str, bytes)
SAMPLE = 10_000  # characters of the lines beyond ASCII that are judged; more of them change no verdict
_SCRIPTS = (
    ("latin", re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u02af\u1e00-\u1eff]")),
    ("greek", re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")),
    ("cyrillic", re.compile(r"[\u0400-\u052f]")),
    ("hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("arabic", re.compile(r"[\u0600-\u06ff\ufb50-\ufdff\ufe70-\ufeff]")),
    ("thai", re.compile(r"[\u0e00-\u0e7f]")),
)
_WORD = re.compile(r"[^\W\d_]+")
_GLUED = re.compile(
    r"(?<=[^\W\d_])[^\w\s\x00-\x7f\u2010-\u2027\u2019\xad\xb7\xa0\u02bc\u0300-\u036f\u0e00-\u0fff\u3000-\u303f\u30fb\uff00-\uff65]+(?=[^\W\d_])"
)
_BETWEEN = re.compile(r"[a-z][\u3040-\ud7a3]{1,2}[a-z]")  # signs of the east in a Latin word
_STRAY = re.compile(
    r"[\x80-\x84\x86-\x9f\ufffd\ue000-\uf8ff\ufff0-\uffff\u2500-\u257f]"
    "|(?<!\\w)œ[lmprw]"  # śr, św in Windows-1250
)
_LINE = re.compile(r"([\u2500-\u257f])\1{2,}")  # ─────, which no wrong encoding makes
_FRAME = re.compile("[\u2500-\u257f]")  # of a table; in code pages of DOS, other letters look so
_SHORTEST = "авиоуксяєіїйηοήόώ"  # words of one letter in Cyrillic and Greek
_ODD = 0.2  # the share of odd words in a text that was decoded by a wrong encoding
_FOREIGN = 0.6  # the share of letters beyond ASCII that no Latin script reaches in long words
_FOREIGN_STATED = 0.8  # "Zażółć" has less, and Russian in a Latin encoding 1
_LONG = 5  # letters of such words
_TELLING = 4  # letters of a Greek or Cyrillic word, which no Western word with accents becomes
_MIXED = re.compile("[A-Z]{2,}[а-яё]+|(?=.*[а-яё]{3})[А-Яа-яЁё]*[aceopxyABCEHKMOPTX][А-Яа-яЁё]*")
EAST_ASIAN = {"gb18030", "big5hkscs", "cp950", "cp932", "cp949", "euc_jp", "johab"}


def is_plausible(text: str, codec: str, *, stated: bool = False) -> bool:
    """Whether the characters that were decoded by a codec make words, rather than mojibake.

    Signs of mojibake are letters of two scripts in one word, symbols between letters, words of only accented
    letters, and single foreign letters among Latin words. Such a letter proves nothing (12 р., И. И., 5 Ω) if
    the encoding is `stated`, or the text has whole words in its script. If it is stated, nor do abbreviations
    with Russian endings, a Latin letter that was typed for the Cyrillic one that looks like it.
    """
    sample = (_FRAME if codec in EAST_ASIAN else _LINE).sub(" ", lines_beyond_ascii(text))
    words = [word for word in _WORD.findall(sample) if not word.isascii()]
    words = [word for word in words if not (stated and _MIXED.fullmatch(word))]
    if stated or any(len(word) >= _TELLING and _is_greek_or_cyrillic(word) for word in words):
        words = [word for word in words if len(word) > 1 or not _is_greek_or_cyrillic(word)]
    glued, stray = len(_GLUED.findall(sample)), len(_STRAY.findall(sample))
    odd = sum(_is_odd(word, stated=stated) for word in words) + glued + 2 * stray
    return odd <= _ODD * (len(words) + glued + stray)


def _is_odd(word: str, *, stated: bool) -> bool:
    scripts = {_script(letter) for letter in word}
    if ("latin" in scripts and len(scripts - {""}) > 1) or _BETWEEN.search(word):
        return True
    if "latin" not in scripts:
        return len(word) == 1 and _is_greek_or_cyrillic(word) and word.lower() not in _SHORTEST
    foreign = sum(not letter.isascii() for letter in word)
    is_mixed = any(
        before.islower() and after.isupper() and not (before + after).isascii()
        for before, after in pairwise(word)
    )
    share = _FOREIGN_STATED if stated else _FOREIGN
    return is_mixed or (len(word) >= _LONG and foreign > share * len(word))


def _is_greek_or_cyrillic(word: str) -> bool:
    return {_script(letter) for letter in word} <= {"greek", "cyrillic"}


def _script(letter: str) -> str:
    return next((name for name, letters in _SCRIPTS if letters.match(letter)), "")


def lines_beyond_ascii(text: str) -> str:
    """The lines of a text with characters beyond ASCII, up to the size of the sample."""
    lines = (line for line in StringIO(text, "\n") if not line.isascii())
    return "".join(first_lines(lines, SAMPLE))[:SAMPLE]


def first_lines(lines: Iterable[Line], size: int) -> Iterator[Line]:
    """Lines until they have this size together."""
    for line in lines:
        yield line
        size -= len(line)
        if size < 0:
            return
