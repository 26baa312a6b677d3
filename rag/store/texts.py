"""Reads the whole texts of some sources, and where their chunks are."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias

from rag.corpus import Chunk
from rag.store.schema import one_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from rag.store.reader import CollectionReader

TEXTS = 8  # in memory at once
_PLACE = ["id", "source_id", "generation", "seq", "start", "end", "tokens", "page", "section"]

Places: TypeAlias = "Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]"
"""The rows of chunks without their texts, in order, by the id and the generation of their sources."""


async def texts(reader: CollectionReader, ids: Iterable[str]) -> AsyncIterator[tuple[str, str, str]]:
    """The id, the generation and the text of each of these sources, in no order; whoever may see them."""
    columns = ["id", "generation", "text"]
    async with aclosing(reader.source_batches(one_of("id", ids), columns, TEXTS)) as batches:
        async for batch in batches:
            for row in batch.to_pylist():
                yield row["id"], row["generation"], row["text"]


async def places(reader: CollectionReader, ids: Iterable[str], where: str) -> Places:
    """Where the chunks of these sources are that satisfy the predicate."""
    among = f"{one_of('source_id', ids)} AND {where}"
    rows = await reader.chunk_rows(lambda query: query.where(among).select(_PLACE))
    by_source: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: row["seq"]):
        by_source.setdefault((row["source_id"], row["generation"]), []).append(row)
    return by_source


def chunks(rows: Iterable[Mapping[str, Any]], text: str) -> list[Chunk]:
    """The chunks of rows, with their texts from the text of their source."""
    same = ("id", "source_id", "seq", "start", "end", "tokens", "page")
    return [
        Chunk(
            **{name: row[name] for name in same},
            text=text[row["start"] : row["end"]],
            section=tuple(row["section"]),
        )
        for row in rows
    ]
