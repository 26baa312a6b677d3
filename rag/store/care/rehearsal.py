"""A writer that stores nothing, for `--dry-run` and `--estimate`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn, cast

from rag.corpus import AccessRecord, Collection
from rag.errors import StoreError
from rag.home import Bucket, Home
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder, engine_errors, open_if_there
from rag.store.write.access_claim import Claim, limits, settle
from rag.store.write.access_writer import AccessTable
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import read_key
from rag.store.write.table_rows import KeyedRows, KnownSource, NewSource, SourceMove, no_sources

if TYPE_CHECKING:
    import lancedb

_NO_KEY = b"no data folder yet"


class Rehearsal(CollectionWriter):
    """Answers like the writer of a collection, and keeps in memory what a writer would store.

    It holds no lock, so its answers are as of when it read the tables. `before` and `after` are the tenant's
    access records. Documents are spooled below `spools_in`, outside of the data folder.
    """

    writes = False

    def __init__(
        self,
        collection: Collection,
        tables: tuple[lancedb.AsyncTable, lancedb.AsyncTable] | None,
        records: Mapping[str, AccessRecord],
        *,
        data: Home,
        spools_in: Path,
    ) -> None:
        key = read_key(data) if tables else _NO_KEY
        chunks, sources = tables or cast("tuple[lancedb.AsyncTable, lancedb.AsyncTable]", (None, None))
        super().__init__(collection, chunks, sources, key=key, data=data)
        self.spools_in = spools_in
        self.before = records
        self.after = dict(records)
        self._exists = tables is not None

    async def known_sources(
        self, records: Mapping[str, AccessRecord] | None = None
    ) -> KeyedRows[KnownSource]:
        """The stored sources by URI; none of a collection that doesn't exist."""
        records = self.before if records is None else records
        if self._exists:
            return await super().known_sources(records)
        self.ids.learn(records)
        return no_sources(self.collection)

    async def records(self, *, as_swept: bool = False) -> Mapping[str, AccessRecord]:  # noqa: ARG002 both
        """The access records of the tenant."""
        return self.before

    def _settle(self, claims: Mapping[str, tuple[str, Claim]]) -> dict[str, AccessRecord]:
        settled = {}
        for id_, (uri, claim) in claims.items():
            limiting = limits(claim, self.after, lambda _record: False)  # nobody overtakes what isn't written
            name = self.collection.name
            fresh = AccessRecord(id_, name, uri, claim.access, claim.content, claim.requested)
            settled[id_] = settle(self.after.get(id_), claim, limiting, fresh)
        self.after |= settled
        return settled

    async def replace(self, items: Sequence[NewSource]) -> dict[str, AccessRecord]:
        """The records that these sources would get."""
        return self._settle({item.source.id: (item.source.uri, item.claim) for item in items})

    async def claim(self, claims: Mapping[str, tuple[str, Claim]]) -> dict[str, AccessRecord]:
        """The records that these claims would lead to."""
        return self._settle(claims)

    async def move(self, moved: Mapping[str, SourceMove]) -> dict[str, AccessRecord]:
        """The records that these sources would have at their new URIs."""
        return self._settle({id_: (move.uri, move.claim) for id_, move in moved.items()})

    async def remove(self, ids: Sequence[str]) -> None:
        """Note that these sources would be gone."""
        self.after |= {id_: replace(self.after[id_], present=False) for id_ in ids if id_ in self.after}

    async def follow_others(self) -> list[str]:
        """No ids: a rehearsal finishes nothing for others."""
        return []

    async def _write_nothing(self, *_given: object, **_named: object) -> None:
        """Store nothing. The run itself remembers what it needs."""

    note_files = examine_again = reanalyse = remember = rename = _write_nothing
    copy_labels = finish = drop_old_versions = sweep = _write_nothing

    async def _refuse(self, *_given: object, **_named: object) -> NoReturn:
        """Refuse a method that no ingestion run calls."""
        raise StoreError("This can't be tried without writing. Run the command without --dry-run.")

    describe = mend_access = forget = _refuse
    rebuild_indexes = purge = add_fields = drop_fields = _refuse


@asynccontextmanager
async def open_rehearsal(data: Home, collection: Collection) -> AsyncIterator[Rehearsal]:
    """A collection, which needn't exist, for a run that stores nothing. The spool is in a temporary folder.

    Raises:
        StoreError: the storage failed.
    """
    tables: tuple[lancedb.AsyncTable, lancedb.AsyncTable] | None = None
    records: Mapping[str, AccessRecord] = {}
    key = collection.tenant, collection.name, collection.build
    if isinstance(data, Bucket) or database_folder(data).is_dir():
        with engine_errors("opening the collection"):
            database = await connect(data)
            chunks = await open_if_there(database, schema.chunks_table(*key))
            sources = await open_if_there(database, schema.sources_table(*key))
            access = await open_if_there(database, schema.access_table(collection.tenant))
            if chunks is not None and sources is not None:
                tables = chunks, sources
            if access is not None:
                records = await AccessTable(access, data).keyed()
    with TemporaryDirectory(prefix="refdesk-") as name:
        yield Rehearsal(collection, tables, records, data=data, spools_in=Path(name))
