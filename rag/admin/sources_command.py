"""`refdesk-admin sources` and `source`: list and show sources; how every command matches their names.

Then the size of collections and of all tenants' tables on disk.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unicodedata import normalize

import click

from rag.access.tenants import tenant_of, tenants
from rag.admin.command_line import collection_option, command, flag, same_desk
from rag.admin.terminal import echo, print_json, print_table
from rag.config.settings import Settings
from rag.corpus import Collection, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.home import Bucket, Home, check_data_folder
from rag.ingest.source_files import place_of, prefixes
from rag.originals import is_below
from rag.report import names_briefly
from rag.search.browse import MOST_LISTED, display_parts
from rag.search.reply.untrusted import display_name
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.bucket_objects import object_facts
from rag.text.flags import Flag, flags_in
from rag.text.plain_text import in_one_line
from rag.uris import NOT_FOUND, SCHEME, named_id, split_id

PREVIEW_CHARS = 500


@command("sources")
@collection_option(None)
@flag("--flags", help="Say which texts contain orders to a model, personal data or secrets.")
async def sources_command(settings: Settings, *, collection: str | None, flags: bool) -> None:
    """List the sources of all collections, or of one."""
    tables = readable_tables(await open_collections(settings, collection))
    sources = [source for table in tables for source in await table.listing()]
    sources.sort(key=lambda source: (source.collection, source.metadata.get("path", ""), source.id))
    flagged = await _flags_by_id(tables) if flags else {}
    listed = [source_json(source) | ({"flags": flagged[source.id]} if flags else {}) for source in sources]
    titles = ("ID", "COLLECTION", "CHUNKS", *(["FLAGS"] if flags else []), "PATH", "TITLE")
    rows = [_row(source, flagged.get(source.id)) for source in sources]
    none = f"There are no sources yet. Add some with refdesk-admin ingest PATH{same_desk()}"
    print_json({"sources": listed})
    print_table([titles, *rows], empty=none)


@command("source")
@click.argument("name", metavar="ID")
@flag("--text", help="Print the whole text, not only its beginning.")
async def source_command(settings: Settings, *, name: str, text: bool) -> None:
    """Show a source: its metadata, outline and text.

    ID is the id of a source or of one of its chunks, a URI, a path, or a title that no other source has.
    """
    tables = readable_tables(await open_collections(settings, None))
    source_id = await _single_id(tables, name)
    texts = [await table.text(source_id) for table in tables]
    for row, outline, content in filter(None, texts):
        details = source_json(row.source) | {"outline": [asdict(heading) for heading in outline]}
        print_json(details | {"text": content})
        _print_source(details, content if text else content[:PREVIEW_CHARS])
        return
    raise NotFoundError(NOT_FOUND)


async def _single_id(tables: Sequence[CollectionReader], name: str) -> str:
    id_ = _id_in(name)
    if id_ and any([await table.sources([id_]) for table in tables]):
        return id_
    sources = [source for table in tables for source in await table.listing()]
    index = NameIndex.of({source.id: source.uri for source in sources}, reply_names(sources))
    ids = index.without_parts(name)
    if not ids:
        raise NotFoundError(NOT_FOUND)
    if len(ids) > 1:
        raise InvalidRequestError(f"{name!r} refers to {len(ids)} sources. Give the id of one.")
    return ids[0]


async def collections_by_tenant(settings: Settings) -> dict[str, tuple[Collection, ...]]:
    """The collections of all tenants; raises StoreError if the catalog can't be read."""
    reader = DeskReader.of(settings)
    return {tenant: await reader.collections(tenant) for tenant in tenants(settings.home)}


async def open_collections(settings: Settings, name: str | None) -> list[CollectionReader]:
    """The tenant's collections, or only the named one.

    Raises:
        NotFoundError: no collection has this name.
        ConfigurationError: the data folder is missing or not one of refdesk's.
    """
    return await open_tables(DeskReader.of(settings), tenant_of(settings), name)


