"""What of a query is a phrase, and what is ordinary text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rag.answers import MAX_QUERY_CHARS
from rag.needles.words_and_phrases import phrases, without_quotes


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"leave of absence" policy', ["leave of absence"]),
        ("“leave of absence” and “form A”", ["leave of absence", "form A"]),
        ("„Sonderurlaub“ Antrag »Formular A« «B»", ["Sonderurlaub", "Formular A", "B"]),
        ("« la loi » de 1901", ["la loi"]),
        ("「機械学習」とは", ["機械学習"]),
        ("＂ａｂｃ＂ x", ["ａｂｃ"]),
        ('is it ("a b"), or "c"?', ["a b", "c"]),
        ('"a b" "a b"', ["a b"]),
        ('"it\'s 5.5"', ["it's 5.5"]),
        ('x="a b"', ["a b"]),
    ],
)
def test_quoted_words_are_phrases(query: str, found: list[str]) -> None:
    assert [*phrases(query)] == found


@pytest.mark.parametrize(
    "query",
    [
        '5" pipe',
        '5" or 6" pipe',
        '"unbalanced',
        'unbalanced"',
        '""',
        '" "',
        '"""',
        "don't 'quote' this",
        "”x”y",
    ],
)
def test_inches_and_lone_marks_are_ordinary_text(query: str) -> None:
    assert phrases(query) == ()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('"leave of absence" policy', "leave of absence  policy"),
        ("policy on „leave of absence“?", "policy on  leave of absence ?"),
        ("「機械学習」とは", "機械学習 とは"),
        ('"leave of absence"', None),
        ("(“leave of absence”, «form A»)", None),
        ('5" pipe', None),
        ("", None),
    ],
)
def test_without_its_marks_a_query_has_the_same_words(query: str, words: str | None) -> None:
    assert without_quotes(query) == words


@pytest.mark.parametrize("unit", ['"a ', "“a ", "「a", "„a "])
def test_a_long_query_of_marks_that_are_never_closed_takes_no_time(
    unit: str, lines_run: Callable[[Callable[[], object]], int]
) -> None:
    query = (unit * MAX_QUERY_CHARS)[:MAX_QUERY_CHARS]
    assert phrases(f"{query} «b c»") == ("b c",)
    assert lines_run(lambda: phrases(unit * 400)) < 3 * lines_run(lambda: phrases(unit * 200))
