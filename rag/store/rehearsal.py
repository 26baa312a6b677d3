"""A writer that takes everything and stores nothing, for a run that only finds out what there is to do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from rag.corpus import AccessRecord
from rag.store import schema
from rag.store.connection import connect, database_folder, engine_errors, open_if_there
from rag.store.writer import CollectionWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    import lancedb
    import pyarrow as pa

    from rag.corpus import Access, Collection, Vectors
    from rag.file_state import FileState
    from rag.store.schema import NewSource
    from rag.store.settle import Claim
    from rag.store.writer import KnownSource, Moved

_NO_KEY = b"no data folder yet"


class Rehearsal(CollectionWriter):
    """A collection as a run finds it, whether it exists or not. It holds no lock: it shows one moment.

    The access records that it returns say nothing of who could see a source.
    """

    writes = False

    def __init__(
        self,
        collection: Collection,
        tables: tuple[lancedb.AsyncTable, lancedb.AsyncTable] | None,
        records: Mapping[str, AccessRecord],
        *,
        data: Path,
        spools_in: Path,
    ) -> None:
        key = (data / "key").read_bytes() if tables else _NO_KEY
        chunks, sources = tables or cast("tuple[lancedb.AsyncTable, lancedb.AsyncTable]", (None, None))
        super().__init__(collection, chunks, sources, key=key, data=data)
        self.spools_in = spools_in
        self._exists = tables is not None
        self._records = records

    async def records(self) -> dict[str, AccessRecord]:
        """All access records of the tenant, as they were when this was opened."""
        return dict(self._records)

    async def known(self, records: Mapping[str, AccessRecord] | None = None) -> dict[str, KnownSource]:
        """The stored sources by URI; none of a collection that doesn't exist."""
        return await super().known(self._records if records is None else records) if self._exists else {}

    async def replace(self, items: Sequence[NewSource]) -> dict[str, AccessRecord]:
        """Nothing is stored."""
        return {one.source.id: self._record(one.source.id, one.source.uri) for one in items}

    async def claim(self, claims: Mapping[str, tuple[str, Claim]]) -> dict[str, AccessRecord]:
        """Nothing is settled."""
        return {id_: self._record(id_, uri) for id_, (uri, _) in claims.items()}

    async def move(self, moved: Mapping[str, Moved]) -> dict[str, AccessRecord]:
        """Nothing is moved."""
        return {id_: self._record(id_, one.uri) for id_, one in moved.items()}

    async def note_files(self, files: Mapping[str, FileState]) -> None:
        """Nothing is noted."""

    async def give_vectors(self, ids: Sequence[str], rows: pa.Table, vectors: Vectors) -> dict[str, int]:  # noqa: ARG002 nothing is stored
        """Nothing is stored; no chunk lacks its vector any more."""
        return dict.fromkeys(ids, 0)

    async def remove(self, ids: Sequence[str]) -> None:
        """Nothing is removed."""

    async def remember(self, folders: Mapping[str, Access]) -> None:
        """Nothing is recorded."""

    async def forget(self, ids: Iterable[str]) -> None:
        """Nothing is forgotten."""

    async def finish(self) -> None:
        """There is nothing to finish."""

    def _record(self, id_: str, uri: str) -> AccessRecord:
        return AccessRecord(id_, self.collection.name, uri, None)


@asynccontextmanager
async def open_rehearsal(data: Path, collection: Collection) -> AsyncIterator[Rehearsal]:
    """A collection, which needn't exist, for a run that stores nothing. The spool is in a temporary folder.

    Raises:
        StoreError: the storage failed.
    """
    tables, records = None, dict[str, AccessRecord]()
    key = collection.tenant, collection.name, collection.build
    if database_folder(data).is_dir():
        with engine_errors("opening the collection"):
            database = await connect(data)
            chunks = await open_if_there(database, schema.chunks_table(*key))
            sources = await open_if_there(database, schema.sources_table(*key))
            access = await open_if_there(database, schema.access_table(collection.tenant))
            if chunks is not None and sources is not None and access is not None:
                tables = chunks, sources
                rows = (await access.query().to_arrow()).to_pylist()
                records = {row["id"]: schema.stored_record(row) for row in rows}
    with TemporaryDirectory(prefix="refdesk-") as folder:
        yield Rehearsal(collection, tables, records, data=data, spools_in=Path(folder))
