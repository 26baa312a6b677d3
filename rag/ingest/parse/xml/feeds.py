"""News feeds (RSS, Atom) and notes of Evernote: a section for each entry; and outlines (OPML)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rag.corpus import Block, Document
from rag.ingest.parse import html_page
from rag.ingest.parse.blocks import GAP, Part, composed, date, moved
from rag.ingest.parse.facts import facts
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.office.properties import left_out
from rag.ingest.parse.xml.words import attribute, name_of, words
from rag.uris import web_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from xml.etree.ElementTree import Element

ROOTS = frozenset({"rss", "feed", "rdf", "en-export"})
_ENTRIES = frozenset({"item", "entry", "note"})
_CONTENT = ("encoded", "content", "description", "summary")
_MIME_TYPES = {"feed": "application/atom+xml", "en-export": "application/enex+xml"}
_TODO = re.compile(r"<en-todo\b([^<>]{0,100})>")
_DATES = ("pubdate", "published", "updated", "date", "modified", "created")
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
        url=web_address(_address(channel)),
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
    day = next((day for key in _DATES if (day := date(found.get(key, "")))), None)
    attributes = [inner for one in entry if name_of(one) == "note-attributes" for inner in one]
    people = [words(one) for one in [*entry, *attributes] if name_of(one) in {"creator", "author"}]
    tags = [f"#{words(one)}" for one in entry if name_of(one) == "tag"]
    source = next((words(one) for one in attributes if name_of(one) == "source-url"), "")
    return entry_head(title, day, [*people, *tags], _address(entry) or source)


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


def _address(element: Element) -> str:
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
