"""Indexes, compaction, purging, durability and repair of tables.

Each commit leaves a file, and a search opens each of them. The engine's own compaction also rewrites all
indexes, and a whole table that has none. So `merge_tail` rewrites the rows of the newest small files only, in
one commit.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lancedb.index import FTS, BTree, IvfSq, LabelList

from rag.corpus import Collection, FieldType
from rag.errors import StoreError
from rag.store.read.schema import TERMS, field_column, one_of

if TYPE_CHECKING:
    import lancedb

LARGE_ROWS = 1_000
"""From this size on, vectors, labels, sections and fields are indexed.

Without an index, a search reads every vector: 4,300 chunks cost it more memory than 10,000 with one (434
instead of 305 MB). Scanning the labels of 100,000 rows takes 20 ms, using their index 0.2 ms.
"""
MANY_SOURCES = 50_000
"""From this size on, the ids of sources and of their access records are indexed.

A search reads some fifty of them. Of 100,000 that takes 33 ms of CPU without indexes and 16 with them; of
10,000 it is the same.
"""
MAX_VECTOR_SEGMENTS = 4  # of some ms in each search; each compaction appends one, and none merges them
MAX_UNINDEXED_SHARE = 0.1
MERGED_ROWS, MERGED_SHARE = 8192, 0.1
"""How many rows at the end a compaction merges into one file and segment: the smaller, some 20 MB at most."""
KEPT_VERSIONS = timedelta(minutes=15)
"""So that what runs keeps its version, unless `ingest.keep_versions_minutes` says otherwise. A request takes
seconds, a backup of a million chunks some minutes. A reader whose version is gone begins anew with the
newest. Each compaction leaves copies of indexes so long.
"""
TAIL_SHARE, TAIL_ROWS, LEAST_TAIL_SHARE = 0.005, 128, 0.001
"""How many rows of a large table may be outside its indexes: the smaller of the first two, or the third.

