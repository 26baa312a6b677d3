"""Who is asking: the one place per transport where a principal is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.records import Principal

if TYPE_CHECKING:
    from rag.settings import PrincipalSettings


def stdio_principal(settings: PrincipalSettings) -> Principal:
    """On stdio the operating system's user is the boundary, and the settings say the rest."""
    return Principal(settings.tenant, settings.user or None, frozenset(settings.groups))
