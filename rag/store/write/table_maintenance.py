"""Indexes, compaction, purging, durability and repair of tables, and reads and writes of small ones.

Each commit adds a file, and a search opens every file. The engine's own compaction also rewrites all indexes,
and all of a table without indexes. So `merge_tail` rewrites only the rows of the newest small files, in one
commit.

In a bucket the number of requests is the cost, so small tables are read and written whole. Rows that satisfy
a condition take two requests for each file of a table; all rows take one, or none if this process has read
this version before. Writing all rows leaves a single file and no list of deleted rows, so the next reader
needs fewer requests.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import FTS, BTree, IvfSq, LabelList

from rag.corpus import Collection
from rag.errors import StoreError
from rag.filters.grammar import literal
from rag.home import Bucket, Home
from rag.runtime import keep_latest
from rag.store.read.connection import table_folder
from rag.store.read.schema import TERMS, field_column, one_of
from rag.store.write.bucket_objects import entries_of, object_facts
from rag.store.write.desk_folder import flush, remove

if TYPE_CHECKING:
    import lancedb

LARGE_ROWS = 1_000
"""From this size on, chunks are indexed: their words and ids, vectors, labels, sections and fields.

Without an index, a search reads every vector: 4,300 chunks take more memory than 10,000 with one (434 instead
of 305 MB). Scanning the labels of 100,000 rows takes 20 ms, using their index 0.2 ms. In a smaller table, the
indexes would be half of its files, and half of the cost of opening it.
"""
MANY_SOURCES = 50_000
"""From this size on, the ids of sources and of their access records are indexed.

A search reads some fifty of them. Among 100,000 that takes 33 ms of CPU without indexes and 16 with them;
among 10,000 there is no difference.
"""
MAX_VECTOR_SEGMENTS = 4  # each costs a search some ms; each compaction appends one, and none merges them
MAX_UNINDEXED_SHARE = 0.1
MANY_SHARE = 0.02  # of a table's rows; a run that adds more of them reindexes, to leave room for a segment
MERGED_ROWS, MERGED_SHARE = 8192, 0.1
"""The last rows that a compaction merges into one file and segment: the smaller of both, at most 20 MB."""
KEPT_VERSIONS = timedelta(minutes=15)
"""The default of `ingest.keep_versions_minutes`: a running request or backup keeps its version. A request
takes seconds, a backup of a million chunks some minutes. A reader whose version is gone starts over with the
newest. The price: copies of indexes from each compaction stay as long.
"""
TAIL_SHARE, TAIL_ROWS, LEAST_TAIL_SHARE = 0.005, 128, 0.001
"""How many rows of a large table may be outside its indexes: min(share, rows), but at least the last share.

