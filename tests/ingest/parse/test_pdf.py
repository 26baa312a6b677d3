from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfWriter
from pypdf.constants import PageLabelStyle
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import EMPTY, parse
from rag.ingest.parse.pdf.pdf_document import ENCRYPTED, MAX_ENTRIES
from rag.ingest.parse.pdf.readable_pages import DAMAGED, WITHOUT_TEXT
from tests.ingest.parse.document_shape import texts_of, word_spans

Entries = list[tuple[str, int, int]]


def pdf(*pages: str, password: str = "", outline: Entries | None = None, **about: str) -> bytes:
    """A PDF with these lines of text on its pages, those after # in large letters.

    An entry of its outline is a title, a level, and the number of a page from 0.
    """
    writer = PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    fonts = DictionaryObject({NameObject("/F"): font})
    for page in pages:
        operators = " ".join(_operators_of(line) for line in page.split("\n"))
        height = max(800, 14 * page.count("\n") + 200)
        content = DecodedStreamObject()
        content.set_data(f"BT /F 12 Tf 14 TL 50 {height - 100} Td {operators} ET".encode() if page else b"")
        blank = writer.add_blank_page(600, height)
        blank[NameObject("/Contents")] = writer._add_object(content)  # noqa: SLF001 it has no public way
        blank[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    writer.add_metadata({f"/{key}": value for key, value in about.items()})
    above: list[Any] = []
    for title, level, at in outline or []:
        above[level - 1 :] = [
            writer.add_outline_item(
                title=title, page_number=at, parent=above[level - 2] if level > 1 else None
            )
        ]
    if password:
        writer.encrypt(password)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _operators_of(line: str) -> str:
    return f"/F 24 Tf ({line[2:]}) Tj T* /F 12 Tf" if line.startswith("# ") else f"({line}) Tj T*"


def headings(data: bytes) -> list[tuple[str, int, str]]:
    document = parse(data, "a.pdf")
    blocks = [block for block in document.blocks if block.kind == "heading"]
    return [(block.title, block.level, document.text[block.start : block.end]) for block in blocks]


def sample(judged: Path, name: str) -> bytes:
    [path] = (judged / "pdf_samples").glob(f"*__{name}.pdf")
    return path.read_bytes()


def test_every_page_begins_where_it_says() -> None:
    document = parse(pdf("First page.", "", "Third page.\nOf three."), "a.pdf")
    starts = [*document.pages, len(document.text)]
    pages = [document.text[start:end].split() for start, end in pairwise(starts)]
    assert pages == [["First", "page."], [], ["Third", "page.", "Of", "three."]]


def test_no_paragraph_goes_over_the_end_of_a_page() -> None:
    document = parse(pdf("One", "Two"), "a.pdf")
    assert texts_of(document) == ["One", "Two"]


def test_words_that_were_cut_at_the_end_of_a_line_are_whole_again() -> None:
    assert "a machine for Anglo-Saxons" in parse(pdf("a ma-\nchine for Anglo-\nSaxons"), "a.pdf").text


def test_a_damaged_pdf_is_no_reason_to_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ParseError):
        parse(pdf("Text")[:200], "a.pdf")
    assert not caplog.records


def test_a_pdf_states_its_title_and_the_date_of_its_file_is_not_the_documents() -> None:
    document = parse(pdf("Text", Title="Clocks", CreationDate="D:20240501100000+02'00'"), "a.pdf")
    assert document.title == "Clocks"
    assert document.date is None


def test_the_numbers_printed_on_pages_are_those_that_the_file_states() -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("One", "Two", "Three")))
    writer.set_page_label(0, 1, PageLabelStyle.LOWERCASE_ROMAN)
    writer.set_page_label(2, 2, PageLabelStyle.DECIMAL, prefix="A-")
    out = io.BytesIO()
    writer.write(out)
    assert parse(out.getvalue(), "a.pdf").metadata == {"page_labels": "i to ii, A-1"}
    assert parse(pdf("One", "Two"), "a.pdf").metadata == {}


