"""Keeps the words of rows in memory: BM25 over any part of the rows, counted over any part of them.

The engine's index takes milliseconds for each list, and counts words over all rows, hidden ones included.
Here a word of a query takes some tens of microseconds, and two masks select the rows to rank and the rows to
count. Counted over the same rows, a score equals the engine's up to the last digits.

It is an inverted index: for each word, the rows that have it and how often. The words are sorted Arrow
strings: a Python dictionary would take ten times their memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import compress
from math import log
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.store.read.word_analysis import MAX_TERMS, Form, Word, search_terms, terms_of_forms

if TYPE_CHECKING:
    import numpy.typing as npt

Positions: TypeAlias = "npt.NDArray[np.int64]"
"""Places of rows among those in memory, in order."""
Mask: TypeAlias = "npt.NDArray[np.bool_]"
"""For each row in memory, whether it is selected."""

Postings: TypeAlias = "tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint16]]"
"""How many rows have each word; these rows, one word after the other; and how often each has it."""

K1, B = 1.2, 0.75  # as in the engine
KEPT_PLACES = 4096  # of looked-up words
RESPELT = 0.85  # the weight of other spellings relative to a word that is right (rag/evaluate/measuring.md)
MOST_TIMES = np.iinfo(np.uint16).max  # of a word in a row: beyond a hundred, a score hardly changes
BLOCKS, LEAST_BLOCK = 8, 16  # blocks per wanted score, and the scores that make a block worth it
SCORED_AT_ONCE = 16_384  # rows: intermediate results stay in the processor's cache
LAST = "\U0010ffff"  # after every letter
ROW_BITS = 32  # of a key that orders postings by word, then by row


@dataclass(frozen=True, slots=True)
class WordsInMemory:
    """The words of rows.

    The rows that have `words[i]` are `rows[starts[i] : starts[i + 1]]`, in order, and have it `times` times.
    `lengths` has the number of words of each row, with repetitions. `places` are those of words that were
    looked up.
    """

    words: pa.Array[Any]
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    times: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.int32]
    places: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """The memory that this takes, in bytes."""
        arrays: list[Any] = [self.words, self.starts, self.rows, self.times, self.lengths]
        return sum(array.nbytes for array in arrays)

    def postings(self, word: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16]]:
        """The rows that have a word, in order, and how often each has it."""
        low = self.place(word)
        is_known = low < len(self.words) and self._word(low) == word
        part = slice(self.starts[low], self.starts[low + 1]) if is_known else slice(0)
        return self.rows[part], self.times[part]

    def place(self, word: str) -> int:
        """The place of the first word that isn't before this one.

        Cached, because a search looks up each word several times, at 15 µs.
        """
        if (place_before := self.places.get(word)) is not None:
            return place_before
        low, high = 0, len(self.words)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._word(middle) < word else (low, middle)
        if len(self.places) >= KEPT_PLACES:
            self.places.clear()
        self.places[word] = low
        return low

    def _word(self, place: int) -> str:
        return cast("str", self.words[place].as_py())


def words_of(terms: pa.Array[Any], *, only: Collection[str] | None = None) -> WordsInMemory:
    """The words of rows, from their column `terms`: words separated by one space.

    Words that are not in `only` are left out, but count in the lengths.
    """
    lists = pc.split_pattern(terms, " ")
    lengths = np.diff(lists.offsets.to_numpy())
    all_terms, rows = lists.flatten(), np.repeat(np.arange(len(lengths)), lengths)
    words = _sorted(all_terms.unique() if only is None else pa.array(only, pa.string()).unique())
    places = pc.index_in(all_terms, value_set=words)
    if only is not None:
        rows, places = rows[places.is_valid().to_numpy(zero_copy_only=False)], places.drop_null()
    keys = places.to_numpy().astype(np.int64) << ROW_BITS | rows
    keys.sort()  # one sort of numbers groups by word, then by row
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    times = np.minimum(np.diff(first, append=len(keys)), MOST_TIMES).astype(np.uint16)
    is_empty = pc.equal(terms, pa.scalar("")).to_numpy(zero_copy_only=False)
    lengths -= is_empty  # a row without words was split into an empty one
    starts = np.searchsorted(keys[first], np.arange(len(words) + 1) << ROW_BITS)
    return WordsInMemory(words, starts, keys[first].astype(np.int32), times, lengths.astype(np.int32))


def _sorted(words: pa.Array[Any]) -> pa.Array[Any]:
    return words.take(pc.sort_indices(words))


def merged_words(parts: Sequence[tuple[WordsInMemory, Positions]], count: int) -> WordsInMemory:
    """The words of `count` rows, merged from parts, each with the new places of its rows, -1 if dropped.

    The places of a part are in order.
    """
    parts = sorted(parts, key=lambda part: int(part[1].max(initial=-1)))
    words_of_parts = pa.concat_arrays([part.words for part, _ in parts])
    words = _sorted(words_of_parts.unique())
    lengths = np.zeros(count, np.int32)
    for part, places in parts:
        lengths[places[places >= 0]] = part.lengths[places >= 0]
    in_words = pc.index_in(words_of_parts, value_set=words).to_numpy().astype(np.int64)
    ends = np.cumsum([len(part.words) for part, _ in parts])
    placed = list(zip(np.split(in_words, ends[:-1]), [_placed(*part) for part in parts], strict=True))
    # The rows of a word come part by part, so a million of them need no sorting. If the first part has most
    # rows, the others are inserted into it: that takes a third of the time of merging all.
    is_large = 2 * len(placed[0][1][1]) > sum(len(rows) for _, (_, rows, _) in placed)
    counts, rows, times = _in_turn(placed[is_large:], len(words))
    if is_large:
        at, (of_words, of_part, often) = placed[0]
        of_large = np.zeros(len(words), np.int64)
        of_large[at] = of_words
        to = np.repeat(np.cumsum(of_large), counts)
        counts, rows, times = counts + of_large, np.insert(of_part, to, rows), np.insert(often, to, times)
    firsts = [int(places[places >= 0].min(initial=count)) for _, places in parts]
    lasts = [int(places.max(initial=-1)) for _, places in parts]
    if any(first <= last for first, last in zip(firsts[1:], lasts, strict=False)):  # parts overlap
        order = np.lexsort((rows, np.repeat(np.arange(len(words)), counts)))
        rows, times = rows[order], times[order]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return WordsInMemory(words, starts, rows, times, lengths)


def _in_turn(placed: Sequence[tuple[Positions, Postings]], words: int) -> Postings:
    """The postings of parts one after the other, each with the places of its words among all."""
    counts = np.zeros(words, np.int64)
    for at, (of_words, _, _) in placed:
        counts[at] += of_words
    following = np.cumsum(counts) - counts
    rows, times = np.empty(counts.sum(), np.int32), np.empty(counts.sum(), np.uint16)
    for at, (of_words, of_part, often) in placed:
        to = np.repeat(following[at] - np.cumsum(of_words) + of_words, of_words)
        to += np.arange(len(to))
        rows[to], times[to] = of_part, often
        following[at] += of_words
    return counts, rows, times


def _placed(part: WordsInMemory, places: Positions) -> Postings:
    """The postings of a part whose rows have these places, without those that are gone."""
    counts, rows = np.diff(part.starts), places.astype(np.int32)[part.rows]
    if not len(places) or places.min() >= 0:
        return counts, rows, part.times
    gone = np.flatnonzero(rows < 0)
    counts -= np.bincount(np.searchsorted(part.starts, gone, "right") - 1, minlength=len(counts))
    return counts, np.delete(rows, gone), np.delete(part.times, gone)


NO_WORDS = words_of(pa.array([], pa.string()))
"""The words of no rows."""


@dataclass(frozen=True, slots=True)
class FormCounts:
    """How many rows there are, how many words they have in all, and how many rows have each form."""

    rows: int
    length: int
    holding: Mapping[Form, int]

    def __add__(self, further: FormCounts) -> FormCounts:
        """The counts over the rows of both, of the same forms."""
        holding = {form: count + further.holding[form] for form, count in self.holding.items()}
        return FormCounts(self.rows + further.rows, self.length + further.length, holding)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """The rows over which words are counted: all without a mask.

    `length` is the number of their words. `norms` is the length norm of each row in the denominator of BM25,
    relative to the mean of the counted rows. If several tables are searched as one, `pooled` has the counts
    over the rows of all. `holding` caches the counts of terms.
    """

    mask: Mask | None
    rows: int
    length: int
    norms: npt.NDArray[np.float32]
    pooled: FormCounts | None = None
    holding: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def all_rows(self) -> int:
        """How many rows are counted, those of other tables included."""
        return self.pooled.rows if self.pooled else self.rows

    def count(self, rows: npt.NDArray[np.int32]) -> int:
        """How many of these rows are counted."""
        return len(rows) if self.mask is None else int(np.count_nonzero(self.mask[rows]))

    def count_with(self, term: str, words: WordsInMemory) -> int:
        """How many of the counted rows of this table have a term.

        Cached, because a search asks twice, and a common term of a million rows takes .5 ms.
        """
        if (count := self.holding.get(term)) is None:
            if len(self.holding) >= KEPT_PLACES:
                self.holding.clear()
            count = self.holding[term] = self.count(words.postings(term)[0])
        return count

    def count_in_all(self, term: str, words: WordsInMemory) -> int:
        """How many counted rows have a term, those of other tables included."""
        in_pool = self.pooled.holding.get((term,)) if self.pooled else None
        return self.count_with(term, words) if in_pool is None else in_pool

    def norms_of(self, rows: npt.NDArray[np.int32], words: WordsInMemory) -> npt.NDArray[np.float32]:
        """The norms of these rows."""
        if self.pooled is None:
            return self.norms[rows]
        return _norms(words.lengths[rows], self.pooled.rows, self.pooled.length)


def counted_rows(words: WordsInMemory, mask: Mask | None = None) -> CountedRows:
    """The rows of a mask, as rows to count words over."""
    lengths = words.lengths if mask is None else words.lengths[mask]
    rows, length = len(lengths), int(lengths.sum())
    return CountedRows(mask, rows, length, _norms(words.lengths, rows, length))


def _norms(lengths: npt.NDArray[np.int32], rows: int, length: int) -> npt.NDArray[np.float32]:
    mean = max(length / rows, 1.0) if rows else 1.0
    norms: npt.NDArray[np.float32] = (K1 * (1 - B + B * lengths / mean)).astype(np.float32)
    return norms


def count_forms(forms: Collection[Form], words: WordsInMemory, over: CountedRows) -> FormCounts:
    """The counts of these forms over the counted rows of one table."""
    holding = {
        form: over.count_with(form[0], words) if len(form) == 1 else count_rows_with(form, words, over)
        for form in forms
    }
    return FormCounts(over.rows, over.length, holding)


def score_rows(
    words: WordsInMemory, query: Sequence[Word], over: CountedRows, *, every: bool = False
) -> npt.NDArray[np.float32]:
    """The BM25 score of each row: 0 without any word of the query or, with `every`, if it lacks one.

    A word that the query repeats counts as often. With `every`, a row needs each word in some form, with all
    terms of the form.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
    """
    scores = np.zeros(len(words.lengths))
    if not every:
        for term in search_terms(query):
            for rows, added in _score_term(words, term, over):
                scores[rows] += added
        return scores.astype(np.float32)
    having = np.ones(len(scores), np.bool_)
    for word in query[:MAX_TERMS]:
        in_some_form = np.zeros(len(scores), np.bool_)
        for form in word.forms:
            in_this_form, of_form = np.ones(len(scores), np.bool_), np.zeros(len(scores))
            for term in form:
                for rows, added in _score_term(words, term, over):
                    of_form[rows] += added
                in_this_form &= _mask(words.postings(term)[0], len(scores))
            scores += np.where(in_this_form, of_form, 0.0)
            in_some_form |= in_this_form
        having &= in_some_form
    return np.where(having, scores, 0.0).astype(np.float32)


def unknown_words(query: Sequence[Word], words: WordsInMemory, over: CountedRows) -> list[str]:
    """The words of a query that no counted row has in any form."""

    def has(form: Sequence[str]) -> bool:
        return all(over.count_with(term, words) for term in form)

    return [word.text for word in query[:MAX_TERMS] if not any(map(has, word.forms))]


def rows_with(form: Sequence[str], words: WordsInMemory) -> npt.NDArray[np.int32]:
    """The rows that have all terms of a form, in order."""
    # The rarest first: the others are looked up for its rows only.
    rarest, *frequent = sorted((words.postings(term)[0] for term in form), key=len)
    return reduce(lambda rows, holding: rows[_are_in(holding, rows)], frequent, rarest)


def count_rows_with(form: Sequence[str], words: WordsInMemory, over: CountedRows) -> int:
    """How many counted rows have all terms of a form."""
    return over.count(rows_with(form, words))


def score_with_spellings(
    words: WordsInMemory, query: Sequence[Word], spellings: Sequence[Word], over: CountedRows, *, every: bool
) -> npt.NDArray[np.float32]:
    """As `score_rows`, plus the scores of other `spellings`, weighted by `RESPELT`."""
    scores = score_rows(words, query, over, every=every)
    if spellings:
        scores += RESPELT * score_rows(words, spellings, over)
    return scores


def _score_term(
    words: WordsInMemory, term: str, over: CountedRows
) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]]:
    """The rows that have a term, and what it adds to the score of each, `SCORED_AT_ONCE` at a time."""
    rows, times = words.postings(term)
    weight = rarity(over.all_rows, over.count_in_all(term, words))
    for start in range(0, len(rows), SCORED_AT_ONCE):
        part = rows[start : start + SCORED_AT_ONCE]
        often = times[start : start + SCORED_AT_ONCE].astype(np.float64)
        yield part, weight * often * (K1 + 1) / (often + over.norms_of(part, words))


def words_of_rows(words: WordsInMemory, query: Sequence[Word], rows: Positions) -> list[frozenset[str]]:
    """The words of a query, as written there, that each of these rows has in any form."""
    having = {term: _are_in(words.postings(term)[0], rows) for term in terms_of_forms(query[:MAX_TERMS])}
    asked = [word for word in query[:MAX_TERMS] if word.forms]
    if not asked:
        return [frozenset()] * len(rows)
    texts = [word.text for word in asked]
    in_rows = np.array([_any_form(word, having) for word in asked]).T.tolist()
    return [frozenset(compress(texts, of_row)) for of_row in in_rows]


def _any_form(word: Word, having: Mapping[str, Mask]) -> Mask:
    """The rows that have a word in any form; `having` are those with each term."""
    forms = [reduce(np.logical_and, (having[term] for term in form)) for form in word.forms]
    return reduce(np.logical_or, forms)


def _are_in(holding: npt.NDArray[np.int32], rows: Positions | npt.NDArray[np.int32]) -> Mask:
    """For each of `rows`, whether it is among those `holding` a word, which are in order."""
    if not len(holding):
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(holding, rows), len(holding) - 1)
    are_there: Mask = holding[at] == rows
    return are_there


def _mask(rows: npt.NDArray[np.int32], count: int) -> Mask:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


def best_first(scores: npt.NDArray[np.float32], limit: int, ids: pa.ChunkedArray[Any]) -> Positions:
    """The places of the highest scores, up to `limit`, best first. Ties are ordered by id."""
    places = highest(scores, limit)
    named = cast("list[str]", ids.take(places).to_pylist())
    order = sorted(range(len(places)), key=lambda rank: (-scores[places[rank]], named[rank]))
    return places[order[:limit]]


def highest(scores: npt.NDArray[np.float32], count: int) -> Positions:
    """The places of the `count` highest scores and of all that tie with the last of them, in order.

    All places if there are no more, or `count` is 0.
    """
    if not 0 < count < len(scores):
        return np.arange(len(scores))
    # Partitioning 250,000 scores takes 1.3 ms. The maxima of blocks take a twentieth: at least `count` scores
    # reach the lowest of the `count` highest maxima, and few others do.
    block = len(scores) // (BLOCKS * count)
    if block < LEAST_BLOCK:
        return np.flatnonzero(scores >= _nth_highest(scores, count))
    maxima = scores[: len(scores) // block * block].reshape(-1, block).max(axis=1)
    places = np.flatnonzero(scores >= _nth_highest(maxima, count))
    return places[scores[places] >= _nth_highest(scores[places], count)]


def _nth_highest(scores: npt.NDArray[np.float32], count: int) -> np.float32:
    return cast("np.float32", np.partition(scores, len(scores) - count)[len(scores) - count])


def rarity(rows: int, holding: int) -> float:
    """The weight of a word that `holding` of `rows` rows contain; the fewer, the higher.

    Example: 1 of 1,000 -> 6.5; 500 of 1,000 -> 0.7; all of them -> 0.0005.
    """
    return log(1 + (rows - holding + 0.5) / (holding + 0.5))
