"""Storing evaluation runs in the data folder, to compare later runs with earlier ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import pyarrow as pa

from rag.errors import NotFoundError
from rag.filters.grammar import literal
from rag.home import Bucket, Home
from rag.store.read.connection import connect, database_folder, engine_errors, open_if_there
from rag.store.write import table_maintenance
from rag.store.write.desk_folder import prepare
from rag.store.write.locks import locked, open_in_turn

EVAL_RUNS = "eval_runs"
WAIT_SECONDS = 15

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "tenant": pa.string(),
    "summary": pa.string(),
    "questions": pa.large_string(),
}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as JSON: its summary, and the results of each question."""

    summary: str
    questions: str


async def save_runs(data: Home, tenant: str, runs: Sequence[StoredRun]) -> list[int]:
    """Store runs. Returns their ids, numbered from 1 across the data folder.

    Raises:
        ConfigurationError: the data folder can't be written.
    """
    prepare(data)
    started = time.time()
    with locked(data, EVAL_RUNS, seconds=WAIT_SECONDS) as lease, engine_errors("storing the runs"):
        # Made under the lock, by the first run of any tenant: all share one table, and its ids.
        await (await connect(data, writes=True)).create_table(EVAL_RUNS, schema=_SCHEMA, exist_ok=True)
        _, (table,) = await open_in_turn(data, lease, EVAL_RUNS)
        stored = (await table.query().select(["id"]).to_arrow())["id"].to_pylist()
        last = max(cast("list[int]", stored), default=0)
        ids = list(range(last + 1, last + 1 + len(runs)))
        rows = [{"id": id_, "tenant": tenant, **asdict(run)} for id_, run in zip(ids, runs, strict=True)]
        await table.add(pa.Table.from_pylist(rows, schema=_SCHEMA))
        table_maintenance.sync_table(data, EVAL_RUNS, started)
    return ids


async def drop_runs(data: Home, tenant: str) -> None:
    """Remove the tenant's runs, so that no file contains them any more.

    Raises:
        BusyError: another process is storing runs.
    """
    with locked(data, EVAL_RUNS, seconds=WAIT_SECONDS) as lease, engine_errors("removing the runs"):
        if await open_if_there(await connect(data), EVAL_RUNS) is not None:
            _, (table,) = await open_in_turn(data, lease, EVAL_RUNS)
            await table.delete(_theirs(tenant))
            await table_maintenance.purge_rows(data, table, "id")


async def run_summaries(data: Home, tenant: str) -> dict[int, str]:
    """The summaries of the tenant's runs by id, oldest first."""
    rows = await _rows(data, _theirs(tenant), ["id", "summary"])
    return {row["id"]: row["summary"] for row in sorted(rows, key=lambda row: row["id"])}


async def stored_run(data: Home, tenant: str, id_: int) -> StoredRun:
    """The tenant's run of this id.

    Raises:
        NotFoundError: the tenant has no run of this id.
    """
    rows = await _rows(data, f"{_theirs(tenant)} AND (id = {id_:d})", ["summary", "questions"])
    if not rows:
        raise NotFoundError(f"There is no run {id_}. refdesk-admin eval runs lists all runs.")
    return StoredRun(**rows[0])


def _theirs(tenant: str) -> str:
    return f"(tenant = {literal(tenant)})"


async def _rows(data: Home, where: str, columns: list[str]) -> list[dict[str, Any]]:
    if not isinstance(data, Bucket) and not database_folder(data).is_dir():
        return []
    with engine_errors("reading the runs"):
        table = await open_if_there(await connect(data), EVAL_RUNS)
        if table is None:
            return []
        return (await table.query().where(where).select(columns).to_arrow()).to_pylist()