@pytest.mark.parametrize(
    ("numbers", "labels"),
    [
        (("i", "ii", "1", "2", "3", "4"), "i to ii, 1 to 4"),
        (("", "", "1", "2", "", "4", "5"), "unnumbered 1 to unnumbered 2, 1 to 5"),
        (("1203", "1204", "1205", ""), "1203 to 1206"),
        (("A-1", "A-2", "A-3", "B-1", "B-2", "B-3"), "A-1 to A-3, B-1 to B-3"),
        (("Page 2 of 4", "Page 3 of 4", "Page 4 of 4"), "2 to 4"),
        (("", "2", "3", "4"), None),  # the place of each
        (("7", "12", "31", "4"), None),  # they count nothing
        (("", "", "", "", "", "", "", "1", "2", "3"), None),  # perhaps of one part only
    ],
)
def test_where_the_file_states_none_the_numbers_printed_on_pages_are_read(
    numbers: Sequence[str], labels: str | None
) -> None:
    pages = ["\n".join(f"{word} {at} of the text" for at in range(30)) for word in ("One", "Two")]
    text = [f"{pages[at % 2]} {at}\n\n\n\n{number}" for at, number in enumerate(numbers)]
    assert parse(pdf(*text), "a.pdf").metadata.get("page_labels") == labels


def test_the_sections_of_a_pdf_are_those_of_its_outline() -> None:
    data = pdf(
        "Of clocks\nby Ann\n1 Towers\nThey strike.\n1.1 Big\nbells of\nbrass\nRing.",
        "They go on.\n2. Dials\nThey shine.",
        "Tables.",
        outline=[
            ("Clocks", 1, 0),
            ("Towers", 2, 0),
            ("1.1  Big bells of brass", 3, 0),
            ("2 Dials", 2, 1),
            ("Appendix", 1, 2),
            ("Nowhere", 1, 0),
        ],
    )
    assert headings(data) == [
        ("Clocks", 1, "Of clocks"),
        ("Towers", 2, "1 Towers"),
        ("1.1 Big bells of brass", 3, "1.1 Big\nbells of\nbrass"),
        ("2 Dials", 2, "2. Dials"),
        ("Appendix", 1, "Tables."),
    ]
    document = parse(data, "a.pdf")
    pages = {
        passage.section[-1]: passage.page for passage in passages(document, token_spans=word_spans, limit=100)
    }
    assert pages == {"Clocks": 1, "1.1 Big bells of brass": 1, "2 Dials": 2, "Appendix": 3}


def test_a_pdf_without_an_outline_has_no_sections() -> None:
    assert headings(pdf("1 Towers\nThey strike.")) == []


@pytest.mark.slow
def test_an_outline_without_end_is_cut_and_a_damaged_one_left_out() -> None:
    assert len(headings(pdf("\n".join(["One"] * 3000), outline=[("One", 1, 0)] * 3000))) == MAX_ENTRIES
    damaged = pdf("One\nTwo", outline=[("One", 1, 0)]).replace(b"/First", b"/Fisrt")
    assert headings(damaged) == []


@pytest.mark.parametrize(
    ("page", "outline", "title"),
    [
        ("# On the\n# pendulum\nby Ann\nIt swings. It swings.", None, "On the pendulum"),
        ("# Contents\nIt swings. It swings.", None, "a"),
        ("It swings. It swings.", None, "a"),
        ("# Large\nIt swings.", [("Clocks", 1, 0), ("Towers", 2, 0)], "Clocks"),
        ("# Large\nIt swings.", [("Abstract", 1, 0), ("Towers", 2, 0)], "Large"),
        ("# Large\nIt swings.", [("One", 1, 0), ("Two", 1, 0)], "Large"),
    ],
)
def test_a_pdf_without_a_title_has_that_of_its_outline_or_of_its_first_page(
    page: str, outline: Entries | None, title: str
) -> None:
    assert parse(pdf(page, outline=outline), "a.pdf").title == title


SWINGS = "It swings, and swings, and swings.\n\n"


