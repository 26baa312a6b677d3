"""The numbers printed on pages, as one text."""

from __future__ import annotations

import pytest

from rag.text.locators import MAX_PAGES, labels_in, labels_text


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


@pytest.mark.parametrize("text", ["", "1 to x", "5 to 2", f"1 to {MAX_PAGES + 1}", "A to B"])
def test_what_is_no_text_of_labels_has_none(text: str) -> None:
    assert labels_in(text) == []


def test_a_document_whose_labels_change_all_the_time_has_no_text_of_them() -> None:
    assert labels_text([f"{page}-{page}" for page in range(500)]) == ""
