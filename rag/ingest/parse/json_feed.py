"""JSON Feed, read as other feeds are: a section for each entry. Source: jsonfeed.org, version 1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from rag.corpus import Document
from rag.ingest.parse import html_page
from rag.ingest.parse.blocks import clean, date
from rag.ingest.parse.facts import facts
from rag.ingest.parse.xml.feeds import composed_entries, entry_head
from rag.text.segments import one_line
from rag.uris import web_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rag.ingest.parse.blocks import Part

_VERSION = "https://jsonfeed.org/version/1"
_DATES = ("date_published", "date_modified")


def is_feed(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a JSON value says that it is a feed, and has a list of entries."""
    if not isinstance(value, dict):
        return False
    return _text(value, "version").startswith(_VERSION) and isinstance(value.get("items"), list)


def feed_document(feed: Mapping[str, Any], name: str) -> Document:
    """The document of a feed: each entry with its date, author and address, then what it says."""
    entries = [one for one in feed["items"] if isinstance(one, dict)]
    text, blocks = composed_entries((_head(one), _body(one)) for one in entries)
    return Document(
        text=text,
        title=_text(feed, "title") or name,
        mime_type="application/feed+json",
        blocks=blocks,
        url=web_address(_text(feed, "home_page_url")),
        metadata=facts(
            author=_people(feed),
            language=_text(feed, "language"),
            description=_text(feed, "description"),
        ),
    )


def _head(entry: Mapping[str, Any]) -> Iterator[Part]:
    day = next((day for key in _DATES if (day := date(_text(entry, key)))), None)
    address = _text(entry, "url") or _text(entry, "external_url")
    return entry_head(_text(entry, "title") or _text(entry, "id"), day, _people(entry), address)


def _body(entry: Mapping[str, Any]) -> str:
    if written := _written(entry, "content_html"):
        return html_page.content_of(written)
    return clean(_written(entry, "content_text") or _written(entry, "summary"))


def _people(item: Mapping[str, Any]) -> list[str]:
    """The names of the authors; version 1 had one."""
    authors = item.get("authors")
    several = authors if isinstance(authors, list) else [item.get("author")]
    return [name for one in several if isinstance(one, dict) and (name := _text(one, "name"))]


def _text(item: Mapping[str, Any], key: str) -> str:
    return one_line(clean(_written(item, key)))


def _written(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""
