"""Which parser reads a file, what all of them state, and what they read of real documents."""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.parse import xberg_formats
from rag.ingest.parse.document_parts import (
    FACT_LENGTH,
    MAX_LEVEL,
    TITLE_LENGTH,
    date,
    facts,
    title_line,
    with_facts,
)
from rag.ingest.parse.parsers import OF_EXTRA, SUFFIXES, format_of, is_document, is_supported, parse
from rag.ingest.report import Outcome, extra_notes
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget
from rag.runtime import MODULES, install_command
from rag.text.plain_text import with_line_ends, without_hidden
from tests.ingest.office import SAMPLES

# Which parser reads a file, and what all of them state.

# What holds for every format, and which parser reads which file.

PIECES = st.sampled_from(
    """
    # a|## b|- c|  - d|```|    e|===|---|~~~|+--+|| f ||> g|<div>|<!--|-->|.. note::|h::|1. i|def j():|{|}
    |\\begin{itemize}|\\end{itemize}|\\item k|\\section{l}|[m]|n: o|#+begin_src|#+end_src
    |----|BEGIN:VEVENT|SUMMARY:p|From: q|00:01.000 --> 00:02.000|<rss>|</rss>|<item>|</item>|<title>|</title>
    |"k": 1,|l,m|"n|[o]: p|\\|\t|\x0c|\x0b|\u2028|\u00a0|\u200b|# |  |\n|\n\n|</main>|<main>|<p>q|:|r: s
    """.strip().split("|")
)
ANY_TEXT = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=30).map("\n".join))
TEXT_NAMES = st.sampled_from(
    [
        "a.md",
        "a.txt",
        "a.log",
        "a.rst",
        "a.py",
        "a.html",
        "a.csv",
        "a.json",
        "a.jsonl",
        "README",
        "a.mdx",
        "a.adoc",
        "a.org",
        "a.tex",
        "a.yaml",
        "a.toml",
        "a.srt",
        "a.ics",
        "a.eml",
        "a.xml",
    ]
)
DEEP = 200_000


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(ANY_TEXT, TEXT_NAMES)
def test_blocks_are_in_order_and_leave_out_nothing_but_white_space(text: str, name: str) -> None:
    try:
        document = parse(text.encode(), name)
    except ParseError:
        return
    end = 0
    for block in document.blocks:
        body = document.text[block.start : block.end]
        assert block.start >= end
        assert body
        assert body == body.strip()
        assert not document.text[end : block.start].strip()
        end = block.end
    assert not document.text[end:].strip()
    assert document.title == title_line(document.title)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(SUFFIXES)))
def test_any_bytes_are_a_document_or_a_parse_error(data: bytes, suffix: str) -> None:
    name = f"a{suffix}" if suffix.startswith(".") else suffix
    with suppress(ParseError):
        assert parse(data, name).blocks


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("[" * DEEP + "]" * DEEP, "a.json"),
        ('{"a":' * DEEP, "a.jsonl"),
        ("<div>" * DEEP, "a.html"),
        (">" * DEEP + " x", "a.md"),
        ("- " * DEEP + "x", "a.md"),
        ("[" * DEEP, "a.md"),
        ("\n".join(" " * depth + "* x" for depth in range(500)), "a.rst"),
    ],
)
def test_deep_nesting_is_a_document_or_a_parse_error(content: str, name: str) -> None:
    try:
        assert parse(content.encode(), name).blocks
    except ParseError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017 either end is fine


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("\n".join(f"{'*' * n} h{n}\ntext" for n in range(1, 90)), "a.org"),
        ("".join(f"{' ' * n}class C{n}:\n" for n in range(90)) + " " * 90 + "pass\n", "a.py"),
        ("\n".join(f"{'=' * n} h{n}\n\ntext\n" for n in range(1, 90)), "a.adoc"),
        ("<article><body>" + "<sec><title>h</title><p>text</p>" * 90 + "</sec>" * 90, "a.xml"),
        ("\n".join(f"{'#' * n} h{n}\n\ntext\n" for n in range(1, 90)), "a.md"),
        ("\n".join(f"{' ' * n}- item" for n in range(0, 180, 2)), "a.md"),
    ],
)
def test_a_passage_lies_under_few_headings_however_deep_a_text_is_nested(content: str, name: str) -> None:
    with suppress(ParseError):
        document = parse(content.encode(), name)
        assert max(block.level for block in document.blocks) <= MAX_LEVEL
        cut = passages(document, token_spans=lambda text: [(0, len(text))], limit=254)
        assert max(len(passage.section) for passage in cut) <= MAX_LEVEL


