"""AsciiDoc."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

GUIDE = """// licence
= Guide to Clocks
Ann Lee <ann@x.org>
v1.0, 2020-01-02
:toc:
:keywords: time, oil

Intro with https://x.org[a link] and <<a,a part>>.

// comment
== Start
[source,ruby]
.A title
----
puts 1
== no
----

* one
** two

////
gone
////
|===
|a |b

|1
|2
|===

[cols="1,1"]
|===
|k|v
|x|y
|===

include::b.adoc[]

=== Deep
====
Example text
====
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_asciidoc_is_read_without_attributes_and_marks(end: str) -> None:
    document = parse(GUIDE.replace("\n", end).encode(), "a.adoc")
    assert [(one.kind, document.text[one.start : one.end]) for one in document.blocks] == [
        ("heading", "= Guide to Clocks"),
        ("paragraph", "Intro with [a link](https://x.org) and a part."),
        ("heading", "== Start"),
        ("paragraph", "A title"),
        ("code", "```ruby\nputs 1\n== no\n```"),
        ("list", "* one\n** two"),
        ("table", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("table", "| k | v |\n| --- | --- |\n| x | y |"),
        ("heading", "=== Deep"),
        ("paragraph", "Example text"),
    ]
    assert (document.title, document.metadata) == (
        "Guide to Clocks",
        {"author": "Ann Lee", "keywords": "time, oil"},
    )
    assert document.date
    assert document.date.date().isoformat() == "2020-01-02"
    assert document.remarks == ("it includes b.adoc, which was not read with it",)


PIECES = [
    "= T",
    "== H",
    "----",
    "====",
    "|===",
    "|a",
    "////",
    "[source]",
    ".t",
    "* i",
    ":a: b",
    "text",
    "",
    "+",
]


@given(st.lists(st.sampled_from(PIECES)))
def test_any_lines_are_a_document_or_a_parse_error(lines: list[str]) -> None:
    try:
        assert parse("\n".join(lines).encode(), "a.adoc").blocks
    except ParseError as error:
        assert str(error)  # noqa: PT017 either end is fine
