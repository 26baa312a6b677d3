"""Opening attached tables. Whatever others have done to one, the error says what is wrong with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio

from rag.corpus import Attachment, Collection
from rag.errors import ConfigurationError, RefdeskError, StoreError
from rag.store.read.attached.attached_reader import AttachedReader
from rag.store.read.attached.attached_table import AttachedTable, TableMemory, UnreadTable
from rag.store.read.attached.column_mapping import columns_of
from rag.store.read.connection import connect_to, engine_errors

if TYPE_CHECKING:
    import lancedb

SUFFIX = ".lance"
REMOTE = ("s3://", "gs://", "az://")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Handle:
    """An open table, and what is remembered of it."""

    table: lancedb.AsyncTable
    memory: TableMemory


class AttachedTables:
    """The attached tables of a data folder. Handles are kept, and checked for each request."""

    def __init__(self, timeout_seconds: float, scans: anyio.CapacityLimiter | None = None) -> None:
        self._timeout_seconds = timeout_seconds
        self._scans = scans or anyio.CapacityLimiter(1)
        self._handles: dict[tuple[str, str], _Handle] = {}

    async def open(self, collection: Collection) -> AttachedReader:
        """The collection, for one request. If the table can't be read, the reader's `failure` says why."""
        try:
            return await self.opened(collection)
        except RefdeskError as error:
            log.warning("The collection %r can't be searched: %s", collection.name, error)
            unread = cast("AttachedTable", UnreadTable(error))
            seconds = self._timeout_seconds
            return AttachedReader(
                collection,
                unread,
                unread,
                [],
                timeout_seconds=seconds,
                scans=self._scans,
                failure=str(error),
            )

    async def opened(self, collection: Collection) -> AttachedReader:
        """The collection, for one request.

        Raises:
            StoreError: the table is not there, or can't be read.
            ConfigurationError: it doesn't have the columns that the collection needs.
        """
        attachment = cast("Attachment", collection.attached)
        key = collection.tenant, collection.name
        try:
            if key not in self._handles:
                self._handles[key] = _Handle(await open_table(attachment.table), TableMemory())
            handle = self._handles[key]
            with engine_errors(f"opening the attached table {attachment.table}"):
                schema = await handle.table.schema()
                indexes = list(await handle.table.list_indices())
        except RefdeskError:
            self._handles.pop(key, None)  # the next request opens it again
            raise
        columns = columns_of(collection, attachment, schema)
        if (
            columns.dimension != collection.embedder.dimension
        ):  # it has other vectors than it was attached for
            embedder = replace(collection.embedder, dimension=columns.dimension)
            collection = replace(collection, embedder=embedder)
        sources, chunks = (
            AttachedTable(kind, handle.table, columns, collection, handle.memory)
            for kind in ("sources", "chunks")
        )
        return AttachedReader(
            collection, sources, chunks, indexes, timeout_seconds=self._timeout_seconds, scans=self._scans
        )


async def open_table(table: str) -> lancedb.AsyncTable:
    """The LanceDB table at an absolute path or URI.

    Raises:
        StoreError: the table doesn't exist, or can't be read.
    """
    database, _, name = table.rpartition("/")
    if "://" not in table:
        _check_folder(Path(table))
    with engine_errors(f"opening the attached table {table}"):
        try:
            return await (await connect_to(database)).open_table(name.removesuffix(SUFFIX))
        except ValueError as error:
            if "was not found" not in str(error):
                raise
            raise StoreError(f"There is no LanceDB table {table}.") from error


def _check_folder(folder: Path) -> None:
    """Check that a table is there: the engine would make the folder of a database that is not.

    Raises:
        StoreError: it is not, or it can't be read.
    """
    try:
        names = {file.name for file in folder.iterdir()}
    except OSError as error:
        raise StoreError(f"The attached table {folder} can't be read: {error.strerror}.") from error
    if "_versions" not in names:
        raise StoreError(f"{folder} is not a LanceDB table: it has no folder _versions.")


def absolute_address(address: str) -> str:
    """The absolute path or URI of a table, as a collection stores it.

    Raises:
        ConfigurationError: it is not the path or URI of one table.
    """
    if "://" in address:
        if not address.startswith(REMOTE) or not address.rstrip("/").endswith(SUFFIX):
            raise ConfigurationError(
                f"{address} is not the URI of a LanceDB table. Write s3://bucket/folder/notes{SUFFIX}. Known "
                f"are {', '.join(REMOTE)} and paths."
            )
        return address.rstrip("/")
    path = Path(address).expanduser().absolute()
    if path.suffix == SUFFIX and path.is_dir():
        return str(path)
    tables = sorted(str(folder) for folder in path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if tables:
        raise ConfigurationError(f"{path} is a folder of tables. Name one of them: {', '.join(tables)}.")
    raise ConfigurationError(f"There is no LanceDB table {path}. Its folder ends with {SUFFIX}.")
