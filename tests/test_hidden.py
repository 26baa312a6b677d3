"""Invisible characters are removed; those that change what a reader sees are kept."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.text.invisible import bare, escape_hidden, for_people, in_one_line, with_line_ends, without_hidden

SEEN_FORMATS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Signs over numbers and names, and so on, that are drawn; those of hieroglyphs are from U+13430."""
LETTERS = {0x115F, 0x1160, 0x3164, 0xFFA0}  # fillers
MARKS = {0x34F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
UNASSIGNED = {0x2065, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
WHITE = set(map(ord, "\t\n\x0b\x0c\r\x85"))
SEEN, UNSEEN = WHITE | SEEN_FORMATS | {0}, LETTERS | MARKS | UNASSIGNED
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
KEPT = [
    "👨‍👩‍👧‍👦 👩🏽‍⚕️ 🏳️‍🌈 🏴‍☠️ ❤️‍🔥 🐻‍❄️ 👁️‍🗨️ 🙂‍↔️",
    "☺︎ ☺️ ❤️ ©️ ™️ 1️⃣ #️⃣ *⃣ ℹ️ ㊗️ 〰️",
    "می‌خواهم خانه‌ها ه‍.ش.",  # Persian
    "ക്‍ ന്‍ श्रृंखला क्‍ष क्‌ষ র‍্য ශ්‍රී",  # of India and Sri Lanka
    "葛\U000e0100城 辻\U000e0101 㐂\U000e0100 ≨︀ ⩕︀ ，︁ ᠠ᠋ᠭ",
]
EVERY = st.characters(exclude_categories=())
HIDING = st.sampled_from([chr(code) for code in sorted(LETTERS | MARKS)] + list(BIDI + "\u200b\u200c\u200d"))
BASES = st.sampled_from("a 1#<![]:\n\r\u2028\x1b😀🏳☺👩⚕葛می‌क्ശᠠ\u20e3≨")
TEXTS = st.lists(st.one_of(EVERY, HIDING, BASES)).map("".join)


def _hidden(code: int) -> bool:
    """Whether nobody sees it, by the categories of Python's own tables."""
    category = unicodedata.category(chr(code))
    if category in {"Cc", "Cf"}:
        return code not in SEEN and not 0x13430 <= code < 0x13440
    return code in UNSEEN


@pytest.mark.slow
def test_of_all_code_points_just_those_that_nobody_sees_are_left_out() -> None:
    everything = "x".join(map(chr, range(sys.maxunicode + 1)))
    hidden = {one for one in everything if _hidden(ord(one))}
    assert len(hidden) > 4_000
    for left in (set(without_hidden(everything)), set(bare(everything))):
        assert set(everything) - left == hidden


@pytest.mark.parametrize("text", KEPT)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert without_hidden(text) == text
    assert for_people(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("pass\u200bword so\u00adft", "password soft"),
        ("a\u200db in\u200cfect 漢\u200d字", "ab infect 漢字"),
        ("😀" + "\ufe01\ufe0f\U000e0141" * 14, "😀"),
        ("😀" + "\ufe0f" * 14, "😀\ufe0f"),
        ("葛" + "\U000e0100" * 14, "葛\U000e0100"),
        ("می" + "\u200c\u200d" * 14, "می\u200c"),
        ("a\ufe0f1\ufe0f b\U000e0101", "a1 b"),
        ("\u200d😀\u200d \U0001f3f4\U000e0067\U000e0062\U000e007f", "😀 \U0001f3f4"),
        ("\x1b[31mred\x9b0m\x07", "[31mred0m"),
    ],
)
def test_a_message_between_the_letters_is_gone(text: str, seen: str) -> None:
    assert without_hidden(text) == seen


@given(TEXTS)
def test_behind_what_is_seen_at_most_one_character_is_not(text: str) -> None:
    seen = without_hidden(text)
    assert without_hidden(seen) == seen
    assert bare(seen) == bare(text)
    hidden = "".join("h" if _hidden(ord(one)) else "e" if one > "\u2000" else "." for one in seen)
    assert not re.search("^h|(?<!e)hh|hhh", hidden)  # of two, the second joins emoji


@given(TEXTS)
def test_line_ends_are_one_character_for_one(text: str) -> None:
    lines = with_line_ends(text)
    assert not set("\r\x85\u2028\u2029") & set(lines)
    assert len(lines) == len(text.replace("\r\n", "\n"))


@given(TEXTS)
def test_a_terminal_gets_nothing_but_text(text: str) -> None:
    shown = for_people(text)
    assert not set(shown) & ({*map(chr, range(32)), *map(chr, range(127, 160)), *BIDI} - {"\n", "\t"})
    assert not [one for one in shown if "\ud800" <= one <= "\udfff" or "\U000e0000" <= one <= "\U000e00ff"]
    assert for_people(shown) == shown
    assert not set("\n\t") & set(in_one_line(text))
    assert len(in_one_line(text)) == len(shown)


def test_people_see_where_a_command_was() -> None:
    assert (
        for_people("\x1b]0;title\x07 a\r\nb\rc\x0cd\te\ud800") == "\ufffd]0;title\ufffd a\nb\nc\nd\te\ufffd"
    )
    assert in_one_line("a\nb\tc  d") == "a b c  d"


@given(st.dictionaries(TEXTS, TEXTS))
def test_json_says_the_same_and_hides_nothing(value: dict[str, str]) -> None:
    written = escape_hidden(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert for_people(written) == written
    assert written.encode()


def test_json_keeps_what_can_be_read() -> None:
    assert escape_hidden('{"ä 👩‍⚕️": "\u202e\x9b"}') == '{"ä 👩‍⚕️": "\\u202e\\u009b"}'
