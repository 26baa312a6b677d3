"""Passages whose own heading is what a query names: § 433, version 0.61.0, the definition of AddCommand.

Others mention the name more often than its own section does, or inherit it from a title. So a passage gets a
higher score by words if its heading is the name, or begins with it (`with_named_first`). The title of the
document counts like a heading above all others: PEP 612, whose number is in each of its passages, and so is
no rare word. So does the caption of a table or a figure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from typing import Self, cast

from rag.corpus import Language
from rag.store.read.schema import Ranking, StoredChunk, split_chunk_id
from rag.store.read.word_analysis import (
    ANY_STOP_WORDS,
    DEFINED_IN_CODE,
    MAX_TERMS,
    joinable_pair,
    query_words,
    question_words,
)
from rag.text.plain_text import (
    ADDED,
    ANNEXES,
    OF_STORIES,
    PARTS,
    numeral_pattern,
    roman_numeral,
    with_section_numbers,
)

LOOKED_AT = 1_000  # passages by words, where all are scored: what many mention may itself have rank 700
MOST_NAMED = 8  # addresses and names in a query; a pasted log has hundreds
RAISED = 1.4  # the score of a passage that is surely meant, in shares of the best score by words
FURTHER = 0.9  # how sure a heading above others is, and a subsection: 3.2.1 for 3.2
GOES_ON = 0.8  # how sure a passage is in which a section only goes on
EACH_FURTHER, MOST_FURTHER = 0.005, 40  # less for each passage further from its beginning, and how many count
OTHER_CASE = 0.7  # how sure a name is in another letter case

_DIGITS = rf"[0-9]++(?:[.-][0-9]++)*+(?:(?:[a-z]|{ADDED})(?![a-z])|-[a-z]+[.-]?[0-9]*)?"
"""Of § 5a, Art. 3bis, 1.0.0-beta-3."""
_LETTERS = r"(?<= )(?:[IVXLC]+|[A-Z])"  # Article IV, Appendix B
_WORD, _SIGN = r"(?P<word>[^\W\d_]+)", r"(?P<sign>§)§? ?"
_NUMBER = rf"v?(?P<number>{_DIGITS}|{_LETTERS})"
_IN_QUERY = re.compile(
    rf"(?:(?<![\w.]){_WORD}(?:\.? |-(?=[0-9]))|{_SIGN}|(?<![\w.,-])){_NUMBER}"
    r"(?!\w| ?[%€$]|[.,][0-9])"  # not 5 %, 1,250
)
_AT_HEADING = re.compile(rf"[^\w§]*(?:{_WORD}(?:[.:]? [\[(]?|-(?=[0-9]))|{_SIGN})?{_NUMBER}(?!\w)")
_RELEASE = re.compile(
    r"[^\w§]*(?P<words>(?:[^\W\d_][\w.'’+-]*+ ){1,5})[\[(]?"
    r"v?(?P<number>[0-9]+(?:\.[0-9]+)+(?:-?[a-z]+[.-]?[0-9]*)?)(?!\w)"
)
"""A version behind the name of its product, or in "What's new in 3.5"."""
_DAY_FIRST = re.compile(r"\A[^\w§]*[0-9]{4}-[0-9]{2}-[0-9]{2},? (?=[^0-9]*[0-9]+\.[0-9])")
"""A day before a version, in changelogs of Node.js."""
_TO_ANOTHER = frozenset(
    """
    after before from prior since than till to until ab auf bis nach seit von vor après avant depuis vers
    desde hasta
    """.split()  # noqa: SIM905 easier to read
)
"""Words before a version in headings of other things: "Migrating from 2.0"."""
_KINDS = {
    word: kind
    for kind, words in {
        "§": "§ section sec paragraph para paragraf",
        "art": "art article artikel artículo articolo artigo artykuł статья",
        "part": """
        abschnitt annex anhang anlage appendix chapter chapitre clause exhibit item kapitel no nr part point
        punkt rule schedule schritt sección step teil ziffer глава пункт раздел
        """,
        "table": "table tab tabela tabell tabella tabelle tabel tabla tableau таблица",
        "figure": "figure fig abbildung abb figur figura obrázek rysunek рисунок рис",
    }.items()
    for word in words.split()
}
"""What words before a number mean: the same as §, articles, other parts of a document, tables or figures."""
_CAPTIONED = frozenset({"table", "figure"})
_CAPTION = re.compile(
    r"(?:\A(?:[^\n]+\n)?|\n\n|\|\n|\| )[^\w\n|]*+"  # in the context, a paragraph or a cell; not in any line
    rf"(?P<word>(?i:{'|'.join(word for word, kind in _KINDS.items() if kind in _CAPTIONED)}))"
    rf"\.?[ \u00a0]?(?P<number>{_DIGITS}|[IVXLC]+\b|[A-Z]\b)"
    r"(?=[*_]*(?:[.:|–—-]|$| (?![a-z]))(?P<behind>[^\n]*))",  # "Table 3 shows" is a sentence
    re.MULTILINE,
)
_LEADER = re.compile(r"(?:\. ?){4}")
_PAGE = re.compile(r"[^\w.,] ?[0-9]{1,3}[ |]*$")
"""What says that a line is one in a list of tables, the latter if several have it."""

_DEFINING = DEFINED_IN_CODE | {
    *("declaration", "definition", "implementation", "change", "changed", "changelog", "changes", "new"),
    *("notes", "release", "released", "version", "what's", "what’s"),
}
"""Words beside a name or a version that only say that its definition or its changes are wanted."""
_NAME = r"[^\W\d]\w*(?:(?:[.:#-]|->|::)\w+)*"
_NAME_IN_QUERY = re.compile(rf"(?<!\w){_NAME}")
_NAME_AT_HEADING = re.compile(
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
        number = re.sub(r"\A0+(?=[0-9])", "", match["number"])  # pep-0612
        return cls((match["sign"] or match["word"] or "").casefold(), number)

    @property
    def kind(self) -> str:
        """What the mark means."""
        return _KINDS.get(self.mark, self.mark)

    @property
    def mark_in_headings(self) -> str:
        """What every heading with this number has, however it is written: 3 for 3-bis."""
        return re.sub(r"(?<=[0-9])[a-z]+$", "", self.number.casefold())

    @property
    def numerals(self) -> str:
        """An expression for its number in headings of chapters, acts and annexes: Roman, or words."""
        return numeral_pattern(self.number) if self.mark in PARTS | ANNEXES else ""

    @property
    def is_marked(self) -> bool:
        """Whether the word before it says that it is a section's."""
        return self.mark in _KINDS

    @property
    def is_sure(self) -> bool:
        """Whether a section or a version is meant, and not days or pieces."""
        return self.is_marked or "." in self.number

    def sureness(self, heading: Address, outer: Collection[str]) -> float:
        """How surely a heading that begins with an address, below these words, is meant; 0 to 1.

        Examples: "section 626" and "§ 626" -> 1; "4.2" and "4.2.1" -> `FURTHER`; "article 6" and "§ 6" -> 0;
        "BGB 433" and "§ 433" -> 1 below "Bürgerliches Gesetzbuch (BGB)".
        """
        if not self.is_number_of(heading):
            return 0.0
        return self._has_kind_of(heading, outer) * (1.0 if self.number == heading.number else FURTHER)

    def is_number_of(self, heading: Address) -> bool:
        """Whether a heading has this number, or one that begins with it: 3.2.1 for 3.2."""
        return self.number == heading.number or heading.number.startswith(f"{self.number}.")

    def _has_kind_of(self, heading: Address, outer: Collection[str]) -> bool:
        if self.mark == heading.mark or (self.kind == heading.kind != "part"):
            return bool(self.mark) or self.is_sure
        if self.kind in _CAPTIONED:  # "3. Table spotting" is no table 3
            return False
        if heading.kind in {"", "§"}:
            return self.mark in outer or (self.is_sure and "" in {heading.mark, self.mark})
        return "." in self.number and not (self.is_marked or heading.is_marked)


