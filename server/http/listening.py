"""Where the server listens, the hosts that requests may name, and what it logs when it starts.

The log says where it listens, who may use it, and what looks misconfigured.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings

from rag.access.keys import keys_in
from rag.access.tenants import tenants
from rag.config.server_settings import LOOPBACK, HttpSettings, own_url, resource_url
from rag.errors import ConfigurationError, StoreError
from rag.uris import STANDARD_PORTS

if TYPE_CHECKING:
    from rag.config.settings import Settings


def listen(settings: HttpSettings) -> socket.socket:
    """A socket bound to the server's address.

    Raises:
        ConfigurationError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named; without it small replies are delayed.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows it would let other programs bind the port, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot bind {settings.host}:{settings.port} (http.host, http.port): {error.strerror}. "
            "Set another with --host or --port."
        ) from error
    return listener


def transport_security(settings: HttpSettings) -> TransportSecuritySettings:
    """The hosts and origins that requests may name, with their ports, in lower case."""
    port = settings.port
    reachable = (
        [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        if settings.host in LOOPBACK
        else []
    )
    address = urlsplit(settings.public_url)
    public = [address.netloc] if address.netloc else []
    if public and address.port is None:
        # Proxies may add it (nginx: proxy_set_header Host $host:$server_port).
        public.append(f"{address.netloc}:{STANDARD_PORTS[address.scheme]}")
    return TransportSecuritySettings(
        allowed_hosts=[host.lower() for host in (*reachable, *public, *settings.allowed_hosts)],
        allowed_origins=[
            *(f"http://{host}" for host in reachable),
            *([settings.public_url.lower()] if settings.public_url else []),
            *settings.allowed_origins,
        ],
    )


ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 only compared with
NO_HOST = (
    "Every request will be refused with status 421: no host name of this server is configured. "
    'Set http.public_url = "https://NAME", or http.allowed_hosts = ["NAME:PORT"].'
)
NO_KEY = (
    "No API key is valid, so every request will be refused with status 401. Create one with "
    "refdesk-admin key create; no restart is needed."
)
NO_PROXY = (
    "http.public_url implies a proxy, but http.trusted_proxies doesn't name it. So limits can't tell its "
    "clients apart, and the audit sees only the proxy's address. Set http.trusted_proxies."
)

log = logging.getLogger("refdesk.start")


def announce(settings: Settings) -> None:
    """Log the startup messages, whatever the log level."""
    for level, message in _messages(settings):
        log.log(level, "%s", message)


def _messages(settings: Settings) -> Iterator[tuple[int, str]]:
    """Each message with its level."""
    http, hosts = settings.http, transport_security(settings.http).allowed_hosts
    yield logging.INFO, f"refdesk listens on {own_url(http)}{http.path}, {_reachability(http)}."
    yield logging.INFO, _accepted_clients(settings)
    try:
        yield from _holdings(settings)
    except StoreError as error:  # a bucket that answers later is served then
        yield logging.WARNING, str(error)
    if hosts:
        host_names = ", ".join(hosts)
        yield logging.INFO, f"Allowed Host headers: {host_names}. Others are refused with status 421."
    else:
        yield logging.WARNING, NO_HOST
    if http.trusted_proxies:
        proxies = ", ".join(http.trusted_proxies)
        yield logging.INFO, f"X-Forwarded-For is trusted from these proxies: {proxies}."
    elif http.public_url:
        yield logging.WARNING, NO_PROXY
    if http.metrics_port:
        yield (
            logging.INFO,
            f"Health and metrics: http://127.0.0.1:{http.metrics_port}, from this machine only.",
        )


def _holdings(settings: Settings) -> Iterator[tuple[int, str]]:
    if tenant_names := tenants(settings.home):
        owner = f"the tenant {tenant_names[0]}" if len(tenant_names) == 1 else f"{len(tenant_names)} tenants"
        yield logging.INFO, f"It serves the documents of {owner} in {settings.home}."
    if "keys" in settings.http.authentication:
        yield _valid_keys(settings)


def _reachability(http: HttpSettings) -> str:
    if http.host in LOOPBACK:
        return "reachable from this machine only"
    if http.host in ANYWHERE:
        return "reachable from every network of this machine"
    return "reachable from other machines"


def _valid_keys(settings: Settings) -> tuple[int, str]:
    """How many keys there are. Servers see new keys at once, so none is only a warning."""
    now = datetime.now(UTC)
    count = sum(key.expires_at > now for key in keys_in(settings.home).keys)
    if count or "oauth" in settings.http.authentication:
        return logging.INFO, f"Valid API keys: {count}."
    return logging.WARNING, NO_KEY


def _accepted_clients(settings: Settings) -> str:
    http, principal = settings.http, settings.principal
    if not http.authentication:
        user = f"the user {principal.user!r}" if principal.user else "a user without a name"
        return f"No authentication: everybody who reaches the server searches as {user}."
    audience = settings.oauth.audience or resource_url(http)
    accepted = {
        "keys": "an API key (refdesk-admin key create)",
        "oauth": f"a token issued by {settings.oauth.issuer} for {audience}",
    }
    return f"Clients must send {' or '.join(accepted[method] for method in http.authentication)}."
