"""Which credentials a request can bear, and who finds out whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken, TokenVerifier
from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError

from rag.access.keys import PREFIX, SEARCH_SCOPE
from rag.access.tenants import local_principal
from rag.errors import ProviderError
from server.http.addresses import resource_url
from server.http.identity import Caller, KeyVerifier
from server.http.oauth import JwtVerifier
from server.telemetry.logs import note_caller, note_refusal

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from rag.config.settings import Settings
    from rag.corpus import Principal
    from server.http.oauth import GroupsMatter
    from server.lazy_desk import OpeningDesk


class Local(AuthenticationBackend):
    """Nobody is asked for credentials: whoever reaches a loopback address is the user of the settings."""

    def __init__(self, principal: Principal) -> None:
        scopes = [SEARCH_SCOPE]
        self._caller = Caller(token="", client_id="local", scopes=scopes, principal=principal, kind="local")

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser]:  # noqa: ARG002 as the SDK calls it
        """The same for everybody."""
        return AuthCredentials(self._caller.scopes), AuthenticatedUser(self._caller)


class Bearer(TokenVerifier):
    """API keys and the issuer's tokens, as far as the settings accept them."""

    def __init__(self, settings: Settings, groups_matter: GroupsMatter) -> None:
        accepted, resource = settings.http.authentication, resource_url(settings.http)
        self._keys = KeyVerifier(settings.data, resource) if "keys" in accepted else None
        self._tokens = JwtVerifier(settings.oauth, resource, groups_matter) if "oauth" in accepted else None

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose it is; None if it is nobody's.

        Raises:
            AuthenticationError: that can't be found out just now.
        """
        verifier = self._keys if token.startswith(f"{PREFIX}_") else self._tokens
        if verifier is None:
            note_refusal("credentials of this kind are not accepted")
        try:
            return await verifier.verify_token(token) if verifier else None
        except ProviderError as error:
            raise AuthenticationError(str(error)) from error


class Told(BearerAuthBackend):
    """Finds out who asks, and has the audit tell it."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        """Whose request it is; None if nobody's."""
        found: tuple[AuthCredentials, AuthenticatedUser] | None = await super().authenticate(conn)
        caller = found[1].access_token if found else None
        if isinstance(caller, Caller):
            note_caller(caller.told)
        else:
            note_refusal("no credentials that count")
        return found


def backend_of(settings: Settings, groups_matter: GroupsMatter) -> AuthenticationBackend:
    """Who finds out who asks."""
    if not settings.http.authentication:
        return Local(local_principal(settings))
    bearer = Bearer(settings, groups_matter)
    return Told(bearer, resource_server_url=AnyHttpUrl(resource_url(settings.http)))


def groups_matter_by(settings: Settings, opening: OpeningDesk) -> GroupsMatter:
    """By the rules, which count for every tenant, and by the records of the tenant's documents."""
    entries = [entry for rule in settings.access.rules for entry in (*rule.allow, *rule.deny)]
    by_rule = any(entry.startswith("group:") for entry in entries)

    async def groups_matter(tenant: str) -> bool:
        return by_rule or await (await opening.desk()).names_groups(tenant)

    return groups_matter
