"""Rows in memory: the same lists as the engine's, at every version, within the budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import numpy as np
import pyarrow as pa
import pytest

from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Principal, Vectors
from rag.models.embed import unit_rows
from rag.search.desk import Desk
from rag.store.read import rows_in_memory
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.rows_in_memory import (
    OBJECTS_BYTES,
    OVERSAMPLING,
    RowsInMemory,
    TableInMemory,
    _merge_copies,
    _split,
)
from rag.store.read.schema import Ranking
from rag.store.write.access_writer import access_table
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ALL = "(true)"
ROOMY = 10**9


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(rows_in_memory, "BUSY_SHARE", 1e9)


async def _opened(data: Path, memory_bytes: int = ROOMY, name: str = "documents") -> CollectionReader:
    return await table_of(data, name, memory_bytes=memory_bytes)


async def _copied(table: CollectionReader) -> bool:
    """Whether the newest version is in memory, once a search has asked for it and its copy is made."""
    memory = table.memory
    assert memory is not None
    version = await table._chunks.version()  # noqa: SLF001 as the lists do
    if await memory.selection(ALL, version, table._table) is None:  # noqa: SLF001
        assert memory.copying is not None
        await memory.copying
    return await memory.selection(ALL, version, table._table) is not None  # noqa: SLF001


def _above(ranking: Ranking, score: float) -> set[tuple[str, str, int]]:
    """What is shown of the rows that score clearly more: where equals are cut, any may be there."""
    return {
        (hit.stored.id, hit.stored.body, hit.stored.revision) for hit in ranking if hit.score > score + 1e-3
    }


def _rows(vectors: Vectors) -> RowsInMemory:
    coarse, fine, scales = _split(vectors)
    columns = pa.table({"id": [str(number) for number in range(len(vectors))]})
    return RowsInMemory(1, np.arange(len(vectors), dtype=np.uint64), coarse, fine, scales, columns)


async def test_lists_are_those_of_the_engine(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        texts = [f"pendulum {number} clock{number % 7} word{number % 11}" for number in range(300)]
        await writer.replace([small_desk.new_source(writer, f"s{at}", *texts[at::30]) for at in range(30)])
        await writer.finish()
    ours, engines = await _opened(tmp_path), await _opened(tmp_path, 0)
    assert engines.memory is None
    assert await _copied(ours)
    (query,) = small_desk.vectors(["clock3 word5"])
    some = "(seq < 4)"
    for where in (ALL, some, "(false)"):
        dense, theirs = await ours.dense(query, 12, where), await engines.dense(query, 12, where)
        assert [hit.score for hit in dense] == pytest.approx([hit.score for hit in theirs], abs=1e-4)
        last = dense[-1].score if dense else 0.0
        assert _above(dense, last) == _above(theirs, last)
        sparse = await ours.sparse("pendulum clock3", 500, where)
        assert _above(sparse, 0) == _above(await engines.sparse("pendulum clock3", 500, where), 0)
        assert len(sparse) == {ALL: 300, some: 120, "(false)": 0}[where]
    (best, *_) = await ours.dense(query, 1, ALL)
    (theirs_best, *_) = [hit for hit in await engines.dense(query, 9, ALL) if hit.stored.id == best.stored.id]
    assert best.stored.chunk == theirs_best.stored.chunk
    assert best.stored.vector == pytest.approx(theirs_best.stored.vector, abs=1e-4)


async def test_a_commit_is_searched_at_once_and_in_memory_after_it(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await small_desk.put(tmp_path, "a", "pendulum", "escapement")
    table = await _opened(tmp_path)
    assert await _copied(table)
    (query,) = small_desk.vectors(["anchor"])
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace(
            [small_desk.new_source(writer, "b", "anchor"), small_desk.new_source(writer, "a", "foliot")]
        )
        await writer.finish()  # merges the files: every row gets another address
    for _ in range(2):  # from the engine, then from memory
        assert {hit.stored.chunk.text for hit in await table.dense(query, 9, ALL)} == {"anchor", "foliot"}
        assert [hit.stored.chunk.text for hit in await table.sparse("anchor pendulum", 9, ALL)] == ["anchor"]
        assert await _copied(table)


@pytest.mark.parametrize("few_runs", [0, rows_in_memory.FEW_RUNS])
def test_a_copy_takes_over_the_rows_that_are_still_there(
    monkeypatch: pytest.MonkeyPatch, few_runs: int
) -> None:
    monkeypatch.setattr(rows_in_memory, "FEW_RUNS", few_runs)
    all_rows = _rows(unit_rows(np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)))

    def rows_at(*places: int) -> RowsInMemory:
        at = np.array(places)
        arrays = {name: getattr(all_rows, name)[at] for name in ("addresses", "coarse", "fine", "scales")}
        return replace(all_rows, **arrays, columns=all_rows.columns.take(at))

    expected = rows_at(0, 2, 3, 4, 5, 6)
    merged = _merge_copies(rows_at(0, 1, 2, 3, 5), rows_at(4, 6), expected.addresses)
    assert merged.columns == expected.columns
    for name in ("addresses", "coarse", "fine", "scales"):
        assert getattr(merged, name).tolist() == getattr(expected, name).tolist()


async def test_a_changed_record_counts_from_its_commit(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        new = small_desk.new_source(writer, "a", "pendulum")
        await writer.replace([new])
    table, everybody = await _opened(tmp_path), "(array_has_any(labels, ['*']))"
    assert await _copied(table)
    assert [hit.stored.revision for hit in await table.sparse("pendulum", 9, everybody)] == [1]
    async with access_table(tmp_path, "default") as records:
        (record,) = (await records.of([new.source.id])).values()
        restricted = Access("restricted", allow=frozenset({"group:hr"}), revision=2)
        await records.put([replace(record, access=restricted, copied=False)])
    async with await small_desk.writing(tmp_path):
        pass  # copies the labels
    (query,) = small_desk.vectors(["pendulum"])
    for _ in range(2):
        assert await table.sparse("pendulum", 9, everybody) == []
        assert await table.dense(query, 9, everybody) == []
        assert [hit.stored.revision for hit in await table.dense(query, 9, ALL)] == [2]
        assert await _copied(table)


async def test_a_row_without_a_vector_is_found_by_its_words_only(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        new = small_desk.new_source(writer, "a", "pendulum", "clock")
        new.vectors[1] = 0.0
        await writer.replace([new])
    table = await _opened(tmp_path)
    assert await _copied(table)
    (query,) = small_desk.vectors(["clock"])
    assert [hit.stored.chunk.text for hit in await table.dense(query, 9, ALL)] == ["pendulum"]
    assert [hit.stored.chunk.text for hit in await table.sparse("clock", 9, ALL)] == ["clock"]


@pytest.mark.parametrize("number", [0.0, np.nan, np.inf])
async def test_a_query_without_direction_is_near_to_nothing(number: float) -> None:
    rows = _rows(unit_rows(np.random.default_rng(1).normal(size=(9, 8))))
    vector = np.full(8, number, np.float32)
    positions, similarities = await rows.nearest(vector, 3, np.arange(9))
    assert (len(positions), len(similarities)) == (0, 0)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
async def test_the_nearest_are_those_by_true_vectors(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in_memory, "COMPARED_AT_ONCE", 1_000)
    chance = np.random.default_rng(7)
    centres = chance.normal(size=(40, 384))
    vectors = unit_rows(centres[chance.integers(40, size=4_000)] + 0.7 * chance.normal(size=(4_000, 384)))
    rows, among = _rows(vectors), np.flatnonzero(chance.random(4_000) < share)
    shares = []
    for query in unit_rows(centres + 0.5 * chance.normal(size=centres.shape)):
        positions, similarities = await rows.nearest(query, 50, among)
        true = vectors[among] @ query
        expected = among[np.argsort(-true, kind="stable")[:50]]
        assert similarities == pytest.approx(vectors[positions] @ query, abs=1e-4)
        shares.append(np.isin(expected, positions).mean())
    assert np.mean(shares) >= 0.999
    assert OVERSAMPLING > 1


async def test_rows_that_do_not_fit_stay_with_the_engine(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_desk.put(tmp_path, "a", *(f"pendulum {n}" for n in range(50)))
    roomy, tight = await _opened(tmp_path), await _opened(tmp_path, OBJECTS_BYTES + 4_000)
    assert await _copied(roomy)
    assert not await _copied(tight)
    assert tight.memory is not None
    assert tight.memory.size == 0
    assert len(await tight.sparse("pendulum", 60, ALL)) == 50
    with monkeypatch.context() as patched:  # it is known now, so nothing is read to find out
        patched.setattr(TableInMemory, "_query_ids", None)
        assert not await _copied(tight)
    async with await small_desk.writing(tmp_path) as writer:  # few enough now
        await writer.replace([small_desk.new_source(writer, "a", "pendulum")])
    assert await _copied(tight)


@pytest.mark.parametrize("is_roomy", [True, False])
async def test_where_the_machine_has_room_for_rows_that_do_not_fit_the_log_says_how_much_they_need(
    small_desk: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_roomy: bool,  # noqa: FBT001 as pytest passes it
) -> None:
    await small_desk.put(tmp_path, "a", *(f"pendulum {n}" for n in range(50)))
    monkeypatch.setattr(rows_in_memory, "memory_bytes", lambda: 10**9 if is_roomy else 10**5)
    tight = await _opened(tmp_path, OBJECTS_BYTES + 4_000)
    for _ in range(2):
        assert not await _copied(tight)
    notes = [record.getMessage() for record in caplog.records if record.msg == rows_in_memory.JUST_MISSED]
    assert len(notes) == is_roomy  # once
    for note in notes:
        assert await _copied(await _opened(tmp_path, int(note.rpartition(" = ")[2].rstrip("."))))


async def test_what_nobody_searches_gives_its_place(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("documents", "more"):
        await small_desk.put(tmp_path, "a", *(f"pendulum {n}" for n in range(50)), collection=name)
    size = (await _size(await _opened(tmp_path))) * 3 // 2
    reader = DeskReader(tmp_path, timeout_seconds=30, memory_bytes=size)
    first, second = [await reader.open(collection) for collection in await reader.collections("default")]
    assert await _copied(first)
    assert not await _copied(second)  # the first was searched just now
    assert first.memory is not None
    assert second.memory is not None
    monkeypatch.setattr(rows_in_memory, "IDLE_SECONDS", -1.0)
    assert await _copied(second)
    assert first.memory.size == 0


async def _size(table: CollectionReader) -> int:
    assert await _copied(table)
    assert table.memory is not None
    return table.memory.size


async def test_a_predicate_is_evaluated_once_for_each_version(small_desk: ModuleType, tmp_path: Path) -> None:
    await small_desk.put(tmp_path, "a", "pendulum", "clock")
    table = await _opened(tmp_path)
    assert await _copied(table)
    memory, version, evaluated = table.memory, await table._chunks.version(), 0  # noqa: SLF001
    assert memory is not None

    async def counted(query: object) -> pa.Table:
        nonlocal evaluated
        evaluated += 1
        return await table._table(query)  # noqa: SLF001 as the lists do

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(memory.selection, "(seq = 1)", version, counted)
    assert evaluated == 1
    for number in range(rows_in_memory.SELECTIONS):
        await memory.selection(f"(seq = {number + 2})", version, counted)
    await memory.selection("(seq = 1)", version, counted)  # the oldest is gone
    assert evaluated == rows_in_memory.SELECTIONS + 2


async def test_a_slow_predicate_holds_up_no_other(small_desk: ModuleType, tmp_path: Path) -> None:
    await small_desk.put(tmp_path, "a", "pendulum", "clock")
    table, answer = await _opened(tmp_path), anyio.Event()
    assert await _copied(table)
    memory, version = table.memory, await table._chunks.version()  # noqa: SLF001 as the lists do
    assert memory is not None
    waiting, times = anyio.Event(), 0

    async def slow(query: object) -> pa.Table:
        nonlocal times
        times += 1
        waiting.set()
        await answer.wait()
        return await table._table(query)  # noqa: SLF001 as the lists do

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.selection, "(seq = 0)", version, slow)
        await waiting.wait()
        for known_or_new in (ALL, "(seq = 1)"):
            with anyio.fail_after(30):
                assert await memory.selection(known_or_new, version, table._table)  # noqa: SLF001
        assert "(seq = 0)" not in memory._rows.selections  # type: ignore[union-attr] # noqa: SLF001
        answer.set()
    assert await memory.selection("(seq = 0)", version, slow)
    assert times == 1


async def test_tables_are_copied_one_after_another(small_desk: ModuleType, tmp_path: Path) -> None:
    """While two were read at the same time, each would be given the room that the other takes."""
    for name in ("documents", "more"):
        await small_desk.put(tmp_path, "a", *(f"pendulum {n}" for n in range(50)), collection=name)
    size = (await _size(await _opened(tmp_path))) * 3 // 2
    reader = DeskReader(tmp_path, timeout_seconds=30, memory_bytes=size)
    tables = [await reader.open(collection) for collection in await reader.collections("default")]
    async with anyio.create_task_group() as tasks:
        for table in tables:
            tasks.start_soon(_copied, table)
    held = [table.memory.size for table in tables if table.memory]
    assert sorted(map(bool, held)) == [False, True]
    assert sum(held) <= size


async def test_a_copy_that_fails_leaves_the_former_one_for_the_next(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_desk.put(tmp_path, "a", "pendulum", "clock")
    table = await _opened(tmp_path)
    assert await _copied(table)
    await small_desk.put(tmp_path, "b", "anchor")
    copied_rows: list[int] = []
    at = TableInMemory._at  # noqa: SLF001 what reads rows that are new

    async def counted(memory: TableInMemory, addresses: Any, columns: list[str]) -> pa.Table:  # noqa: ANN401 as the method has them
        copied_rows.append(len(addresses))
        if len(copied_rows) == 1:
            raise RuntimeError("the disk is gone")
        return await at(memory, addresses, columns)

    monkeypatch.setattr(TableInMemory, "_at", counted)
    assert not await _copied(table)
    assert {hit.stored.chunk.text for hit in await table.sparse("anchor pendulum", 9, ALL)} == {
        "anchor",
        "pendulum",
    }
    assert await _copied(table)
    assert copied_rows == [1, 1]  # not the two of before


async def test_searches_at_the_same_time_open_and_copy_a_table_once(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await small_desk.put(tmp_path, "a", "pendulum")
    reader, opened = DeskReader(tmp_path, timeout_seconds=30, memory_bytes=ROOMY), []
    (collection,) = await reader.collections("default")

    async def open_() -> None:
        opened.append(await reader.open(collection))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(open_)
    assert len(opened) == 5
    assert len({id(opened_table) for opened_table in opened}) == 1


async def test_a_closed_desk_copies_nothing(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small_desk.put(tmp_path, "a", "pendulum")
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 3600.0)
    async with Desk.open(Settings(data=tmp_path, search=SearchSettings(statistics="collection"))) as desk:
        await desk.search(Principal("default"), "pendulum", mode="sparse")
        (table,) = desk._reader._open.values()  # noqa: SLF001 what goes on behind searches
        assert table.memory is not None
        copying = table.memory.copying
        assert copying is not None
        assert not copying.done()
    assert copying.cancelled()
