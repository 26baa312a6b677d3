"""The words of chunks that an earlier version of refdesk stored without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from rag.store.schema import TERMS
from rag.store.terms import terms_of

if TYPE_CHECKING:
    import lancedb

    from rag.corpus import Language

FILLED_AT_ONCE = 20_000  # chunks, some 40 MB in memory
_KEY = ("id", "generation")  # a killed run can leave two chunks of one id
_COLUMN = pa.schema([pa.field(TERMS, pa.string())])
_FILLED = pa.schema([*(pa.field(name, pa.string(), nullable=False) for name in _KEY), *_COLUMN])


async def lacks_words(chunks: lancedb.AsyncTable) -> bool:
    """Whether a chunk table is searched through its texts, as an earlier version left it."""
    return all(TERMS not in index.columns for index in await chunks.list_indices())


async def complete_words(chunks: lancedb.AsyncTable, language: Language) -> bool:
    """Give all chunks their words, where these are missing. Returns whether any were.

    Nothing is embedded, and no text is written anew. After an interruption, another call goes on.
    """
    if TERMS not in (await chunks.schema()).names:
        await chunks.add_columns(_COLUMN)
    missing = f"({TERMS} IS NULL)"
    filled = False
    while count := await chunks.count_rows(missing):
        query = chunks.query().where(missing).select([*_KEY, "body"]).limit(min(count, FILLED_AT_ONCE))
        rows = await query.to_arrow()
        bodies = cast("list[str]", rows["body"].to_pylist())
        terms = pa.array([terms_of(body, language) for body in bodies], pa.string())
        update = chunks.merge_insert([*_KEY]).when_matched_update_all()
        await update.execute(pa.table([rows["id"], rows["generation"], terms], schema=_FILLED))
        filled = True
    return filled