@dataclass(frozen=True, slots=True)
class Named:
    """The addresses and the names in a query, and all words of it that tell something.

    `captions` are the addresses of tables and figures.
    """

    addresses: tuple[Address, ...]
    names: tuple[str, ...]
    words: frozenset[str]
    captions: tuple[Address, ...] = ()

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
        names = [_member(match[0]) for match in _NAME_IN_QUERY.finditer(query)]
        names = [name for name in names if _OF_CODE.search(name) or words == [name.casefold()]]
        if pair := joinable_pair(all_words, query):
            names = words = ["".join(word.text for word in pair)]
        addresses = tuple(islice(_addresses(query), MOST_NAMED))
        captions = tuple(address for address in addresses if address.kind in _CAPTIONED)
        return cls(addresses, tuple(dict.fromkeys(names))[:MOST_NAMED], frozenset(words), captions)

    @property
    def numerals(self) -> frozenset[str]:
        """The numbers of chapters and acts in Roman numerals: a heading "III" has no word of "chapter 3"."""
        chapters = (address for address in self.addresses if address.mark in OF_STORIES)
        return frozenset(filter(None, (roman_numeral(chapter.number) for chapter in chapters)))

    def sureness(self, stored: StoredChunk, words: frozenset[str] | None) -> float:
        """How surely a passage that has these words of the query is under what it names; 0 to 1."""
        count = max(len(self.words), 1)
        share = 1.0 if words is None else len(self.words & words) / count
        of_section, of_version = self._sureness_of_addresses(stored, words or frozenset())
        # A section's number says nearly all. A version or a name is one word of the query among others.
        of_name = self._sureness_of_name(stored.section[max(_depth(stored) - 1, 0) :])
        return max((2 + share) / 3 * of_section, of_version, of_name / count)

    def headings(self, stored: StoredChunk) -> Sequence[str]:
        """The title of a passage's document, and its headings.

        If the query names captions, also the passage's captions that may be meant.
        """
        headings = [_title(stored), *stored.section]
        body = stored.body if self.captions else ""
        numbers = [re.escape(address.number) for address in self.captions]
        is_near = any(re.search(rf"{number}(?<=[\w.][ .\u00a0]{number})", body) for number in numbers)  # fast
        return [*headings, *_captions(body)] if is_near else headings

    def _has_document(self, stored: StoredChunk) -> bool:
        """Whether the query has a word of the document's title or headings, or only names captions."""
        parts = {part for address in self.captions for part in (address.mark, address.number.casefold())}
        others = {*map(str.casefold, self.words)} - parts
        above = _words(" ".join([_title(stored), *stored.section]))
        return not others or not others.isdisjoint(above)

    def _sureness_of_addresses(self, stored: StoredChunk, words: frozenset[str]) -> tuple[float, float]:
        """How surely addresses mean a passage: addresses of sections ("BGB 433"), and all others.

        The others are mostly versions of what the query is about ("Claude 3.5"), or other documents' tables.
        With the words of their heading they weigh as much as another word of the query.
        """
        of_section = of_version = 0.0
        numbered = [*map(_numbered, self.headings(stored))]
        headings = [text for text, _ in numbered]
        near = [address for address in self.addresses if any(address.number in text for text in headings)]
        if not near:
            return of_section, of_version
        everywhere = _words(" ".join(headings))
        for address, (place, (_, heading)) in product(near, enumerate(numbered)):
            if heading:
                outer = everywhere if place else _words(headings[0])  # a title is above its headings
                above = FURTHER if place < _depth(stored) else 1.0
                sureness = above * address.sureness(heading, outer)
                is_of_section = address.is_marked or address.mark in outer - {heading.mark}
                if is_of_section and (address.kind not in _CAPTIONED or self._has_document(stored)):
                    of_section = max(of_section, sureness)
                else:
                    others = self.words.difference(words, _words(headings[place]))
                    of_version = max(of_version, sureness / max(len(others), 1))
        return of_section, of_version

    def depth(self, stored: StoredChunk) -> int:
        """The number of headings above a passage, down to the one whose number is named, if one is."""
        numbered = map(_numbered, [_title(stored), *stored.section[: _depth(stored)]])
        for depth, (_, heading) in enumerate(numbered):
            if heading and any(address.is_number_of(heading) for address in self.addresses):
                return depth
        return _depth(stored)

    def _sureness_of_name(self, headings: Sequence[str]) -> float:
        defined = {name for heading in headings if (name := _defined_name(heading))} if self.names else set()
        if not defined.isdisjoint(self.names):
            return 1.0
        folded = map(str.casefold, defined)
        return OTHER_CASE if {name.casefold() for name in self.names}.intersection(folded) else 0.0


