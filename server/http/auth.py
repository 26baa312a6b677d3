"""Authentication: which credentials are accepted, and whose they are. Tokens are verified in `oauth`.

A browser signs in to the pages of passages by OAuth's authorization code with PKCE, as a public client. The
issuer's token stays in a cookie that the browser sends only to the pages. `page_cookie` makes it the token of
the request, which is verified, limited and audited like any other. So there are no sessions here, and any
replica can answer. When the token has expired, the browser goes to the issuer again.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

import anyio
import httpx2
from anyio import to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken, TokenVerifier
from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from rag.access.keys import (
    KEYS,
    PREFIX,
    SEARCH_SCOPE,
    ApiKey,
    Keys,
    are_equal,
    cookie_values,
    holder_of,
    keys_file,
    parsed_keys,
    read_keys,
)
from rag.access.tenants import LocalAsker
from rag.config.server_settings import is_tamper_proof, resource_url, sse_url
from rag.config.settings import Settings
from rag.errors import ConfigurationError, NotFoundError, ProviderError, StoreError
from rag.home import Bucket, Home, data_folder_problem
from rag.models import web_client
from rag.uris import CITED, PASSAGE_PAGES, split_citation
from server.call_audit import note_caller, note_refusal
from server.http.clients import Caller
from server.http.oauth import MAX_ANSWER_BYTES, GroupsMatter, JwtVerifier, missing_scope, requested_scopes
from server.http.passage_pages import ROUTE, PassagePages, refusal
from server.lazy_desk import LazyDesk

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send


log = logging.getLogger(__name__)

KEY_ID = re.compile(r"[0-9a-f]{8}")


class NoAuthentication(AuthenticationBackend):
    """Every request is the configured local user's. Only allowed on a loopback address."""

    def __init__(self, asker: LocalAsker) -> None:
        self._asker = asker

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser]:  # noqa: ARG002 as the SDK calls it
        """The local user, whatever the request carries.

        Raises:
            AuthenticationError: the data folder has appeared since the start, and lacks the settings' tenant.
        """
        try:
            principal = self._asker.principal()
        except ConfigurationError as error:
            raise AuthenticationError(str(error)) from error
        scopes = [SEARCH_SCOPE]
        caller = Caller(token="", client_id="local", scopes=scopes, principal=principal, kind="local")
        return AuthCredentials(scopes), AuthenticatedUser(caller)


class AuditedBearer(BearerAuthBackend):
    """Bearer authentication that tells the audit who the caller is."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        """The caller; None if the request has no valid credentials."""
        authenticated: tuple[AuthCredentials, AuthenticatedUser] | None = await super().authenticate(conn)
        caller = authenticated[1].access_token if authenticated else None
        if isinstance(caller, Caller):
            note_caller(caller.audit_fields)
        else:
            note_refusal("no valid credentials")
        return authenticated


class BearerVerifier(TokenVerifier):
    """API keys and OAuth tokens, whichever `http.authentication` accepts."""

    def __init__(self, settings: Settings, groups_matter: GroupsMatter) -> None:
        accepted, resource = settings.http.authentication, resource_url(settings.http)
        self._keys = KeyVerifier(settings.home, resource) if "keys" in accepted else None
        self._tokens = (
            JwtVerifier(settings.oauth, resource, groups_matter, sse_url(settings.http))
            if "oauth" in accepted
            else None
        )

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller; None if the credentials are not valid.

        Raises:
            AuthenticationError: the keys or the issuer can't be reached just now.
        """
        verifier = self._keys if token.startswith(f"{PREFIX}_") else self._tokens
        if verifier is None:
            note_refusal("credentials of this kind are not accepted")
        try:
            return await verifier.verify_token(token) if verifier else None
        # Neither is None, which means 401: a client would throw away credentials that may be valid.
        except ProviderError as error:
            raise AuthenticationError(str(error)) from error
        except StoreError as error:
            log.error("No API key can be checked: %s", error)  # noqa: TRY400 the message says it all
            raise AuthenticationError(error.for_caller) from error


