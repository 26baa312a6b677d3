"""Documents that no run changes or removes any more: their origin or folder is gone, or nothing names it.

For each collection, `note_folders` keeps the folders that runs on this machine read, and the name, link or
origin of each. The documents don't tell these.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pydantic import TypeAdapter, ValidationError

from rag.access.tenants import home_of, tenants
from rag.config.origin_settings import FolderOrigin
from rag.config.settings import Settings
from rag.corpus import Collection
from rag.errors import RefdeskError
from rag.home import Home
from rag.ingest.source_files import is_gone, place_of, printable
from rag.originals import is_below
from rag.report import counted
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import origins_folder, write_whole

ORIGIN = "origin:"  # begins the URIs of documents that aren't local files
LOCAL = "file:"  # begins the URIs of local files
ROWS = 4_096
FOLDERS_FILE = ".folders.json"  # no origin has such a name
MOST_FOLDERS = 1_000  # of a collection; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class OrphanedDocuments:
    """Documents in a collection whose origin or folder no longer feeds it.

    `tenant` is empty if the desk has only one. `place` is an argument of `remove`: an origin or a folder.
    `why` continues a sentence about it, after "which".
    """

    tenant: str
    collection: str
    place: str
    documents: int
    why: str

    @property
    def name(self) -> str:
        """The name of the origin, or the path of the folder."""
        return self.place.removeprefix(ORIGIN)

    def __str__(self) -> str:
        tenant = f" --tenant {self.tenant}" if self.tenant else ""
        verb = "comes" if self.documents == 1 else "come"
        kind = "origin" if self.place.startswith(ORIGIN) else "folder"
        return (
            f"{counted(self.documents, 'document')} in {self.collection} {verb} from the {kind} {self.name}, "
            f"which {self.why}, so no sync changes or removes them. To remove them, "
            f"run refdesk-admin remove {quote(self.place)} --collection {self.collection}{tenant}."
        )


async def orphaned_documents(settings: Settings, tenant: str = "") -> list[OrphanedDocuments]:
    """The documents of origins and folders that were removed, renamed, or moved to another collection.

    They are of `tenant`, or of all tenants.

    Raises:
        ConfigurationError, StoreError: the desk can't be read.
    """
    reader, tenant_names = DeskReader.of(settings), tenants(settings.common_home)
    orphans: list[OrphanedDocuments] = []
    for name in [tenant] if tenant else tenant_names:
        tenant_named, home = name if len(tenant_names) > 1 else "", home_of(settings, name)
        for collection in await reader.collections(name):
            if not (collection.attached or collection.tag_of):
                table = await reader.open(collection)
                orphans += await _of_origins(settings, table, tenant_named)
                if folders := read_folders(home, collection):
                    by_folder = Counter([_folder_of(uri) async for uri in _uris(table, LOCAL)])
                    orphans += of_former_folders(
                        settings, collection, folders, by_folder, tenant=tenant_named
                    )
    return orphans


async def _of_origins(settings: Settings, table: CollectionReader, tenant: str) -> list[OrphanedDocuments]:
    counts = Counter[str]()
    async for uri in _uris(table, ORIGIN):
        counts[uri.removeprefix(ORIGIN).partition("/")[0]] += 1
    gone, moved = "isn't in the settings any more", "brings nothing into it any more"
    return [
        OrphanedDocuments(
            tenant,
            table.collection.name,
            f"{ORIGIN}{name}",
            count,
            moved if name in settings.origins else gone,
        )
        for name, count in sorted(counts.items())
        if not _feeds(settings, name, table.collection) or isinstance(settings.origins[name], FolderOrigin)
    ]


def _feeds(settings: Settings, name: str, collection: Collection) -> bool:
    """Whether an origin of the settings brings documents into this collection."""
    origin = settings.origins.get(name)
    if origin is None or origin.collection != collection.name:
        return False
    return (origin.tenant or settings.principal.tenant) in {None, collection.tenant}


async def _uris(table: CollectionReader, start: str) -> AsyncIterator[str]:
    where = f"(starts_with(uri, '{start}'))"
    async with aclosing(table.source_batches(where, ["uri"], ROWS)) as batches:
        async for batch in batches:
            for uri in filter(None, batch.column("uri").to_pylist()):
                yield uri


# Folders.


@dataclass(frozen=True, slots=True)
class ReadFolder:
    """A folder that a run read: where its path led, how it was named, and for which origin, if any."""

    path: str
    named: str
    origin: str


_FOLDERS: TypeAdapter[list[ReadFolder]] = TypeAdapter(list[ReadFolder])


def note_folders(home: Home, collection: Collection, paths: Iterable[Path], origin: str) -> None:
    """Note the folders among the paths of a run. The caller holds the collection's lock.

    A full disk doesn't stop the run. Without the note, later runs can't report these documents.
    """
    before = read_folders(home, collection)
    new = [
        ReadFolder(os.path.realpath(path), os.path.abspath(path), origin)  # noqa: PTH100 links stay
        for path in paths
        if path.is_dir()
    ]
    folders = [*(folder for folder in before if folder not in new), *dict.fromkeys(new)]
    if folders != before:
        file = origins_folder(home, collection.tenant, collection.name) / FOLDERS_FILE
        with suppress(OSError, RefdeskError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, _FOLDERS.dump_json(folders[-MOST_FOLDERS:]))


def read_folders(home: Home, collection: Collection) -> list[ReadFolder]:
    """The folders that runs on this machine read into a collection, the oldest first."""
    file = origins_folder(home, collection.tenant, collection.name) / FOLDERS_FILE
    try:
        return _FOLDERS.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return []


async def orphaned_by_command(settings: Settings, writer: CollectionWriter) -> list[OrphanedDocuments]:
    """The orphaned documents of folders that commands, not origins, read into the collection.

    The sources are read only if a folder is gone or its name leads elsewhere.
    """
    collection = writer.collection
    folders = read_folders(settings.home, collection)
    current = [*_current_folders(settings, collection, folders)]
    if all(_is_below(folder.path, current) for folder in folders):
        return []
    by_folder = Counter(_folder_of(uri) for uri in await writer.known_sources() if uri.startswith(LOCAL))
    return of_former_folders(settings, collection, folders, by_folder)


def of_former_folders(
    settings: Settings,
    collection: Collection,
    folders: Sequence[ReadFolder],
    by_folder: Mapping[str, int],
    *,
    tenant: str = "",
) -> list[OrphanedDocuments]:
    """The documents of folders that are gone, or to which the name in the note doesn't lead any more.

    `by_folder` are the numbers of documents by the folder of their file. Without noted `folders`, as on
    a desk that another machine filled, there are none.
    """
    current = [*_current_folders(settings, collection, folders)]
    former = {folder.path: folder for folder in folders if not _is_below(folder.path, current)}
    counts = Counter[str]()
    for path, number in by_folder.items():
        if not _is_below(path, current):
            above = max((folder for folder in former if _is_below(path, [folder])), key=len, default="")
            counts[above] += number
    del counts[""]  # of files that a command named, whose folder no run read
    return [
        OrphanedDocuments(tenant, collection.name, printable(path), count, _why(path, former[path]))
        for path, count in sorted(counts.items())
    ]


def _folder_of(uri: str) -> str:
    return str(place_of(uri.partition("#")[0]).parent)


def _current_folders(
    settings: Settings, collection: Collection, folders: Sequence[ReadFolder]
) -> Iterator[str]:
    """The folders that a sync reads, and those that an earlier command would read again."""
    for name, origin in settings.origins.items():
        if isinstance(origin, FolderOrigin) and _feeds(settings, name, collection):
            yield os.path.realpath(origin.path)
    for folder in folders:
        if not folder.origin and os.path.realpath(folder.named) == folder.path and not is_gone(folder.path):
            yield folder.path


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)


def _why(path: str, folder: ReadFolder) -> str:
    if is_gone(path):
        return "isn't there any more"
    if folder.origin:
        return "no origin of the settings names any more"
    return f"{printable(folder.named)} doesn't lead to any more"