Searches scan these rows, at some 10 µs each. Indexing even one rewrites most of the indexes, 200 bytes for
each row of the table. With the last share, a change writes less than a megabyte on average in any table.
"""
MAX_FILES = 64  # of a table; beyond, all are merged, which rewrites it
SMALL_LOOKED_AT = 16  # every 16 versions of a small table in a bucket, two in a row are looked at
MAX_OLD_VERSIONS = 2000  # files of some KiB, which slow nothing down; dropping them rewrites indexes
_OF_WORDS = FTS(  # `rag.store.read.word_analysis` has prepared the words
    base_tokenizer="whitespace",
    with_position=True,
    max_token_length=None,
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
)
_OF_VECTORS = IvfSq(distance_type="cosine")
_NEEDED = (TERMS, "id", "source_id")
"""The columns of a chunk table whose indexes every search of a large one needs."""
_OF_RECORDS = ("labels", "collection")
CLOCK_STEP = 2.0  # seconds: the coarsest resolution of file times


async def create_chunk_indexes(chunks: lancedb.AsyncTable, *, coming: int = 0) -> None:
    """Create the missing indexes that every search needs, unless the table is small even with `coming` rows.

    Searches read all of a small table.
    """
    if await chunks.count_rows() + coming < LARGE_ROWS:
        return
    await _create_missing(chunks, _NEEDED)


async def _create_missing(table: lancedb.AsyncTable, columns: Iterable[str]) -> None:
    for column in {*columns} - await _indexed_columns(table):
        await _index(table, column)


async def _index(table: lancedb.AsyncTable, column: str) -> None:
    """Create or rebuild the index that suits a column: of words, vectors, lists, or single values."""
    special: dict[str, Any] = {TERMS: _OF_WORDS, "vector": _OF_VECTORS}
    of_lists = pa.types.is_list((await table.schema()).field(column).type)
    await table.create_index(column, config=special.get(column) or (LabelList() if of_lists else BTree()))


async def _indexed_columns(chunks: lancedb.AsyncTable) -> set[str]:
    return {column for index in await chunks.list_indices() for column in index.columns}


def _filtered_columns(collection: Collection) -> list[str]:
    """The columns of a large chunk table whose indexes filtered searches need."""
    return ["labels", "section", *map(field_column, collection.fields)]


async def compact(
    chunks: lancedb.AsyncTable,
    sources: lancedb.AsyncTable,
    collection: Collection,
    *,
    swept: bool = False,
    keep: timedelta | None = None,
) -> None:
    """Add a run's writes to the indexes, and drop versions older than `keep`.

    In a large collection this waits until enough rows have changed: the engine rewrites whole tables and
    indexes, so one changed document would cost as much as all. Until then only the newest files are merged,
    and only in tables that are `swept`.
    """
    needs_index = await needs_vector_index(chunks)
    if needs_index and "vector" in await _indexed_columns(chunks):
        await _index_vectors(chunks)
    rows = await chunks.count_rows()
    if rows < LARGE_ROWS:
        for table in (chunks, sources):
            # Each compaction takes some fifty requests in a bucket, and only time on a disk.
            if not _is_in_bucket(await table.uri()) or await _has_built_up(table):
                await _optimize(table, keep=keep)
        await drop_bare_versions(chunks, sources)
        return
    await create_chunk_indexes(chunks)
    await _create_missing(chunks, _filtered_columns(collection))
    await _index_ids(sources)
    many = await _unindexed_rows(chunks) > rows * MANY_SHARE
    for table in (chunks, sources):
        if needs_index or await is_behind(table) or await _has_built_up(table, keep):
            # Merged first, so that the index gets one segment for the new rows, not one for each file. But a
            # merge goes by id, which leftovers can repeat, so it waits until the tables are swept.
            if swept and table is chunks and not needs_index:
                await merge_tail(table, min(MERGED_ROWS, int(rows * MERGED_SHARE)), whole=True)
            await _optimize(table, keep=keep)
        elif swept:
            await _merge_last_files(table)
    await _index_vectors_if_due(chunks, many=many, keep=keep)


async def _index_vectors_if_due(chunks: lancedb.AsyncTable, *, many: bool, keep: timedelta | None) -> None:
    """Index the vectors of a large table, if they have no index yet, or one with too many segments.

    A run that adds `many` rows also does so one segment early. Otherwise the next small change would pay for
    it, with all rows and indexes written again.
    """
    segments = await _vector_segments(chunks)
    if not segments:  # only after all files are merged; an earlier index would be written twice
        await _index_vectors(chunks)
    elif segments > MAX_VECTOR_SEGMENTS - many:
        await _index_vectors(chunks)
        await _optimize(chunks, keep=keep)


async def _vector_segments(chunks: lancedb.AsyncTable) -> int:
    """The number of segments of the vector index; 0 without one."""
    indices = [index for index in await chunks.list_indices() if index.columns == ["vector"]]
    return max((index.num_segments or 1 for index in indices), default=0)


async def drop_old_versions(data: Home, keep: timedelta, *tables: lancedb.AsyncTable) -> None:
    """Drop versions older than `keep` of tables that have no rows to index and no files to merge.

    A mass ingestion ends with merging all files. The merged ones are half of the disk space, and must stay as
    long as others may read them. The engine drops versions only together with updating indexes and files.
    """
    for table in tables:
        # Listing the versions takes a request, dropping some takes fifty. Two in a row are looked at, because
        # a change of a document makes two versions.
        if await is_small(table) and await table.version() % SMALL_LOOKED_AT > 1:
            continue
        indexed = bool(await table.list_indices()) and not await _unindexed_rows(table)
        is_up_to_date = indexed or await _files_of_rows(table) == 1
        if is_up_to_date and _old_versions_in(data, table.name, keep) > 1:
            await _optimize(table, keep=keep)


async def drop_bare_versions(*tables: lancedb.AsyncTable) -> None:
    """Drop the old versions of local tables whose newest version uses all files of rows.

    A reader of an old version misses nothing: only the manifest is deleted, which it has read. So a table
    that was filled once has no surplus files.
    """
    for table in tables:
        if _is_in_bucket(uri := await table.uri()):
            continue  # in a bucket, listing it costs more
        parts = (Path(uri, part) for part in ("data", "_deletions", "_indices"))
        files = sum(file.is_file() for part in parts for file in part.rglob("*"))
        if await _files_of_rows(table) == files and old_versions(Path(uri), timedelta(0)) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as below
                await _optimize(table, keep=timedelta(0))


async def _unindexed_rows(table: lancedb.AsyncTable) -> int:
    """The largest number of rows that any index lacks."""
    return max((index.num_unindexed_rows or 0 for index in await table.list_indices()), default=0)


async def _index_ids(table: lancedb.AsyncTable) -> None:
    if await table.count_rows() >= MANY_SOURCES and "id" not in await _indexed_columns(table):
        await _index(table, "id")


async def _optimize(table: lancedb.AsyncTable, keep: timedelta | None = None) -> None:
    await table.optimize(cleanup_older_than=KEPT_VERSIONS if keep is None else keep)


async def _merge_last_files(table: lancedb.AsyncTable) -> None:
    """Merge the newest files if there are many, up to the first row that an index covers."""
    indices = [*await table.list_indices()]
    segments = max((index.num_segments or 0 for index in indices), default=0)  # each covers a file
    if await _files_of_rows(table) - segments > FEW_FILES:
        # Rewriting an indexed row would take it out of the index.
        outside = [index.num_unindexed_rows or 0 for index in indices]
        await merge_tail(table, *([min(outside)] if outside else []))


async def compact_records(records: lancedb.AsyncTable) -> None:
    """Merge the files of a table of access records, and create the indexes that a large one needs."""
    if await records.count_rows() < LARGE_ROWS:
        await _optimize(records)
        await drop_bare_versions(records)
        return
    await _create_missing(records, _OF_RECORDS)
    await _index_ids(records)
    if await is_behind(records) or await _has_built_up(records):
        await _optimize(records)
    else:
        await _merge_last_files(records)


async def rebuild_indexes(
    chunks: lancedb.AsyncTable, sources: lancedb.AsyncTable, collection: Collection
) -> None:
    """Rebuild all indexes, merge all files, and drop old versions."""
    needed = await needed_indexes(chunks, collection)
    for index in await chunks.list_indices():
        if index.columns[0] not in needed:
            await chunks.drop_index(index.name)
    for column in needed:
        await _index(chunks, column)
    await _optimize(chunks)
    await _optimize(sources)


async def needed_indexes(chunks: lancedb.AsyncTable, collection: Collection) -> set[str]:
    """The columns that a chunk table of this size needs an index on."""
    is_large = await chunks.count_rows() >= LARGE_ROWS
    return {*_NEEDED, *_filtered_columns(collection), "vector"} if is_large else set()


async def purge_rows(data: Home, table: lancedb.AsyncTable, column: str) -> None:
    """Rewrite a table and its indexes, so that no file contains deleted content.

    `column` is any column without an index.

    Raises:
        StoreError: old files are still there.
    """
    before = _files(data, table)
    # Update every row, because the engine's compaction skips files with few deletions, and its rebuilt
    # indexes keep words of deleted rows. Searches still find everything: they scan rows outside an index.
    await table.update(updates_sql={column: column})
    for indexed in await _indexed_columns(table):
        await _index(table, indexed)
    await _drop_versions(data, table, before)


async def _index_vectors(chunks: lancedb.AsyncTable) -> None:
    await _index(chunks, "vector")


async def _drop_versions(data: Home, table: lancedb.AsyncTable, before: set[str]) -> None:
    """Drop all versions but the newest of a table that was rewritten with all its indexes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that running queries fail; readers repeat theirs
        await table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    files = _files(data, table)
    manifests = sorted(name for name in files if name.endswith(".manifest"))  # the newest first
    # The engine goes by file times, so it would keep files with future times from a wrong clock. The newest
    # version uses no file that existed `before`, so these are deleted by name; manifests first, because they
    # name the others.
    obsolete = (before & files) - {*manifests[:1]}
    in_order = sorted(obsolete, key=lambda name: not name.endswith(".manifest"))
    remove(data, *in_order)
    versions: list[Any] = await table.list_versions()  # type: ignore[no-untyped-call]
    if len(versions) != 1 or obsolete & _files(data, table):
        raise StoreError(
            "The purge is incomplete: old files are still there. Stop all other processes that use the data "
            "folder, and run refdesk-admin purge again."
        )


