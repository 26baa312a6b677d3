"""Texts and markup of reports."""

from __future__ import annotations

import pytest

from rag.report import Html, counted, joined, names_briefly, shortened, table, tag


def test_columns_are_aligned_and_lines_don_t_end_in_spaces() -> None:
    assert table([("NAME", "UNIT"), ("embed", "ms"), ("x", "")]) == ["NAME   UNIT", "embed  ms", "x"]


def test_a_column_of_numbers_can_align_right() -> None:
    assert table([("NAME", "MS"), ("embed", 5.2)], right={"MS"}) == ["NAME    MS", "embed  5.2"]


def test_a_cell_is_one_line_and_a_terminal_takes_nothing_in_it_for_a_command() -> None:
    (_, line) = table([("TITLE",), ("two\nlines\x1b[2J",)])
    assert "\n" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize(("number", "expected"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_things_are_counted(number: int, expected: str) -> None:
    assert counted(number, "file") == expected


def test_a_text_is_shortened_to_the_width_and_says_so() -> None:
    assert shortened("a  long\nline", 6) == "a lon…"
    assert shortened("a  long\nline", 11) == "a long line"


def test_a_list_names_the_first_and_counts_the_rest() -> None:
    assert names_briefly(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert names_briefly(["a", "b"], 2) == "a, b"


# Markup: text is text unless it is markup already.


def test_text_and_attributes_are_escaped() -> None:
    assert tag("p", "a < b & \"c'", title='"<') == ('<p title="&quot;&lt;">a &lt; b &amp; &quot;c&#x27;</p>')


def test_markup_within_markup_stays_as_it_is() -> None:
    assert tag("p", tag("b", "x & y"), " & ", Html("&amp;")) == "<p><b>x &amp; y</b> &amp; &amp;</p>"


def test_markup_that_was_put_into_other_text_is_text_again() -> None:
    assert joined([f"{tag('b', 'x')}"]) == "&lt;b&gt;x&lt;/b&gt;"


def test_the_names_of_attributes_are_html_s_own() -> None:
    assert tag("p", class_="note", aria_label="x", id=None, tabindex=0) == (
        '<p class="note" aria-label="x" tabindex="0"></p>'
    )
