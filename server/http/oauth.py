"""OAuth 2.1: this server is a resource server. It verifies an issuer's tokens and issues none.

A token is a JWT that the issuer has signed for this resource. The keys come from the configured address,
never from the token. Its claims name the tenant, the user and the groups. A client's token for itself names
no user; its principal is in the settings.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import anyio
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rag.access.keys import SEARCH_SCOPE
from rag.access.rule import MAX_ENTRIES
from rag.config.server_settings import OAuthSettings
from rag.corpus import Binding, Principal
from rag.errors import ProviderError, RefdeskError
from rag.models import web_client
from rag.uris import redirect_target
from server.call_audit import note_refusal
from server.http.clients import NOBODY, Caller

if TYPE_CHECKING:
    from starlette.requests import Request


GroupsMatter: TypeAlias = "Callable[[str], Awaitable[bool]]"
"""Whether access to any document of a tenant depends on groups."""

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "ES256", "EdDSA")
TYPES = frozenset({"jwt", "at+jwt"})
"""Types of access tokens. Many issuers give no type, or the type of any JWT."""
FOREIGN_CLAIMS = frozenset({"at_hash", "c_hash", "events"})
"""Claims of ID tokens, logout tokens and other security events, which access tokens never have."""
NOT_IN_HEADERS = re.compile(r"[^ !#-\[\]-~]")  # of RFC 6750's error_description
MAX_TOKEN_CHARS = 8192
LEEWAY_SECONDS = 30  # tolerated difference of the issuer's clock
MAX_LIFETIME_SECONDS = 24 * 3600


class RejectedTokenError(jwt.InvalidTokenError):
    """The token is not valid here; the message is for the operator."""


class IncompleteTokenError(Exception):
    """A valid token that doesn't identify its user; the message tells the user what the issuer must send."""


class UnboundTokenError(Exception):
    """A valid token without any of the scopes that the operator has bound."""


