"""The state of a desk: `refdesk-admin` alone, which names the next step, and `refdesk-admin status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anyio import to_thread

from rag.access.tenants import home_of, storages_of, tenant_of, tenants
from rag.admin import sources_command
from rag.admin.command_line import command, nothing_yet, same_desk, settings_file
from rag.admin.connect.connect_command import connected_hosts, how_to_connect
from rag.admin.orphaned_documents import orphaned_documents
from rag.admin.runs_command import troubled_runs
from rag.admin.sharing import exposures
from rag.admin.terminal import echo, print_json, print_result, print_table, wants_json
from rag.config.settings import Settings
from rag.corpus import DEFAULT_EMBEDDER, Attachment
from rag.errors import ConfigurationError, RefdeskError
from rag.home import Bucket, Home, data_folder_problem
from rag.report import counted, names_briefly
from rag.run_history import IngestionRun, last_runs
from rag.store.read.desk_reader import DeskReader

HOSTS_SHOWN = 4
LARGEST_SHOWN, FAILURES_SHOWN = 10, 20


@command("next")
async def next_command(settings: Settings) -> None:
    """Show the state of this desk, and what to do next."""
    (documents, collections), hosts = await _holds(settings), connected_hosts()
    state = {"data": str(settings.home), "documents": documents, "collections": collections, "hosts": hosts}
    print_result(state, *_lines(settings, documents, collections, hosts))


async def _holds(settings: Settings) -> tuple[int, int]:
    if problem := data_folder_problem(settings.home):
        data = settings.data
        if settings.storage.uri or data.is_file() or (data.is_dir() and any(data.iterdir())):
            raise ConfigurationError(problem)
        return 0, 0
    tables = sources_command.readable_tables(await sources_command.open_collections(settings, None))
    counts = [(await table.statistics()).sources for table in tables]
    return sum(counts), len(counts)


def _where(settings: Settings) -> str:
    return f"{'Bucket' if isinstance(settings.home, Bucket) else 'Data folder':12} {settings.home}"


def _lines(settings: Settings, documents: int, collections: int, hosts: list[str]) -> list[str]:
    desk, file = same_desk(), settings_file()
    in_force = file if file.exists() else f"the defaults (refdesk-admin init writes {file})"
    head = [_where(settings), f"Settings     {in_force}"]
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


@command("status")
async def status_command(settings: Settings) -> None:
    """Show the data folder and the size of each collection.

    A table shows when each origin was synced and last reached. If there are several tenants and none is
    named, show how many they are, the largest ones, and what failed.
    """
    if settings.principal.tenant is None and len(tenants(settings.home)) > 1:
        await _show_installation(settings)
        return
    tables = await sources_command.open_collections(settings, None)
    collections = [await sources_command.size_of(table) for table in sources_command.readable_tables(tables)]
    home, disk = settings.home, sources_command.folder_bytes(settings.home)
    exposed = await exposures(settings, tenant_of(settings), intended=True)
    opened = {exposure.collection.name: exposure.documents for exposure in exposed}
    shared: dict[str, object] = {"open_to_others": opened} if opened else {}
    last = [*last_runs(home, tenant_of(settings), settings.origins)]
    synced = [run for run in last if run.origin]
    states = {run.origin: run.model_dump(mode="json", include=ORIGIN_STATE) for run in synced}
    shared |= {"origins": states} if states else {}
    print_json({"data": str(home), "bytes": disk, "collections": collections} | shared)
    if wants_json():  # what follows reads all documents
        return
    echo(f"{_where(settings)} ({disk / 1e6:.1f} MB)")
    echo(f"Tenant       {tenant_of(settings)}")
    for name, embedder in settings.embedders_by_name.items():
        label = "" if name == DEFAULT_EMBEDDER else f"{name}: "
        echo(f"Embedder     {label}{embedder.provider} {embedder.model}".rstrip())
    if not collections:
        echo(nothing_yet("collections"))
        return
    echo()
    columns = ("name", "sources", "chunks", "unindexed", "language")
    rows = [
        (*(size[column] for column in columns), size["embedder"]["model"], ", ".join(size["indexes"]))
        for size in collections
    ]
    print_table([("COLLECTION", "SOURCES", "CHUNKS", "UNINDEXED", "LANGUAGE", "EMBEDDER", "INDEXES"), *rows])
    _print_origins(synced)
    attached = {table.collection.name: table.collection.attached for table in tables}
    for size in collections:
        for line in _size_remarks(settings, size, attached[size["name"]]):
            echo(line)
    runs = [f"{run.collection}: {run.text}" for run in troubled_runs(last, tenant_of(settings))]
    for remark in (*exposed, *await orphaned_documents(settings, tenant_of(settings)), *runs):
        echo(remark)


def _size_remarks(settings: Settings, size: Mapping[str, Any], attached: Attachment | None) -> Iterator[str]:
    """What a reader of a collection's size should know: where it is, and what is searched by words only."""
    if attached:
        yield f"{size['name']} is the attached table {attached.table}."
    if not settings.has_embedder(size["embedder_name"]):
        yield (
            f"{size['name']} is searched by words only: the settings have no table "
            f"[embedders.{size['embedder_name']}], and no model of that name is installed. "
            "See refdesk-admin config check."
        )
    if (lacking := size["without_vector"]) and not attached:
        yield (
            f"{counted(lacking, 'chunk')} of {size['name']} found by words only: the embedding model "
            "had no valid vector. The next ingest asks again."
        )