def _files(data: Home, table: lancedb.AsyncTable) -> set[str]:
    """The files of a table, or its objects, except the JSON file that hints at its newest version."""
    if isinstance(data, Bucket):
        names = set(object_facts(data, f"tables/{table.name}.lance"))
    else:
        walked = os.walk(table_folder(data, table.name))
        names = {str(Path(parent, name)) for parent, _, files in walked for name in files}
    return {name for name in names if not name.endswith(".json")}


async def is_behind(table: lancedb.AsyncTable) -> bool:
    """Whether too many rows are missing from the indexes, as after an interrupted run."""
    rows = await table.count_rows()
    allowed = max(min(rows * TAIL_SHARE, TAIL_ROWS), rows * LEAST_TAIL_SHARE) if rows >= LARGE_ROWS else 0
    return await _unindexed_rows(table) > allowed


async def _has_built_up(table: lancedb.AsyncTable, keep: timedelta | None = None) -> bool:
    """Whether a table has many files, or many old versions.

    In a table without an index, merging all files once costs less than leaving them: after a change of all
    rows, each later change would merge the newest files of hundreds of rows again.
    """
    if await _files_of_rows(table) > (MAX_FILES if await table.list_indices() else 2 * FEW_FILES):
        return True
    folder = await table.uri()
    return not _is_in_bucket(folder) and old_versions(Path(folder), keep) > MAX_OLD_VERSIONS


