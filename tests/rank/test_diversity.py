"""Which hits resemble each other: by diversity, as near-duplicates, and as neighbours that become one hit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.answers import Excerpt, Hit
from rag.corpus import Chunk, Source
from rag.rank.diversity import Likeness, cosine, distinct, diversify, jaccard
from rag.rank.fusion import FURTHER, MAX_JOINED_CHARS, NEXT, copies_as_one, neighbours

TWINS = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], np.float32)
UNLIKE = np.eye(6, dtype=np.float32)
SHARES = st.floats(0, 1)
RELEVANCE = st.lists(SHARES, max_size=10)
SETS = st.lists(st.frozensets(st.sampled_from("abcdef")), max_size=8)


def _likeness(size: int, seed: int = 3) -> Likeness:
    vectors = np.random.default_rng(seed).standard_normal((size, 4)).astype(np.float32)
    return cosine(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _by_definition(relevance: list[float], likeness: Likeness, lambda_: float) -> list[int]:
    """Maximal marginal relevance as its authors put it down."""
    waiting, order = list(range(len(relevance))), list[int]()
    while waiting:

        def marginal(place: int) -> float:
            nearest = max((float(likeness[place, chosen]) for chosen in order), default=0.0)
            return lambda_ * relevance[place] - (1 - lambda_) * nearest

        order.append(max(waiting, key=marginal))
        waiting.remove(order[-1])
    return order


def test_what_repeats_a_better_item_comes_after_what_is_new() -> None:
    assert diversify([0.9, 0.8, 0.7], TWINS, lambda_=0.5) == [0, 2, 1]
    assert diversify([0.9, 0.8, 0.7], TWINS, lambda_=0.95) == [0, 1, 2]


def test_the_switch_comes_where_one_computes_it_by_hand() -> None:
    # 0.8 * x - (1 - x) against 0.3 * x: even at x = 1 / 1.5
    assert diversify([0.9, 0.8, 0.3], TWINS, lambda_=0.66) == [0, 2, 1]
    assert diversify([0.9, 0.8, 0.3], TWINS, lambda_=0.67) == [0, 1, 2]


def test_words_serve_as_well_as_vectors() -> None:
    likeness = jaccard([{"a", "b", "c"}, {"a", "b", "c"}, {"x"}])
    assert diversify([0.9, 0.8, 0.7], likeness, lambda_=0.5) == [0, 2, 1]


def test_an_opposite_adds_more_than_what_is_merely_unlike() -> None:
    likeness = cosine(np.array([[1, 0], [0, 1], [-1, 0]], np.float32))
    assert diversify([0.5, 0.5, 0.5], likeness, lambda_=0.5) == [0, 2, 1]


def test_what_is_over_the_cap_is_left_out() -> None:
    assert diversify([0.9, 0.8, 0.7, 0.6, 0.5], UNLIKE[:5, :5], lambda_=1, sources="aaaba", cap=2) == [
        0,
        1,
        3,
    ]


def test_no_hits_are_diversified_into_none() -> None:
    assert diversify([], jaccard([]), lambda_=0.5) == []


def test_items_that_decided_between_equals_keep_their_place() -> None:
    assert diversify([0.5, 0.51, 0.5], UNLIKE[:3, :3], lambda_=1) == [0, 1, 2]
    assert diversify([0.5, 0.51, 0.5], UNLIKE[:3, :3], lambda_=0.7) == [0, 1, 2]


@settings(deadline=None)
@given(RELEVANCE, st.integers(0, 99))
def test_relevance_alone_leaves_the_order_as_it_is(relevance: list[float], seed: int) -> None:
    assert diversify(relevance, _likeness(len(relevance), seed), lambda_=1) == list(range(len(relevance)))


@settings(deadline=None)
@given(RELEVANCE, st.sampled_from([0, 0.25, 0.5, 0.75]), st.integers(0, 99))
def test_the_order_is_that_of_the_definition(relevance: list[float], lambda_: float, seed: int) -> None:
    relevance = sorted((round(share, 2) for share in relevance), reverse=True)
    likeness = _likeness(len(relevance), seed).round(3)
    assert diversify(relevance, likeness, lambda_=lambda_) == _by_definition(relevance, likeness, lambda_)


@settings(deadline=None)
@given(RELEVANCE, SHARES, st.integers(1, 4), st.data())
def test_no_item_comes_twice_and_none_is_missing_but_over_the_cap(
    relevance: list[float], lambda_: float, cap: int, data: st.DataObject
) -> None:
    size = len(relevance)
    sources = data.draw(st.lists(st.sampled_from("abc"), min_size=size, max_size=size))
    likeness = _likeness(size)
    order = diversify(relevance, likeness, lambda_=lambda_, sources=sources, cap=cap)
    assert len(set(order)) == len(order)
    per_source = Counter(sources[place] for place in order)
    assert per_source == {source: min(cap, count) for source, count in Counter(sources).items()}
    assert order[:1] == [0][:size]


def test_what_is_given_stays_as_it_was() -> None:
    likeness, relevance = TWINS.copy(), [0.9, 0.8, 0.7]
    diversify(relevance, likeness, lambda_=0.5, sources="aab", cap=1)
    assert (likeness == TWINS).all()
    assert relevance == [0.9, 0.8, 0.7]


def test_sets_are_as_alike_as_one_computes_by_hand() -> None:
    likeness = jaccard([{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"d"}])
    expected = [[1, 1 / 3, 2 / 3, 0], [1 / 3, 1, 2 / 3, 0], [2 / 3, 2 / 3, 1, 0], [0, 0, 0, 1]]
    assert likeness == pytest.approx(np.array(expected))
    assert likeness.dtype == np.float32


def test_an_empty_set_is_like_nothing() -> None:
    assert jaccard([set(), set(), {1}]).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert jaccard([]).shape == (0, 0)


def test_unit_vectors_are_as_alike_as_their_cosine() -> None:
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0]], np.float32)
    assert cosine(vectors) == pytest.approx(np.array([[1, 0.6, -1], [0.6, 1, -0.6], [-1, -0.6, 1]]))


@settings(deadline=None)
@given(SETS)
def test_each_pair_shares_what_its_intersection_says(sets: list[frozenset[str]]) -> None:
    likeness = jaccard(sets)
    for row, first in enumerate(sets):
        for column, second in enumerate(sets):
            expected = len(first & second) / len(first | second) if first | second else 0
            assert likeness[row, column] == pytest.approx(expected)


RUN_WORDS = [f"word{number}" for number in range(104)]  # 100 runs of five

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=8).map(" ".join), max_size=10)


def _changed(*places: int) -> str:
    return " ".join("other" if place in places else word for place, word in enumerate(RUN_WORDS))


def _kept(texts: Sequence[str], *, threshold: float = 0.9) -> tuple[int, ...]:
    return tuple(distinct(texts, threshold=threshold, verdict=lambda _earlier, _later: "earlier"))


def test_a_text_that_comes_again_goes() -> None:
    assert _kept(["a b", "c", "a b", "c"]) == (0, 1)


def test_white_space_makes_no_difference() -> None:
    assert _kept(["one\ttwo\n\nthree", " one two three "]) == (0,)


def test_texts_without_words_are_the_same_only_if_they_are() -> None:
    assert _kept(["---", "***", "- - -", "---", ""]) == (0, 1, 2, 4)


def test_case_and_punctuation_make_texts_nearly_the_same() -> None:
    assert _kept(["It ticks.", "it ticks", "it tocks"]) == (0, 2)


@pytest.mark.parametrize(
    ("threshold", "places"), [(0.9, (0,)), (95 / 105, (0,)), (0.91, (0, 1)), (1, (0, 1))]
)
def test_one_changed_word_costs_five_runs_of_words(threshold: float, places: tuple[int, ...]) -> None:
    assert _kept([_changed(), _changed(50)], threshold=threshold) == places


def test_two_changed_words_apart_are_too_many_for_a_hundred() -> None:
    assert _kept([_changed(), _changed(50, 80)]) == (0, 1)
    assert _kept([_changed(), _changed(50, 80)], threshold=0.8) == (0,)


def test_what_is_like_a_dropped_text_only_is_kept() -> None:
    texts = [_changed(), _changed(30), _changed(30, 70)]
    assert _kept(texts) == (0, 2)


def test_chinese_and_japanese_are_compared_by_character() -> None:
    text = "閏秒は協定世界時と地球の自転のずれを直すために加えられる一秒であり国際機関が決める" * 2
    assert _kept([text, f"「{text}」", text[::-1]]) == (0, 2)


@settings(deadline=None)
@given(TEXTS, st.floats(0.1, 1))
def test_every_text_is_kept_or_repeats_a_better_one_that_is(texts: list[str], threshold: float) -> None:
    indexes = _kept(texts, threshold=threshold)
    assert list(indexes) == sorted(indexes)
    for index in set(range(len(texts))) - set(indexes):
        better = [texts[earlier] for earlier in indexes if earlier < index]
        assert any(_kept([text, texts[index]], threshold=threshold) == (0,) for text in better)
    texts_left = [" ".join(texts[index].split()) for index in indexes]
    assert len(set(texts_left)) == len(texts_left)


@settings(deadline=None)
@given(TEXTS)
def test_what_is_kept_is_kept_again(texts: list[str]) -> None:
    texts_left = [texts[place] for place in _kept(texts)]
    assert _kept(texts_left) == tuple(range(len(texts_left)))


@settings(deadline=None)
@given(TEXTS, st.randoms(use_true_random=False))
def test_at_threshold_one_the_same_are_found_in_any_order(texts: list[str], random: Random) -> None:
    shuffled = random.sample(texts, len(texts))
    assert len(_kept(shuffled, threshold=1)) == len(_kept(texts, threshold=1))


def test_a_duplicate_that_is_better_takes_the_place_of_the_first() -> None:
    texts = ["a b", "c", "a b", "a b"]
    last = partial(distinct, texts, threshold=0.9)
    assert last(verdict=lambda _earlier, later: "later" if later == 2 else "earlier") == {
        0: 2,
        1: 1,
    }
    assert last(verdict=lambda _earlier, later: "both" if later == 2 else "earlier") == {
        0: 0,
        1: 1,
        2: 2,
    }


STEP = 102

AT_ONCE = (MAX_JOINED_CHARS + 2) // STEP  # chunks in a row that a hit has at most


def _hit(name: str, score: float = 0.9) -> Hit:
    """The hit of a chunk, such as "a/4"."""
    source_id, _, seq = name.partition("/")
    start = int(seq) * STEP
    chunk = Chunk(name, source_id, int(seq), start, start + 100, "x" * 100)
    source = Source(source_id, "notes", source_id, source_id, "text/plain", "", 99, 9_999, datetime.now(UTC))
    return Hit(chunk, source, score, 0.5)


def _names(*names: str, limit: int = 8) -> list[list[str]]:
    return _shown([_hit(name) for name in names], limit, selective=False)


def _shown(hits: list[Hit], limit: int = 8, *, selective: bool = True) -> list[list[str]]:
    groups = neighbours(hits, limit, selective=selective).groups
    return [[hit.chunk.id for hit in group] for group in groups]


def test_the_worked_example() -> None:
    names, poor = ["a/4", "b/0", "a/5", "a/9", "c/1", "c/2"], {"a/9": 0.1}
    hits = [_hit(name, poor.get(name, 0.9)) for name in names]
    assert _shown(hits, 2) == [["a/4", "a/5"], ["b/0"]]
    assert neighbours(hits, 2, selective=True).looked_at == 4
    assert neighbours(hits, 2, selective=False).looked_at == 3


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["a/1", "a/2"], [["a/1", "a/2"]]),
        (["a/2", "a/1"], [["a/2", "a/1"]]),  # the best is first, whatever stands first
        (["a/1", "a/3"], [["a/1"], ["a/3"]]),  # one between them is missing
        (["a/1", "b/2"], [["a/1"], ["b/2"]]),
        (["a/1", "b/0", "a/3", "a/2"], [["a/1", "a/3", "a/2"], ["b/0"]]),  # the last one joins two
    ],
)
def test_chunks_in_a_row_are_one(names: list[str], groups: list[list[str]]) -> None:
    assert _names(*names) == groups


def test_a_place_that_is_free_again_goes_to_another_source() -> None:
    assert _names("a/1", "a/3", "a/2", "b/0", "c/0", limit=2) == [["a/1", "a/3", "a/2"], ["b/0"]]
    assert _names("a/1", "a/3", "b/0", "c/0", limit=2) == [["a/1"], ["a/3"]]


def test_sources_of_two_collections_are_two_even_with_one_id() -> None:
    letter = _hit("a/2")
    letter = replace(letter, source=replace(letter.source, collection="letters"))
    assert _shown([_hit("a/1"), letter]) == [["a/1"], ["a/2"]]


def test_a_hit_that_shows_something_else_than_its_chunk_stays_alone() -> None:
    lines = replace(_hit("a/2"), excerpts=(Excerpt(210, 220, "x" * 10),))
    assert _shown([_hit("a/1"), lines]) == [["a/1"], ["a/2"]]


def test_a_long_row_is_several_hits() -> None:
    row = [f"a/{seq}" for seq in range(AT_ONCE + 3)]
    first, second = _names(*row)
    assert (first, second) == (row[:AT_ONCE], row[AT_ONCE:])
    assert len(_names(*row[:AT_ONCE])) == 1


@pytest.mark.parametrize(
    ("name", "score", "is_shown"),
    [
        ("a/2", NEXT, True),  # beside it
        ("a/2", NEXT - 0.01, False),
        ("a/9", FURTHER, True),  # elsewhere in the same source
        ("a/9", FURTHER - 0.01, False),
        ("b/0", 0.01, True),  # of another source
    ],
)
def test_what_says_little_more_about_a_source_gives_way(name: str, score: float, *, is_shown: bool) -> None:
    hits = [_hit("a/1", 1.0), _hit(name, score)]
    assert (name in chain.from_iterable(_shown(hits))) is is_shown
    assert name in chain.from_iterable(_shown(hits, selective=False))


def test_without_a_positive_score_nothing_gives_way() -> None:
    assert len(_shown([_hit("a/1", -1.0), _hit("a/5", -7.0)])) == 2
    assert len(_shown([_hit("a/1", 0.0), _hit("a/5", -7.0)])) == 2
    assert _shown([]) == []


@given(
    places=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), unique=True, max_size=60),
    limit=st.integers(1, 9),
    selective=st.booleans(),
)
def test_no_hit_is_shown_twice_and_no_group_has_a_hole(
    places: list[tuple[str, int]], limit: int, *, selective: bool
) -> None:
    hits = [_hit(f"{name}/{seq}", 1 - rank / 60) for rank, (name, seq) in enumerate(places)]
    groups, looked_at = neighbours(hits, limit, selective=selective)
    ids = [hit.chunk.id for group in groups for hit in group]
    assert len(groups) <= limit
    assert len(ids) == len(set(ids)) <= looked_at
    assert [hit.chunk.id for hit in hits[:looked_at] if hit.chunk.id in ids] == [
        hit.chunk.id for hit in hits if hit.chunk.id in ids
    ]
    for group in groups:
        seqs = sorted(hit.chunk.seq for hit in group)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert len({hit.source.id for hit in group}) == 1
        assert group[0].score == max(hit.score for hit in group)
        assert len(group) <= AT_ONCE


def _passage(name: str, text: str, score: float = 0.9, header: str = "") -> Hit:
    hit = _hit(name, score)
    return replace(hit, chunk=replace(hit.chunk, text=text, header=header))


def _with_copies(hits: list[Hit]) -> dict[str, list[str]]:
    return {hit.chunk.id: [copy.chunk.id for copy in hit.copies] for hit in copies_as_one(hits)}


def test_a_passage_of_several_documents_is_one_and_those_of_a_document_stay_together() -> None:
    hits = [_passage(name, f"text {name[-1]}") for name in ("a/0", "b/0", "b/1", "a/1", "c/1")]
    assert _with_copies(hits) == {"a/0": ["b/0"], "a/1": ["b/1", "c/1"]}
    assert _shown(copies_as_one(hits)) == [["a/0", "a/1"]]


@pytest.mark.parametrize(
    ("hit", "is_copy"),
    [
        (_passage("b/7", "the\n fee  is 5 "), True),  # white space doesn't count
        (_passage("b/7", "the fee is 5", 0.4), True),
        (_passage("b/7", "the fee is 6"), False),
        (_passage("b/7", "The fee is 5"), False),
        (_passage("b/7", "the fee is 5", header="| 2022 |"), False),
        (_passage("a/7", "the fee is 5"), False),
        (replace(_passage("b/7", "the fee is 5"), excerpts=(Excerpt(0, 3, "fee"),)), False),
    ],
)
def test_what_is_the_same_word_for_word_in_another_document_is_a_copy(hit: Hit, *, is_copy: bool) -> None:
    hits = [_passage("a/0", "the fee is 5"), hit]
    assert _with_copies(hits) == ({"a/0": [hit.chunk.id]} if is_copy else {"a/0": [], hit.chunk.id: []})


def test_a_better_copy_is_shown_even_if_more_is_shown_of_the_document_of_the_other() -> None:
    hits = [
        _passage("old/0", "5 days"),
        _passage("new/1", "sick leave", 0.8),
        _passage("old/1", "sick leave", 0.7),
    ]
    assert _with_copies(hits) == {"old/0": [], "new/1": ["old/1"]}


def test_what_says_little_more_about_a_copied_document_gives_way() -> None:
    hits = [_passage("a/0", "same"), _passage("b/0", "same"), _passage("b/9", "its own", 0.5)]
    assert _shown(copies_as_one(hits)) == [["a/0"]]
    assert _shown([hits[0], hits[2]]) == [["a/0"], ["b/9"]]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.sampled_from("xyz")),
        unique_by=lambda place: place[:2],
    )
)
def test_no_passage_is_lost_or_told_twice(places: list[tuple[str, int, str]]) -> None:
    hits = [_passage(f"{name}/{seq}", text) for name, seq, text in places]
    ids = [id_ for first_id, copies in _with_copies(hits).items() for id_ in (first_id, *copies)]
    assert sorted(ids) == sorted(hit.chunk.id for hit in hits)
