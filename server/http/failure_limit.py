"""A rate limit for failed requests of unauthenticated clients, so that credentials can't be guessed."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
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
NEW_CREDENTIALS = 30  # a minute that a limited address may try: the colleagues behind one NAT
MAX_REFUSED = 256  # credentials of one address, which it tries again


@dataclass(slots=True)
class _Failures:
    """What one address has failed with. `refused` are digests of credentials, in no order that matters."""

    recent: TokenBucket
    new_credentials: TokenBucket = field(default_factory=lambda: TokenBucket(NEW_CREDENTIALS))
    refused: dict[bytes, None] = field(default_factory=dict)

    def may_try(self, credentials: bytes) -> bool:
        """Whether a limited address may try these: they haven't failed, and it tries few others."""
        if credentials in self.refused or self.new_credentials.retry_seconds:
            return False
        self.new_credentials.take()
        return True

    def note(self, credentials: bytes) -> None:
        self.recent.take()
        if len(self.refused) >= MAX_REFUSED:
            del self.refused[next(iter(self.refused))]
        self.refused[credentials] = None


class FailureLimit:
    """Rejects requests from an address whose unauthenticated requests failed too often in the last minute.

    One client's mistakes must not lock out others. So requests with credentials that were valid recently,
    and those from a shared address (see `ClientAddress`), are never rejected here. A colleague behind the
    same NAT may have credentials that this process hasn't seen yet. These are checked, too: a client with a
    wrong key sends the same one again, and only somebody who guesses sends more than `NEW_CREDENTIALS`.
    """

    def __init__(self, app: ASGIApp, failures_per_minute: int) -> None:
        self._app = app
        self._per_minute = failures_per_minute
        self._failures: dict[str, _Failures] = {}
        self._valid: dict[bytes, None] = {}  # digests of credentials, least recently used first
        self._key = secrets.token_bytes(32)  # a memory dump must not reveal credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer 429 with the seconds to wait."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client: ClientAddress = scope["refdesk.client"]
        failures, credentials = self._failures.get(client.block), self._digest(scope)
        seconds = failures.recent.retry_seconds if failures and not client.shared else 0
        if failures and seconds and credentials not in self._valid and not failures.may_try(credentials):
            await _too_many_failures(seconds)(scope, receive, send)
            return

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                if isinstance(scope.get("user"), AuthenticatedUser):
                    self._remember(credentials)
                elif message["status"] in CLIENT_ERRORS:
                    self._count(client, credentials)
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

    def _count(self, client: ClientAddress, credentials: bytes) -> None:
        if client.shared:  # never limited, see above
            return
        if client.block not in self._failures:
            if len(self._failures) >= MAX_ADDRESSES:
                kept = ((block, failed) for block, failed in self._failures.items() if not failed.recent.full)
                self._failures = dict(kept)
            if len(self._failures) >= MAX_ADDRESSES:
                del self._failures[next(iter(self._failures))]
            self._failures[client.block] = _Failures(TokenBucket(self._per_minute))
        self._failures[client.block].note(credentials)


def _too_many_failures(seconds: int) -> JSONResponse:
    description = f"Too many requests without valid credentials. Try again in {seconds} s."
    headers = {"Retry-After": str(seconds), "Connection": "close"}
    return JSONResponse({"error": "busy", "error_description": description}, status_code=429, headers=headers)