async def open_tables(reader: DeskReader, tenant: str, name: str | None) -> list[CollectionReader]:
    """The same as `open_collections`, by the caller's reader."""
    collections = await reader.collections(tenant)
    if not collections:
        check_data_folder(reader.data)
    chosen = [collection for collection in collections if name in {None, collection.name}]
    if name and not chosen:
        names = ", ".join(collection.name for collection in collections) or "none"
        raise NotFoundError(f"There is no collection {name!r} in {reader.data}. Collections: {names}.")
    return [await reader.open(collection) for collection in chosen]


def readable_tables(tables: Sequence[CollectionReader]) -> list[CollectionReader]:
    """The tables without unreadable attached ones, which are named on standard error."""
    for table in tables:
        if table.failed:
            echo(
                f"The attached table of {table.collection.name} can't be read; see refdesk-admin collection "
                f"show {table.collection.name}.",
                err=True,
            )
    return [table for table in tables if not table.failed]


def reply_names(sources: Iterable[Source]) -> dict[str, frozenset[str]]:
    """The names of sources in replies, by id: paths with and without the collection, titles, addresses."""
    return {source.id: frozenset(_names_of(source)) for source in sources}


def _names_of(source: Source) -> Iterator[str]:
    yield display_name(source.title)
    if path := "/".join(display_parts(source.name)):
        yield from (path, f"{source.collection}/{path}")
    if source.url:
        yield source.url


@dataclass(frozen=True, slots=True)
class NameIndex:
    """What sources are called, by id. Made once for many names, since it parses all URIs."""

    uris: Mapping[str, str]
    paths: Mapping[str, str]  # of `place_of`
    names: Mapping[str, AbstractSet[str]]  # see `reply_names`
    parts: Mapping[str, Sequence[str]]  # the ids of what a container has, by its URI

    @classmethod
    def of(cls, uris: Mapping[str, str], names: Mapping[str, AbstractSet[str]]) -> NameIndex:
        """The index of the sources that have these URIs, by id, and these names in replies."""
        parts = defaultdict[str, list[str]](list)
        for id_, uri in uris.items():
            for prefix in prefixes(uri, uri.partition("#")[0]):
                parts[prefix[:-1]].append(id_)
        return cls(uris, {id_: str(place_of(uri)) for id_, uri in uris.items()}, names, parts)

    def matching(self, name: str) -> list[str]:
        """The ids of the sources that a name matches.

        Tried in this order: an id, URI, file or folder; a path, title or address of a single source; a
        pattern that matches the end of a path from any folder on, where * also matches /. So a[1].md matches
        the file of that name if there is one. Parts come with their container, like a mail's attachments.

        Raises:
            InvalidRequestError: several sources have this path, title or address; the message lists them. Or
                the name is empty, which as a path would be the current folder.
        """
        ids = self.without_parts(name)
        return [*dict.fromkeys([*ids, *(part for id_ in ids for part in self.parts.get(self.uris[id_], ()))])]

    def without_parts(self, name: str) -> list[str]:
        """The same without what only their containers match."""
        if not name:
            raise InvalidRequestError(
                "A name is empty. Give an id, a path or a title; . is the current folder."
            )
        file = f"/{name}" if name.startswith("origin:") else os.path.realpath(name)
        named = _id_in(name)
        exact = [
            id_
            for id_, path in self.paths.items()
            if id_ == named or self.uris[id_] == name or is_below(path, file)
        ]
        if exact or (exact := self._ids_by_name(name)):
            return exact
        # Macs may store "é" as two characters (NFD), whichever were typed.
        paths = {id_: normalize("NFC", path) for id_, path in self.paths.items()}
        if composed := [id_ for id_, path in paths.items() if is_below(path, normalize("NFC", file))]:
            return composed
        if not set(name) & set("*?["):
            return []
        pattern = normalize("NFC", name if name.startswith("/") else f"*/{name}")
        return [id_ for id_, path in paths.items() if fnmatchcase(path, pattern)]

    def _ids_by_name(self, name: str) -> list[str]:
        """The id of the only source with this path, title or address; none for a name with / at its end."""
        if name.endswith("/"):
            return []
        path = "/".join(display_parts(name.strip().removeprefix(SCHEME)))
        spellings = {name, display_name(name), path} - {""}
        ids = [id_ for id_ in self.uris if not spellings.isdisjoint(self.names.get(id_, ()))]
        if len(ids) > 1:
            listed = names_briefly([f"{id_} ({self.paths[id_]})" for id_ in ids], MOST_LISTED)
            raise InvalidRequestError(
                f"{len(ids)} sources are called {name!r}: {listed}. Give the id of one."
            )
        return ids


