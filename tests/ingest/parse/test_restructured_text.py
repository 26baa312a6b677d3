from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse import parse

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
