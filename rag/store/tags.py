"""Tags: what a collection held once, under a name of its own.

A tag is a collection whose tables are copies, so everything that works on a collection works on a tag, and no
version of a table is kept for it. What differs:

- The id of each source is that of the original and `tag_letters`. So a citation of a tag never shows a later
  text, and the original of a source is known from its id alone (`rag.store.schema.original_id`).
- Each source has an access record as old as the tag. Readers let in whom both that and the present record of
  the original let in (`rag.store.access_reader`): the text may be one that was never meant for those who may
  see the present one.
- Nothing is ingested into it, and it is searched only where it is named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rag.corpus import AccessRecord
from rag.store import builds
from rag.store.schema import original_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import lancedb

    from rag.corpus import Collection

TAG_BUILD = 1  # no other collection that is made meanwhile under the same name has such tables
BATCH_ROWS = 4_096  # of chunks: some 10 MB


def tag_of(collection: Collection, name: str, description: str) -> Collection:
    """The definition of a tag of a collection, without `created_at`."""
    return replace(
        collection,
        name=name,
        description=description,
        build=TAG_BUILD,
        former=None,
        coming=None,
        tag_of=collection.name,
    )


async def copy_rows(
    database: lancedb.AsyncConnection, collection: Collection, tag: Collection, letters: str
) -> None:
    """Copy all rows of a collection that nobody writes to into the empty tables of its tag."""
    pairs = zip(builds.table_names(collection), builds.table_names(tag), strict=True)
    for (original, copy), rows in zip(pairs, (BATCH_ROWS, BATCH_ROWS // 16), strict=True):
        table = await database.open_table(original)
        target = await database.open_table(copy)
        columns = (await target.schema()).names
        async for batch in await table.query().select(columns).to_batches(max_batch_length=rows):
            await target.add(_renamed(pa.Table.from_batches([batch]), letters).select(columns))


def _renamed(rows: pa.Table, letters: str) -> pa.Table:
    """The rows with the ids of the tag: "mfzq" -> "mfzqLETTERS", "mfzq/3" -> "mfzqLETTERS/3"."""
    for name in ("id", "source_id"):
        if name in rows.column_names:
            at = rows.column_names.index(name)
            ids = pc.replace_substring_regex(rows[name], r"^[a-z2-7]+", rf"\0{letters}")
            rows = rows.set_column(at, rows.schema.field(name), ids)
    return rows


def left_behind(tag: Collection, now: Mapping[str, AccessRecord]) -> list[str]:
    """The ids of records that a tag of this name has left whose making was killed."""
    return [id_ for id_, one in now.items() if one.collection == tag.name and original_id(id_)]


def copied_records(
    tag: Collection, before: Mapping[str, AccessRecord], now: Mapping[str, AccessRecord], letters: str
) -> Iterator[AccessRecord]:
    """The records of a tag's sources: those of the originals `now`, which the rows hold as of `before`."""
    for id_, one in now.items():
        if one.collection == tag.tag_of and one.present:
            copied = one.copied and before.get(id_) == one
            yield AccessRecord(id_ + letters, tag.name, one.uri, one.access, copied=copied)
