"""Passages whose own heading is what a query names: § 433, version 0.61.0, the definition of AddCommand.

Others mention the name more often than its own section does, or inherit it from a title. So a passage gets a
higher score by words if its heading is the name, or begins with it (`with_own_first`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Self

from rag.corpus import Language
from rag.store.read.schema import Ranking, StoredChunk, split_chunk_id
from rag.store.read.stop_words import ANY_STOP_WORDS, DEFINED_IN_CODE, question_words
from rag.store.read.word_analysis import MAX_TERMS, joinable_pair, query_words

LOOKED_AT = 1_000  # passages by words, where all are scored: what many mention may itself have rank 700
MOST_NAMED = 8  # addresses and names in a query; a pasted log has hundreds
OWN = 1.4  # the score of a passage that is surely meant, in shares of the best score by words
FURTHER = 0.9  # how sure a heading above others is, and a subsection: 3.2.1 for 3.2
GOES_ON = 0.8  # the same of passages in which a section only goes on
OTHER_CASE = 0.7  # how sure a name is in another letter case

_NUMBER = r"[0-9]++(?:[.-][0-9]++)*+(?:[a-z](?![a-z])|-[a-z]+[.-]?[0-9]*)?"  # § 5a, 1.0.0-beta-3
_LETTERS = r"(?<= )(?:[IVXLC]+|[A-Z])"  # Article IV, Appendix B
_ASKED_NUMBER = re.compile(
    rf"(?:(?<![\w.])(?P<word>[^\W\d_]+)\.? |(?P<sign>§)§? ?)?(?<![\w.,-])v?(?P<number>{_NUMBER}|{_LETTERS})"
    r"(?!\w| ?[%€$]|[.,][0-9])"
)
_OWN_NUMBER = re.compile(
    rf"[^\w§]*(?:(?P<word>[^\W\d_]+)[.:]? [\[(]?|(?P<sign>§)§? ?)?v?(?P<number>{_NUMBER}|{_LETTERS})(?!\w)"
)
_KINDS = {
    word: kind
    for kind, words in {
        "§": "§ section sec paragraph para paragraf",
        "art": "art article artikel artículo articolo artigo artykuł статья",
        "part": """
        abschnitt annex anhang anlage appendix chapter chapitre clause exhibit item kapitel no nr part point
        punkt rule schedule schritt sección step teil ziffer глава пункт раздел
        """,
    }.items()
    for word in words.split()
}
"""What words before the number of a section mean: the same as §, articles, or other parts of a document."""

_DEFINING = DEFINED_IN_CODE | {
    *("declaration", "definition", "implementation", "change", "changed", "changelog", "changes", "new"),
    *("notes", "release", "released", "version", "what's", "what’s"),
}
"""Words beside a name or a version that only say that its definition or its changes are wanted."""
_NAME = r"[^\W\d]\w*(?:(?:[.:#-]|->|::)\w+)*"
_ASKED_NAME = re.compile(rf"(?<!\w){_NAME}")
_OWN_NAME = re.compile(
    rf"[^\w(]*+(?:\([^)]*\)\s*)?(?:(?:{'|'.join(DEFINED_IN_CODE)})\s+)*[^\w(]*(?P<name>{_NAME})"
    r"(?P<only>\W*$|`?\s*(?:[(:<\[{]|(?:extends|implements|interface|struct)\b))?"
)
_OF_CODE = re.compile("_|[a-z0-9][A-Z]")


@dataclass(frozen=True, slots=True)
class Address:
    """The number of a section or version, and the word or sign before it, in small letters; "" for none."""

    mark: str
    number: str

    @classmethod
    def of(cls, match: re.Match[str]) -> Self:
        """The address in a match of the expressions above."""
        return cls((match["sign"] or match["word"] or "").casefold(), match["number"])

    @property
    def kind(self) -> str:
        """What the mark means."""
        return _KINDS.get(self.mark, self.mark)

    @property
    def is_marked(self) -> bool:
        """Whether the word before it says that it is a section's."""
        return self.mark in _KINDS

    @property
    def is_sure(self) -> bool:
        """Whether a section or a version is meant, and not days or pieces."""
        return self.is_marked or "." in self.number

    def sureness(self, own: Address, outer: Collection[str]) -> float:
        """How surely a heading that begins with its `own` address, below these words, is meant; 0 to 1.

        Examples: "section 626" and "§ 626" -> 1; "4.2" and "4.2.1" -> `FURTHER`; "article 6" and "§ 6" -> 0;
        "BGB 433" and "§ 433" -> 1 below "Bürgerliches Gesetzbuch (BGB)".
        """
        if self.number != own.number and not own.number.startswith(f"{self.number}."):
            return 0.0
        return self._has_kind_of(own, outer) * (1.0 if self.number == own.number else FURTHER)

    def _has_kind_of(self, own: Address, outer: Collection[str]) -> bool:
        if self.mark == own.mark or (self.kind == own.kind != "part"):
            return bool(self.mark) or self.is_sure
        if own.kind in {"", "§"}:
            return self.mark in outer or (self.is_sure and "" in {own.mark, self.mark})
        return "." in self.number and not {self.mark, own.mark} & _KINDS.keys()