def _is_in_bucket(uri: str) -> bool:
    return "://" in uri


async def _files_of_rows(table: lancedb.AsyncTable) -> int:
    stats: Any = await table.stats()
    return int(stats["fragment_stats"]["num_fragments"])


def _old_versions_in(data: Home, table: str, keep: timedelta) -> int:
    if not isinstance(data, Bucket):
        return old_versions(table_folder(data, table), keep)
    newest = time.time() - keep.total_seconds()
    versions = entries_of(data, f"tables/{table}.lance/_versions")
    return sum(version["last_modified"].timestamp() < newest for version in versions)


def old_versions(folder: Path, keep: timedelta | None = None) -> int:
    """The number of versions of a table that are older than `keep`; all but the newest can be dropped."""
    newest = time.time() - (KEPT_VERSIONS if keep is None else keep).total_seconds()
    with os.scandir(folder / "_versions") as files:
        return sum(file.stat().st_mtime < newest for file in files if file.name.endswith(".manifest"))


async def needs_vector_index(chunks: lancedb.AsyncTable) -> bool:
    """Whether a large table lacks a vector index, or has one that must be rebuilt."""
    rows = await chunks.count_rows()
    if rows < LARGE_ROWS:
        return False
    for index in await chunks.list_indices():
        if index.columns == ["vector"]:
            unindexed = index.num_unindexed_rows or 0
            return (index.num_segments or 0) > MAX_VECTOR_SEGMENTS or unindexed > rows * MAX_UNINDEXED_SHARE
    return True


