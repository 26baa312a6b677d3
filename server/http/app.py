"""Serving remote assistants: streamable HTTP in both protocol eras, and HTTP+SSE for older ones.

There are no sessions: who asks is found out for every request anew. Routes, from the outside in:
admission of connections and bytes (`Room`, `Deadline`), who is no stranger, host and origin, credentials, a
slot, the protocol.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.routes import build_resource_metadata_url
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import AnyHttpUrl
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from rag.access.keys import SEARCH_SCOPE
from rag.corpus import Principal
from rag.errors import BusyError
from server import FORCED
from server.announcement import announce
from server.http.addresses import resource_url, transport_security
from server.http.connections import Patient, Room, places
from server.http.identity import Caller
from server.http.middleware import (
    PROBES,
    ApiKeyHeader,
    Attended,
    Authorized,
    Checked,
    Deadline,
    Followed,
)
from server.http.oauth import metadata_route
from server.http.senders import Senders
from server.http.strangers import Strangers
from server.messages import Answerable
from server.telemetry.logs import note_refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from socket import socket
    from types import FrameType

    from mcp.server.lowlevel import Server
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.authentication import AuthenticationBackend, AuthenticationError
    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from rag.config.settings import Settings
    from server.admission import Admission
    from server.http.refusals import Refusals
    from server.lazy_desk import OpeningDesk

MAX_BODY_BYTES = 1 << 20
DRAIN_SECONDS = 10
KEEP_ALIVE_SECONDS = 15
BACKLOG = 512  # connections that are let in at once: less than there is room for, so that each gets a hearing
MAX_STREAMS, MAX_STREAMS_OF_USER = 100, 25  # of a tenant and of each of its users, over HTTP+SSE
SSE_PATH, MESSAGES_PATH = "/sse", "/messages/"


class Endpoint:
    """The one POST endpoint for both protocol eras, without sessions."""

    def __init__(
        self, server: Server[Any], security: TransportSecuritySettings, admission: Admission
    ) -> None:
        self._manager = StreamableHTTPSessionManager(
            server,
            json_response=True,  # there is nothing to tell before the answer
            stateless=True,
            security_settings=security,
            max_request_body_size=MAX_BODY_BYTES,
        )
        self._attended = Attended(Answerable(self._manager.handle_request, MAX_BODY_BYTES))
        self._admission = admission

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As long as requests are served."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        try:
            self._admission.check(asker(scope))
        except BusyError as error:
            await busy(error)(scope, receive, send)
            return
        await self._attended(scope, receive, send)


def asker(scope: Scope) -> Principal:
    """Whose request this is, as far as slots go."""
    token = getattr(scope.get("user"), "access_token", None)
    return token.principal if isinstance(token, Caller) else Principal("")


def busy(error: BusyError, *, close: bool = False) -> Response:
    """The answer to a request for which there is no room; with `close`, not even for its connection."""
    note_refusal(str(error))
    headers = {"Retry-After": str(error.retry_seconds)} | ({"Connection": "close"} if close else {})
    return JSONResponse({"error": "busy", "error_description": str(error)}, status_code=429, headers=headers)


class Sse:
    """The stream of HTTP+SSE. Requests come by POST, each with its own credentials."""

    def __init__(self, server: Server[Any], transport: SseServerTransport, admission: Admission) -> None:
        self._server = server
        self._transport = transport
        self._admission = admission
        self._open: Counter[tuple[str, ...]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection until its client, or this process, leaves; each has only so many."""
        who = asker(scope)
        limits = {(who.tenant,): MAX_STREAMS, (who.tenant, who.user or ""): MAX_STREAMS_OF_USER}
        for one, most in limits.items():
            if self._open[one] >= most:
                await busy(BusyError(f"{most} streams are open already."), close=True)(scope, receive, send)
                return
        self._open.update(limits.keys())
        try:
            await self._serve(scope, receive, send)
        finally:
            self._open.subtract(limits.keys())
            self._open = +self._open  # forgets who has none

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leave, tasks.cancel_scope)
            async with self._transport.connect_sse(scope, receive, send) as (read, write):
                await self._server.run(read, write, self._server.create_initialization_options())
            tasks.cancel_scope.cancel()
        with suppress(RuntimeError):  # it was complete
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _leave(self, connection: anyio.CancelScope) -> None:
        """End a stream that has no end when the process leaves, and what runs is answered."""
        await self._admission.drained()
        connection.cancel()