@dataclass(frozen=True, slots=True)
class Named:
    """The addresses and the names in a query, and all words of it that tell something."""

    addresses: tuple[Address, ...]
    names: tuple[str, ...]
    words: frozenset[str]

    @classmethod
    def of(cls, query: str, languages: Sequence[Language]) -> Self:
        """What a query names whose words are analysed in these languages.

        A word without capitals or "_" inside is a name if the query has no other: "where is deploy defined".
        So are two: "order item" for OrderItem.
        """
        asking = question_words(frozenset(languages)) | _DEFINING
        all_words = query_words(query, languages)[:MAX_TERMS]
        texts = [word.text for word in all_words]
        words = [text for text in texts if text.casefold() not in asking] or texts
        names = [_member(match[0]) for match in _ASKED_NAME.finditer(query)]
        names = [name for name in names if _OF_CODE.search(name) or words == [name.casefold()]]
        if pair := joinable_pair(all_words, query):
            names = words = ["".join(word.text for word in pair)]
        addresses = islice(_addresses(query), MOST_NAMED)
        return cls(tuple(addresses), tuple(dict.fromkeys(names))[:MOST_NAMED], frozenset(words))

    def sureness(self, stored: StoredChunk, had: frozenset[str] | None) -> float:
        """How surely a passage that has these words of the query is under what it names; 0 to 1."""
        headings, depth = stored.section, stored.columns["depth"][stored.row]
        count = max(len(self.words), 1)
        share = 1.0 if had is None else len(self.words & had) / count
        of_section, of_version = self._sureness_of_addresses(headings, depth)
        of_name = self._sureness_of_name(headings[max(depth - 1, 0) :])
        return max((2 + share) / 3 * of_section, of_version / count, of_name / count)

    def _sureness_of_addresses(self, headings: Sequence[str], depth: int) -> tuple[float, float]:
        """How surely addresses mean a passage with these headings: those of sections ("BGB 433"), and others.

        The others are mostly versions of what the query is about: "Claude 3.5".
        """
        best = {True: 0.0, False: 0.0}
        asked = [address for address in self.addresses if any(address.number in text for text in headings)]
        if not asked:
            return 0.0, 0.0
        outer = frozenset(re.findall(r"\w+", " ".join(headings).casefold()))
        owns = [(place, Address.of(own)) for place, own in enumerate(map(_OWN_NUMBER.match, headings)) if own]
        for address, (place, own) in product(asked, owns):
            is_of_section = address.is_marked or address.mark in outer - {own.mark}
            above = FURTHER if place < depth - 1 else 1.0
            best[is_of_section] = max(best[is_of_section], above * address.sureness(own, outer))
        return best[True], best[False]

    def _sureness_of_name(self, headings: Sequence[str]) -> float:
        owns = [own for heading in headings for own in _own_names(heading)] if self.names else []
        if any(own in self.names for own in owns):
            return 1.0
        folded = {name.casefold() for name in self.names}
        return OTHER_CASE if any(own.casefold() in folded for own in owns) else 0.0


def _addresses(query: str) -> Iterator[Address]:
    """The addresses in a query. "In 2019" and "I" are none; "Python 3" may be one."""
    for match in _ASKED_NUMBER.finditer(query):
        address = Address.of(match)
        is_number = address.number[0].isdecimal() and address.mark
        if address.is_sure or (is_number and address.mark not in ANY_STOP_WORDS):
            yield address


def _own_names(heading: str) -> Iterator[str]:
    """The name that a heading defines, unless it is a word at the beginning of a sentence."""
    own = _OWN_NAME.match(heading)
    if own and (own["only"] is not None or _OF_CODE.search(own["name"])):
        yield _member(own["name"])


def _member(name: str) -> str:
    """What a dotted name means: InvoiceService.parse_amount -> parse_amount; README.md stays."""
    last = re.split(r"[.:#>]+", name)[-1]
    return last if _OF_CODE.search(last) else name


def with_own_first(ranking: Ranking, named: Named) -> Ranking:
    """A ranking by words, in which those passages come first that are under what the query names."""
    marks = {*(address.number.casefold() for address in named.addresses), *map(str.casefold, named.names)}
    sure: dict[int, float] = {}  # by index in the ranking; few passages have a mark, so this is fast
    begins: dict[tuple[str, ...], int] = {}  # the first passage of each section that is meant
    for index, (scored, headings) in enumerate((scored, scored.stored.section) for scored in ranking):
        if any(mark in heading.casefold() for heading in headings for mark in marks) and (
            sureness := named.sureness(scored.stored, scored.words)
        ):
            section, seq = _place(scored.stored)
            sure[index], begins[section] = sureness, min(seq, begins.get(section, seq))
    raised = [*ranking]
    for index, sureness in sure.items():
        scored = ranking[index]
        section, seq = _place(scored.stored)
        share = sureness * (1.0 if seq == begins[section] else GOES_ON)
        score = scored.score + share * max(0.0, OWN * ranking[0].score - scored.score)
        raised[index] = replace(scored, score=score)
    return sorted(raised, key=lambda scored: -scored.score) if sure else ranking


def _place(stored: StoredChunk) -> tuple[tuple[str, ...], int]:
    """The section of a passage, after its source, and the passage's number."""
    source, seq = split_chunk_id(stored.id)
    return (source, *stored.section[: stored.columns["depth"][stored.row]]), seq
