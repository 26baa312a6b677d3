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

from server.http.identity import Caller
from server.telemetry.logs import Trail, note_refusal, refusal_told, trail

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.http.refusals import Refusals
    from server.http.senders import Senders

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CREDENTIALS = (b"authorization", b"x-api-key")
REFUSED = 400  # and every status above it
UNKEPT = (b"cache-control", b"no-store")
PROBES = ("/healthz", "/readyz")
"""What an orchestrator asks, by whatever name it reaches the server."""


class Followed:
    """Gives each request a name, its proxy's or a new one, in the answer and in every line of the log.

    It also finds out where the request comes from (`refdesk.sender`, and `client` for what reads that), has
    no answer kept by anybody on its way, and tells the audit of what is refused before it is a call.
    """

    def __init__(self, app: ASGIApp, senders: Senders, refusals: Refusals) -> None:
        self._app = app
        self._senders = senders
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request under its name."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = header(scope, b"x-request-id")
        followed = Trail(name if REQUEST_ID.fullmatch(name) else uuid4().hex)
        trail.set(followed)
        sender = self._senders.of_request(scope)
        scope = {**scope, "client": (sender.address, 0), "refdesk.sender": sender}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [one for one in message.get("headers", ()) if one[0].lower() != UNKEPT[0]]
                headers = [*given, UNKEPT, (b"x-request-id", followed.id.encode())]
                message = {**message, "headers": headers}
                refused = message["status"] >= REFUSED and scope["path"] not in PROBES
                if refused and not followed.recorded:
                    self._refusals.note(message["status"], sender.address, refusal_told())
            await send(message)

        await self._app(scope, receive, answer)


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
