"""`refdesk-admin remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rag.admin.acts import Act, access_state, recorded
from rag.admin.collection import removed
from rag.admin.console import collection_option, command, echo, print_json
from rag.admin.sources import meant, open_collections
from rag.config.settings import DEFAULT_COLLECTION
from rag.errors import InvalidRequestError, NotFoundError, StoreError
from rag.report.tables import counted
from rag.store.collections import open_writer
from rag.store.folder import is_full, spending_reserve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rag.admin.acts import State
    from rag.config.settings import Settings
    from rag.corpus import AccessRecord, Collection
    from rag.store.writer import CollectionWriter


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
    """Remove sources by id, file, folder, or pattern.

    Searches no longer find them. To delete their text from the disk, too, run refdesk-admin purge. Access
    records are kept in case the sources come back, unless you add --forget.
    """
    if everything == bool(sources):
        raise InvalidRequestError("Name the sources to remove, or use --all.")
    (table,) = await open_collections(settings, collection)
    async with open_writer(settings.data, table.collection) as writer:
        records = await writer.records()
        there = {one.id: one.uri for one in (await writer.known(records)).values()}
        past = {id_: one.uri for id_, one in records.items() if forget and one.collection in {"", collection}}
        named = {id_ for name in sources for id_ in _named(name, there | past, collection)}
        if everything:
            named = {*there, *(id_ for id_ in past if not records[id_].is_folder)}
        gone = [id_ for id_ in there if id_ in named]
        if not everything:
            with recorded(settings.data, _act(table.collection, records, named, gives=forget)):
                for attempt in spending_reserve(settings.data):
                    with attempt:
                        await writer.remove(gone)
                await writer.forget(named if forget else ())
            await _finish(writer)
    if everything:
        await removed(settings.data, table, "remove", forget=named if forget else ())
    if as_json:
        print_json({"removed": gone, "forgotten": len(named) if forget else 0})
        return
    echo(f"Removed {counted(len(gone), 'source')} from {collection}.")
    if forget:
        echo(f"Deleted {counted(len(named), 'access record')}.")


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


def _named(name: str, known: Mapping[str, str], collection: str) -> list[str]:
    if not (found := meant(name, known)):
        raise NotFoundError(
            f"No source in {collection} has the id or path {name!r}. List them with refdesk-admin sources."
        )
    return found
