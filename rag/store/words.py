"""The words of stored chunks: those that an earlier version didn't store, and those of another language."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa

from rag.store.schema import TERMS, one_of
from rag.store.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lancedb

    from rag.corpus import Language

FILLED_AT_ONCE = 20_000  # chunks, some 40 MB in memory
SOURCES_AT_ONCE = 50
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
        await _fill(chunks, await query.to_arrow(), language)
        filled = True
    return filled


async def analyse_anew(chunks: lancedb.AsyncTable, source_ids: Sequence[str], language: Language) -> None:
    """Give the chunks of these sources the words that they have in this language.

    Each commit is of whole sources. Nothing is embedded, and no text is written anew.
    """
    for at in range(0, len(source_ids), SOURCES_AT_ONCE):
        chosen = one_of("source_id", source_ids[at : at + SOURCES_AT_ONCE])
        await _fill(chunks, await chunks.query().where(chosen).select([*_KEY, "body"]).to_arrow(), language)


async def _fill(chunks: lancedb.AsyncTable, rows: pa.Table, language: Language) -> None:
    bodies = cast("list[str]", rows["body"].to_pylist())
    terms = pa.array([terms_of(body, language) for body in bodies], pa.string())
    update = chunks.merge_insert([*_KEY]).when_matched_update_all()
    await update.execute(pa.table([rows["id"], rows["generation"], terms], schema=_FILLED))
