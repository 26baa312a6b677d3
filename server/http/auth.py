"""Authentication: which credentials are accepted, and whose they are. Tokens are verified in `oauth`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken, TokenVerifier
from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError

from rag.access.keys import (
    KEYS,
    PREFIX,
    SEARCH_SCOPE,
    ApiKey,
    Keys,
    holder_of,
    keys_file,
    parsed_keys,
    read_keys,
)
from rag.access.tenants import LocalAsker
from rag.config.server_settings import resource_url
from rag.config.settings import Settings
from rag.errors import ConfigurationError, ProviderError, StoreError
from rag.home import Bucket, Home
from server.call_audit import note_caller, note_refusal
from server.http.clients import Caller
from server.http.oauth import GroupsMatter, JwtVerifier
from server.lazy_desk import LazyDesk

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

log = logging.getLogger(__name__)

KEY_ID = re.compile(r"[0-9a-f]{8}")


class NoAuthentication(AuthenticationBackend):
    """Every request is the configured local user's. Only allowed on a loopback address."""

    def __init__(self, asker: LocalAsker) -> None:
        self._asker = asker

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, AuthenticatedUser]:  # noqa: ARG002 as the SDK calls it
        """The local user, whatever the request carries.

        Raises:
            AuthenticationError: the data folder has appeared, and its tenants don't fit the settings.
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
        self._tokens = JwtVerifier(settings.oauth, resource, groups_matter) if "oauth" in accepted else None

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller; None if the credentials are not valid.

        Raises:
            AuthenticationError: that can't be determined just now.
        """
        verifier = self._keys if token.startswith(f"{PREFIX}_") else self._tokens
        if verifier is None:
            note_refusal("credentials of this kind are not accepted")
        try:
            return await verifier.verify_token(token) if verifier else None
        except ProviderError as error:
            raise AuthenticationError(str(error)) from error
        except StoreError as error:
            log.error("No API key can be checked: %s", error)  # noqa: TRY400 the message says it all
            raise AuthenticationError(error.for_caller) from error


class KeyVerifier(TokenVerifier):
    """API keys. The key file is read again whenever it has changed, so that a revoked key fails at once.

    In a bucket it fails after the bucket's `consistency_seconds`, and no key counts while the bucket can't be
    read.
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
        """The keys as they are now; none while the file can't be trusted."""
        version, keys = await self._keys_source()
        if version != self._version:
            try:
                self._keys = keys()
            except ConfigurationError as error:
                log.error("No API key is accepted: %s", error)  # noqa: TRY400 the message says it all
                self._keys = Keys()
            self._version = version
        return self._keys.keys

    async def _keys_source(self) -> tuple[object, Callable[[], Keys]]:
        """What changes with the key file, and how to read the keys in it."""
        if isinstance(self._home, Bucket):
            content = await to_thread.run_sync(self._home.read, KEYS)
            return content, partial(parsed_keys, content, f"{self._home}/{KEYS}")
        file = keys_file(self._home)
        try:
            status = os.stat(file)  # noqa: PTH116 on every request
            version = (status.st_mtime_ns, status.st_ino, status.st_mode, status.st_uid)
        except FileNotFoundError:
            version = None
        return version, partial(read_keys, file)


def _why_invalid(token: str, keys: Sequence[ApiKey]) -> str:
    """Why a key is not valid, for the audit. It names the id if there is one, never the secret."""
    if expired := holder_of(token, keys, datetime.min.replace(tzinfo=UTC)):
        return f"the key {expired.id} has expired"
    id_ = token.split("_")[1]
    if any(key.id == id_ for key in keys):
        return f"invalid key: {id_} has another secret"
    return f"invalid key: {id_} is unknown or revoked" if KEY_ID.fullmatch(id_) else "invalid key"


def auth_backend(settings: Settings, groups_matter: GroupsMatter) -> AuthenticationBackend:
    """The backend for the configured methods. A new method is a `TokenVerifier` in `BearerVerifier`.

    Raises:
        ConfigurationError: there is no authentication, and no such tenant as the settings name.
    """
    if not settings.http.authentication:
        asker = LocalAsker(settings)
        asker.principal()  # a wrong tenant ends the start
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