def _id_in(name: str) -> str | None:
    with suppress(NotFoundError):
        return split_id(named_id(name)[1])[0]
    return None


def source_json(source: Source) -> dict[str, Any]:
    """A source as `--json` prints it."""
    return {
        "id": source.id,
        "collection": source.collection,
        "uri": source.uri,
        "url": source.url,
        "title": source.title,
        "mime_type": source.mime_type,
        "date": source.date and source.date.isoformat(),
        "ingested_at": source.ingested_at.isoformat(timespec="seconds"),
        "chunks": source.chunk_count,
        "without_vector": source.without_vector,
        "length": source.length,
        "digest": source.digest,
        "metadata": dict(source.metadata),
    }


async def _flags_by_id(tables: Sequence[CollectionReader]) -> dict[str, tuple[Flag, ...]]:
    """The flags of all sources, by id. Texts are read one at a time, to bound the memory."""
    flags_by_id: dict[str, tuple[Flag, ...]] = {}
    for table in tables:
        for source in await table.listing():
            opened = await table.text(source.id)
            flags_by_id[source.id] = flags_in(f"{source.title}\n{opened[2]}") if opened else ()
    return flags_by_id


def _row(source: Source, flags: tuple[Flag, ...] | None) -> tuple[object, ...]:
    path = source.metadata.get("path", "")
    flag_cells = () if flags is None else (", ".join(flags) or "-",)
    return source.id, source.collection, source.chunk_count, *flag_cells, path, source.title


def _print_source(details: dict[str, Any], text: str) -> None:
    outline, metadata = details.pop("outline"), details.pop("metadata")
    rows = [*details.items(), *(("metadata", f"{key}: {value}") for key, value in metadata.items())]
    for key, value in rows:
        if value:
            echo(in_one_line(f"{key:12} {value}"))
    for heading in outline:
        echo(f"{'  ' * heading['level']}{heading['title']}")
    echo(f"\n{text}")
    if unshown := details["length"] - len(text):
        echo(f"[{unshown} more characters; use --text to print all]")


async def size_of(table: CollectionReader) -> dict[str, Any]:
    """A collection's size, as `--json` prints it."""
    about = {
        "name": table.collection.name,
        "language": table.collection.language,
        "embedder": asdict(table.collection.embedder),
        "embedder_name": table.collection.embedder_name,
    }
    return about | asdict(await table.statistics())


def folder_bytes(folder: Home) -> int:
    """The total size of the files below a folder, or of the objects in a bucket."""
    return sum(size for _, size in _file_sizes(folder))


def table_sizes(home: Home) -> Counter[str]:
    """The bytes of the tables of each tenant."""
    sizes = Counter[str]()
    for path, size in _file_sizes(home if isinstance(home, Bucket) else database_folder(home)):
        if match := re.search(r"__tenant_(.+?)(?:__src_[^/]*)?\.lance", path):
            sizes[match[1]] += size
    return sizes


def _file_sizes(folder: Home) -> Iterator[tuple[str, int]]:
    if isinstance(folder, Bucket):
        yield from ((path, size) for path, (size, _) in object_facts(folder).items())
        return
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):  # of a version that a run has just dropped
                yield str(file.relative_to(folder)), file.stat().st_size
