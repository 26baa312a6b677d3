"""AsciiDoc, Org and reStructuredText."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import ParseError
from rag.ingest.parse.document_draft import unread_files
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.conftest import Shape
from tests.ingest.parse.document_shape import blocks_of, headings_of, texts_of, titles_of

# AsciiDoc.

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
    assert blocks_of(document) == [
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
    assert document.remarks == (*unread_files(["b.adoc"]),)


UNDERLINED = """acme(1)
=======
Ann Lee <ann@x.org>

NAME
----
acme - talk to the bus

.Call
----
acme
----

[[errors]]
Bus errors
~~~~~~~~~~
-v::
----
no title
----

====
Done.

Good.
====

バスの説明
^^^^^^^^^^
See <<errors>>.
----
code
----
"""


def test_titles_of_asciidoc_may_be_underlined() -> None:
    document = parse(UNDERLINED.encode(), "a.adoc")
    assert headings_of(document) == [(1, "acme(1)"), (2, "NAME"), (3, "Bus errors"), (4, "バスの説明")]
    code = [text for kind, text in blocks_of(document) if kind == "code"]
    assert [text.split("\n")[1] for text in code] == ["acme", "no title", "code"]
    assert (document.title, document.metadata["author"]) == ("acme(1)", "Ann Lee")
    assert "Good." in document.text
    assert "See Bus errors." in document.text


def test_a_long_label_above_an_underline_is_read_in_linear_time() -> None:
    length = 300_000
    label, line = "a" * (length - 2) + "::", "-" * length
    assert not headings_of(parse(f"{label}\n{line}\n".encode(), "label.adoc"))


ASCIIDOC_TABLES = r"""[cols="1,1,1"]
|===
|Plan |CPU |RAM

2+|Medium, large |8
.2+|XL |16 |32
|17 s|33
3*|same
|B \| C
|x
more
a|y
|===

,===
Name,Port
"a, b",8080
,===

[%header,format=csv,separator=;]
|===
a;b
1;2
|===

:===
foo:bar
:===

!===
!c !d
!===
"""


def test_tables_of_asciidoc_have_each_cell_in_its_column() -> None:
    document = parse(ASCIIDOC_TABLES.encode(), "a.adoc")
    tables = [document.text[block.start : block.end].splitlines() for block in document.blocks]
    assert [[line for line in table if "---" not in line] for table in tables] == [
        [
            "| Plan | CPU | RAM |",
            "| Medium, large |  | 8 |",
            "| XL | 16 | 32 |",
            "| XL | 17 | 33 |",
            "| same | same | same |",
            "| B \\| C | x more | y |",
        ],
        ["| Name | Port |", "| a, b | 8080 |"],
        ["| a | b |", "| 1 | 2 |"],
        ["| foo | bar |"],
        ["| c | d |"],
    ]


@pytest.mark.slow
def test_a_cell_that_claims_to_be_huge_stays_small() -> None:
    table = "|===\n|a\n" + "999999999*|b\n.999999999+|c\n999999999.999999999+|d\n" * 100 + "|===\n"
    assert len(parse(table.encode(), "a.adoc").text) < 200_000
    assert parse(f",===\n{'a' * 200_000},b\n,===\n".encode(), "a.adoc").blocks


BLOCKS = """[WARNING]
====
Delete it
before.
====

[CAUTION%unbreakable]
Format first.

[TIP]
.Title
* a

[IMPORTANT]
====
[source,sh]
----
rm
----
====

[quote, "A. Einstein", Relativity]
____
Imagination.
____
"""


def test_what_a_reader_sees_at_a_block_of_asciidoc_stays() -> None:
    document = parse(BLOCKS.encode(), "a.adoc")
    assert texts_of(document) == [
        "WARNING: Delete it\nbefore.",
        "CAUTION: Format first.",
        "Title",
        "TIP:",
        "* a",
        "IMPORTANT:",
        "```sh\nrm\n```",
        '"A. Einstein", Relativity: Imagination.',
    ]


CONDITIONS = """= T
:v: 1.2

ifndef::w[Not w.]

ifdef::w[w.]

ifdef::v[Since {v}.]

[source,sh,subs="attributes+"]
----
install=={v}
----

----
{v}
----
"""


def test_conditions_and_code_of_asciidoc_have_the_values_that_readers_see() -> None:
    document = parse(CONDITIONS.encode(), "a.adoc")
    assert texts_of(document)[1:] == [
        "Not w.",
        "Since 1.2.",
        "```sh\ninstall==1.2\n```",
        "```\n{v}\n```",
    ]


ATTRIBUTES = r"""= {product} Guide
:edition: Pro
:product: Frobnicator {edition}
:url-docs: https://docs.example.com