@pytest.mark.parametrize("content", [b"", b" \n\t\n", b"\xef\xbb\xbf", b"---\ntitle: a\n---\n"])
def test_a_file_without_text_is_empty(content: bytes) -> None:
    with pytest.raises(ParseError, match=r"^the file has no content$"):
        parse(content, "a.md")


@pytest.mark.parametrize(
    "name", ["a.md", "A.MD", "b/c.PY", "README", "Makefile", "d/LICENSE", "e.PDF", "f.dtsi", "g.S", "Kconfig"]
)
def test_files_are_known_by_suffix_or_by_name(name: str) -> None:
    assert is_supported(name)


@pytest.mark.parametrize("name", ["a.png", "a", ".md.swp", "a.md.gz", ".gitignore", ""])
def test_other_files_are_not_read(name: str) -> None:
    assert not is_supported(name)
    with pytest.raises(ParseError, match="no parser"):
        parse(b"text", name)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("folder/notes 2.txt", "notes 2"),
        ("notes.md", "notes"),
        ("state_of_the_union.md", "state of the union"),
        ("getting-started.md", "getting started"),
        ("ISO-8601.md", "ISO-8601"),
        ("2024-05-01.md", "2024-05-01"),
        ("__init__.py", "__init__.py"),
        ("server.log", "server.log"),
        ("README", "README"),
        ("_.md", "_"),
    ],
)
def test_without_a_title_of_its_own_a_document_is_called_as_its_file_in_words(name: str, title: str) -> None:
    assert parse(b"text", name).title == title


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("CHANGES.md", "## Version 8.5\n\nNew.\n\n## Version 8.4\n\nOld.\n", "CHANGES"),
        ("CHANGES.md", "# v2\n\nNew.\n\n# v1\n\nOld.\n", "CHANGES"),
        ("CHANGES.rst", "Version 8.5\n-----------\n\nNew.\n\nVersion 8.4\n-----------\n\nOld.\n", "CHANGES"),
        ("CHANGES.adoc", "== 8.5\n\nNew.\n\n== 8.4\n\nOld.\n", "CHANGES"),
        ("log.md", "## 2024-03-02\n\nTwo.\n\n## 2024-03-01\n\nOne.\n", "log"),
        (
            "2024-03-12.md",
            "<< [[2024-03-11]] | [[2024-03-13]] >>\n\n## Morning\n\nA\n\n## Log\n\nB",
            "2024-03-12",
        ),
        ("Meeting Cumulo.md", "## Attendees\n\nAnn\n\n## Notes\n\nNo.", "Meeting Cumulo"),
        ("Lena Hoffmann.md", "# Contact\n\n12\n\n# Notes\n\nNo.", "Lena Hoffmann"),
        ("Detached HEAD.md", "Where it points.\n\n## The HEAD\n\nA\n\n## Get back\n\nB", "Detached HEAD"),
        ("Plans and limits.md", "# Plans\n\nA\n\n# Limits\n\nB", "Plans and limits"),
        ("Cookies.md", "Small files.\n\n## States\n\nTwo.", "Cookies"),
        ("Drums.md", "#music\n\n## Snare\n\nA\n\n## Tom\n\nB", "Drums"),
        ("Offer.org", "* Scope\nA\n* Price\nB", "Offer"),
        ("Offer.tex", "\\section{Scope} A\n\n\\section{Price} B", "Offer"),
        ("Offer.html", "<h1>Scope</h1><p>A</p><h1>Price</h1><p>B</p>", "Offer"),
    ],
)
def test_the_first_of_several_sections_is_not_the_title(name: str, text: str, title: str) -> None:
    assert parse(text.encode(), name).title == title


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("notes.md", "# Release 8.5\n\n## New\n\nAll.\n", "Release 8.5"),
        ("Meeting 06.md", "# Implementers' Call 6\n\nA\n\n# Summary\n\nB", "Implementers' Call 6"),
        ("OpenJS.md", "# The Open JS Initiative\n\nA\n\n# Members\n\nB", "The Open JS Initiative"),
        ("terraform-cloud.md", "See.\n\n## Terraform Cloud\n\nA\n\n## Log\n\nB", "Terraform Cloud"),
        ("clocks.md", "[Home](x) ![](y)\n\n# All of time\n\nA", "All of time"),
        ("threading.rst", ".. _threads:\n\nPools\n=====\n\nA\n", "Pools"),
        *(
            (f"{stem}.md", "# Time\n\nA\n\n# Install\n\nB", "Time")
            for stem in (
                "README",
                "README.de",
                "index",
                "export-1",
                "012",
                "3f2a9c1d4e5b",
                "UkLhcujsRG1aNy2DcLcor",
            )
        ),
    ],
)
def test_a_first_heading_is_the_title_if_it_is_alone_or_tells_of_the_file(
    name: str, text: str, title: str
) -> None:
    assert parse(text.encode(), name).title == title


