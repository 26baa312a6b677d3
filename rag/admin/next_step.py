"""`refdesk-admin` alone: how this desk stands, and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.access.tenants import tenant_of
from rag.admin.connect_output import connected_hosts, how_to_connect
from rag.admin.console import command, echo, print_json, same_desk, settings_file
from rag.admin.sources import open_collections, readable
from rag.errors import ConfigurationError
from rag.home import data_folder_problem
from rag.report.tables import counted, listed

if TYPE_CHECKING:
    from rag.config.settings import Settings

HOSTS_SHOWN = 4


@command("next", on_bucket=True)
async def next_command(settings: Settings, *, as_json: bool) -> None:
    """Say how this desk stands, and what to do next."""
    documents, collections = await _holds(settings)
    hosts = connected_hosts()
    if as_json:
        print_json(
            {"data": str(settings.home), "documents": documents, "collections": collections, "hosts": hosts}
        )
        return
    for line in _lines(settings, documents, collections, hosts):
        echo(line)


async def _holds(settings: Settings) -> tuple[int, int]:
    """How many documents and collections the tenant has.

    Raises:
        ConfigurationError: the data folder is something else.
    """
    if problem := data_folder_problem(settings.home):
        data = settings.data
        if settings.storage.uri or data.is_file() or (data.is_dir() and any(data.iterdir())):
            raise ConfigurationError(problem)
        return 0, 0
    tables = readable(await open_collections(settings, None))
    counts = [(await table.statistics()).sources for table in tables]
    return sum(counts), len(counts)


def _lines(settings: Settings, documents: int, collections: int, hosts: list[str]) -> list[str]:
    desk = same_desk()
    file = settings_file()
    where = f"{'Bucket' if settings.storage.uri else 'Data folder':12} {settings.home}"
    settings_line = (
        f"Settings     {file if file.exists() else f'the defaults (refdesk-admin init writes {file})'}"
    )
    head = [where, settings_line]
    end = ["", "All commands: refdesk-admin --help"]
    if not documents:
        steps = [
            f"Next: refdesk-admin ingest PATH{desk}",
            "To see first what it does, with a small collection of its own: refdesk-admin demo",
        ]
        return [*head, "Documents    none yet", "", *steps, *end]
    head.append(f"Tenant       {tenant_of(settings)}")
    head.append(f"Documents    {documents:,} in {counted(collections, 'collection')}")
    if not hosts:
        return [*head, "Hosts        none yet", "", f"Next: {how_to_connect()}", *end]
    steps = [
        f'Ask your assistant, or try it here: refdesk-admin search "..."{desk}',
        f"To see what a host sees: refdesk-admin connect {hosts[0]} --check",
    ]
    return [*head, f"Hosts        {listed(hosts, HOSTS_SHOWN)}", "", *steps, *end]
