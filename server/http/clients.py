"""The address and principal of a client, and limits on unauthenticated clients.

A client has an address, also behind trusted proxies, and the principal of its credentials. The audit names
both, and limits count by both.

Connections are limited in number, in all and per address, and in slowness. A connection beyond the limit of
its address is refused with 429, beyond the limit of the process with 503. Slow ones are closed.

Failed requests of unauthenticated clients have a rate limit, so that credentials can't be guessed.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeAlias

import h11
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from rag.corpus import Principal
from rag.errors import AccessError
from rag.runtime import keep_latest
from server.admission import TokenBucket
from server.call_audit import RefusalLog

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
NETWORK_BITS = 64  # of an IPv6 address; a client can choose the rest itself
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """The address of a request. A `shared` one may have many unrelated clients behind it.

    Limits count by `block`, the addresses that one client controls: an IPv4 address, or an IPv6 /64 network.
    """

    address: str
    block: str
    shared: bool


class AddressResolver:
    """Finds a client's address. Only trusted proxies are believed in X-Forwarded-For.

    Shared addresses are a trusted proxy that does not name its client, and this machine's own addresses,
    because a proxy that the settings don't mention may run here.
    """

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]

    def of_connection(self, peer: str, server_host: str) -> ClientAddress:
        """The address at the other end of a connection to `server_host`, one of our addresses."""
        address = _parse(peer)
        return _client_address(
            address, shared=peer == server_host or address is None or self._trusts(address)
        )

    def of_request(self, scope: Scope) -> ClientAddress:
        """The peer; or, if that is a trusted proxy, the last address in X-Forwarded-For that is not one.

        Addresses before the last one come from the client and can be forged.
        """
        peer, server_host = (scope.get("client") or [""])[0], (scope.get("server") or [""])[0]
        address = _parse(peer)
        if address is None or not self._trusts(address):
            return self.of_connection(peer, server_host)
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for entry in reversed(",".join(values).split(",")):
            forwarded = _parse(entry)
            if forwarded is None:
                break
            if not self._trusts(forwarded):
                return _client_address(forwarded, shared=False)
        return _client_address(address, shared=True)

    def _trusts(self, address: IPAddress) -> bool:
        return any(address in network for network in self._proxies)


def _client_address(address: IPAddress | None, *, shared: bool) -> ClientAddress:
    if address is None:
        return ClientAddress(UNKNOWN, UNKNOWN, shared)
    host_bits = 128 - NETWORK_BITS if address.version == 6 else 0  # noqa: PLR2004 the version's name
    block = type(address)(int(address) >> host_bits << host_bits)
    return ClientAddress(str(address), str(block), shared)


def _parse(text: str) -> IPAddress | None:
    """The address in "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80"; otherwise None."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


MAX_NAME_CHARS = 200  # of a name from an issuer
NOBODY = Principal("-")
"""The principal of unauthenticated requests and incomplete tokens. No tenant can have this name."""


class Caller(AccessToken):
    """The SDK's access token, with the principal it stands for. It never holds the token itself.

    `refusal` says what is wrong with a token that identifies nobody.
    """

    principal: Principal
    kind: Literal["local", "key", "token"]
    refusal: str = ""

    @property
    def audit_fields(self) -> dict[str, object]:
        """The caller in the audit: a key by its id, a token by its subject and the OAuth client."""
        fields: dict[str, object] = {
            "tenant": None if self.principal == NOBODY else self.principal.tenant,
            "user": self.principal.user,
            "groups": sorted(self.principal.groups),
        }
        match self.kind:
            case "key":
                return fields | {"key": self.client_id}
            case "token":
                issued_to = None if self.client_id == self.subject else self.client_id[:MAX_NAME_CHARS]
                return fields | {"oauth_client": issued_to, "subject": (self.subject or "")[:MAX_NAME_CHARS]}
            case _:
                return fields


def bearer_principal(_context: object) -> Principal:
    """The principal of this request, regardless of its connection or stream.

    Raises:
        AccessError: the request is not authenticated.
    """
    caller = get_access_token()
    if not isinstance(caller, Caller):
        raise AccessError("This request carries no credentials.")
    return caller.principal


def scope_principal(scope: Scope) -> Principal:
    """The principal of a request, for its limits; `NOBODY` if it is not authenticated."""
    token = getattr(scope.get("user"), "access_token", None)
    return token.principal if isinstance(token, Caller) else NOBODY