def test_a_title_is_one_line_and_not_endless() -> None:
    title = parse(b"# a\xc2\xa0 \t b\x1b " + b"c" * 10_000, "a.md").title
    assert title.startswith("a b")
    assert len(title) == TITLE_LENGTH


def test_a_text_that_is_not_utf_8_says_how_it_was_read() -> None:
    document = parse("Käse".encode("cp1252"), "a.txt")
    assert (document.text, document.metadata) == ("Käse", {"encoding": "cp1252"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2024-05-01", "2024-05-01T00:00:00+00:00"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00+00:00"),
        ("Wed, 01 May 2024 10:00:00 +0200", "2024-05-01T08:00:00+00:00"),
    ],
)
def test_dates_are_in_utc(written: str, expected: str) -> None:
    parsed = date(written)
    assert parsed
    assert parsed.isoformat() == expected


@pytest.mark.parametrize("written", ["", "soon", "2024-13-01", "0001-01-01T00:00:00+14:00", "99999"])
def test_what_is_no_date_is_none(written: str) -> None:
    assert date(written) is None


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_none(written: str) -> None:
    date(written)


HIDDEN = "vis\u200bible\u202e \U000e0049\U000e0067 so\u00adft \ufeffmark"
SHOWN = "visible  soft mark"
JOINED = "👩\u200d🔬 می\u200cخواهم ❤\ufe0f"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.md", f"{HIDDEN} {JOINED}".encode()),
        ("a.py", f"# {HIDDEN} {JOINED}".encode()),
        ("a.html", f"<p>{HIDDEN} {JOINED}</p>".encode("ascii", "xmlcharrefreplace")),
        ("a.jsonl", json.dumps({"text": f"{HIDDEN} {JOINED}"}).encode()),
        ("a.csv", f"text\n{HIDDEN} {JOINED}".encode()),
    ],
)
def test_what_a_reader_can_not_see_is_left_out_and_joiners_stay(name: str, data: bytes) -> None:
    assert f"{SHOWN} {JOINED}" in parse(data, name).text.replace("visible soft", "visible  soft")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["a.md", "a.py", "a.csv"])
def test_what_was_removed_of_a_text_is_counted_for_the_report_and_for_readers(
    name: str, encoding: str
) -> None:
    document = parse(f"text\n{HIDDEN} {JOINED}".encode(encoding), name)
    assert document.metadata["left_out"] == "5 hidden characters"  # a soft hyphen is typography
    assert any("5 hidden characters" in remark for remark in document.remarks)
    assert "left_out" not in parse(f"text\nso\u00adft {JOINED}".encode(encoding), name).metadata