def http_app(
    server: Server[Any],
    opening: OpeningDesk,
    settings: Settings,
    backend: AuthenticationBackend,
    admission: Admission,
    refusals: Refusals,
) -> Starlette:
    """The routes, and what a request passes before it comes to one."""
    http, security = settings.http, transport_security(settings.http)
    endpoint = Endpoint(server, security, admission)
    resource = AnyHttpUrl(resource_url(http))
    metadata = str(build_resource_metadata_url(resource)) if "oauth" in http.authentication else ""

    def guarded(app: ASGIApp) -> ASGIApp:
        return Authorized(app, SEARCH_SCOPE, metadata)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_request: Request) -> Response:
        return PlainTextResponse("ready") if opening.ready else PlainTextResponse("not ready", 503)

    routes: list[BaseRoute] = [
        Route(http.path, guarded(endpoint)),
        *(Route(path, probe) for path, probe in zip(PROBES, (healthz, readyz), strict=True)),
    ]
    if metadata:
        routes.append(metadata_route(resource_url(http), http.path, settings.oauth.issuer))
    if http.sse:
        transport = SseServerTransport(MESSAGES_PATH, security, MAX_BODY_BYTES)
        routes.append(Route(SSE_PATH, guarded(Sse(server, transport, admission)), methods=["GET"]))
        messages = Answerable(transport.handle_post_message, MAX_BODY_BYTES)
        routes.append(Mount(MESSAGES_PATH, guarded(messages)))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with endpoint.running(), anyio.create_task_group() as tasks:
            opening.answered.set()
            tasks.start_soon(opening.warm_up)
            tasks.start_soon(refusals.summed_up)
            yield
            tasks.cancel_scope.cancel()
        await opening.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(Followed, Senders(http.trusted_proxies), refusals),
            Middleware(ApiKeyHeader),
            Middleware(Strangers, settings.limits.failures_per_minute),
            Middleware(Checked, security),
            Middleware(Deadline, settings.limits.receive_seconds),
            Middleware(AuthenticationMiddleware, backend=backend, on_error=_unavailable),
            Middleware(AuthContextMiddleware),
        ],
    )
    app.router.redirect_slashes = False  # to http:// behind a proxy; and tokens are for one address
    return app


class HttpServer(uvicorn.Server):
    """Leaves in order at the first signal, with exit code 0, and at once at the second."""

    def __init__(self, config: uvicorn.Config, admission: Admission) -> None:
        super().__init__(config)
        self._admission = admission

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 uvicorn's signature
        """Stop accepting and finish what runs; streams without an end are ended."""
        if self.should_exit:
            os._exit(FORCED)
        self.should_exit = True
        self._admission.leaving.set()


async def serve(
    app: Starlette, listener: socket, settings: Settings, admission: Admission, refusals: Refusals
) -> None:
    """Serve until a signal comes; what runs then has ten seconds."""
    announce(settings)
    # It logs each refusal with what the client wrote; ours are summed up.
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)
    limits = settings.limits
    room = Room(places(), limits.connections_per_address, Senders(settings.http.trusted_proxies), refusals)
    # It cuts streams off within half a second of a signal.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]  # theirs
    config = uvicorn.Config(
        app,
        http=type("Protocol", (Patient,), {"seconds": limits.receive_seconds, "room": room}),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # whoever sends garbage could else fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=BACKLOG,
    )
    await HttpServer(config, admission).serve([listener])


def _unavailable(_connection: HTTPConnection, error: AuthenticationError) -> Response:
    note_refusal(str(error))
    body = {"error": "temporarily_unavailable", "error_description": str(error)}
    return JSONResponse(body, status_code=503, headers={"Retry-After": "30"})