Adding them rewrites most indexes, 200 bytes for each row of the table, however few they are. Searches scan
such rows, some 10 µs each. With the third, a change writes less than a megabyte on average in any table.
"""
MAX_FILES = 64  # of a table; merging all of them rewrites it
MAX_OLD_VERSIONS = 2000  # files of some KiB; so many slow nothing down, but dropping them rewrites indexes
_RECORD_INDEXES: dict[str, BTree | LabelList] = {"labels": LabelList(), "collection": BTree()}
_NEEDED: dict[str, FTS | BTree] = {
    TERMS: FTS(  # `rag.store.read.word_analysis` has prepared the words
        base_tokenizer="whitespace",
        with_position=True,
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    ),
    "id": BTree(),
    "source_id": BTree(),
}
"""The indexes of a chunk table that every search needs, by column."""
CLOCK_STEP = 2.0  # seconds: the coarsest resolution of file times


async def create_chunk_indexes(chunks: lancedb.AsyncTable) -> None:
    """Create the indexes of a chunk table that every search needs, if they are missing."""
    for column in _NEEDED.keys() - await _indexed(chunks):
        await chunks.create_index(column, config=_NEEDED[column])


async def _indexed(chunks: lancedb.AsyncTable) -> set[str]:
    return {column for index in await chunks.list_indices() for column in index.columns}


def _large_indexes(fields: Mapping[str, FieldType]) -> dict[str, BTree | LabelList]:
    """The indexes that filtered searches of a large chunk table need, by column."""
    lists: dict[str, BTree | LabelList] = {"labels": LabelList(), "section": LabelList()}
    return lists | {
        field_column(name): LabelList() if kind == "string list" else BTree() for name, kind in fields.items()
    }


async def compact(
    chunks: lancedb.AsyncTable,
    sources: lancedb.AsyncTable,
    collection: Collection,
    *,
    swept: bool = False,
    keep: timedelta | None = None,
) -> None:
    """Add a run's writes to the indexes, and drop versions that nobody reads any more: older than `keep`.

    In a large collection this waits until there is enough to do. The engine rewrites whole tables and
    indexes, so one changed document would cost as much as all of them. Until then only the newest files are
    merged, if the tables are `swept`: hold no leftovers.
    """
    anew = await needs_vector_index(chunks)
    if anew:
        await _index_vectors(chunks)
    rows = await chunks.count_rows()
    if rows < LARGE_ROWS:
        await _optimize(chunks, sources, keep=keep)
        return
    needed = _large_indexes(collection.fields)
    for column in needed.keys() - await _indexed(chunks):
        await chunks.create_index(column, config=needed[column])
    await _index_ids(sources)
    for table in (chunks, sources):
        if anew or await is_behind(table) or await _has_built_up(table, keep):
            if swept and table is chunks and not anew:
                await merge_tail(table, min(MERGED_ROWS, int(rows * MERGED_SHARE)), whole=True)
            await _optimize(table, keep=keep)
        elif swept:
            await _merge_last_files(table)


async def _index_ids(table: lancedb.AsyncTable) -> None:
    if await table.count_rows() >= MANY_SOURCES and "id" not in await _indexed(table):
        await table.create_index("id", config=BTree())


async def _optimize(*tables: lancedb.AsyncTable, keep: timedelta | None = None) -> None:
    for table in tables:
        await table.optimize(cleanup_older_than=KEPT_VERSIONS if keep is None else keep)


async def _merge_last_files(table: lancedb.AsyncTable) -> None:
    """Merge the newest files if there are many. No more than those outside the indexes: these stay valid."""
    indices = [*await table.list_indices()]
    segments = max((index.num_segments or 0 for index in indices), default=0)  # each covers a file
    if await _files_of_rows(table) - segments > FEW_FILES:
        outside = [index.num_unindexed_rows or 0 for index in indices]
        await merge_tail(table, *([min(outside)] if outside else []))


async def compact_records(records: lancedb.AsyncTable) -> None:
    """Merge the files of a table of access records, and create the indexes that a large one needs."""
    if await records.count_rows() < LARGE_ROWS:
        await _optimize(records)
        return
    for column in _RECORD_INDEXES.keys() - await _indexed(records):
        await records.create_index(column, config=_RECORD_INDEXES[column])
    await _index_ids(records)
    if await is_behind(records) or await _has_built_up(records):
        await _optimize(records)
    else:
        await _merge_last_files(records)


async def rebuild_indexes(
    chunks: lancedb.AsyncTable, sources: lancedb.AsyncTable, collection: Collection
) -> None:
    """Make all indexes anew, merge all files, and drop old versions."""
    needed = await needed_indexes(chunks, collection)
    for column, config in needed.items():
        await chunks.create_index(column, config=cast("Any", config))
    await _optimize(chunks, sources)


async def needed_indexes(
    chunks: lancedb.AsyncTable, collection: Collection
) -> dict[str, FTS | BTree | LabelList | IvfSq]:
    """The indexes that a chunk table of this size needs, by column."""
    needed: dict[str, FTS | BTree | LabelList | IvfSq] = {**_NEEDED}
    if await chunks.count_rows() >= LARGE_ROWS:
        needed |= {**_large_indexes(collection.fields), "vector": IvfSq(distance_type="cosine")}
    return needed


async def purge_chunks(chunks: lancedb.AsyncTable, collection: Collection, folder: Path) -> None:
    """Rewrite a chunk table and its indexes, so that no file contains what was deleted.

    The engine's own compaction doesn't touch files in which little was deleted, and its rebuilt indexes keep
    words of deleted rows. Searches find everything meanwhile: rows outside an index are scanned.

    Raises:
        StoreError: old files are still there.
    """
    before = _files(folder)
    await chunks.update(updates_sql={"seq": "seq"})
    indexes = {**_NEEDED, **_large_indexes(collection.fields)}
    for column in await _indexed(chunks) - {"vector"}:
        await chunks.create_index(column, config=indexes[column])
    if "vector" in await _indexed(chunks):
        await _index_vectors(chunks)
    await _drop_versions(chunks, folder, before)


async def purge_records(records: lancedb.AsyncTable, folder: Path) -> None:
    """Rewrite a table of access records, so that no file contains what was deleted.

    Raises:
        StoreError: old files are still there.
    """
    before = _files(folder)
    await records.update(updates_sql={"uri": "uri"})
    indexes = {**_RECORD_INDEXES, "id": BTree()}
    for column in await _indexed(records):
        await records.create_index(column, config=indexes[column])
    await _drop_versions(records, folder, before)


async def purge_rows(table: lancedb.AsyncTable, column: str, folder: Path) -> None:
    """Rewrite a table, so that no file contains what was deleted. `column` is any without an index.

    Raises:
        StoreError: old files are still there.
    """
    before = _files(folder)
    await table.update(updates_sql={column: column})
    for indexed in await _indexed(table):
        await table.create_index(indexed, config=BTree())
    await _drop_versions(table, folder, before)


async def _index_vectors(chunks: lancedb.AsyncTable) -> None:
    await chunks.create_index("vector", config=cast("Any", IvfSq(distance_type="cosine")))


async def _drop_versions(table: lancedb.AsyncTable, folder: Path, before: set[Path]) -> None:
    """Drop all versions but the newest of a table that was rewritten with all its indexes.

    The engine decides by file times, and keeps files from the future if a clock was ahead. But the newest
    version uses none of the files that existed `before`, so they are deleted by name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it fails running queries: these are repeated
        await table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    manifests = sorted(file for file in _files(folder) if file.suffix == ".manifest")  # the newest first
    obsolete = (before & _files(folder)) - {*manifests[:1]}
    for file in sorted(obsolete, key=lambda file: file.suffix != ".manifest"):  # they name the others
        file.unlink()
    versions: list[Any] = await table.list_versions()  # type: ignore[no-untyped-call]
    if len(versions) != 1 or obsolete & _files(folder):
        raise StoreError(
            "The purge is incomplete: old files are still there. Stop all other processes that use the data "
            "folder, and run refdesk-admin purge again."
        )


