"""Addresses on the web: where a person can open a document, and where a server redirects to."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.error import HTTPError
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

MAX_ADDRESS_CHARS = 2_000
_ALLOWED = (
    "/%:@!$&'()*+,;=~?[]"  # what a path or a query may have besides letters and digits; % is encoded already
)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLACEHOLDER = re.compile(r"\{(path|stem)\}")


def web_address(written: str) -> str | None:
    """The http or https address, with everything percent-encoded that a URL can't have; None if it is none.

    An address with a user name is none: what comes before the @ poses as the host.
    Example: "https://example.org/a b?ü#c" -> "https://example.org/a%20b?%C3%BC#c"; "javascript:x" -> None.
    """
    written = written.strip()
    if not written.isprintable() or len(written) > MAX_ADDRESS_CHARS or "\\" in written:
        return None
    try:
        parts = urlsplit(written)
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except ValueError:  # a port out of range, brackets that don't close, a host that is no name
        return None
    if parts.scheme not in {"http", "https"} or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", host):
        return None
    if "@" in parts.netloc:
        return None
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    rest = (_encoded(part) for part in (parts.path, parts.query, parts.fragment))
    return urlunsplit((parts.scheme, netloc, *rest))


def _encoded(part: str) -> str:
    return quote(_BARE_PERCENT.sub("%25", part), safe=_ALLOWED)


def is_template(written: str) -> bool:
    """Whether it is an address with {path} or {stem} behind its host, so that no path can change the host."""
    whole = _PLACEHOLDER.sub("x", written)
    host = urlsplit(written).netloc if web_address(whole) else "{"
    return bool(_PLACEHOLDER.search(written)) and not re.search(r"[{}]", whole + host)


def page_address(template: str, path: str) -> str | None:
    """The address of a document by its path; `{stem}` is the path without its suffix. None if it is too long.

    Example: ("https://wiki.example.com/{stem}", "hr/New hires.md") -> "https://wiki.example.com/hr/New%20hires".
    """
    stem = str(PurePosixPath(path).with_suffix("")) if path else ""
    made = _PLACEHOLDER.sub(lambda match: quote(path if match[1] == "path" else stem, safe="/"), template)
    return web_address(made) if path else None


def redirect_target(address: str, location: str) -> str:
    """Where a reply to a request for `address` redirects to, for a message to the operator.

    The query and what a server could hide in the header are left out: it may be hostile.
    Example: ("https://a.example/v1", "//b.example/v1?key=x") -> "https://b.example/v1".
    """
    try:
        target = web_address(urljoin(address, location))
    except ValueError:
        target = None
    if target is None:
        return "an address that is not valid"
    return urlsplit(target)._replace(query="", fragment="").geturl()


def refused_redirect(address: str, error: BaseException) -> str:
    """Where the reply redirects to that made `urllib` fail at `address`; empty if it failed otherwise."""
    cause = error.__cause__
    location = cause.headers.get("Location", "") if isinstance(cause, HTTPError) else ""
    return redirect_target(address, location) if location else ""
