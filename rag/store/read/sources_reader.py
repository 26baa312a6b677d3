"""Reads the sources of one collection, and the tenant's access records: who may see each source now.

A query whose table version was pruned meanwhile is repeated once. Both caches are valid until the next commit
to their tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.access.rule import narrower, predicate, same_access
from rag.corpus import Access, AccessRecord, Collection, Heading, Language, Principal, Source, Value
from rag.errors import BusyError
from rag.filters.grammar import literal
from rag.runtime import keep_latest
from rag.store.read import schema
from rag.store.read.connection import LocalTable, engine_errors, of_newest
from rag.text.languages import analysed_in
from rag.uris import page_address

if TYPE_CHECKING:
    import lancedb

T = TypeVar("T")

REPLACED = "The source is being replaced. Try again."
WALKED = 500  # sources that are converted at a time, in 10 ms
ROWS_KEPT = 50_000  # of a table, some 10 to 20 MB; beyond, the writer indexes ids (`MANY_SOURCES`)
MOST_ROWS_KEPT, OFTEN = 200_000, 30  # the same for a table that was asked so often since its last commit
SOURCES_KEPT = 10_000  # cached summaries per collection, some 5 MB


class KeptRows:
    """A cache of the rows of one version of a table by id. A small table is read whole at first use.

    Reading all of 6,000 rows takes 1.5 times as long as reading 13 by their ids, all of 25,000 two to three
    times as long as 28; from the cache, they take a tenth. All of 100,000 take as long as reading 28 `OFTEN`
    times. Cached rows are as new as the version, or newer; a reader drops them with the version.
    """

    def __init__(self) -> None:
        self._count: float | None = None  # unknown
        self._asked = 0
        self._rows: pa.Table | None = None
        self._places: dict[str, int] = {}
        self._reading = anyio.Lock()

    async def of(
        self,
        ids: set[str],
        table: lancedb.AsyncTable,
        columns: list[str],
        read: Callable[[Any], Awaitable[pa.Table]],
    ) -> list[dict[str, Any]]:
        """The rows of these ids that exist; `read` runs a query."""
        async with self._reading:
            self._asked += 1
            if self._count is None:  # never all in a bucket: each file would take a request
                self._count = await table.count_rows() if isinstance(table, LocalTable) else math.inf
            if self._rows is None and self._count <= (MOST_ROWS_KEPT if self._asked >= OFTEN else ROWS_KEPT):
                self._rows = (await read(table.query().select(columns))).combine_chunks()
                names = cast("list[str]", self._rows["id"].to_pylist())
                self._places = dict(zip(names, range(len(names)), strict=True))
        if self._rows is None:
            # Without a limit, because an attached table may have an id several times.
            by_id = table.query().where(schema.one_of("id", ids)).select(columns)
            return (await read(by_id)).to_pylist()
        if not self._places:
            return []
        # An id that doesn't exist takes as long as one that does.
        rows = self._rows.take(pa.array([self._places.get(id_, 0) for id_ in ids], pa.int64()))
        return [row for row in rows.to_pylist() if row["id"] in ids]


class SourcesReader:
    """The source table of a collection, opened for reading, and the `access` records of its tenant."""

    def __init__(
        self,
        collection: Collection,
        chunks: lancedb.AsyncTable,
        sources: lancedb.AsyncTable,
        access: AccessReader,
        *,
        timeout_seconds: float,
        url: str,
    ) -> None:
        self.collection = collection
        self.timeout_seconds = timeout_seconds
        self._timeout = timedelta(seconds=timeout_seconds)
        self._url = url
        self._chunks = chunks
        self._sources = sources
        self.access = access
        # These caches hold until the next commit to sources or access records (`_forget_if_changed`).
        self._version = -1, -1
        self._kept = KeptRows()
        self._summaries: dict[str, schema.StoredSource | None] = {}
        self._values: dict[tuple[str, ...], dict[str, Any]] = {}  # by the columns that they are read from
        self._chunk_count: int | None = None

    async def attempt(self, reading: Awaitable[T], nothing: T) -> T:  # noqa: ARG002 of attached tables
        """The result of a reading; for an attached table, `nothing` if it fails."""
        return await reading

    async def sources(self, ids: Iterable[str]) -> dict[str, schema.StoredSource]:
        """The sources of these ids that exist now, each with its present access.

        Summaries are cached until any process commits to sources or rights: asking for the versions costs
        0.2 ms, reading eight rows 1.8 ms.
        """
        with engine_errors("reading sources"):
            await self._forget_if_changed()
            cache = self._summaries
            chosen = set(ids)
            if missing := chosen - cache.keys():
                rows = await self._kept.of(missing, self._sources, schema.SUMMARY_COLUMNS, self._table)
                # Ids that don't exist are cached, too: otherwise the response time would tell them from
                # sources that the caller may not see.
                cache |= dict.fromkeys(missing) | await self._with_access(rows)
        return {id_: source for id_ in chosen if (source := cache[id_])}

    async def text(self, source_id: str) -> tuple[schema.StoredSource, tuple[Heading, ...], str] | None:
        """A source with its outline and whole text, None if it doesn't exist."""
        with engine_errors("reading a source"):
            query = self._sources.query().where(schema.one_of("id", [source_id]))
            rows = await self._rows(query.select(schema.SOURCES_SCHEMA.names))
        if not rows:
            return None
        row = rows[0]
        await self.access.refresh()  # after the text, so that a revocation in between counts
        stored = (await self._with_access(rows))[source_id]
        return stored, schema.outline_record(row["outline"]), row["text"]

    async def former(self, source: schema.StoredSource) -> Mapping[str, Sequence[bytes]]:
        """The marks of a source's passages in former revisions, latest first (`rag.text.revisions`).

        Raises:
            BusyError: the source was replaced since it was read.
        """
        of_version = f"{schema.one_of('id', [source.id])} AND (generation = {literal(source.generation)})"
        with engine_errors("reading a source"):
            rows = await self._rows(self._sources.query().where(of_version).select(["fields"]))
        if not rows:
            raise BusyError(REPLACED)
        return schema.former_record(rows[0]["fields"])

    async def attributes(self) -> Mapping[str, Mapping[str, Value]] | None:
        """The title, path and date of every source by id, which a filter can use undeclared.

        Cached like `sources`, for up to `SOURCES_KEPT` sources. None for a retriever, whose sources are
        unknown before a search.
        """

        def attributes(row: Mapping[str, Any]) -> Mapping[str, Value]:
            return schema.attributes(row["title"], json.loads(row["metadata"]).get("path"), row["date"])

        return await self._of_each(attributes, ["title", "date", "metadata"], cached=SOURCES_KEPT)

    async def languages(self) -> Mapping[str, Language]:
        """The language by whose rules each source's words are analysed, by id; cached like `sources`."""

        def language(row: Mapping[str, Any]) -> Language:
            return analysed_in(self.collection, json.loads(row["metadata"]))

        return await self._of_each(language, ["metadata"])

    async def ids(self, where: str) -> pa.ChunkedArray[Any]:
        """The ids of the sources whose present access record satisfies the predicate on labels."""
        return await self.access.ids(self.collection.name, where)

    async def expiries(self) -> Mapping[str, datetime]:
        """The expiry of each source that has one, by id; cached like `sources`."""
        expiry = partial(schema.expiry_of, keep_days=self.collection.keep_days)
        return await self._of_each(expiry, ["metadata", "date", "fields", "ingested_at"])

    async def _of_each(
        self, value: Callable[[dict[str, Any]], T | None], columns: Sequence[str], *, cached: float = math.inf
    ) -> Mapping[str, T]:
        """The `value` of each source that has one, by id, from these columns; cached like `sources`.

        The values of more sources than `cached` are not cached.
        """
        with engine_errors("reading sources"):
            await self._forget_if_changed()
            cache, key = self._values, tuple(columns)
            if (values := cache.get(key)) is None:
                rows = await self._rows(self._sources.query().select(["id", *columns]))
                values = {row["id"]: of_row for row in rows if (of_row := value(row)) is not None}
                if len(rows) <= cached:
                    cache[key] = values
        return values

    async def all_sources(self) -> list[schema.StoredSource]:
        """All sources, ordered by id, with their access; not those with a tombstone."""
        with engine_errors("listing sources"):
            rows = await self._rows(self._sources.query().select(schema.SUMMARY_COLUMNS))
        await self.access.refresh()
        removed = await self.access.tombstones()
        stored = (await self._with_access([row for row in rows if row["id"] not in removed])).values()
        return sorted(stored, key=lambda source: source.id)

    async def listing(self) -> list[Source]:
        """All sources, ordered by id."""
        return [stored.source for stored in await self.all_sources()]

    async def page(self, after: str, limit: int, where: str) -> list[schema.ListedSource]:
        """Up to `limit` sources whose ids follow the cursor `after` and whose labels satisfy the predicate.

        In order of ids. Fewer than `limit` means that no more follow.
        """
        await self.access.refresh()
        page: list[schema.ListedSource] = []
        while missing := limit - len(page):  # a record whose source was just removed adds nothing to the page
            chosen = await self.access.page(self.collection.name, after, missing, where)
            sources = await self.sources(chosen)
            page += [
                schema.ListedSource(source, source.generation, revision)
                for id_, revision in chosen.items()
                if (source := sources.get(id_))
            ]
            if len(chosen) < missing:
                break
            *_, after = chosen
        return page

    async def walk(
        self, where: str, beginning: str | None = None
    ) -> AsyncIterator[list[schema.StoredSource]]:
        """All sources whose labels satisfy the predicate, `WALKED` at a time, in no order.

        With a `beginning` in lower case, only sources whose id, title or path starts with it in any case.
        """
        await self.access.refresh()
        chosen = await self.access.ids(self.collection.name, where)
        with engine_errors("listing sources"):
            rows = await self._table(self._sources.query().select(schema.SUMMARY_COLUMNS))
        rows = rows.filter(pc.is_in(rows["id"], value_set=chosen))
        if beginning is not None:
            rows = rows.filter(schema.begin_with(rows, beginning))
        for start in range(0, rows.num_rows, WALKED):
            yield [*(await self._with_access(rows.slice(start, WALKED).to_pylist())).values()]
            await anyio.lowlevel.checkpoint()  # converting a row takes 20 us, during which nobody else runs

    async def places(self, where: str, *also: str) -> list[schema.SourcePlace]:
        """The places of all sources whose labels satisfy the predicate, in no order.

        It reads only the columns that it needs, and those `also` asked for: 9 us a source, where a summary
        takes 25.
        """
        with engine_errors("listing sources"):
            rows = await self._table(self._sources.query().select([*schema.PLACE_COLUMNS, *also]))
        await self.access.refresh()
        access = await self.access.matching_records(self.collection.name, where)
        return await to_thread.run_sync(schema.places_of, rows, access, self.collection.fields)

    @property
    def table_names(self) -> tuple[str, str]:
        """The names of the tables that decide what there is to read: sources and access records."""
        return self._sources.name, schema.access_table(self.collection.tenant)

    async def sizes(self, ids: Iterable[str]) -> dict[str, int]:
        """The lengths of the sources' texts in bytes of UTF-8, by id."""
        query = self._sources.query().where(schema.one_of("id", ids))
        with engine_errors("measuring sources"):
            rows = await self._rows(query.select({"id": "id", "size": "octet_length(text)"}))
        return {row["id"]: row["size"] for row in rows}

    async def source_count(self) -> int:
        """The number of all sources, visible or not."""
        with engine_errors("counting"):
            return await self._sources.count_rows()

    async def source_batches(
        self, where: str, columns: list[str], rows: int
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Sources that satisfy the predicate, in batches of at most `rows`, as they are read.

        Without a time limit, because the engine's would discard earlier batches. If the table version is
        pruned meanwhile, reading starts over, so a source can come twice.
        """
        with engine_errors("reading sources"):
            try:
                async for batch in await self._stream(where, columns, rows):
                    yield batch
            except RuntimeError as error:
                if "Not found" not in str(error):
                    raise
                await self._sources.checkout_latest()  # type: ignore[no-untyped-call]
                async for batch in await self._stream(where, columns, rows):
                    yield batch

    async def _stream(self, where: str, columns: list[str], rows: int) -> AsyncIterator[pa.RecordBatch]:
        query = self._sources.query().where(where).select(columns)
        return cast("AsyncIterator[pa.RecordBatch]", await query.to_batches(max_batch_length=rows))

    async def version(self) -> tuple[int, int]:
        """Changes with every commit to the sources or to the rights of the tenant."""
        with engine_errors("reading sources"):
            return await self._sources.version(), await self.access.refresh()

    async def version_at_refresh(self) -> tuple[int, int]:
        """As `version`, with the rights as of the tenant's last `DeskReader.refresh`."""
        with engine_errors("reading sources"):
            return await self._sources.version(), self.access.version

    async def has_any(self, where: str) -> bool:
        """Whether any source's labels satisfy the predicate, as of the tenant's last `DeskReader.refresh`."""
        return await self.access.has_any(self.collection.name, where)

    async def open_documents(self) -> int:
        """The number of sources that the whole tenant may see, except principals in their deny lists."""
        await self.access.refresh()
        for_all = predicate(Principal(self.collection.tenant), "always")
        return len(await self.access.matching_records(self.collection.name, for_all))

    async def uncopied_records(self) -> tuple[AccessRecord, ...]:
        """The few access records whose labels the chunks don't hold yet, and the tombstones.

        As of the tenant's last `DeskReader.refresh`.
        """
        name = self.collection.name
        return tuple(record for record in await self.access.uncopied_records() if record.collection == name)

    async def _forget_if_changed(self) -> None:
        version = await self._sources.version(), await self.access.refresh()
        if version != self._version:
            self._summaries, self._values, self._kept, self._version = {}, {}, KeptRows(), version
            self._chunk_count = None
        elif len(self._summaries) > SOURCES_KEPT:
            self._summaries = {}

    async def _with_access(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, schema.StoredSource]:
        access = await self.access.records(row["id"] for row in rows)
        return {row["id"]: self._stored_source(row, access[row["id"]]) for row in rows}

    def _stored_source(self, row: Mapping[str, Any], access: Access | None) -> schema.StoredSource:
        fields = schema.fields_record(row["fields"], self.collection.fields)
        return schema.StoredSource(self._source(row), row["generation"], access, fields)

    def _source(self, row: Mapping[str, Any]) -> Source:
        source = schema.source_record(row, self.collection.name)
        if source.url or not self._url:
            return source
        return replace(source, url=page_address(self._url, source.metadata.get("path", "")))

    async def _rows(self, query: Any) -> list[dict[str, Any]]:  # noqa: ANN401 as below
        return (await self._table(query)).to_pylist()

    async def _table(self, query: Any) -> pa.Table:  # noqa: ANN401 the engine's query classes share no base
        return await self._of_newest(lambda: query.to_arrow(timeout=self._timeout))

    async def _of_newest(self, read: Callable[[], Awaitable[T]]) -> T:
        return await of_newest((self._chunks, self._sources), read)


RECORDS_KEPT = 100_000  # records in the cache, some 30 MB at most
PREDICATES_KEPT, MATCHED_KEPT = 32, 20_000  # predicates whose matching ids are cached, of so many records
NO_IDS = pa.chunked_array([], pa.string())
NAMES_GROUP = f"(array_has_any(labels, ['{schema.GROUP_LABEL}']))"


class AccessReader:
    """The records of one tenant. The cache is valid until the table's next commit."""

    def __init__(self, table: lancedb.AsyncTable, timeout: timedelta) -> None:
        self._table = table
        self._timeout = timeout
        self._kept = KeptRows()
        self._records: dict[str, Access | None] = {}
        self._any: dict[tuple[str, str], bool] = {}
        self._matching: dict[str, dict[str, pa.ChunkedArray[Any]]] = {}  # ids by predicate and collection
        self._asking = anyio.Lock()
        self._pending: tuple[AccessRecord, ...] | None = None
        self.version = -1

    async def refresh(self) -> int:
        """Drop the cache if another process has committed meanwhile. Returns the current version."""
        with engine_errors("reading access records"):
            version = await self._table.version()
        if version != self.version or len(self._records) > RECORDS_KEPT or len(self._any) > RECORDS_KEPT:
            self._records, self._any, self._pending, self.version = {}, {}, None, version
            self._kept, self._matching = KeptRows(), {}
        return version

    async def _ids_matching(self, collection: str, where: str) -> pa.ChunkedArray[Any] | None:
        """The ids of a collection's sources that satisfy the predicate on labels; None in a large table.

        One query answers for all collections of the tenant: a search may ask for hundreds.
        """
        cache = self._matching  # a refresh during the query replaces it
        if where not in cache:
            async with self._asking:
                if where not in cache:
                    if await self._table.count_rows() > MATCHED_KEPT:
                        return None
                    rows = await self._table_of(f"{schema.PRESENT} AND {where}", ["id", "collection"])
                    keep_latest(cache, where, _ids_by_collection(rows), PREDICATES_KEPT)
        return cache[where].get(collection, NO_IDS)

    async def records(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """The access of these sources, by id. None (deny-all) without a record or with a tombstone.

        A tag's source is visible to principals that both its own record, as old as the tag, and the present
        record of its original admit. Call `refresh` first: this answers from the cache.
        """
        chosen, cache, kept = set(ids), self._records, self._kept
        if missing := chosen - cache.keys():
            originals = {id_: original for id_ in missing if (original := schema.original_id(id_))}
            with engine_errors("reading access records"):
                rows = await kept.of(
                    missing | {*originals.values()}, self._table, schema.PRESENT_ACCESS, self._once_more
                )
            access = {row["id"]: schema.access_record(row) for row in rows}
            # A tag keeps documents that were removed later, so a tombstone of the original doesn't count.
            tombstones = {row["id"] for row in rows if schema.is_tombstone(row)}
            for id_ in missing:
                if id_ in originals:
                    cache[id_] = _then_and_now(access.get(id_), access.get(originals[id_]))
                else:
                    cache[id_] = None if id_ in tombstones else access.get(id_)
        return {id_: cache[id_] for id_ in chosen}

    async def has_any(self, collection: str, where: str) -> bool:
        """Whether any source of a collection satisfies the predicate on labels.

        Call `refresh` first: this answers from the cache.
        """
        key, cache = (collection, where), self._any  # as of now
        if key not in cache:
            ids = await self._ids_matching(collection, where)
            if ids is None:
                ids = (await self._table_of(_present(collection, where), ["id"], limit=1))["id"]
            cache[key] = bool(len(ids))
        return cache[key]

    async def matching_records(self, collection: str, where: str) -> dict[str, Access | None]:
        """The records of a collection's sources that satisfy the predicate on labels, by id."""
        columns = ["id", "revision", *schema.ACCESS_COLUMNS]
        rows = await self._table_of(_present(collection, where), columns)
        records = await to_thread.run_sync(_records, rows)
        return await self.records(records) if any(map(schema.original_id, records)) else records

    async def ids(self, collection: str, where: str) -> pa.ChunkedArray[Any]:
        """The ids of a collection's sources that satisfy the predicate on labels.

        Call `refresh` first: this answers from the cache.
        """
        if (ids := await self._ids_matching(collection, where)) is not None:
            return ids
        return (await self._table_of(_present(collection, where), ["id"]))["id"]

    async def page(self, collection: str, after: str, limit: int, where: str) -> dict[str, int]:
        """Up to `limit` ids of a collection's sources that satisfy the predicate and follow `after`.

        In order, each with the revision of its record.
        """
        following = f"(id > {literal(after)}) AND {where}"
        rows = await self._rows(_present(collection, following), ["id", "revision"])
        return dict(sorted((row["id"], row["revision"]) for row in rows)[:limit])

    async def uncopied_records(self) -> tuple[AccessRecord, ...]:
        """The changed records whose labels the chunks don't hold yet, and tombstones (deny-all).

        Call `refresh` first: this answers from the cache.
        """
        if self._pending is not None:
            return self._pending
        version = self.version
        rows = await self._rows("(NOT copied)", schema.RECORD_COLUMNS)
        records = ((schema.stored_record(row), schema.is_tombstone(row)) for row in rows)
        pending = tuple(replace(record, access=None) if removed else record for record, removed in records)
        if version == self.version:  # otherwise a refresh during the query has seen newer records
            self._pending = pending
        return pending

    async def tombstones(self) -> frozenset[str]:
        """The ids of removed sources whose rows may still be stored; answers as `uncopied_records` does."""
        return frozenset(record.id for record in await self.uncopied_records() if record.is_tombstone)

    async def removed_records(self) -> dict[str, AccessRecord]:
        """The records of removed sources, by id."""
        rows = await self._rows(f"(NOT {schema.PRESENT}) AND (collection <> '')", schema.RECORD_COLUMNS)
        return {row["id"]: schema.stored_record(row) for row in rows}

    async def folder_records(self) -> list[AccessRecord]:
        """The records of folders."""
        return [*map(schema.stored_record, await self._rows("(collection = '')", schema.RECORD_COLUMNS))]

    async def names_groups(self) -> bool:
        """Whether any record names a group."""
        await self.refresh()
        return bool(await self._rows(NAMES_GROUP, ["id"], limit=1))

    async def entries(self) -> set[str]:
        """The entries of all lists."""
        await self.refresh()
        table = await self._table_of("(true)", ["allow", "deny"])
        lists = [entries for name in ("allow", "deny") for entries in table[name].to_pylist() if entries]
        return {entry for entries in lists for entry in entries}

    async def _rows(self, where: str, columns: list[str], limit: int | None = None) -> list[dict[str, Any]]:
        return (await self._table_of(where, columns, limit)).to_pylist()

    async def _table_of(self, where: str, columns: list[str], limit: int | None = None) -> pa.Table:
        with engine_errors("reading access records"):
            query = self._table.query().where(where).select(columns)
            if limit is not None:
                query = query.limit(limit)
            return cast("pa.Table", await self._once_more(query))

    async def _once_more(self, query: Any) -> Any:  # noqa: ANN401 the engine's query classes share no base
        return await of_newest([self._table], lambda: query.to_arrow(timeout=self._timeout))


def _present(collection: str, where: str) -> str:
    return f"{schema.PRESENT} AND (collection = {literal(collection)}) AND {where}"


def _then_and_now(then: Access | None, now: Access | None) -> Access | None:
    """The access of a tag's source: the narrower of both."""
    # If it differs from the tag's own record, the labels of the tag's rows are wrong for it. A negative
    # revision, which no row has, marks them as stale, so the record decides.
    access = narrower(then, now)
    return then if same_access(access, then) else access and replace(access, revision=-access.revision)


def _ids_by_collection(rows: pa.Table) -> dict[str, pa.ChunkedArray[Any]]:
    """The ids of each collection. `Table.group_by` would load a library of 8 MB."""
    rows = rows.take(pc.sort_indices(rows["collection"]))
    counts = pc.value_counts(rows["collection"])
    names, sizes = (cast("list[Any]", counts.field(name).to_pylist()) for name in ("values", "counts"))
    starts = accumulate(sizes, initial=0)
    slices = zip(names, starts, sizes, strict=False)
    return {name: rows["id"].slice(start, size) for name, start, size in slices}


def _records(rows: pa.Table) -> dict[str, Access | None]:
    return {row["id"]: schema.access_record(row) for row in rows.to_pylist()}