class KeyVerifier(TokenVerifier):
    """API keys. The key file is read again whenever it has changed, so that a revoked key fails at once.

    In a bucket, a revoked key fails after the bucket's `consistency_seconds`, and no key is valid while the
    bucket can't be read (fail closed).
    """

    def __init__(self, home: Home, resource: str) -> None:
        self._home = home
        self._resource = resource
        self._keys = Keys()
        self._version: object = None

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller; None if the key is unknown, revoked or expired."""
        keys = await self._current()
        key = holder_of(token, keys)
        if key is None:
            note_refusal(_why_invalid(token, keys))
            return None
        return Caller(
            token="",
            client_id=key.id,
            scopes=list(key.scopes),
            expires_at=int(key.expires_at.timestamp()),
            resource=self._resource,
            subject=key.id,
            claims={"iss": "refdesk"},
            principal=key.principal,
            kind="key",
        )

    async def _current(self) -> Sequence[ApiKey]:
        """The present keys; none while the file can't be trusted."""
        version, keys = await self._keys_source()
        if version != self._version:
            try:
                self._keys = keys()
            except ConfigurationError as error:
                log.error("No API key is accepted: %s", error)  # noqa: TRY400 the message says it all
                self._keys = Keys()  # fail closed: a key may have been revoked since the last valid file
            self._version = version
        return self._keys.keys

    async def _keys_source(self) -> tuple[object, Callable[[], Keys]]:
        """A value that changes with the key file, and a function that reads the keys."""
        if isinstance(self._home, Bucket):
            content = await to_thread.run_sync(self._home.read, KEYS)
            return content, partial(parsed_keys, content, f"{self._home}/{KEYS}")
        file = keys_file(self._home)
        try:
            status = os.stat(file)  # noqa: PTH116 on every request
            # With mode and owner: a file that others may write since then isn't trusted any more.
            version = (status.st_mtime_ns, status.st_ino, status.st_mode, status.st_uid)
        except FileNotFoundError:
            if problem := data_folder_problem(self._home):  # an unmounted drive isn't a desk without keys
                raise StoreError(problem) from None
            version = None
        return version, partial(read_keys, file)


def _why_invalid(token: str, keys: Sequence[ApiKey]) -> str:
    """Why a key is not valid, for the audit. It names the key's id if there is one, never the secret."""
    if expired := holder_of(token, keys, datetime.min.replace(tzinfo=UTC)):
        return f"the key {expired.id} has expired"
    id_ = token.split("_")[1]
    if any(key.id == id_ for key in keys):
        return f"invalid key: {id_} has another secret"
    return f"invalid key: {id_} is unknown or revoked" if KEY_ID.fullmatch(id_) else "invalid key"


def auth_backend(settings: Settings, groups_matter: GroupsMatter) -> AuthenticationBackend:
    """The backend for the configured methods. A new method is a `TokenVerifier` in `BearerVerifier`.

    Raises:
        ConfigurationError: authentication is off, and the tenant of the settings doesn't exist.
    """
    if not settings.http.authentication:
        asker = LocalAsker(settings)
        asker.principal()  # fails for a wrong tenant
        return NoAuthentication(asker)
    verifier = BearerVerifier(settings, groups_matter)
    return AuditedBearer(verifier, resource_server_url=AnyHttpUrl(resource_url(settings.http)))


def groups_matter_check(settings: Settings, lazy_desk: LazyDesk) -> GroupsMatter:
    """Groups matter to a tenant if an access rule (for all tenants) or one of its sources names one."""
    entries = [entry for rule in settings.access.rules for entry in (*rule.allow, *rule.deny)]
    by_rule = any(entry.startswith("group:") for entry in entries)

    async def groups_matter(tenant: str) -> bool:
        return by_rule or await (await lazy_desk.desk()).names_groups(tenant)

    return groups_matter


