from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.store.terms import Term, index_terms, query_terms, share_of_words, stems

if TYPE_CHECKING:
    from rag.corpus import Language


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is a leap second?", "leap second?"),
        ("Is it THE pendulum, or not?", "pendulum,"),
        ("to be or not to be", "to be or not to be"),
        ("the (and)", "the (and)"),
        ("user_id if v1.0.21", "user_id v1.0.21"),
        ("", ""),
    ],
)
def test_stop_words_do_not_count_unless_there_is_nothing_else(query: str, expected: str) -> None:
    assert query_terms(query, "English") == expected.split()


def test_each_language_has_its_own_stop_words_and_some_have_none() -> None:
    assert query_terms("was ist die Uhr in", "German") == ["Uhr"]
    assert query_terms("was ist die Uhr in", "English") == ["ist", "die", "Uhr"]
    assert query_terms("was ist die Uhr in", "none") == ["was", "ist", "die", "Uhr", "in"]


@pytest.mark.parametrize(
    ("query", "language", "expected"),
    [
        ("Which user_ids were running?", "English", "user=user ids=id were=were running=run"),
        ("run, running runs", "English", "run=run"),
        ("Größere Häuser", "German", "größere=gross häuser=haus"),
        ("Häuser", "none", "häuser=hauser"),
        ("v1.0 GPT-4", "English", "v1=v1 0=0 gpt=gpt 4=4"),
        ("机器学习", "none", "机器=机器 学习=学习"),
        ("", "English", ""),
    ],
)
def test_terms_are_words_as_the_index_cuts_and_stems_them(
    query: str, language: Language, expected: str
) -> None:
    pairs = [pair.split("=") for pair in expected.split()]
    assert index_terms(query, language) == [Term(word, stem) for word, stem in pairs]


def test_stems_are_all_words_of_a_text_in_their_order() -> None:
    assert stems("The clocks, the Clock!", "English") == ["the", "clock", "the", "clock"]


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("Which pendulums were swinging?", 2 / 3),  # "were" is no stop word
        ("the clock in a tower", 1),
        ("a clock, the Clocks and penguins", 1 / 2),
        ("penguins", 0),
        ("the", 0),
        ("?!", 0),
    ],
)
def test_the_share_of_words_counts_each_word_of_the_query_once_whatever_its_form(
    query: str, share: float
) -> None:
    text = "A pendulum swings.\n\nTower clocks of a tower clock."
    assert share_of_words(query, text, "English") == pytest.approx(share)
