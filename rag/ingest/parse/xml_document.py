"""XML as people read it: the text of documents, the entries of feeds, the values of records.

XML that configures programs stays code: what a person looks for in it are its tags and attributes. News feeds
(RSS, Atom) and notes of Evernote have a section for each entry; outlines (OPML) are lists.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

from rag.corpus import Block, Document
from rag.errors import ParseError
from rag.ingest.parse import html_page, source_code
from rag.ingest.parse.decode import decode
from rag.ingest.parse.document_draft import left_out
from rag.ingest.parse.document_parts import GAP, Part, clean, composed, date, facts, moved
from rag.ingest.parse.markdown_mdx import markdown_blocks
from rag.ingest.parse.xml_text import (
    HEADS,
    attribute,
    looks_like_text,
    name_of,
    names,
    parts_of,
    plain_name,
    words,
    xml_tree,
)
from rag.uris import web_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from xml.etree.ElementTree import Element

SUFFIXES = (
    *(".xml", ".rss", ".atom", ".opml", ".enex", ".nxml", ".jats", ".docbook", ".dbk", ".dita", ".tei"),
    ".fb2",
)

_TEXTS = names("""
    article book chapter section part set refentry tei tei.2 teicorpus topic concept task reference dita
    html fictionbook mediawiki
""")
_SETTINGS = names("""
    project beans configuration config web-app manifest persistence hibernate-configuration
    hibernate-mapping settings schema stylesheet transform definitions plist log4j:configuration
    suppressions module ruleset databasechangelog component application server context svg package
    assembly xliff wsdl
""")
"""Names of the roots of build files, settings, schemas and pictures."""
_MOST = 40  # values of one record; what has more is divided
_LONG = 200  # characters: a text is no value that needs a label
_KEYS = ("name", "key", "id", "title", "lang")


def parse(data: bytes, name: str) -> Document:
    """The document of an XML file. What is not valid is read as it stands, with a remark.

    Raises:
        ParseError: it is no text, or nested too deeply.
    """
    decoded = decode(data)
    return decoded.told_of(_document(decoded.text, name))


def _document(text: str, name: str) -> Document:
    try:
        root = xml_tree(text)
    except ParseError as error:
        if "nested" in str(error):
            raise
        return _as_it_stands(text, name, f"{error}, so it was read as it stands")
    kind = name_of(root)
    if kind in _SETTINGS:
        return _as_it_stands(text, name)
    if kind in ROOTS:
        return feed_document(root, name)
    if kind == "opml":
        return outline_document(root, name)
    is_text = kind in _TEXTS or looks_like_text(root)
    body, blocks = composed(parts_of(root) if is_text else _records(root))
    about = stated_by(root)
    elsewhere = sum(name_of(one) == "include" for one in root.iter()) if is_text else 0
    remarks = (f"it includes other files, which were not read with it: {elsewhere}",) if elsewhere else ()
    mime_type = "application/xml"
    title = about.title if is_text else ""
    return Document(
        body, title or name, mime_type, blocks, (), about.date, about.url, about.metadata, remarks
    )


def _as_it_stands(text: str, name: str, remark: str = "") -> Document:
    text = clean(text)
    blocks = tuple(source_code.code_blocks(text))
    return Document(text, name, "application/xml", blocks, remarks=(remark,) if remark else ())


def _records(element: Element) -> Iterator[Part]:
    """The values in an element as records; what has many, or records of one kind inside, is divided."""
    values = list(islice(_values(element, ""), _MOST + 1))
    groups = Counter(name_of(child) for child in element if len(child))
    if len(element) and (len(values) > _MOST or max(groups.values(), default=0) > 1):
        yield Part("paragraph", " ".join((element.text or "").split()))
        for child in element:
            yield from _records(child)
    elif len(values) == 1 and len(values[0][1]) > _LONG:
        yield Part("paragraph", values[0][1])
    else:
        yield Part("table", "\n".join(f"{label}: {value}" for label, value in values))


def _values(element: Element, label: str) -> Iterator[tuple[str, str]]:
    """The attributes and texts at and below an element, each with the names on the way to it."""
    attributes = {plain_name(key): value for key, value in element.attrib.items() if value.strip()}
    text = "" if len(element) else words(element)
    if text:
        key = next((attributes[one] for one in _KEYS if one in attributes), "")
        yield " ".join(filter(None, (label or element.tag, key))), text
        return
    for name, value in attributes.items():
        yield f"{label} {name}".strip(), clean(value)
    for child in element:
        if name_of(child):
            yield from _values(child, f"{label} {child.tag}".strip())


# What a document in XML states of itself: title, authors, date, keywords, language.

_TITLES = ("article-title", "book-title", "title")
_GIVEN = frozenset({"given-names", "firstname", "forename", "first-name", "givenname"})
_FAMILY = frozenset({"surname", "last-name", "familyname"})
_FULL = frozenset({"string-name", "collab", "personname", "persname", "name", "corpauthor", "orgname"})
_DATES = frozenset({"pub-date", "pubdate", "date", "created", "revised", "publicationdate"})
_KEYWORDS = frozenset({"kwd", "keyword", "subjectterm"})


class Stated(NamedTuple):
    """The facts of a document. Those that it doesn't state are empty."""

    title: str
    date: datetime | None
    url: str | None
    metadata: Mapping[str, str]


