"""Small tables in a bucket: their rows are read once for each version, all of them, and written all together.

It is the number of requests that costs there. The rows that satisfy a condition take two for each file of a
table, all rows take one, and none if this process has read this version before. Writing all rows leaves a
single file, and no list of deleted rows: whoever reads it next, servers included, has less to ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rag.filters.evaluators import literal
from rag.store.read.schema import one_of

if TYPE_CHECKING:
    import lancedb

SMALL_BYTES = 512 << 10  # a request for them takes not much longer than one for a row
KEPT_TABLES = 4  # a command writes to two collections' sources and to a tenant's records at most

Condition: TypeAlias = Mapping[str, "str | bool | Iterable[str]"]
"""The value of a column that rows must have, or several of which they must have one."""

_kept: dict[str, tuple[int, pa.Table]] = {}
"""The rows of tables by address, with their version; least recently read first."""


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

    Only for who holds the table's lock, and opened the table since.
    """
    stored, before = await _all_rows(table), await table.version()
    if stored is not None and len({*stored["id"].to_pylist()}) < stored.num_rows:
        stored = None  # the engine refuses to write an id twice
    if stored is not None:
        stays = pc.invert(pc.is_in(stored["id"], rows["id"].combine_chunks()))
        rows = rows.select(stored.column_names).cast(stored.schema)
        rows = pa.concat_tables([stored.filter(stays), rows])
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    # With an index of ids, the engine has inserted keys twice.
    result = await merge.use_index(use_index=False).execute(rows)
    if stored is not None and result.version == before + 1:
        _keep(await table.uri(), result.version, rows)


async def _all_rows(table: lancedb.AsyncTable) -> pa.Table | None:
    """All rows of a small table in a bucket; None of another one."""
    if not await is_small(table):
        return None
    address, version = await table.uri(), await table.version()
    kept_version, rows = _kept.get(address, (None, None))
    if rows is None or kept_version != version:
        rows = await table.query().to_arrow()
        _keep(address, version, rows)
    return rows


async def is_small(table: lancedb.AsyncTable) -> bool:
    """Whether a table is a small one in a bucket."""
    if "://" not in await table.uri():
        return False
    stats: Any = await table.stats()
    return int(stats["total_bytes"]) <= SMALL_BYTES


def _keep(address: str, version: int, rows: pa.Table) -> None:
    _kept.pop(address, None)
    _kept[address] = version, rows
    while len(_kept) > KEPT_TABLES:
        del _kept[next(iter(_kept))]


def _mask(column: pa.ChunkedArray[Any], value: str | bool | Sequence[str]) -> Any:  # noqa: ANN401, FBT001 Arrow's
    if isinstance(value, str | bool):
        return pc.equal(column, pa.scalar(value))
    return pc.is_in(column, pa.array(value, pa.string()))


def _predicate(name: str, value: str | bool | Sequence[str]) -> str:  # noqa: FBT001 as above
    if isinstance(value, bool):
        return f"({name})" if value else f"(NOT {name})"
    return f"({name} = {literal(value)})" if isinstance(value, str) else one_of(name, value)
