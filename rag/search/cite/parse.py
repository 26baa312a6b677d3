"""What an answer cites and what it quotes, read from its text.

A citation is [source_id/seq], as assistants are told to write it. Several can share a pair of brackets,
as in [a/1, a/2] and [a/1; b/2], and the URIs of passages count as well. Whatever reads so is a citation, even
where no id looks like that: [notes.md/3] is one, and names nothing. Numbers alone, as [3/4], are none.

A quote stands in quotation marks ("…", “…”, „…“, «…», »…«, 「…」), or is a block quote of Markdown. It rests
on the first citation behind its opening mark in the same paragraph, list item or row of a table, and on those
that follow that one with nothing but punctuation between. A block quote without a citation of its own rests
on the first of the next paragraph. Where there is none, a quote rests on nothing.
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
_SEPARATORS = re.compile(r"[\s,;]+")
_MARKED = re.compile(r'(?<!\w)"([^"]*)"|“([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»|»([^«»]*)«|「([^「」]*)」')
_MARKS = ' \t\n"“”„«»「」—–-'
_BLOCK = re.compile(r"[ \t]*>")
_ITEM = re.compile(r"[ \t]*(?:[-*+•][ \t]|\d+[.)][ \t]|[#|])")
_ELLIPSIS = re.compile(r"\[\s*(?:…|\.{3,})\s*\]|…|\.{3,}")
_SPOILED = re.compile(r"(?<=<) (?=[A-Za-z/!?])|(?<=!)[ \\](?=\[)|(?<=\]) (?=:)")
"""What `rag.search.reply.untrusted` puts into markup, or put there once: answers outlive versions."""
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that an answer gives as a document's own, and the ids of the passages that they rest on."""

    text: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The ids that an answer cites, each once, and its quotes, both in the order of the text."""

    citations: tuple[str, ...]
    quotes: tuple[Quote, ...]


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A paragraph without its citations: these are in `cited`, row by row, with where each row stood."""

    text: str
    is_block: bool
    cited: Sequence[tuple[int, Sequence[str]]]

    def cited_behind(self, start: int) -> tuple[str, ...]:
        row = bisect_right(self.cited, start, key=itemgetter(0))
        return tuple(self.cited[row][1]) if row < len(self.cited) else ()

    def quotes(self) -> list[tuple[int, str]]:
        """The quotes, and where they begin."""
        if self.is_block:
            lines = (line.lstrip("> \t") for line in self.text.split("\n"))
            found = [(0, "\n".join(lines).strip(_MARKS))]
        else:
            matches = _MARKED.finditer(self.text)
            found = [(match.start(), match[match.lastindex or 0].strip()) for match in matches]
        return [(at, words) for at, words in found if _WORD.search(words)]


_NOTHING = _Paragraph("", is_block=False, cited=())


def parse_answer(text: str) -> ParsedAnswer:
    """The citations and quotes of an answer.

    Example: 'It "swings" [ab/1].' -> ParsedAnswer(("ab/1",), (Quote("swings", ("ab/1",)),)).
    """
    paragraphs = [_paragraph(lines) for lines in _paragraph_lines(text)]
    quotes = [
        Quote(words, one.cited_behind(at) or (after.cited_behind(-1) if one.is_block else ()))
        for one, after in pairwise([*paragraphs, _NOTHING])
        for at, words in one.quotes()
    ]
    cited = (id_ for one in paragraphs for _, ids in one.cited for id_ in ids)
    return ParsedAnswer(tuple(dict.fromkeys(cited)), tuple(quotes))


def holds(passage: str, quote: str) -> bool:
    r"""Whether the quote stands in the passage, to the letter but for white space and what nobody sees.

    An ellipsis stands for anything; markup may have blanks in it, as the tools show it.
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
    """What can be seen, with a blank between two words, and markup as the document has it."""
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
        if ids := [_id(word) for word in _SEPARATORS.split(match[1]) if _is_citation(word)]:
            between = written[end : match.start()].rstrip()
            text += between
            end = match.end()
            if not cited or _WORD.search(between):
                cited.append((len(text), []))
            cited[-1][1].extend(ids)
    return _Paragraph(text + written[end:], _is_block(lines[0]), cited)


def _is_citation(word: str) -> bool:
    name, _, seq = word.rpartition("/")
    return seq.isascii() and seq.isdecimal() and any(map(str.isalpha, name))


def _id(word: str) -> str:
    """The id that a citation names; what can be none stays as it is."""
    try:
        return parse_id(word)
    except NotFoundError:
        return word
