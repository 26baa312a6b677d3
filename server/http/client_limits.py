"""Limits on clients that nobody has authenticated yet: on their connections and on their failed requests.

Before there is a request, connections are limited: how many, from where, and how slow. A new connection
beyond the limit of its address is refused with 429, beyond the limit of the process with 503. Slow ones end.

Failed requests of unauthenticated clients have a rate limit, so that credentials can't be guessed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sys
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.admission import TokenBucket

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.http.callers import AddressResolver, ClientAddress
    from server.telemetry.call_audit import RefusalLog

MAX_CONNECTIONS = 1000
OTHER_FILES = 400  # that the engine and the rest of the process may have open
BAD_REQUEST, TIMEOUT, TOO_MANY, FULL = 400, 408, 429, 503
RAW_RESPONSE = (
    "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nConnection: close\r\n\r\n{reason}"
)
_HEAD = re.compile(rb"(.*?)\r?\n\r?\n", re.DOTALL)
_FRAMING = re.compile(
    rb"^(content-length|transfer-encoding)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.IGNORECASE | re.MULTILINE
)


def max_connections() -> int:
    """The number of connections to allow: a thousand, or fewer if the process may not open enough files."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # noqa: PLC0415 not on Windows

    needed = MAX_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return MAX_CONNECTIONS
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(MAX_CONNECTIONS, max(soft - OTHER_FILES, soft // 2))


def is_ambiguous(received: bytes) -> bool:
    r"""Whether a request whose head has arrived could end elsewhere for the proxy before us.

    It does if it says twice how long it is, or in a way that not everybody knows. Then what one takes for the
    body, the other takes for the next request, perhaps somebody else's (RFC 9112, 11.2). h11 accepts a
    length together with chunks, and the same length twice.
    Example: b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" -> True.
    """
    head = _HEAD.match(received)
    framing = [(name.lower(), value) for name, value in _FRAMING.findall(head[1])] if head else []
    match framing:
        case []:
            return False
        case [(b"content-length", length)]:
            return not re.fullmatch(rb"[0-9]+", length)
        case [(b"transfer-encoding", coding)]:
            return coding.lower() != b"chunked" or b"HTTP/1.0" in received.partition(b"\n")[0]
    return True


class ConnectionLimit:
    """At most `limit` connections, and at most `limit_per_client` from each address that is not shared."""

    def __init__(
        self, limit: int, limit_per_client: int, resolver: AddressResolver, refusal_log: RefusalLog
    ) -> None:
        self._limit = limit
        self._limit_per_client = limit_per_client
        self._resolver = resolver
        self._refusal_log = refusal_log
        self._open: dict[SlowClientProtocol, ClientAddress] = {}
        self._open_by_client: Counter[str] = Counter()

    def add(self, connection: SlowClientProtocol) -> int:
        """Admit a connection. 0, or the status with which it is refused."""
        peer, server_address = connection.client or ("", 0), connection.server or ("", 0)
        client = self._resolver.of_connection(peer[0], server_address[0])
        if not client.shared and self._open_by_client[client.block] >= self._limit_per_client:
            return self._refuse(TOO_MANY, client)
        if len(self._open) >= self._limit:
            return self._refuse(FULL, client)
        self._open[connection] = client
        self._open_by_client[client.block] += 1
        return 0

    def remove(self, connection: SlowClientProtocol) -> None:
        """Forget a connection that is closed."""
        client = self._open.pop(connection, None)
        if client:
            self._open_by_client[client.block] -= 1
            if not self._open_by_client[client.block]:
                del self._open_by_client[client.block]

    def record(self, connection: SlowClientProtocol, status: int) -> None:
        """Have the audit count a connection that ended before it became a request."""
        client = self._open.get(connection)
        if client:
            self._refusal_log.record(status, client.address, {})

    def _refuse(self, status: int, client: ClientAddress) -> int:
        self._refusal_log.record(status, client.address, {})
        return status


class SlowClientProtocol(H11Protocol):
    """Closes connections that send headers too slowly or stop reading (slowloris, slow read).

    uvicorn has no timeout for either. The header timer runs from the connection, or on a kept-alive one
    from the first byte, until the headers are complete; more bytes don't restart it. Then `BodyTimeout` takes
    over.
    """

    seconds: float
    limit: ConnectionLimit
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Admit or refuse the connection, and wait for its first request."""
        super().connection_made(transport)
        refused = self.limit.add(self)
        if refused:
            self._respond(refused)
        else:
            self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Start the timer with the first bytes of a request, and stop it once its headers are complete."""
        if self._header_timer is None and not self._is_busy():
            self._start_header_timer()
        super().data_received(data)
        if self._header_timer and self._is_busy():
            self._header_timer.cancel()
            self._header_timer = None

    def handle_events(self) -> None:
        """Answer requests that certainly end where we think, and close the connection at others."""
        if self.conn.their_state is h11.IDLE and is_ambiguous(self.conn.trailing_data[0]):
            self.send_400_response("")
        else:
            super().handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and make room for another connection."""
        for timer in (self._header_timer, self._write_timer):
            if timer:
                timer.cancel()
        self.limit.remove(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads more slowly than we write: give it as long as for a request."""
        super().pause_writing()
        # abort(), since close() would wait until the buffer is written: for ever.
        self._write_timer = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._write_timer:
            self._write_timer.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's signature
        """Answer what is not HTTP, without echoing it."""
        self.limit.record(self, BAD_REQUEST)
        self._respond(BAD_REQUEST)

    def _respond(self, status: int) -> None:
        reason = HTTPStatus(status).phrase
        response = RAW_RESPONSE.format(status=status, reason=reason, length=len(reason))
        self.transport.write(response.encode())
        self.transport.close()

    def _is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.seconds, self._time_out)

    def _time_out(self) -> None:
        self.limit.record(self, TIMEOUT)
        self.transport.close()


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
        if credentials not in self.refused and len(self.refused) >= MAX_REFUSED:
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
                remembered = (
                    (block, failed) for block, failed in self._failures.items() if not failed.recent.full
                )
                self._failures = dict(remembered)
            if len(self._failures) >= MAX_ADDRESSES:
                del self._failures[next(iter(self._failures))]
            self._failures[client.block] = _Failures(TokenBucket(self._per_minute))
        self._failures[client.block].note(credentials)


def _too_many_failures(seconds: int) -> JSONResponse:
    description = f"Too many requests without valid credentials. Try again in {seconds} s."
    headers = {"Retry-After": str(seconds), "Connection": "close"}
    return JSONResponse({"error": "busy", "error_description": description}, status_code=429, headers=headers)