Install {Product} 2{nbsp}GB from {url-docs}[docs], no \{product}; see {page}.

:edition: Home
:product!:

Now {edition} for {product}.

----
puts {edition}
----
"""


def test_asciidoc_has_the_values_of_its_attributes_in_place_of_their_names() -> None:
    document = parse(ATTRIBUTES.encode(), "a.adoc")
    assert document.title == "Frobnicator Pro Guide"
    assert texts_of(document)[1:] == [
        "Install Frobnicator Pro 2\u00a0GB from [docs](https://docs.example.com), no {product}; see {page}.",
        "Now Home for {product}.",
        "```\nputs {edition}\n```",
    ]
    (remark,) = document.remarks
    assert "page, product" in remark


def test_attributes_of_asciidoc_that_grow_without_end_stay_short() -> None:
    doubled = "".join(f":a{i + 1}: {{a{i}}}{{a{i}}}\n" for i in range(60))
    text = f"= T\n:a0: lol\n{doubled}\n" + "{a60} " * 2_000
    assert 100_000 < len(parse(text.encode(), "a.adoc").text) < 1_100_000


ANCHORS = r"""= [[guide]]The Guide

See <<install>>, <<lid, the
lid>>, <<_running>>, <<fig>>, <<far>>, <<Running>>, xref:b.adoc#x[], xref:#lid[] and https://a.org[].

[[install]]
== Installing {product}

A [[a1]] word.[[a2,A]] Two anchor:a3[]words, \[[a4]] and `x[[0]]`.

