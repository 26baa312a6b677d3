"""A rate limit for failed requests of unauthenticated clients, so that credentials can't be guessed."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import JSONResponse

from server.limits import TokenBucket

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.http.client_address import ClientAddress

CLIENT_ERRORS = range(400, 500)
MAX_CREDENTIALS = 4096  # that were valid recently
MAX_ADDRESSES = 10_000  # that failed recently


class FailureLimit:
    """Rejects requests from an address whose unauthenticated requests failed too often in the last minute.

    Two kinds of requests are never rejected here, so that one client's mistakes don't lock out others: those
    with credentials that were valid recently, and those from a shared address (see `ClientAddress`).
    """

    def __init__(self, app: ASGIApp, failures_per_minute: int) -> None:
        self._app = app
        self._per_minute = failures_per_minute
        self._failures: dict[str, TokenBucket] = {}
        self._valid: dict[bytes, None] = {}  # digests of credentials, least recently used first
        self._key = secrets.token_bytes(32)  # a memory dump must not reveal credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer 429 with the seconds to wait."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client: ClientAddress = scope["refdesk.client"]
        failures, credentials = self._failures.get(client.block), self._digest(scope)
        limited = failures and failures.retry_seconds and not client.shared
        if failures and limited and credentials not in self._valid:
            await _too_many_failures(failures.retry_seconds)(scope, receive, send)
            return

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                if isinstance(scope.get("user"), AuthenticatedUser):
                    self._remember(credentials)
                elif message["status"] in CLIENT_ERRORS:
                    self._count(client)
            await send(message)

        await self._app(scope, receive, observe)

    def _digest(self, scope: Scope) -> bytes:
        credentials = b"\n".join(value for name, value in scope["headers"] if name == b"authorization")
        return hashlib.blake2b(credentials, key=self._key, digest_size=16).digest()

    def _remember(self, credentials: bytes) -> None:
        self._valid.pop(credentials, None)
        self._valid[credentials] = None
        if len(self._valid) > MAX_CREDENTIALS:
            del self._valid[next(iter(self._valid))]

    def _count(self, client: ClientAddress) -> None:
        if client.shared:  # never limited, see above
            return
        if client.block not in self._failures:
            if len(self._failures) >= MAX_ADDRESSES:
                self._failures = {key: bucket for key, bucket in self._failures.items() if not bucket.full}
            if len(self._failures) >= MAX_ADDRESSES:
                del self._failures[next(iter(self._failures))]
            self._failures[client.block] = TokenBucket(self._per_minute)
        self._failures[client.block].take()


def _too_many_failures(seconds: int) -> JSONResponse:
    description = f"Too many requests without valid credentials. Try again in {seconds} s."
    headers = {"Retry-After": str(seconds), "Connection": "close"}
    return JSONResponse({"error": "busy", "error_description": description}, status_code=429, headers=headers)
