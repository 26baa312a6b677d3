"""The HTTP application: streamable HTTP in both protocol eras, and HTTP+SSE for older clients.

There are no sessions: every request is authenticated on its own. `http_app` lists the middleware from the
outside in; README.md in `server/` explains the order. When it starts, the log says where it listens, who may
use it, and what looks misconfigured.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import uvicorn
from anyio import to_thread
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.routes import build_resource_metadata_url
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from rag.access.keys import keys_in
from rag.access.tenants import tenants
from rag.config.server_settings import LOOPBACK, SSE_PATH, HttpSettings, own_url, resource_url, sse_url
from rag.config.settings import Settings
from rag.errors import BusyError, ConfigurationError, StoreError
from rag.uris import STANDARD_PORTS
from server import ENDING, EXIT_FORCED
from server.admission import Admission
from server.call_audit import RefusalLog, note_refusal
from server.http import clients, middleware
from server.http.auth import page_cookie
from server.http.oauth import metadata_route
from server.lazy_desk import LazyDesk
from server.mcp_apps import DECLARED, SESSION, SESSION_HEADER
from server.stdio import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.authentication import AuthenticationBackend, AuthenticationError
    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def listen(settings: HttpSettings) -> socket.socket:
    """A socket bound to the server's address.

    Raises:
        ConfigurationError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it small replies are late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would let other programs bind the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot bind {settings.host}:{settings.port} (http.host, http.port): {error.strerror}. "
            "Set another with --host or --port."
        ) from error
    return listener


