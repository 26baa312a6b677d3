"""Who doesn't say who they are, and how often an address may come to that."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import JSONResponse

from server.turns import Bucket

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.http.senders import Sender

FAILED = range(400, 500)
MAX_KNOWN = 4096  # credentials that were good lately
MAX_ADDRESSES = 10_000  # that failed lately


class Strangers:
    """Requests of nobody we know fail only so often a minute from one address; beyond, nobody looks at them.

    Two kinds are looked at all the same, for one client's mistake must not keep others out: requests with
    credentials that were good lately, and all requests from an address that is shared (see `Sender`).
    """

    def __init__(self, app: ASGIApp, failures_per_minute: int) -> None:
        self._app = app
        self._often = failures_per_minute
        self._failures: dict[str, Bucket] = {}
        self._known: dict[bytes, None] = {}  # longest ago first
        self._key = secrets.token_bytes(32)  # so that nobody can find credentials in our memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or tell when to come again."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender: Sender = scope["refdesk.sender"]
        failures, given = self._failures.get(sender.block), self._credentials(scope)
        if failures and failures.seconds and not sender.shared and given not in self._known:
            await _too_often(failures.seconds)(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if isinstance(scope.get("user"), AuthenticatedUser):
                    self._remember(given)
                elif message["status"] in FAILED:
                    self._count(sender)
            await send(message)

        await self._app(scope, receive, answer)

    def _credentials(self, scope: Scope) -> bytes:
        given = b"\n".join(value for name, value in scope["headers"] if name == b"authorization")
        return hashlib.blake2b(given, key=self._key, digest_size=16).digest()

    def _remember(self, given: bytes) -> None:
        self._known.pop(given, None)
        self._known[given] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _count(self, sender: Sender) -> None:
        if sender.shared:  # where it would have no consequence
            return
        if sender.block not in self._failures:
            if len(self._failures) >= MAX_ADDRESSES:
                self._failures = {key: one for key, one in self._failures.items() if not one.full}
            if len(self._failures) >= MAX_ADDRESSES:
                del self._failures[next(iter(self._failures))]
            self._failures[sender.block] = Bucket(self._often)
        self._failures[sender.block].take()


def _too_often(seconds: int) -> JSONResponse:
    description = f"Too many requests without good credentials. Ask again in {seconds} s."
    headers = {"Retry-After": str(seconds), "Connection": "close"}
    return JSONResponse({"error": "busy", "error_description": description}, status_code=429, headers=headers)