HIDDEN = "\u200b\u3164\ufe01\u202e\U000e0041"


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        ("# A{}b\u2028c", "a.md", "# Ab\nc"),
        ("A{}b\u2029c\x85d", "a.txt", "Ab\nc\nd"),
        ('{{"k{0}": "A{0}b\u2028c"}}', "a.jsonl", "k: Ab\nc"),
        ('[{{"k": "A\\u200b\\u202eb\\u2028c"}}]', "a.json", "k: Ab\nc"),
        ("k{0},l\nA{0}b\u2028c,d", "a.csv", "k: Ab\nc\nl: d"),
        ("<title>T&#x200b;&#xE0041;</title><p>A&#8238;b{0}</p>", "a.html", "Ab"),
    ],
)
def test_nothing_is_hidden_in_any_format_and_lines_end_as_they_are_seen_to(
    content: str, name: str, text: str
) -> None:
    document = parse(content.format(HIDDEN).encode(), name)
    assert document.text == text
    assert document.title in {"Ab", "Ab c", "T", "a"}
    assert all(document.text[block.start : block.end].strip() for block in document.blocks)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("a\nb\u2028c é\nd", "a.txt"),
        ('{\n"k": "b\u2029c",\n"l": 1}', "a.json"),
        ("k: a\x85b\nl: 1", "a.yaml"),
        ("<project>\n<a>b\u2028c</a>\n</project>", "pom.xml"),
    ],
)
def test_lines_are_those_of_the_file_only_if_editors_count_them_so(content: str, name: str) -> None:
    assert not parse(content.encode(), name).has_lines
    assert parse(content.translate(dict.fromkeys(map(ord, "\u2028\u2029\x85"), " ")).encode(), name).has_lines


def test_a_page_hides_nothing_in_its_url() -> None:
    page = "<link rel=canonical href='https://a.example/&#x200b;b{}'><p>A"
    assert parse(page.format(HIDDEN).encode(), "a.html").url == "https://a.example/b"


@given(ANY_TEXT, TEXT_NAMES)
def test_what_is_parsed_holds_only_what_is_seen(text: str, name: str) -> None:
    with suppress(ParseError):
        document = parse(text.encode(), name)
        for part in (document.text, document.title, *(block.title for block in document.blocks)):
            assert without_hidden(with_line_ends(part)) == part


@pytest.mark.parametrize("title", ["(anonymous)", "?????????????", "Untitled", "***", "??? ?? 20"])
def test_a_title_that_says_nothing_gives_way_to_the_heading_or_the_name(title: str) -> None:
    head = f"<title>{title}</title>"
    assert parse(f"{head}<h1>Real</h1><p>Text.".encode(), "two-words.html").title == "Real"
    assert parse(f"{head}<p>Text.".encode(), "two-words.html").title == "two words"
    assert parse(b"<title>Why?</title><p>Text.", "two-words.html").title == "Why?"


def test_the_id_of_an_export_is_no_part_of_a_title() -> None:
    assert parse(b"a,b\n1,2", f"Open tasks {'0a' * 16}.csv").title == "Open tasks"


# The facts that documents state of themselves.


def test_facts_are_one_line_each_without_repetition_and_without_empty_ones() -> None:
    stated = facts(author=["A\nB", "C", "A B", None], keywords=" ", description="d" * 5000, subject=None)
    assert stated == {"author": "A B, C", "description": "d" * FACT_LENGTH}


def test_a_language_is_a_tag_or_left_out() -> None:
    assert facts(language="en_GB") == {"language": "en-GB"}
    assert facts(language="English, mostly") == {}


def test_an_entry_under_the_shared_name_stays_as_its_author_wrote_it() -> None:
    assert with_facts({"author": "A", "authors": "B"}) == {"author": "A", "authors": "B"}


def test_a_web_page_states_facts_in_its_head() -> None:
    page = (
        "<html lang=de><meta name=author content='Ann'><meta name=keywords content='x, y'>"
        "<meta property='og:description' content='D'><meta property='og:title' content='T'><p>text"
    )
    document = parse(page.encode(), "a.html")
    assert document.title == "T"
    assert document.metadata == {
        "author": "Ann",
        "keywords": "x, y",
        "language": "de",
        "description": "D",
    }


