"""Lines, sentences, words, invisible characters, cells of tables, and the numbers printed on pages."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.text.plain_text import (
    bare,
    escape_hidden,
    for_people,
    in_one_line,
    line_at,
    line_count,
    lines_span,
    questions_in,
    sentences,
    with_indent,
    with_line_ends,
    with_replacements,
    with_section_numbers,
    without_hidden,
    words,
)
from rag.uris import (
    MAX_LABELS,
    cell_range,
    column_name,
    column_number,
    hull,
    is_cell_range,
    labels_in,
    labels_text,
)

PIECES = [
    *(". ", "! ", "?\n", "Dr. ", "A", "b", " ", "\n", "\n\n", "# H\n", "- ", "| x |", '."', "1.", "é"),
    *("。", "」", "時"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=200)


def _texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t ", []),
        ("no end", ["no end"]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("(See above.) It (really!) works.", ["(See above.)", "It (really!) works."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("At 3.5 seconds. Done.", ["At 3.5 seconds.", "Done."]),
        ("**Bold.** Plain.", ["**Bold.**", "Plain."]),
        ("नमस्ते। कैसे हो", ["नमस्ते।", "कैसे हो"]),
    ],
)
def test_a_sentence_ends_after_its_mark_and_what_closes_with_it(text: str, expected: list[str]) -> None:
    assert _texts(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Who met Mrs. Bell at St. Paul's.",
        "J. R. Bell, e.g. Smith, wrote it.",
        "Am 3. Oktober, vgl. Band 2, z. B. Berlin.",
        "It costs approx. 5 francs.",
        "It is 5 p.m. in London.",
        "the end of. what goes on",
        "See no. 5 and p. 7 of fig. 2, Abb. 3, Kap. 4 and vols. 1 and 2.",
        "In Journal of Clocks, vol. 3. Berlin 1990.",
        "Bell et al. Clocks of the world.",
    ],
)
def test_an_abbreviation_ends_no_sentence(text: str) -> None:
    assert _texts(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs 5. The next is 7.", ["It costs 5.", "The next is 7."]),
        ("See Fig. 3. It shows No. 12. Then", ["See Fig. 3.", "It shows No. 12.", "Then"]),
        ("Seite 5. Der Rest kostet 3.5. Gut.", ["Seite 5.", "Der Rest kostet 3.5.", "Gut."]),
        ("He said no. Then he left art. So", ["He said no.", "Then he left art.", "So"]),
        ("In 1999. He left at 7. Then", ["In 1999.", "He left at 7.", "Then"]),
    ],
)
def test_a_number_can_end_a_sentence(text: str, expected: list[str]) -> None:
    assert _texts(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "5. Item",
        "  12. Item",
        "1.2. Title",
        "# 3. Heading",
        "> 4. Quoted item",
        "Der 2. Weltkrieg und das 19. Jahrhundert",
        "Von Montag, 3. Oktober, bis zum 2. Advent",
    ],
)
def test_the_number_of_an_item_and_a_german_ordinal_end_no_sentence(text: str) -> None:
    assert _texts(text) == [text.strip()]


def test_a_word_that_ends_like_an_abbreviation_ends_a_sentence() -> None:
    assert _texts("In 263 BC. Then xapprox. Now IxDr. So") == [
        "In 263 BC.",
        "Then xapprox.",
        "Now IxDr.",
        "So",
    ]


def test_chinese_and_japanese_sentences_end_without_a_blank() -> None:
    assert _texts("時計。「止まった。」と言う！？はい｡終") == [
        "時計。",
        "「止まった。」",
        "と言う！？",
        "はい｡",
        "終",
    ]


def test_paragraphs_headings_items_and_rows_are_sentences() -> None:
    text = (
        "# Title\nFirst\nline\n \nSecond\n- one\n  - two\n1. three\n| a | b |\n|---|---|\n| 1 | 2 |\n## Next"
    )
    assert _texts(text) == [
        *("# Title", "First\nline", "Second", "- one", "- two", "1. three"),
        *("| a | b |", "|---|---|", "| 1 | 2 |", "## Next"),
    ]


def test_a_row_is_whole_whatever_stands_in_its_cells() -> None:
    rows = ["| Amoxicillin | 50 mg, max. 1 g | 750 mg |", "| Potassium | 5.9 | H! | Yes. No. |"]
    assert _texts("\n".join(rows) + "\n\nA line. Another one.") == [*rows, "A line.", "Another one."]


@given(TEXTS)
def test_sentences_are_in_order_and_leave_out_nothing_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    gaps = pairwise([0, *(border for span in spans for border in span), len(text)])
    assert all(start <= end for start, end in gaps)
    assert "".join("".join(_texts(text)).split()) == "".join(text.split())


@pytest.mark.usefixtures("in_linear_time")
def test_questions_are_told_in_linear_time() -> None:
    assert questions_in("?" * 100_000 + "so. Why (not)?") == "Why (not)?"


def test_words_have_no_case_and_no_punctuation() -> None:
    assert words("The Leap-Second, don't! Größe") == ["the", "leap", "second", "don", "t", "grösse"]
    assert words("UTC閏秒とは") == ["utc", "閏", "秒", "と", "は"]
    assert words("... —") == []


@given(st.text(st.characters(codec="ascii")))
def test_words_of_plain_text_are_the_same_with_and_without_other_letters(text: str) -> None:
    assert words(text) == words(text + " é")[:-1]


LINES = st.text(st.sampled_from("ab\n\r\x0b\x0c\x85\u2028\u2029"), max_size=30)


def _lines(text: str) -> list[str]:
    """As a person splits them: what stands before each LF, and what is left."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


