"""Bearer tokens of an OAuth 2.1 issuer: this server is a resource server, and issues none itself.

A token is a JWT that the issuer signed for this very resource. Its keys come from the address in the
settings, never from the token; its claims say the tenant, the user and the groups.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import jwt
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import cors_middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rag.access.keys import SEARCH_SCOPE
from rag.access.names import MAX_ENTRIES
from rag.corpus import Principal
from rag.errors import ProviderError, RefdeskError
from server.http.identity import Caller
from server.http.issuer import SigningKeys
from server.telemetry.logs import note_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from rag.config.settings import OAuthSettings

GroupsMatter: TypeAlias = "Callable[[str], Awaitable[bool]]"
"""Whether anybody's rights in a tenant hang on the groups that they are in."""

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "ES256", "EdDSA")
TYPES = frozenset({"jwt", "at+jwt"})
"""Of access tokens; many issuers name no type, or that of any JWT."""
OF_OTHER_TOKENS = frozenset({"at_hash", "c_hash", "events"})
"""Claims that only ID tokens have, and logout tokens and other news of events."""
CLIENT_CLAIMS = ("client_id", "azp", "appid", "cid")  # RFC 9068, OpenID Connect, Entra, Okta
NOT_IN_HEADERS = re.compile(r"[^ !#-\[\]-~]")  # of RFC 6750's error_description
MAX_TOKEN_CHARS = 8192
LEEWAY_SECONDS = 30
MAX_LIFETIME_SECONDS = 24 * 3600


class ForeignTokenError(jwt.InvalidTokenError):
    """A token that is not for us; the message is for the operator."""


class UncertainError(Exception):
    """A token of ours that doesn't say who asks; the message tells its holder what the issuer must send."""


