"""`refdesk-admin remove` hides sources from searches; `refdesk-admin purge` deletes their text from disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
from anyio import to_thread

from rag.access.tenants import tenant_of
from rag.admin.audit_command import Act, State, access_state, log_act
from rag.admin.command_line import collection_option, command, flag, nothing_yet
from rag.admin.runs_command import forget_names
from rag.admin.sources_command import NameIndex, folder_bytes, open_collections, readable_tables, reply_names
from rag.admin.terminal import echo, print_result, wants_json
from rag.config.settings import DEFAULT_COLLECTION, Settings
from rag.corpus import AccessRecord, Collection
from rag.errors import BusyError, NotFoundError, StoreError
from rag.home import Home, local_folder
from rag.ingest.document_admission import has_expired
from rag.ingest.source_files import is_local, path_of
from rag.models.embed import embedding_cache
from rag.originals import local_path
from rag.report import counted, names_briefly
from rag.store.read import catalog
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import original_id
from rag.store.write.access_writer import access_table, mark_removed
from rag.store.write.change_collection import forget_builds, open_writer
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import is_full, read_key, writable

NAMED = 3  # files in a message
STILL_IN = (
    "Some of these files are in other collections, too, and stay there: {}. Name one with --collection."
)
IN_TAG = "Nothing is ingested into {}, which is a tag, so what was removed from it stays away."


@command("remove", changes=True)
@click.argument("sources", nargs=-1, required=True, metavar="ID|PATH...")
@flag("--forget", help="Also delete their access records, and the records of sources removed before.")
@collection_option(DEFAULT_COLLECTION)
async def remove_command(
    settings: Settings, *, sources: tuple[str, ...], forget: bool, collection: str
) -> None:
    """Remove sources by id, file, folder, path, title, or pattern.

    Searches no longer find them. To delete their text from the disk, too, run refdesk-admin purge. Access
    records are kept in case the sources come back, unless you add --forget. To remove a whole collection, run
    refdesk-admin collection remove.
    """
    table = await _collection_with(settings, sources, collection)
    async with access_table(settings.home, table.collection.tenant) as access:
        records = await access.records()
    sources_there = await table.listing()
    there = {source.id: source.uri for source in sources_there}
    # With --forget, sources that were removed earlier can be named, too, by their access records.
    past = {
        id_: record.uri for id_, record in records.items() if forget and record.collection in {"", collection}
    }
    index = NameIndex.of(there | past, reply_names(sources_there))
    chosen = set[str]()
    for name in sources:
        if not (ids := index.matching(name)):
            raise NotFoundError(await _not_there(settings, name, collection))
        chosen |= {*ids}
    gone = [id_ for id_ in there if id_ in chosen]
    catalog.check_writable(table.collection)
    # To forget a record can give: a document that comes back then has the usual access.
    act = Act("remove", table.collection.tenant, _gone(records, chosen), table.collection.name, gives=forget)
    with log_act(settings.data, act):
        # The tombstones hide the sources at once; deleting their rows may have to wait for a lock.
        await mark_removed(settings.home, table.collection.tenant, gone)
        await _delete(settings.home, table.collection, gone, forget=chosen if forget else ())
    print_result(
        {"removed": gone, "forgotten": len(chosen) if forget else 0},
        f"Removed {counted(len(gone), 'source')} from {collection}.",
        *([f"Deleted {counted(len(chosen), 'access record')}."] if forget else []),
    )
    if not wants_json():
        _tell_what_stays(settings, table.collection, [there[id_] for id_ in gone], records.values())


def _tell_what_stays(
    settings: Settings, collection: Collection, uris: Sequence[str], records: Iterable[AccessRecord]
) -> None:
    """Say where removed sources still are, and which of them the next ingestion brings back."""
    removed = frozenset(uris)
    holding = {record.collection for record in records if record.present and record.uri in removed}
    if in_others := holding - {"", collection.name}:
        echo(STILL_IN.format(names_briefly(sorted(in_others), NAMED)), err=True)
    if comes_back := [path_of(uri) for uri in uris if _still_exists(uri, settings)]:
        again = (
            f"The next ingest or sync brings back what still exists: {names_briefly(comes_back, NAMED)}. To "
            "keep a file out, delete it, or name it in a file .refdeskignore in its folder."
        )
        echo(IN_TAG.format(collection.name) if collection.tag_of else again, err=True)


async def _delete(data: Home, collection: Collection, ids: Sequence[str], *, forget: Iterable[str]) -> None:
    """Delete the rows of sources that are marked as removed (tombstones), and forget these access records.

    If another command is writing to the collection, it will delete the rows when it ends. It needs the access
    records for that, so these stay.
    """
    try:
        async with open_writer(data, collection) as writer:  # which deletes the rows
            await writer.forget(forget)
            await _finish(writer)
    except BusyError as error:
        if forget:
            raise BusyError(
                f"Removed {counted(len(ids), 'source')}: searches no longer find them. Their access records "
                f"stay: run the command again later. {error}"
            ) from error
        echo("Searches no longer find them. The command that is writing now deletes their text.", err=True)


def _still_exists(uri: str, settings: Settings) -> bool:
    """Whether the next ingestion of its folder, or sync of its origin, would bring a source back."""
    if is_local(uri):
        return Path(local_path(uri.partition("#")[0])).exists()
    return uri.removeprefix("origin:").partition("/")[0] in settings.origins


async def _finish(writer: CollectionWriter) -> None:
    """Compact the tables. A full disk postpones only that: the rows are deleted already."""
    try:
        await writer.finish()
    except StoreError as error:
        if not is_full(error):
            raise
        echo(f"The next ingestion will compact {writer.collection.name}: the disk is full.", err=True)


def _gone(records: Mapping[str, AccessRecord], ids: Iterable[str]) -> dict[str, tuple[State, State]]:
    """The logged changes of removing these sources, with their URIs and access."""
    gone = ((id_, records[id_]) for id_ in sorted(ids))
    return {id_: ({"uri": record.uri, **(access_state(record.access) or {})}, None) for id_, record in gone}


async def _collection_with(settings: Settings, sources: Sequence[str], name: str) -> CollectionReader:
    """The collection of this name. If only the default is missing, the error says where the source is."""
    try:
        (table,) = await open_collections(settings, name)
    except NotFoundError:
        if not sources or name != DEFAULT_COLLECTION:
            raise
        raise NotFoundError(await _not_there(settings, sources[0], name)) from None
    return table


async def _not_there(settings: Settings, name: str, collection: str) -> str:
    """The message that a collection has no source of this name, with the collections that have one."""
    holders = []
    for table in readable_tables(await open_collections(settings, None)):
        listing = await table.listing()
        index = NameIndex.of({source.id: source.uri for source in listing}, reply_names(listing))
        if index.matching(name):
            holders.append(table.collection.name)
    hint = "List them with refdesk-admin sources"
    if holders:
        hint = f"It is in {holders[0]}: add --collection {holders[0]}"
    return f"No source in {collection} has the id or path {name!r}. {hint}."


SMALLEST = 100_000  # bytes that are printed as a number


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of purging a collection.

    `freed_bytes` is 0 if the data folder has grown. `dropped_rebuild`: tables of another build were deleted.
    """

    name: str
    sources: int
    chunks: int
    freed_bytes: int
    dropped_rebuild: bool = False