@given(LINES, st.integers(1, 12), st.integers(0, 12))
def test_lines_end_at_line_feeds_alone_and_a_range_is_what_stands_between(
    text: str, first: int, more: int
) -> None:
    lines = _lines(text)
    assert line_count(text) == len(lines)
    span = lines_span(text, first, first + more)
    expected = lines[first - 1 : first + more]
    assert (text[slice(*span)].split("\n") if span else []) == expected
    if span and span.start < len(text):
        assert line_at(text, span.start) == first


@given(LINES.filter(bool), st.data())
def test_a_position_is_on_the_line_that_holds_it(text: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(text) - 1))
    line = line_at(text, position)
    span = lines_span(text, line, line)
    assert span
    assert span.start <= position <= span.end


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("a:\n    b", 7, 3),
        ("  b", 2, 0),
        ("a b", 2, 2),
        ("a\n\tb", 3, 2),
        ("a\nb", 2, 2),
        ("", 0, 0),
        ("a\n" + " " * 300 + "b", 302, 302),
        (" " * 300 + "b", 300, 300),
    ],
)
def test_a_line_begins_with_its_indentation(text: str, start: int, expected: int) -> None:
    assert with_indent(text, start) == expected


def test_a_slice_that_begins_inside_a_replaced_one_is_gone_with_it() -> None:
    assert with_replacements("a-b-c", [(1, 2, " or "), (2, 4, ""), (3, 3, "x")]) == "a or c"


@given(st.integers(1, 16_384))
def test_a_column_has_one_name(number: int) -> None:
    assert column_number(column_name(number)) == number


@pytest.mark.parametrize(("number", "name"), [(1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (16_384, "XFD")])
def test_columns_are_named_as_in_a_spreadsheet(number: int, name: str) -> None:
    assert column_name(number) == name


def test_a_range_of_one_cell_is_the_cell() -> None:
    assert cell_range((3, 2), (3, 2)) == "B3"
    assert cell_range((2, 1), (9, 6)) == "A2:F9"


@pytest.mark.parametrize(
    ("ranges", "whole"),
    [(["A2:F2", "B9:C9"], "A2:F9"), (["C4"], "C4"), (["B2", "AA1"], "B1:AA2"), ([], ""), (["no cells"], "")],
)
def test_the_hull_holds_all_ranges(ranges: list[str], whole: str) -> None:
    assert hull(ranges) == whole


@pytest.mark.parametrize("name", ["A2:", "a2", "A0", "ABCD1", "A1:B", "A1 B2", ""])
def test_other_names_are_no_cells(name: str) -> None:
    assert not is_cell_range(name)
    assert is_cell_range("A1:B2")


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["i", "ii", "iii", "iv", "1", "2"], "i to iv, 1 to 2"),
        (["Cover", "A-9", "A-10", "1"], "Cover, A-9 to A-10, 1"),
        (["a", "b", "XIX", "XX"], "a, b, XIX to XX"),
        (["47698", "47699"], "47698 to 47699"),
    ],
)
def test_labels_that_count_on_are_a_run(labels: list[str], text: str) -> None:
    assert labels_text(labels) == text
    assert labels_in(text) == labels


@pytest.mark.parametrize("labels", [[], ["1", "2", "3"], ["1", ""], ["1", "a, b"], ["a to b", "2"]])
def test_labels_that_say_nothing_or_can_not_be_written_are_left_out(labels: list[str]) -> None:
    assert labels_text(labels) == ""


@pytest.mark.parametrize("text", ["", "1 to x", "5 to 2", f"1 to {MAX_LABELS + 1}", "A to B"])
def test_what_is_no_text_of_labels_has_none(text: str) -> None:
    assert labels_in(text) == []


