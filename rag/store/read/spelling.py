"""Other spellings of a word that no row has: the nearest words that rows do have.

Candidates are the word with one edit (a letter less, more, changed, or swapped with the next), or as two
words. All are stemmed, like the index: "managment" and "management" have stems four letters apart. If no row
has any of these, the candidates are the parts of a German compound, or compounds with the word as a part; if
there are none, stems that are two edits away and begin alike.

Spellings depend on the counted rows only: a word of other rows is as unknown as any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.corpus import Language
from rag.store.read.word_analysis import STOP_WORDS, Word, query_words, stems
from rag.store.read.words_in_memory import LAST, CountedRows, WordsInMemory, count_rows_with, rows_with

if TYPE_CHECKING:
    import numpy.typing as npt

SHORTEST = 5  # letters of a word to respell: a shorter one has too many neighbours
SHORTEST_STEM_ONCE = 4  # letters of a stem, if stemming cut off more than one
SHORTEST_TWICE = 8  # letters of a word for two edits
SHORTEST_STEM_TWICE = 7  # letters of a stem for two edits: two of six make another word (probat, privat)
SHORTEST_PART = 3  # letters of each of two words that lack the space in between
PER_EDIT = 3  # letters of a word per edit that may separate it from a word as written in a text
ROMANCE = frozenset[Language](("French", "Italian", "Portuguese", "Romanian", "Spanish"))
TWICE = 2  # the most edits between a word and another spelling
SHORTEST_HALF = 4  # letters of each half of a compound
SHORTEST_ALONE = 6  # letters of a half whose other half no row has
SHORTEST_STEM = 5  # letters that compounds end with
BEFORE = "haupt"  # behind a first part, stemming cuts off more of an ending: Stellung, Hauptstell
SHORTEST_REST = 3  # letters of a compound before its last part
LINKS = ("", "s", "n", "en", "es")  # between the halves of a German compound
PREFIXES = frozenset(
    """
    ab an auf aus bei dar durch ein ent fehl fest fort gegen haupt heim her hin hinter los miss mit nach
    ober uber unter ver voll vor weg weiter wider wieder zer zuruck zusammen zwischen
    """.split()  # noqa: SIM905 as a list, it would be a page long
)
"""Prefixes that make another German word, not a compound: a Vorstellung is not a kind of Stellung."""
MOST_UNKNOWN = 2  # words of a query: with more it is in another language, or about something else
MOST_SPELLINGS = 3  # of a word
ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяґєіїў",
    "αβγδεζηθικλμνξοπρσςτυφχψω",
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """Terms that `rows` rows have together, at a distance of `distance` edits from a word.

    `written` is their form in one of these rows.
    """

    terms: tuple[str, ...]
    distance: int
    rows: int
    written: str = ""

    @property
    def rank(self) -> tuple[int, int, tuple[str, ...]]:
        """The sort key: nearer spellings first, then frequent ones."""
        return self.distance, -self.rows, self.terms

    @property
    def word(self) -> Word:
        """The word to search for."""
        return Word(self.written, (self.terms,))


def nearest_spellings(
    word: str, languages: Sequence[Language], words: WordsInMemory, over: CountedRows
) -> list[Spelling]:
    """The spellings of an unknown word of a query that counted rows have, best first.

    Empty for names such as PD-1 or parseJsonFile, each of which stands for one thing.
    """
    is_plain = word.isalpha() and word.islower()  # as queries are analysed, only names have capitals
    plain = "".join(stems(word, "none", names=False)) if is_plain else ""  # without accents
    alphabet = next((letters for letters in ALPHABETS if not {*plain} - {*letters}), "")
    if not alphabet or len(plain) < SHORTEST:
        return []
    # Surest first: a further kind is tried only if the earlier ones find nothing.
    spellings = [*_one_edit_away(edits(plain, alphabet), languages, words, over)]
    spellings += _as_two_words(plain, languages, words, over)
    if not spellings and "German" in languages:
        spellings += _parts_of_compound(plain, words, over) or _compounds(plain, words, over)
    if not spellings and len(plain) >= SHORTEST_TWICE:
        own = {term for language in languages for term in stems(plain, language, names=False)}
        long = (stem for stem in own if len(stem) >= SHORTEST_STEM_TWICE)
        spellings = [spelling for stem in long for spelling in _two_edits_away(stem, words, over)]
    return sorted(spellings, key=lambda spelling: spelling.rank)[:MOST_SPELLINGS]


def edits(word: str, alphabet: str) -> set[str]:
    """The variants of a word with one letter less, more, changed, or swapped with the next.

    Example: "ab" with the alphabet "b" -> a, b, ba, bb, bab, abb.
    """
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    less = {left + right[1:] for left, right in cuts}
    swapped = {left + right[1] + right[0] + right[2:] for left, right in cuts[:-2]}
    changed = {left + letter + right[1:] for left, right in cuts[:-1] for letter in alphabet}
    more = {left + letter + right for left, right in cuts for letter in alphabet}
    return (less | swapped | changed | more) - {word}


def _one_edit_away(
    variants: Collection[str], languages: Sequence[Language], words: WordsInMemory, over: CountedRows
) -> Iterator[Spelling]:
    """The stems of the variants that are words of rows.

    Most variants are not words, and their stems may be any short word if more than a letter is cut off:
    "gender", "ender", German "end".
    """
    text = " ".join(variants)
    terms = {
        term
        for language in languages
        for variant, term in zip(variants, stems(text, language, names=False), strict=True)
        if len(term) >= SHORTEST_STEM_ONCE or len(variant) - len(term) <= 1
    }
    is_near = pc.is_in(words.words, value_set=pa.array(terms, pa.string()))
    return _counted(np.flatnonzero(is_near.to_numpy(zero_copy_only=False)), 1, words, over)


def _as_two_words(
    word: str, languages: Sequence[Language], words: WordsInMemory, over: CountedRows
) -> Iterator[Spelling]:
    """Two words that some row has both of: "annualleave" -> annual, leav. Stop words are in any row."""
    cuts = range(SHORTEST_PART, len(word) - SHORTEST_PART + 1)
    halves = [(word[:at], word[at:]) for at in cuts]
    for language in languages:
        pairs = [pair for pair in halves if not STOP_WORDS.get(language, frozenset()).intersection(pair)]
        terms = stems(" ".join(map(" ".join, pairs)), language, names=False)
        for pair in zip(terms[::2], terms[1::2], strict=True):
            if rows := count_rows_with(pair, words, over):
                yield Spelling(pair, 1, rows)


def _parts_of_compound(word: str, words: WordsInMemory, over: CountedRows) -> list[Spelling]:
    """The two halves of a German compound, each by itself; or else the longest beginning and end of it.

    Example: "krankenversicherungsbeitrag" -> krankenversicher, beitrag.
    """

    def known(halves: Iterable[str]) -> dict[str, Spelling]:
        texts = [half for half in halves if len(half) >= SHORTEST_HALF and half not in PREFIXES]
        terms = stems(" ".join(texts), "German", names=False)
        rows = [over.count_with(term, words) for term in terms]
        return {
            text: Spelling((term,), 1, count)
            for text, term, count in zip(texts, terms, rows, strict=True)
            if count
        }

    def unlinked(half: str) -> list[str]:
        return [half.removesuffix(link) for link in LINKS if half.endswith(link)]

    cuts = range(SHORTEST_HALF, len(word) - SHORTEST_HALF + 1)
    ends = known(word[at:] for at in cuts)
    beginnings = known(half for at in reversed(cuts) for half in unlinked(word[:at]))
    for at in cuts:
        before = next((half for half in unlinked(word[:at]) if half in beginnings), None)
        if before and word[at:] in ends:
            return [beginnings[before], ends[word[at:]]]
    longest = [max(halves, key=len, default="") for halves in (beginnings, ends)]
    return [(beginnings | ends)[half] for half in longest if len(half) >= SHORTEST_ALONE]


def _compounds(word: str, words: WordsInMemory, over: CountedRows) -> list[Spelling]:
    """The German compounds that begin or end with a word: "versicherung" -> krankenversicher."""
    if len(word) < SHORTEST_ALONE:
        return []
    first, end = words.place(word), words.place(word + LAST)
    longer = cast("pa.StringArray", words.words[first:end])
    begun = pc.utf8_length(longer).to_numpy() >= len(word) + SHORTEST_HALF
    places = np.concatenate([first + np.flatnonzero(begun), _places_ending(word, words)])
    return [*_counted(places, 1, words, over)]


def _places_ending(word: str, words: WordsInMemory) -> npt.NDArray[np.int64]:
    term = stems(BEFORE + word, "German", names=False)[0].removeprefix(BEFORE)
    if len(term) < SHORTEST_STEM:
        return np.arange(0)
    places = np.flatnonzero(pc.ends_with(words.words, term).to_numpy(zero_copy_only=False))
    compounds = cast("list[str]", words.words.take(places).to_pylist())
    before = [compound.removesuffix(term) for compound in compounds]
    is_part = [len(part) >= SHORTEST_REST and part.isalpha() and part not in PREFIXES for part in before]
    return places[np.array(is_part, np.bool_)]


def _two_edits_away(stem: str, words: WordsInMemory, over: CountedRows) -> Iterator[Spelling]:
    first, end = words.place(stem[0]), words.place(stem[0] + LAST)
    alike = cast("pa.StringArray", words.words[first:end])
    of_length = np.flatnonzero(np.abs(pc.utf8_length(alike).to_numpy() - len(stem)) <= TWICE)
    distances = edit_distances(stem, cast("list[str]", alike.take(of_length).to_pylist()))
    return _counted(first + of_length[distances == TWICE], TWICE, words, over)


def _counted(
    places: npt.NDArray[np.int64], distance: int, words: WordsInMemory, over: CountedRows
) -> Iterator[Spelling]:
    """The words at these places that counted rows have."""
    for place in places:
        if rows := over.count(words.rows[words.starts[place] : words.starts[place + 1]]):
            yield Spelling((cast("str", words.words[place].as_py()),), distance, rows)


def edit_distances(word: str, others: Sequence[str]) -> npt.NDArray[np.int8]:
    """How many letters are left out, added, changed, or swapped with the next between a word and each other.

    Example: "leave", ["leaves", "leav", "laeve", "love"] -> 1, 1, 1, 2.

    Source: Damerau, A technique for computer detection and correction of spelling errors, CACM 1964, with no
    edit inside of a swap.
    """
    lengths = np.array([len(other) for other in others], np.int64)
    width = max(lengths.max(initial=0), 1)
    letters = np.array(others, f"U{width}").view(np.uint32).reshape(-1, width).T
    codes = [ord(letter) for letter in word]
    # Row by row of the usual table, for all words at once: [letters of the other, other].
    above = np.repeat(np.arange(width + 1, dtype=np.int8)[:, None], len(others), axis=1)
    before = above
    for row, code in enumerate(codes, 1):
        current = np.full_like(above, row)
        differs = letters != code
        for at in range(width):
            current[at + 1] = np.minimum(np.minimum(above[at + 1], current[at]) + 1, above[at] + differs[at])
            if row > 1 and at:
                is_swap = ~differs[at - 1] & (letters[at] == codes[row - 2])
                current[at + 1] -= is_swap & (before[at - 1] + 1 < current[at + 1])
        before, above = above, current
    return cast("npt.NDArray[np.int8]", above[lengths, np.arange(len(others))])


def is_typo(word: str, spelling: Spelling, most: int = 1) -> bool:
    """Whether a word surely means the spelling: few edits away as written, or a compound with it.

    Accents don't count. Stems alone don't tell: parking and Paris have near ones.
    """
    word, written = ("".join(stems(text, "none", names=False)) for text in (word, spelling.written))
    return written in word or word in written or edit_distances(word, [written])[0] <= most


def first_row_with(
    terms: Sequence[str], words: WordsInMemory, over: CountedRows, ids: pa.ChunkedArray[Any]
) -> int:
    """The counted row with all of these terms whose id is the first, so it depends on counted rows only."""
    rows = rows_with(terms, words).astype(np.int64)
    rows = rows if over.mask is None else rows[over.mask[rows]]
    named = ids.take(rows)
    return int(rows[pc.index(named, pc.min(named)).as_py()])


def as_written(
    word: str, spellings: Sequence[Spelling], texts: Sequence[str], languages: Sequence[Language]
) -> list[Spelling]:
    """The spellings of a word, each as written in its text; those missing from their text are dropped.

    Stems of Romance languages are so short that other words share them (licenciement, licence), so there the
    word as written must be near, too.
    """
    forms = [written_form(near.terms, text, languages) for near, text in zip(spellings, texts, strict=True)]
    written = [replace(near, written=form) for near, form in zip(spellings, forms, strict=True) if form]
    if ROMANCE.isdisjoint(languages):
        return written
    return [near for near in written if is_typo(word, near, max(TWICE, len(word) // PER_EDIT))]


def written_form(terms: Sequence[str], text: str, languages: Sequence[Language]) -> str | None:
    """Terms as words of a text that has them, None if these languages have others for it.

    Two terms must be words by themselves. Example: "bereav", "Bereavement leave is paid." -> bereavement.
    """
    words, word_of_term = query_words(text, languages), dict[str, str]()
    for word in words:
        word_of_term |= {term: word.text for form in word.forms for term in form if term not in word_of_term}
    if not word_of_term.keys() >= {
        *terms
    }:  # a term without the marks of an accented word, which takes longer
        for word, language in product(words, languages):
            word_of_term |= {
                term: word.text for term in stems(word.text, language) if term not in word_of_term
            }
    if not word_of_term.keys() >= {*terms}:
        return None
    words_as_written = [word_of_term[term] for term in terms]
    is_part = len(terms) > 1 and not all(map(str.isalpha, words_as_written))  # of a name: over, full-time
    return None if is_part else " ".join(words_as_written)
