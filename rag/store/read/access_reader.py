"""Reading a tenant's access records, with a cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from rag.access.rule import narrower, same_access
from rag.corpus import Access, AccessRecord
from rag.filters.evaluators import literal
from rag.store.read import schema
from rag.store.read.connection import engine_errors

if TYPE_CHECKING:
    import lancedb
    import pyarrow as pa

KEPT = 100_000  # records in the cache, some 30 MB at most
NAMES_GROUP = f"(array_has_any(labels, ['{schema.GROUP_LABEL}']))"


class AccessReader:
    """The records of one tenant. The cache is valid until the table's next commit."""

    def __init__(self, table: lancedb.AsyncTable, timeout: timedelta) -> None:
        self._table = table
        self._timeout = timeout
        self._records: dict[str, Access | None] = {}
        self._any: dict[tuple[str, str], bool] = {}
        self._pending: tuple[AccessRecord, ...] | None = None
        self.version = -1

    async def refresh(self) -> int:
        """Drop the cache if another process has committed since. Returns the current version."""
        with engine_errors("reading access records"):
            version = await self._table.version()
        if version != self.version or len(self._records) > KEPT or len(self._any) > KEPT:
            self._records, self._any, self._pending, self.version = {}, {}, None, version
        return version

    async def records(self, ids: Iterable[str]) -> dict[str, Access | None]:
        """The access of these sources, by id. None (deny-all) without a record or with a tombstone.

        A tag's source is visible to those whom both its own record, as old as the tag, and the present record
        of its original admit. Call `refresh` first: this answers from the cache.
        """
        chosen, cache = set(ids), self._records
        if missing := chosen - cache.keys():
            originals = {id_: original for id_ in missing if (original := schema.original_id(id_))}
            wanted_rows = schema.one_of("id", missing | {*originals.values()})
            rows = await self._rows(wanted_rows, schema.RECORD_COLUMNS)
            records = {row["id"]: schema.stored_record(row) for row in rows}
            # A tag keeps what was removed since, so a tombstone of the original doesn't count for it.
            access = {id_: record.access for id_, record in records.items()}
            for id_ in missing:
                if id_ in originals:
                    cache[id_] = _then_and_now(access.get(id_), access.get(originals[id_]))
                else:
                    cache[id_] = None if id_ in records and records[id_].is_tombstone else access.get(id_)
        return {id_: cache[id_] for id_ in chosen}

    async def has_any(self, collection: str, where: str) -> bool:
        """Whether any source of a collection satisfies the predicate on labels.

        Call `refresh` first: this answers from the cache.
        """
        key = collection, where
        if key not in self._any:
            condition = f"{schema.PRESENT} AND (collection = {literal(collection)}) AND {where}"
            self._any[key] = bool(await self._rows(condition, ["id"], limit=1))
        return self._any[key]

    async def matching_records(self, collection: str, where: str) -> dict[str, Access | None]:
        """The records of a collection's sources that satisfy the predicate on labels, by id."""
        condition = f"{schema.PRESENT} AND (collection = {literal(collection)}) AND {where}"
        rows = await self._table_of(condition, ["id", "revision", *schema.ACCESS_COLUMNS])
        records = await to_thread.run_sync(_records, rows)
        return await self.records(records) if any(map(schema.original_id, records)) else records

    async def page(self, collection: str, after: str, limit: int, where: str) -> dict[str, int]:
        """Up to `limit` ids of a collection's sources that satisfy the predicate and follow `after`.

        In order, each with the revision of its record.
        """
        condition = f"{schema.PRESENT} AND (collection = {literal(collection)}) AND (id > {literal(after)})"
        rows = await self._rows(f"{condition} AND {where}", ["id", "revision"])
        return dict(sorted((row["id"], row["revision"]) for row in rows)[:limit])

    async def uncopied_records(self) -> tuple[AccessRecord, ...]:
        """The changed records whose labels the chunks don't hold yet, and tombstones, which deny all.

        Call `refresh` first: this answers from the cache.
        """
        if self._pending is None:
            rows = await self._rows("(NOT copied)", schema.RECORD_COLUMNS)
            records = map(schema.stored_record, rows)
            self._pending = tuple(
                replace(record, access=None) if record.is_tombstone else record for record in records
            )
        return self._pending

    async def tombstones(self) -> frozenset[str]:
        """The ids of removed sources whose rows may still be stored; answers as `uncopied_records` does."""
        return frozenset(record.id for record in await self.uncopied_records() if record.is_tombstone)

    async def removed_records(self) -> dict[str, AccessRecord]:
        """The records of removed sources, by id."""
        rows = await self._rows(f"(NOT {schema.PRESENT}) AND (collection <> '')", schema.RECORD_COLUMNS)
        return {row["id"]: schema.stored_record(row) for row in rows}

    async def names_groups(self) -> bool:
        """Whether any record names a group."""
        await self.refresh()
        return bool(await self._rows(NAMES_GROUP, ["id"], limit=1))

    async def entries(self) -> set[str]:
        """The entries of all lists."""
        await self.refresh()
        table = await self._table_of("(true)", ["allow", "deny"])
        lists = [entries for name in ("allow", "deny") for entries in table[name].to_pylist() if entries]
        return {entry for entries in lists for entry in entries}

    async def _rows(self, where: str, columns: list[str], limit: int | None = None) -> list[dict[str, Any]]:
        return (await self._table_of(where, columns, limit)).to_pylist()

    async def _table_of(self, where: str, columns: list[str], limit: int | None = None) -> pa.Table:
        with engine_errors("reading access records"):
            query = self._table.query().where(where).select(columns)
            if limit is not None:
                query = query.limit(limit)
            return cast("pa.Table", await self._once_more(query))

    async def _once_more(self, query: Any) -> Any:  # noqa: ANN401 the engine's query classes share no base
        """Run a query; repeat it once if its table version was pruned meanwhile."""
        try:
            return await query.to_arrow(timeout=self._timeout)
        except RuntimeError as error:
            if "Not found" not in str(error):
                raise
            await self._table.checkout_latest()  # type: ignore[no-untyped-call]
            return await query.to_arrow(timeout=self._timeout)


def _then_and_now(then: Access | None, now: Access | None) -> Access | None:
    """The access of a tag's source: the narrower of both."""
    # If it differs from the tag's own record, the labels of the tag's rows don't tell it. A revision that no
    # row has, a negative one, makes the gate decide.
    access = narrower(then, now)
    return then if same_access(access, then) else access and replace(access, revision=-access.revision)


def _records(rows: pa.Table) -> dict[str, Access | None]:
    return {row["id"]: schema.access_record(row) for row in rows.to_pylist()}
