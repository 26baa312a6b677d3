"""XML as people read it: the text of documents, the entries of feeds, the values of records.

XML that configures programs stays code: what a person looks for in it are its tags and attributes.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse import source_code
from rag.ingest.parse.blocks import Part, clean, composed, date
from rag.ingest.parse.decode import decode
from rag.ingest.parse.facts import facts
from rag.ingest.parse.xml import feeds
from rag.ingest.parse.xml.body import HEADS, looks_like_text, parts_of
from rag.ingest.parse.xml.tree import plain_name, xml_tree
from rag.ingest.parse.xml.words import attribute, name_of, names, words
from rag.uris import web_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
    if kind in feeds.ROOTS:
        return feeds.feed_document(root, name)
    if kind == "opml":
        return feeds.outline_document(root, name)
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
