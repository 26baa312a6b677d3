"""Who is asking over HTTP: the one place where a principal is made of a request's credentials."""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier

from rag.access.keys import ApiKey, Keys, holder_of, keys_file, read_keys
from rag.corpus import Principal  # noqa: TC001 pydantic needs it
from rag.errors import AccessError, ConfigurationError
from server.telemetry.logs import note_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


log = logging.getLogger(__name__)

MAX_TOLD_CHARS = 200  # of a name that an issuer made up
KEY_ID = re.compile(r"[0-9a-f]{8}")


class Caller(AccessToken):
    """What the SDK calls a token, with the principal that it stands for. The token itself is not in it.

    `refusal` says what is wrong with somebody who may nothing.
    """

    principal: Principal
    kind: Literal["local", "key", "token"]
    refusal: str = ""

    @property
    def told(self) -> dict[str, object]:
        """Who this is, as the audit tells it: a key by its id, a token by whom it was issued to and for."""
        who: dict[str, object] = {
            "tenant": self.principal.tenant or None,
            "user": self.principal.user,
            "groups": sorted(self.principal.groups),
        }
        match self.kind:
            case "key":
                return who | {"key": self.client_id}
            case "token":
                issued_to = None if self.client_id == self.subject else self.client_id[:MAX_TOLD_CHARS]
                return who | {"oauth_client": issued_to, "subject": (self.subject or "")[:MAX_TOLD_CHARS]}
            case _:
                return who


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
        keys = self._current()
        key = holder_of(token, keys)
        if key is None:
            note_refusal(_why_not(token, keys))
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


def _why_not(token: str, keys: Sequence[ApiKey]) -> str:
    """Why this is nobody's key. Its id is told where it has the form of one, never its secret."""
    if expired := holder_of(token, keys, datetime.min.replace(tzinfo=UTC)):
        return f"the key {expired.id} has expired"
    id_ = token.split("_")[1]
    return f"no key, or no longer: {id_}" if KEY_ID.fullmatch(id_) else "no key"
