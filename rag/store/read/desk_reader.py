"""Opens a desk for reading: its catalog, its collections' tables and its tenants' access records.

A tenant's tables are opened on first use. Up to `MOST_OPEN` stay open, least recently used ones are closed
first. The engine's caches are replaced when they have grown too large.

A tenant may have its documents elsewhere (`rag.access.tenants`). A separate `DeskReader` reads them there,
with the same limit of memory and its own caches. The address is looked up for each request. If that storage
fails, only this tenant's requests fail.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import anyio.lowlevel
from anyio import to_thread

from rag.access.tenants import home_of, tenants
from rag.corpus import AccessRecord, Collection, LetterCase
from rag.errors import RefdeskError, StoreError
from rag.home import Bucket, Home, data_folder_problem
from rag.originals import Clock
from rag.runtime import cores, grouped
from rag.store.read import schema
from rag.store.read.catalog import collection_record
from rag.store.read.collection_reader import CollectionReader, SupersededIndexes
from rag.store.read.connection import (
    INDEX_CACHE_BYTES,
    LocalTable,
    connect,
    database_folder,
    engine_errors,
    of_newest,
    open_if_there,
)
from rag.store.read.rows_in_memory import MemoryBudget
from rag.store.read.sources_reader import AccessReader

if TYPE_CHECKING:
    import lancedb

    from rag.config.settings import Settings
    from rag.store.read.attached.attached_reader import AttachedTables

log = logging.getLogger(__name__)

NO_URLS: Mapping[str, str] = MappingProxyType({})


_Row: TypeAlias = tuple[int, datetime, int]
"""A row of the catalog by its address, its collection's creation, and the hash of its definition."""
MOST_SUPERSEDED = 64  # indexes in the cache, whose files stay open, before it is replaced
MOST_OPEN = 64  # collections: each takes some 150 KB with a few rows, and opening it again 10 ms
CACHE_ROOM = 1.5  # times the size of the indexes: while they are rewritten, it also holds their predecessors