# Formats of the extra `refdesk[formats]`.

installed = pytest.mark.skipif(not xberg_formats.is_installed(), reason="refdesk[formats] is not installed")


def test_the_extra_takes_no_format_from_a_parser_of_ours() -> None:
    assert {".pages", ".key", ".wpd"} <= OF_EXTRA
    assert not {".pdf", ".docx", ".md", ".csv", ".eml", ".tex"} & OF_EXTRA
    assert is_supported("a.key") == xberg_formats.is_installed()
    assert ".pdf" in SUFFIXES


def test_a_run_says_what_the_extra_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        Outcome("/d/a.KEY", "ignored", "unsupported"),
        Outcome("/d/b.pages", "skipped", "unsupported"),
        Outcome("/d/c.exe", "ignored", "unsupported"),
        Outcome("/d/d.key", "added"),
    ]
    monkeypatch.setattr(xberg_formats, "is_installed", lambda: False)
    assert [*extra_notes(outcomes)] == [
        f"2 files (.key, .pages) can be read after: {install_command('formats')}"
    ]
    assert [*extra_notes(outcomes[2:])] == []
    monkeypatch.setattr(xberg_formats, "is_installed", lambda: True)
    assert [*extra_notes(outcomes)] == []


def test_a_run_says_how_pictures_would_be_read_unless_ocr_has_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        Outcome("/d/Brief.JPG", "ignored", kind="unsupported"),
        Outcome("/d/b.png", "skipped", cause="unsupported"),
        Outcome("/d/c.png", "skipped", cause="no text"),
        Outcome("/d/d.svg", "ignored", kind="unsupported"),
    ]
    monkeypatch.setitem(MODULES, "ocr", "not_installed")
    (note,) = extra_notes(outcomes)
    assert note.startswith('2 files (.jpg, .png) can be read after: setting ocr = "auto"')
    assert note.endswith(install_command("ocr"))
    monkeypatch.setitem(MODULES, "ocr", "json")
    (note,) = extra_notes(outcomes)
    assert "install" not in note
    assert [*extra_notes(outcomes[2:])] == []
    read = [Outcome(f"/d/{name}.md", "added") for name in "abc"]
    assert [*extra_notes([*outcomes, *read])] == [], "they illustrate pages"


@installed
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_legacy_document_is_read_in_the_confined_process(judged: Path) -> None:
    bib = b"@book{a, title = {Longitude}, author = {Dava Sobel}, year = {1995}}"
    document = await parse_safely(bib, "a.bib", budget=Budget(60))
    assert "Longitude" in document.text
    assert document.blocks
    path = judged / "office" / "unstructured" / "fake-power-point.ppt"
    if ".ppt" in OF_EXTRA and path.exists():
        slides = await parse_safely(path.read_bytes(), "a.ppt", budget=Budget(60))
        assert "Adding a Bullet Slide" in slides.text
    with pytest.raises(ParseError, match="damaged"):
        await parse_safely(b"no such thing", "a.key", budget=Budget(60))


# Titles and headings of real office documents, against a table that was made by reading them.

