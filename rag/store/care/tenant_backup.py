"""Backs up a tenant into a file, while servers search and ingestions run.

The file is a plain tar archive of JSON and Arrow files, with their SHA-256 digests at its end:

    backup.json       format, refdesk's version, tenant, moment, and the collections with their definitions
    key               the key of the data folder; source ids are derived from it
    keys.json         the tenant's API keys, as hashes
    access/00000.arrow, …                    the access records
    collections/NAME/sources/00000.arrow, …
    collections/NAME/chunks/00000.arrow, …
    checksums.json    the digest of each file above

An archive without its last file was cut short. It is written and read part by part, so neither needs memory
or disk space for more than one part.

A backup is a consistent snapshot: the versions of all tables of the tenant are read twice, and used if nobody
has committed in between. Later commits make other versions, which the backup doesn't read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
from anyio import sleep, to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from rag.access.keys import KEYS as DESK_KEYS
from rag.access.keys import Keys, keys_in
from rag.access.rule import visible
from rag.corpus import Access, Collection, LetterCase, Principal
from rag.errors import BusyError, ConfigurationError, NotFoundError, StoreError
from rag.filters.grammar import literal
from rag.home import Bucket, Home
from rag.store.read import schema
from rag.store.read.catalog import collection_record
from rag.store.read.connection import connect, engine_errors
from rag.store.write.collection_tables import table_names
from rag.store.write.desk_folder import flush_folder, read_key, writable
from rag.uris import split_citation

if TYPE_CHECKING:
    import lancedb

FORMAT = 4
ABOUT, KEY, KEYS, CHECKSUMS = "backup.json", "key", "keys.json", "checksums.json"
MAX_PART_BYTES = 1 << 31  # a part of ours has a few MiB
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class BackupCollection(BaseModel):
    """A collection of a backup: its row in the catalog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    definition: str
    created_at: str


class BackupHeader(BaseModel):
    """The header of a backup. `at` is the moment of its snapshot, in ISO 8601."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    refdesk: str
    tenant: str
    at: str
    collections: tuple[BackupCollection, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose parts match their digests."""

    file: Path
    about: BackupHeader


class ArchiveWriter:
    """An archive that is being written. `problem` begins the error if that fails."""

    def __init__(self, archive: tarfile.TarFile, problem: str) -> None:
        self._archive = archive
        self._problem = problem
        self._digests: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a part."""
        part = tarfile.TarInfo(name)
        part.size, part.mode = len(content), 0o600
        with writable(self._problem):  # here, because callers are reading tables: it isn't the engine's error
            self._archive.addfile(part, io.BytesIO(content))
        self._digests[name] = hashlib.sha256(content).hexdigest()

    def add_rows(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows as an Arrow file with compressed columns."""
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, batch.schema, options=_COMPRESSED) as file:
            file.write_batch(batch)
        self.add(name, buffer.getvalue())

    def finish(self) -> None:
        """Add the digests."""
        self.add(CHECKSUMS, json.dumps(self._digests, indent=1).encode())


