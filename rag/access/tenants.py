"""Which tenants a data folder holds, and who asks locally: what doors must know before the engine is there.

Each tenant is a file of the folder `tenants`, which `rag.store.folder` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.config.settings import DEFAULT_TENANT
from rag.corpus import Principal
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from rag.config.settings import Settings

FILTERABLE = b"filterable\n"
"""What a tenant's file holds when a collection of theirs declares fields; else it is empty."""


def tenant_file(data: Path, tenant: str) -> Path:
    """Where a tenant is noted, whether there is one or not."""
    return data / "tenants" / tenant


def tenants(data: Path) -> tuple[str, ...]:
    """The tenants of a data folder, by name.

    Raises:
        ConfigurationError: the folder can't be read.
    """
    try:
        return tuple(sorted(file.name for file in (data / "tenants").iterdir() if file.name[0] != "."))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigurationError(f"The data folder {data} can't be read: {error.strerror}.") from error


def tenant_of(settings: Settings) -> str:
    """The tenant that the settings name, or else the only one that there is.

    Raises:
        ConfigurationError: there are several and none is named, or there is none of that name.
    """
    named, known = settings.principal.tenant, tenants(settings.data)
    if not known:
        return named or DEFAULT_TENANT
    if named is None and len(known) > 1:
        raise ConfigurationError(
            f"{settings.data} holds the documents of {len(known)} tenants ({', '.join(known)}). Say whose: "
            "tenant in [principal], REFDESK_PRINCIPAL_TENANT, or --tenant of refdesk-admin."
        )
    if named is not None and named not in known:
        raise ConfigurationError(
            f"There is no tenant {named!r} in {settings.data}; there are: {', '.join(known)}. "
            f"refdesk-admin tenant create {named} makes it."
        )
    return named or known[0]


def local_principal(settings: Settings) -> Principal:
    """Who asks where the operating system's user is the boundary: whoever the settings name.

    Raises:
        ConfigurationError: as `tenant_of`.
    """
    named = settings.principal
    return Principal(tenant_of(settings), named.user or None, frozenset(named.groups))


def declares_fields(data: Path, tenant: str) -> bool:
    """Whether collections of the tenant may declare fields to filter by; False is certain."""
    try:
        return tenant_file(data, tenant).stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