ORIGIN_STATE = {"collection", "began", "result", "reached"}


def _print_origins(synced: Iterable[IngestionRun]) -> None:
    titles = ("ORIGIN", "COLLECTION", "LAST SYNC", "RESULT", "REACHED")
    rows = []
    for run in sorted(synced, key=lambda run: run.origin):
        reached = f"{run.reached:%Y-%m-%d %H:%M}" if run.reached else "never"
        rows.append((run.origin, run.collection, f"{run.began:%Y-%m-%d %H:%M}", run.result, reached))
    if rows:
        echo()
        print_table([titles, *rows])


@dataclass(frozen=True, slots=True)
class TenantSize:
    """How much a tenant has. `failed` says what is wrong with which of its collections."""

    name: str
    collections: int
    documents: int
    bytes: int
    failed: tuple[str, ...] = ()


async def _show_installation(settings: Settings) -> None:
    home, reader = settings.home, DeskReader.of(settings)
    common_sizes, storages = sources_command.table_sizes(home), storages_of(home)
    all_sizes = []
    for name in tenants(home):
        try:
            tenant_home, sizes = home, common_sizes
            if name in storages:
                tenant_home = await to_thread.run_sync(home_of, settings, name)
                sizes = sources_command.table_sizes(tenant_home)
            all_sizes.append(await _size_of_tenant(settings, reader, tenant_home, name, sizes[name]))
        except RefdeskError as error:
            if name not in storages:
                raise
            all_sizes.append(TenantSize(name, 0, 0, 0, (str(error),)))
    total = sum(size.bytes for size in all_sizes)
    print_json({"data": str(home), "bytes": total, "tenants": [asdict(size) for size in all_sizes]})
    echo(_where(settings))
    documents = f"{sum(size.documents for size in all_sizes):,} documents"
    collections = f"{sum(size.collections for size in all_sizes):,} collections"
    tables = f"tables of {total / 1e6:,.1f} MB"
    echo(f"Tenants      {len(all_sizes):,}, with {documents} in {collections} and {tables}")
    echo()
    largest = sorted(all_sizes, key=lambda size: (-size.bytes, size.name))[:LARGEST_SHOWN]
    title = "LARGEST TENANTS" if len(largest) < len(all_sizes) else "TENANT"
    rows = [
        (size.name, f"{size.collections:,}", f"{size.documents:,}", f"{size.bytes / 1e6:,.1f}")
        for size in largest
    ]
    print_table([(title, "COLLECTIONS", "DOCUMENTS", "MB"), *rows])
    failed = [problem for size in all_sizes for problem in size.failed]
    for problem in failed[:FAILURES_SHOWN]:
        echo(problem)
    if len(failed) > FAILURES_SHOWN:
        echo(f"{len(failed) - FAILURES_SHOWN:,} more failed; --json lists all.")
    echo(f"Of one tenant: refdesk-admin status --tenant NAME{same_desk()}")


async def _size_of_tenant(
    settings: Settings, reader: DeskReader, home: Home, tenant: str, size: int
) -> TenantSize:
    collections, documents, failed = await reader.collections(tenant), 0, []
    for collection in collections:
        try:
            table = await reader.open(collection)
            if table.failed:
                failed.append(f"{tenant}.{collection.name}: its attached table can't be read.")
            else:
                documents += await table.source_count()
        except RefdeskError as error:
            failed.append(f"{tenant}.{collection.name}: {error}")
    runs = troubled_runs(last_runs(home, tenant, settings.origins), tenant)
    failed += [f"{tenant}.{run.collection}: {run.text}" for run in runs]
    return TenantSize(tenant, len(collections), documents, size, tuple(failed))
