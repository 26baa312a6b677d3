"""Finding access records that don't belong to the copies that the chunks have of them.

A writer marks a record as copied when the chunks hold its labels, in its revision. If they hold another one
then, the newest versions of a table were lost, as when a copy of the folder is put back in part. The engine
still filters by the copy and the gate still checks the record, so a search shows only what both let in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.access.rule import access_of
from rag.store import schema
from rag.store.builds import table_names
from rag.store.connection import engine_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lancedb

    from rag.corpus import Access, Collection


async def torn_copies(
    database: lancedb.AsyncConnection, collection: Collection, ids: Iterable[str] | None = None
) -> dict[str, Access | None]:
    """The copies of another revision than the record, by the ids of their sources: of all, or of these.

    Raises:
        StoreError: a table can't be read.
    """
    chunks_name, sources_name = table_names(collection)
    wanted = None if ids is None else [*ids]
    with engine_errors("comparing access records"):
        sources = await database.open_table(sources_name)
        chunks = await database.open_table(chunks_name)
        records = await database.open_table(schema.access_table(collection.tenant))
        # The records last: one that changes meanwhile is not marked as copied.
        columns = ["source_id", "generation", "labels", "revision"]
        first = chunks.query().where(_of("source_id", wanted, "(seq = 0)")).select(columns)
        copies = (await first.to_arrow()).to_pylist()
        stored = sources.query().where(_of("id", wanted)).select(["id", "generation"])
        generations = {row["id"]: row["generation"] for row in (await stored.to_arrow()).to_pylist()}
        copied = records.query().where(_of("id", wanted, f"{schema.PRESENT} AND copied"))
        rows = (await copied.select(["id", "revision"]).to_arrow()).to_pylist()
    revisions = {row["id"]: row["revision"] for row in rows}
    return {
        row["source_id"]: access_of(row["labels"], row["revision"])
        for row in copies
        if row["generation"] == generations.get(row["source_id"])
        and row["revision"] != revisions.get(row["source_id"], row["revision"])
    }


def _of(column: str, ids: list[str] | None, condition: str = "(true)") -> str:
    return condition if ids is None else f"{condition} AND {schema.one_of(column, ids)}"