class JwtVerifier(TokenVerifier):
    """Verifies tokens of the configured issuer for this resource, or its address for clients of HTTP+SSE."""

    def __init__(
        self, settings: OAuthSettings, resource: str, groups_matter: GroupsMatter, sse: str = ""
    ) -> None:
        self._settings = settings
        self._resource = resource
        self._audience = [settings.audience] if settings.audience else [*filter(None, (resource, sse))]
        self._groups_matter = groups_matter
        self._keys = SigningKeys(settings.jwks_url)

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller; None if the token is not valid. A token that doesn't identify its user has no scopes.

        Raises:
            ProviderError: the issuer's keys can't be fetched, or the desk can't say whether groups matter.
        """
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            reason = str(error) if isinstance(error, RejectedTokenError) else type(error).__name__
            note_refusal(f"invalid token: {reason}")
            return None
        principal, refusal, scopes = NOBODY, "", list[str]()
        try:
            principal = await self._principal(claims)
            scopes = scopes_of(claims)
        except IncompleteTokenError as error:
            # Without scopes this is a 403: after a 401, the client would only fetch the same token again.
            refusal = NOT_IN_HEADERS.sub("?", str(error))
        except UnboundTokenError:
            pass  # another token of the same client may do
        return Caller(
            token="",
            client_id=client_of(claims) or claims["sub"],
            scopes=scopes,
            expires_at=int(claims["exp"]) + LEEWAY_SECONDS,  # the SDK compares it without any leeway
            resource=self._resource,
            subject=claims["sub"],
            claims={"iss": claims["iss"]},
            principal=principal,
            kind="token",
            refusal=refusal,
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN_CHARS:
            raise RejectedTokenError("it is too long")
        header = jwt.get_unverified_header(token)
        _check_type(header)
        id_ = header.get("kid")
        key = await self._keys.key(id_) if isinstance(id_, str) else None
        # A token must not choose freely: "none" needs no signature, and for HMAC the public key would do.
        if key is None or header.get("alg") not in ALGORITHMS:
            raise RejectedTokenError("it is not signed with a key of the issuer")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=self._audience,
            issuer=self._settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
        _check_times(claims)
        if claims.keys() & FOREIGN_CLAIMS:
            raise RejectedTokenError("it is an ID or logout token")
        if "cnf" in claims:
            raise RejectedTokenError("it is bound to a key of its client (cnf), which is not checked here")
        return claims

    async def _principal(self, claims: Mapping[str, Any]) -> Principal:
        if is_of_client(claims):
            return self._client(claims)
        settings = self._settings
        claimed, user = claim(claims, settings.tenant_claim), claim(claims, settings.user_claim)
        tenant = settings.tenants.get(claimed) if isinstance(claimed, str) else None
        if tenant is None:
            raise IncompleteTokenError(
                f"The token's claim {settings.tenant_claim} names no tenant of this server."
            )
        if not isinstance(user, str) or not user.strip():
            raise IncompleteTokenError(f"The token's claim {settings.user_claim} names no user.")
        return Principal(tenant, user, await self._groups(claims, tenant), self._bindings(claims))

    def _client(self, claims: Mapping[str, Any]) -> Principal:
        """The principal of a client's own token.

        Raises:
            IncompleteTokenError: the settings don't list the client. Its claims don't count: a rule by which
                the issuer gives users a tenant and groups may give them to every client, too.
        """
        client = self._settings.clients.get(client_of(claims))
        if client is None:
            raise IncompleteTokenError(
                "The token is of a client without a user, and oauth.clients doesn't list this client."
            )
        return Principal(
            client.tenant,
            client.user,
            frozenset(client.groups),
            self._bindings(claims),
        )

    def _bindings(self, claims: Mapping[str, Any]) -> tuple[Binding, ...]:
        """The bindings of the token's scopes. All apply, so that each scope narrows.

        Raises:
            UnboundTokenError: the operator has bound scopes, and the token has none of these. Otherwise a
                client would reach more by requesting fewer scopes.
        """
        bound = self._settings.scopes
        bindings = [bound[scope].binding for scope in dict.fromkeys(scopes_of(claims)) if scope in bound]
        if bound and not bindings:
            raise UnboundTokenError
        return tuple(bindings)

    async def _groups(self, claims: Mapping[str, Any], tenant: str) -> frozenset[str]:
        """The user's groups. They must be complete if they matter: a missing one could be in a deny list.

        Raises:
            IncompleteTokenError: the claim is missing or incomplete and groups matter, or it is malformed.
            ProviderError: the claim is missing or incomplete, and the desk can't say whether groups matter.
        """
        name = self._settings.groups_claim
        groups, elsewhere = claim(claims, name), claims.get("_claim_names", {})
        if not isinstance(elsewhere, dict) or not (groups is None or _are_groups(groups)):
            raise IncompleteTokenError(f"The token's groups are malformed. {_expectation(name)}")
        # Entra marks a list that is too long for the token with _claim_names or hasgroups ("groups overage").
        too_many = name in elsewhere or claims.get("hasgroups", False) is not False
        if (groups is None or too_many) and await self._are_groups_required(tenant):
            reason = ": the issuer says that they are too many" if too_many else ""
            raise IncompleteTokenError(
                f"The token doesn't contain all groups of its user{reason}. {_expectation(name)}"
            )
        return frozenset(groups or ())

    async def _are_groups_required(self, tenant: str) -> bool:
        if self._settings.groups_required != "auto":
            return self._settings.groups_required == "always"
        try:
            return await self._groups_matter(tenant)
        except RefdeskError as error:
            log.warning(
                "Tokens without groups are refused: cannot determine whether groups matter (%s).",
                type(error).__name__,
            )
            raise ProviderError(
                "Cannot determine whether this token is complete. Try again later."
            ) from error


def _are_groups(value: object) -> TypeGuard[list[str]]:
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        return False
    return all(isinstance(group, str) for group in value)


def _expectation(claim: str) -> str:
    return (
        f"The issuer must send them in the claim {claim}: a list of at most {MAX_ENTRIES} names, "
        "empty for a user without groups."
    )


def _check_type(header: Mapping[str, Any]) -> None:
    type_ = header.get("typ", "JWT")
    if not isinstance(type_, str) or type_.lower().removeprefix("application/") not in TYPES:
        raise RejectedTokenError("its type (typ) doesn't say access token")


def _check_times(claims: Mapping[str, Any]) -> None:
    exp, iat = claims["exp"], claims["iat"]
    if type(exp) not in {int, float} or type(iat) not in {int, float}:
        raise RejectedTokenError("its times are not numbers")
    if not exp - iat <= MAX_LIFETIME_SECONDS:  # false for NaN, too
        raise RejectedTokenError("it is valid for too long")


def _bound_scopes(settings: OAuthSettings) -> tuple[str, ...]:
    """The bound scopes. A token needs one of them beside `SEARCH_SCOPE`; none if that is bound itself."""
    return () if SEARCH_SCOPE in settings.scopes else tuple(settings.scopes)


def requested_scopes(settings: OAuthSettings) -> str:
    """The scopes that clients shall ask the issuer for: `SEARCH_SCOPE`, and the first of the bound ones.

    With all bound scopes, a token would reach only what all admit, which may be nothing.
    """
    scopes = (SEARCH_SCOPE, *_bound_scopes(settings)[:1])
    return " ".join(settings.scope_prefix + scope for scope in scopes)


def missing_scope(settings: OAuthSettings) -> str:
    """What to say of a token that lacks a scope."""
    bound = _bound_scopes(settings)
    return f"Required scope: {SEARCH_SCOPE}" + (f", and one of these: {' '.join(bound)}" if bound else "")


def metadata_route(resource: str, path: str, settings: OAuthSettings, title: str) -> Route:
    """The route at which clients learn who issues tokens for the resource (RFC 9728), called `title`.

    The SDK's own route adds a slash to a bare host. Clients compare issuers character by character, so that
    would be another issuer.
    """
    document = {
        "resource": resource,
        "authorization_servers": [settings.issuer],
        "scopes_supported": [
            settings.scope_prefix + scope for scope in dict.fromkeys((SEARCH_SCOPE, *settings.scopes))
        ],
        "bearer_methods_supported": ["header"],
        "resource_name": title,
    }

    async def metadata(_request: Request) -> Response:
        return JSONResponse(document, headers={"Cache-Control": "public, max-age=3600"})

    return Route(f"/.well-known/oauth-protected-resource{path}", metadata, methods=["GET"])


# The claims of a verified token under issuers' names: the client, the scopes, whether there is a user.

Claims: TypeAlias = Mapping[str, Any]

CLIENTS = ("client_id", "azp", "appid", "cid")  # RFC 9068, OpenID Connect, Entra, Okta
OF_SERVICE_ACCOUNTS = frozenset({"clientHost", "clientAddress"})  # Keycloak: where a client asked from


def claim(claims: Claims, name: str) -> object:
    """The claim of this name, or else at this path of names; None if neither exists.

    Example: {"realm_access": {"roles": ["hr"]}}, "realm_access.roles" -> ["hr"];
    {"https://acorn.example/groups": ["hr"]}, "https://acorn.example/groups" -> ["hr"].
    """
    if name in claims:
        return claims[name]
    value: object = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def client_of(claims: Claims) -> str:
    """The OAuth client that the token was issued to; empty if the issuer doesn't say."""
    clients = (claims.get(name) for name in CLIENTS)
    return next((client for client in clients if isinstance(client, str) and client), "")