@pytest.mark.parametrize(
    ("page", "title"),
    [
        (f"Ann and Bob, case 7\n\n# Facts\n{SWINGS}# Reasons\n{SWINGS}", "a"),  # a decision
        (f"{SWINGS}# Background\n{SWINGS}# Advice\n{SWINGS}", "a"),  # a letter
        (f"LOAN AGREEMENT\n\n# 1. Terms\n{SWINGS}# 2. Loan\n{SWINGS}", "a"),
        (f"# 1 Scope\n{SWINGS}# 2 Terms\n{SWINGS}", "a"),
        (f"# Clocks\nVersion 4\n\n# 1. Scope\n{SWINGS}# 2. Terms\n{SWINGS}", "Clocks"),
        (f"# Clocks\n\n# 1. Scope\n{SWINGS}# 2. Terms\n{SWINGS}", "Clocks"),
        (f"Acme Ltd\n\n# Clocks\nVersion 4\n\n# 1. Scope\n{SWINGS}# 2. Terms\n{SWINGS}", "Clocks"),
        (f"Acme Ltd\n\n# Clocks\n{SWINGS}", "Clocks"),
        (f"# Clocks\n{SWINGS}# Towers\n{SWINGS}", "Clocks"),
        (f"# 7 Clocks\n{SWINGS}", "7 Clocks"),
    ],
)
def test_a_heading_among_others_is_no_title_unless_it_begins_the_page_or_only_the_others_are_numbered(
    page: str, title: str
) -> None:
    assert parse(pdf(page, SWINGS), "a.pdf").title == title


@pytest.mark.parametrize(
    "title",
    [
        "",
        "untitled",
        "PowerPoint Presentation",
        "Document1",
        "Microsoft Word - notes.doc",
        "C:\\notes\\a",
        "/home/a/notes",
        "notes.docx",
        "\x00",
        "(anonymous)",
        "Untitled 1",
        "unknown",
        "[Untitled]",
        "Vorlage 2",
        "PowerPoint-Präsentation",
        "?????????",
    ],
)
def test_a_title_that_a_program_made_up_is_none(title: str) -> None:
    assert parse(pdf("Text", Title=title), "a.pdf").title == "a"


def test_a_pdf_that_opens_without_a_password_is_read() -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("Open text")))
    writer.encrypt(user_password="", owner_password="owner", algorithm="AES-256")  # noqa: S106 a made-up one
    out = io.BytesIO()
    writer.write(out)
    assert parse(out.getvalue(), "a.pdf").text.strip() == "Open text"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pdf("Secret", password="key"), "the PDF is encrypted with a password"),  # noqa: S106 a made-up one
        (pdf("Text")[:200], "the PDF is damaged"),
        (b"%PDF-1.7\n" + b"x" * 1000, DAMAGED),
        (b"", EMPTY),
        (pdf("", ""), "the PDF has no text"),
    ],
)
def test_a_pdf_that_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(data, "a.pdf")


def test_passages_of_a_real_pdf_know_their_pages(judged: Path) -> None:
    document = parse(sample(judged, "pdflatex-4-pages"), "a.pdf")
    assert document.text.startswith("Hello, here is some text")
    cuts = passages(document, token_spans=word_spans, limit=100)
    assert {passage.page for passage in cuts} == {1, 2, 3, 4}
    assert "ﬁ" not in document.text
    for passage in cuts:
        assert passage.page
        assert document.pages[passage.page - 1] <= passage.start


@pytest.mark.parametrize(
    ("name", "title"),
    [("crazyones-pdfa", "The Crazy Ones"), ("libreoffice-form", "Example for a Form")],
)
def test_a_real_pdf_is_called_as_its_first_page_says(judged: Path, name: str, title: str) -> None:
    assert parse(sample(judged, name), "a.pdf").title == title


def test_the_sections_of_a_real_pdf_begin_where_their_headings_stand(judged: Path) -> None:
    outline = headings(sample(judged, "pdflatex-outline"))
    assert [(title, line) for title, _, line in outline][:3] == [
        ("Foo", "1 Foo"),
        ("Bar", "2 Bar"),
        ("Baz", "3 Baz"),
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("libreoffice-writer-password", ENCRYPTED), ("imagemagick-lzw", WITHOUT_TEXT)],
)
def test_a_real_pdf_that_cannot_be_read_says_why(judged: Path, name: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(sample(judged, name), "a.pdf")


def test_noise_between_two_pieces_of_a_real_arabic_word_is_left_out(judged: Path) -> None:
    assert parse(sample(judged, "habibi"), "a.pdf").text.endswith(" habibi")