MAX_CONNECTIONS = 1000
OTHER_FILES = 400  # open files of the engine and the rest of the process
BAD_REQUEST, TIMEOUT, TOO_MANY, FULL = 400, 408, 429, 503
RAW_RESPONSE = (
    "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nConnection: close\r\n\r\n{reason}"
)
_HEAD = re.compile(rb"(.*?)\r?\n\r?\n", re.DOTALL)
_FRAMING = {b"content-length", b"transfer-encoding"}


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
    r"""Whether a proxy before us could see another end of this request than we do (request smuggling).

    That happens if the head states the length twice, or in an unusual way: then the body for one of us is the
    next request for the other, perhaps of another client (RFC 9112, 11.2). h11 accepts a length together with
    chunks, and the same length twice.
    Example: b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" -> True.
    """
    head = _HEAD.match(received)
    fields = (line.partition(b":") for line in head[1].lower().split(b"\n")) if head else ()
    framing = [
        (name, value.strip(b" \t\r"))
        for text, _, value in fields
        if (name := text.rstrip(b" \t")) in _FRAMING
    ]
    match framing:
        case []:
            return False
        case [(b"content-length", length)]:
            return not re.fullmatch(rb"[0-9]+", length)
        case [(b"transfer-encoding", coding)]:
            return coding != b"chunked" or b"HTTP/1.0" in received.partition(b"\n")[0]
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
        """Admit a connection. Returns 0, or the status with which to refuse it."""
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

    uvicorn has no timeout for either. The header timer runs from the connection, or on a kept-alive one from
    the first byte, until the headers are complete; more bytes don't restart it. Then comes `body_timeout`.
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
        """Answer requests with an unambiguous end, and close the connection at others."""
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
        """The client reads more slowly than we write: start a timer, as for a request."""
        super().pause_writing()
        # abort(), because close() would wait forever for the buffer to be written.
        self._write_timer = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._write_timer:
            self._write_timer.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's signature
        """Answer invalid HTTP without echoing it."""
        self.limit.record(self, BAD_REQUEST)
        self._respond(BAD_REQUEST)

    def _respond(self, status: int) -> None:
        reason = HTTPStatus(status).phrase
        response = RAW_RESPONSE.format(status=status, reason=reason, length=len(reason))
        self.transport.write(response.encode())
        self.transport.close()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.seconds, self._time_out)

    def _time_out(self) -> None:
        self.limit.record(self, TIMEOUT)
        self.transport.close()


CLIENT_ERRORS = range(400, 500)
MAX_CREDENTIALS = 4096  # remembered as recently valid
MAX_ADDRESSES = 10_000  # remembered as recently failing
NEW_CREDENTIALS = 30  # per minute that a limited address may try, for colleagues behind one NAT
MAX_REFUSED = 256  # remembered credentials of one address


@dataclass(slots=True)
class _Failures:
    """The failures of one address. `refused` are digests of credentials."""

    recent: TokenBucket
    new_credentials: TokenBucket = field(default_factory=lambda: TokenBucket(NEW_CREDENTIALS))
    refused: dict[bytes, None] = field(default_factory=dict)

    def may_try(self, credentials: bytes) -> bool:
        """Whether a limited address may try these: they haven't failed, and it has tried few others."""
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

    One client's mistakes must not lock out others. So requests with recently valid credentials, and from a
    shared address (see `ClientAddress`), are never rejected here. A colleague behind the same NAT may have
    credentials that this process hasn't seen. These are checked, too: a client with a wrong key repeats it,
    and only a guesser sends more than `NEW_CREDENTIALS`.
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
            reason = f"Too many requests without valid credentials. Try again in {seconds} s."
            await busy_response(reason, seconds, close=True)(scope, receive, send)
            return

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                if isinstance(scope.get("user"), AuthenticatedUser):
                    keep_latest(self._valid, credentials, None, MAX_CREDENTIALS)
                elif message["status"] in CLIENT_ERRORS:  # a 503 says nothing about the credentials
                    self._count(client, credentials)
            await send(message)

        await self._app(scope, receive, observe)

    def _digest(self, scope: Scope) -> bytes:
        credentials = b"\n".join(value for name, value in scope["headers"] if name == b"authorization")
        return hashlib.blake2b(credentials, key=self._key, digest_size=16).digest()

    def _count(self, client: ClientAddress, credentials: bytes) -> None:
        if client.shared:  # never limited, see above
            return
        if client.block not in self._failures:
            if len(self._failures) >= MAX_ADDRESSES:
                # An address whose bucket is full again would get the same from a new one.
                remembered = (
                    (block, failed) for block, failed in self._failures.items() if not failed.recent.full
                )
                self._failures = dict(remembered)
            failures = _Failures(TokenBucket(self._per_minute))
            keep_latest(self._failures, client.block, failures, MAX_ADDRESSES)
        self._failures[client.block].note(credentials)


def busy_response(reason: str, seconds: int, *, close: bool = False) -> JSONResponse:
    """The 429 for a rejected request. `close` also closes its connection."""
    headers = {"Retry-After": str(seconds)} | ({"Connection": "close"} if close else {})
    return JSONResponse({"error": "busy", "error_description": reason}, status_code=429, headers=headers)