@command("purge", changes=True)
@flag("--forget", help="Also delete the access records of removed documents.")
@collection_option(None)
async def purge_command(settings: Settings, *, collection: str | None, forget: bool) -> None:
    """Delete the text of removed documents from the disk.

    Searches don't find removed documents, but their text remains in data files, older versions and indexes
    until you purge, which rewrites all of them, and deletes their embeddings from the cache. Servers can keep
    running; disk space that they hold open is freed when they exit. Access records are
    kept in case the documents come back, unless you add --forget.

    Tags of a collection lose the documents that it doesn't have any more. Earlier texts of those that it has
    stay in them: remove the tag to delete these, too.
    """
    tables = await _purgeable(settings, collection)
    if collection is None:
        await _forget_removed_collections(settings)
    purged = [await _purge(settings, table, forget=forget) for table in tables]
    lines = [line for result in purged for line in _purge_lines(result)] or [nothing_yet("collections")]
    print_result({"collections": [asdict(result) for result in purged]}, *lines)


def _purge_lines(result: PurgeResult) -> Iterator[str]:
    contents = f"{counted(result.sources, 'source')} and {counted(result.chunks, 'chunk')}"
    done = f"{result.name}: rewrote {contents}, rebuilt the indexes, deleted older versions"
    yield f"{done}, {freed_text(result.freed_bytes)}."
    if result.dropped_rebuild:
        yield f"{result.name}: dropped the tables from before its rebuild, or of an unfinished one."


