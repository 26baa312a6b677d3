"""Finds the citations and quotes in the text of an answer.

A citation is [source_id/seq], as assistants are told to write it, or [source_id/seq-seq] for passages that
follow each other. Several can share a pair of brackets, as in [a/1, a/2] and [a/1; b/2-4], and URIs of
passages are citations, too. So is anything of this form, even if
no id looks like it: [notes.md/3] is a citation that names nothing. Numbers alone, as [3/4], are not.

A quote is in quotation marks ("…", “…”, „…“, «…», »…«, 「…」), or a block quote of Markdown. It cites the
first citation after its opening mark in the same paragraph, list item or table row, and those that follow
this one with only punctuation in between. A block quote without a citation of its own cites the first one of
the next paragraph. If there is none, it cites nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from rag.errors import NotFoundError
from rag.hidden import bare
from rag.uris import parse_id

if TYPE_CHECKING:
    from collections.abc import Sequence

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(?<=\d)\s?[-\u2010-\u2013]\s?(?=\d)")  # as typography has it, too
_SEPARATORS = re.compile(r"[\s,;]+")
_MARKED = re.compile(r'(?<!\w)"([^"]*)"|“([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»|»([^«»]*)«|「([^「」]*)」')
_MARKS = ' \t\n"“”„«»「」—–-'
_BLOCK = re.compile(r"[ \t]*>")
_BLOCK_MARKS = re.compile(r"^(?:[ \t]*>(?!>>))+[ \t]*")  # ">>>" is a prompt of Python in what is quoted
_ITEM = re.compile(r"[ \t]*(?:[-*+•][ \t]|\d+[.)][ \t]|[#|])")
_ELLIPSIS = re.compile(r"\[\s*(?:…|\.{3,})\s*\]|…|\.{3,}")
_SPOILED = re.compile(r"(?<=<) (?=[A-Za-z/!?])|(?<=!)[ \\](?=\[)|(?<=\]) (?=:)")
"""What `rag.search.reply.untrusted` inserts into markup, now or in an earlier version: answers can be old."""
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that an answer presents as verbatim, and the ids of the passages that it cites for them."""

    text: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The ids that an answer cites, without repetitions, and its quotes, both in the order of the text."""

    citations: tuple[str, ...]
    quotes: tuple[Quote, ...]


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A paragraph without its citations. `cited` has these in groups, each with its position in `text`.

    A group is a run of citations with only punctuation in between.
    """

    text: str
    is_block: bool
    cited: Sequence[tuple[int, Sequence[str]]]

    def cited_after(self, start: int) -> tuple[str, ...]:
        """The first group of citations after a position."""
        group = bisect_right(self.cited, start, key=itemgetter(0))
        return tuple(self.cited[group][1]) if group < len(self.cited) else ()

    def quotes(self) -> list[tuple[int, str]]:
        """The quotes, each with its position."""
        if self.is_block:
            lines = (_BLOCK_MARKS.sub("", line, count=1) for line in self.text.split("\n"))
            quotes = [(0, "\n".join(lines).strip(_MARKS))]
        else:
            matches = _MARKED.finditer(self.text)
            quotes = [(match.start(), match[match.lastindex or 0].strip()) for match in matches]
        return [(at, words) for at, words in quotes if _WORD.search(words)]


_NOTHING = _Paragraph("", is_block=False, cited=())


def parse_answer(text: str) -> ParsedAnswer:
    """The citations and quotes of an answer.

    Example: 'It "swings" [ab/1].' -> ParsedAnswer(("ab/1",), (Quote("swings", ("ab/1",)),)).
    """
    paragraphs = [_paragraph(lines) for lines in _paragraph_lines(text)]
    quotes = [
        Quote(words, one.cited_after(at) or (following.cited_after(-1) if one.is_block else ()))
        for one, following in pairwise([*paragraphs, _NOTHING])
        for at, words in one.quotes()
    ]
    cited = (id_ for one in paragraphs for _, ids in one.cited for id_ in ids)
    return ParsedAnswer(tuple(dict.fromkeys(cited)), tuple(quotes))


def paragraphs(text: str) -> list[tuple[str, bool]]:
    """The paragraphs, list items and table rows of an answer without citations, and whether each had one."""
    return [(one.text, bool(one.cited)) for one in map(_paragraph, _paragraph_lines(text))]


def holds(passage: str, quote: str) -> bool:
    r"""Whether the passage contains the quote verbatim, except for white space and hidden characters.

    An ellipsis stands for any text. Markup may contain the spaces that the tools insert.
    Example: "It swings,\nslowly, to and fro." holds "It swings, […] to and fro".
    """
    text, at = _plain(passage), 0
    for part in map(_plain, _ELLIPSIS.split(quote)):
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _plain(text: str) -> str:
    """The visible text with single spaces, and markup as in the document."""
    return _SPOILED.sub("", " ".join(bare(text).replace("&lt;", "<").split()))


def _paragraph_lines(text: str) -> list[list[str]]:
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        last = paragraphs[-1]
        if not line.strip() or _ITEM.match(line) or (last and _is_block(line) != _is_block(last[0])):
            paragraphs.append([])
        if line.strip():
            paragraphs[-1].append(line)
    return [lines for lines in paragraphs if lines]


def _is_block(line: str) -> bool:
    return bool(_BLOCK.match(line))


def _paragraph(lines: list[str]) -> _Paragraph:
    written = "\n".join(lines)
    text, end = "", 0
    cited: list[tuple[int, list[str]]] = []
    for match in _BRACKETS.finditer(written):
        if ids := [_id(word) for word in _SEPARATORS.split(_RANGE.sub("-", match[1])) if _is_citation(word)]:
            between = written[end : match.start()].rstrip()
            text += between
            end = match.end()
            if not cited or _WORD.search(between):
                cited.append((len(text), []))
            cited[-1][1].extend(ids)
    return _Paragraph(text + written[end:], _is_block(lines[0]), cited)


def _is_citation(word: str) -> bool:
    name, _, seqs = word.rpartition("/")
    numbers = all(one.isascii() and one.isdecimal() for one in seqs.split("-"))
    return numbers and any(map(str.isalpha, name))


def _id(word: str) -> str:
    """The id that a citation names; text that can't be an id stays as it is."""
    try:
        return parse_id(word)
    except NotFoundError:
        return word
