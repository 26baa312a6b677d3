"""Bearer tokens of an OAuth 2.1 issuer: this server is a resource server, and issues none itself.

A token is a JWT that the issuer signed for this very resource. Its keys come from the address in the
settings, never from the token; its claims say the tenant, the user and the groups.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import anyio
import jwt
from anyio import to_thread
from mcp.server.auth.provider import AccessToken, TokenVerifier

from rag.errors import ProviderError
from rag.records import Principal
from rag.settings import MAX_ENTRIES
from server.identity import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.settings import OAuthSettings

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MAX_TOKEN_CHARS = 8192
LEEWAY_SECONDS = 30
MAX_LIFETIME_SECONDS = 24 * 3600
FRESH_SECONDS = 300  # keys are fetched anew after this time,
OUTAGE_SECONDS = 3600  # and used for as long if that fails
COOLDOWN_SECONDS = 30  # between two attempts to fetch
FETCH_SECONDS = 5


class SigningKeys:
    """The issuer's public keys by id. Unknown ids, however many, cost one fetch in thirty seconds."""

    def __init__(self, url: str) -> None:
        self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_SECONDS)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._lock, self._thread = anyio.Lock(), anyio.CapacityLimiter(1)

    async def key(self, id_: str) -> jwt.PyJWK | None:
        """The key of this id; None if the issuer has none.

        Raises:
            ProviderError: the keys can't be fetched, and those that there are, are too old.
        """
        if id_ not in self._keys or self._age() > FRESH_SECONDS:
            async with self._lock:
                if id_ not in self._keys or self._age() > FRESH_SECONDS:
                    await self._fetch()
        if self._age() > OUTAGE_SECONDS:
            raise ProviderError("The issuer's keys can't be fetched. Ask again later.")
        return self._keys.get(id_)

    async def _fetch(self) -> None:
        if time.monotonic() - self._tried_at < COOLDOWN_SECONDS:
            return
        self._tried_at = time.monotonic()
        try:
            with anyio.fail_after(FETCH_SECONDS):  # whatever the issuer sends in dribbles
                keys = await to_thread.run_sync(
                    self._client.get_signing_keys, abandon_on_cancel=True, limiter=self._thread
                )
        except (jwt.PyJWTError, OSError, ValueError) as error:
            log.warning("The issuer's keys can't be fetched: %s", type(error).__name__)
            return
        self._keys = {key.key_id: key for key in keys if key.key_id}
        self._fetched_at = time.monotonic()

    def _age(self) -> float:
        return time.monotonic() - self._fetched_at


class JwtVerifier(TokenVerifier):
    """Tokens of the issuer that the settings name, for this resource."""

    def __init__(self, settings: OAuthSettings, resource: str) -> None:
        self._settings = settings
        self._resource = resource
        self._keys = SigningKeys(settings.jwks_url)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose token this is; None if it is no token of ours, and without a scope if it says no tenant.

        Raises:
            ProviderError: the issuer's keys can't be had.
        """
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            log.info("A token was refused: %s", type(error).__name__)
            return None
        principal = self._principal(claims)
        return Caller(
            token="",
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=_scopes(claims) if principal else [],
            expires_at=int(claims["exp"]),
            resource=self._resource,
            subject=claims["sub"],
            claims={"iss": claims["iss"]},
            principal=principal or Principal(""),
        )

    async def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN_CHARS:
            raise ValueError(token[:0])
        header = jwt.get_unverified_header(token)
        id_ = header.get("kid")
        key = await self._keys.key(id_) if isinstance(id_, str) else None
        if key is None or header.get("alg") not in ALGORITHMS:
            raise jwt.InvalidKeyError
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
        return claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal | None:
        """Who asks; None where the claims don't say it for certain."""
        named = claims.get(self._settings.tenant_claim)
        tenant = self._settings.tenants.get(named) if isinstance(named, str) else None
        user = claims.get(self._settings.user_claim)
        groups = claims.get(self._settings.groups_claim, [])
        certain = (
            tenant is not None
            and isinstance(user, str)
            and isinstance(groups, list)
            and len(groups) <= MAX_ENTRIES
            and all(isinstance(group, str) for group in groups)
            # How an issuer says that there are more groups than it could put in.
            and self._settings.groups_claim not in claims.get("_claim_names", {})
        )
        return Principal(tenant, user, frozenset(groups)) if certain and tenant else None


def _check_times(claims: Mapping[str, Any]) -> None:
    exp, iat = claims["exp"], claims["iat"]
    if type(exp) not in {int, float} or type(iat) not in {int, float} or exp - iat > MAX_LIFETIME_SECONDS:
        raise jwt.InvalidTokenError


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """As RFC 9068 has them, in one string, or as some issuers do, in a list."""
    given = claims.get("scope", claims.get("scp", ""))
    scopes = given.split() if isinstance(given, str) else given
    return [one for one in scopes if isinstance(one, str)] if isinstance(scopes, list) else []
