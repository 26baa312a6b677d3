from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rag.errors import ConfigurationError
from rag.models.tokens import BUILTIN_MODEL, Tokens

TYPICAL = st.sampled_from(
    [*" \n\t.,-_[]#`'", "the", "Naïve", "e\u0301", "Straße", "漢字", "👩‍👧", "\x00", "\u00a0"]
)
TEXTS = st.one_of(st.text(), st.lists(TYPICAL).map("".join))


@cache
def tokens() -> Tokens:
    return Tokens(BUILTIN_MODEL / "tokenizer.json")


@cache
def reference() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(BUILTIN_MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in tokens().spans(text)]


def test_spans_are_the_stretches_of_the_text_that_became_tokens() -> None:
    assert pieces("Clocks, re-timed: don't stop") == [
        *("Clocks", ",", "re", "-", "timed", ":"),
        *("don", "'", "t", "stop"),
    ]


def test_a_word_is_split_where_the_vocabulary_ends() -> None:
    assert pieces("horology") == ["ho", "rol", "ogy"]


@settings(deadline=None)
@given(TEXTS)
@example("a\x00b")  # removed within a word, which goes on
@example("cafe\u0301 café")  # an accent of its own, and one in the letter
@example("漢字かな")  # ideographs are words each
@example("👩‍👧 flag 🇩🇪")
@example("[CLS] [MASK]x [SEP]")  # spelled out, not meant
@example("x" * 101)  # too long for a word
@example("\u2028\x1c\x85\u3000.")
def test_spans_are_the_tokenizers_own_whatever_the_text(text: str) -> None:
    expected = reference().encode(text, add_special_tokens=False).offsets
    assert tokens().spans(text) == expected


@settings(deadline=None)
@given(TEXTS)
def test_spans_are_in_order_and_within_the_text(text: str) -> None:
    spans = tokens().spans(text)
    assert spans == sorted(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)


def test_blank_text_has_no_tokens() -> None:
    assert tokens().spans(" \n\t ") == []


def test_ids_end_with_the_special_token_also_where_text_is_cut() -> None:
    whole = tokens().ids("one two three four", 256)
    assert len(whole) == 6
    assert tokens().ids("one two three four", 5) == [*whole[:4], whole[-1]]


def test_ids_of_spelled_out_special_tokens_are_those_of_plain_text() -> None:
    ids = tokens().ids("[SEP]", 256)
    assert ids.count(ids[-1]) == 1


def test_special_tokens_and_the_prefix_take_room_in_the_window() -> None:
    assert tokens().window(256, "") == 254
    assert tokens().window(256, "passage: ") == 252


def test_a_broken_tokenizer_is_named() -> None:
    path = BUILTIN_MODEL / "model.onnx"
    with pytest.raises(
        ConfigurationError, match=r"model\.onnx is not a valid tokenizer\. Download or export"
    ):
        Tokens(path)
