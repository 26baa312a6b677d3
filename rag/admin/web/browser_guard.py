"""What each request of the console passes first: its host, the page that sent it, and who sent it.

The console can do what its administrator can, so it must be sure of three things:

- The request is meant for it. A page of another site can make its name point to 127.0.0.1; then `Host` gives
  it away.
- No page of another site sent it, nor one of another server on this machine: `Origin` and `Sec-Fetch-Site`
  say that, and each form has a secret of its own.
- Its sender has the cookie, which one browser got for the token in the printed address. The token works until
  that browser comes back with the cookie; then it is used up.

Cookies know no ports: a browser brings this one to each server on 127.0.0.1 that it opens, and whoever runs
one can use it. Only a host of its own would keep them apart, and not every system resolves one to this
machine. server/running.md says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SIGN_IN = "/sign-in"
OPEN = frozenset({SIGN_IN, "/console.css", "/console.js", "/icon.svg"})
"""What a browser gets without the cookie: nothing of the desk."""
READS = frozenset({"GET", "HEAD"})
OURS = frozenset({"same-origin", "none"})
"""The senders by `Sec-Fetch-Site` that may see the desk: our own pages, and the person at the browser."""
SECRET_BYTES = 32
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # without any referrer, browsers would send no Origin either
    "x-content-type-options": "nosniff",
}
"""Of every response. Scripts and styles come from our own files only."""


@dataclass(slots=True)
class Door:
    """Who may come in: whoever brings the `token`. That browser gets the cookie of the `session`.

    The token is used up by the first request that brings the cookie. So a browser that lost the cookie, or a
    preview that opened the address first, locks nobody out. Of two browsers, the later one has the session.
    """

    host: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)
    session: str = field(default="", repr=False)
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)

    @property
    def origin(self) -> str:
        """The origin of our pages."""
        return f"http://{self.host}"

    @property
    def address(self) -> str:
        """The address that a browser can open once."""
        return f"{self.origin}{SIGN_IN}?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers send a cookie to all ports of a host, so it names the port."""
        return f"refdesk-console-{self.host.rpartition(':')[2]}"

    def let_in(self, token: str) -> str | None:
        """The cookie's value of a new session for the right token; None for any other token."""
        if not self.token or not _same(token, self.token):
            return None
        self.session = secrets.token_urlsafe(SECRET_BYTES)
        return self.session

    def has_session(self, headers: Headers) -> bool:
        """Whether a request brings the cookie. The first one that does uses the token up."""
        # Browsers send what other servers on this host have set, in any syntax: a strict parser would find
        # nothing behind somebody's `prefs={"theme":"dark"}`.
        pairs = (
            pair.strip().partition("=") for part in headers.getlist("cookie") for pair in part.split(";")
        )
        is_session = bool(self.session) and any(
            name == self.cookie and _same(value, self.session) for name, _, value in pairs
        )
        if is_session:
            self.token = ""
        return is_session

    def has_form_secret(self, secret: object) -> bool:
        """Whether a form has the secret that our pages put into it."""
        return isinstance(secret, str) and _same(secret, self.form_secret)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason if a request may not pass."""
        headers, path = Headers(scope=scope), scope["path"]
        if headers.getlist("host") != [self.host]:
            return 421, f"This is the console at {self.origin}. Open it at that address."
        if path in OPEN and scope["method"] in READS:
            return None
        sender = headers.get("sec-fetch-site")
        if sender is not None and sender not in OURS:
            return 403, "Another page sent you here. Open this address yourself."
        if scope["method"] not in READS and headers.getlist("origin") != [self.origin]:
            return 403, "Another page sent this form. Nothing was done."
        if not self.has_session(headers):
            return 401, "Open the address that refdesk-admin console printed. It works in one browser."
        return None


class Guard:
    """ASGI middleware: refuses what may not pass the door, and adds the headers of every response."""

    def __init__(self, app: ASGIApp, door: Door, refused: Callable[[int, str], Response]) -> None:
        self._app = app
        self._door = door
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._door.refusal(scope)
        app = self._refused(*refusal) if refusal else self._app
        await app(scope, receive, with_headers)


def _same(presented: str, secret: str) -> bool:
    """Whether two secrets are equal; how long that takes says nothing of them."""
    return secrets.compare_digest(presented.encode("utf-8", "replace"), secret.encode())
