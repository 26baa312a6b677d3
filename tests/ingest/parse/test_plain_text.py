from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[str, str], list[tuple[str, str]]]


def test_paragraphs_end_at_blank_lines(shape: Shape) -> None:
    assert shape("\none\ntwo\n \n\n  three\n", "README") == [
        ("paragraph", "one\ntwo"),
        ("paragraph", "three"),
    ]


def test_a_log_is_made_of_lines(shape: Shape) -> None:
    assert shape("10:00 up. Ready\n10:01 down", "a.log") == [("code", "10:00 up. Ready\n10:01 down")]


def test_a_first_line_that_stands_alone_is_the_title() -> None:
    assert parse(b"A LETTER ON TIME\n\nDear reader,\n", "letter.txt").title == "A LETTER ON TIME"
    assert parse(b"This is a sentence.\n\nAnd another.\n", "letter.txt").title == "letter"
    assert parse(b"one\ntwo\n\nthree\n", "letter.txt").title == "letter"
    assert parse(b"up\n\ndown\n", "a.log").title == "a.log"


def test_a_first_line_that_is_marked_as_a_heading_is_the_title() -> None:
    assert parse(b"# Clocks\nThey swing.\n", "README").title == "Clocks"
    assert parse(b"Clocks\n======\nThey swing.\n", "index.txt").title == "Clocks"
    assert parse(b"======\nClocks\n======\nThey swing.\n", "index.txt").title == "Clocks"
    assert parse(b"one\n\n# Clocks\ntwo\n", "index.txt").title == "one"


def test_headers_tell_the_title_the_date_and_more() -> None:
    text = (
        b"From: ann@example.org\nSubject: Of the clocks\n in the tower\n"
        b"Date: Wed, 01 May 2024 10:30:00 +0200\n\nDear Bo\n"
    )
    document = parse(text, "letter.txt")
    assert (document.title, document.date) == (
        "Of the clocks in the tower",
        datetime(2024, 5, 1, 8, 30, tzinfo=UTC),
    )
    assert document.metadata == {"from": "ann@example.org"}
    assert document.text.encode() == text
    assert parse(text, "a.log").metadata == {}


@pytest.mark.parametrize(
    "text",
    [
        b"Note: it swings\n\nText",
        b"Title: Clocks\nand then a line\n\nText",
        b"Title: Clocks\nAuthor: Ann",
        b"Title: Clocks\nX: " + b"y" * 9000 + b"\n\nText",
    ],
)
def test_lines_with_colons_are_not_headers_yet(text: bytes) -> None:
    document = parse(text, "a.txt")
    assert document.metadata == {}
    assert document.title != "Clocks"