def transport_security(settings: HttpSettings) -> TransportSecuritySettings:
    """The hosts and origins that requests may name, with their ports, in lower case."""
    port = settings.port
    reachable = (
        [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        if settings.host in LOOPBACK
        else []
    )
    address = urlsplit(settings.public_url)
    public = [address.netloc] if address.netloc else []
    if public and address.port is None:
        # Proxies may add it (nginx: proxy_set_header Host $host:$server_port).
        public.append(f"{address.netloc}:{STANDARD_PORTS[address.scheme]}")
    return TransportSecuritySettings(
        allowed_hosts=[host.lower() for host in (*reachable, *public, *settings.allowed_hosts)],
        allowed_origins=[
            *(f"http://{host}" for host in reachable),
            *([settings.public_url.lower()] if settings.public_url else []),
            *settings.allowed_origins,
        ],
    )


ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 only compared with
NO_HOST = (
    "Every request will be refused with status 421: no host name of this server is configured. "
    'Set http.public_url = "https://NAME", or http.allowed_hosts = ["NAME:PORT"].'
)
NO_KEY = (
    "No API key is valid, so every request will be refused with status 401. Create one with "
    "refdesk-admin key create; no restart is needed."
)
NO_PROXY = (
    "http.public_url implies a proxy, but http.trusted_proxies doesn't name it. So limits can't tell its "
    "clients apart, and the audit sees only the proxy's address. Set http.trusted_proxies."
)

log = logging.getLogger("refdesk.start")


def announce(settings: Settings) -> None:
    """Log the startup messages, whatever the log level."""
    for level, message in _messages(settings):
        log.log(level, "%s", message)


def _messages(settings: Settings) -> Iterator[tuple[int, str]]:
    http, hosts = settings.http, transport_security(settings.http).allowed_hosts
    yield logging.INFO, f"refdesk listens on {own_url(http)}{http.path}, {_reachability(http)}."
    yield logging.INFO, _accepted_clients(settings)
    try:
        yield from _holdings(settings)
    except StoreError as error:  # the bucket may answer later
        yield logging.WARNING, str(error)
    if hosts:
        host_names = ", ".join(hosts)
        yield logging.INFO, f"Allowed Host headers: {host_names}. Others are refused with status 421."
    else:
        yield logging.WARNING, NO_HOST
    if http.trusted_proxies:
        proxies = ", ".join(http.trusted_proxies)
        yield logging.INFO, f"X-Forwarded-For is trusted from these proxies: {proxies}."
    elif http.public_url:
        yield logging.WARNING, NO_PROXY
    if http.metrics_port:
        yield (
            logging.INFO,
            f"Health and metrics: http://127.0.0.1:{http.metrics_port}, from this machine only.",
        )


def _holdings(settings: Settings) -> Iterator[tuple[int, str]]:
    if tenant_names := tenants(settings.home):
        owner = f"the tenant {tenant_names[0]}" if len(tenant_names) == 1 else f"{len(tenant_names)} tenants"
        yield logging.INFO, f"It serves the documents of {owner} in {settings.home}."
    if "keys" in settings.http.authentication:
        yield _valid_keys(settings)


def _reachability(http: HttpSettings) -> str:
    if http.host in LOOPBACK:
        return "reachable from this machine only"
    if http.host in ANYWHERE:
        return "reachable from every network of this machine"
    return "reachable from other machines"


def _valid_keys(settings: Settings) -> tuple[int, str]:
    """The number of valid keys. None is only a warning, because servers see new keys at once."""
    now = datetime.now(UTC)
    count = sum(key.expires_at > now for key in keys_in(settings.home).keys)
    if count or "oauth" in settings.http.authentication:
        return logging.INFO, f"Valid API keys: {count}."
    return logging.WARNING, NO_KEY


def _accepted_clients(settings: Settings) -> str:
    http, principal = settings.http, settings.principal
    if not http.authentication:
        user = f"the user {principal.user!r}" if principal.user else "a user without a name"
        return f"No authentication: everybody who reaches the server searches as {user}."
    audience = settings.oauth.audience or resource_url(http)
    accepted = {
        "keys": "an API key (refdesk-admin key create)",
        "oauth": f"a token issued by {settings.oauth.issuer} for {audience}",
    }
    return f"Clients must send {' or '.join(accepted[method] for method in http.authentication)}."


DRAIN_SECONDS = 10
KEEP_ALIVE_SECONDS = 15
BACKLOG = 512  # below the connection limit: a burst waits here and is not refused
MAX_STREAMS_PER_TENANT, MAX_STREAMS_PER_USER = 100, 25  # over HTTP+SSE
MESSAGES_PATH = "/messages/"


class McpEndpoint:
    """The POST endpoint of streamable HTTP, for both protocol eras and without sessions.

    Its `manager`, the SDK's, must run meanwhile.
    """

    def __init__(
        self, server: Server[Any], security: TransportSecuritySettings, admission: Admission
    ) -> None:
        self.manager = StreamableHTTPSessionManager(
            server,
            json_response=True,  # nothing to stream: a request has one reply and no progress
            stateless=True,
            security_settings=security,
            max_request_body_size=MAX_MESSAGE_BYTES,
        )
        checked = middleware.json_rpc_check(apps_session(self.manager.handle_request))
        self._app = middleware.cancel_on_disconnect(checked)
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a POST request, or reject it early: before its body is read."""
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        try:
            self._admission.check(clients.scope_principal(scope))
        except BusyError as error:
            await _too_many(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _too_many(error: BusyError, *, close: bool = False) -> Response:
    note_refusal(str(error))
    return clients.busy_response(str(error), error.retry_seconds, close=close)


class SseEndpoint:
    """The event stream of HTTP+SSE. Requests arrive by POST, each with its own credentials."""

    def __init__(self, server: Server[Any], transport: SseServerTransport, admission: Admission) -> None:
        self._server = server
        self._transport = transport
        self._admission = admission
        self._open: Counter[tuple[str, ...]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream until its client disconnects or this process shuts down."""
        principal = clients.scope_principal(scope)
        limits = {
            (principal.tenant,): MAX_STREAMS_PER_TENANT,
            (principal.tenant, principal.user or ""): MAX_STREAMS_PER_USER,
        }
        for owner, limit in limits.items():
            if self._open[owner] >= limit:
                error = BusyError(f"{limit} streams are open already. Close one and try again.")
                await _too_many(error, close=True)(scope, receive, send)
                return
        self._open.update(limits.keys())
        try:
            await self._serve(scope, receive, send)
        finally:
            self._open.subtract(limits.keys())
            self._open = +self._open  # drops zero counts

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_at_shutdown, tasks.cancel_scope)
            async with self._transport.connect_sse(scope, receive, send) as (read, write):
                await self._server.run(read, write, self._server.create_initialization_options())
            tasks.cancel_scope.cancel()
        with suppress(RuntimeError):  # the reply is already complete
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_at_shutdown(self, stream: anyio.CancelScope) -> None:
        """End the stream once every request is answered; uvicorn would wait for it until its own deadline."""
        await self._admission.drained()
        stream.cancel()


def http_app(
    server: Server[Any],
    lazy_desk: LazyDesk,
    settings: Settings,
    backend: AuthenticationBackend,
    admission: Admission,
    refusal_log: RefusalLog,
) -> Starlette:
    """The routes, and the middleware that every request passes first."""
    http, security = settings.http, transport_security(settings.http)
    endpoint = McpEndpoint(server, security, admission)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with endpoint.manager.run(), anyio.create_task_group() as tasks:
            lazy_desk.first_reply.set()  # no host is waiting: open the desk at once
            lazy_desk.listed.set()
            tasks.start_soon(lazy_desk.warm_up)
            tasks.start_soon(refusal_log.flush_every_second)
            yield
            tasks.cancel_scope.cancel()
        await lazy_desk.close()

    app = Starlette(
        routes=_routes(server, endpoint, lazy_desk, settings, admission),
        lifespan=lifespan,
        exception_handlers={404: partial(_nothing_here, resource_url(http))},
        middleware=[  # from the outside in
            Middleware(
                middleware.request_tracking, clients.AddressResolver(http.trusted_proxies), refusal_log
            ),
            Middleware(middleware.cross_origin, http.allowed_origins, security),
            Middleware(middleware.api_key_header),
            *([Middleware(page_cookie)] if settings.oauth.page_client else []),
            Middleware(clients.FailureLimit, settings.limits.failures_per_minute),  # a guess costs no check
            Middleware(middleware.host_check, security),
            Middleware(middleware.body_timeout, settings.limits.receive_seconds),
            Middleware(AuthenticationMiddleware, backend=backend, on_error=_unavailable),
            Middleware(AuthContextMiddleware),
        ],
    )
    app.router.redirect_slashes = False  # behind a proxy, to http://; and tokens are for one address
    return app