def _addresses(query: str) -> Iterator[Address]:
    """The addresses in a query. "In 2019" and "I" are none; "Python 3" may be one."""
    for match in _IN_QUERY.finditer(with_section_numbers(query)):
        address = Address.of(match)
        is_number = address.number[0].isdecimal() and address.mark
        if address.is_sure or (is_number and address.mark not in ANY_STOP_WORDS):
            yield address


@lru_cache(4_096)  # passages share their titles and headings: without it, searches for one take 8 % longer
def _numbered(heading: str) -> tuple[str, Address | None]:
    """A heading with its numbers in digits, and the address that it has."""
    text = with_section_numbers(heading)
    return text, _address_at(text)


def _address_at(heading: str) -> Address | None:
    """The address that a heading begins with, or the version that it names behind a product."""
    heading = _DAY_FIRST.sub("", heading, count=1)
    if match := _AT_HEADING.match(heading):
        return Address.of(match)
    match = _RELEASE.match(heading)
    is_release = match and _TO_ANOTHER.isdisjoint(match["words"].casefold().split())
    return Address("", match["number"]) if match and is_release else None


def _depth(stored: StoredChunk) -> int:
    """The number of headings that a passage begins under."""
    return cast("int", stored.columns["depth"][stored.row])


def _title(stored: StoredChunk) -> str:
    """The title of a passage's document, from the line above its text; what it begins with if it has none."""
    return stored.body.partition("\n")[0].partition(" > ")[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def _captions(body: str) -> list[str]:
    """The captions at the beginning of paragraphs and cells: ["Table 3"]; none in a list of tables."""
    captions = [match for match in _CAPTION.finditer(body) if not _LEADER.search(match["behind"])]
    is_list = sum(bool(_PAGE.search(match["behind"])) for match in captions) > 1
    return [] if is_list else [f"{match['word']} {match['number']}" for match in captions]


def named_captions(name: str) -> set[tuple[str, str]]:
    """The captions that are named, by their kinds and numbers: "fig. 3" -> {("figure", "3")}."""
    return {(address.kind, address.number) for address in _addresses(name) if address.kind in _CAPTIONED}


def has_caption(text: str, named: Collection[tuple[str, str]]) -> bool:
    """Whether a text has one of these captions."""
    headings = filter(None, map(_AT_HEADING.match, _captions(text)))
    return any((heading.kind, heading.number) in named for heading in map(Address.of, headings))


def _defined_name(heading: str) -> str | None:
    """The name that a heading defines; None if it begins with an ordinary word."""
    match = _NAME_AT_HEADING.match(heading)
    is_name = match and (match["only"] is not None or _OF_CODE.search(match["name"]))
    return _member(match["name"]) if match and is_name else None


def _member(name: str) -> str:
    """What a dotted name means: InvoiceService.parse_amount -> parse_amount; README.md stays."""
    last = re.split(r"[.:#>]+", name)[-1]
    return last if _OF_CODE.search(last) else name


def with_named_first(ranking: Ranking, named: Named) -> Ranking:
    """A ranking by words, with the passages first whose headings or captions the query names."""
    # Looking for marks in headings is fast, and few passages have one.
    marks = {*(address.mark_in_headings for address in named.addresses), *map(str.casefold, named.names)}
    numerals = "|".join(filter(None, (address.numerals for address in named.addresses))) or "(?!)"
    marked = re.compile(f"{'|'.join(map(re.escape, marks))}|{numerals}")
    meant: dict[int, tuple[float, tuple[str, ...], int]] = {}  # sureness, section and number, by rank
    begins: dict[tuple[str, ...], int] = {}  # the number of the first passage of each section
    for rank, scored in enumerate(ranking):
        stored = scored.stored
        headings = "\n".join(named.headings(stored)).casefold()
        if marked.search(headings) and (sureness := named.sureness(stored, scored.words)):
            source, seq = split_chunk_id(stored.id)
            section = (source, *stored.section[: named.depth(stored)])
            meant[rank] = sureness, section, seq
            begins[section] = min(seq, begins.get(section, seq))
    raised = [*ranking]
    fall = EACH_FURTHER if named.addresses else 0.0  # code that is named may stand anywhere in a section
    for rank, (sureness, section, seq) in meant.items():
        scored, further = ranking[rank], seq - begins[section]
        share = sureness * (GOES_ON - fall * min(further, MOST_FURTHER) if further else 1.0)
        # Towards a score above the best one, so that a sure passage comes first and others keep their order.
        score = scored.score + share * max(0.0, RAISED * ranking[0].score - scored.score)
        raised[rank] = replace(scored, score=score)
    return sorted(raised, key=lambda scored: -scored.score) if meant else ranking