def stated_by(root: Element) -> Stated:
    """What the head of a document states, or what stands right below its root if it has no head."""
    head = next((one for one in root.iter() if name_of(one) in HEADS), None)
    near = list(head.iter()) if head is not None else list(root)
    named = [(name_of(one), one) for one in (*near, *root)]
    titles = (words(one) for wanted in _TITLES for name, one in named if name == wanted)
    metadata = facts(
        author=list(_authors(near)),
        keywords=[words(one) for one in near if name_of(one) in _KEYWORDS],
        language=attribute(root, "lang"),
        description=next((words(one) for one in [*near, *root] if name_of(one) == "shortdesc"), ""),
    )
    days = (day for one in near if name_of(one) in _DATES for day in _days(one))
    return Stated(
        title=next(filter(None, titles), ""),
        date=next(filter(None, map(date, days)), None),
        url=_address(near),
        metadata=metadata,
    )


def _authors(near: list[Element]) -> Iterator[str]:
    for one in near:
        if name_of(one) == "author" or (
            name_of(one) == "contrib" and attribute(one, "contrib-type") in {"", "author"}
        ):
            parts = {name_of(part): words(part) for part in reversed([*one.iter()])}
            given, family = (
                next((parts[name] for name in names if parts.get(name)), "") for names in (_GIVEN, _FAMILY)
            )
            full = next((parts[name] for name in _FULL if parts.get(name)), words(one))
            yield f"{given} {family}".strip() if family else full


def _days(element: Element) -> Iterator[str]:
    """A date as an attribute, as year, month and day, or as text."""
    parts = {name_of(one): words(one) for one in element}
    year, month, day = (parts.get(name, "1").zfill(2) for name in ("year", "month", "day"))
    yield from (attribute(element, name) for name in ("when", "iso-8601-date", "date", "golive"))
    yield f"{year}-{month}-{day}"
    written = words(element)
    yield f"{written}-01-01" if written.isdecimal() else written


def _address(near: list[Element]) -> str | None:
    dois = (
        words(one) for one in near if attribute(one, "pub-id-type") == "doi" and name_of(one) == "article-id"
    )
    doi = next(dois, "")
    return web_address(f"https://doi.org/{doi}") if doi else None


ROOTS = frozenset({"rss", "feed", "rdf", "en-export"})
_ENTRIES = frozenset({"item", "entry", "note"})
_CONTENT = ("encoded", "content", "description", "summary")
_MIME_TYPES = {"feed": "application/atom+xml", "en-export": "application/enex+xml"}
_TODO = re.compile(r"<en-todo\b([^<>]{0,100})>")
_FEED_DATES = ("pubdate", "published", "updated", "date", "modified", "created")
_DEEPEST = 6  # levels of headings
_INDENT = "  "