def _routes(
    server: Server[Any], endpoint: McpEndpoint, lazy_desk: LazyDesk, settings: Settings, admission: Admission
) -> list[BaseRoute]:
    """The addresses of the protocol, of the metadata for OAuth, and of the probes."""
    http, security = settings.http, transport_security(settings.http)
    resource, sse = resource_url(http), sse_url(http)
    has_oauth = "oauth" in http.authentication

    def authorized(app: ASGIApp, url: str = resource) -> ASGIApp:
        metadata = str(build_resource_metadata_url(AnyHttpUrl(url))) if has_oauth else ""
        return middleware.RequireScope(app, metadata, settings.oauth)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_request: Request) -> Response:
        ready = await to_thread.run_sync(lambda: lazy_desk.ready)  # a network drive may hang
        return PlainTextResponse("ready") if ready else PlainTextResponse("not ready", 503)

    routes: list[BaseRoute] = [
        Route(http.path, authorized(endpoint)),
        *(Route(path, probe) for path, probe in zip(middleware.PROBES, (healthz, readyz), strict=True)),
    ]
    for path, url in {http.path: resource, SSE_PATH: sse}.items() if has_oauth else ():
        if url:
            routes.append(metadata_route(url, path, settings.oauth, settings.server.title))
    if sse:
        transport = SseServerTransport(MESSAGES_PATH, security, MAX_MESSAGE_BYTES)
        stream = authorized(SseEndpoint(server, transport, admission), sse)
        routes.append(Route(SSE_PATH, stream, methods=["GET"]))
        messages = middleware.json_rpc_check(transport.handle_post_message)
        routes.append(Mount(MESSAGES_PATH, authorized(messages, sse)))
    return routes


def _nothing_here(address: str, _request: Request, _error: Exception) -> Response:
    return PlainTextResponse(f"Nothing is here. MCP clients connect to {address}.", 404)


class HttpServer(uvicorn.Server):
    """Shuts down gracefully at the first signal, with exit code 0, and at once at the second."""

    def __init__(self, config: uvicorn.Config, admission: Admission) -> None:
        super().__init__(config)
        self._admission = admission

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 uvicorn's signature
        """Stop accepting connections and let requests finish; event streams end after the last request."""
        if self.should_exit:
            os._exit(EXIT_FORCED)
        self.should_exit = True
        self._admission.shutting_down.set()


async def serve(
    app: Starlette, listener: socket.socket, settings: Settings, admission: Admission, refusal_log: RefusalLog
) -> None:
    """Serve until a signal arrives; then running requests have ten seconds to finish."""
    announce(settings)
    # The SDK logs each refused host with what the client wrote; `RefusalLog` sums refusals up.
    logging.getLogger("mcp.server.transport_security").setLevel(logging.ERROR)
    limits = settings.limits
    resolver = clients.AddressResolver(settings.http.trusted_proxies)
    connections = clients.ConnectionLimit(
        clients.max_connections(), limits.connections_per_address, resolver, refusal_log
    )
    # By default sse-starlette cuts streams off within half a second of a signal, replies and all.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]  # theirs
    config = uvicorn.Config(
        app,
        http=type(
            "Protocol",
            (clients.SlowClientProtocol,),
            {"seconds": limits.receive_seconds, "limit": connections},
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # otherwise anybody could fill the log with invalid requests
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=BACKLOG,
    )
    http_server = HttpServer(config, admission)
    for number in ENDING:  # uvicorn itself knows no SIGHUP
        signal.signal(number, http_server.handle_exit)
    await http_server.serve([listener])


def _unavailable(_connection: HTTPConnection, error: AuthenticationError) -> Response:
    """The 503 for a request whose credentials can't be verified just now."""
    note_refusal(str(error))
    body = {"error": "temporarily_unavailable", "error_description": str(error)}
    return JSONResponse(body, status_code=503, headers={"Retry-After": "30"})


# Clients that show MCP Apps get a session id. Each of their requests repeats it, as a declaration.


def apps_session(app: ASGIApp) -> ASGIApp:
    """Adds the session header to the reply if `initialize` declared the extension (`mcp_apps.SESSION`)."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start" and DECLARED in scope:
                MutableHeaders(scope=message)[SESSION_HEADER] = SESSION
            await send(message)

        await app(scope, receive, marked)

    return serve
