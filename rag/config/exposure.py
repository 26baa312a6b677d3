"""Rejects settings of the HTTP server that would let anybody in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.config.settings import HttpSettings, OAuthSettings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_exposure(settings: HttpSettings, oauth: OAuthSettings) -> None:
    """Reject settings that would let anybody in.

    Raises:
        ConfigurationError: they would; the message says what to set.
    """
    if settings.host not in LOOPBACK and not settings.authentication:
        raise ConfigurationError(
            f"http.host = {settings.host!r} is reachable from other machines, but http.authentication is "
            'empty: anybody could search. Set authentication = ["keys"], or host = "127.0.0.1".'
        )
    remote = [name for name in ("public_url", "allowed_hosts", "trusted_proxies") if getattr(settings, name)]
    if remote and not settings.authentication:
        raise ConfigurationError(
            f"http.{remote[0]} is for remote clients, but http.authentication is empty: anybody could "
            f'search. Set authentication = ["keys"], or remove {" and ".join(remote)}.'
        )
    if "oauth" not in settings.authentication:
        return
    if not settings.public_url.startswith("https://"):
        raise ConfigurationError(
            "OAuth needs http.public_url, the https:// address at which clients reach this server: tokens "
            "are issued for it."
        )
    if not (oauth.issuer and oauth.jwks_url and (oauth.tenants or oauth.clients)):
        raise ConfigurationError(
            "OAuth needs oauth.issuer, oauth.jwks_url (the URL of its signing keys) and oauth.tenants (the "
            "tenant for each value of the tenant claim) or oauth.clients (clients without a user)."
        )
    for name, address in (("issuer", oauth.issuer), ("jwks_url", oauth.jwks_url)):
        if not _is_safe(address):
            raise ConfigurationError(
                f"oauth.{name} = {address!r} must be an https:// URL: otherwise anybody on the network path "
                "could sign tokens. Only an issuer on this machine may use http://127.0.0.1."
            )


def _is_safe(address: str) -> bool:
    """Whether nobody on the network path can change what is fetched from an address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    return bool(parts.hostname) and (local or parts.scheme == "https")
