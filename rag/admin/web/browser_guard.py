"""The checks that each request to the console passes first: its host, its sender's page, and its session.

The console can do what its administrator can, so three attacks must fail:

- DNS rebinding: a page of another site makes its name point to 127.0.0.1. `Host` gives it away.
- CSRF: a page of another site, or of another server on this machine, sends a form. `Origin` and
  `Sec-Fetch-Site` give it away, and each form carries a secret.
- Access without a session: the cookie goes to the browser that brings the token in the printed address. The
  token stays valid until that browser returns with the cookie; then it is used up.

One gap remains: cookies don't distinguish ports, so the browser sends this one to every server on 127.0.0.1
that it opens, and that server could use it. server/running.md says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from rag.access.keys import are_equal, cookie_values

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SIGN_IN = "/sign-in"
OPEN = frozenset({SIGN_IN, "/console.css", "/console.js", "/icon.svg"})
"""The paths that need no session. They show nothing of the desk."""
READS = frozenset({"GET", "HEAD"})
OURS = frozenset({"same-origin", "none"})
"""The values of `Sec-Fetch-Site` that may pass: our own pages, and addresses that a person typed."""
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
"""The headers of every response. Scripts and styles come from our own files only."""


@dataclass(slots=True)
class Door:
    """The session of one browser: it brings the `token` and gets the cookie of the `session`.

    The token is used up by the first request with the cookie, not when the cookie is set: so a link preview
    that opened the address first locks nobody out. Of two browsers, the later one has the session.
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
        """The address that signs in one browser."""
        return f"{self.origin}{SIGN_IN}?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers send a cookie to all ports of a host, so it names the port."""
        return f"refdesk-console-{self.host.rpartition(':')[2]}"

    def let_in(self, token: str) -> str | None:
        """Begin a session for the right token. Returns its cookie's value; None for any other token."""
        if not self.token or not are_equal(token, self.token):
            return None
        self.session = secrets.token_urlsafe(SECRET_BYTES)
        return self.session

    def has_session(self, headers: Headers) -> bool:
        """Whether a request brings the session's cookie. The first one that does uses up the token."""
        values = cookie_values(headers.getlist("cookie"), self.cookie)
        is_session = bool(self.session) and any(are_equal(value, self.session) for value in values)
        if is_session:
            self.token = ""
        return is_session

    def has_form_secret(self, secret: object) -> bool:
        """Whether a form brings the secret that our pages put into it."""
        return isinstance(secret, str) and are_equal(secret, self.form_secret)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason if a request is refused; None if it may pass."""
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


def guard(app: ASGIApp, door: Door, refused: Callable[[int, str], Response]) -> ASGIApp:
    """ASGI middleware: refuses requests that don't pass the door, and adds the headers to every response."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = door.refusal(scope)
        await (refused(*refusal) if refusal else app)(scope, receive, with_headers)

    return serve
