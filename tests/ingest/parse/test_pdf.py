from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.parse import parse

if TYPE_CHECKING:
    from pathlib import Path


def pdf(*pages: str, password: str = "", **about: str) -> bytes:
    """A PDF with these lines of text on its pages."""
    writer = PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    fonts = DictionaryObject({NameObject("/F"): font})
    for page in pages:
        shown = " ".join(f"({line}) Tj T*" for line in page.split("\n"))
        content = DecodedStreamObject()
        content.set_data(f"BT /F 12 Tf 14 TL 50 700 Td {shown} ET".encode() if page else b"")
        blank = writer.add_blank_page(600, 800)
        blank[NameObject("/Contents")] = writer._add_object(content)  # noqa: SLF001 it has no public way
        blank[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    writer.add_metadata({f"/{key}": value for key, value in about.items()})
    if password:
        writer.encrypt(password)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


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
    assert [document.text[block.start : block.end] for block in document.blocks] == ["One", "Two"]


def test_words_that_were_cut_at_the_end_of_a_line_are_whole_again() -> None:
    assert "a machine for Anglo-\nSaxons" in parse(pdf("a ma-\nchine for Anglo-\nSaxons"), "a.pdf").text


def test_a_damaged_pdf_is_no_reason_to_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ParseError):
        parse(pdf("Text")[:200], "a.pdf")
    assert not caplog.records


def test_a_pdf_states_its_title_and_date() -> None:
    document = parse(pdf("Text", Title="Clocks", CreationDate="D:20240501100000+02'00'"), "a.pdf")
    assert document.title == "Clocks"
    assert document.date == datetime(2024, 5, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "title",
    ["", "untitled", "Microsoft Word - notes.doc", "C:\\notes\\a", "/home/a/notes", "notes.docx", "\x00"],
)
def test_a_title_that_a_program_made_up_is_none(title: str) -> None:
    assert parse(pdf("Text", Title=title), "a.pdf").title == "a.pdf"


def test_a_date_that_is_none_does_no_harm() -> None:
    assert parse(pdf("Text", CreationDate="yesterday"), "a.pdf").date is None


def test_a_pdf_that_opens_without_a_password_is_read() -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("Open text")))
    writer.encrypt(user_password="", owner_password="owner", algorithm="AES-256")  # noqa: S106 a made-up one
    out = io.BytesIO()
    writer.write(out)
    assert parse(out.getvalue(), "a.pdf").text.strip() == "Open text"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pdf("Secret", password="key"), "encrypted"),  # noqa: S106 a made-up one
        (pdf("Text")[:200], "damaged"),
        (b"%PDF-1.7\n" + b"x" * 1000, "damaged"),
        (b"", "damaged"),
        (pdf("", ""), "the PDF has no text"),
    ],
)
def test_a_pdf_that_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(data, "a.pdf")


def test_passages_of_a_real_pdf_know_their_pages(judged: Path) -> None:
    document = parse(sample(judged, "pdflatex-4-pages"), "a.pdf")
    assert document.text.startswith("Hello, here is some text")
    found = passages(document, token_spans=words, limit=100)
    assert {passage.page for passage in found} == {1, 2, 3, 4}
    assert "ﬁ" not in document.text
    for passage in found:
        assert passage.page
        assert document.pages[passage.page - 1] <= passage.start


@pytest.mark.parametrize(
    ("name", "reason"),
    [("libreoffice-writer-password", "encrypted"), ("imagemagick-lzw", "the PDF has no text")],
)
def test_a_real_pdf_that_cannot_be_read_says_why(judged: Path, name: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(sample(judged, name), "a.pdf")
