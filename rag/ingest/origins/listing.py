"""Sitemaps and feeds: which addresses they list. XML with a document type is not read: it could be a bomb."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Literal
from xml.parsers import expat

from rag.ingest.origins.errors import FetchError
from rag.ingest.origins.http import inflated, too_large

MAX_ENTRIES = 100_000
MAX_CHARS = 4000  # of a title or an address
MAX_DEPTH = 100
GZIP = b"\x1f\x8b"
_ROOTS = {"urlset": "sitemap", "sitemapindex": "index", "rss": "feed", "feed": "feed", "RDF": "feed"}
_ITEMS = {"sitemap": {"url"}, "index": {"sitemap"}, "feed": {"item", "entry"}}
_DATES = ("pubDate", "published", "date", "updated")
"""In a feed, the first that is there counts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A listed address, as written, with what a feed says of it."""

    url: str
    title: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a sitemap, of an index of sitemaps, or of a feed."""

    kind: Literal["sitemap", "index", "feed"]
    entries: tuple[Entry, ...]


def unpacked(body: bytes, most: int) -> bytes:
    """A body without its gzip, as in sitemap.xml.gz.

    Raises:
        RefusedError: it is larger than `most` bytes.
        FetchError: it is damaged.
    """
    if not body.startswith(GZIP):
        return body
    inflate = zlib.decompressobj(wbits=31)
    plain = inflated(inflate, body, most)
    if len(plain) > most:
        raise too_large(most)
    if not inflate.eof:
        raise FetchError("its compressed content is incomplete")
    return plain


def listing(body: bytes) -> Listing | None:
    """The entries of a sitemap or feed; None if it is neither.

    Raises:
        FetchError: it begins like one, but is damaged or cut off: what it lists can't be told.
    """
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    try:
        parser.Parse(body, True)  # noqa: FBT003 expat's own
    except (expat.ExpatError, _NoListingError) as error:
        if reader.kind:
            raise FetchError("it is a damaged sitemap or feed") from error
        return None
    return Listing(reader.kind, tuple(reader.entries)) if reader.kind else None  # type: ignore[arg-type]


class _NoListingError(Exception):
    pass


@dataclass(slots=True)
class _Reader:
    kind: str = ""
    entries: list[Entry] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _item: dict[str, str] | None = None
    _depth: int = 0

    def refuse(self, *_declared: object) -> None:
        raise _NoListingError

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if not self._open and (kind := _ROOTS.get(local)) is None:
            raise _NoListingError
        if not self._open:
            self.kind = kind or ""
        if len(self._open) >= MAX_DEPTH or len(self.entries) > MAX_ENTRIES:
            raise _NoListingError
        self._open.append(local)
        if self._item is None and local in _ITEMS[self.kind]:
            self._item, self._depth = {}, len(self._open)
        is_page = attributes.get("rel", "alternate") == "alternate"
        if (
            self._is_part()
            and local == "link"
            and is_page
            and "href" in attributes
            and self._item is not None
        ):
            self._item.setdefault("link", attributes["href"][:MAX_CHARS])

    def text(self, part: str) -> None:
        if self._item is None or not self._is_part():
            return
        before = self._item.get(self._open[-1], "")
        if len(before) < MAX_CHARS:
            self._item[self._open[-1]] = before + part[:MAX_CHARS]

    def _is_part(self) -> bool:
        """Whether the open element is a direct part of an entry: feeds nest other titles and links in it."""
        return self._item is not None and len(self._open) == self._depth + 1

    def end(self, _name: str) -> None:
        closed = len(self._open)
        self._open.pop()
        if self._item is None or closed != self._depth:
            return
        item = {key: " ".join(value.split()) for key, value in self._item.items()}
        self._item = None
        address = item.get("loc", "") if self.kind in {"sitemap", "index"} else item.get("link", "")
        if not address:
            return
        if self.kind == "feed":
            date = next((item[key] for key in _DATES if item.get(key)), "")
            self.entries.append(Entry(address, item.get("title", ""), _day(date)))
        else:
            self.entries.append(Entry(address))


def _day(written: str) -> str:
    """A date of RSS or Atom as ISO 8601; "" if it is none."""
    try:
        return parsedate_to_datetime(written).isoformat()
    except (TypeError, ValueError):
        return written if written[:4].isdecimal() else ""
