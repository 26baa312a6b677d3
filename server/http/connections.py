"""Limits on connections, before there is a request: how many, from where, and how slow.

A connection beyond a limit is refused. Connections that only are held open end by the time limits.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from server.http.client_address import AddressResolver, ClientAddress
    from server.http.refusals import RefusalLog

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
REASONS = {BAD_REQUEST: "Bad Request", TOO_MANY: "Too Many Requests", FULL: "Service Unavailable"}


def max_connections() -> int:
    """The number of connections to allow: a thousand, or fewer if the process may not open enough files."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # noqa: PLC0415 not on Windows

    wanted = MAX_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_CONNECTIONS
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(MAX_CONNECTIONS, max(soft - OTHER_FILES, soft // 2))


def is_ambiguous(received: bytes) -> bool:
    r"""Whether a request whose head has arrived could end elsewhere for the proxy before us.

    It does if it says twice how long it is, or in a way that not everybody knows. Then what one takes for the
    body, the other takes for the next request, perhaps somebody else's (RFC 9112, 11.2). h11 takes a length
    beside chunks, and the same length twice.
    Example: b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" -> True.
    """
    head = _HEAD.match(received)
    said = [(name.lower(), value) for name, value in _FRAMING.findall(head[1])] if head else []
    match said:
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
        peer, own = connection.client or ("", 0), connection.server or ("", 0)
        client = self._resolver.of_connection(peer[0], own[0])
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
        """Answer requests of which it is certain where they end, and close the connection at others."""
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
        reason = REASONS[status]
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
