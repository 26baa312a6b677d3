"""Extracts links, canonical addresses and robots directives from web pages, sitemaps and feeds.

It runs outside of the sandbox, so it takes time proportional to the page, and refuses XML with a document
type, which could be an entity bomb.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit
from xml.parsers import expat

from rag.ingest.origins.guarded_http import inflated, too_large
from rag.ingest.origins.origin_look import FetchError
from rag.ingest.parse.decode import rough_text
from rag.ingest.parse.document_parts import moment
from rag.ingest.parse.html_widgets import attributes_of
from rag.uris import STANDARD_PORTS, web_address

MAX_LINKS = 5000  # of one page
MAX_TAGS = 20_000  # of one page, which take a second
_TAG = re.compile(r"<(a|base|input|link|meta)\s([^<>]{0,4000})>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<(/?[a-z]*+)[^<>]*+>", re.IGNORECASE)
_ASCII_WORD = re.compile(r"[!-~]+")  # other scripts have no spaces between words
_OF_ID = re.compile(r"[0-9/]")
_UNRESERVED = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class PageFacts:
    """The links of a page, its canonical address (or ""), and its directives for robots.

    `password` says that it asks for one.
    """

    links: tuple[str, ...] = ()
    canonical: str = ""
    noindex: bool = False
    nofollow: bool = False
    password: bool = False


def canonical_url(reference: str, base: str = "") -> str | None:
    """The normal form of an address, for comparing; None if it isn't an http or https address.

    Example: "HTTPS://Example.org:443/a/../b/%7ejoe#x" -> "https://example.org/b/~joe".
    """
    try:
        joined, _ = urldefrag(urljoin(base, reference.strip()))
        address = web_address(joined)
        if address is None:
            return None
        parts = urlsplit(urljoin(address, urlsplit(address).path or "/"))  # resolves dots
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != STANDARD_PORTS[parts.scheme]:
        netloc = f"{netloc}:{port}"
    query = urlsplit(address).query
    return urlunsplit((parts.scheme, netloc, _normal(parts.path or "/"), _normal(query), ""))


def host_of(url: str) -> tuple[str, str]:
    """Scheme and host with port, which identify the server of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def path_below(url: str) -> str:
    """An address as a path: "https://example.org/a/?b=c" -> "example.org/a/index?b=c"."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    path = f"{path}index" if path.endswith("/") else path
    segments = [segment for segment in path.split("/") if segment not in {"", ".", ".."}]
    return "/".join((parts.netloc, *segments)) + (f"?{parts.query}" if parts.query else "")


def page_facts(body: bytes, url: str, headers: Mapping[str, str]) -> PageFacts:
    """The facts of an HTML page that came from an address."""
    text = rough_text(body)
    base, main, robots_orders = url, "", [headers.get("x-robots-tag", "")]
    links: dict[str, None] = {}
    password = False
    for match in islice(_TAG.finditer(text), MAX_TAGS):
        attributes = attributes_of(match[2])
        target, relation = attributes.get("href", ""), attributes.get("rel", "").lower().split()
        match match[1].lower():
            case "base" if target:
                base = canonical_url(target, url) or url
            case "link" if "canonical" in relation and not main:
                main = canonical_url(target, base) or ""
            case "input":
                password = password or attributes.get("type", "").lower() == "password"
            case "meta" if attributes.get("name", "").lower() in {"robots", "refdesk"}:
                robots_orders.append(attributes.get("content", ""))
            case "a" if target and "nofollow" not in relation and len(links) < MAX_LINKS:
                if address := canonical_url(target, base):
                    links[address] = None
    orders = {order.strip().lower() for listed in robots_orders for order in listed.split(",")}
    return PageFacts(
        tuple(links),
        main,
        bool(orders & {"noindex", "none"}),
        bool(orders & {"nofollow", "none"}),
        password,
    )


def visible_text(body: bytes) -> str:
    """The text of an HTML page without tags, scripts and styles, to tell whether two pages are the same.

    Values that change with each answer (nonces, form tokens) are in attributes and scripts.
    """
    page = rough_text(body)
    pieces: list[str] = []
    end, closing_tag = 0, ""
    for tag in _ANY_TAG.finditer(page):
        name = tag[1].lower()
        if not closing_tag:
            pieces.append(page[end : tag.start()])
            closing_tag = f"/{name}" if name in {"script", "style"} else ""
        elif name == closing_tag:
            closing_tag = ""
        end = tag.end()
    pieces.append("" if closing_tag else page[end:])
    return " ".join(" ".join(pieces).split())


def without_ids(text: str) -> str:
    """A text without its numbers, times, paths, addresses and ids: the words with a digit or a slash."""
    words = _ASCII_WORD.sub(lambda word: "" if _OF_ID.search(word[0]) else word[0], text)
    return " ".join(words.split())


def _normal(part: str) -> str:
    """Percent-encoding in one form: only where it is needed, in upper case."""

    def plain(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        is_unreserved = character.isascii() and (character.isalnum() or character in "-._~")
        return character if is_unreserved else match[0].upper()

    return _UNRESERVED.sub(plain, quote(part, safe="/%:@!$&'()*+,;=~?[]"))


MAX_ENTRIES = 100_000
MAX_CHARS = 4000  # of a title or an address
MAX_DEPTH = 100
GZIP = b"\x1f\x8b"
_ROOTS = {"urlset": "sitemap", "sitemapindex": "index", "rss": "feed", "feed": "feed", "RDF": "feed"}
_XML_BASE = "http://www.w3.org/XML/1998/namespace base"
_ITEMS = {"sitemap": {"url"}, "index": {"sitemap"}, "feed": {"item", "entry"}}
_DATES = ("pubDate", "published", "date", "updated")
"""Elements with the date of a feed's entry, in order of preference."""


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    """A listed address, in its normal form, with the values that a feed states for it."""

    url: str
    title: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a sitemap, of an index of sitemaps, or of a feed."""

    kind: Literal["sitemap", "index", "feed"]
    entries: tuple[SitemapEntry, ...]


def gunzipped(body: bytes, max_bytes: int) -> bytes:
    """A body without its gzip, as in sitemap.xml.gz.

    Raises:
        RefusedError: it is larger than `max_bytes`.
        FetchError: it is damaged.
    """
    if not body.startswith(GZIP):
        return body
    inflate = zlib.decompressobj(wbits=31)
    plain = inflated(inflate, body, max_bytes)
    if len(plain) > max_bytes:
        raise too_large(max_bytes)
    if not inflate.eof:
        raise FetchError("its compressed content is incomplete")
    return plain


def listing(body: bytes, url: str) -> Listing | None:
    """The entries of a sitemap or feed that came from an address; None if it is neither.

    Raises:
        FetchError: it begins like one, but is damaged or cut off, so its list is unknown.
    """
    reader = _SitemapParser([url])
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse  # entities could grow without end
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
class _SitemapParser:
    bases: list[str]  # of relative addresses in the open elements (xml:base)
    kind: str = ""
    entries: list[SitemapEntry] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _item: dict[str, str] | None = None
    _depth: int = 0

    def refuse(self, *_declared: object) -> None:
        raise _NoListingError

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if not self._open:
            self.kind = _ROOTS.get(local, "")
        if not self.kind or len(self._open) >= MAX_DEPTH or len(self.entries) > MAX_ENTRIES:
            raise _NoListingError
        self._open.append(local)
        base = attributes.get(_XML_BASE, "")[:MAX_CHARS]
        self.bases.append((base and canonical_url(base, self.bases[-1])) or self.bases[-1])
        if self._item is None and local in _ITEMS[self.kind]:
            self._item, self._depth = {}, len(self._open)
        item, is_page = self._item_of_part(), attributes.get("rel", "alternate") == "alternate"
        if item is not None and local == "link" and is_page and "href" in attributes:
            item.setdefault("link", attributes["href"][:MAX_CHARS])

    def text(self, part: str) -> None:
        item = self._item_of_part()
        if item is not None and len(before := item.get(self._open[-1], "")) < MAX_CHARS:
            item[self._open[-1]] = before + part[:MAX_CHARS]

    def _item_of_part(self) -> dict[str, str] | None:
        """The item whose direct part the open element is: feeds nest other titles and links in it."""
        return self._item if len(self._open) == self._depth + 1 else None

    def end(self, _name: str) -> None:
        closed = len(self._open)
        self._open.pop()
        base = self.bases.pop()
        if self._item is None or closed != self._depth:
            return
        item = {key: " ".join(value.split()) for key, value in self._item.items()}
        self._item = None
        written = item.get("link" if self.kind == "feed" else "loc", "")
        address = (canonical_url(written, base) or "") if written else ""
        if self.kind == "feed":
            stated = next((item[key] for key in _DATES if item.get(key)), "")
            day = moment(stated)
            entry = SitemapEntry(address, item.get("title", ""), day.isoformat() if day else "")
        else:
            entry = SitemapEntry(address)
        if entry.url:
            self.entries.append(entry)
