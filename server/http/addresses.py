"""Where the server listens, and the hosts that requests may name."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from mcp.server.transport_security import TransportSecuritySettings

from rag.config.exposure import LOOPBACK
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from rag.config.settings import HttpSettings


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
    """The hosts and origins that requests may name, with their ports."""
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
