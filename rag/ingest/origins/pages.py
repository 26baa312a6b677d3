"""What a web page says of itself and of others: links, its canonical address, and orders to robots.

Tags are looked for in time proportional to the page: this runs outside of the sandbox.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit

from rag.ingest.parse.decode import rough_text
from rag.uris import web_address

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LINKS = 5000  # of one page
MAX_TAGS = 20_000  # of one page that are looked at, which takes a second
_STANDARD = {"https": 443, "http": 80}
_TAG = re.compile(r"<(a|base|link|meta)\s([^<>]{0,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""([a-z-]{1,20})\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE
)
_UNRESERVED = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class PageFacts:
    """The addresses that a page links to, its canonical address or "", and what it asks of robots."""

    links: tuple[str, ...] = ()
    canonical: str = ""
    noindex: bool = False
    nofollow: bool = False


def canonical(written: str, base: str = "") -> str | None:
    """An address in the one form in which it is compared: None if it is no http or https address.

    Example: "HTTPS://Example.org:443/a/../b/%7ejoe#x" -> "https://example.org/b/~joe".
    """
    try:
        joined, _ = urldefrag(urljoin(base, written.strip()))
        address = web_address(joined)
        if address is None:
            return None
        parts = urlsplit(urljoin(address, urlsplit(address).path or "/"))  # resolves dots
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    netloc = f"[{host}]" if ":" in host else host
    if port is not None and port != _STANDARD[parts.scheme]:
        netloc = f"{netloc}:{port}"
    query = urlsplit(address).query
    return urlunsplit((parts.scheme, netloc, _normal(parts.path or "/"), _normal(query), ""))


def host_of(url: str) -> tuple[str, str]:
    """Scheme and host with port: what two addresses have in common that belong to one server."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def path_below(url: str) -> str:
    """An address as a path: "https://example.org/a/?b=c" -> "example.org/a/index?b=c"."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    path = f"{path}index" if path.endswith("/") else path
    named = [one for one in path.split("/") if one not in {"", ".", ".."}]
    return "/".join((parts.netloc, *named)) + (f"?{parts.query}" if parts.query else "")


def page_facts(body: bytes, url: str, headers: Mapping[str, str]) -> PageFacts:
    """The facts of an HTML page that came from an address."""
    text = rough_text(body)
    base, main, asked = url, "", [headers.get("x-robots-tag", "")]
    links: dict[str, None] = {}
    for match in islice(_TAG.finditer(text), MAX_TAGS):
        attributes = {
            one[1].lower(): html.unescape(one[2] or one[3] or one[4] or "")
            for one in _ATTRIBUTE.finditer(match[2])
        }
        target, relation = attributes.get("href", ""), attributes.get("rel", "").lower().split()
        match match[1].lower():
            case "base" if target:
                base = canonical(target, url) or url
            case "link" if "canonical" in relation and not main:
                main = canonical(target, base) or ""
            case "meta" if attributes.get("name", "").lower() in {"robots", "refdesk"}:
                asked.append(attributes.get("content", ""))
            case "a" if target and "nofollow" not in relation and len(links) < MAX_LINKS:
                if address := canonical(target, base):
                    links[address] = None
    orders = {order.strip().lower() for one in asked for order in one.split(",")}
    return PageFacts(
        tuple(links), main, bool(orders & {"noindex", "none"}), bool(orders & {"nofollow", "none"})
    )


def _normal(part: str) -> str:
    """Percent-encoding in one form: only where it is needed, in upper case."""

    def plain(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return (
            character
            if character.isascii() and (character.isalnum() or character in "-._~")
            else match[0].upper()
        )

    return _UNRESERVED.sub(plain, quote(part, safe="/%:@!$&'()*+,;=~?[]"))
