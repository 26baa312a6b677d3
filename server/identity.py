"""Who is asking over HTTP: the one place where a principal is made of a request's credentials."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier

from rag.errors import AccessError, ConfigurationError
from rag.keys import ApiKey, Keys, holder_of, keys_file, read_keys
from rag.records import Principal  # noqa: TC001 pydantic needs it

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


log = logging.getLogger(__name__)


class Caller(AccessToken):
    """What the SDK calls a token, with the principal that it stands for. The token itself is not in it."""

    principal: Principal


def bearer_principal(_context: object) -> Principal:
    """Who asks in this very HTTP request, whatever connection or session it belongs to.

    Raises:
        AccessError: nobody that is known.
    """
    caller = get_access_token()
    if not isinstance(caller, Caller):
        raise AccessError("This request carries no credentials.")
    return caller.principal


class KeyVerifier(TokenVerifier):
    """API keys. The file is read again whenever it has changed."""

    def __init__(self, data: Path, resource: str) -> None:
        self._file = keys_file(data)
        self._resource = resource
        self._keys = Keys()
        self._read_at: tuple[int, ...] = ()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose key this is; None if it is nobody's, or no longer."""
        key = holder_of(token, self._current())
        if key is None:
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
        )

    def _current(self) -> Sequence[ApiKey]:
        """The keys as they are now; none while the file can't be trusted."""
        try:
            status = os.stat(self._file)  # noqa: PTH116 on every request
            read_at: tuple[int, ...] = (status.st_mtime_ns, status.st_ino, status.st_mode, status.st_uid)
        except FileNotFoundError:
            read_at = ()
        if read_at != self._read_at:
            try:
                self._keys = read_keys(self._file)
            except ConfigurationError as error:
                log.error("No key is accepted: %s", error)  # noqa: TRY400 the message says it all
                self._keys = Keys()
            self._read_at = read_at
        return self._keys.keys
