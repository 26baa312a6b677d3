"""ASGI middleware: request ids, hosts, origins, API keys, body timeout, cancellation, scopes, messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from mcp import types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecurityMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from rag.access.keys import SEARCH_SCOPE
from rag.config.server_settings import OAuthSettings
from server.call_audit import RefusalLog, RequestInfo, current_request, note_refusal, refusal_fields
from server.http.clients import AddressResolver, Caller
from server.http.oauth import missing_scope, requested_scopes
from server.stdio import (
    MAX_MESSAGE_BYTES,
    TOO_MANY,
    InvalidMessageError,
    error,
    is_vast,
    read_message,
    with_whole_characters,
)

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER_SCHEMES = frozenset({"basic", "digest", "negotiate", "token", "apikey", "dpop"})
WRONG_HOST = 421
ALLOWED_BY = {"host": "http.public_url or http.allowed_hosts", "origin": "http.allowed_origins"}
HOST = re.compile(r"[A-Za-z0-9._:/\[\]-]{1,200}")  # or an origin
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CREDENTIALS = (b"authorization", b"x-api-key")
CREDENTIALS_DIFFER = "refdesk.credentials_differ"
"""The key in the scope of an HTTP request whose headers have different credentials, so that none counts."""
PAGE_METHODS = ("GET", "POST", "DELETE")  # clients end sessions by DELETE: the page must read the 405
PAGE_HEADERS = (
    *("Authorization", "X-API-Key", "Content-Type", "Cache-Control", "Last-Event-ID"),
    *("MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name"),
)
EXPOSED_HEADERS = ("Mcp-Session-Id", "WWW-Authenticate", "Retry-After", "X-Request-ID")
FIRST_ERROR_STATUS = 400
NO_STORE = (b"cache-control", b"no-store")
PROBES = ("/healthz", "/readyz")
"""Health probes, which an orchestrator may send under any host name."""


def request_tracking(app: ASGIApp, resolver: AddressResolver, refusal_log: RefusalLog) -> ASGIApp:
    """Assigns each request its id and its client's address, and audits requests that never became calls.

    The id is the proxy's X-Request-ID or a new one; it is in the reply and in every line of the log. The
    address stands in the scope as `refdesk.client`, and as `client` for the SDK. No reply may be cached.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        id_ = _header(scope, b"x-request-id")
        # Anything else could be a caller's words, and the id stands in each line of the log.
        request = RequestInfo(id_ if REQUEST_ID.fullmatch(id_) else uuid4().hex)
        current_request.set(request)
        client = resolver.of_request(scope)
        scope = {**scope, "client": (client.address, 0), "refdesk.client": client}

        async def track(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    header for header in message.get("headers", ()) if header[0].lower() != NO_STORE[0]
                ]
                headers = [*headers, NO_STORE, (b"x-request-id", request.id.encode())]
                message = {**message, "headers": headers}
                refused = message["status"] >= FIRST_ERROR_STATUS and scope["path"] not in PROBES
                if refused and not request.audited:
                    refusal_log.record(message["status"], client.address, refusal_fields())
            await send(message)

        await app(scope, receive, track)

    return serve


def host_check(app: ASGIApp, security: TransportSecuritySettings) -> ASGIApp:
    """Checks Host and Origin before anything else, against DNS rebinding and cross-site requests."""
    sdk_check = TransportSecurityMiddleware(security)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PROBES:
            # Hosts are case-insensitive, but the SDK compares their case, here and in its own layer. The
            # scope itself is changed, because outer layers also read it.
            scope["headers"] = [
                (name, value.lower() if name == b"host" else value) for name, value in scope["headers"]
            ]
            refused = await sdk_check.validate_request(Request(scope))
            if refused:
                name = "host" if refused.status_code == WRONG_HOST else "origin"
                value = _header(scope, name.encode())
                note_refusal(f"{name} not allowed: {value if HOST.fullmatch(value) else 'not a name'}")
                message = f"Invalid {name.title()} header. The operator can allow it by {ALLOWED_BY[name]}."
                await PlainTextResponse(message, refused.status_code)(scope, receive, send)
                return
        await app(scope, receive, send)

    return serve


