"""Merging the newest small files of a table, without rewriting the others or any index.

Each commit leaves a file, and a search opens each of them. The engine's own compaction also rewrites all
indexes, and a whole table that has none. This rewrites the rows of the last files only, in one commit.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from rag.store.schema import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lancedb

FILES = 8  # beside those that are covered by indexes; reading one more costs a search 0.1 ms and more
LOOKED_AT = 1024  # rows at the end of a table
MERGED_BYTES = 16 * 1024**2  # of texts of sources, which are read whole
FILE_BITS = 32  # of a row's address, which has the number of its file above


async def merge_tail(table: lancedb.AsyncTable, most: int = LOOKED_AT, *, whole: bool = False) -> None:
    """Merge the last files of a table with a column `id` into one, if they lie in its last `most` rows.

    Either those of about one size or, with `whole`, all of them but the oldest, of which there may be more.
    Ids must be unique among all rows. If they aren't, nothing is merged. Rows that state the `length` of
    their texts are merged as far as these fit into `MERGED_BYTES`.
    """
    rows = await table.count_rows()
    most = min(most, rows)
    if not most:
        return
    texts = "length" in (await table.schema()).names
    places = await _last(table, most, rows).with_row_id().select(["length"] if texts else ["id"]).to_arrow()
    files = [address >> FILE_BITS for address in cast("list[int]", places["_rowid"].to_pylist())]
    if texts:
        read = itertools.accumulate(reversed(cast("list[int]", places["length"].to_pylist())))
        files = files[len(files) - sum(size <= MERGED_BYTES for size in read) :]
    sizes = [len([*same]) for _, same in itertools.groupby(files)]
    merged = _all_but_the_oldest(sizes) if whole else rows_to_merge(sizes)
    if not merged:
        return
    last = await _last(table, merged, rows).to_arrow()
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
    taken = files = 0
    for size in reversed(sizes[1:]):
        if files >= FILES // 2 and size > 2 * taken:
            break
        taken, files = taken + size, files + 1
    return taken if files > 1 else 0


def _last(table: lancedb.AsyncTable, count: int, rows: int) -> lancedb.AsyncQuery:
    """The last of so many rows. The engine's `take_offsets` costs 0.3 ms of CPU for each."""
    return table.query().offset(rows - count).limit(count)
