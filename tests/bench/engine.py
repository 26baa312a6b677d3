"""The limit that searches are measured against: the engine's own calls and nothing around them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from rag.access.rule import DEFAULT_TENANT
from rag.config.settings import DEFAULT_COLLECTION, SearchSettings
from rag.runtime import concurrently
from rag.store.read import schema
from rag.store.read.catalog import collection_row
from rag.store.read.collection_reader import REFINED, matching
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import CHUNK_COLUMNS
from rag.store.read.word_analysis import query_words
from rag.store.write.desk_folder import note_tenant

if TYPE_CHECKING:
    from pathlib import Path

    import lancedb
    import numpy as np
    import numpy.typing as npt

    from rag.answers import Mode
    from rag.corpus import Language
    from rag.models.embed import Embedder

TENANT = DEFAULT_TENANT
LANGUAGE: Language = "English"
CANDIDATES = SearchSettings().candidates


@dataclass(frozen=True, slots=True)
class Engine:
    """A collection's tables, queried directly."""

    embedder: Embedder
    chunks: lancedb.AsyncTable
    sources: lancedb.AsyncTable

    async def search(self, mode: Mode, query: str, where: str | None = None) -> None:
        """Embed the query, and fetch the mode's lists concurrently with the columns that hits need."""
        (vector,) = await self.embedder.embed([query], "query")
        lists = {
            "dense": [self._dense(vector, CANDIDATES)],
            "sparse": [self._sparse(query)],
            "hybrid": [self._dense(vector, CANDIDATES), self._sparse(query)],
        }[mode]
        lists = [query_.where(where) if where else query_ for query_ in lists]
        await concurrently([query_.to_arrow for query_ in lists])

    async def window(self, id_: str, start: int, end: int) -> tuple[str, list[str]]:
        """A source's text[start:end], and the ids of the chunks that overlap it, unordered."""
        query = self.sources.query().where(schema.one_of("id", [id_])).select(schema.SOURCES_SCHEMA.names)
        (source,) = (await query.to_arrow()).to_pylist()
        touching = f"{schema.one_of('source_id', [id_])} AND (start < {end:d}) AND (end > {start:d})"
        rows = (await self.chunks.query().where(touching).select(CHUNK_COLUMNS).to_arrow()).to_pylist()
        return source["text"][start:end], [row["id"] for row in rows]

    async def exact(self, vector: npt.NDArray[np.float32], limit: int, where: str | None) -> list[str]:
        """The ids of the nearest chunks, by exact search."""
        query = self._dense(vector, limit).bypass_vector_index()
        rows: pa.Table = await (query.where(where) if where else query).to_arrow()
        return cast("list[str]", rows["id"].to_pylist())

    def _dense(self, vector: npt.NDArray[np.float32], limit: int) -> Any:  # noqa: ANN401 the engine's queries share no base
        query = self.chunks.query().nearest_to(vector).distance_type("cosine")
        query = query.maximum_nprobes(0).refine_factor(REFINED)
        return query.select([*CHUNK_COLUMNS, "vector", "_distance"]).limit(limit)

    def _sparse(self, query: str) -> Any:  # noqa: ANN401 the same
        search = self.chunks.query().nearest_to_text(matching(query_words(query, [LANGUAGE]), every=False))
        return search.select([*CHUNK_COLUMNS, "vector", "_score"]).limit(CANDIDATES)


async def open_engine(data: Path, embedder: Embedder) -> Engine:
    """The engine on the only collection of a data folder."""
    database = await connect(data)
    names = [table(TENANT, DEFAULT_COLLECTION) for table in (schema.chunks_table, schema.sources_table)]
    chunks, sources = [await database.open_table(name) for name in names]
    return Engine(embedder, chunks, sources)


async def add_tenants(data: Path, count: int) -> None:
    """Add so many tenants, each with a copy of the only collection.

    `ensure_collection` would take minutes, so the tables' files are hard links, which works as long as
    nobody writes to them. The catalog gets all its rows in one commit, as compaction would leave them.
    """
    (collection,) = await DeskReader(data, timeout_seconds=60).collections(TENANT)
    catalog = await (await connect(data)).open_table(schema.COLLECTIONS)
    copies = [replace(collection, tenant=f"{TENANT}-{number}") for number in range(count)]
    for copy in copies:
        note_tenant(data, copy.tenant)
        for name in (schema.chunks_table, schema.sources_table):
            _link(data, name(TENANT, collection.name), name(copy.tenant, collection.name))
        _link(data, schema.access_table(TENANT), schema.access_table(copy.tenant))
    if copies:
        await catalog.add(pa.concat_tables([collection_row(copy) for copy in copies]))


def _link(data: Path, table: str, copy: str) -> None:
    tables = database_folder(data)
    shutil.copytree(tables / f"{table}.lance", tables / f"{copy}.lance", copy_function=os.link)
