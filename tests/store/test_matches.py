"""BM25 over rows that are known by the words they hold, against the formula written out."""

from __future__ import annotations

from math import log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.store.read.strict_reader import K1, B, Matches, Rows, rarity, weight

WORDS = "abcd"
corpora = st.lists(st.text(WORDS, min_size=1, max_size=9), min_size=1, max_size=12)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True)


def _matches(texts: list[str], query: list[str], order: int = 1) -> Matches:
    """What is found in texts whose words are letters; their ids are their places as letters."""
    ids = [chr(97 + at) for at in range(len(texts))][::order]
    mean = sum(map(len, texts)) / len(texts)
    rows = Rows(pa.array(ids), np.array([len(texts[ord(id_) - 97]) / mean for id_ in ids]))
    holding = [[id_ for id_ in ids if word in texts[ord(id_) - 97]] for word in query]
    return Matches(rows, query, [rows.mask_of(pa.chunked_array([some], pa.string())) for some in holding])


def _bm25(texts: list[str], query: list[str], text: str, *, most: int = 99) -> float:
    mean, score = sum(map(len, texts)) / len(texts), 0.0
    for word in query:
        times, holding = min(text.count(word), most), sum(word in one for one in texts)
        idf = log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        score += idf * times * (K1 + 1) / (times + K1 * (1 - B + B * len(text) / mean))
    return score


@given(texts=corpora, query=queries, count=st.integers(1, 12))
def test_scores_and_their_first_are_those_of_the_formula(
    texts: list[str], query: list[str], count: int
) -> None:
    known = _matches(texts, query)
    once = {chr(97 + at): _bm25(texts, query, text, most=1) for at, text in enumerate(texts)}
    best = sorted((score for score in once.values() if score), reverse=True)[:count]
    places = known.first(count)
    assert [once[id_] for id_ in places] == pytest.approx(best)
    of = {id_: texts[ord(id_) - 97] for id_ in places}
    scores = known.scores([(places[id_], text) for id_, text in of.items()])
    assert scores == pytest.approx([_bm25(texts, query, text) for text in of.values()])


@given(texts=corpora, query=queries, count=st.integers(1, 12))
def test_the_order_in_which_rows_are_found_changes_no_bit(
    texts: list[str], query: list[str], count: int
) -> None:
    known, other = _matches(texts, query), _matches(texts, query, order=-1)
    first, others = known.first(count), other.first(count)
    assert list(first) == list(others)
    rows = [(place, texts[ord(id_) - 97]) for id_, place in first.items()]
    reverse = [(place, texts[ord(id_) - 97]) for id_, place in reversed(others.items())]
    assert known.scores(rows) == other.scores(reverse)[::-1]


def test_equals_are_ordered_by_id_and_only_those_among_which_it_is_looked_count() -> None:
    known = _matches(["a", "a", "a", "b", "a"], ["a"], order=-1)
    assert list(known.first(2)) == ["a", "b"]
    assert list(known.first(2, known.rows.mask_of(pa.chunked_array([["e", "b", "z"]])))) == ["b", "e"]
    assert known.first(9, known.rows.mask_of(pa.chunked_array([[]], pa.string()))) == {}


def test_what_nobody_holds_is_no_match() -> None:
    known = _matches(["a"], ["b"])
    assert known.first(9) == {}
    assert known.scores([]) == []


def test_the_rarer_a_word_the_more_it_counts_and_none_counts_less_than_nothing() -> None:
    assert [round(rarity(1000, holding), 4) for holding in (1, 500, 1000)] == [6.5033, 0.6931, 0.0005]
    assert weight(1.0, 1.0) == 1.0
    assert weight(1.0, np.array([2.0, 0.5]))[0] < 1.0 < weight(99.0, 1.0) < K1 + 1
