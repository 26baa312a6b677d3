"""What of a page is marked, and how its pixels are packed."""

from __future__ import annotations

import zlib

from rag.confined.page_process import PagePixels, line_boxes, packed_lines, shared_places, words_of


def _marked(passage: str, page: str) -> list[str]:
    wanted = [word for word, _, _ in words_of(passage)]
    return [page[start:end] for start, end in shared_places(wanted, words_of(page))]


def test_words_in_a_row_are_marked_where_they_stand() -> None:
    page = "Contents. The pendulum clock was invented by Huygens.\r\nThe end of the page."
    assert _marked("The pendulum CLOCK was\ninvented by Huygens", page) == [
        "The pendulum clock was invented by Huygens"
    ]


def test_single_words_that_stand_elsewhere_too_are_not_marked() -> None:
    assert _marked("the clock in the tower is slow", "the tower has the bells and a clock") == []


def test_a_passage_of_few_words_is_marked() -> None:
    assert _marked("Leap second", "On a leap second and leap years") == ["leap second"]
    assert _marked("", "anything") == []
    assert _marked("?!", "anything") == []


def test_a_word_that_the_page_cuts_is_one_word() -> None:
    page = "he wound the pendu\ufffe\r\nlum clock every day"
    assert _marked("wound the pendulum clock every", page) == ["wound the pendu\ufffe\r\nlum clock every"]


def test_what_lies_between_is_marked_and_what_lies_apart_is_not() -> None:
    near = "one two three X Y four five six"
    assert _marked("one two three four five six", near) == [near]
    far = f"one two three {'X ' * 40}four five six"
    assert _marked("one two three four five six", far) == ["one two three", "four five six"]


def test_a_script_without_spaces_is_marked_by_its_characters() -> None:
    assert _marked("振り子時計を発明した", "彼は振り子時計を\n発明した。") == ["振り子時計を\n発明した"]


def test_ligatures_and_letter_case_do_not_count() -> None:
    assert _marked("the first office floor", "The ﬁrst oﬃce ﬂoor") == ["The ﬁrst oﬃce ﬂoor"]


def test_a_hostile_page_costs_little() -> None:
    words = "a " * 20_000
    assert _marked(words, words) == [words.strip()]


def test_the_parts_of_a_line_are_one_mark() -> None:
    line = [(1000, 500, 1100, 600), (1130, 510, 1400, 605), (1000, 700, 1400, 800)]
    assert line_boxes(line) == [[0.1, 0.05, 0.04, 0.0105], [0.1, 0.07, 0.04, 0.01]]
    assert line_boxes([]) == []


def test_pixels_are_packed_as_lines_without_a_filter() -> None:
    drawn = PagePixels(2, 2, 3, bytes([0, 0, 0, 255, 255, 255, 9, 9, 9, 120, 120, 120]))
    lines = zlib.decompress(packed_lines(drawn, 16))
    assert lines == bytes([0, 0, 0, 0, 255, 255, 255, 0, 17, 17, 17, 119, 119, 119])
