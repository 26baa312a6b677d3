"""Plain text, settings files and subtitles."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.conftest import Shape
from tests.ingest.parse.document_shape import headings_of, texts_of, titles_of


def test_paragraphs_end_at_blank_lines(shape: Shape) -> None:
    assert shape("\none\ntwo\n \n\n  three\n", "README") == [
        ("paragraph", "one\ntwo"),
        ("paragraph", "three"),
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("10:00 up. Ready\n10:01 down", "a.log"),
        ("!Type:Bank\nD27/03/2026\nT-348.67\nPHuber\n^", "konto.qif"),
        ("OFXHEADER:100\n<OFX>\n<TRNAMT>-348.67\n<NAME>Huber", "konto.ofx"),
        (":61:2603270327D348,67N062NONREF\n:86:177?20RG 2026-118", "Umsatz.STA"),
        ("0 @I1@ INDI\n1 NAME Anna /Huber/\n2 PLAC Ulm", "tree.ged"),
    ],
)
def test_logs_accounts_and_family_trees_are_made_of_lines(text: str, name: str, shape: Shape) -> None:
    assert shape(text, name) == [("code", text)]


def test_a_first_line_that_stands_alone_is_the_title() -> None:
    assert parse(b"A LETTER ON TIME\n\nDear reader,\n", "letter.txt").title == "A LETTER ON TIME"
    assert parse(b"This is a sentence.\n\nAnd another.\n", "letter.txt").title == "letter"
    assert parse(b"one\ntwo\n\nthree\n", "letter.txt").title == "letter"
    assert parse(b"Get it at https://example.org/\n\nVersion 2\n", "History.txt").title == "History"
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


# YAML, TOML and INI files.

WORKFLOW = """# c
name: CI  # and more
on:
  push:
    branches: [a]
env: x
"a b": |
  run: it
"""


OBJECTS = """# all of it
---
apiVersion: v1
kind: Service
metadata:
  labels:
    name: no
  name: "billing"
spec:
  type: LoadBalancer
---
kind: Service
metadata:
  name: {{ .Values.name }}
---
replicas:
  min: 2
"""
_LINES = "      x: 1\n" * 41
PATHS = f"paths:\n  # all\n  /users/{{id}}:\n    get:\n{_LINES}    post: {{}}\nsteps:\n  - run:\n{_LINES}"
SCRIPT = f"script: |\n  echo:\n{_LINES}"


@pytest.mark.parametrize(
    ("name", "content", "title", "headings"),
    [
        ("CHANGELOG.yml", "next:\n  - a\n6.2.0:\n  - b\n", "CHANGELOG.yml", [(1, "next"), (1, "6.2.0")]),
        ("ci.yml", ".base:\n  a: b\n1007:\n  c: d\n", "ci.yml", [(1, ".base"), (1, "1007")]),
        (
            "all.yaml",
            OBJECTS,
            "all.yaml",
            [(1, "Service billing"), (1, "Service"), (1, ""), (1, "replicas")],
        ),
        (
            "api.yaml",
            PATHS,
            "api.yaml",
            [(1, "paths"), (2, "/users/{id}"), (3, "get"), (3, ""), (1, "steps")],
        ),
        ("run.yaml", SCRIPT, "run.yaml", [(1, "script")]),
        ("ci.yml", WORKFLOW, "CI", [(1, "on"), (1, ""), (1, "a b")]),
        ("a.yaml", "info:\n  title: no\n- a: b\n", "a.yaml", [(1, "info")]),
        ("a.toml", 'title = "T: x"\n[a]\nx = 1\n[[a.b]]\ny = 2\n', "T: x", [(1, "a"), (2, "a.b")]),
        ("a.ini", "; c\n[Main part]\nx=1\n", "a.ini", [(1, "Main part")]),
        ("nginx.conf", "server {\n listen 80;\n}\n", "nginx.conf", []),
    ],
)
def test_top_level_keys_and_tables_are_sections(
    name: str, content: str, title: str, headings: list[tuple[int, str]]
) -> None:
    document = parse(content.encode(), name)
    assert (document.title, document.text) == (title, content)
    assert headings_of(document) == headings


def test_keys_of_long_json_are_sections_as_in_yaml() -> None:
    api = {"openapi": "3.1", "paths": {"/users": {"get": {str(at): at for at in range(50)}, "post": {}}}}
    text = json.dumps(api | {"tags": [{"name": "no"}] * 20}, indent=2)
    document = parse(text.encode(), "api.json")
    assert document.text == text
    assert headings_of(document) == [(1, "paths"), (2, "/users"), (3, "get"), (3, ""), (1, "tags")]
    assert not parse(b'{\n  "short": {\n    "a": 1\n  }\n}', "a.json").headings


# Subtitles: what is said, under the time when it is said.

SRT = """1
00:00:01,000 --> 00:00:04,000
<i>The clock</i>
ticks.

