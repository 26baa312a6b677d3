"""Merging the newest small files: nothing but their number changes, and each row is rewritten a few times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rag.store.read.connection import connect, database_folder
from rag.store.write import table_maintenance

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def _rows(*ids: str) -> pa.Table:
    return pa.table({"id": [*ids], "text": [f"the text of {one}" for one in ids]})


async def _made(data: Path, *batches: tuple[str, ...]) -> Any:  # noqa: ANN401 the engine's own
    """A table with a file for each batch."""
    data.joinpath("tables").mkdir()
    table = await (await connect(data)).create_table("documents", _rows(*batches[0]))
    for batch in batches[1:]:
        await table.add(_rows(*batch))
    return table


async def _files(table: Any) -> int:  # noqa: ANN401 the engine's own
    stats = await table.stats()
    return int(stats["fragment_stats"]["num_fragments"])


async def _held(table: Any) -> list[tuple[str, str]]:  # noqa: ANN401 the engine's own
    rows = (await table.query().to_arrow()).to_pylist()
    return sorted((row["id"], row["text"]) for row in rows)


async def test_the_newest_files_become_one_and_the_rows_stay(tmp_path: Path) -> None:
    base = tuple(f"base {number}" for number in range(100))
    table = await _made(tmp_path, base, *((f"new {number}",) for number in range(20)))
    before, version = await _held(table), await table.version()
    await table_maintenance.merge_tail(table)
    assert await _files(table) == 2
    assert await _held(table) == before
    assert await table.version() == version + 1  # so no reader ever misses a row
    data = sorted(database_folder(tmp_path).rglob("*.lance/data/*"), key=lambda one: one.stat().st_mtime_ns)
    assert data[-1].stat().st_size < data[0].stat().st_size  # the large one was not rewritten


async def test_no_more_rows_are_merged_than_may_be(tmp_path: Path) -> None:
    table = await _made(tmp_path, *((str(number),) for number in range(20)))
    before = await _held(table)
    await table_maintenance.merge_tail(table, 0)
    await table_maintenance.merge_tail(table, 1)
    assert await _files(table) == 20
    await table_maintenance.merge_tail(table, 11)  # the oldest of these may be a part of a large one
    assert await _files(table) == 11
    await table.add(_rows("20"))
    await table_maintenance.merge_tail(table, 1 + 10 + 1, whole=True)
    assert await _files(table) == 11
    await table_maintenance.merge_tail(table, 1 + 10 + 1 + 1, whole=True)
    assert await _files(table) == 10
    await table.delete("id = '20'")
    assert await _held(table) == before


@pytest.mark.parametrize("twice", ["in the last files", "in an older one"])
async def test_rows_of_one_id_are_left_as_they_are(tmp_path: Path, twice: str) -> None:
    there = ("a", "c") if twice == "in an older one" else ("b", "c")
    table = await _made(tmp_path, there, *((str(number),) for number in range(20)))
    again = "a" if twice == "in an older one" else "19"
    await table.add(pa.table({"id": [again], "text": ["of a killed run"]}))
    before = await _held(table)
    await table_maintenance.merge_tail(table)
    assert await _held(table) == before
    assert await _files(table) == 22
    await table.delete("text = 'of a killed run'")
    await table_maintenance.merge_tail(table)
    assert await _files(table) == 2


async def test_an_empty_table_has_nothing_to_merge(tmp_path: Path) -> None:
    table = await _made(tmp_path, ("a",))
    await table.delete("true")
    await table_maintenance.merge_tail(table)
    assert await table.count_rows() == 0


def test_files_of_about_one_size_are_merged_and_a_large_one_is_left_out() -> None:
    assert table_maintenance.rows_to_merge([9000, 50, 10, *[1] * 4]) == 4
    assert table_maintenance.rows_to_merge([9000, 50, 8, *[1] * 4]) == 4 + 8
    assert table_maintenance.rows_to_merge([9000, 24, 8, *[1] * 4]) == 4 + 8 + 24
    assert table_maintenance.rows_to_merge([9000, *[1] * 3]) == 3
    assert table_maintenance.rows_to_merge([9000, 1]) == 0
    assert table_maintenance.rows_to_merge([9000]) == 0


def test_each_row_is_rewritten_a_few_times_only() -> None:
    sizes, written, most, changes = [100_000], 0, 0, 2_000
    for _ in range(changes):
        sizes.append(1)
        if len(sizes) > table_maintenance.FEW_FILES:
            merged = table_maintenance.rows_to_merge(sizes)
            written += merged
            while sum(sizes[len(sizes) - 1 :]) < merged:
                sizes[-2:] = [sum(sizes[-2:])]
        most = max(most, len(sizes))
    assert written < 8 * changes
    assert most <= table_maintenance.FEW_FILES + 1
    assert sizes[0] == 100_000


@pytest.mark.slow
async def test_many_small_changes_leave_few_files_and_few_rows_outside_the_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 100)
    monkeypatch.setattr(table_maintenance, "FEW_FILES", 4)
    table = await _made(tmp_path, tuple(f"base {number}" for number in range(200)))
    for number in range(30):
        await (
            table.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(_rows(f"base {number}"))
        )
        await table_maintenance._merge_last_files(table)  # noqa: SLF001 what a run does after each change
        assert await _files(table) <= 5
    assert len(await _held(table)) == 200


async def test_long_texts_are_merged_as_far_as_they_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(number: int) -> pa.Table:
        return _rows(str(number)).append_column("length", pa.array([10]))

    tmp_path.joinpath("tables").mkdir()
    table = await (await connect(tmp_path)).create_table("sources", rows(0))
    for number in range(1, 20):
        await table.add(rows(number))
    before = await _held(table)
    monkeypatch.setattr(table_maintenance, "MERGED_BYTES", 9)
    await table_maintenance.merge_tail(table)
    assert await _files(table) == 20
    monkeypatch.setattr(table_maintenance, "MERGED_BYTES", 110)
    await table_maintenance.merge_tail(table)
    assert await _files(table) == 11
    assert await _held(table) == before