def test_a_document_whose_labels_change_all_the_time_has_no_text_of_them() -> None:
    assert labels_text([f"{page}-{page}" for page in range(500)]) == ""


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

TEXTS_WITH_INVISIBLES = st.lists(st.one_of(EVERY, HIDING, BASES)).map("".join)


def _hidden(code: int) -> bool:
    """Whether nobody sees it, by the categories of Python's own tables."""
    category = unicodedata.category(chr(code))
    if category in {"Cc", "Cf"}:
        return code not in SEEN and not 0x13430 <= code < 0x13440
    return code in UNSEEN


@pytest.mark.slow
def test_of_all_code_points_just_those_that_nobody_sees_are_left_out() -> None:
    everything = "x".join(map(chr, range(sys.maxunicode + 1)))
    hidden = {chr(code) for code in range(sys.maxunicode + 1) if _hidden(code)}
    assert len(hidden) > 4_000
    for remaining in (set(without_hidden(everything)), set(bare(everything))):
        assert set(everything) - remaining == hidden


@pytest.mark.parametrize("text", KEPT)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert without_hidden(text) == text
    assert for_people(text) == text


@pytest.mark.parametrize(
    ("text", "visible"),
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
def test_a_message_between_the_letters_is_gone(text: str, visible: str) -> None:
    assert without_hidden(text) == visible


@given(TEXTS_WITH_INVISIBLES)
def test_behind_what_is_seen_at_most_one_character_is_not(text: str) -> None:
    visible = without_hidden(text)
    assert without_hidden(visible) == visible
    assert bare(visible) == bare(text)
    hidden = "".join("h" if _hidden(ord(letter)) else "e" if letter > "\u2000" else "." for letter in visible)
    assert not re.search("^h|(?<!e)hh|hhh", hidden)  # of two, the second joins emoji


@given(TEXTS_WITH_INVISIBLES)
def test_line_ends_are_one_character_for_one(text: str) -> None:
    lines = with_line_ends(text)
    assert not set("\r\x85\u2028\u2029") & set(lines)
    assert len(lines) == len(text.replace("\r\n", "\n"))


@given(TEXTS_WITH_INVISIBLES)
def test_a_terminal_gets_nothing_but_text(text: str) -> None:
    printed = for_people(text)
    assert not set(printed) & ({*map(chr, range(32)), *map(chr, range(127, 160)), *BIDI} - {"\n", "\t"})
    assert not [
        letter
        for letter in printed
        if "\ud800" <= letter <= "\udfff" or "\U000e0000" <= letter <= "\U000e00ff"
    ]
    assert for_people(printed) == printed
    assert not set("\n\t") & set(in_one_line(text))
    assert len(in_one_line(text)) == len(printed)


def test_people_see_where_a_command_was() -> None:
    assert (
        for_people("\x1b]0;title\x07 a\r\nb\rc\x0cd\te\ud800") == "\ufffd]0;title\ufffd a\nb\nc\nd\te\ufffd"
    )
    assert in_one_line("a\nb\tc  d") == "a b c  d"


@given(st.dictionaries(TEXTS_WITH_INVISIBLES, TEXTS_WITH_INVISIBLES))
def test_json_says_the_same_and_hides_nothing(value: dict[str, str]) -> None:
    written = escape_hidden(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert for_people(written) == written
    assert written.encode()


def test_json_keeps_what_can_be_read() -> None:
    assert escape_hidden('{"ä 👩‍⚕️": "\u202e\x9b"}') == '{"ä 👩‍⚕️": "\\u202e\\u009b"}'


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_hidden_characters_of_ascii_are_those_of_all_text(text: str) -> None:
    assert f"{without_hidden(text)}é" == without_hidden(f"{text}é")


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("CHAPTER III. Shadows", "CHAPTER 3. Shadows"),
        ("BOOK THE FIRST", "BOOK 1"),
        ("Drittes Kapitel", "Kapitel 3"),
        ("Im dritten Aufzug", "Im Aufzug 3"),
        ("Première partie", "partie 1"),
        ("what the 2nd act is about", "what the act 2 is about"),
        ("XLIV.", "44."),
        ("§ 5 a", "§ 5a"),
    ],
)
def test_the_numbers_of_parts_are_in_digits_behind_their_words(text: str, numbered: str) -> None:
    assert with_section_numbers(text) == numbered


@pytest.mark.parametrize(
    "text",
    [
        "I am",
        "Appendix C",
        "Article IV",
        "the first part of a season",
        "scene x-ray",
        "chapter IIII",
        "act in it",
    ],
)
def test_what_is_no_number_of_a_part_stays(text: str) -> None:
    assert with_section_numbers(text) == text
