"""LanceDB tables that others write: made with the engine alone, in a folder that refdesk only reads."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lancedb
import pyarrow as pa
from lancedb.index import FTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt


def column_of(vectors: npt.NDArray[Any]) -> pa.Array[Any]:
    """Vectors as a column of their own type."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


async def written(
    folder: Path, name: str, columns: Mapping[str, Any], *, full_text: Sequence[str] = ("text",)
) -> Path:
    """A table with these columns, in place of an earlier one, with full-text indexes."""
    database = await lancedb.connect_async(str(folder))
    table = await database.create_table(
        name, pa.table(dict(columns)), mode="overwrite", on_bad_vectors="null"
    )
    for column in full_text:
        await table.create_index(column, config=FTS())
    return folder / f"{name}.lance"


async def opened(table: Path) -> lancedb.AsyncTable:
    """The table, as others open it."""
    database = await lancedb.connect_async(str(table.parent), read_consistency_interval=timedelta(0))
    return await database.open_table(table.stem)


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, with a digest of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }
