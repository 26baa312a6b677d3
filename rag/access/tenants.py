"""The tenants of a data folder, and the principal of a local server.

Commands and servers need both before they open the storage engine. So each tenant is also a file in the
folder `tenants`, which `rag.store.write.desk_folder` writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.names import DEFAULT_TENANT
from rag.corpus import Principal
from rag.errors import ConfigurationError, StoreError
from rag.home import Bucket, Home, names
from rag.report.text_and_html import names_briefly

if TYPE_CHECKING:
    from rag.config.settings import Settings

NAMED = 10  # tenants in a message; a desk can have thousands
UNKNOWN = "-"  # no tenant can have this name


def tenant_file(data: Path, tenant: str) -> Path:
    """The file of a tenant, whether it exists or not. It is empty."""
    return data / "tenants" / tenant


def tenants(data: Home) -> tuple[str, ...]:
    """The names of the tenants of a desk, sorted.

    Raises:
        ConfigurationError: the data folder can't be read.
        StoreError: the bucket can't be read.
    """
    try:
        return tuple(name for name in names(data, "tenants") if name[0] != ".")
    except OSError as error:
        raise ConfigurationError(f"The data folder {data} can't be read: {error.strerror}.") from error


def has_tenant(data: Home, tenant: str) -> bool:
    """Whether a tenant exists.

    Raises:
        StoreError: the bucket can't be read.
    """
    return tenant in tenants(data) if isinstance(data, Bucket) else tenant_file(data, tenant).exists()


def check_tenant(data: Home, tenant: str) -> None:
    """Check that a tenant exists. In a data folder without tenants, every name passes.

    Raises:
        ConfigurationError: the name is empty, the folder has other tenants only, or it can't be read.
    """
    if not tenant:
        raise ConfigurationError('A principal needs a tenant. The usual one is Principal("default").')
    existing = tenants(data)
    if existing and tenant not in existing:
        raise ConfigurationError(
            f"There is no tenant {tenant!r} in {data}; there are: {names_briefly(existing, NAMED)}. "
            f"To create it, run refdesk-admin tenant create {tenant}."
        )


def tenant_of(settings: Settings) -> str:
    """The tenant that the settings name, or else the only one in the data folder.

    Raises:
        ConfigurationError: there are several and the settings name none, or they name an unknown one.
    """
    tenant, existing = settings.principal.tenant, tenants(settings.home)
    if not existing:
        return tenant or DEFAULT_TENANT
    if tenant is None and len(existing) > 1:
        raise ConfigurationError(
            f"{settings.home} holds the documents of {len(existing)} tenants "
            f"({names_briefly(existing, NAMED)}). Name one: set principal.tenant or "
            "REFDESK_PRINCIPAL_TENANT, or add --tenant NAME to a command."
        )
    if tenant is not None:
        check_tenant(settings.home, tenant)
    return tenant or existing[0]


def local_principal(settings: Settings) -> Principal:
    """The principal that the settings name, for servers and commands that the operating system's user starts.

    Raises:
        ConfigurationError: as `tenant_of`.
    """
    configured = settings.principal
    return Principal(tenant_of(settings), configured.user or None, frozenset(configured.groups))


class LocalAsker:
    """The local principal. Until the data folder has tenants it isn't fixed: it may be mounted later."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._principal: Principal | None = None

    @property
    def fixed_tenant(self) -> str | None:
        """The tenant that the settings name or that is fixed; None while it may still change."""
        return self._principal.tenant if self._principal else self._settings.principal.tenant

    def principal(self) -> Principal:
        """The principal. It is fixed once there are tenants, even if more are created later.

        While a bucket can't be read, it belongs to no tenant, unless the settings name one.

        Raises:
            ConfigurationError: as `tenant_of`.
        """
        if self._principal:
            return self._principal
        try:
            settled = bool(tenants(self._settings.home))
            principal = local_principal(self._settings)
        except StoreError:  # requests will fail, too, with the reason
            configured = self._settings.principal
            return Principal(
                configured.tenant or UNKNOWN, configured.user or None, frozenset(configured.groups)
            )
        if settled:
            self._principal = principal
        return principal
