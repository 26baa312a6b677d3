"""E-books: chapters in reading order, and what the book states of itself."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import epub
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import titles_of

CONTAINER = '<container><rootfiles><rootfile full-path="O%20x/b.opf"/></rootfiles></container>'
ABOUT = """<dc:title>Clocks</dc:title><dc:creator>Ann</dc:creator><dc:creator>Bo</dc:creator>
<dc:language>en</dc:language><dc:date opf:event="modification">2023-01-01</dc:date><dc:date>1998</dc:date>
<dc:subject>Time</dc:subject><dc:description>&lt;p&gt;On &lt;b&gt;clocks&lt;/b&gt;.&lt;/p&gt;</dc:description>
"""
NCX = """<ncx><navMap>
<navPoint><navLabel><text>The pendulum</text></navLabel><content src="c%202.xhtml"/></navPoint>
<navPoint><navLabel><text>Middle</text></navLabel><content src="c1.xhtml#m"/></navPoint>
</navMap></ncx>"""
ONE = """<?xml version="1.0" encoding="iso-8859-1"?><html><head><title/><style/></head><body>
<h1>K\xe4se</h1>
<p>See<a epub:type="noteref" href="#n">1</a>&nbsp;and <a href="https://x.org">here</a>.<a id="m"/></p>
<aside epub:type="footnote" id="n">A note.</aside></body></html>"""


def book(*, about: str = ABOUT, spine: str = "n c2 c1 gone", **parts: str | bytes) -> bytes:
    """A book with two chapters; `parts` are added, with "__" for "/" in their names."""
    items = {"c1": "c1.xhtml", "c2": "c%202.xhtml", "gone": "gone.xhtml"}
    manifest = [f'<item id="{id_}" href="{href}"/>' for id_, href in items.items()]
    manifest += ['<item id="n" href="nav.xhtml" properties="nav"/>']
    manifest += ['<item id="t" href="t.ncx" media-type="application/x-dtbncx+xml"/>']
    order = [f'<itemref idref="{name}"/>' for name in spine.split()]
    package = (
        f'<package xmlns:dc="d" xmlns:opf="o" xmlns="p"><metadata>{about}</metadata>'
        f"<manifest>{''.join(manifest)}</manifest><spine>{''.join(order)}</spine></package>"
    )
    content: dict[str, str | bytes] = {
        "META-INF/container.xml": CONTAINER,
        "O x/b.opf": package,
        "O x/t.ncx": NCX,
        "O x/nav.xhtml": "<html><nav><a href='c1.xhtml'>Contents</a></nav></html>",
        "O x/c1.xhtml": ONE.encode("latin-1"),
        "O x/c 2.xhtml": "<html><body><p>It swings.</p></body></html>",
        **{name.replace("__", "/"): part for name, part in parts.items()},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in content.items():
            archive.writestr(name, part)
    return out.getvalue()


def test_chapters_are_read_in_the_order_of_the_spine_with_headings_from_the_table_of_contents() -> None:
    document = parse(book(), "a.epub")
    assert document.text == (
        "# The pendulum\n\nIt swings.\n\n# Käse\n\nSee[1] and [here](https://x.org).\n\nA note."
    )
    assert titles_of(document) == ["The pendulum", "Käse"]
    assert document.remarks == ("1 of its 3 chapters are missing",)


def test_a_book_states_its_title_and_more() -> None:
    document = parse(book(), "a.epub")
    assert (document.title, document.mime_type) == ("Clocks", "application/epub+zip")
    assert document.date
    assert document.date.date().isoformat() == "1998-01-01"
    assert document.metadata == {
        "author": "Ann, Bo",
        "keywords": "Time",
        "language": "en",
        "description": "On **clocks**.",
    }


def test_pages_are_those_of_the_printed_book() -> None:
    span = "<span epub:type='pagebreak' title='{0}'>{0}</span>"
    words = f"He ran {span.format(8)} on and li{span.format(9)}fe went."
    one = f"<html><body><h1>A</h1><p>{words}</p></body></html>"
    two = "<html><body><div role='doc-pagebreak' aria-label='Page 10'/><h1>B</h1><p>End.</p></body></html>"
    document = parse(book(spine="c1 c2", **{"O x__c1.xhtml": one, "O x__c 2.xhtml": two}), "a.epub")
    assert document.text == "# A\n\nHe ran on and life went.\n\n# B\n\nEnd."
    assert document.metadata["page_labels"] == "front, 8 to 10"
    assert [document.text[at : at + 5] for at in document.pages] == ["# A\n\n", "on an", "fe we", "# B\n\n"]
    from_one = two.replace("10", "1")
    document = parse(book(spine="c2", **{"O x__c 2.xhtml": from_one}), "a.epub")
    assert (document.pages, document.text[:3]) == ((0,), "# B")


@pytest.mark.parametrize(("label", "heading"), [("Book 1", "# Book 1\n\n"), ("Cover", ""), ("Title", "")])
def test_the_table_of_contents_names_a_part_but_no_cover(label: str, heading: str) -> None:
    ncx = NCX.replace("The pendulum", label)
    assert epub.parse(book(**{"O x/t.ncx": ncx}), "a.epub").text.startswith(f"{heading}It swings.")


@pytest.mark.parametrize("author", ["Unknown", "Unknown author"])  # as programs write
def test_a_book_without_an_author_has_none(author: str) -> None:
    about = ABOUT.replace("Ann", author).replace("Bo<", f"{author}<")
    assert "author" not in epub.parse(book(about=about), "a.epub").metadata


@pytest.mark.parametrize("title", ["Untitled", "Unknown", "Unknown Title"])  # as programs write
def test_a_book_without_a_title_is_called_as_its_file(title: str) -> None:
    assert parse(book(about=f"<dc:title>{title}</dc:title>"), "my_book.epub").title == "my book"


def test_drm_is_told_from_obfuscated_fonts() -> None:
    drm = (
        "<encryption><EncryptedData><EncryptionMethod Algorithm='{}'/><CipherData><CipherReference URI='{}'/>"
    )
    drm += "</CipherData></EncryptedData></encryption>"
    fonts = drm.format("http://www.idpf.org/2008/embedding", "O%20x/f.ttf")
    assert parse(book(**{"META-INF__encryption.xml": fonts}), "a.epub").title == "Clocks"
    text = drm.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "O%20x/c1.xhtml")
    with pytest.raises(ParseError, match="protected by DRM") as refused:
        parse(book(**{"META-INF__encryption.xml": text}), "a.epub")
    assert refused.value.cause == "encrypted"


def test_a_huge_chapter_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epub, "MAX_XML_BYTES", 1000)
    with pytest.raises(ParseError, match="would take") as refused:
        parse(book(**{"O x__c1.xhtml": "<p>" + " " * 2000}), "a.epub")
    assert refused.value.cause == "too large"


def test_a_book_without_text_is_empty() -> None:
    with pytest.raises(EmptyFileError):
        parse(book(spine=""), "a.epub")


@pytest.mark.parametrize(
    "data",
    [
        b"text",
        book()[:300],
        book(**{"META-INF__container.xml": "<container/>"}),
        book(**{"META-INF__container.xml": "<"}),
        book(**{"O x__b.opf": "<package>"}),
        book(
            **{"O x__b.opf": '<!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><package>&x;</package>'}
        ),
    ],
)
def test_a_damaged_book_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse(data, "a.epub")


SAMPLES = {
    "markitdown/test": (
        "Test EPUB Document",
        "Test Author",
        None,
        ["Chapter 1: Test Content", "Chapter 2: More Content"],
    ),
    "unstructured/winter-sports": (
        "Winter Sports in Switzerland",
        "E. F. Benson",
        "2019-08-23",
        ["WINTER SPORTS IN SWITZERLAND", "CHAPTER I THE SUN-SEEKER", "Jumping"],
    ),
    "unstructured/language-docs/eng_spa_mult": ("eng spa mult", None, None, []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_real_books_have_the_facts_and_headings_that_a_person_sees(judged: Path, name: str) -> None:
    document = parse((judged / "office" / f"{name}.epub").read_bytes(), f"{name}.epub")
    title, author, day, headings = SAMPLES[name]
    assert (document.title, document.metadata.get("author")) == (title, author)
    assert (document.date.date().isoformat() if document.date else None) == day
    assert {*headings} <= {*titles_of(document)}
