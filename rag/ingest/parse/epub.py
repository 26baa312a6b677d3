"""E-books (EPUB 2 and 3): their chapters in reading order, with headings from the table of contents.

Pages are those of the printed book, if it says where they begin.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from rag.corpus import Block, Document
from rag.errors import ParseError
from rag.ingest.parse import html_page
from rag.ingest.parse.decode import decode
from rag.ingest.parse.document_parts import GAP, date, facts, shifted, title_line
from rag.ingest.parse.html_widgets import without_pages
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.titles_and_questions import MADE_UP_AUTHOR, MADE_UP_TITLE
from rag.ingest.parse.zip_package import MAX_XML_BYTES, Package, child, descendants
from rag.uris import PAGE_LABELS_KEY, labels_text

SUFFIXES = (".epub",)

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Algorithms that obfuscate fonts only, not text."""
_CLOSED = re.compile(
    rf"<(?!(?:{'|'.join(sorted(html_page.VOID))})\b)([A-Za-z][\w:-]*)((?:\s[^<>]*?)?)/>", re.IGNORECASE
)
_NOTE = re.compile(r"<a\b[^<>]*\bepub:type=[\"']noteref[^<>]*>([^<>]{1,9})</a>", re.IGNORECASE)
_BOXES = re.compile(r"<(/?)(?:aside|header|footer)\b", re.IGNORECASE)
_INNER_LINK = re.compile(r"(<a\b[^<>]*?)\shref=([\"'])(?!https?:|mailto:)[^\"'<>]*\2", re.IGNORECASE)
_NO_LABEL = re.compile(
    r"(?i)untitled( document)?|unknown( title)?|\[?no title\]?|title|cover|.*\.(docx?|x?html?|epub)"
)
"""What programs write for a chapter without a name. "Book 1" and "Title 17" are names there."""
_YEAR = re.compile(r"\d{4}(-\d\d)?")


def parse(data: bytes, name: str) -> Document:
    """The document of a book; its package states title, author, language, date and description.

    Raises:
        ParseError: the book is damaged, too large, or protected by DRM.
    """
    package = Package(data)
    container = package.xml(_CONTAINER)
    path = unquote(next(container.iter("rootfile"), container).get("full-path", ""))
    book = package.xml(path)
    items = {item.get("id", ""): item for item in descendants(book, "manifest", "item")}
    chapters = [*dict.fromkeys(_chapters(book, items, path))]  # each once, however often it is listed
    _check_readable(package, chapters)
    labels = _labels(package, items, path)
    text, blocks, pages = "", list[Block](), list[tuple[int, str]]()
    there = [chapter for chapter in chapters if chapter in package]
    for marked in filter(None, (_content(package, chapter, labels) for chapter in there)):
        text += GAP if text else ""
        content, begins = without_pages(marked)
        pages += [(len(text) + at, label) for at, label in begins]
        blocks += shifted(markdown_blocks(content), len(text))
        text += content
    missing = len(chapters) - len(there)
    remarks = (f"{missing} of its {len(chapters)} chapters are missing",) if missing else ()
    return _with_pages(_document(book, text, blocks, name, remarks), pages)


def _with_pages(document: Document, begins: Sequence[tuple[int, str]]) -> Document:
    """The document with the pages of the printed book, if it says where they begin and their numbers run."""
    before = [(0, "front")] if begins and begins[0][0] else []
    starts, labels = zip(*before, *begins, strict=True) if begins else ((), ())
    if stated := labels_text(labels):
        return replace(document, pages=starts, metadata={**document.metadata, PAGE_LABELS_KEY: stated})
    is_place = all(label == str(place) for place, label in enumerate(labels, 1))
    return replace(document, pages=starts) if is_place else document


