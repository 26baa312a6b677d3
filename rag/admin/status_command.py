"""The state of a desk: `refdesk-admin` alone, which names the next step, and `refdesk-admin status`."""

from __future__ import annotations

from rag.access.tenants import tenant_of
from rag.admin.command_line import command, same_desk, settings_file
from rag.admin.connect.connect_output import connected_hosts, how_to_connect
from rag.admin.sharing import exposures
from rag.admin.sources_command import folder_bytes, open_collections, readable_tables, size_of
from rag.admin.terminal import echo, print_json, print_table
from rag.config.settings import Settings
from rag.corpus import DEFAULT_EMBEDDER
from rag.errors import ConfigurationError
from rag.home import data_folder_problem
from rag.report.text_and_html import counted, names_briefly

HOSTS_SHOWN = 4


@command("next", on_bucket=True)
async def next_command(settings: Settings, *, as_json: bool) -> None:
    """Show the state of this desk, and what to do next."""
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
    """The tenant's numbers of documents and collections.

    Raises:
        ConfigurationError: the folder isn't a data folder of refdesk.
    """
    if problem := data_folder_problem(settings.home):
        data = settings.data
        if settings.storage.uri or data.is_file() or (data.is_dir() and any(data.iterdir())):
            raise ConfigurationError(problem)
        return 0, 0
    tables = readable_tables(await open_collections(settings, None))
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
    return [*head, f"Hosts        {names_briefly(hosts, HOSTS_SHOWN)}", "", *steps, *end]


@command("status", on_bucket=True)
async def status_command(settings: Settings, *, as_json: bool) -> None:
    """Show the data folder and the size of each collection."""
    tables = await open_collections(settings, None)
    collections = [await size_of(table) for table in readable_tables(tables)]
    home = settings.home
    disk = folder_bytes(home)
    exposed = await exposures(settings, tenant_of(settings), intended=True)
    if as_json:
        opened = {exposure.collection.name: exposure.documents for exposure in exposed}
        shared = {"open_to_others": opened} if opened else {}
        print_json({"data": str(home), "bytes": disk, "collections": collections} | shared)
        return
    echo(f"{'Bucket' if settings.storage.uri else 'Data folder':12} {home} ({disk / 1e6:.1f} MB)")
    echo(f"Tenant       {tenant_of(settings)}")
    for name, embedder in settings.embedders_by_name.items():
        label = "" if name == DEFAULT_EMBEDDER else f"{name}: "
        echo(f"Embedder     {label}{embedder.provider} {embedder.model}".rstrip())
    if not collections:
        echo(f"There are no collections yet. Add documents with refdesk-admin ingest PATH{same_desk()}")
        return
    echo()
    columns = ("name", "sources", "chunks", "unindexed", "language")
    rows = [
        (*(size[column] for column in columns), size["embedder"]["model"], ", ".join(size["indexes"]))
        for size in collections
    ]
    print_table([("COLLECTION", "SOURCES", "CHUNKS", "UNINDEXED", "LANGUAGE", "EMBEDDER", "INDEXES"), *rows])
    attached = {table.collection.name: table.collection.attached for table in tables}
    for size in collections:
        if table := attached[size["name"]]:
            echo(f"{size['name']} is the attached table {table.table}.")
        if not settings.has_embedder(size["embedder_name"]):
            echo(
                f"{size['name']} is searched by words only: the settings have no table "
                f"[embedders.{size['embedder_name']}], and no model of that name is installed. "
                "See refdesk-admin config check."
            )
        if (lacking := size["without_vector"]) and not table:
            echo(
                f"{counted(lacking, 'chunk')} of {size['name']} found by words only: the embedding model "
                "had no valid vector. The next ingest asks again."
            )
    for exposure in exposed:
        echo(exposure)
