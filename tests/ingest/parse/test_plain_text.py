from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse import parse

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
    assert parse(b"This is a sentence.\n\nAnd another.\n", "letter.txt").title == "letter.txt"
    assert parse(b"one\ntwo\n\nthree\n", "letter.txt").title == "letter.txt"
    assert parse(b"up\n\ndown\n", "a.log").title == "a.log"
