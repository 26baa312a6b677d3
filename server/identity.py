"""Who is asking: the one place per transport where a principal is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.records import Principal
from rag.tenants import tenant_of

if TYPE_CHECKING:
    from rag.settings import Settings


def stdio_principal(settings: Settings) -> Principal:
    """On stdio the operating system's user is the boundary, and the settings say the rest.

    Raises:
        ConfigurationError: there are several tenants and none is named, or there is none of that name.
    """
    named = settings.principal
    return Principal(tenant_of(settings), named.user or None, frozenset(named.groups))
