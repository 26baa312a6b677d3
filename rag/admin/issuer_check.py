"""Whether the issuer of the settings is who it says it is, and what clients can do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import httpx2
import jwt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.config.settings import OAuthSettings

SECONDS = 5
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"


def issuer_checks(oauth: OAuthSettings) -> Iterator[tuple[str, Literal["ok", "note", "wrong"], str]]:
    """A part, its state and a sentence for the issuer's keys, and for its metadata, which clients go by."""
    try:
        keys = jwt.PyJWKClient(oauth.jwks_url, timeout=SECONDS).get_signing_keys()
    except (jwt.PyJWTError, OSError, ValueError):
        yield "issuer", "wrong", f"Its keys can't be fetched from {oauth.jwks_url} (oauth.jwks_url)."
        return
    yield "issuer", "ok", f"{len(keys)} signing keys at {oauth.jwks_url}"
    metadata = next(filter(None, map(_fetched, _addresses(oauth.issuer))), None)
    if metadata is None:
        told = f"{oauth.issuer} has none: clients don't find where to sign in. Is oauth.issuer right?"
        yield "issuer's metadata", "note", told
        return
    state, told = _judged(metadata, oauth)
    yield "issuer's metadata", state, told


def _judged(metadata: dict[str, Any], oauth: OAuthSettings) -> tuple[Literal["ok", "note", "wrong"], str]:
    name, keys = metadata.get("issuer"), metadata.get("jwks_uri")
    if name != oauth.issuer:
        return (
            "wrong",
            f"It calls itself {name!r}, not {oauth.issuer!r} (oauth.issuer): no token is accepted.",
        )
    if keys != oauth.jwks_url:
        return "note", f"It has its keys at {keys!r}, not at {oauth.jwks_url!r} (oauth.jwks_url)."
    if "S256" not in _listed(metadata, "code_challenge_methods_supported"):
        return "note", "It doesn't say that it knows PKCE (S256), so many clients refuse to sign in there."
    registers = metadata.get("registration_endpoint") or metadata.get("client_id_metadata_document_supported")
    vouched = ID_JAG in _listed(metadata, "authorization_grant_profiles_supported")
    return "ok", (
        f"clients {'can register by themselves' if registers else 'need an id from you'}; "
        f"sign-in that an identity provider vouches for (ID-JAG): {'yes' if vouched else 'no'}"
    )


def _listed(metadata: dict[str, Any], name: str) -> list[Any]:
    value = metadata.get(name)
    return value if isinstance(value, list) else []


def _addresses(issuer: str) -> Iterator[str]:
    """Where clients look for an issuer's metadata (RFC 8414, OpenID Connect Discovery).

    Example: "https://a.example/b" -> "https://a.example/.well-known/oauth-authorization-server/b" and others.
    """
    parts = urlsplit(issuer)
    host, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{host}/.well-known/oauth-authorization-server{path}"
    yield f"{host}/.well-known/openid-configuration{path}"
    yield f"{host}{path}/.well-known/openid-configuration"


def _fetched(address: str) -> dict[str, Any] | None:
    try:
        found = httpx2.get(address, timeout=SECONDS, follow_redirects=True).raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return None
    return found if isinstance(found, dict) else None
