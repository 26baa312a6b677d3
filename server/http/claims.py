"""The claims of a verified token, as issuers name them: the client, the scopes, whether there is a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Claims: TypeAlias = Mapping[str, Any]

CLIENTS = ("client_id", "azp", "appid", "cid")  # RFC 9068, OpenID Connect, Entra, Okta
OF_SERVICE_ACCOUNTS = frozenset({"clientHost", "clientAddress"})  # Keycloak: where a client asked from


def claim(claims: Claims, name: str) -> object:
    """The claim of this name, or else what is at this path of names; None if there is neither.

    Example: {"realm_access": {"roles": ["hr"]}}, "realm_access.roles" -> ["hr"];
    {"https://acorn.example/groups": ["hr"]}, "https://acorn.example/groups" -> ["hr"].
    """
    if name in claims:
        return claims[name]
    found: object = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def client_of(claims: Claims) -> str:
    """The OAuth client that the token was issued to; empty if the issuer doesn't say."""
    clients = (claims.get(name) for name in CLIENTS)
    return next((client for client in clients if isinstance(client, str) and client), "")


def is_of_client(claims: Claims) -> bool:
    """Whether the client got the token for itself (client credentials): no user has signed in.

    The client is then its own subject (RFC 9068, Okta), with a suffix in Auth0's tokens. Auth0 and Entra also
    name the grant. Without that, Entra's subject is the object itself, and the token has no scopes. Keycloak
    has a user for each client.
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

    Entra lists what a client may do by itself as roles.
    """
    given = claims.get("scope", claims.get("scp"))
    if given is None and is_of_client(claims):
        given = claims.get("roles")
    scopes = given.split() if isinstance(given, str) else given
    return [scope for scope in scopes if isinstance(scope, str)] if isinstance(scopes, list) else []
