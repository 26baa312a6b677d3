"""The pass by which a browser sees the pages that citations open on this machine.

Who signs in to the console may see the whole desk. So the console also gives the browser a pass: a cookie
with its day of issue, signed with a key that only the desk has. A process that shows pages checks it, and
needs nothing but to read the desk.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice

from rag.home import Home, read

COOKIE = "refdesk-pages-"  # and what tells desks apart, as a browser may be signed in to several
KEY = "key"  # of the desk, from which ids are derived, too
VALID_DAYS = 7
MOST_PASSES = 4  # of a request that are looked at


def new_pass(home: Home, now: datetime) -> tuple[str, str] | None:
    """The name and the value of a cookie with a pass; None for a desk without a key, so without documents.

    Raises:
        OSError, StoreError: the key can't be read.
    """
    key = read(home, KEY)
    return (_cookie(key), _signed(key, now.astimezone(UTC).toordinal())) if key else None


def holds_pass(home: Home, cookies: Iterable[str], now: datetime) -> bool:
    """Whether a request's cookie headers have a pass that is at most `VALID_DAYS` old.

    Raises:
        OSError, StoreError: the key can't be read.
    """
    key, today = read(home, KEY), now.astimezone(UTC).toordinal()
    if not key:
        return False
    valid = [_signed(key, today - age) for age in range(VALID_DAYS + 1)]
    presented = islice(cookie_values(cookies, _cookie(key)), MOST_PASSES)
    return any(same(value, pass_) for value in presented for pass_ in valid)


def _cookie(key: bytes) -> str:
    return COOKIE + _digest(key, "pages")[:8]


def _signed(key: bytes, day: int) -> str:
    return f"{day}.{_digest(key, f'pages {day}')}"


def _digest(key: bytes, purpose: str) -> str:
    return hmac.new(key, f"refdesk {purpose}".encode(), sha256).hexdigest()


def cookie_values(headers: Iterable[str], name: str) -> Iterator[str]:
    """The values of a cookie in a request's headers.

    Browsers also send the cookies of other servers on this host, in any syntax: a strict parser would give up
    at somebody's `prefs={"theme":"dark"}` and miss ours.
    """
    for pair in (pair for header in headers for pair in header.split(";")):
        cookie, _, value = pair.strip().partition("=")
        if cookie == name:
            yield value


def same(presented: str, secret: str) -> bool:
    """Whether two secrets are equal, in constant time."""
    return hmac.compare_digest(presented.encode("utf-8", "replace"), secret.encode())