def sync_table(data: Home, table: str, since: float) -> None:
    """Flush what was written to a local table `since`. An object store flushes what it acknowledges."""
    if not isinstance(data, Bucket):
        sync_to_disk(table_folder(data, table), since)


def sync_to_disk(folder: Path, since: float) -> None:
    """Flush the files of a folder that were written `since` (seconds since the epoch), and its own entry.

    The engine never flushes. Without this, a power failure could lose commits, or tables that a row names.
    """
    flush(folder.parent)
    for parent, _, names in os.walk(folder):
        for path in [os.path.join(parent, name) for name in names] + [parent]:  # noqa: PTH118 a hot loop of strings
            with suppress(FileNotFoundError):
                if os.stat(path).st_mtime >= since - CLOCK_STEP:  # noqa: PTH116 the same
                    flush(path)


def repair(data: Home, table: str) -> None:
    """Delete empty manifests of the newest versions, so that the last complete version counts.

    A power failure can leave them on a disk, and they make a table unreadable.
    """
    for manifest in () if isinstance(data, Bucket) else empty_manifests(table_folder(data, table)):
        manifest.unlink()


def empty_manifests(table_folder: Path) -> list[Path]:
    """The empty manifests that are newer than all others."""
    manifests = sorted((table_folder / "_versions").glob("*.manifest"))  # names sort newest first
    return list(itertools.takewhile(lambda manifest: not manifest.stat().st_size, manifests))


FEW_FILES = 8  # besides those that indexes cover; each further one costs a search 0.1 ms and more
LOOKED_AT = 1024  # rows at the end of a table
MERGED_BYTES = 16 * 1024**2  # of the texts of sources, which merging reads
FILE_BITS = 32  # a row's address: its place in a file in the low bits, the file's number in the high bits


async def merge_tail(table: lancedb.AsyncTable, limit: int = LOOKED_AT, *, whole: bool = False) -> None:
    """Merge the last files of a table with a column `id` into one, if they lie in its last `limit` rows.

    Merges files of about one size or, with `whole`, all except the oldest, which may begin before these rows.
    Rows with a `length` of their texts are merged up to `MERGED_BYTES`. If ids aren't unique in the table,
    nothing is merged.
    """
    rows = await table.count_rows()
    limit = min(limit, rows)
    if not limit:
        return
    texts = "length" in (await table.schema()).names
    places = (
        await _last_rows(table, limit, rows).with_row_id().select(["length"] if texts else ["id"]).to_arrow()
    )
    files = [address >> FILE_BITS for address in cast("list[int]", places["_rowid"].to_pylist())]
    if texts:
        read = itertools.accumulate(reversed(cast("list[int]", places["length"].to_pylist())))
        files = files[len(files) - sum(size <= MERGED_BYTES for size in read) :]
    sizes = [len([*group]) for _, group in itertools.groupby(files)]
    all_newer = sum(sizes[1:]) if len(sizes) > 2 else 0  # noqa: PLR2004 a single one needs no merge
    merged = all_newer if whole else rows_to_merge(sizes)
    if not merged:
        return
    last = await _last_rows(table, merged, rows).to_arrow()
    ids = cast("list[str]", last["id"].to_pylist())
    # The merge replaces rows by id, so it would lose a row whose id occurs twice in the table.
    if len({*ids}) == merged == await table.count_rows(one_of("id", ids)):
        await table.merge_insert("id").when_matched_update_all().execute(last)


def rows_to_merge(sizes: Sequence[int]) -> int:
    """How many rows to merge at the end of files of these sizes: the last files of about one size.

    A file that is more than twice as large as all newer ones together is left out, so each row is rewritten
    O(log n) times. The oldest file is never merged: only the size of its end may be known.

    Example: [9000, 50, 10, 1, 1, 1, 1] -> 4, and 15 with one file of 1 more.
    """
    merged = files = 0
    for size in reversed(sizes[1:]):
        if files >= FEW_FILES // 2 and size > 2 * merged:
            break
        merged, files = merged + size, files + 1
    return merged if files > 1 else 0


