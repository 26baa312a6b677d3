"""`refdesk-admin tenant`: create, list and remove tenants."""

from __future__ import annotations

from pathlib import Path

import click
from anyio import to_thread

from rag.access.rule import valid_name
from rag.access.tenants import at_tenant, storage_of, storages_of, tenants
from rag.admin.audit_command import Act, log_act
from rag.admin.command_line import command, confirmed_option, flag
from rag.admin.key_command import revoke_keys
from rag.admin.runs_command import forget_runs
from rag.admin.terminal import Group, echo, print_json, print_result, print_table
from rag.config.settings import Settings
from rag.errors import ConfigurationError, NotFoundError, RefdeskError
from rag.models.embed.embedding_cache import cache_file, forget
from rag.report import counted
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import drop_tenant, end_tenant
from rag.store.write.desk_folder import (
    forget_console,
    forget_owner,
    give_up,
    is_given_up,
    prepare,
    read_key,
    spending_reserve,
)
from rag.store.write.make_collection import create_tenant


@click.group("tenant", cls=Group)
def tenant_command() -> None:
    """Create, list and remove tenants.

    The first ingestion creates the first tenant automatically. With a second one, commands and servers need
    --tenant, or tenant in the settings.
    """


@command("create", tenant_command, of_tenant=False, changes=True)
@click.argument("name")
@click.option(
    "--storage",
    metavar="URI",
    help="Keep its documents in a database of its own: an empty folder, or a bucket like s3://bucket/acme.",
)
async def create_command(settings: Settings, *, name: str, storage: str | None) -> None:
    """Create a tenant. No other tenant sees its documents.

    With --storage, nothing of its documents is in the common database. A folder must be on this machine. A
    bucket is reached with [storage.options] of the settings and the credentials of the environment.
    """
    if valid_name(name) in tenants(settings.home):
        raise ConfigurationError(f"The tenant {name!r} already exists.")
    home = None if storage is None else settings.home_at(_absolute(storage))
    prepare(settings.home)
    database = {"storage": str(home)} if home else {}
    with log_act(settings.data, Act("tenant create", name, {name: (None, {"collections": [], **database})})):
        create_tenant(settings.home, name, home)
    created = f"Created the tenant {name}. Add documents with refdesk-admin ingest --tenant {name} PATH."
    print_result({"name": name} | database, created)


def _absolute(storage: str) -> str:
    is_folder = storage and "://" not in storage
    return str(Path(storage).expanduser().absolute()) if is_folder else storage


@command("list", tenant_command, of_tenant=False)
async def list_command(settings: Settings) -> None:
    """List the tenants and their collections."""
    reader, storages = DeskReader.of(settings), storages_of(settings.home)
    names = await reader.collection_names()
    storage: dict[str, dict[str, str]] = {tenant: {"storage": at} for tenant, at in storages.items()}
    for tenant, about in storage.items():
        try:
            names[tenant] = [collection.name for collection in await reader.collections(tenant)]
        except RefdeskError as error:
            about["problem"] = str(error)
    all_tenants = tenants(settings.home)
    listed = [
        {"name": tenant, "collections": names.get(tenant, [])} | storage.get(tenant, {})
        for tenant in all_tenants
    ]
    print_json({"tenants": listed})
    rows = [(tenant, ", ".join(names.get(tenant, [])) or "-") for tenant in all_tenants]
    none = "There are no tenants yet. The first refdesk-admin ingest PATH creates one."
    print_table([("TENANT", "COLLECTIONS"), *rows], empty=none)
    for tenant, about in storage.items():
        echo(about.get("problem") or f"The documents of {tenant} are in {about['storage']}.")


@command("remove", tenant_command, of_tenant=False, changes=True)
@click.argument("name")
@confirmed_option("Delete the tenant, all its documents and its keys.")
@flag(
    "--without-storage",
    help="Don't touch the storage that the tenant has of its own. Use it if that storage is lost.",
)
async def remove_command(settings: Settings, *, name: str, without_storage: bool) -> None:
    """Remove a tenant with all its documents and keys.

    Nothing needs to be purged after it: no file holds a text, an access record, an embedding or a
    description of the tenant any more. Servers can keep running, and other tenants aren't touched. If it is
    interrupted, run it again. The audit log keeps what was done. If the tenant has a storage of its own, all
    that is in it is deleted, too.
    """
    existing = tenants(settings.home)
    if name not in existing:
        names = ", ".join(existing) or "none"
        raise NotFoundError(f"There is no tenant {name!r} in {settings.home}. Tenants: {names}.")
    storage = storage_of(settings.home, name)
    if without_storage and not storage:
        raise ConfigurationError(
            f"The tenant {name!r} has no storage of its own. Leave out --without-storage."
        )
    own_home = settings.home_at(storage) if storage and not without_storage else None
    is_empty = without_storage or (own_home and is_given_up(own_home))
    of_tenant = None if is_empty else at_tenant(settings, name)
    collections = await DeskReader.of(of_tenant).collections(name) if of_tenant else ()
    collection_names = [collection.name for collection in collections]
    revoked = revoke_keys(settings.home, name)  # first, so that nobody asks for what is half removed
    gone = {name: ({"collections": collection_names}, None)}
    with log_act(settings.data, Act("tenant remove", name, gone, gives=False)):
        for attempt in spending_reserve(of_tenant.home if of_tenant else settings.home):
            with attempt:
                if of_tenant:
                    await drop_tenant(of_tenant.home, name, collections)
                if cache_file(settings.data).exists():
                    await to_thread.run_sync(forget, settings.data, read_key(settings.home), name)
        if of_tenant:
            forget_runs(of_tenant.home, name)
        forget_console(settings.data, name)
        if own_home:
            give_up(own_home)
        await end_tenant(settings.home, name)  # last, so that a removal that was killed can be repeated
        if own_home:
            forget_owner(own_home)
    contents = (
        f"{counted(len(collections), 'collection')}, {counted(revoked, 'API key')} and all access records"
    )
    removed = {"removed": name, "collections": collection_names, "keys": revoked}
    print_result(removed, f"Removed the tenant {name} with {contents}.")