def _files(folder: Path) -> set[Path]:
    """The files of a table, except the hint at its newest version."""
    files = {Path(parent, name) for parent, _, names in os.walk(folder) for name in names}
    return {file for file in files if file.suffix != ".json"}


async def is_behind(table: lancedb.AsyncTable) -> bool:
    """Whether more rows are missing from the indexes than may be, as after an interrupted run."""
    rows = await table.count_rows()
    allowed = max(min(rows * TAIL_SHARE, TAIL_ROWS), rows * LEAST_TAIL_SHARE) if rows >= LARGE_ROWS else 0
    return any((index.num_unindexed_rows or 0) > allowed for index in await table.list_indices())


async def _has_built_up(table: lancedb.AsyncTable, keep: timedelta | None = None) -> bool:
    """Whether a table consists of many files, or has many versions that nobody reads any more."""
    if await _files_of_rows(table) > MAX_FILES:
        return True
    return old_versions(Path(await table.uri()), keep) > MAX_OLD_VERSIONS


async def _files_of_rows(table: lancedb.AsyncTable) -> int:
    stats: Any = await table.stats()
    return int(stats["fragment_stats"]["num_fragments"])


def old_versions(folder: Path, keep: timedelta | None = None) -> int:
    """How many versions of a table are so old that its next compaction drops them."""
    newest = time.time() - (KEPT_VERSIONS if keep is None else keep).total_seconds()
    with os.scandir(folder / "_versions") as files:
        return sum(file.stat().st_mtime < newest for file in files if file.name.endswith(".manifest"))


