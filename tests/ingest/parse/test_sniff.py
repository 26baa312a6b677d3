"""A file is what its content says, where that leaves no doubt and its name says nothing or something else."""

from __future__ import annotations

import io
import zipfile

import pytest

from rag.ingest.parse.parsers import format_of, members, parse, sniffed_suffix

MAIL = b"From: ann@example.org\nTo: bob@example.org\nMessage-ID: <1@x>\nSubject: Plans\n\ntext\n"
NOTEBOOK = b'{"cells": [{"cell_type": "markdown", "source": ["text"]}], "nbformat": 4}'


def _zipped(name: str, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "suffix"),
    [
        (b"%PDF-1.7\n1 0 obj", "scan.txt", ".pdf"),
        (b"%PDF-1.7\n1 0 obj", "scan", ".pdf"),
        (b"<html><table><tr><td>1</td></tr></table></html>", "report.xls", ".html"),
        (b"\xef\xbb\xbf<!DOCTYPE html><p>text", "page", ".html"),
        (b"name\tyear\nHarrison\t1735\n", "export.xls", ".csv"),
        (b"name;year\nHarrison;1735\n", "export.xlsx", ".csv"),
        (b"From ann Wed May  1 10:00:00 2024\n" + MAIL, "Inbox", ".mbox"),
        (MAIL, "1234", ".eml"),
        (NOTEBOOK, "notes", ".ipynb"),
        (_zipped("mimetype", b"application/epub+zip"), "book", ".epub"),
        (_zipped("word/document.xml"), "letter", ".docx"),
        (_zipped("word/document.xml"), "letter.xlsx", ".docx"),
        (_zipped("word/document.xml"), "letter.doc", ".docx"),
        (b"{\\rtf1 text}", "letter.doc", ".rtf"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "WordDocument".encode("utf-16-le"), "letter.doc", ".doc"),
        (b'<?xml version="1.0"?><article/>', "paper", ".xml"),
        (b"<html>", "page.md", ".md"),
        (MAIL, "mail.txt", ".txt"),
        (b"plain words\n", "README", "readme"),
        (b"plain words\n", "notes", "notes"),
        (b"\x7fELF\x02\x01\x01", "program", "program"),
        (b"\x00" * 100, "x.xls", ".xls"),
        (b'<?xml version="1.0"?><office:document/>', "a.fodt", ".fodt"),
    ],
)
def test_the_format_is_that_of_the_content(data: bytes, name: str, suffix: str) -> None:
    assert format_of(data, name) == suffix


@pytest.mark.parametrize("text", [b"", b"From: here to there\n", b"{}", b"words", b"From the sea\n\n10:00\n"])
def test_in_doubt_it_may_be_anything(text: bytes) -> None:
    assert sniffed_suffix(text) == ""


def test_an_exported_table_is_read_by_its_content() -> None:
    page = b"<html><table><tr><th>Name</th></tr><tr><td>Harrison</td></tr></table></html>"
    assert "Harrison" in parse(page, "a.xls").text
    assert "Harrison" in parse(b"name\tyear\nHarrison\t1735\n", "a.xls").text


@pytest.mark.usefixtures("within_a_minute")
def test_a_beginning_full_of_times_is_looked_through_once() -> None:
    line = b"From ann" + b"10:00" * 30_000  # of each time it tried the rest of the line, for minutes
    assert (sniffed_suffix(line), sniffed_suffix(line + b"\nSubject: Plans\n")) == ("", ".mbox")
    assert [*members(line, "a.mbox")] == []