def is_of_client(claims: Claims) -> bool:
    """Whether the client got the token for itself (client credentials), without a user.

    The client is then its own subject (RFC 9068, Okta), with a suffix in Auth0's tokens. Auth0 and Entra also
    name the grant. Otherwise, Entra's subject equals its object id, and the token has no scopes. Keycloak has
    a user for each client.
    """
    client, subject = client_of(claims), claims["sub"]
    return (
        subject in {client, f"{client}@clients"}
        or claims.get("gty") == "client-credentials"
        or claims.get("idtyp") == "app"
        or (claims.get("oid") == subject and not claims.keys() & {"scope", "scp"})
        or bool(claims.keys() & OF_SERVICE_ACCOUNTS)
        or str(claims.get("preferred_username")).lower() == f"service-account-{client}".lower()
    )


def scopes_of(claims: Claims) -> list[str]:
    """The scopes, from one string (RFC 9068) or, as some issuers send them, from a list.

    Entra lists a client's own permissions as roles.
    """
    stated = claims.get("scope", claims.get("scp"))
    if stated is None and is_of_client(claims):
        stated = claims.get("roles")
    scopes = stated.split() if isinstance(stated, str) else stated
    return [scope for scope in scopes if isinstance(scope, str)] if isinstance(scopes, list) else []