class DeskReader:
    """A desk opened for reading. Every call sees what other processes have committed before it.

    In a bucket it may miss the commits of the last `consistency_seconds`.

    `letter_case` says where the letter case of users and groups matters. `urls` are templates, by collection,
    for the URLs of sources without one. `seen_as` changes the definitions of collections for this reader, so
    that an evaluation can search its own tables. The engine's cache of indexes grows with them up to
    `index_cache_bytes`. Rows of searched tables are kept in memory, up to `memory_bytes`. `home_of` returns
    the storage of a tenant whose documents aren't here. With `once`, tables in a bucket stay as they were
    when opened: for a command that looks before it changes something.
    """

    def __init__(  # noqa: PLR0913 the settings of the store
        self,
        data: Home,
        *,
        timeout_seconds: float,
        letter_case: LetterCase = "allow",
        urls: Mapping[str, str] = NO_URLS,
        seen_as: Callable[[Collection], Collection] | None = None,
        index_cache_bytes: int = INDEX_CACHE_BYTES,
        memory_bytes: int = 0,
        home_of: Callable[[str], Home] | None = None,
        once: bool = False,
    ) -> None:
        self.letter_case = letter_case
        self.data = data
        self._urls = urls
        self._seen_as = seen_as
        self._timeout_seconds = timeout_seconds
        self._scans = anyio.CapacityLimiter(cores())
        self._cache_bytes = min(index_cache_bytes, INDEX_CACHE_BYTES)
        self._most_cached = index_cache_bytes
        self._memory = MemoryBudget(memory_bytes) if memory_bytes else None
        self._superseded = SupersededIndexes()
        self.database: lancedb.AsyncConnection | None = None
        self._roomy: lancedb.AsyncConnection | None = None  # the same database with a larger cache
        self._catalog: lancedb.AsyncTable | None = None
        self._collections: dict[str, dict[_Row, Collection]] = {}  # by tenant and row in the catalog
        self._version = -1
        self._open: dict[tuple[str, str], CollectionReader] = {}  # least recently used first
        self._opening = anyio.Lock()
        self._attached: AttachedTables | None = None
        self._access: dict[str, AccessReader] = {}
        self.clock = Clock()
        self._home_of = home_of
        self._once = once
        self._elsewhere: dict[str, DeskReader] = {}  # by tenant, least recently used first

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        seen_as: Callable[[Collection], Collection] | None = None,
        index_cache_bytes: int = INDEX_CACHE_BYTES,
        memory_bytes: int = 0,
        once: bool = False,
    ) -> DeskReader:
        """The reader of the desk that the settings name, as they say."""
        return cls(
            settings.home,
            timeout_seconds=settings.search.timeout_seconds,
            letter_case=settings.access.letter_case,
            urls=settings.search.urls,
            seen_as=seen_as,
            index_cache_bytes=index_cache_bytes,
            memory_bytes=memory_bytes,
            home_of=partial(home_of, settings),
            once=once,
        )

    async def collections(self, tenant: str) -> tuple[Collection, ...]:
        """The tenant's collections, ordered by name; none before the first ingestion.

        Raises:
            ConfigurationError, StoreError: the catalog can't be read, or the tenant's own storage.
        """
        if reader := await self._reader_elsewhere(tenant):
            return await reader.collections(tenant)
        return tuple(self._collections.get(tenant, {}).values())

    async def _reader_elsewhere(self, tenant: str) -> DeskReader | None:
        """The reader of the tenant's own storage; None if its documents are here."""
        await self._refresh_catalog()
        # A tenant's documents are here or in its own storage, never in both: most need no look at its record.
        if self._home_of is None or tenant in self._collections:
            return None
        home = await to_thread.run_sync(self._home_of, tenant)
        reader = self._elsewhere.pop(tenant, None)
        if reader and reader.data != home:  # the tenant was moved
            reader.close_tables()
            reader = None
        if home == self.data:
            return None
        if reader is None:
            reader = DeskReader(
                home,
                timeout_seconds=self._timeout_seconds,
                letter_case=self.letter_case,
                urls=self._urls,
                seen_as=self._seen_as,
                index_cache_bytes=self._most_cached,
                once=self._once,
            )
            reader._memory, reader._scans = self._memory, self._scans  # limits of the process, not of a desk
        self._elsewhere[tenant] = reader
        if len(self._elsewhere) > MOST_OPEN:
            self._elsewhere.pop(next(iter(self._elsewhere))).close_tables()
        return reader

    async def _refresh_catalog(self) -> None:
        try:
            with engine_errors("reading the catalog"):
                catalog = await self._opened_catalog()
                if catalog is None:
                    return
                version = await catalog.version()
                if version != self._version:
                    await self._read_catalog(catalog)
                    self._version = version
        except StoreError as error:
            # Its drive can be unmounted, or the folder moved, while a server runs.
            is_folder = not isinstance(self.data, Bucket)
            if is_folder and (problem := await to_thread.run_sync(data_folder_problem, self.data)):
                raise StoreError(problem) from error
            raise

    async def _read_catalog(self, catalog: lancedb.AsyncTable) -> None:
        """Read the definitions that have changed, and close the tables of their tenants.

        A collection is unchanged if its row has the same address and content. The engine writes a changed row
        to a new address, but a recreated catalog starts again with the first one. A new collection can have
        the name of a removed one, and its tables can repeat versions and addresses.
        """
        rows = (await of_newest([catalog], catalog.query().with_row_id().to_arrow)).to_pylist()
        by_tenant: dict[str, dict[_Row, dict[str, Any]]] = defaultdict(dict)
        for row in sorted(rows, key=itemgetter("name")):
            by_tenant[row["tenant"]][row.pop("_rowid"), row["created_at"], hash(row["definition"])] = row
        unchanged = {
            tenant: collections_before
            for tenant, collections_before in self._collections.items()
            if collections_before.keys() == by_tenant.get(tenant, {}).keys()
        }
        collections = {
            tenant: unchanged.get(tenant) or {at: self._collection(row) for at, row in of_tenant.items()}
            for tenant, of_tenant in by_tenant.items()
        }
        for tenant in self._collections.keys() - unchanged.keys():
            self._close_tenant(tenant)
        self._collections, self._attached = collections, None  # a kept handle may be of another table

    def _collection(self, row: dict[str, Any]) -> Collection:
        collection = collection_record(row)
        return self._seen_as(collection) if self._seen_as else collection

    async def collection_names(self) -> dict[str, list[str]]:
        """The names of all collections by tenant, in order. Reading their definitions would take longer."""
        with engine_errors("reading the catalog"):
            catalog = await self._opened_catalog()
            rows = (
                (await catalog.query().select(["tenant", "name"]).to_arrow()).to_pylist() if catalog else []
            )
        return grouped((row["tenant"], row["name"]) for row in sorted(rows, key=itemgetter("name")))

    async def open(self, collection: Collection) -> CollectionReader:
        """The reader of a collection, which stays open until its definition changes.

        Raises:
            StoreError: its tables can't be opened. The reader of an attached table is `failed` instead.
        """
        if collection.tenant not in self._collections and (
            reader_elsewhere := await self._reader_elsewhere(collection.tenant)
        ):
            return await reader_elsewhere.open(collection)
        if collection.attached:
            return await self._attached_tables().open(collection)
        key = collection.tenant, collection.name
        reader = self._open.pop(key, None)
        if reader is not None:
            self._open[key] = reader  # now the most recently used one
        if reader is None or reader.collection != collection or self._room_needed():
            async with self._opening:  # so that concurrent searches share one reader
                await self._make_room()
                reader = self._open.get(key)
                if reader is None or reader.collection != collection:
                    reader = await self._opened(collection)
                    if await self._make_room():  # its indexes filled the cache: open it with the new one
                        reader = await self._opened(collection)
        return reader

    async def _opened(self, collection: Collection) -> CollectionReader:
        """A new reader, which stays open. Least recently used readers of other tenants are closed for it."""
        key = collection.tenant, collection.name
        self._close(key)
        reader = self._open[key] = await self._open_collection(collection)
        while len(self._open) > MOST_OPEN:
            # Not of its own tenant: a search of more collections would close each before it comes again.
            other = next((other for other in self._open if other[0] != collection.tenant), None)
            if other is None:
                break
            self._close(other)
        return reader

    def _close(self, key: tuple[str, str]) -> None:
        """Close a collection, and its tenant's access records if this was its last open collection."""
        if reader := self._open.pop(key, None):
            reader.close()
        if not any(tenant == key[0] for tenant, _ in self._open):
            self._access.pop(key[0], None)

    def _close_tenant(self, tenant: str) -> None:
        for key in [key for key in self._open if key[0] == tenant]:
            self._close(key)
        self._access.pop(tenant, None)

    @property
    def catalog_table(self) -> str:
        """The name of the table of all collections."""
        return schema.COLLECTIONS

    async def warm(self) -> None:
        """Open as many collections as stay open, and read ahead what first searches would wait for.

        Raises:
            StoreError: a table can't be opened or read.
        """
        for tenant in await to_thread.run_sync(tenants, self.data):
            try:
                for collection in await self.collections(tenant):
                    if len(self._open) == MOST_OPEN:
                        return
                    if not collection.attached:
                        await (await self.open(collection)).warm()
            except RefdeskError as error:
                if tenant in self._collections:
                    raise
                # A failing storage of its own is this tenant's trouble alone.
                log.warning("The tenant %r can't be served: %s", tenant, error)

    def close_tables(self) -> None:
        """Close all collections, and forget their rows."""
        for key in [*self._open]:
            self._close(key)

    async def close(self) -> None:
        """Stop background tasks."""
        if self._memory:
            await self._memory.close()

    async def _open_collection(self, collection: Collection) -> CollectionReader:
        key, build = (collection.tenant, collection.name), collection.build
        with engine_errors("opening a collection"):
            database = cast("lancedb.AsyncConnection", self._roomy or self.database)
            chunks = await database.open_table(schema.chunks_table(*key, build))
            sources = await database.open_table(schema.sources_table(*key, build))
        access = await self._opened_access(collection.tenant)
        reader = CollectionReader(
            collection,
            self._seen(chunks),
            self._seen(sources),
            access,
            timeout_seconds=self._timeout_seconds,
            scans=self._scans,
            url=self._urls.get(collection.name, ""),
            memory=self._memory,
            in_bucket=isinstance(self.data, Bucket),
            superseded=self._superseded,
        )
        await reader.look_at_indexes()
        return reader

    async def _make_room(self) -> bool:
        """Connect with a new cache if the indexes have outgrown it, or many in it are superseded.

        Returns whether it did; then collections must be opened again.
        """
        # The cache grows with the indexes: a large one would fill with superseded indexes, even beside small
        # present ones. Access records stay open: all readers of a tenant share them.
        room = self._room_needed()
        if not room:
            return False
        self._roomy = await connect(self.data, index_cache_bytes=room)
        self._cache_bytes = room
        self._superseded.count = 0
        for reader in self._open.values():
            reader.close()
        self._open.clear()
        return True

    def _room_needed(self) -> int:
        """The bytes that a new cache needs; 0 if the present cache is good enough."""
        needed = sum(reader.index_bytes for reader in self._open.values())
        room = min(int(needed * CACHE_ROOM), self._most_cached)
        if min(needed, room) > self._cache_bytes:
            return room
        return self._cache_bytes if self._superseded.count > MOST_SUPERSEDED else 0

    def _attached_tables(self) -> AttachedTables:
        if self._attached is None:
            # Imported here, because few desks have an attached table.
            from rag.store.read.attached.attached_reader import AttachedTables  # noqa: PLC0415

            self._attached = AttachedTables(self._timeout_seconds, self._scans)
        return self._attached

    @staticmethod
    async def refresh(tables: Iterable[CollectionReader]) -> None:
        """Look for changed access records, once for all tables of a tenant, which share them."""
        for access in {id(table.access): table.access for table in tables}.values():
            await access.refresh()

    async def names_groups(self, tenant: str) -> bool:
        """Whether a caller's groups matter: an access record of the tenant names a group, or may name one."""
        if reader := await self._reader_elsewhere(tenant):
            return await reader.names_groups(tenant)
        collections = await self.collections(tenant)
        if not collections:
            return False
        if any(collection.attached and collection.attached.allow for collection in collections):
            return True  # others may write a group into these tables at any time
        return await (await self._opened_access(tenant)).names_groups()

    async def removed_records(self, tenant: str) -> dict[str, AccessRecord]:
        """The access records of the tenant's removed sources, by id; they apply if the sources come back."""
        access = await self._access_if_there(tenant)
        return await access.removed_records() if access else {}

    async def folder_records(self, tenant: str) -> list[AccessRecord]:
        """The access records of the tenant's folders; they apply to files that come into them."""
        access = await self._access_if_there(tenant)
        return await access.folder_records() if access else []

    async def entries(self, tenant: str) -> set[str]:
        """The entries of all access lists of the tenant, those of removed sources and folders included."""
        access = await self._access_if_there(tenant)
        return await access.entries() if access else set()

    async def _access_if_there(self, tenant: str) -> AccessReader | None:
        if reader := await self._reader_elsewhere(tenant):
            return await reader._access_if_there(tenant)  # noqa: SLF001 its own class
        if await self._opened_catalog() is None:
            return None
        if tenant in self._access:
            return self._access[tenant]
        database = cast("lancedb.AsyncConnection", self.database)
        table = await open_if_there(database, schema.access_table(tenant))
        return None if table is None else self._kept_access(tenant, table)

    async def _opened_access(self, tenant: str) -> AccessReader:
        if tenant not in self._access:
            database = cast("lancedb.AsyncConnection", self.database)
            with engine_errors("opening access records"):
                table = await database.open_table(schema.access_table(tenant))
            return self._kept_access(tenant, table)
        return self._access[tenant]

    def _kept_access(self, tenant: str, table: lancedb.AsyncTable) -> AccessReader:
        """The shared reader of a tenant's access records: of this table, unless another task was faster."""
        if len(self._access) > MOST_OPEN:  # most were opened for their records alone
            tenants_in_use = {tenant for tenant, _ in self._open}
            self._access = {name: self._access[name] for name in self._access.keys() & tenants_in_use}
        opened = AccessReader(self._seen(table), timedelta(seconds=self._timeout_seconds))
        # Another task may have been faster, and all must share one.
        return self._access.setdefault(tenant, opened)

    async def _opened_catalog(self) -> lancedb.AsyncTable | None:
        if self._catalog is None:
            if not isinstance(self.data, Bucket) and not database_folder(self.data).is_dir():
                return None  # connecting would create the folder, and a wrong path would become a desk
            cache_bytes = min(self._cache_bytes, INDEX_CACHE_BYTES)
            self.database = self.database or await connect(
                self.data, index_cache_bytes=cache_bytes, writes=self._once
            )
            catalog = await open_if_there(self.database, schema.COLLECTIONS)
            self._catalog = catalog and self._seen(catalog)
        return self._catalog

    def _seen(self, table: lancedb.AsyncTable) -> lancedb.AsyncTable:
        """The table, as `LocalTable` where that sees the newest version faster."""
        return table if isinstance(self.data, Bucket) else LocalTable(table, self.data)
