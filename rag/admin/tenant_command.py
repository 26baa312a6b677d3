"""`refdesk-admin tenant`: create, list and remove tenants."""

from __future__ import annotations

import click
from anyio import to_thread

from rag.access.names import valid_name
from rag.access.tenants import tenants
from rag.admin.audit_command import Act, log_act
from rag.admin.command_line import command
from rag.admin.key_command import revoke_keys
from rag.admin.runs_command import forget_runs
from rag.admin.sources_command import open_reader
from rag.admin.terminal import Group, echo, print_json, print_table
from rag.config.settings import Settings
from rag.errors import ConfigurationError, NotFoundError
from rag.models.embed.embedding_cache import cache_file, forget
from rag.report.text_and_html import counted
from rag.store.write.change_collection import drop_tenant
from rag.store.write.desk_folder import forget_console, forget_tenant, prepare, read_key, spending_reserve
from rag.store.write.make_collection import create_tenant


@click.group("tenant", cls=Group)
def tenant_command() -> None:
    """Create, list and remove tenants.

    The first ingestion creates the first tenant automatically. With a second one, commands and servers need
    --tenant, or tenant in the settings.
    """


@command("create", of_tenant=False, on_bucket=True, changes=True)
@click.argument("name")
async def create_command(settings: Settings, *, name: str, as_json: bool) -> None:
    """Create a tenant. No other tenant sees its documents."""
    if valid_name(name) in tenants(settings.home):
        raise ConfigurationError(f"The tenant {name!r} already exists.")
    prepare(settings.home)
    with log_act(settings.data, Act("tenant create", name, {name: (None, {"collections": []})})):
        create_tenant(settings.home, name)
    if as_json:
        print_json({"name": name})
    else:
        echo(f"Created the tenant {name}. Add documents with refdesk-admin ingest --tenant {name} PATH.")


@command("list", of_tenant=False, on_bucket=True)
async def list_command(settings: Settings, *, as_json: bool) -> None:
    """List the tenants and their collections."""
    by_tenant = await open_reader(settings).collection_names()
    names = {tenant: by_tenant.get(tenant, []) for tenant in tenants(settings.home)}
    if as_json:
        listed = [{"name": tenant, "collections": theirs} for tenant, theirs in names.items()]
        print_json({"tenants": listed})
    elif names:
        rows = [(tenant, ", ".join(theirs) or "-") for tenant, theirs in names.items()]
        print_table([("TENANT", "COLLECTIONS"), *rows])
    else:
        echo("There are no tenants yet. The first refdesk-admin ingest PATH creates one.")


@command("remove", of_tenant=False, on_bucket=True, changes=True)
@click.argument("name")
@click.option("--yes", is_flag=True, required=True, help="Delete the tenant, all its documents and its keys.")
async def remove_command(settings: Settings, *, name: str, yes: bool, as_json: bool) -> None:  # noqa: ARG001 required by click
    """Remove a tenant with all its documents and keys.

    Nothing needs to be purged after it: no file holds a text, an access record, an embedding or a
    description of the tenant any more. Servers can keep running, and other tenants aren't touched. If it is
    interrupted, run it again. The audit log keeps what was done.
    """
    existing = tenants(settings.home)
    if name not in existing:
        names = ", ".join(existing) or "none"
        raise NotFoundError(f"There is no tenant {name!r} in {settings.home}. Tenants: {names}.")
    collections = await open_reader(settings).collections(name)
    collection_names = [collection.name for collection in collections]
    revoke_keys(settings.home, name)
    gone = {name: ({"collections": collection_names}, None)}
    with log_act(settings.data, Act("tenant remove", name, gone, gives=False)):
        for attempt in spending_reserve(settings.home):
            with attempt:
                await drop_tenant(settings.home, name, collections)
                if cache_file(settings.data).exists():
                    await to_thread.run_sync(forget, settings.data, read_key(settings.home), name)
        forget_runs(settings.home, name)
        forget_console(settings.data, name)
        forget_tenant(settings.home, name)  # last, so that a removal that was killed can be repeated
    if as_json:
        print_json({"removed": name, "collections": collection_names})
    else:
        echo(
            f"Removed the tenant {name} with {counted(len(collections), 'collection')} "
            "and all access records."
        )


for subcommand in (create_command, list_command, remove_command):
    tenant_command.add_command(subcommand)