def _last_rows(table: lancedb.AsyncTable, count: int, rows: int) -> lancedb.AsyncQuery:
    """The last `count` of `rows` rows. The engine's `take_offsets` would cost 0.3 ms of CPU for each."""
    return table.query().offset(rows - count).limit(count)


SMALL_BYTES = 512 << 10  # reading them takes hardly longer than reading one row
KEPT_TABLES = 4  # a command writes at most to the sources of two collections and a tenant's records

Condition: TypeAlias = Mapping[str, "str | bool | Iterable[str]"]
"""The value that rows must have, by column; with several, any of them."""

_kept: dict[str, tuple[int, pa.Table]] = {}
"""A cache of tables' rows by address, with their version; least recently read first."""


async def rows_of(
    table: lancedb.AsyncTable, columns: Sequence[str], condition: Condition | None = None
) -> pa.Table:
    """These columns of all rows, or of those that satisfy the condition."""
    values: dict[str, str | bool | list[str]] = {
        name: value if isinstance(value, str | bool) else sorted(value)
        for name, value in (condition or {}).items()
    }
    if (rows := await _all_rows(table)) is not None:
        for name, value in values.items():
            rows = rows.filter(_mask(rows[name], value))
        return rows.select([*columns])
    query = table.query().select([*columns])
    where = " AND ".join(_predicate(name, value) for name, value in values.items())
    return await (query.where(where) if where else query).to_arrow()


async def upsert(table: lancedb.AsyncTable, rows: pa.Table) -> None:
    """Write rows in one commit, in place of those with the same `id`; a small table is written as a whole.

    The caller holds the table's lock and opened the table under it.
    """
    stored, before = await _all_rows(table), await table.version()
    if stored is not None and len({*stored["id"].to_pylist()}) < stored.num_rows:
        stored = None  # duplicate ids: let the engine refuse them
    if stored is not None:
        stays = pc.invert(pc.is_in(stored["id"], rows["id"].combine_chunks()))
        rows = rows.select(stored.column_names).cast(stored.schema)
        rows = pa.concat_tables([stored.filter(stays), rows])
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    # With an index of ids, the engine has inserted keys twice.
    result = await merge.use_index(use_index=False).execute(rows)
    if stored is not None and result.version == before + 1:
        keep_latest(_kept, await table.uri(), (result.version, rows), KEPT_TABLES)


async def update_rows(
    table: lancedb.AsyncTable, rows: Sequence[Mapping[str, Any]], columns: pa.Schema
) -> None:
    """Update these columns of rows, by `id`, in one commit."""
    if rows:
        update = table.merge_insert("id").when_matched_update_all().use_index(use_index=False)
        await update.execute(pa.Table.from_pylist(list(rows), schema=columns))


async def _all_rows(table: lancedb.AsyncTable) -> pa.Table | None:
    """All rows of a small table in a bucket; None for other tables."""
    if not await is_small(table):
        return None
    address, version = await table.uri(), await table.version()
    kept_version, rows = _kept.get(address, (None, None))
    if rows is None or kept_version != version:
        rows = await table.query().to_arrow()
        keep_latest(_kept, address, (version, rows), KEPT_TABLES)
    return rows


async def is_small(table: lancedb.AsyncTable) -> bool:
    """Whether a table is a small one in a bucket."""
    if not _is_in_bucket(await table.uri()):
        return False
    stats: Any = await table.stats()
    return int(stats["total_bytes"]) <= SMALL_BYTES


def _mask(column: pa.ChunkedArray[Any], value: str | bool | Sequence[str]) -> Any:  # noqa: ANN401, FBT001 Arrow's
    if isinstance(value, str | bool):
        return pc.equal(column, pa.scalar(value))
    return pc.is_in(column, pa.array(value, pa.string()))


def _predicate(name: str, value: str | bool | Sequence[str]) -> str:  # noqa: FBT001 as above
    if isinstance(value, bool):
        return f"({name})" if value else f"(NOT {name})"
    return f"({name} = {literal(value)})" if isinstance(value, str) else one_of(name, value)
