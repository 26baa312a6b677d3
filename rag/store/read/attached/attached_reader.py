"""Opens an attached table and reads it as a collection; also the passages that a retriever found.

Others can change a table at any time. If it can't be read, the error says why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
import anyio.lowlevel
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.access.rule import EVERYBODY
from rag.corpus import Access, AccessRecord, Attachment, Collection, Retrieved
from rag.errors import ConfigurationError, RefdeskError, StoreError, if_system_refuses
from rag.filters.grammar import literal
from rag.store.read import schema
from rag.store.read.attached.attached_table import (
    AttachedTable,
    TableMemory,
    UnreadTable,
    access_of,
    access_of_ours,
    revision_of,
)
from rag.store.read.attached.column_mapping import columns_of
from rag.store.read.collection_reader import CollectionReader, words_in
from rag.store.read.connection import SERVICE, connect_to, engine_errors, open_in_service
from rag.store.read.sources_reader import WALKED, AccessReader
from rag.store.read.word_analysis import Word, terms_of_forms
from rag.store.read.words_in_memory import NO_WORDS, Positions, WordsInMemory

if TYPE_CHECKING:
    import lancedb
    from lancedb.index import IndexConfig

ALL = 2**31 - 1  # rows
FIRST_ROWS = 16  # checked for a readable one; a single malformed list must not hide the others
ALL_MAY = Access("tenant")
NOTHING: tuple[pa.Table, Mapping[str, Access | None]] = (schema.SOURCES_SCHEMA.empty_table(), {})

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


class AttachedAccess:
    """The access of the rows of an attached table, in the form of an `AccessReader`. Nothing is cached."""

    version = 0

    def __init__(self, sources: AttachedTable, timeout: timedelta) -> None:
        self._sources = sources
        self._timeout = timeout

    async def refresh(self) -> int:
        """Nothing is cached, so there is nothing to drop."""
        return 0

    async def records(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """The access of these rows, by id; deny-all if rows of the same id disagree."""
        chosen = sorted(set(ids))
        if self._sources.columns.allow is None or not chosen:
            return dict.fromkeys(chosen, ALL_MAY)
        return dict.fromkeys(chosen) | self._agreed_access(await self._entries(schema.one_of("id", chosen)))

    async def all_records(self) -> dict[str, Access | None]:
        """As `records`, of all rows."""
        return self._agreed_access(await self._entries("(true)"))

    async def tombstones(self) -> frozenset[str]:
        """As `AccessReader.tombstones`: none, because rows are removed where the table is written."""
        return frozenset()

    async def matching_records(self, _collection: str, where: str) -> dict[str, Access | None]:
        """As `AccessReader.matching_records`."""
        chosen, records = await self._entries(where), await self.all_records()
        return {id_: records.get(id_) for id_, _ in chosen}

    async def has_any(self, _collection: str, where: str) -> bool:
        """Whether any row satisfies the predicate on labels and has rights that count."""
        facts = self._sources.memory.facts(await self._sources.version())
        if where not in facts:
            facts[where] = await self._has_any(where)
        return facts[where]

    async def _has_any(self, where: str) -> bool:
        # The first rows answer for most tables. All are read only if no right of these counts.
        for limit in (FIRST_ROWS, None):
            rows = await self._entries(where, limit)
            if any((await self.records(id_ for id_, _ in rows)).values()):
                return True
            if limit is None or len(rows) < limit:
                break
        return False

    async def page(self, _collection: str, after: str, limit: int, where: str) -> dict[str, int]:
        """As `AccessReader.page`."""
        rows = await self._entries(f"{where} AND (id > {literal(after)})")
        revisions = {id_: self._revision(entries) for id_, entries in rows}
        return {id_: revisions[id_] for id_ in sorted(revisions)[:limit]}

    async def uncopied_records(self) -> tuple[AccessRecord, ...]:
        """None: a row has its own rights, not a copy."""
        return ()

    async def _entries(self, where: str, limit: int | None = None) -> list[tuple[str, Any]]:
        """The ids of rows, and their lists of entries; None where everybody may see all rows."""
        columns = self._sources.columns
        select = {"id": columns.source_id, "theirs": columns.id}
        if columns.allow:
            select["allow"] = columns.allow
        with engine_errors("reading an attached table"):
            condition = f"({await self._sources.usable()} AND {self._sources.translation(where)})"
            query = self._sources.table.query().where(condition).select(select)
            rows = await (query if limit is None else query.limit(limit)).to_arrow(timeout=self._timeout)
        ids = cast("list[str]", rows["id"].to_pylist())
        self._sources.memory.learn(ids, cast("list[str]", rows["theirs"].to_pylist()))
        return list(zip(ids, rows["allow"].to_pylist() if columns.allow else [None] * len(ids), strict=True))

    def _agreed_access(self, rows: Sequence[tuple[str, Any]]) -> dict[str, Access | None]:
        """The access of each id; deny-all if its rows disagree."""
        agreed: dict[str, Access | None] = {}
        for id_, entries in rows:
            access = self._access(entries)
            # Rows of one id are one source. Either of their rights could be the wrong one: fail closed.
            agreed[id_] = access if agreed.setdefault(id_, access) == access else None
        return agreed

    def _access(self, entries: Sequence[str | None] | None) -> Access | None:
        columns = self._sources.columns
        if columns.allow is None:
            return ALL_MAY
        return access_of_ours(entries) if columns.ours else access_of(entries)

    def _revision(self, entries: Sequence[str | None] | None) -> int:
        return 0 if self._sources.columns.allow is None else revision_of(entries)


@dataclass(frozen=True, slots=True)
class Survey:
    """The rows of an attached table. `unusable` ones, without an id or a text, are not among the `rows`.

    `repeated` counts the rows that share an id: searches find one of them. `hidden` counts the ids that
    nobody sees, because their rights are missing, malformed, or differ between rows.
    """

    rows: int
    unusable: int
    repeated: int
    hidden: int


def _or_nothing(
    method: Callable[Concatenate[CollectionReader, P], Coroutine[Any, Any, T]], nothing: Callable[[], T]
) -> Callable[Concatenate[CollectionReader, P], Coroutine[Any, Any, T]]:
    """The method of a reader, which returns `nothing` if it fails."""

    async def attempted(reader: CollectionReader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await reader.attempt(method(reader, *args, **kwargs), nothing())

    return attempted


class AttachedReader(CollectionReader):
    """An attached table, read for one request. If reading fails, results are empty and `failed` is true.

    So a search of other collections still works. `failure` says why the table can't be opened.
    """

    def __init__(  # noqa: PLR0913 as of the class above
        self,
        collection: Collection,
        sources: AttachedTable,
        chunks: AttachedTable,
        indexes: Sequence[IndexConfig],
        *,
        timeout_seconds: float,
        scans: anyio.CapacityLimiter,
        failure: str = "",
    ) -> None:
        self._rights = AttachedAccess(sources, timedelta(seconds=timeout_seconds))
        super().__init__(
            collection,
            cast("lancedb.AsyncTable", chunks),  # has the methods that a reader calls
            cast("lancedb.AsyncTable", sources),
            cast("AccessReader", self._rights),
            timeout_seconds=timeout_seconds,
            scans=scans,
        )
        self._attached = chunks
        self.failure = failure
        self.failed = bool(failure)
        attachment = cast("Attachment", collection.attached)
        self.full_text = index_of_column(attachment.text, indexes, of_text=True)
        self.nearest = index_of_column(attachment.vector, indexes, of_text=False)
        self.reads_all_vectors = bool(attachment.vector) and self.nearest is None
        self.by_words = self.full_text is not None

    async def attempt(self, reading: Awaitable[T], nothing: T) -> T:
        """The result of a reading, or `nothing` if it fails."""
        try:
            return await reading
        except StoreError as error:
            log.warning("The collection %r fails: %s", self.collection.name, error)
            self.failed = True  # the answer says that some documents weren't searched
            return nothing

    # Methods of the class above; `sparse` uses the words of the other table's index.
    dense = _or_nothing(CollectionReader.dense, list)
    sparse = _or_nothing(CollectionReader.sparse, list)
    sources = _or_nothing(CollectionReader.sources, dict)
    page = _or_nothing(CollectionReader.page, list)
    matching_sources = _or_nothing(CollectionReader.matching_sources, list)
    has_any = _or_nothing(CollectionReader.has_any, bool)
    places = _or_nothing(CollectionReader.places, list)
    attributes = _or_nothing(CollectionReader.attributes, dict)

    async def words(self, where: str, query: Sequence[Word]) -> tuple[pa.Table, WordsInMemory]:
        """As `CollectionReader.words`, from the other table's index: a word counts once per row.

        The length of a row is measured in the embedder's tokens.
        """
        columns = ["id", "generation", "tokens"]
        nothing = pa.table({name: pa.array([], pa.string()) for name in columns}), NO_WORDS
        return await self.attempt(self._indexed_words(where, columns, query), nothing)

    async def _indexed_words(
        self, where: str, columns: list[str], query: Sequence[Word]
    ) -> tuple[pa.Table, WordsInMemory]:
        rows = await self.chunk_rows(lambda engine: engine.where(where).select(columns))
        as_written = {word.forms[0][0]: word.text for word in query}  # the index analyses words itself
        terms = sorted(terms_of_forms(query))
        holding = [
            await self._positions_having(as_written.get(term, term), where, rows["id"]) for term in terms
        ]
        starts = np.cumsum([0, *map(len, holding)])
        having = np.concatenate([np.arange(0), *holding]).astype(np.int32)
        lengths = rows["tokens"].to_numpy().astype(np.int32)
        once = np.ones(len(having), np.uint16)
        return rows, WordsInMemory(pa.array(terms, pa.string()), starts, having, once, lengths)

    async def _positions_having(self, word: str, where: str, ids: pa.ChunkedArray[Any]) -> Positions:
        match = words_in(await self.words_column(), [word], every=False)
        having = await self.chunk_rows(
            lambda engine: engine.nearest_to_text(match).where(where).select(["id", "_score"]).limit(ALL)
        )
        return np.flatnonzero(pc.is_in(ids, value_set=having["id"]).to_numpy())

    async def chunks(self, ids: Sequence[str], where: str) -> list[schema.StoredChunk]:
        """As `CollectionReader.chunks`. Of rows with the same id, the shown one comes last."""
        return lowest_last(await self.attempt(super().chunks(ids, where), []))

    async def walk(
        self, where: str, beginning: str | None = None
    ) -> AsyncIterator[list[schema.StoredSource]]:
        """As `SourcesReader.walk`, with two queries for everything."""
        rows, access = await self.attempt(self._with_rights(where), NOTHING)
        if beginning is not None:
            rows = rows.filter(schema.begin_with(rows, beginning))
        for start in range(0, rows.num_rows, WALKED):
            yield [
                self._stored_source(row, access.get(row["id"]))
                for row in rows.slice(start, WALKED).to_pylist()
            ]
            await anyio.lowlevel.checkpoint()

    async def _with_rights(self, where: str) -> tuple[pa.Table, Mapping[str, Access | None]]:
        """The rows of the source table that satisfy the predicate, and who may see each row of the table."""
        with engine_errors("listing the rows of an attached table"):
            rows = await self._table(self._sources.query().where(where).select(schema.SUMMARY_COLUMNS))
        return rows, await self._rights.all_records()

    async def statistics(self) -> schema.Statistics:
        """Numbers for operators."""
        columns = self._attached.columns
        with_vector = f"{columns.usable} AND ({columns.vector} IS NOT NULL)"
        indexes = [index for index in (self.full_text, self.nearest) if index]
        with engine_errors("counting the rows of an attached table"):
            rows = await self._attached.count_rows()
            vectors = await self._attached.table.count_rows(with_vector) if columns.vector else 0
        return schema.Statistics(
            sources=rows,
            chunks=rows,
            without_vector=rows - vectors,
            indexes=tuple(f"{', '.join(index.columns)} ({index.index_type})" for index in indexes),
            unindexed=max((index.num_unindexed_rows or 0 for index in indexes), default=0),
        )

    async def survey(self) -> Survey:
        """Counts of unusable, repeated and hidden rows, for operators."""
        columns, table = self._attached.columns, self._attached.table
        with engine_errors("counting the rows of an attached table"):
            unusable = await table.count_rows(f"NOT ({columns.usable})")
            rights = await self._rights.all_records()
            rows = await self._attached.count_rows()
        hidden = sum(access is None for access in rights.values())
        return Survey(rows, unusable, rows - len(rights), hidden)

    async def words_column(self) -> str:
        """The text column. It needs no check: without a full-text index, `by_words` is false."""
        return "body"


def lowest_last(chunks: Sequence[schema.StoredChunk]) -> list[schema.StoredChunk]:
    """The chunks, ordered so that of several with one id, the shown one comes last; see `source_rows`."""
    return sorted(chunks, key=lambda chunk: chunk.generation, reverse=True)


def index_of_column(
    column: str | None, indexes: Sequence[IndexConfig], *, of_text: bool
) -> IndexConfig | None:
    """The full-text or the vector index on a column of another table, None if it has none."""
    kinds = ("FTS",) if of_text else ("Ivf", "Hnsw")
    on_column = (index for index in indexes if column in index.columns)
    return next((index for index in on_column if str(index.index_type).startswith(kinds)), None)


SUFFIX = ".lance"
REMOTE = ("s3://", "gs://", "az://")
OF_SERVICE = rf"{SERVICE}[\w.-]+(/[\w.-]+)+"


class AttachedTables:
    """The attached tables of a data folder. Handles are kept, and checked for each request."""

    def __init__(self, timeout_seconds: float, scans: anyio.CapacityLimiter | None = None) -> None:
        self._timeout_seconds = timeout_seconds
        self._scans = scans or anyio.CapacityLimiter(1)
        self._handles: dict[tuple[str, str], tuple[lancedb.AsyncTable, TableMemory]] = {}

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
                self._handles[key] = await open_table(attachment.table), TableMemory()
            table, memory = self._handles[key]
            with engine_errors(f"opening the attached table {attachment.table}"):
                their_schema = await table.schema()
                indexes = list(await table.list_indices())
        except RefdeskError:
            self._handles.pop(key, None)  # the next request opens it again
            raise
        columns = columns_of(collection, attachment, their_schema)
        # Its owner has made other vectors since it was attached, so no query's vector compares with them.
        if columns.dimension != collection.embedder.dimension:
            embedder = replace(collection.embedder, dimension=columns.dimension)
            collection = replace(collection, embedder=embedder)
        sources, chunks = (
            AttachedTable(kind, table, columns, collection, memory) for kind in ("sources", "chunks")
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
            if table.startswith(SERVICE):
                return await open_in_service(table)
            return await (await connect_to(database)).open_table(name.removesuffix(SUFFIX))
        except ValueError as error:
            if "was not found" not in str(error):
                raise
            raise StoreError(f"There is no LanceDB table {table}.") from error


def _check_folder(folder: Path) -> None:
    """Check that a table exists: the engine would create the folder of a missing database.

    Raises:
        StoreError: the folder has no table, or can't be read.
    """
    with if_system_refuses(StoreError, f"The attached table {folder} can't be read"):
        names = {file.name for file in folder.iterdir()}
    if "_versions" not in names:
        raise StoreError(f"{folder} is not a LanceDB table: it has no folder _versions.")


def absolute_address(address: str) -> str:
    """The absolute path or URI of a table, as a collection stores it.

    Raises:
        ConfigurationError: it is not the path or URI of one table.
    """
    if re.fullmatch(OF_SERVICE, address):
        return address
    if "://" in address:
        if not address.startswith(REMOTE) or not address.rstrip("/").endswith(SUFFIX):
            raise ConfigurationError(
                f"{address} is not the URI of a LanceDB table. Write s3://bucket/folder/notes{SUFFIX}, or "
                f"{SERVICE}database/notes for one of LanceDB Enterprise or Cloud. Known are "
                f"{', '.join((*REMOTE, SERVICE))} and paths."
            )
        return address.rstrip("/")
    path = Path(address).expanduser().absolute()
    if path.suffix == SUFFIX and path.is_dir():
        return str(path)
    tables = sorted(str(folder) for folder in path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if tables:
        raise ConfigurationError(f"{path} is a folder of tables. Name one of them: {', '.join(tables)}.")
    raise ConfigurationError(f"There is no LanceDB table {path}. Its folder ends with {SUFFIX}.")


IN_MEMORY = "memory://"
FIELD = "field_"
_TEXTS: dict[str, pa.DataType] = dict.fromkeys(("id", "text", "title", "url"), pa.string())
_PLAIN = _TEXTS | {"date": schema.MOMENT}
_FIELD_TYPES = schema.FIELD_TYPES | {"datetime": schema.MOMENT}


class HeldReader(AttachedReader):
    """The passages that a retriever found in one request, held as a table in memory.

    The table is read like an attached one, so the same code filters, checks, cites and opens them.
    """

    retrieves = True

    async def hold(self, passages: Sequence[Retrieved]) -> None:
        """Add passages.

        Raises:
            StoreError: a value doesn't have the type of its field.
        """
        with engine_errors("holding what a retriever found"):
            rows = pa.Table.from_pylist([*map(self._row, passages)], schema=_columns_held(self.collection))
            await self._attached.table.add(rows)

    async def attributes(self) -> None:
        """Unknown before the search."""

    async def chunks_by_their_id(self, where: str) -> dict[str, schema.StoredChunk]:
        """The chunks of the passages that satisfy the predicate, by the retriever's own ids."""
        rows = await self.chunk_rows(
            lambda query: query.where(where).select([*schema.CHUNK_COLUMNS, "vector"]).limit(ALL)
        )
        known_id = self._attached.memory.their_id
        chunks = [
            (known_id(chunk.id.partition("/")[0]), chunk) for chunk in lowest_last(schema.stored_chunks(rows))
        ]
        return {id_: chunk for id_, chunk in chunks if id_ is not None}

    def theirs(self, id_: str) -> str | None:
        """The retriever's id for one of ours, None if it was never found."""
        return self._attached.memory.their_id(id_)

    def _row(self, passage: Retrieved) -> dict[str, Any]:
        # In this table the entry "*" means everybody, so a retriever may not write it. Fail closed: nobody.
        entries = None if EVERYBODY in passage.allow else list(passage.allow)
        if passage.visibility == "tenant":
            entries = None if passage.allow else [EVERYBODY]
        values = {name: getattr(passage, name) for name in _PLAIN}
        fields = {FIELD + name: passage.fields.get(name) for name in self.collection.fields}
        return {**values, **fields, "title": passage.title or None, "allow": entries}