[#lid]
=== [[b]]Lid

* [[c]] [#d]#Open# and [.big]##cl##ose.

.Name
[[fig]]
image::x.png[]

== Running

----
<<install>> [[e]]
----
"""
ANCHORS_TEXT = r"""= The Guide

See Installing {product}, the
lid, Running, Name, [far], Running, b.adoc#x, Lid and https://a.org.

== Installing {product}

A word. Two words, \[[a4]] and `x[[0]]`.

=== Lid

* Open and close.

Name

== Running

```
<<install>> [[e]]
```"""


def test_asciidoc_has_titles_in_place_of_references_and_no_anchors() -> None:
    document = parse(ANCHORS.encode(), "a.adoc")
    assert document.title == "The Guide"
    assert document.text == ANCHORS_TEXT


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part", ["https://", "xref:", "image:a[", "<<a", "[[a", "[#a]#", "== [[a]]x\n", "[[a]]\n"]
)
def test_hostile_asciidoc_costs_no_more_than_its_length(part: str) -> None:
    parse(f"= T\n\n{part * 20_000}".encode(), "a.adoc")


PIECES = [
    "= T",
    "== [[a]]H",
    "[[a,b]]",
    "<<a>> <<c,d>>",
    ":b: {a}{b}",
    "{a} {b}",
    "== H",
    "----",
    "====",
    "|===",
    ",===",
    '[cols="3*",format=csv]',
    '2.3+|a "',
    "[WARNING]",
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


# Org files.

COMMENTED = """Title
=====

.. |ver| replace:: 3.14
.. TODO ask Bob.
   He knows.

Version |ver|, not ``|ver|`` or |other|.

.. note:: Kept.
.. _target:
.. [1] A note.

..

    Quoted.

.. include:: inc.txt

::

    echo |ver|
"""


def test_rst_is_read_without_comments_and_with_its_replacements() -> None:
    document = parse(COMMENTED.encode(), "a.rst")
    assert "Version 3.14, not ``|ver|`` or |other|." in document.text
    assert [word for word in ("Bob", "knows", "..\n") if word in document.text] == []
    for words in ("note:: Kept.", "_target:", "[1] A note.", "    Quoted.", "    echo |ver|"):
        assert words in document.text
    assert document.remarks == ("1 comment was left out", *unread_files(["inc.txt"]))


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part", [".. a\n", "..\n", "..\n\n", "|a|", "|", "``|", ".. |a| replace:: |a|\n", " \n"]
)
def test_hostile_rst_costs_no_more_than_its_length(part: str) -> None:
    parse(f".. |a| replace:: b\n\n{part * 40_000} x".encode(), "a.rst")


NOTES = """#+TITLE: Clocks
#+AUTHOR: Ann
#+DATE: <2024-05-01 Wed>
#+FILETAGS: :time:oil:
#+OPTIONS: toc:nil
#+INCLUDE: "b.org" :lines 1-2
# a comment
Intro with a [[https://x.org][link]].

* TODO [#A] Wind them :daily:
SCHEDULED: <2024-05-02 Thu>
:PROPERTIES:
:ID: 1
:END:
- one
  more
- two
| a | b |
|---+---|
| 1 | 2 |
** Code
#+BEGIN_SRC python
* no heading
#+END_SRC
#+begin_quote
Quoted.
#+end_quote
#+begin_comment
gone
#+end_comment
:alone:
Last.
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_org_is_read_without_settings_and_drawers(end: str) -> None:
    document = parse(NOTES.replace("\n", end).encode(), "a.org")
    assert blocks_of(document) == [
        ("paragraph", "Intro with a [link](https://x.org)."),
        ("heading", "* TODO [#A] Wind them :daily:"),
        ("paragraph", "SCHEDULED: <2024-05-02 Thu>"),
        ("list", "- one\n  more\n- two"),
        ("table", "| a | b |\n|---+---|\n| 1 | 2 |"),
        ("heading", "** Code"),
        ("code", "```python\n* no heading\n```"),
        ("paragraph", "Quoted."),
        ("paragraph", "Last."),
    ]
    assert [(block.level, block.title) for block in document.blocks if block.level] == [
        (1, "Wind them"),
        (2, "Code"),
    ]
    assert (document.title, document.metadata) == ("Clocks", {"author": "Ann", "keywords": "time, oil"})
    assert document.date
    assert document.date.date().isoformat() == "2024-05-01"
    assert document.remarks == (*unread_files(['"b.org"']),)


def test_a_commented_subtree_of_org_is_left_out() -> None:
    text = "* Seen\na\n** COMMENT Aside\nb\n*** Below\nc\n** COMMENTS\nd\n* COMMENT\ne"
    headings_and_text = parse(text.encode(), "a.org").text
    assert headings_and_text == "* Seen\n\na\n\n** COMMENTS\n\nd"


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", [":a:\n", ":a:\n:end:\n", "#+begin_src\n", "* a\n", "[[a"])
def test_hostile_org_costs_no_more_than_its_length(part: str) -> None:
    assert parse(f"{part * 20_000}\nx".encode(), "a.org")


def test_captions_of_org_are_read() -> None:
    table = "| Zone | Sum |\n|------+-----|\n| N | 5 |"
    text = f"* Sales\n#+NAME: t1\n#+CAPTION: May [[https://x.org][2022]]\n{table}\n"
    document = parse(text.encode(), "a.org")
    texts = texts_of(document)
    assert texts[1:] == ["May [2022](https://x.org)", table]
    short = parse(b"#+caption[Short]: The long one\n| a |\n", "a.org")
    assert short.text.startswith("The long one\n\n")


def test_deadlines_and_kinds_of_notes_of_org_are_read() -> None:
    text = "* Pay\nDEADLINE: <2024-06-01 Sat>\nBody.\n"
    text += "#+BEGIN_WARNING\nHot.\n#+END_WARNING\n"
    assert parse(text.encode(), "a.org").text == (
        "* Pay\n\nDEADLINE: <2024-06-01 Sat>\nBody.\n\nWARNING: Hot."
    )


def test_real_org_files_have_the_headings_that_a_person_sees(judged: Path) -> None:
    for name in ("README", "README-w-include"):
        data = (judged / "office" / "unstructured" / f"{name}.org").read_bytes()
        document = parse(data, f"{name}.org")
        headings = titles_of(document)
        assert (document.title, headings) == ("Example Docs", ["Example Docs", "XBRL 10-K"])


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
    assert document.metadata == {"pep": "8", "status": "Active", "created": "05-Jul-2001"}


def test_headers_date_a_text_as_front_matter_does_and_their_dates_stay_metadata() -> None:
    headers = "Title: Delta\nCreated: 28-Aug-2019\nUpdated: 2024-01-01\n"
    document = parse(f"{headers}\nText.".encode(), "delta.rst")
    assert document.date == datetime(2024, 1, 1, tzinfo=UTC)
    assert document.metadata == {"created": "28-Aug-2019", "updated": "2024-01-01"}
    dated = parse(f"{headers}Date: 2021-05-01\n\nText.".encode(), "delta.txt")
    assert dated.date == datetime(2021, 5, 1, tzinfo=UTC)
    assert "date" not in dated.metadata


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("* Meeting *with* [[file:ann.org][Ann]]\n\nText", "a.org"),
        ("#+TITLE: Meeting *with* [[file:ann.org][Ann]]\n\nText", "a.org"),
        ("= Meeting *with* link:https://x.org[Ann]\n\nText", "a.adoc"),
    ],
)
def test_a_title_has_the_words_of_its_links(text: str, name: str) -> None:
    assert parse(text.encode(), name).title == "Meeting with Ann"