class JwtVerifier(TokenVerifier):
    """Tokens of the issuer that the settings name, for this resource."""

    def __init__(self, settings: OAuthSettings, resource: str, groups_matter: GroupsMatter) -> None:
        self._settings = settings
        self._resource = resource
        self._groups_matter = groups_matter
        self._keys = SigningKeys(settings.jwks_url)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose token this is; None if it is none of ours, and without a scope if it doesn't say who asks.

        Raises:
            ProviderError: the issuer's keys can't be had, or it can't be told whether groups matter.
        """
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            why = str(error) if isinstance(error, ForeignTokenError) else type(error).__name__
            note_refusal(f"no token for this server: {why}")
            return None
        principal, refusal = Principal(""), ""
        try:
            principal = await self._principal(claims)
        except UncertainError as error:
            refusal = NOT_IN_HEADERS.sub("?", str(error))
        return Caller(
            token="",
            client_id=_client(claims),
            scopes=[] if refusal else _scopes(claims),
            expires_at=int(claims["exp"]),
            resource=self._resource,
            subject=claims["sub"],
            claims={"iss": claims["iss"]},
            principal=principal,
            kind="token",
            refusal=refusal,
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN_CHARS:
            raise ForeignTokenError("it is too long")
        header = jwt.get_unverified_header(token)
        _check_type(header)
        id_ = header.get("kid")
        key = await self._keys.key(id_) if isinstance(id_, str) else None
        if key is None or header.get("alg") not in ALGORITHMS:
            raise ForeignTokenError("no key of the issuer has signed it")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=self._settings.audience or self._resource,
            issuer=self._settings.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
        _check_times(claims)
        if claims.keys() & OF_OTHER_TOKENS:
            raise ForeignTokenError("it is an ID or logout token")
        return claims

    async def _principal(self, claims: Mapping[str, Any]) -> Principal:
        """Who asks.

        Raises:
            UncertainError: the claims don't say it for certain.
        """
        settings = self._settings
        named, user = claims.get(settings.tenant_claim), claims.get(settings.user_claim)
        tenant = settings.tenants.get(named) if isinstance(named, str) else None
        if tenant is None:
            raise UncertainError(f"The token's claim {settings.tenant_claim} names no tenant of this server.")
        if not isinstance(user, str) or not user.strip():
            raise UncertainError(f"The token's claim {settings.user_claim} names no user.")
        return Principal(tenant, user, await self._groups(claims, tenant))

    async def _groups(self, claims: Mapping[str, Any], tenant: str) -> frozenset[str]:
        """The groups of who asks, who may be denied by any that the token doesn't tell.

        Raises:
            UncertainError: it doesn't tell them, and they matter; or it tells nonsense.
            ProviderError: it doesn't tell them, and whether they matter can't be told.
        """
        name = self._settings.groups_claim
        groups, elsewhere = claims.get(name), claims.get("_claim_names", {})
        if not isinstance(elsewhere, dict) or not (groups is None or _are_groups(groups)):
            raise UncertainError(f"The token's groups can't be read. {_wanted(name)}")
        # How an issuer says that there are more groups than it could put in.
        incomplete = groups is None or name in elsewhere or claims.get("hasgroups", False) is not False
        if incomplete and await self._are_groups_required(tenant):
            raise UncertainError(f"The token doesn't tell all groups of its user. {_wanted(name)}")
        return frozenset(groups or ())

    async def _are_groups_required(self, tenant: str) -> bool:
        if self._settings.groups_required != "auto":
            return self._settings.groups_required == "always"
        try:
            return await self._groups_matter(tenant)
        except RefdeskError as error:
            log.warning(
                "Tokens without groups are refused: whether groups matter can't be told (%s).",
                type(error).__name__,
            )
            raise ProviderError("Whether this token says enough can't be told. Ask again later.") from error


def _are_groups(given: object) -> bool:
    if not isinstance(given, list) or len(given) > MAX_ENTRIES:
        return False
    return all(isinstance(one, str) for one in given)


def _wanted(claim: str) -> str:
    return (
        f"The issuer must send them in the claim {claim}: a list of at most {MAX_ENTRIES} names, "
        "empty for who is in none."
    )


def _check_type(header: Mapping[str, Any]) -> None:
    given = header.get("typ", "JWT")
    if not isinstance(given, str) or given.lower().removeprefix("application/") not in TYPES:
        raise ForeignTokenError("its type (typ) is not that of an access token")


def _check_times(claims: Mapping[str, Any]) -> None:
    exp, iat = claims["exp"], claims["iat"]
    if type(exp) not in {int, float} or type(iat) not in {int, float}:
        raise ForeignTokenError("its times are no numbers")
    if not exp - iat <= MAX_LIFETIME_SECONDS:  # nor is one that is not a number
        raise ForeignTokenError("it is valid for too long")


def _client(claims: Mapping[str, Any]) -> str:
    """The program that the token was issued to, as far as the issuer says."""
    named = (claims.get(name) for name in CLIENT_CLAIMS)
    return next((name for name in named if isinstance(name, str) and name), claims["sub"])


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """As RFC 9068 has them, in one string, or as some issuers do, in a list."""
    given = claims.get("scope", claims.get("scp", ""))
    scopes = given.split() if isinstance(given, str) else given
    return [one for one in scopes if isinstance(one, str)] if isinstance(scopes, list) else []


def metadata_route(resource: str, path: str, issuer: str) -> Route:
    """Where clients learn who issues tokens for the resource (RFC 9728), each name to the letter.

    The SDK's own route writes addresses its way, with a slash behind a bare host, and an issuer by another
    name is another issuer.
    """
    told = {
        "resource": resource,
        "authorization_servers": [issuer],
        "scopes_supported": [SEARCH_SCOPE],
        "bearer_methods_supported": ["header"],
        "resource_name": "refdesk",
    }

    async def metadata(_request: Request) -> Response:
        return JSONResponse(told, headers={"Cache-Control": "public, max-age=3600"})

    methods = ["GET", "OPTIONS"]
    address = f"/.well-known/oauth-protected-resource{path}"
    return Route(address, cors_middleware(metadata, methods), methods=methods)
