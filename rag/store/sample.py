"""Some chunks of a table, from all over it, without reading the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from rag.store import schema
from rag.store.connection import engine_errors

if TYPE_CHECKING:
    import lancedb

    from rag.corpus import Vectors


async def sampled(chunks: lancedb.AsyncTable, most: int) -> tuple[list[str], Vectors]:
    """The source ids and vectors of at most so many chunks, at equal distances in the table.

    A chunk for which there is no vector has zeros.
    """
    with engine_errors("reading vectors"):
        count = await chunks.count_rows()
        offsets = np.unique(np.linspace(0, count - 1, min(most, count)).astype(int)).tolist() if count else []
        if not offsets:
            return [], np.empty((0, 1), np.float32)
        found = await chunks.take_offsets(offsets).select(["source_id", "vector"]).to_arrow()
    return cast("list[str]", found["source_id"].to_pylist()), schema.vectors_of(found)
