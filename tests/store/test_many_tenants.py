"""Many tenants on one desk: what is opened, what stays, and how many files each one has."""

from __future__ import annotations

import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import lancedb
import pytest

from rag.access.rule import predicate
from rag.access.tenants import tenants
from rag.config.settings import Settings
from rag.corpus import Access, Collection, Principal
from rag.errors import BusyError, ConfigurationError
from rag.search.desk import Desk
from rag.store.read import desk_reader, rows_in_memory, strict_reader
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import LocalTable
from rag.store.read.desk_reader import DeskReader
from rag.store.read.sources_reader import AccessReader
from rag.store.write import table_maintenance
from rag.store.write.access_writer import change_access
from rag.store.write.change_collection import (
    change_collection,
    drop_collection,
    drop_tenant,
    end_tenant,
)

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FILES_OF_TENANT = 20
ROOMY = 10**9


async def _fill(small_desk: ModuleType, data: Path, tenant: str, *collections: str) -> None:
    for collection in collections or ("documents",):
        await small_desk.put(
            data, "a", f"pendulum of {tenant}", "clock", tenant=tenant, collection=collection, finishes=True
        )


async def _open(reader: DeskReader, tenant: str) -> list[CollectionReader]:
    return [await reader.open(collection) for collection in await reader.collections(tenant)]


def _count_files(data: Path, tenant: str) -> int:
    """The files of a tenant, those of its tables and all others that have its name."""
    files = [path.relative_to(data) for path in data.rglob("*") if path.is_file()]
    names = re.compile(rf"(.*/)?(\w+__tenant_)?{tenant}([._].*|/.*)?")
    return sum(bool(names.fullmatch(str(path))) for path in files)


async def _titles(desk: Desk, tenant: str, user: str | None = None) -> set[str]:
    answer = await desk.search(Principal(tenant, user), "pendulum")
    return {hit.chunk.text for hit in answer.hits}


async def test_nothing_is_open_before_it_is_asked_and_what_was_not_asked_for_longest_is_closed(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_reader, "MOST_OPEN", 2)
    for tenant in "abcd":
        await _fill(small_desk, tmp_path, tenant)
    async with Desk.open(Settings(data=tmp_path)) as desk:
        reader = desk._reader  # noqa: SLF001 what it holds
        assert not reader._open  # noqa: SLF001 the same
        for tenant in "abacad":
            assert f"pendulum of {tenant}" in await _titles(desk, tenant)
        assert [tenant for tenant, _ in reader._open] == ["a", "d"]  # noqa: SLF001 the same
        assert {*reader._access} == {"a", "d"}  # noqa: SLF001 the same
        held = [table.memory.size for table in reader._open.values() if table.memory]  # noqa: SLF001 the same
        assert reader._memory is not None  # noqa: SLF001 the same
        assert reader._memory.held == sum(held) > 0  # noqa: SLF001 the same


async def test_a_search_of_more_collections_than_stay_open_closes_none_of_its_own(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_reader, "MOST_OPEN", 2)
    await _fill(small_desk, tmp_path, "small")
    await _fill(small_desk, tmp_path, "large", "one", "two", "three")
    reader = DeskReader(tmp_path, timeout_seconds=15)
    await _open(reader, "small")
    first = await _open(reader, "large")
    assert [table is again for table, again in zip(first, await _open(reader, "large"), strict=True)] == [
        True,
        True,
        True,
    ]
    assert {tenant for tenant, _ in reader._open} == {"large"}  # noqa: SLF001 what it holds


