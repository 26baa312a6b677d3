"""What an HTTP request passes before the protocol sees it, each by itself: time, host, credentials, scope."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.transport_security import TransportSecurityMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.calls import audit
from server.identity import Caller
from server.logs import Trail, note_refusal, refusal_told, trail

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CREDENTIALS = (b"authorization", b"x-api-key")
REFUSED = 400  # and every status above it
PROBES = ("/healthz", "/readyz")
"""What an orchestrator asks, by whatever name it reaches the server."""


class Followed:
    """Gives each request a name, its proxy's or a new one, in the answer and in every line of the log.

    A request that is refused before it is a call leaves its line in the audit here.
    """

    def __init__(self, app: ASGIApp, refused: Callable[[int], None]) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request under its name."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = header(scope, b"x-request-id")
        followed = Trail(given if REQUEST_ID.fullmatch(given) else uuid4().hex)
        trail.set(followed)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"x-request-id", followed.id.encode())]
                message = {**message, "headers": headers}
                refused = message["status"] >= REFUSED and scope["path"] not in PROBES
                if refused and not followed.recorded:
                    self._record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, answer)

    def _record(self, scope: Scope, status: int) -> None:
        client = scope.get("client")
        fields = {"status": status, "client": client[0] if client else None, **refusal_told()}
        audit.info("refused", extra={"fields": fields})
        self._refused(status)


class Checked:
    """Host and origin, before anything else of a request is looked at."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        self._app = app
        self._security = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request that another site could have made a browser send."""
        if scope["type"] == "http" and scope["path"] not in PROBES:
            refused = await self._security.validate_request(Request(scope))
            if refused:
                note_refusal("another host or origin")
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


class ApiKeyHeader:
    """`X-API-Key: …` as `Authorization: Bearer …`, for clients that can set no other."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Put the key where it is looked for; whoever bears several credentials bears none that counts."""
        if scope["type"] == "http":
            given = [(name, value) for name, value in scope["headers"] if name in CREDENTIALS]
            others = [(name, value) for name, value in scope["headers"] if name not in CREDENTIALS]
            scope = {**scope, "headers": others + [_bearer(*one) for one in given if len(given) == 1]}
        await self._app(scope, receive, send)


def _bearer(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return b"authorization", value if name == b"authorization" else b"Bearer " + value


class Deadline:
    """A request must have come whole within this time: a client that dribbles holds nothing for long."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body comes in time."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        ends, whole = anyio.current_time() + self._seconds, False

        async def in_time() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            with anyio.fail_after(max(0.0, ends - anyio.current_time())):
                message = await receive()
            whole = not message.get("more_body", False)
            return message

        try:
            await self._app(scope, in_time, send)
        except TimeoutError:
            if whole:
                raise
            await PlainTextResponse("The request took too long to arrive.", 408)(scope, receive, send)


class Patient(H11Protocol):
    """A connection is closed whose request line and headers don't come in time, or whose answer waits."""

    seconds: float
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, or no longer."""
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._watch()
        super().data_received(data)
        if self._late and self.cycle is not None and not self.cycle.response_complete:
            self._late.cancel()
            self._late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        for timer in (self._late, self._unread):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads less than there is to send: wait no longer than for a request."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._unread:
            self._unread.cancel()
        super().resume_writing()

    def _watch(self) -> None:
        self._late = self.loop.call_later(self.seconds, self.transport.close)


class Attended:
    """A request ends when its client is gone. For what doesn't listen to that by itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request for as long as somebody waits for its answer."""
        whole = anyio.Event()

        async def coming() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                whole.set()
            return message

        async def watch(serving: anyio.CancelScope) -> None:
            await whole.wait()
            await receive()  # nothing comes after a whole request but the end of its connection
            serving.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                await self._app(scope, coming, send)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


class Authorized:
    """Credentials with the scope that everything here needs; who lacks them is told where to get them."""

    def __init__(self, app: ASGIApp, scope: str, metadata_url: str) -> None:
        self._app = app
        self._scope = scope
        self._metadata_url = metadata_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse whoever is not known, or not allowed."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            refused = self._refusal(401, "invalid_token", "Authentication required")
        elif self._scope not in user.scopes:
            lacks = user.access_token.refusal if isinstance(user.access_token, Caller) else ""
            refused = self._refusal(403, "insufficient_scope", lacks or f"Required scope: {self._scope}")
        else:
            await self._app(scope, receive, send)
            return
        await refused(scope, receive, send)

    def _refusal(self, status: int, error: str, description: str) -> JSONResponse:
        note_refusal(description)
        told = {"error": error, "error_description": description, "scope": self._scope}
        told |= {"resource_metadata": self._metadata_url} if self._metadata_url else {}
        challenge = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in told.items())
        body = {"error": error, "error_description": description}
        return JSONResponse(body, status_code=status, headers={"WWW-Authenticate": challenge})


def header(scope: Scope, name: bytes) -> str:
    """A header of a request, empty where it has none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
