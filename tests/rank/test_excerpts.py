"""The sentences of a passage that are relevant to a query, and the one that stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.rank.excerpts import excerpts, shared_rarity, statements
from rag.text.plain_text import Span, sentences

TEXT = "Clocks err. Cats sleep. A clock ticks. Dogs bark. The sun sets late."
TEXTS = st.lists(
    st.sampled_from(["clock", "Cats", "sun", "a", ". ", "! ", "\n\n", "。", "時"]), max_size=40
).map(" ".join)
TERMS = st.lists(st.sampled_from(["clock", "cat", "sun", "moon", "時", "the sun", "?!"]), max_size=4)


def _excerpts(text: str, terms: Sequence[str], similarities: Sequence[float] = ()) -> tuple[Span, ...]:
    return excerpts(text, terms, similarities or [0.0] * len(sentences(text)))


def _kept(text: str, *terms: str, similarities: Sequence[float] = ()) -> list[str]:
    return [text[start:end] for start, end in _excerpts(text, terms, similarities)]


def test_sentences_with_a_term_are_kept_in_their_order() -> None:
    assert _kept(TEXT, "clock") == ["Clocks err.", "A clock ticks."]
    assert _excerpts(TEXT, ["clock"]) == ((0, 11), (24, 38))


def test_neighbors_become_one_slice() -> None:
    assert _kept(TEXT, "cats", "clock") == ["Clocks err. Cats sleep. A clock ticks."]


@pytest.mark.parametrize("term", ["tick", "ticks", "TICKING?", "ticked"])
def test_a_term_is_found_in_the_forms_that_share_a_stem(term: str) -> None:
    assert _kept(TEXT, term) == ["A clock ticks."]


@pytest.mark.parametrize("term", ["tic", "tackle", "clocktower", "clocking-off", "tickings"])
def test_a_word_with_another_stem_or_a_long_ending_is_another_word(term: str) -> None:
    assert _kept(TEXT, term) == []


def test_short_words_count_only_as_they_are() -> None:
    assert _kept(TEXT, "cat") == []
    assert _kept(TEXT, "sun") == ["The sun sets late."]


def test_of_a_term_of_several_words_all_must_be_there() -> None:
    assert _kept(TEXT, "sun-late") == ["The sun sets late."]
    assert _kept(TEXT, "sun-clock") == []
    assert _kept("時計。時間。", "時計") == ["時計。"]


def test_a_passage_without_a_word_of_the_query_gives_nothing() -> None:
    assert _excerpts(TEXT, ["moon"]) == ()
    assert _excerpts(TEXT, []) == _excerpts(TEXT, ["?!"]) == _excerpts("", ["clock"]) == ()


def test_a_sentence_without_a_term_is_kept_for_its_similarity() -> None:
    assert _kept(TEXT, "moon", similarities=[0.1, 0.1, 0.1, 0.6, 0.49]) == ["Dogs bark."]
    assert _kept(TEXT, similarities=[0.5, 0, 0, 0, 0.9]) == ["Clocks err.", "The sun sets late."]


def test_similarities_that_are_not_those_of_the_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        excerpts(TEXT, ["clock"], [0.1])


@given(TEXTS, TERMS, st.data())
def test_excerpts_are_whole_sentences_apart_and_in_order(
    text: str, terms: list[str], data: st.DataObject
) -> None:
    spans = sentences(text)
    similarities = data.draw(st.lists(st.floats(-1, 1), min_size=len(spans), max_size=len(spans)))
    pieces = excerpts(text, terms, similarities)
    assert {start for start, _ in pieces} <= {start for start, _ in spans}
    assert {end for _, end in pieces} <= {end for _, end in spans}
    assert all(text[piece.end : after.start].strip() for piece, after in pairwise(pieces))


@given(TEXTS, TERMS, st.randoms(use_true_random=False))
def test_the_order_of_the_terms_does_not_matter(text: str, terms: list[str], random: Random) -> None:
    shuffled = random.sample(terms, len(terms))
    assert _excerpts(text, shuffled) == _excerpts(text, terms)


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
        ("Leave\n\nParental leave\n\nIt is long. Ask.", ["Leave\n\nParental leave\n\nIt is long.", "Ask."]),
        ("Short of a stop\nand on it goes.", ["Short of a stop\nand on it goes."]),
        ("It ends.\n\nIt goes on.", ["It ends.", "It goes on."]),
        ("- one\n\n- two", ["- one", "- two"]),
        ("a\n\nb\n\nc\n\nd\n\ne\n\nf.", ["a\n\nb\n\nc\n\nd", "e", "f."]),
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