async def needs_vector_index(chunks: lancedb.AsyncTable) -> bool:
    """Whether a table is large enough for a vector index and has none, or one that must be made anew."""
    rows = await chunks.count_rows()
    if rows < LARGE_ROWS:
        return False
    for index in await chunks.list_indices():
        if index.columns == ["vector"]:
            unindexed = index.num_unindexed_rows or 0
            return (index.num_segments or 0) > MAX_VECTOR_SEGMENTS or unindexed > rows * MAX_UNINDEXED_SHARE
    return True


def sync_to_disk(folder: Path, since: float) -> None:
    """Flush the files of a folder that were written since then (seconds since the epoch), and its own entry.

    The engine never flushes. Without this, a power failure could lose commits, or tables that a row names.
    """
    _flush(str(folder.parent))
    for parent, _, names in os.walk(folder):
        for path in [os.path.join(parent, name) for name in names] + [parent]:  # noqa: PTH118 a hot loop of strings
            with suppress(FileNotFoundError):
                if os.stat(path).st_mtime >= since - CLOCK_STEP:  # noqa: PTH116 the same
                    _flush(path)


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def repair(table_folder: Path) -> None:
    """Delete empty newest manifests: a power failure can leave them, and they make a table unreadable.

    The table is then at its last complete version. Manifest names sort newest first.
    """
    for manifest in empty_manifests(table_folder):
        manifest.unlink()


def empty_manifests(table_folder: Path) -> list[Path]:
    """The empty manifests that are newer than all others."""
    manifests = sorted((table_folder / "_versions").glob("*.manifest"))
    return list(itertools.takewhile(lambda one: not one.stat().st_size, manifests))


FEW_FILES = 8  # beside those that are covered by indexes; reading one more costs a search 0.1 ms and more
LOOKED_AT = 1024  # rows at the end of a table
MERGED_BYTES = 16 * 1024**2  # of texts of sources, which are read whole
FILE_BITS = 32  # of a row's address, which has the number of its file above


async def merge_tail(table: lancedb.AsyncTable, limit: int = LOOKED_AT, *, whole: bool = False) -> None:
    """Merge the last files of a table with a column `id` into one, if they lie in its last `most` rows.

    Either those of about one size or, with `whole`, all of them but the oldest, of which there may be more.
    Ids must be unique among all rows. If they aren't, nothing is merged. Rows that state the `length` of
    their texts are merged as far as these fit into `MERGED_BYTES`.
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
    merged = _all_but_the_oldest(sizes) if whole else rows_to_merge(sizes)
    if not merged:
        return
    last = await _last_rows(table, merged, rows).to_arrow()
    ids = cast("list[str]", last["id"].to_pylist())
    if len({*ids}) == merged == await table.count_rows(one_of("id", ids)):
        await table.merge_insert("id").when_matched_update_all().execute(last)


def _all_but_the_oldest(sizes: Sequence[int]) -> int:
    newer = sizes[1:]
    return sum(newer) if len(newer) > 1 else 0


def rows_to_merge(sizes: Sequence[int]) -> int:
    """How many rows at the end of files of these sizes to merge: those of the last files, of about one size.

    An older file is left out if it is more than twice as large as all newer ones, so each row is rewritten
    O(log n) times in all. The oldest file counts as large: there may be more of it than its size says.

    Example: [9000, 50, 10, 1, 1, 1, 1] -> 4, and 15 with one file of 1 more.
    """
    merged = files = 0
    for size in reversed(sizes[1:]):
        if files >= FEW_FILES // 2 and size > 2 * merged:
            break
        merged, files = merged + size, files + 1
    return merged if files > 1 else 0


def _last_rows(table: lancedb.AsyncTable, count: int, rows: int) -> lancedb.AsyncQuery:
    """The last of so many rows. The engine's `take_offsets` costs 0.3 ms of CPU for each."""
    return table.query().offset(rows - count).limit(count)
