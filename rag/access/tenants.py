"""The tenants of a data folder, and the principal of a local server.

Commands and servers need both before they open the storage engine. So each tenant is also a file in the
folder `tenants`, which `rag.store.write.desk_folder` writes.

The file is empty, or has the address of the tenant's own storage: a folder or a bucket. It holds a desk of
this tenant alone, and the common desk holds none of its documents. An object `owner` there names the tenant,
so that a wrong address never leads to other documents, and an empty mount point isn't taken for a desk.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.rule import DEFAULT_TENANT, NAME_PATTERN
from rag.corpus import Principal
from rag.errors import ConfigurationError, RefdeskError, StoreError, if_system_refuses
from rag.home import Bucket, Home, local_folder, names, read, sizes, unreadable
from rag.report import names_briefly

if TYPE_CHECKING:
    from rag.config.settings import Settings

NAMED = 10  # tenants in a message; a desk can have thousands
UNKNOWN = "-"  # no tenant can have this name
OWNER = "owner"


def tenant_file(data: Path, tenant: str) -> Path:
    """The file of a tenant, whether it exists or not."""
    return data / "tenants" / tenant


def storage_of(data: Home, tenant: str) -> str:
    """The address of a tenant's own storage; empty if its documents are in the common home.

    Raises:
        StoreError: the tenant's record can't be read.
    """
    if not re.fullmatch(NAME_PATTERN, tenant):  # it becomes a path, and a token may name anything
        return ""
    try:
        return (read(data, f"tenants/{tenant}") or b"").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"The record of the tenant {tenant!r} in {data} can't be read.") from error


def storages_of(data: Home) -> dict[str, str]:
    """The addresses of tenants' own storages, by tenant.

    Raises:
        StoreError, ConfigurationError: the tenants can't be read.
    """
    try:
        of_own = [name for name, size in sizes(data, "tenants").items() if size and name[0] != "."]
    except OSError as error:
        raise ConfigurationError(unreadable(local_folder(data), error)) from error
    return {tenant: address for tenant in of_own if (address := storage_of(data, tenant))}


def owner_of(data: Home, tenant: str) -> bytes:
    """The content of `owner` in the storage of a tenant of this desk. An empty file means: nobody."""
    with if_system_refuses(StoreError, f"The key of {data} can't be read"):
        key = read(data, "key") or b""
    return hashlib.sha256(b"\0".join((b"refdesk owner", tenant.encode(), key))).hexdigest().encode()


def owner_in(storage: Home) -> bytes | None:
    """The content of `owner` in a storage; None if it doesn't exist.

    Raises:
        StoreError: it can't be read.
    """
    with if_system_refuses(StoreError, f"The storage {storage} can't be read"):
        return read(storage, OWNER)


def home_of(settings: Settings, tenant: str) -> Home:
    """The home of a tenant's documents: the common one, or its own storage. May block.

    Raises:
        ConfigurationError: its record has an invalid address.
        StoreError: the record or the storage can't be read, or the storage isn't the tenant's.
    """
    common = settings.common_home
    if not (address := storage_of(common, tenant)):
        return common
    home = settings.home_at(address)
    owner = owner_in(home)
    if owner != owner_of(common, tenant):  # never an empty desk instead: an ingestion would begin to fill it
        why = "it is not there" if owner is None else "it has another owner"
        raise StoreError(
            f"The documents of the tenant {tenant!r} can't be reached in {home}: {why}. Mount it, or put it "
            f"back, and nothing else needs to be done. If it is lost: refdesk-admin tenant remove {tenant} "
            f"--yes --without-storage, which ends its API keys, too. To restore a backup then: refdesk-admin "
            f"tenant create {tenant} --storage URI, and refdesk-admin restore FILE."
        )
    return home


def at_tenant(settings: Settings, tenant: str = "") -> Settings:
    """The settings with the home of a tenant's documents; by default of the tenant that the settings name.

    Raises:
        ConfigurationError, StoreError: as `home_of`.
    """
    try:
        tenant = tenant or tenant_of(settings)
    except RefdeskError:  # later use of the tenant raises it
        return settings
    home = home_of(settings, tenant)
    if home == settings.common_home:
        return settings
    principal = settings.principal.model_copy(update={"tenant": tenant})
    return settings.model_copy(update={"principal": principal}).at(home)


def tenants(data: Home) -> tuple[str, ...]:
    """The names of the tenants of a desk, sorted.

    Raises:
        ConfigurationError: the data folder can't be read.
        StoreError: the bucket can't be read.
    """
    try:
        return tuple(name for name in names(data, "tenants") if name[0] != ".")
    except OSError as error:
        raise ConfigurationError(unreadable(local_folder(data), error)) from error


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
    tenant, existing = settings.principal.tenant, tenants(settings.common_home)
    if not existing:
        return tenant or DEFAULT_TENANT
    if tenant is None and len(existing) > 1:
        raise ConfigurationError(
            f"{settings.common_home} holds the documents of {len(existing)} tenants "
            f"({names_briefly(existing, NAMED)}). Name one: set principal.tenant or "
            "REFDESK_PRINCIPAL_TENANT, or add --tenant NAME to a command."
        )
    if tenant is not None:
        check_tenant(settings.common_home, tenant)
    return tenant or existing[0]


def local_principal(settings: Settings) -> Principal:
    """The principal that the settings name, for servers and commands that the operating system's user starts.

    Raises:
        ConfigurationError: as `tenant_of`.
    """
    return settings.principal.of_tenant(tenant_of(settings))


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
            # Asked first: if the first tenant is made in between, the usual one isn't fixed in its place.
            settled = bool(tenants(self._settings.common_home))
            principal = local_principal(self._settings)
        except StoreError:  # requests will fail with the reason
            return self._settings.principal.of_tenant(self._settings.principal.tenant or UNKNOWN)
        if settled:
            self._principal = principal
        return principal