2
01:02:04,000 --> 01:02:06,000
{\\an8}42
"""
VTT = """WEBVTT - My talk

NOTE by Ann

1
00:01.000 --> 00:04.000 align:start
<v Ann>Oil &amp; wind

second
00:04.000 --> 00:06.000
the clock.

00:01:10.000 --> 00:01:12.000
Again
"""
SBV = "0:00:01.000,0:00:04.000\nIt\n\n0:00:05.000,0:00:06.000\nticks"


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.srt", SRT, "a", "00:00:01\n\nThe clock ticks.\n\n01:02:04\n\n42"),
        (
            "a.srt",
            "\ufeff" + SRT.replace("\n", "\r\n"),
            "a",
            "00:00:01\n\nThe clock ticks.\n\n01:02:04\n\n42",
        ),
        ("a.vtt", VTT, "My talk", "00:00:01\n\nAnn: Oil & wind the clock.\n\n00:01:10\n\nAgain"),
        ("a.sbv", SBV, "a", "00:00:01\n\nIt ticks"),
    ],
)
def test_subtitles_are_sentences_under_their_times(name: str, content: str, title: str, text: str) -> None:
    document = parse(content.encode(), name)
    assert (document.title, document.text) == (title, text)
    headings = titles_of(document)
    assert headings == [line for line in text.split("\n") if line[2:3] == ":"]


def test_a_section_is_a_minute_and_ends_with_a_sentence() -> None:
    words = [f"word {n}{'.' if n % 7 == 0 else ''}" for n in range(200)]
    cues = [f"00:{n // 60:02}:{n % 60:02}.000 --> 00:59:59.000\n{word}\n" for n, word in enumerate(words)]
    document = parse("\n".join(["WEBVTT\n", *cues]).encode(), "a.vtt")
    headings = titles_of(document)
    assert headings == ["00:00:00", "00:01:04", "00:02:07", "00:03:10"]


def test_captions_that_roll_up_are_said_once() -> None:
    cues = "00:01.000 --> 00:02.000\nThe clock\n\n00:02.000 --> 00:03.000\nThe clock\nticks.\n"
    assert parse(f"WEBVTT\n\n{cues}".encode(), "a.vtt").text == "00:00:01\n\nThe clock ticks."


def test_each_turn_of_a_named_speaker_is_a_line() -> None:
    spoken = {
        1: "<v Ann>Who signs\nthe lease?</v>",
        5: "Bo T.: I do.",
        9: "Bo T.: On Friday.",
        75: "Bo T.: Or later.",
    }
    cues = [f"00:{at // 60:02}:{at % 60:02}.000 --> 00:02:00.000\n{said}\n" for at, said in spoken.items()]
    assert parse("\n".join(["WEBVTT\n", *cues]).encode(), "a.vtt").text == (
        "00:00:01\n\nAnn: Who signs the lease?\nBo T.: I do. On Friday.\n\n00:01:15\n\nBo T.: Or later."
    )


@pytest.mark.parametrize(
    ("cue", "speech"),
    [
        (">> ANN: Safe?\n>> BO: No.\n>> Next, please.", "ANN: Safe?\nBO: No.\n- Next, please."),
        ("&gt;&gt; ANN: Safe? >>> BO: No.\nI said", "ANN: Safe?\nBO: No. I said"),
        ("ANN: Go.\n- Who is it?\n– Me.\nThe boss.", "ANN: Go.\n- Who is it?\n- Me. The boss."),
        ("- ANN: Yes.\nANN: It is.", "ANN: Yes. It is."),
        ("a -5 degree\n-5 more, x >= 3", "a -5 degree -5 more, x >= 3"),
    ],
)
def test_a_turn_begins_at_the_signs_of_captions(cue: str, speech: str) -> None:
    document = parse(f"1\n00:00:01,000 --> 00:00:09,000\n{cue}\n".encode(), "a.srt")
    assert texts_of(document)[1:] == [speech]


def test_without_a_time_there_are_no_subtitles() -> None:
    with pytest.raises(ParseError, match="no subtitles"):
        parse(b"WEBVTT\n\nThe clock ticks.", "a.vtt")


@pytest.mark.parametrize("key", ["{}:\n  a: 1", "[{}]\na = 1"])
def test_a_comment_belongs_to_the_key_below_it(key: str, shape: Shape) -> None:
    image, ingress = key.format("image"), key.format("ingress")
    name = "values.yaml" if image.endswith("a: 1") else "values.toml"
    head, value = ingress.split("\n")
    off = "# off\n" * 11
    content = (
        f"# All values\n\n# The image to run\n{image}\n\n# Who may\n# come in\n{ingress}\n{off}{ingress}\n"
    )
    assert shape(content, name) == [
        ("code", "# All values"),
        ("heading", f"# The image to run\n{image.split(chr(10))[0]}"),
        ("code", value.strip()),
        ("heading", f"# Who may\n# come in\n{head}"),
        ("code", f"{value.strip()}\n{off}".strip()),
        ("heading", head),
        ("code", value.strip()),
    ]


def test_a_comment_at_the_end_of_a_text_or_document_stays_there(shape: Shape) -> None:
    assert shape("run: |\n  make\n  # done\nenv:\n  a: 1\n# end\n---\nb: 1\n", "a.yaml") == [
        ("heading", "run: |"),
        ("code", "make\n  # done"),
        ("heading", "env:"),
        ("code", "a: 1\n# end"),
        ("heading", "---"),
        ("code", "b: 1"),
    ]


@pytest.mark.usefixtures("in_linear_time")
def test_spaces_in_the_name_of_a_table_cost_no_more_than_their_length() -> None:
    content = f"[ a.b ]  # note\nx = 1\n[{' ' * 40_000}c\n"
    assert headings_of(parse(content.encode(), "a.toml")) == [(2, "a.b")]


def test_a_book_of_project_gutenberg_has_its_title_author_and_chapters() -> None:
    about = "Title: Huckleberry\n  Finn\n\nAuthor: Mark Twain\n\n[This file last updated May 3, 2011]\n\n"
    begin, end = (f"*** {word} OF THIS PROJECT GUTENBERG EBOOK HUCK ***" for word in ("START", "END"))
    contents = "CHAPTER I. Huck.\n\nCHAPTER II. The Boys\nand Jim."
    text = f"{contents}\n\nCHAPTER I.\n\nYou don't know.\n\nCHAPTER II.\n\nWe went."
    book = f"The EBook of Huck\n\n{about}{begin}\n\n{text}\n\n{end}\n\nLicence, valid from 1 May 2012"
    document = parse(book.encode(), "76.txt")
    assert (document.title, document.metadata) == ("Huckleberry Finn", {"author": "Mark Twain"})
    assert document.text.strip() == text
    assert [block.title for block in document.blocks if block.kind == "heading"] == [
        "CHAPTER I.",
        "CHAPTER II.",
    ]


_RFC = """
Network Working Group                                           R. Droms
Request for Comments: 2131                           Bucknell University
Category: Standards Track                                   S. Vine, Ed.
                                                              March 1997

                   Dynamic Host
               Configuration Protocol

