from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[str, str], list[tuple[str, str]]]

TEXT = """\
=====
Clock
=====

A clock counts::

    tick()

    tock()

Parts
-----
Wheels and hands.

.. note:: Oil it.

   Every year.

.. _label:

* one
  more of it
* two

  still two

1. Numbered
===========

+---+---+
| a | b |
+---+---+

=====  =====
A      B
=====  =====
1      2
=====  =====

>>> clock()
'tick'

----

End.
"""


def test_headings_lists_tables_and_literal_text_are_told_apart(shape: Shape) -> None:
    assert shape(TEXT, "a.rst") == [
        ("heading", "=====\nClock\n====="),
        ("paragraph", "A clock counts::"),
        ("code", "tick()\n\n    tock()"),
        ("heading", "Parts\n-----"),
        ("paragraph", "Wheels and hands."),
        ("code", ".. note:: Oil it.\n\n   Every year."),
        ("code", ".. _label:"),
        ("list", "* one\n  more of it\n* two\n\n  still two"),
        ("heading", "1. Numbered\n==========="),
        ("table", "+---+---+\n| a | b |\n+---+---+"),
        ("table", "=====  =====\nA      B\n=====  =====\n1      2\n=====  ====="),
        ("code", ">>> clock()\n'tick'"),
        ("paragraph", "----"),
        ("paragraph", "End."),
    ]


def test_levels_follow_the_order_in_which_styles_are_met() -> None:
    headings = [block for block in parse(TEXT.encode(), "a.rst").blocks if block.kind == "heading"]
    assert [(heading.level, heading.title) for heading in headings] == [
        (1, "Clock"),
        (2, "Parts"),
        (3, "1. Numbered"),
    ]
    assert parse(TEXT.encode(), "a.rst").title == "Clock"


def test_an_underline_shorter_than_its_title_counts_from_four_characters_on(shape: Shape) -> None:
    assert shape("A long title\n----", "a.rst")[0][0] == "heading"
    assert shape("A long title\n---", "a.rst")[0][0] == "paragraph"


def test_a_pep_is_called_as_its_header_says_and_not_abstract() -> None:
    text = (
        "PEP: 8\nTitle: Style Guide for\n  Python Code\nStatus: Active\nCreated: 05-Jul-2001\n\n"
        "Abstract\n========\n\nText."
    )
    document = parse(text.encode(), "pep-0008.rst")
    assert (document.title, document.date) == (
        "PEP 8 \u2013 Style Guide for Python Code",
        datetime(2001, 7, 5, tzinfo=UTC),
    )
    assert document.metadata == {"pep": "8", "status": "Active"}


@pytest.mark.parametrize(
    "text",
    [
        ":Author: Ann\n:Date: 2024-05-01\n\nClocks\n------\n",
        "Clocks\n------\n\n:Author: Ann\n:Date: 2024-05-01\n\nText",
    ],
)
def test_fields_before_or_after_the_title_are_metadata(text: str) -> None:
    document = parse(text.encode(), "a.rst")
    assert (document.title, document.date) == ("Clocks", datetime(2024, 5, 1, tzinfo=UTC))
    assert document.metadata == {"author": "Ann"}


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        (":mod:`!json` --- JSON encoder", "json --- JSON encoder"),
        ("The :class:`~json.JSONEncoder <json>`", "The json.JSONEncoder"),
        ("``match`` **now**", "match now"),
        ("10:30 `as is`", "10:30 `as is`"),
    ],
)
def test_a_title_has_no_markup(heading: str, title: str) -> None:
    assert parse(f"{heading}\n{'=' * len(heading)}\n\nText".encode(), "a.rst").title == title