async def test_a_first_search_counts_and_reads_the_chunks_of_each_small_collection_once(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("one", "two", "three")
    await _fill(small_desk, tmp_path, "a", *names)
    calls: Counter[tuple[str, str]] = Counter()
    for method in ("count_rows", "list_indices", "schema", "version"):
        _count_calls(lancedb.AsyncTable, method, calls, monkeypatch)
    _count_calls(LocalTable, "query", calls, monkeypatch)
    async with Desk.open(Settings(data=tmp_path)) as desk:
        assert await _titles(desk, "a")
    of_chunks = {call: count for call, count in calls.items() if "chunks" in call[0]}
    methods = ("count_rows", "query")
    assert of_chunks == {(f"chunks__tenant_a__src_{name}", of): 1 for name in names for of in methods}


def _count_calls(
    cls: type, method: str, calls: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the calls of a method of the engine's tables, by the names of both."""
    original = getattr(cls, method)

    def counting(table: lancedb.AsyncTable, *arguments: object, **options: object) -> object:
        calls[table.name, method] += 1
        return original(table, *arguments, **options)

    monkeypatch.setattr(cls, method, counting)


async def test_words_of_small_tables_are_counted_and_ranked_without_waking_threads(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(small_desk, tmp_path, "a", "one", "two")
    here: set[bool] = set()
    for function in ("count_forms", "rank_words"):
        original = getattr(strict_reader, function)

        def noting(
            *arguments: object, original: Callable[..., object] = original, **options: object
        ) -> object:
            here.add(threading.current_thread() is threading.main_thread())
            return original(*arguments, **options)

        monkeypatch.setattr(strict_reader, function, noting)
    async with Desk.open(Settings(data=tmp_path)) as desk:
        assert await _titles(desk, "a")
        assert here == {True}
        monkeypatch.setattr(strict_reader, "RANKED_AT_ONCE", 0)
        assert await _titles(desk, "a")
        assert here == {True, False}


async def test_a_right_that_was_taken_away_counts_in_a_tenant_that_was_closed_meanwhile(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_reader, "MOST_OPEN", 1)
    for tenant in "ab":
        await _fill(small_desk, tmp_path, tenant)
    async with Desk.open(Settings(data=tmp_path)) as desk:
        assert await _titles(desk, "a", "ann") == await _titles(desk, "a", "bob") != set()
        assert await _titles(desk, "b", "ann")
        (table,) = await _open(DeskReader(tmp_path, timeout_seconds=15), "a")
        ids = [source.id for source in await table.listing()]
        only_ann = Access("restricted", frozenset({"user:ann"}))
        await change_access(tmp_path, "a", ids, lambda _: only_ann)
        assert await _titles(desk, "a", "ann")
        assert await _titles(desk, "a", "bob") == set()
        assert await _titles(desk, "b", "bob")


async def test_a_commit_to_the_catalog_closes_the_collections_of_its_tenant_alone(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    for tenant in "ab":
        await _fill(small_desk, tmp_path, tenant)
    reader = DeskReader(tmp_path, timeout_seconds=15)
    (ours,), (theirs,) = await _open(reader, "a"), await _open(reader, "b")
    await _fill(small_desk, tmp_path, "c")

    def unchanged(collection: Collection) -> Collection:
        return collection

    await change_collection(tmp_path, "b", "documents", unchanged)  # as a repair has readers open anew
    (ours_now,), (theirs_now,) = await _open(reader, "a"), await _open(reader, "b")
    assert ours_now is ours
    assert theirs_now is not theirs
    await drop_collection(tmp_path, ours.collection)
    assert await reader.collections("a") == ()
    await _fill(small_desk, tmp_path, "a")
    (ours_again,) = await _open(reader, "a")
    assert ours_again is not ours
    assert len(await ours_again.listing()) == 1


async def test_a_server_goes_on_for_others_while_a_tenant_is_removed_with_its_rows_of_the_catalog(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    for tenant in "ab":
        await _fill(small_desk, tmp_path, tenant)
    async with Desk.open(Settings(data=tmp_path)) as desk:
        before = await _titles(desk, "a")
        assert await _titles(desk, "b") != before
        await drop_tenant(tmp_path, "b", await desk._reader.collections("b"))  # noqa: SLF001 its definitions
        await end_tenant(tmp_path, "b")
        assert await _titles(desk, "a") == before != set()
        with pytest.raises(ConfigurationError, match="no tenant 'b'"):
            await _titles(desk, "b")
        await _fill(small_desk, tmp_path, "b")
        assert await _titles(desk, "b")
        assert await _titles(desk, "a") == before


async def test_a_tenant_in_which_a_collection_was_made_while_it_was_removed_stays_to_be_removed_again(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    reader = DeskReader(tmp_path, timeout_seconds=15)
    for tenant in "ab":
        await _fill(small_desk, tmp_path, tenant)
    await drop_tenant(tmp_path, "b", await reader.collections("b"))
    await _fill(small_desk, tmp_path, "b")  # by a command that had begun before
    with pytest.raises(BusyError):
        await end_tenant(tmp_path, "b")
    assert tenants(tmp_path) == ("a", "b")
    await drop_tenant(tmp_path, "b", await reader.collections("b"))
    await end_tenant(tmp_path, "b")
    assert tenants(tmp_path) == ("a",)


async def test_rows_in_memory_are_counted_by_what_is_held_and_stay_within_their_limit(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in "abcdef":
        await _fill(small_desk, tmp_path, tenant)
    (table,) = await _open(DeskReader(tmp_path, timeout_seconds=15, memory_bytes=ROOMY), "a")
    assert await table.renewed_rows("(true)")
    assert table.memory
    limit = 3 * table.memory.size + 1_000
    monkeypatch.setattr(rows_in_memory, "IDLE_SECONDS", -1.0)
    reader = DeskReader(tmp_path, timeout_seconds=15, memory_bytes=limit)
    sizes = []
    for tenant in "abcdef":
        (table,) = await _open(reader, tenant)
        assert await table.renewed_rows("(true)")
        in_memory = [opened.memory.size for opened in reader._open.values() if opened.memory]  # noqa: SLF001 what it holds
        sizes.append(sum(in_memory))
        assert reader._memory is not None  # noqa: SLF001 the same
        assert reader._memory.held == sizes[-1] <= limit  # noqa: SLF001 the same
    assert sizes[0] < sizes[1] < sizes[2]  # several fit


async def test_a_table_is_in_memory_for_its_first_search_unless_it_is_large_and_little_of_it_is_read(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(small_desk, tmp_path, "a")
    (small,) = await _open(DeskReader(tmp_path, timeout_seconds=15, memory_bytes=ROOMY), "a")
    copy = await small.renewed_rows("(seq = 1)")
    assert copy is not None
    assert copy[0].columns["seq"].take(copy[1]).to_pylist() == [1]
    assert copy[0].words is not None
    monkeypatch.setattr("rag.store.read.collection_reader.SMALL_TABLE", 1)
    (large,) = await _open(DeskReader(tmp_path, timeout_seconds=15, memory_bytes=ROOMY), "a")
    assert await large.renewed_rows("(seq = 1)") is None
    monkeypatch.setattr("rag.store.read.collection_reader.FEW_ROWS", 1)
    assert await large.renewed_rows("(seq = 1)") is None
    assert await large.renewed_rows("(true)")


async def test_one_query_tells_of_all_collections_of_a_tenant_who_sees_what_until_rights_change(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(small_desk, tmp_path, "a", "one", "two", "three")
    queries: list[str] = []
    run = AccessReader._table_of  # noqa: SLF001 what queries it makes

    async def counted(
        access: AccessReader, where: str, columns: list[str], limit: int | None = None
    ) -> pa.Table:
        queries.append(where)
        return await run(access, where, columns, limit)

    monkeypatch.setattr(AccessReader, "_table_of", counted)
    reader = DeskReader(tmp_path, timeout_seconds=15)
    tables = await _open(reader, "a")
    for where in ("(true)", "(false)"):
        queries.clear()
        await reader.refresh(tables)
        answers = [await table.has_any(where) for table in tables]
        assert answers == [where == "(true)"] * 3
        assert [len(await table.ids(where)) for table in tables] == [int(answers[0])] * 3
        assert len(queries) == 1
    visible = predicate(Principal("a"), "allow")
    assert [await table.has_any(visible) for table in tables] == [True] * 3
    first = [source.id for source in await tables[0].listing()]
    await change_access(tmp_path, "a", first, lambda _: Access("restricted"))
    await reader.refresh(tables)
    assert [await table.has_any(visible) for table in tables] == [False, True, True]


async def test_a_small_tenant_has_few_files_after_its_first_ingestion_and_old_readers_lose_nothing(
    small_desk: ModuleType, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    documents = tmp_path_factory.mktemp("documents")
    for number in range(20):
        (documents / f"{number}.md").write_text(f"# Note {number}\n\nA pendulum.\n")
    async with await small_desk.writing(tmp_path, "a"):
        (before,) = await _open(DeskReader(tmp_path, timeout_seconds=15), "a")
    chunks = before._chunks  # noqa: SLF001 a version that will be dropped
    await chunks.checkout(await chunks.version())
    report = await small_desk.ingested(tmp_path, documents, tenant="a")
    assert report.counts["added"] == 20
    assert 3 * 4 < _count_files(tmp_path, "a") <= FILES_OF_TENANT
    assert await chunks.count_rows() == 0
    (after,) = await _open(DeskReader(tmp_path, timeout_seconds=15), "a")
    assert len(await after.listing()) == 20


async def test_versions_whose_rows_are_elsewhere_stay_as_long_as_they_may_be_read(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await _fill(small_desk, tmp_path, "a")
    (table,) = await _open(DeskReader(tmp_path, timeout_seconds=15), "a")
    chunks = table._chunks  # noqa: SLF001 the version that a backup would hold
    await chunks.checkout(await chunks.version())
    async with await small_desk.writing(tmp_path, "a") as writer:
        await writer.replace([small_desk.new_source(writer, "a", "escapement")])
        await writer.finish()
    rows = await chunks.query().select(["body"]).to_arrow()
    assert ["escapement" in str(body) for body in rows["body"].to_pylist()] == [False, False]
    versions = _versions(tmp_path)
    assert len(versions) > 1
    await table_maintenance.drop_bare_versions(writer._chunks)  # noqa: SLF001 the newest
    assert _versions(tmp_path) == versions


def _versions(data: Path) -> list[Path]:
    return sorted(data.glob("tables/chunks__tenant_a*/_versions/*.manifest"))


async def test_a_desk_that_was_made_anew_in_its_place_is_read_anew(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await _fill(small_desk, tmp_path, "a")
    reader = DeskReader(tmp_path, timeout_seconds=15, memory_bytes=ROOMY)
    (table,) = await _open(reader, "a")
    before = table.collection
    shutil.rmtree(tmp_path / "tables")
    await _fill(small_desk, tmp_path, "a")
    await _fill(small_desk, tmp_path, "b")  # so that the catalog has another version
    (table,) = await _open(reader, "a")
    assert table.collection.created_at > before.created_at
    assert len(await table.sparse("pendulum", 9, "(true)")) == len(await table.listing())