def freed_text(size: int) -> str:
    """Freed bytes in words. New files and indexes may take more room than the deleted ones did."""
    if size <= 0:
        return "no disk space freed"
    return f"{size / 1e6:.1f} MB freed" if size >= SMALLEST else "less than 0.1 MB freed"


async def _purgeable(settings: Settings, name: str | None) -> list[CollectionReader]:
    """The tables to rewrite: of a collection and its tags, or of all collections."""
    tables = await open_collections(settings, None)
    if name is None:
        return [table for table in tables if not table.collection.attached]  # named only by mistake
    chosen = await open_collections(settings, name)
    return [*chosen, *(table for table in tables if table.collection.tag_of == name)]


async def _purge(settings: Settings, table: CollectionReader, *, forget: bool) -> PurgeResult:
    before, collection = folder_bytes(settings.home), table.collection
    async with open_writer(settings.home, collection) as writer:
        if collection.tag_of:
            await _remove_stale(writer)
        records = (await writer.records()).values() if forget else ()
        gone = [record for record in records if record.collection == collection.name and not record.present]
        state = {"visibility": collection.visibility}
        changes: dict[str, tuple[State, State]] = {collection.name: (state, state)}
        changes |= {record.id: (access_state(record.access), None) for record in gone}
        with log_act(settings.data, Act("purge", collection.tenant, changes, collection.name, gives=forget)):
            undone = await forget_builds(settings.home, writer.collection)
            await writer.forget(record.id for record in gone)
            await writer.purge()
            await _forget_embeddings(settings.home, table)
        forget_names(settings.home, collection.tenant, collection.name)
    statistics = await table.statistics()
    freed_bytes = max(0, before - folder_bytes(settings.home))
    return PurgeResult(collection.name, statistics.sources, statistics.chunks, freed_bytes, undone)


async def _remove_stale(tag: CollectionWriter) -> None:
    """Remove from a tag the sources that its collection no longer has or that have expired."""
    records = await tag.records()
    original = tag.collection.tag_of
    present = {id_ for id_, record in records.items() if record.present and record.collection == original}
    gone = [
        source.id
        for source in (await tag.known_sources(records)).values()
        if original_id(source.id) not in present or has_expired(source)
    ]
    if gone:
        await tag.remove(gone)


async def _forget_embeddings(home: Home, table: CollectionReader) -> None:
    collection, data = table.collection, local_folder(home)
    if embedding_cache.cache_file(data).exists():
        forget = partial(embedding_cache.forget, data, read_key(home), collection.tenant)
        forget = partial(forget, texts=await table.bodies(), collections=[collection.name])
        with writable(f"The data folder {data} can't be written"):
            await to_thread.run_sync(forget)


async def _forget_removed_collections(settings: Settings) -> None:
    data, tenant = local_folder(settings.home), tenant_of(settings)
    present = {collection.name for collection in await DeskReader.of(settings).collections(tenant)}
    with writable(f"The data folder {data} can't be written"):
        cached = await to_thread.run_sync(embedding_cache.owners, data, tenant)
        if removed := cached - present:
            forget = partial(embedding_cache.forget, data, read_key(settings.home), tenant)
            await to_thread.run_sync(partial(forget, collections=sorted(removed)))