# The public signing keys of a token issuer (its JWKS), fetched when needed and cached.


MIN_RSA_BITS = 2048
FRESH_SECONDS = 300  # older keys are fetched again
OUTAGE_SECONDS = 3600  # if that fails, keys are used up to this age
MAX_ANSWER_BYTES = 1024**2  # of the issuer
COOLDOWN_SECONDS = 30  # between two attempts to fetch
FETCH_SECONDS = 5
MALFORMED = ValueError, TypeError, RecursionError  # no JSON, a list in place of a name, a thousand lists


class SigningKeys:
    """The issuer's public keys by id. Any number of unknown ids cost at most one fetch in thirty seconds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = web_client.client(max_bytes=MAX_ANSWER_BYTES, timeout=FETCH_SECONDS)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = anyio.Lock()

    async def key(self, id_: str) -> jwt.PyJWK | None:
        """The key with this id; None if the issuer has no such key.

        Raises:
            ProviderError: the keys can't be fetched, and the cached ones are too old.
        """
        if id_ not in self._keys or self._age() > FRESH_SECONDS:
            async with self._lock:  # many requests with a new key id cause one fetch
                if id_ not in self._keys or self._age() > FRESH_SECONDS:
                    await self._fetch()
        if self._age() > OUTAGE_SECONDS:
            raise ProviderError("The issuer's keys can't be fetched. Try again later.")
        return self._keys.get(id_)

    async def _fetch(self) -> None:
        if time.monotonic() - self._tried_at < COOLDOWN_SECONDS:
            return
        self._tried_at = time.monotonic()  # before the answer: a failed attempt counts, too
        try:
            # The client's own timeout restarts with every byte; a slow issuer could hold the lock forever.
            with anyio.fail_after(FETCH_SECONDS):
                keys = _signing_keys(await self._client.get(self._url))
        except (httpx2.HTTPError, jwt.PyJWTError, TimeoutError, ProviderError, *MALFORMED) as error:
            is_ours = isinstance(error, web_client.UnreachableError | ProviderError)
            why = error if is_ours else type(error).__name__  # other messages may quote the issuer
            log.warning("The issuer's keys can't be fetched: %s", why)
            return
        self._keys = {id_: key for id_, key in keys.items() if _is_strong(key)}
        self._fetched_at = time.monotonic()

    def _age(self) -> float:
        return time.monotonic() - self._fetched_at


def _signing_keys(answer: httpx2.Response) -> dict[str, jwt.PyJWK]:
    """The keys of an issuer's answer by id, but for those that aren't for signing."""
    if answer.has_redirect_location:
        target = redirect_target(str(answer.url), answer.headers["Location"])
        raise ProviderError(f"it redirects to {target}; set oauth.jwks_url")
    document = answer.raise_for_status().json()
    keys = jwt.PyJWKSet.from_dict(document if isinstance(document, dict) else {}).keys
    usable = {key.key_id: key for key in keys if key.key_id and key.public_key_use in {"sig", None}}
    if not usable:
        raise ProviderError("none of them is for signing and has an id")
    return usable


def _is_strong(key: jwt.PyJWK) -> bool:
    bits = key.key.key_size if isinstance(key.key, RSAPublicKey) else MIN_RSA_BITS
    if bits < MIN_RSA_BITS:
        log.warning(
            "The issuer's RSA key %.64r has %d bits and is ignored: keys need at least %d.",
            key.key_id,
            bits,
            MIN_RSA_BITS,
        )
    return bits >= MIN_RSA_BITS
