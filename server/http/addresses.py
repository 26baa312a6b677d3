"""How a server is reached: at which addresses, named by which hosts and origins, and by whom at all."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.config.settings import HttpSettings, OAuthSettings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_exposure(settings: HttpSettings, oauth: OAuthSettings) -> None:
    """Refuse what would let anybody in.

    Raises:
        ConfigurationError: it would; the message says what to set.
    """
    if settings.host not in LOOPBACK and not settings.authentication:
        raise ConfigurationError(
            f"http.host = {settings.host!r} is reachable from other machines, and http.authentication is "
            'empty: anybody could ask. Set authentication = ["keys"], or host = "127.0.0.1".'
        )
    named = [name for name in ("public_url", "allowed_hosts", "trusted_proxies") if getattr(settings, name)]
    if named and not settings.authentication:
        raise ConfigurationError(
            f"http.{named[0]} says that others come in, and http.authentication is empty: anybody could ask. "
            f'Set authentication = ["keys"], or leave {" and ".join(named)} out.'
        )
    if "oauth" not in settings.authentication:
        return
    if not settings.public_url.startswith("https://"):
        raise ConfigurationError(
            "OAuth needs http.public_url, the https address by which clients reach this server: tokens are "
            "issued for it."
        )
    if not (oauth.issuer and oauth.jwks_url and oauth.tenants):
        raise ConfigurationError(
            "OAuth needs oauth.issuer, oauth.jwks_url (where its keys are) and oauth.tenants (whose documents"
            " each value of the tenant claim opens)."
        )
    for name, address in (("issuer", oauth.issuer), ("jwks_url", oauth.jwks_url)):
        if not _is_safe(address):
            raise ConfigurationError(
                f"oauth.{name} = {address!r} must be an address with https://: whoever is on the way of "
                "anything else can sign tokens. Only an issuer on this machine may do with http://127.0.0.1."
            )


def _is_safe(address: str) -> bool:
    """Whether nobody on the way can read or change what is fetched from an address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    return bool(parts.hostname) and (local or parts.scheme == "https")


def listen(settings: HttpSettings) -> socket.socket:
    """A socket at the server's address.

    Raises:
        ConfigurationError: the address is not this machine's, or taken.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # By its protocol asyncio knows that what is written on its connections must not wait for more.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let others listen, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"http.host = {settings.host!r}, http.port = {settings.port} can't be listened on: "
            f"{error.strerror}. Set another (--host, --port)."
        ) from error
    return listener


def base_url(settings: HttpSettings) -> str:
    """Where clients reach the server: the public URL, or its own address."""
    return settings.public_url or own_url(settings)


def own_url(settings: HttpSettings) -> str:
    """Where the server listens."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def resource_url(settings: HttpSettings) -> str:
    """What tokens must be issued for."""
    return base_url(settings) + settings.path


def transport_security(settings: HttpSettings) -> TransportSecuritySettings:
    """The hosts and origins that requests may name, each in full with its port."""
    port = settings.port
    own = (
        [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        if settings.host in LOOPBACK
        else []
    )
    public = [settings.public_url.partition("://")[2]] if settings.public_url else []
    return TransportSecuritySettings(
        allowed_hosts=[*own, *public, *settings.allowed_hosts],
        allowed_origins=[
            *(f"http://{host}" for host in own),
            *([settings.public_url] if settings.public_url else []),
            *settings.allowed_origins,
        ],
    )
