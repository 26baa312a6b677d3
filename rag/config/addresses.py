"""The URLs of the HTTP server, by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.config.settings import HttpSettings


def base_url(settings: HttpSettings) -> str:
    """The URL at which clients reach the server: the public one, or its own."""
    return settings.public_url or own_url(settings)


def own_url(settings: HttpSettings) -> str:
    """The URL at which the server listens."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def resource_url(settings: HttpSettings) -> str:
    """The OAuth resource that tokens must be issued for."""
    return base_url(settings) + settings.path
