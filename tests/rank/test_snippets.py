"""One sentence of a passage: the one that shares the rarest words with a query, in every script."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.rank.excerpts import shared_rarity, statements
from rag.text.segments import sentences

PIECES = [
    "One. ",
    "Why? ",
    "## A heading\n",
    "Note: ",
    "It ticks. ",
    "時計は？",
    "止まった。",
    "\n\n",
    "code()\n",
]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Intro. Where to park? Behind the house.", ["Intro.", "Where to park? Behind the house."]),
        ("## Leave\n\nThirty days.", ["## Leave\n\nThirty days."]),
        ("## Leave\n\n### Why?\n\nBecause. It is so.", ["## Leave\n\n### Why?\n\nBecause.", "It is so."]),
        ("They asked (why?)\n\nNobody knows.", ["They asked (why?)\n\nNobody knows."]),
        ("Note: it is so.", ["Note: it is so."]),
        ("何時ですか？三時です。ありがとう。", ["何時ですか？三時です。", "ありがとう。"]),
        ("Is that all?", ["Is that all?"]),
        ("  \n", []),
    ],
)
def test_what_only_introduces_an_answer_has_the_answer_with_it(text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in statements(text)] == parts


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_statements_leave_out_nothing_that_sentences_have(text: str) -> None:
    spans = statements(text)
    assert [text[a:b] for a, b in sentences(text) if not any(s <= a and b <= e for s, e in spans)] == []
    assert all(before.end <= after.start for before, after in pairwise(spans))


@pytest.mark.parametrize(
    ("parts", "query", "best"),
    [
        (["Clocks err.", "A pendulum swings.", "Clocks tick."], "pendulum clock", 1),
        (["Cats sleep.", "Die Uhren gingen vor.", "Dogs bark."], "Uhr", None),
        (["Cats sleep.", "Die Pendeluhren gingen vor."], "Pendeluhr", 1),
        (["钟摆是什么。", "惠更斯在1656年发明了摆钟。"], "谁发明了摆钟", 1),
        (["Маятник качается.", "Часы стоят."], "маятники", 0),
        (["Nothing.", "Shared."], "moon", None),
        (["x"], "", None),
    ],
)
def test_the_best_part_shares_the_rarest_words_in_any_form(
    parts: list[str], query: str, best: int | None
) -> None:
    scores = shared_rarity(parts, query.split())
    assert (scores.index(max(scores)) if any(scores) else None) == best
