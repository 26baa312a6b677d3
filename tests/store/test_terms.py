from __future__ import annotations

import pytest

from rag.store.terms import query_terms


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
