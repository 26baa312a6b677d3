"""Whether the issuer of the settings is who it says it is, and what clients can do there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import jwt

from rag.config.server_settings import OAuthSettings
from rag.uris import redirect_target, refused_redirect

SECONDS = 5
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"


def issuer_checks(oauth: OAuthSettings) -> Iterator[tuple[str, Literal["ok", "note", "wrong"], str]]:
    """A part, its state and a sentence for the issuer's keys, and for its metadata, which clients go by."""
    try:
        keys = jwt.PyJWKClient(oauth.jwks_url, timeout=SECONDS).get_signing_keys()
    except (jwt.PyJWTError, OSError, ValueError) as error:
        target = refused_redirect(oauth.jwks_url, error)
        why = f": it redirects to {target}. If that is right, set oauth.jwks_url to it." if target else "."
        yield "issuer", "wrong", f"Its keys can't be fetched from {oauth.jwks_url} (oauth.jwks_url){why}"
        return
    yield "issuer", "ok", f"{len(keys)} signing keys at {oauth.jwks_url}"
    metadata = _metadata(oauth.issuer)
    if not isinstance(metadata, dict):
        redirects = f"redirects to {metadata}, where many clients don't follow"
        problem = redirects if metadata else "has none: clients don't find where to sign in"
        yield "issuer's metadata", "note", f"{oauth.issuer} {problem}. Is oauth.issuer right?"
        return
    state, text = _judgement(metadata, oauth)
    yield "issuer's metadata", state, text


def _judgement(metadata: dict[str, Any], oauth: OAuthSettings) -> tuple[Literal["ok", "note", "wrong"], str]:
    name, keys = metadata.get("issuer"), metadata.get("jwks_uri")
    if name != oauth.issuer:
        return (
            "wrong",
            f"It calls itself {name!r}, not {oauth.issuer!r} (oauth.issuer): no token is accepted.",
        )
    if keys != oauth.jwks_url:
        return "note", f"It has its keys at {keys!r}, not at {oauth.jwks_url!r} (oauth.jwks_url)."
    if "S256" not in _list_of(metadata, "code_challenge_methods_supported"):
        return "note", "It doesn't declare PKCE with S256. Many clients refuse to sign in without it."
    registers = metadata.get("registration_endpoint") or metadata.get("client_id_metadata_document_supported")
    vouched = ID_JAG in _list_of(metadata, "authorization_grant_profiles_supported")
    return "ok", (
        f"clients {'can register by themselves' if registers else 'need an id from you'}; "
        f"sign-in that an identity provider vouches for (ID-JAG): {'yes' if vouched else 'no'}"
    )


def _list_of(metadata: dict[str, Any], name: str) -> list[Any]:
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


def _metadata(issuer: str) -> dict[str, Any] | str | None:
    """The metadata at the first address that has some; else where an address redirects to, if one does."""
    target = None
    for address in _addresses(issuer):
        answer = _fetch(address)
        if isinstance(answer, dict):
            return answer
        target = target or answer
    return target


def _fetch(address: str) -> dict[str, Any] | str | None:
    """The metadata at an address, or where that redirects to; None if there is neither."""
    try:
        reply = httpx2.get(address, timeout=SECONDS, follow_redirects=False)
        if reply.has_redirect_location:
            return redirect_target(address, reply.headers["Location"])
        metadata = reply.raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return None
    return metadata if isinstance(metadata, dict) else None
