"""Where lines and sentences end, and which words a text has."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.text.segments import line_at, line_count, lines_span, sentences, with_indent, words

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


@given(TEXTS)
def test_sentences_are_in_order_and_leave_out_nothing_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    gaps = pairwise([0, *(border for span in spans for border in span), len(text)])
    assert all(start <= end for start, end in gaps)
    assert "".join("".join(_texts(text)).split()) == "".join(text.split())


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