def _chapters(book: Element, items: dict[str, Element], path: str) -> Iterator[str]:
    """The parts of the package in reading order, without the table of contents and pictures."""
    for reference in descendants(book, "spine", "itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or "svg" in item.get("media-type", "") or "nav" in item.get("properties", "").split():
            continue
        yield _part(path, item.get("href", ""))


def _part(source: str, href: str) -> str:
    """The part to which a reference in the part `source` points."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(href.partition("#")[0])))


def _check_readable(package: Package, chapters: list[str]) -> None:
    encryption = package.xml_if_there(_ENCRYPTION)
    for encrypted in encryption.iter("EncryptedData"):
        method = child(encrypted, "EncryptionMethod")
        uri = unquote(next(encrypted.iter("CipherReference"), encrypted).get("URI", ""))
        # Books hide their fonts like this, which says nothing of their text.
        is_font = method is not None and method.get("Algorithm", "") in _FONTS
        if uri in chapters and not is_font:
            raise ParseError("the book is protected by DRM, so its text can't be read", "encrypted")
    size = sum(package.entries[chapter].file_size for chapter in chapters if chapter in package)
    if size > MAX_XML_BYTES:
        raise ParseError(
            f"its chapters would take {size >> 20} MB; at most {MAX_XML_BYTES >> 20} MB are unpacked",
            "too large",
        )


def _labels(package: Package, items: dict[str, Element], path: str) -> dict[str, str]:
    """The titles in the table of contents, by the parts that they point to the start of."""
    labels: dict[str, str] = {}
    for item in items.values():
        is_ncx = item.get("media-type") == "application/x-dtbncx+xml"
        if is_ncx or "nav" in item.get("properties", "").split():
            where = _part(path, item.get("href", ""))
            for href, label in _entries(package.xml_if_there(where)):
                if "#" not in href and not _NO_LABEL.fullmatch(label):
                    labels.setdefault(_part(where, href), label)
    return labels


def _entries(root: Element) -> Iterator[tuple[str, str]]:
    for point in root.iter("navPoint"):
        content, label = child(point, "content"), child(point, "navLabel", "text")
        if content is not None and label is not None:
            yield content.get("src", ""), title_line(label.text or "")
    for link in root.iter("a"):
        yield link.get("href", ""), title_line("".join(link.itertext()))


def _content(package: Package, chapter: str, labels: dict[str, str]) -> str:
    """The Markdown of a chapter. A chapter without a heading gets its title in the table of contents."""
    page = _CLOSED.sub(r"<\1\2></\1>", decode(package.read(chapter), page=True).text)
    page = _INNER_LINK.sub(r"\1", _NOTE.sub(r"[\1]", page))
    content = html_page.content_with_pages(_BOXES.sub(r"<\1div", page))
    label = labels.get(chapter, "")
    is_headed = without_pages(content)[0].startswith("#")
    return f"# {label}\n\n{content}" if content and label and not is_headed else content


def _document(book: Element, text: str, blocks: list[Block], name: str, remarks: tuple[str, ...]) -> Document:
    about = [element for metadata in descendants(book, "metadata") for element in metadata.iter()]
    stated = [(element.tag, element.get("event", ""), (element.text or "").strip()) for element in about]

    def values(tag: str) -> list[str]:
        return [value for stated_tag, _, value in stated if stated_tag == tag and value]

    title = next((title for title in values("title") if not MADE_UP_TITLE.fullmatch(title)), "")
    days = [value for tag, event, value in stated if tag == "date" and event in {"", "publication"}]
    # Of a year or a month, the first day.
    days = [f"{day}-01-01"[:10] if _YEAR.fullmatch(day) else day for day in days]
    description = html_page.content_of(descriptions[0]) if (descriptions := values("description")) else ""
    return Document(
        text=text,
        title=title or name,
        mime_type="application/epub+zip",
        blocks=tuple(blocks),
        date=next(filter(None, map(date, days)), None),
        metadata=facts(
            author=[creator for creator in values("creator") if not MADE_UP_AUTHOR.fullmatch(creator)],
            keywords=values("subject"),
            language=values("language")[:1],
            description=description,
        ),
        remarks=remarks,
    )