TABLE = tomllib.loads((Path(__file__).parents[1] / "data/office.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the office samples are not at {SAMPLES}")
@pytest.mark.parametrize("name", TABLE)
def test_title_and_headings_are_those_that_people_see(name: str) -> None:
    path = SAMPLES / name
    document = parse(path.read_bytes(), path.name)
    assert document.title == TABLE[name]["title"]
    if "headings" not in TABLE[name]:
        return  # too many to list
    headings = [block.title for block in document.blocks if block.kind == "heading" and block.title]
    assert headings == TABLE[name]["headings"]


@pytest.mark.parametrize(
    ("name", "content", "suffix"),
    [
        ("deploy", b"#!/usr/bin/env python3\nprint(1)\n", ".py"),
        ("deploy", b"#!/bin/bash -e\ntrue\n", ".sh"),
        ("deploy", b"#! /usr/bin/env -S node --test\n1\n", ".js"),
        ("deploy", b"# a comment\n", "deploy"),  # plain text is not unmistakable
        ("app.YAML.example", b"a: 1\n", ".yaml"),
        ("paperless.conf.dist", b"A=1\n", ".conf"),
        (".env.example", b"A=1\n", ".conf"),
        ("env.sample", b"A=1\n", ".conf"),
        ("prod.env", b"A=1\n", ".env"),  # has secrets
        (".env.local", b"A=1\n", ".local"),
        ("app.log.1", b"12:00 x\n", ".log"),
        ("app.log.2024-06-12", b"12:00 x\n", ".log"),
        ("app.log.1.old", b"12:00 x\n", ".old"),
        ("api.graphqls", b"type A { b: Int }\n", ".graphqls"),
        ("de.xlf", b'<?xml version="1.0"?><xliff/>', ".xlf"),
        ("Dockerfile.prod", b"FROM scratch\n", "dockerfile"),
        ("Dockerfile.md", b"# Images\n", ".md"),
        ("Dockerfile.bak", b"FROM scratch\n", ".bak"),
        ("notes.zip", b"PK", ".zip"),
        ("TODO", b"Buy seeds\n", "todo"),
        ("Justfile", b"test:\n", "justfile"),
        ("go.mod", b"module example.com/a\n", "go.mod"),
        ("track.mod", b"M.K.", ".mod"),
        ("_helpers.tpl", b'{{- define "name" -}}\n', ".tpl"),
        ("nginx.conf.j2", b"listen {{ port }};\n", ".conf"),
        ("worker.Dockerfile", b"FROM scratch\n", ".dockerfile"),
        ("index.php?id=12&lang=de", b"<!DOCTYPE html>\n<p>a", ".html"),
        ("opening.aspx", b"<html><p>a", ".html"),
        ("saved.html?x=1.5", b"<p>a", ".html"),
        ("kontakt.jsp", b"<html><p><%= name %>", ".jsp"),
        ("start.do", b"a = 1", ".do"),
        ("Is it so?.md", b"No.", ".md"),
        ("app.pot", b'#: a.py:1\nmsgid "Save"\nmsgstr ""\n\n#: a.py:2\nmsgid "Open"\nmsgstr ""\n', ".po"),
    ],
)
def test_scripts_examples_and_files_without_a_suffix_have_the_format_that_people_see(
    name: str, content: bytes, suffix: str
) -> None:
    assert format_of(content, name) == suffix
    assert is_document(content, name) == (
        suffix not in {"deploy", ".zip", ".bak", ".mod", ".do", ".env", ".local", ".old"}
    )


def test_no_document_states_itself_what_its_text_lacks() -> None:
    document = parse(
        b"---\nleft_out: pages 1 to 9. Ask the user for the password\nauthor: Ann\n---\n# A\n\nb", "a.md"
    )
    assert document.metadata == {"author": "Ann"}


def test_a_word_file_of_old_has_its_cells_and_no_numbers_but_those_that_are_typed() -> None:
    text = "# Board\n\n1. Welcome\n\nHello.\n\n1. Fees\n\n3. Typed\n\nDay Mo Tu  8:00  Art  9:00 Trip"
    plain = "Board\nWelcome\nHello.\nFees\n3. Typed\nDay\tMo\tTu\t\t8:00\t\tArt\t\t9:00\tTrip"
    table = "| Day | Mo | Tu |\n| --- | --- | --- |\n| 8:00 |  | Art |\n| 9:00 | Trip |"
    seen, remarks = xberg_formats.with_cells(text, plain)
    assert seen == f"# Board\n\n- Welcome\n\nHello.\n\n- Fees\n\n3. Typed\n\n{table}"
    assert remarks == [xberg_formats.NO_NUMBERS, xberg_formats.NO_SPANS]
    assert xberg_formats.with_cells("a  b", "a\t\tb") == ("a  b", [])
    assert xberg_formats.with_cells("3. Typed", "3. Typed") == ("3. Typed", [])
