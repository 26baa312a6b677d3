"""`refdesk-admin purge`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
from anyio import to_thread

from rag.access.tenants import tenant_of
from rag.admin.acts import Act, access_state, recorded
from rag.admin.console import collection_option, command, echo, print_json, same_desk
from rag.admin.run_log import forget_names
from rag.admin.sources import open_collections, open_reader
from rag.admin.status import folder_bytes
from rag.ingest.policy.document_admission import has_expired
from rag.models.embed import cache
from rag.report.tables import counted
from rag.store.read.schema import original_id
from rag.store.write.change_collection import forget_builds, open_writer
from rag.store.write.desk_folder import cannot, read_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rag.admin.acts import State
    from rag.config.settings import Settings
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.write.collection_writer import CollectionWriter


SMALLEST = 100_000  # bytes that are told as a number


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of a purge of a collection.

    `freed_bytes` is 0 if the data folder has grown. `dropped_rebuild`: tables of another build are gone, too.
    """

    name: str
    sources: int
    chunks: int
    freed_bytes: int
    dropped_rebuild: bool = False


@command("purge")
@click.option("--forget", is_flag=True, help="Also delete the access records of removed documents.")
@collection_option(None)
async def purge_command(settings: Settings, *, collection: str | None, forget: bool, as_json: bool) -> None:
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
        await _forget_dropped(settings)
    purged = [await _purged(settings, table, forget=forget) for table in tables]
    if as_json:
        print_json({"collections": [asdict(one) for one in purged]})
        return
    for one in purged:
        kept = f"{counted(one.sources, 'source')} and {counted(one.chunks, 'chunk')}"
        done = f"{one.name}: rewrote {kept}, rebuilt the indexes, deleted older versions"
        echo(f"{done}, {freed(one.freed_bytes)}.")
        if one.dropped_rebuild:
            echo(f"{one.name}: dropped the tables from before its rebuild, or of an unfinished one.")
    if not purged:
        echo(f"There are no collections yet. Add documents with refdesk-admin ingest PATH{same_desk()}")


def freed(size: int) -> str:
    """Bytes in words. There may be none: new files and indexes can take more room than what was deleted."""
    if size <= 0:
        return "no disk space freed"
    return f"{size / 1e6:.1f} MB freed" if size >= SMALLEST else "less than 0.1 MB freed"


async def _purgeable(settings: Settings, name: str | None) -> list[CollectionReader]:
    """The tables to rewrite: those of a collection and of its tags, or of all collections."""
    if name is None:
        tables = await open_collections(settings, None)
        return [table for table in tables if not table.collection.attached]  # named only by mistake
    chosen = await open_collections(settings, name)
    others = await open_collections(settings, None)
    return [*chosen, *(table for table in others if table.collection.tag_of == name)]


async def _purged(settings: Settings, table: CollectionReader, *, forget: bool) -> Purged:
    before, made = folder_bytes(settings.data), table.collection
    async with open_writer(settings.data, made) as writer:
        if made.tag_of:
            await _without_removed(writer)
        records = (await writer.records()).values()
        gone = [one for one in records if forget and one.collection == made.name and not one.present]
        state = {"visibility": made.visibility}
        changes: dict[str, tuple[State, State]] = {one.id: (access_state(one.access), None) for one in gone}
        act = Act("purge", made.tenant, {made.name: (state, state)} | changes, made.name, gives=forget)
        with recorded(settings.data, act):
            undone = await forget_builds(settings.data, writer.collection)
            await writer.forget(one.id for one in gone)
            await writer.purge()
            await _forget_embeddings(settings.data, table)
        forget_names(settings.data, made.tenant, made.name)
    kept = await table.statistics()
    freed_bytes = max(0, before - folder_bytes(settings.data))
    return Purged(made.name, kept.sources, kept.chunks, freed_bytes, undone)


async def _without_removed(tag: CollectionWriter) -> None:
    """Remove from a tag what its collection doesn't have any more, and what has expired."""
    records = await tag.records()
    there = {id_ for id_, one in records.items() if one.present and one.collection == tag.collection.tag_of}
    gone = [
        one.id
        for one in (await tag.known(records)).values()
        if original_id(one.id) not in there or has_expired(one)
    ]
    if gone:
        await tag.remove(gone)


async def _forget_embeddings(data: Path, table: CollectionReader) -> None:
    """Delete the cached embeddings of texts that the collection doesn't hold any more."""
    made = table.collection
    if not cache.cache_file(data).exists():
        return
    texts = await table.bodies()
    key = read_key(data)
    forget = partial(cache.forget, data, key, made.tenant, texts=texts, collections=[made.name])
    with _writing(data):
        await to_thread.run_sync(forget)


async def _forget_dropped(settings: Settings) -> None:
    """Delete the cached embeddings of the tenant's collections that were removed."""
    data, tenant = settings.data, tenant_of(settings)
    there = {one.name for one in await open_reader(settings).collections(tenant)}
    with _writing(data):
        cached = await to_thread.run_sync(cache.owners, data, tenant)
        if removed := cached - there:
            key = read_key(data)
            await to_thread.run_sync(partial(cache.forget, data, key, tenant, collections=sorted(removed)))


@contextmanager
def _writing(data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot(f"The data folder {data} can't be written", error) from error