Abstract

   Addresses for hosts.

Table of Contents

   1. Introduction ....................................... 2
1.1 Requirements . . . . . . . . . . . . . . . . . . . . . 2

1. Introduction

   The server states how long a host may use



Droms                       Standards Track                     [Page 1]
\f
RFC 2131          Dynamic Host Configuration Protocol         March 1997


   its address. It ends then.

1.1 Requirements that a client and a server must meet in each
    exchange

   1. None

Droms                       Standards Track                     [Page 2]
\f
RFC 2131          Dynamic Host Configuration Protocol         March 1997

Appendix A. Options
   Option 50

A.1. Lease time

Author's Address
"""


def test_an_rfc_has_its_title_date_authors_and_sections() -> None:
    document = parse(_RFC.encode(), "rfc2131.txt")
    assert document.title == "RFC 2131: Dynamic Host Configuration Protocol"
    assert document.date == datetime(1997, 3, 1, tzinfo=UTC)
    assert document.metadata == {"author": "R. Droms, S. Vine", "category": "Standards Track"}
    assert headings_of(document) == [
        (1, "Abstract"),
        (1, "Table of Contents"),
        (1, "1. Introduction"),
        (2, "1.1 Requirements that a client and a server must meet in each exchange"),
        (1, "Appendix A. Options"),
        (2, "A.1. Lease time"),
        (1, "Author's Address"),
    ]


def test_page_breaks_of_an_rfc_are_not_text_so_its_lines_are_not_cited() -> None:
    document = parse(_RFC.encode(), "rfc2131.txt")
    assert "how long a host may use\n   its address. It ends then." in document.text
    assert "[Page" not in document.text
    assert "\f" not in document.text
    assert not document.has_lines
    assert "   Option 50" in document.text


def test_an_rfc_without_pages_stays_as_it_is_with_its_lines() -> None:
    text = _RFC.partition("   The server")[0]
    document = parse(text.encode(), "rfc2131.txt")
    assert (document.text, document.has_lines) == (text, True)
    assert titles_of(document)[-1] == "1. Introduction"


def test_a_draft_is_called_by_its_name_and_title() -> None:
    text = (
        "Network Working Group                    A. Lee\nInternet-Draft                  July 2, 2017\n"
        "Expires: January 3, 2018\n\n\n     The Clock Protocol\n   draft-lee-clock-01\n\n"
        "Abstract\n\n   It ticks.\n"
    )
    document = parse(text.encode(), "clock.txt")
    assert document.title == "draft-lee-clock-01: The Clock Protocol"
    assert document.date == datetime(2017, 7, 2, tzinfo=UTC)


def test_a_text_that_only_speaks_of_an_rfc_has_no_sections() -> None:
    text = "Notes\n\nRequest for Comments: 2131 says:\n\n1. Introduction\n\nAnn [Page 1]\n"
    document = parse(text.encode(), "notes.txt")
    assert (document.title, document.text, headings_of(document)) == ("Notes", text, [])


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part", ["x [Page 1]\n", "\f\n ", "1.1. a  ", "RFC 1  ", "A\n   a", "draft-a ", "\na:  b"]
)
def test_hostile_rfcs_cost_no_more_than_their_length(part: str) -> None:
    head = _RFC.partition("Abstract")[0]
    parse((head + part * 20_000).encode(), "a.txt")
    parse((head.rstrip() + part * 20_000).encode(), "a.txt")


def test_lines_of_chapters_and_scenes_are_headings_of_a_text() -> None:
    play = "ACT I", "SCENE I. Venice. A street.", "Go."
    prose = "Erstes Kapitel", "Es war.", "BOOK THE FIRST", "Part 2 is due now.", "End."
    blocks = parse("\n\n".join((*play, *prose)).encode(), "play.txt").blocks
    assert [(block.level, block.title) for block in blocks if block.kind == "heading"] == [
        (1, "ACT I"),
        (2, "SCENE I. Venice. A street."),
        (2, "Erstes Kapitel"),
        (1, "BOOK THE FIRST"),
    ]


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part", ["Title: a\n", "*** START OF THE PROJECT GUTENBERG\n", "part i\n\n", "END OF "]
)
def test_hostile_books_cost_no_more_than_their_length(part: str) -> None:
    parse((part * 40_000).encode(), "a.txt")
