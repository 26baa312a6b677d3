"""`refdesk-admin remove`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.acts import Act, access_state, recorded
from rag.admin.collection import removed
from rag.admin.console import collection_option, command, echo, print_json
from rag.admin.sources import called, meant, open_collections
from rag.config.settings import DEFAULT_COLLECTION
from rag.errors import BusyError, InvalidRequestError, NotFoundError, StoreError
from rag.ingest.source_paths import is_local, path_of
from rag.originals import local_path
from rag.report.tables import counted
from rag.store.read import catalog
from rag.store.write.access_writer import access_table, mark_removed
from rag.store.write.change_collection import open_writer
from rag.store.write.desk_folder import is_full

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from rag.admin.acts import State
    from rag.config.settings import Settings
    from rag.corpus import AccessRecord, Collection
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.write.collection_writer import CollectionWriter

NAMED = 3  # files in a message
COMES_BACK = (
    "The next ingest or sync brings back what still exists: {}. To keep a file out, delete it, or name it in "
    "a file .refdeskignore in its folder."
)
REMOVED_BUT = "Removed {}: searches no longer find them. {}: run the command again later. {}"


@command("remove")
@click.argument("sources", nargs=-1, metavar="[ID|PATH]...")
@click.option("--all", "everything", is_flag=True, help="Remove the whole collection.")
@click.option(
    "--forget", is_flag=True, help="Also delete their access records, including those of removed sources."
)
@collection_option(DEFAULT_COLLECTION)
async def remove_command(
    settings: Settings,
    *,
    sources: tuple[str, ...],
    everything: bool,
    forget: bool,
    collection: str,
    as_json: bool,
) -> None:
    """Remove sources by id, file, folder, path, title, or pattern.

    Searches no longer find them. To delete their text from the disk, too, run refdesk-admin purge. Access
    records are kept in case the sources come back, unless you add --forget.
    """
    if everything == bool(sources):
        raise InvalidRequestError("Name the sources to remove, or use --all.")
    (table,) = await open_collections(settings, collection)
    async with access_table(settings.data, table.collection.tenant) as access:
        records = await access.records()
    sources_there = await table.listing()
    there, names = {source.id: source.uri for source in sources_there}, called(sources_there)
    past = {
        id_: record.uri for id_, record in records.items() if forget and record.collection in {"", collection}
    }
    chosen = {id_ for name in sources for id_ in _named(name, there | past, names, collection)}
    if everything:
        chosen = {*there, *(id_ for id_ in past if not records[id_].is_folder)}
    gone = [id_ for id_ in there if id_ in chosen]
    catalog.check_writable(table.collection)
    if everything:
        await _remove_all(settings, table, gone, forget=chosen if forget else ())
    else:
        with recorded(settings.data, _act(table.collection, records, chosen, gives=forget)):
            await mark_removed(settings.data, table.collection.tenant, gone)
            await _delete(settings.data, table.collection, gone, forget=chosen if forget else ())
    comes_back = [path_of(there[id_]) for id_ in gone if _still_exists(there[id_], settings)]
    if as_json:
        print_json({"removed": gone, "forgotten": len(chosen) if forget else 0})
        return
    echo(f"Removed {counted(len(gone), 'source')} from {collection}.")
    if forget:
        echo(f"Deleted {counted(len(chosen), 'access record')}.")
    if comes_back:
        others = len(comes_back) - NAMED
        existing = ", ".join(comes_back[:NAMED]) + (f" and {others} more" if others > 0 else "")
        echo(COMES_BACK.format(existing), err=True)


async def _remove_all(
    settings: Settings, table: CollectionReader, ids: Sequence[str], *, forget: Iterable[str]
) -> None:
    """Remove the collection. While another command writes to it, remove what it holds, and say so."""
    try:
        await removed(settings.data, table, "remove", forget=forget)
    except BusyError as error:
        tenant = table.collection.tenant
        async with access_table(settings.data, tenant) as access:
            records = await access.of(ids)
        with recorded(settings.data, _act(table.collection, records, records, gives=False)):
            await mark_removed(settings.data, tenant, ids)
        raise BusyError(
            REMOVED_BUT.format(counted(len(ids), "source"), "The collection stays", error)
        ) from error


async def _delete(data: Path, collection: Collection, ids: Sequence[str], *, forget: Iterable[str]) -> None:
    """Delete the rows of sources whose removal is in force, and forget these access records.

    While another command writes to the collection, it deletes the rows when it ends. It must still find the
    access records, so these stay.
    """
    try:
        async with open_writer(data, collection) as writer:  # which deletes the rows
            await writer.forget(forget)
            await _finish(writer)
    except BusyError as error:
        if forget:
            message = REMOVED_BUT.format(counted(len(ids), "source"), "Their access records stay", error)
            raise BusyError(message) from error
        echo("Searches no longer find them. The command that is writing now deletes their text.", err=True)


def _still_exists(uri: str, settings: Settings) -> bool:
    """Whether the next ingestion of its folder, or sync of its origin, would bring a source back."""
    if is_local(uri):
        return Path(local_path(uri.partition("#")[0])).exists()
    return uri.removeprefix("origin:").partition("/")[0] in settings.origins


async def _finish(writer: CollectionWriter) -> None:
    """Compact what is left. On a full disk it waits: what was removed is gone all the same."""
    try:
        await writer.finish()
    except StoreError as error:
        if not is_full(error):
            raise
        echo(f"The next ingestion will compact {writer.collection.name}: the disk is full.", err=True)


def _act(
    collection: Collection, records: Mapping[str, AccessRecord], ids: Iterable[str], *, gives: bool
) -> Act:
    """The removal of these sources, with their URIs and access."""
    changes: dict[str, tuple[State, State]] = {
        id_: ({"uri": records[id_].uri, **(access_state(records[id_].access) or {})}, None)
        for id_ in sorted(ids)
    }
    return Act("remove", collection.tenant, changes, collection.name, gives=gives)


def _named(
    name: str, uris: Mapping[str, str], names: Mapping[str, AbstractSet[str]], collection: str
) -> list[str]:
    if not (ids := meant(name, uris, names)):
        raise NotFoundError(
            f"No source in {collection} has the id or path {name!r}. List them with refdesk-admin sources."
        )
    return ids