BACK = PASSAGE_PAGES + "/sign-in"
TOKEN = "__Secure-refdesk-token"  # noqa: S105 a cookie's name
BEGUN = "__Secure-refdesk-sign-in-"  # plus the beginning of the state: several tabs may sign in at once
STATE_CHARS = 8
BEGUN_SECONDS = 600  # for a person to sign in at the issuer
ANSWER_SECONDS = 5  # for the issuer to answer
COOLDOWN_SECONDS = 30  # between two attempts to fetch its metadata
MOST_COOKIE_CHARS = 4000  # browsers keep 4096 bytes, with the name and the attributes
DISCOVERY = "/.well-known/openid-configuration"
NO_ISSUER = "The identity provider can't be reached. Try again later."
NOT_BEGUN = "This sign-in was begun in another browser, or too long ago. Open the citation's address again."
NOT_GIVEN = "The identity provider didn't sign you in. Open the citation's address again."
NOT_ACCEPTED = "You are signed in at the identity provider, but its token isn't accepted here. {}"
TOO_LARGE = "Its token is too large for a cookie. The operator can have the issuer send fewer claims."
ASK_OPERATOR = "The operator's log has the reason."


class PageSignIn:
    """The routes of the pages: a passage for a signed-in person, and the redirect back from the issuer."""

    def __init__(self, pages: PassagePages, settings: Settings, backend: AuthenticationBackend) -> None:
        self._pages = pages
        self._oauth = settings.oauth
        self._back = settings.http.public_url + BACK
        self._resource = resource_url(settings.http)
        self._backend = backend
        self._endpoints: tuple[str, str] | None = None
        self._discovering, self._tried_at = anyio.Lock(), float("-inf")
        # Shared, because its certificates take 80 ms.
        self._client = web_client.client(max_bytes=MAX_ANSWER_BYTES, timeout=ANSWER_SECONDS)

    @property
    def routes(self) -> list[Route]:
        """The redirect's route comes first: the other one would take it for a passage."""
        return [
            Route(BACK, self._signed_in, methods=["GET"]),
            Route(ROUTE, self._show, methods=["GET"]),
        ]

    async def _show(self, request: Request) -> Response:
        id_ = request.path_params["id"]
        try:
            split_citation(id_)  # refuses anything but an id before the sign-in
            if SEARCH_SCOPE in request.auth.scopes:
                return await self._pages.show(request, [request.user.access_token.principal])
            return await self._begin(id_)
        except NotFoundError as error:
            return refusal(HTTPStatus.NOT_FOUND, str(error))
        except ProviderError as error:
            return _unavailable(error)

    async def _begin(self, id_: str) -> Response:
        address, _ = await self._issuer_endpoints()
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code",
            "client_id": self._oauth.page_client,
            "redirect_uri": self._back,
            "scope": requested_scopes(self._oauth),
            "resource": self._resource,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        reply = RedirectResponse(f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}", 303)
        begun = f"{state}.{verifier}.{quote(id_, safe='')}"
        _set_cookie(reply, BEGUN + state[:STATE_CHARS], begun, BEGUN_SECONDS)
        return reply

    async def _signed_in(self, request: Request) -> Response:
        """Exchange the issuer's code for a token, and go on to the passage. HEAD requests use up no code."""
        if request.method == "HEAD":
            return Response()
        state, code = request.query_params.get("state", ""), request.query_params.get("code", "")
        name = BEGUN + state[:STATE_CHARS]
        for begun in cookie_values(request.headers.getlist("cookie"), name):
            begun_state, _, rest = begun.partition(".")
            if are_equal(state, begun_state):  # otherwise somebody else's sign-in would become this browser's
                reply = await self._after(code, *rest.partition(".")[::2])
                reply.delete_cookie(name, path=PASSAGE_PAGES, secure=True, httponly=True)
                return reply
        return refusal(HTTPStatus.FORBIDDEN, NOT_BEGUN)

    async def _after(self, code: str, verifier: str, quoted_id: str) -> Response:
        try:
            id_ = unquote(quoted_id)
            split_citation(id_)  # the cookie could be forged
            return await self._exchange(code, verifier, id_)
        except NotFoundError:
            return refusal(HTTPStatus.FORBIDDEN, NOT_BEGUN)
        except ProviderError as error:
            return _unavailable(error)

    async def _exchange(self, code: str, verifier: str, id_: str) -> Response:
        """A redirect to the passage, with the token for the code in a cookie; or a page with the refusal."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back,
            "client_id": self._oauth.page_client,
            "code_verifier": verifier,
            "resource": self._resource,
        }
        _, address = await self._issuer_endpoints()
        token = (await self._ask("POST", address, form)).get("access_token") if code else None
        if not isinstance(token, str):
            return refusal(HTTPStatus.FORBIDDEN, NOT_GIVEN)
        if len(token) > MOST_COOKIE_CHARS:
            return refusal(HTTPStatus.FORBIDDEN, NOT_ACCEPTED.format(TOO_LARGE))
        caller = None if token.startswith(PREFIX) else await self._caller(token)
        if caller is None or SEARCH_SCOPE not in caller.scopes:
            reason = caller.refusal or missing_scope(self._oauth) if caller else ASK_OPERATOR
            return refusal(HTTPStatus.FORBIDDEN, NOT_ACCEPTED.format(reason))
        reply = RedirectResponse(f"{PASSAGE_PAGES}/{quote(id_, safe='/@')}#{CITED}", 303)
        _set_cookie(reply, TOKEN, token, None)
        return reply

    async def _caller(self, token: str) -> Caller | None:
        """Whose token it is; None if it isn't valid."""
        headers = [(b"authorization", b"Bearer " + token.encode("ascii", "replace"))]
        try:
            authenticated = await self._backend.authenticate(
                HTTPConnection({"type": "http", "headers": headers})
            )
        except AuthenticationError as error:
            raise ProviderError(str(error)) from error
        caller = getattr(authenticated[1], "access_token", None) if authenticated else None
        return caller if isinstance(caller, Caller) else None

    async def _issuer_endpoints(self) -> tuple[str, str]:
        """The addresses at which the issuer signs people in, and gives tokens for codes."""
        async with self._discovering:
            if self._endpoints is None:
                if time.monotonic() - self._tried_at < COOLDOWN_SECONDS:
                    raise ProviderError("The issuer's metadata could not be fetched a moment ago.")
                self._tried_at = time.monotonic()  # before the answer: a failed attempt counts, too
                self._endpoints = await self._discovered()
        return self._endpoints

    async def _discovered(self) -> tuple[str, str]:
        document = await self._ask("GET", self._oauth.issuer.rstrip("/") + DISCOVERY)
        addresses = [document.get(name) for name in ("authorization_endpoint", "token_endpoint")]
        authorization, token = (address if isinstance(address, str) else "" for address in addresses)
        if document.get("issuer") != self._oauth.issuer or not (
            is_tamper_proof(authorization) and is_tamper_proof(token)
        ):
            raise ProviderError("The issuer's metadata is of another issuer, or has no https addresses.")
        return authorization, token

    async def _ask(
        self, method: str, address: str, form: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                answer = await self._client.request(method, address, data=form)
                document = answer.json()
        except (httpx2.HTTPError, TimeoutError, ValueError) as error:
            # Other messages may quote the issuer.
            why = error if isinstance(error, web_client.UnreachableError) else type(error).__name__
            raise ProviderError(f"The issuer doesn't answer at {address}: {why}.") from error
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or not isinstance(document, dict):
            raise ProviderError(f"The issuer failed at {address} with status {answer.status_code}.")
        if "error" in document:
            log.warning("The issuer refused a sign-in: %.64r", document["error"])
        return document


def page_cookie(app: ASGIApp) -> ASGIApp:
    """Middleware that takes the token of a request for a page from its cookie, and ignores API keys."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{PASSAGE_PAGES}/"):
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            cookies = Headers(scope=scope).getlist("cookie")
            token = next(cookie_values(cookies, TOKEN), "").encode("ascii", "replace")
            if token and not token.startswith(PREFIX.encode()):
                headers.append((b"authorization", b"Bearer " + token))
            scope = {**scope, "headers": headers}
        await app(scope, receive, send)

    return serve


def _set_cookie(reply: Response, name: str, value: str, seconds: int | None) -> None:
    """Set a cookie for the pages only; "lax", because a page of another site may link to a citation."""
    reply.set_cookie(name, value, seconds, path=PASSAGE_PAGES, secure=True, httponly=True, samesite="lax")


def _unavailable(error: Exception) -> HTMLResponse:
    log.warning("Nobody can sign in to the pages: %s", error)
    return refusal(HTTPStatus.SERVICE_UNAVAILABLE, NO_ISSUER)
