"""Near-duplicates of better texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.rank.diversity import distinct

if TYPE_CHECKING:
    from random import Random

LONG = [f"word{number}" for number in range(104)]  # 100 runs of five
TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=8).map(" ".join), max_size=10)


def _changed(*places: int) -> str:
    return " ".join("other" if place in places else word for place, word in enumerate(LONG))


def test_a_text_that_comes_again_goes() -> None:
    assert distinct(["a b", "c", "a b", "c"]) == (0, 1)


def test_white_space_makes_no_difference() -> None:
    assert distinct(["one\ttwo\n\nthree", " one two three "]) == (0,)


def test_texts_without_words_are_the_same_only_if_they_are() -> None:
    assert distinct(["---", "***", "- - -", "---", ""]) == (0, 1, 2, 4)


def test_case_and_punctuation_make_texts_nearly_the_same() -> None:
    assert distinct(["It ticks.", "it ticks", "it tocks"]) == (0, 2)


@pytest.mark.parametrize(("threshold", "kept"), [(0.9, (0,)), (95 / 105, (0,)), (0.91, (0, 1)), (1, (0, 1))])
def test_one_changed_word_costs_five_runs_of_words(threshold: float, kept: tuple[int, ...]) -> None:
    assert distinct([_changed(), _changed(50)], threshold=threshold) == kept


def test_two_changed_words_apart_are_too_many_for_a_hundred() -> None:
    assert distinct([_changed(), _changed(50, 80)]) == (0, 1)
    assert distinct([_changed(), _changed(50, 80)], threshold=0.8) == (0,)


def test_what_is_like_a_dropped_text_only_is_kept() -> None:
    texts = [_changed(), _changed(30), _changed(30, 70)]
    assert distinct(texts) == (0, 2)


def test_chinese_and_japanese_are_compared_by_character() -> None:
    text = "閏秒は協定世界時と地球の自転のずれを直すために加えられる一秒であり国際機関が決める" * 2
    assert distinct([text, f"「{text}」", text[::-1]]) == (0, 2)


@settings(deadline=None)
@given(TEXTS, st.floats(0.1, 1))
def test_every_text_is_kept_or_repeats_a_better_one_that_is(texts: list[str], threshold: float) -> None:
    indexes = distinct(texts, threshold=threshold)
    assert list(indexes) == sorted(indexes)
    for index in set(range(len(texts))) - set(indexes):
        better = [texts[earlier] for earlier in indexes if earlier < index]
        assert any(distinct([text, texts[index]], threshold=threshold) == (0,) for text in better)
    kept = [" ".join(texts[index].split()) for index in indexes]
    assert len(set(kept)) == len(kept)


@settings(deadline=None)
@given(TEXTS)
def test_what_is_kept_is_kept_again(texts: list[str]) -> None:
    kept = [texts[place] for place in distinct(texts)]
    assert distinct(kept) == tuple(range(len(kept)))


@settings(deadline=None)
@given(TEXTS, st.randoms(use_true_random=False))
def test_at_threshold_one_the_same_are_found_in_any_order(texts: list[str], random: Random) -> None:
    shuffled = random.sample(texts, len(texts))
    assert len(distinct(shuffled, threshold=1)) == len(distinct(texts, threshold=1))