@contextmanager
def writing_archive(file: Path) -> Iterator[ArchiveWriter]:
    """An archive that only its owner may read. It appears at its path if the block ends without an error.

    Raises:
        ConfigurationError: it can't be written, or the path is a device or a pipe.
        StoreError: the disk is full.
    """
    file = file.resolve()  # replaces the target of a link, not the link
    if file.exists() and not file.is_file():  # the rename would replace a device by a file
        raise ConfigurationError(f"{file} is not a file. Name the file of the backup.")
    problem = f"The backup {file} can't be written"
    with writable(problem):
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".new")
        new = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                with tarfile.open(fileobj=opened, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    writer = ArchiveWriter(archive, problem)
                    yield writer
                    writer.finish()
                opened.flush()
                os.fsync(descriptor)
            new.replace(file)
        finally:
            with suppress(OSError):
                new.unlink(missing_ok=True)
    flush_folder(file.parent)


def archive_parts(file: Path) -> Iterator[tuple[str, bytes]]:
    """The parts of an archive by name, in order.

    Raises:
        ConfigurationError: it can't be read, or it isn't an archive.
    """
    try:
        with tarfile.open(file, mode="r:") as archive:
            for part in archive:
                content = archive.extractfile(part) if part.size < MAX_PART_BYTES else None
                if content is None:
                    raise ConfigurationError(f"{file} is not a backup of refdesk: it contains {part.name!r}.")
                yield part.name, content.read()
    except OSError as error:
        raise ConfigurationError(
            f"The backup {file} can't be read: {error.strerror or 'it is damaged'}."
        ) from error
    except tarfile.TarError as error:
        raise ConfigurationError(f"{file} is not a backup of refdesk, or it was cut short.") from error


def checked_archive(file: Path) -> Archive:
    """The archive, after every part was read and compared with its digest.

    Raises:
        ConfigurationError: it can't be read, is damaged, or is of another version.
    """
    digests: dict[str, str] = {}
    about = None
    end: Any = None
    for name, content in archive_parts(file):
        if name == CHECKSUMS:
            end = content
            break
        # Before the digests: of another format, "damaged" would be the wrong advice.
        about = about or (_about(file, content) if name == ABOUT else None)
        digests[name] = hashlib.sha256(content).hexdigest()
    if about is None:
        raise ConfigurationError(f"{file} is not a backup of refdesk.")
    if end is None:
        raise ConfigurationError(f"The backup {file} was cut short. Use another backup.")
    stated = _stated_digests(end)
    if wrong := sorted(
        name for name in digests.keys() | stated.keys() if digests.get(name) != stated.get(name)
    ):
        raise ConfigurationError(
            f"The backup {file} is damaged: {wrong[0]!r} does not match its checksum. Use another backup."
        )
    return Archive(file, about)


def _stated_digests(end: bytes) -> dict[str, str]:
    with suppress(ValueError):
        read = json.loads(end)
        if isinstance(read, dict):
            return read
    return {}


def _about(file: Path, content: bytes) -> BackupHeader:
    try:
        about = BackupHeader.model_validate_json(content)
    except ValidationError as error:
        raise ConfigurationError(
            f"The backup {file} was made by another version of refdesk. Use that one."
        ) from error
    if about.format != FORMAT:
        raise ConfigurationError(
            f"The backup {file} has format {about.format}, and this refdesk reads format {FORMAT}. Use the "
            f"version that made it (refdesk {about.refdesk}, {about.at})."
        )
    return about


def rows_of(content: bytes) -> pa.Table:
    """The rows of a part.

    Raises:
        StoreError: they can't be read.
    """
    try:
        return pa.ipc.open_file(pa.BufferReader(content)).read_all()
    except pa.ArrowInvalid as error:
        raise StoreError("A part of the backup can't be read.") from error


def cited_texts(
    archive: Archive, citations: Iterable[str], principal: Principal, case: LetterCase
) -> dict[str, str]:
    """The archive's texts of citations with a revision, by citation; reads the archive once.

    A citation is missing if the archive has another revision of its source, or if the principal was not
    allowed to read the source then.

    Raises:
        ConfigurationError: the archive is of another tenant, or can't be read.
        StoreError: a part of it can't be read.
    """
    if archive.about.tenant != principal.tenant:
        raise ConfigurationError(f"The backup {archive.file} is of the tenant {archive.about.tenant}.")
    parts = {citation: split_citation(citation) for citation in citations}
    source_ids = {source_id for source_id, _, _ in parts.values()}
    passages = _passages(archive, source_ids, partial(visible, principal, case=case))
    texts = {
        citation: [passages.get((source_id, revision, seq)) for seq in seqs]
        for citation, (source_id, revision, seqs) in parts.items()
    }
    return {
        citation: "\n\n".join(filter(None, of_citation))
        for citation, of_citation in texts.items()
        if of_citation and None not in of_citation
    }


def _passages(
    archive: Archive, source_ids: Iterable[str], may_read: Callable[[Access | None], bool]
) -> dict[tuple[str, str | None, int], str]:
    """The texts of the passages of readable sources, by source, revision and number."""
    readable: set[str] = set()
    revisions: dict[tuple[str, str], str | None] = {}  # by source and the generation of its chunks
    texts: dict[tuple[str, str | None, int], str] = {}
    for kind, row in _rows_of_sources(archive, source_ids):
        if kind == "access" and may_read(schema.access_record(row)):
            readable.add(row["id"])
        elif kind == "sources" and row["id"] in readable:
            revisions[row["id"], row["generation"]] = schema.source_record(row, "").revision
        elif kind == "chunks" and (generation := (row["source_id"], row["generation"])) in revisions:
            chunk = schema.chunk_of_row(row)
            texts[chunk.source_id, revisions[generation], chunk.seq] = chunk.text
    return texts


def _rows_of_sources(archive: Archive, source_ids: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of sources with their kind: access records, then sources, then chunks."""
    ids = pa.array(source_ids, pa.string())
    for name, content in archive_parts(archive.file):
        match name.split("/"):
            case ["access" as kind, _] | ["collections", _, kind, _]:
                rows = rows_of(content)
                column = rows["source_id" if kind == "chunks" else "id"]
                for row in rows.filter(pa.compute.is_in(column, ids)).to_pylist():
                    yield kind, row


ATTEMPTS, PAUSE_SECONDS = 200, 0.05  # to find a moment at which nobody commits
SOURCES_AT_ONCE, CHUNKS_AT_ONCE, RECORDS_AT_ONCE = 64, 2_048, 10_000  # rows per part


@dataclass(frozen=True, slots=True)
class SavedCollection:
    """The numbers of a collection's rows in a backup."""

    name: str
    sources: int
    chunks: int


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A written backup."""

    tenant: str
    at: str
    collections: tuple[SavedCollection, ...]
    records: int
    keys: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """A snapshot of a tenant: its catalog rows, its tables (pinned to their versions), and its keys."""

    rows: list[dict[str, Any]]
    tables: dict[str, lancedb.AsyncTable]
    keys: Keys


async def back_up(home: Home, tenant: str, file: Path, *, desk: Home | None = None) -> BackupResult:
    """Write a backup of a tenant to a file, which appears when it is complete.

    Its API keys are in the `desk`, which differs from the `home` of its documents if it has its own storage.
    Of a bucket, the backup is only a snapshot if its reads are not allowed to be seconds old.

    Raises:
        NotFoundError: the tenant has no collections.
        BusyError: the tables change too fast, or were purged meanwhile.
        ConfigurationError, StoreError: something can't be read, or the file can't be written.
    """
    database = await connect(home)
    with engine_errors("reading the tables"):
        moment = await _moment(database, desk or home, tenant)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    members = tuple(
        BackupCollection(
            name=row["name"], definition=row["definition"], created_at=row["created_at"].isoformat()
        )
        for row in moment.rows
    )
    about = BackupHeader(
        format=FORMAT, refdesk=installed("refdesk"), tenant=tenant, at=now, collections=members
    )
    with writing_archive(file) as archive:
        archive.add(ABOUT, about.model_dump_json(indent=1).encode())
        archive.add(KEY, read_key(home))
        archive.add(KEYS, moment.keys.model_dump_json(indent=1, exclude_none=True).encode())
        access = moment.tables[schema.access_table(tenant)]
        records = await _rows(archive, access, "access", RECORDS_AT_ONCE)
        saved = [await _collection(archive, collection_record(row), moment.tables) for row in moment.rows]
    return BackupResult(tenant, now, tuple(saved), records, len(moment.keys.keys))


async def _collection(
    archive: ArchiveWriter, collection: Collection, tables: dict[str, lancedb.AsyncTable]
) -> SavedCollection:
    """Add the tables of a collection, none for an attached one."""
    counts = {"sources": 0, "chunks": 0}
    for table, kind, count in _tables_of(collection):
        if table in tables:
            part = f"collections/{collection.name}/{kind}"
            counts[kind] = await _rows(archive, tables[table], part, count)
    return SavedCollection(collection.name, **counts)


def _tables_of(collection: Collection) -> tuple[tuple[str, str, int], ...]:
    """The tables of a collection, each with the kind of its rows and their number in a part."""
    chunks, sources = table_names(collection)
    return (sources, "sources", SOURCES_AT_ONCE), (chunks, "chunks", CHUNKS_AT_ONCE)


async def _moment(database: lancedb.AsyncConnection, desk: Home, tenant: str) -> _Moment:
    """A snapshot between two equal readings of all versions, so nobody committed in between."""
    for _ in range(ATTEMPTS):
        catalog = await database.open_table(schema.COLLECTIONS)
        version = await catalog.version()
        rows = (await catalog.query().where(f"(tenant = {literal(tenant)})").to_arrow()).to_pylist()
        if not rows:
            raise NotFoundError(f"The tenant {tenant!r} has no collections to back up.")
        rows.sort(key=lambda row: str(row["name"]))
        try:
            tables = {name: await database.open_table(name) for name in _names(tenant, rows)}
            before = [version, *[await table.version() for table in tables.values()]]
            keys = await to_thread.run_sync(_keys_of, desk, tenant)
            after = [await table.version() for table in (catalog, *tables.values())]
        except (RuntimeError, ValueError):  # a collection was just removed
            continue
        if before == after and keys == await to_thread.run_sync(_keys_of, desk, tenant):
            for table, fixed in zip(tables.values(), before[1:], strict=True):
                await table.checkout(fixed)  # later commits make other versions, which it doesn't see
            return _Moment(rows, tables, keys)
        await sleep(PAUSE_SECONDS)
    raise BusyError("The tables change too fast for a backup. Try again when less is written.")


def _names(tenant: str, rows: list[dict[str, Any]]) -> list[str]:
    """The tables of a tenant with these collections."""
    names = [schema.access_table(tenant)]
    for row in rows:
        if not (collection := collection_record(row)).attached:
            names += [name for name, _, _ in _tables_of(collection)]
    return names


def _keys_of(desk: Home, tenant: str) -> Keys:
    if isinstance(desk, Bucket):
        desk.forget(DESK_KEYS)  # cached, but the keys must be from the same moment as the tables
    keys = keys_in(desk).keys
    return Keys(keys=tuple(key for key in keys if key.tenant == tenant))


async def _rows(archive: ArchiveWriter, table: lancedb.AsyncTable, folder: str, count: int) -> int:
    """Add all rows of a table in parts of `count`. Returns how many there were."""
    total = 0
    with engine_errors(f"reading {folder}"):
        part = 0
        async for batch in await table.query().to_batches(max_batch_length=count):
            await to_thread.run_sync(archive.add_rows, f"{folder}/{part:05}.arrow", batch)
            part, total = part + 1, total + batch.num_rows
        if not part:  # an empty table still has columns to keep
            empty = pa.RecordBatch.from_pylist([], schema=await table.schema())
            archive.add_rows(f"{folder}/{part:05}.arrow", empty)
    return total