def attachment_of(fields: Sequence[str]) -> Attachment:
    """The column names of a table of held passages."""
    columns = {name: FIELD + name for name in fields}
    return Attachment(IN_MEMORY, "id", "text", None, "title", "url", "date", "allow", columns)


Held = TypeVar("Held", bound=HeldReader)


async def hold_for(
    kind: type[Held],
    collection: Collection,
    memory: TableMemory,
    scans: anyio.CapacityLimiter,
    seconds: float,
) -> Held:
    """An empty reader of this kind, for one request. Making it takes 1 ms of CPU."""
    columns_held = _columns_held(collection)
    with engine_errors("preparing to hold what a retriever finds"):
        table = await (await connect_to(IN_MEMORY)).create_table("held", schema=columns_held)
    columns = replace(
        columns_of(collection, collection.attached or attachment_of(()), columns_held), ours=True
    )
    sources = AttachedTable("sources", table, columns, collection, memory)
    chunks = AttachedTable("chunks", table, columns, collection, memory)
    reader = kind(collection, sources, chunks, [], timeout_seconds=seconds, scans=scans)
    reader.by_words = True  # the retriever ranks by words in its own way, without an index of this table
    return reader


def _columns_held(collection: Collection) -> pa.Schema:
    declared = {FIELD + name: _FIELD_TYPES[kind] for name, kind in collection.fields.items()}
    return pa.schema({**_PLAIN, "allow": pa.list_(pa.string()), **declared})
