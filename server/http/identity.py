"""The authenticated caller of an HTTP request, and the principal that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

from rag.corpus import Principal
from rag.errors import AccessError

if TYPE_CHECKING:
    from starlette.types import Scope

MAX_NAME_CHARS = 200  # of a name that an issuer made up
NOBODY = Principal("-")
"""Who is not authenticated, or whose token says too little. No tenant can have this name."""


class Caller(AccessToken):
    """The SDK's access token, with the principal it stands for. It never holds the token itself.

    `refusal` says what is wrong with a token that identifies nobody.
    """

    principal: Principal
    kind: Literal["local", "key", "token"]
    refusal: str = ""

    @property
    def audit_fields(self) -> dict[str, object]:
        """The caller in the audit: a key by its id, a token by its subject and the OAuth client."""
        fields: dict[str, object] = {
            "tenant": None if self.principal == NOBODY else self.principal.tenant,
            "user": self.principal.user,
            "groups": sorted(self.principal.groups),
        }
        match self.kind:
            case "key":
                return fields | {"key": self.client_id}
            case "token":
                issued_to = None if self.client_id == self.subject else self.client_id[:MAX_NAME_CHARS]
                return fields | {"oauth_client": issued_to, "subject": (self.subject or "")[:MAX_NAME_CHARS]}
            case _:
                return fields


def bearer_principal(_context: object) -> Principal:
    """Who sent this very request, whatever connection or stream it belongs to.

    Raises:
        AccessError: the request is not authenticated.
    """
    caller = get_access_token()
    if not isinstance(caller, Caller):
        raise AccessError("This request carries no credentials.")
    return caller.principal


def scope_principal(scope: Scope) -> Principal:
    """Who sent a request, for its limits; `NOBODY` if it is not authenticated."""
    token = getattr(scope.get("user"), "access_token", None)
    return token.principal if isinstance(token, Caller) else NOBODY