def cross_origin(app: ASGIApp, origins: Sequence[str], security: TransportSecuritySettings) -> ASGIApp:
    """Lets pages of the listed origins be clients (CORS). All other requests pass it by.

    It is outside of limits and authentication: browsers send a preflight without credentials, and a page can
    read a refusal only if that has CORS headers, too. Pages send their keys themselves; nothing here lets a
    browser add its own credentials for this host, such as the cookie of `page_cookie`.
    """
    shared = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=PAGE_METHODS,
        allow_headers=PAGE_HEADERS,
        allow_private_network=True,  # a page of the internet that the operator has listed
        expose_headers=EXPOSED_HEADERS,
    )
    checked = host_check(shared, security)  # before a preflight is answered

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        listed = scope["type"] == "http" and _header(scope, b"origin") in origins
        await (checked if listed else app)(scope, receive, send)

    return serve


def api_key_header(app: ASGIApp) -> ASGIApp:
    """Accepts `X-API-Key: …` as `Authorization: Bearer …`, for clients that can't set the latter.

    A header Authorization of another scheme is for another party, such as a proxy with its own login.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        tokens = {token for header in scope.get("headers", ()) if (token := _token(*header))}
        if tokens:
            # Different ones count as none: a proxy in front might check one and we another.
            bearer = [(b"authorization", b"Bearer " + min(tokens))] if len(tokens) == 1 else []
            headers = [header for header in scope["headers"] if header[0] not in CREDENTIALS]
            scope = {**scope, "headers": headers + bearer, CREDENTIALS_DIFFER: not bearer}
            if not bearer:
                note_refusal("several credentials that differ")
        await app(scope, receive, send)

    return serve


def _token(name: bytes, value: bytes) -> bytes:
    """The key or token in a header; empty if there is none."""
    if name == b"x-api-key":
        return value.strip()
    scheme, _, token = value.replace(b"\t", b" ").partition(b" ")
    return token.strip() if name == b"authorization" and scheme.lower() == b"bearer" else b""


def body_timeout(app: ASGIApp, seconds: float) -> ASGIApp:
    """Answers 408 unless the whole body arrives in time (slow POST attacks)."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        deadline, complete = anyio.current_time() + seconds, False

        async def receive_in_time() -> Message:
            nonlocal complete
            if complete:  # the next message is the disconnect, for which there is no deadline
                return await receive()
            with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                message = await receive()
            complete = not message.get("more_body", False)
            return message

        try:
            await app(scope, receive_in_time, send)
        except TimeoutError:
            if complete:
                raise
            await PlainTextResponse("The request took too long to arrive.", 408)(scope, receive, send)

    return serve