def feed_document(root: Element, name: str) -> Document:
    """The document of a feed: each entry with its date, author and address, then what it says."""
    channel = next((one for one in root if name_of(one) == "channel"), root)
    entries = [one for one in root.iter() if name_of(one) in _ENTRIES]
    text, blocks = composed_entries((_head(entry), _body(entry)) for entry in entries)
    about = {name_of(one): words(one) for one in reversed(channel) if name_of(one) not in _ENTRIES}
    attached = sum(name_of(one) == "resource" for entry in entries for one in entry)
    return Document(
        text=text,
        title=about.get("title", "") or name,
        mime_type=_MIME_TYPES.get(name_of(root), "application/rss+xml"),
        blocks=blocks,
        url=web_address(_feed_address(channel)),
        metadata=facts(
            author=about.get("author") or about.get("managingeditor"),
            language=about.get("language") or attribute(root, "lang"),
            description=about.get("description") or about.get("subtitle"),
        ),
        remarks=tuple(left_out(attached, "attachment")),
    )


def composed_entries(entries: Iterable[tuple[Iterable[Part], str]]) -> tuple[str, tuple[Block, ...]]:
    """The text and the blocks of entries: the head of each, then what it says, in Markdown."""
    texts, length, blocks = list[str](), 0, list[Block]()
    for parts, body in entries:
        head, head_blocks = composed(parts)
        shifted = (
            replace(one, level=min(one.level + 2, _DEEPEST)) if one.level else one
            for one in markdown_blocks(body)
        )
        start = length + (len(GAP) if texts else 0)
        below = start + len(head) + len(GAP) if head else start
        blocks += [*moved(head_blocks, start), *moved(shifted, below)]
        if entry := GAP.join(filter(None, (head, body))):
            texts.append(entry)
            length = start + len(entry)
    return GAP.join(texts), tuple(blocks)


def entry_head(title: str, day: datetime | None, people: Iterable[str], address: str) -> Iterator[Part]:
    """The heading of an entry, and when and by whom it was written, and where it can be read."""
    if title:
        yield Part("heading", f"## {title}", 2, title)
    about = [f"{day:%Y-%m-%d}" if day else "", ", ".join(people), address]
    yield Part("paragraph", " · ".join(filter(None, about)))


def _head(entry: Element) -> Iterator[Part]:
    found = {name_of(one): words(one) for one in reversed(entry)}
    title = found.get("title", "") or found.get("id", "") or found.get("guid", "")
    day = next((day for key in _FEED_DATES if (day := date(found.get(key, "")))), None)
    attributes = [inner for one in entry if name_of(one) == "note-attributes" for inner in one]
    people = [words(one) for one in [*entry, *attributes] if name_of(one) in {"creator", "author"}]
    tags = [f"#{words(one)}" for one in entry if name_of(one) == "tag"]
    source = next((words(one) for one in attributes if name_of(one) == "source-url"), "")
    return entry_head(title, day, [*people, *tags], _feed_address(entry) or source)


def _body(entry: Element) -> str:
    for name in _CONTENT:
        for one in entry:
            if name_of(one) == name:
                inner = "".join(ET.tostring(child, encoding="unicode") for child in one)
                written = _TODO.sub(_box, f"{one.text or ''}{inner}")
                return html_page.content_of(written) if "<" in written or "&" in written else words(one)
    return ""


def _box(todo: re.Match[str]) -> str:
    """A box of Evernote as HTML has it."""
    return f'<input type="checkbox" {"checked" if "true" in todo[1] else ""}>'


def _feed_address(element: Element) -> str:
    """Where a person can read it: the text of a link, or the target of one that is no link to the feed."""
    links = [one for one in element if name_of(one) == "link"]
    targets = (
        words(one) or attribute(one, "href") for one in links if attribute(one, "rel") in {"", "alternate"}
    )
    return next(filter(None, targets), "")


def outline_document(root: Element, name: str) -> Document:
    """The document of an outline: its entries as a list, each with its address if it has one."""
    title = next((words(one) for one in root.iter() if name_of(one) == "title"), "")
    body = next((one for one in root if name_of(one) == "body"), root)
    text, blocks = composed([Part("list", "\n".join(_outlines(body, 0)))])
    return Document(text, title or name, "text/x-opml", blocks)


def _outlines(element: Element, depth: int) -> Iterator[str]:
    for one in element:
        label = attribute(one, "text") or attribute(one, "title")
        address = attribute(one, "xmlurl") or attribute(one, "url") or attribute(one, "htmlurl")
        note = attribute(one, "_note")
        yield f"{_INDENT * depth}- {': '.join(filter(None, (label, note, address)))}"
        yield from _outlines(one, depth + 1)