def cancel_on_disconnect(app: ASGIApp) -> ASGIApp:
    """Cancels a request whose client has disconnected.

    A client cancels a request over streamable HTTP by closing its connection, in both protocol eras. The SDK
    watches for that only while it streams a reply; ours are single JSON documents.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        complete = anyio.Event()

        async def receive_and_notice_end() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                complete.set()
            return message

        async def watch(serving: anyio.CancelScope) -> None:
            await complete.wait()  # only one task may receive at a time, so wait until the app has the body
            await receive()  # after a complete body, the only message left is the disconnect
            serving.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                await app(scope, receive_and_notice_end, send)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:  # unwrap the app's exception for outer middleware
            raise group.exceptions[0] from None

    return serve


class RequireScope:
    """Answers 401 or 403 unless the caller is authenticated and has the scope of searches.

    It tells clients which scopes to ask for. Where tokens are accepted, `metadata_url` tells them whom. A
    caller whom no scope would help is told why, and not to sign in again. It is a class, because a function
    at a route of Starlette's gets requests.
    """

    def __init__(self, app: ASGIApp, metadata_url: str, oauth: OAuthSettings) -> None:
        self._app = app
        self._metadata = {"resource_metadata": metadata_url} if metadata_url else {}
        self._scope = {"scope": requested_scopes(oauth)}
        self._missing = missing_scope(oauth)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of a caller with the scope; tell others where to get a token."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            description = f"Authentication required: {_credentials_problem(scope)}"
            challenge = self._challenge("invalid_token", description, self._scope)
            body = {"error": "invalid_token", "error_description": description}
            refused: Response = JSONResponse(body, 401, challenge)
        elif SEARCH_SCOPE not in user.scopes:
            reason = user.access_token.refusal if isinstance(user.access_token, Caller) else ""
            if reason:
                challenge = self._challenge("access_denied", reason, {})
            else:
                challenge = self._challenge("insufficient_scope", self._missing, self._scope)
            refused = _message(error(None, types.INVALID_REQUEST, reason or self._missing), 403, challenge)
        else:
            await self._app(scope, receive, send)
            return
        await refused(scope, receive, send)

    def _challenge(self, code: str, description: str, scope: Mapping[str, str]) -> dict[str, str]:
        note_refusal(description)
        parameters = {"error": code, "error_description": description, **scope, **self._metadata}
        values = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
        return {"WWW-Authenticate": f"Bearer {values}"}


def json_rpc_check(app: ASGIApp) -> ASGIApp:
    """Refuses bodies that `stdio.read_message` refuses, and too long ones."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        first: Message | None = await receive()  # the whole body, which the size limit has buffered
        posted = scope["method"] == "POST"  # other methods have no message, and are refused later
        refused = None
        if first and posted:
            body = with_whole_characters(first.get("body", b"").decode("latin-1"))
            first["body"] = body.encode("latin-1")
            refused = _refusal_of(body)
        if refused:
            note_refusal(refused.error.message)
            await _message(refused, 400)(scope, receive, send)
            return

        async def replay() -> Message:
            nonlocal first
            message, first = first, None
            return message or await receive()

        await app(scope, replay, send)

    return RequestBodyLimitMiddleware(check, MAX_MESSAGE_BYTES)


def _message(refused: types.JSONRPCError, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal as a message of the protocol, which clients show to people."""
    body = refused.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(body, status, headers, media_type="application/json")


def _refusal_of(body: str) -> types.JSONRPCError | None:
    """The refusal of a body, whose characters are its bytes."""
    if is_vast(body):
        return error(None, types.INVALID_REQUEST, TOO_MANY)
    try:
        read_message(body.encode("latin-1"))
    except InvalidMessageError as invalid:
        return invalid.answer
    return None


def _credentials_problem(scope: Scope) -> str:
    """What is wrong with a request's credentials, for its sender. The operator's log has the exact reason.

    Only known schemes are named: a client that forgot the scheme has put its key in that place.
    """
    if scope.get(CREDENTIALS_DIFFER):
        return (
            "the request has several keys or tokens in Authorization or X-API-Key, and they differ. Send one."
        )
    header = _header(scope, b"authorization")
    scheme, _, credentials = header.partition(" ")
    if not header:
        return "the request has no header Authorization. Send Authorization: Bearer, with the key or token."
    if scheme.casefold() == "bearer" and credentials.strip().startswith("$"):
        return "the header Authorization names a variable that isn't set. Set it, or send the key."
    if scheme.casefold() == "bearer" and credentials.strip():
        return "the key or token of the request is not valid here."
    scheme_name = f"the scheme {scheme.title()}" if scheme.casefold() in OTHER_SCHEMES else "another scheme"
    if scheme.casefold() == "bearer":
        scheme_name = "the scheme Bearer without a key or token"
    return f"the header Authorization has {scheme_name}. Send Authorization: Bearer, with the key or token."


def _header(scope: Scope, name: bytes) -> str:
    """The first header of this name; empty if the request lacks it."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
