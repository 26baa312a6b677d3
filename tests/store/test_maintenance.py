"""Maintenance of tables: what a small change costs, how small files are merged, and when ids are indexed.

Small tables in a bucket are read and written as a whole; what comes out of them is the same.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal
from rag.home import Bucket
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import access_writer, table_maintenance
from rag.store.write.access_writer import access_table, change_access
from rag.store.write.table_maintenance import Condition, rows_of, upsert
from tests.bucket import ObjectStore
from tests.tables import table_of

if TYPE_CHECKING:
    import lancedb

pytestmark = pytest.mark.anyio

LARGE = 300  # rows, in place of `maintenance.LARGE_ROWS`
SOURCES, PASSAGES = 60, 6
TAIL = 2 * PASSAGES  # rows outside the indexes
PAD = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", LARGE)
    monkeypatch.setattr(table_maintenance, "TAIL_SHARE", 1.0)
    monkeypatch.setattr(table_maintenance, "TAIL_ROWS", TAIL)


async def _changed(small_desk: ModuleType, data: Path, number: int, word: str) -> int:
    """The bytes in new files after a source got a new text."""
    before = _sizes(data)
    await small_desk.put(data, f"s{number}", *_texts(word), finishes=True)
    return sum(size for path, size in _sizes(data).items() if path not in before)


def _texts(word: str) -> list[str]:
    return [f"{word} passage {number} {PAD}" for number in range(PASSAGES)]


def _sizes(data: Path) -> dict[str, int]:
    walked = os.walk(database_folder(data))
    paths = [os.path.join(parent, name) for parent, _, names in walked for name in names]  # noqa: PTH118 a walk
    return {path: os.stat(path).st_size for path in paths}  # noqa: PTH116 the same


async def _unindexed(data: Path) -> int:
    return (await (await table_of(data)).statistics()).unindexed


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_a_changed_document_is_found_at_once_and_costs_what_it_weighs_until_there_are_many(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await _ingested(small_desk, tmp_path, range(SOURCES))
    assert await _unindexed(tmp_path) == 0
    whole = sum(_sizes(tmp_path).values())

    assert await _changed(small_desk, tmp_path, 1, "astrolabe") < whole / 8
    assert await _unindexed(tmp_path) == PASSAGES
    desk = Desk(DeskReader(tmp_path, timeout_seconds=15), small_desk.BagOfWords(), SearchSettings())
    for mode in ("dense", "sparse", "hybrid"):
        request = SearchRequest("astrolabe", mode=mode)
        hits = (await desk.search(Principal("default"), request)).hits
        assert hits
        assert {hit.source.title for hit in hits[:1]} == {"s1"}

    assert await _changed(small_desk, tmp_path, 2, "sextant") < whole / 8
    assert await _unindexed(tmp_path) == TAIL
    assert await _changed(small_desk, tmp_path, 3, "quadrant") > whole / 8  # now the indexes are rewritten
    assert await _unindexed(tmp_path) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_compactions_one_after_another_leave_two_files_and_segments_without_indexing_all_vectors(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "MERGED_SHARE", 0.5)
    monkeypatch.setattr(table_maintenance, "MAX_UNINDEXED_SHARE", 0.5)
    await _ingested(small_desk, tmp_path, range(SOURCES))
    indexed: list[object] = []
    monkeypatch.setattr(table_maintenance, "_index_vectors", indexed.append)
    for number in range(6):
        await _changed(small_desk, tmp_path, number, f"word{number}")
    assert await _unindexed(tmp_path) == 0
    chunks: Any = await (await connect(tmp_path)).open_table(schema.chunks_table("default", "documents"))
    (index,) = [index_ for index_ in await chunks.list_indices() if index_.columns == ["vector"]]
    assert index.num_segments == 2
    assert (await chunks.stats())["fragment_stats"]["num_fragments"] == 2
    assert indexed == []
    ids = (await chunks.query().select(["id"]).to_arrow())["id"].to_pylist()
    assert len({*ids}) == len(ids) == SOURCES * PASSAGES


async def _ingested(small_desk: ModuleType, data: Path, numbers: range) -> None:
    async with await small_desk.writing(data) as writer:
        await writer.replace(
            [small_desk.new_source(writer, f"s{number}", *_texts(f"first{number}")) for number in numbers]
        )
        await writer.finish()


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_after_a_mass_ingestion_in_any_number_of_runs_a_change_costs_what_it_weighs(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run makes a segment of the vectors' index; the run of the last one that may be merges them."""
    monkeypatch.setattr(table_maintenance, "MERGED_SHARE", 0.01)
    await _ingested(small_desk, tmp_path, range(SOURCES))
    whole = sum(_sizes(tmp_path).values())
    for run in range(2 * table_maintenance.MAX_VECTOR_SEGMENTS):
        await _ingested(small_desk, tmp_path, range(SOURCES + 3 * run, SOURCES + 3 * run + 3))
        assert await _changed(small_desk, tmp_path, 1, f"astrolabe{run}") < whole / 8


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_after_a_change_of_all_sources_a_change_of_one_costs_what_it_weighs(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    await _ingested(small_desk, tmp_path, range(SOURCES))
    async with await small_desk.writing(tmp_path) as writer:
        ids = [source.id for source in (await writer.known_sources()).values()]
        for at in range(0, SOURCES, 3):
            await writer.describe({id_: {"author": "ann"} for id_ in ids[at : at + 3]})
        await writer.finish()
        assert await table_maintenance._files_of_rows(writer._sources) == 1  # noqa: SLF001 no public way


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_what_a_mass_ingestion_merged_goes_when_it_is_old_unless_rows_would_be_written_again(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", PASSAGES)  # so that indexes come before the rows
    for_ever, at_once = timedelta(days=1), timedelta(milliseconds=1)
    async with await small_desk.writing(tmp_path) as writer:
        for first in range(0, SOURCES, 3):
            names = (f"s{number}" for number in range(first, first + 3))
            await writer.replace(
                [small_desk.new_source(writer, name, *_texts(f"first {name}")) for name in names]
            )
        await writer.finish(for_ever)
    before = _sizes(tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.drop_old_versions(for_ever)
        assert _sizes(tmp_path) == before
        await writer.drop_old_versions(at_once)
        assert sum(_sizes(tmp_path).values()) < sum(before.values()) * 0.7
        assert _sizes(tmp_path).items() <= before.items()  # nothing was written
        assert len(await writer.known_sources()) == SOURCES
    await _changed(small_desk, tmp_path, 1, "astrolabe")  # outside the indexes, in files of its own
    before = _sizes(tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.drop_old_versions(at_once)
    assert _sizes(tmp_path) == before


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_old_versions_and_small_files_don_t_build_up(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "MAX_OLD_VERSIONS", 6)
    monkeypatch.setattr(table_maintenance, "KEPT_VERSIONS", timedelta(milliseconds=1))
    await _ingested(small_desk, tmp_path, range(SOURCES))
    folders = [
        folder for folder in database_folder(tmp_path).iterdir() if folder.name[:6] in {"chunks", "source"}
    ]
    for _ in range(10):
        await _changed(small_desk, tmp_path, 1, "astrolabe")
        assert all(
            table_maintenance.old_versions(folder) <= 6 + 1 for folder in folders
        )  # and the present one


def _rows(*ids: str) -> pa.Table:
    return pa.table({"id": [*ids], "text": [f"the text of {id_}" for id_ in ids]})


async def _made(data: Path, *batches: tuple[str, ...]) -> Any:  # noqa: ANN401 the engine's own
    """A table with a file for each batch."""
    data.joinpath("tables").mkdir()
    table = await (await connect(data)).create_table("documents", _rows(*batches[0]))
    for batch in batches[1:]:
        await table.add(_rows(*batch))
    return table


async def _fragments(table: Any) -> int:  # noqa: ANN401 the engine's own
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
    assert await _fragments(table) == 2
    assert await _held(table) == before
    assert await table.version() == version + 1  # so no reader ever misses a row
    data = sorted(database_folder(tmp_path).rglob("*.lance/data/*"), key=lambda file: file.stat().st_mtime_ns)
    assert data[-1].stat().st_size < data[0].stat().st_size  # the large one was not rewritten


async def test_no_more_rows_are_merged_than_may_be(tmp_path: Path) -> None:
    table = await _made(tmp_path, *((str(number),) for number in range(20)))
    before = await _held(table)
    await table_maintenance.merge_tail(table, 0)
    await table_maintenance.merge_tail(table, 1)
    assert await _fragments(table) == 20
    await table_maintenance.merge_tail(table, 11)  # the oldest of these may be a part of a large one
    assert await _fragments(table) == 11
    await table.add(_rows("20"))
    await table_maintenance.merge_tail(table, 1 + 10 + 1, whole=True)
    assert await _fragments(table) == 11
    await table_maintenance.merge_tail(table, 1 + 10 + 1 + 1, whole=True)
    assert await _fragments(table) == 10
    await table.delete("id = '20'")
    assert await _held(table) == before


@pytest.mark.parametrize("twice", ["in the last files", "in an older one"])
async def test_rows_of_one_id_are_left_as_they_are(tmp_path: Path, twice: str) -> None:
    older = ("a", "c") if twice == "in an older one" else ("b", "c")
    table = await _made(tmp_path, older, *((str(number),) for number in range(20)))
    again = "a" if twice == "in an older one" else "19"
    await table.add(pa.table({"id": [again], "text": ["of a killed run"]}))
    before = await _held(table)
    await table_maintenance.merge_tail(table)
    assert await _held(table) == before
    assert await _fragments(table) == 22
    await table.delete("text = 'of a killed run'")
    await table_maintenance.merge_tail(table)
    assert await _fragments(table) == 2


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
        assert await _fragments(table) <= 5
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
    assert await _fragments(table) == 20
    monkeypatch.setattr(table_maintenance, "MERGED_BYTES", 110)
    await table_maintenance.merge_tail(table)
    assert await _fragments(table) == 11
    assert await _held(table) == before


TABLES = (schema.sources_table("default", "documents"), schema.access_table("default"))


@pytest.fixture
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_maintenance, "MANY_SOURCES", 5)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 5)
    monkeypatch.setattr(access_writer, "COMPACTED", 1)


async def _indexed(data: Path) -> list[bool]:
    """Whether the ids of sources and of records are indexed."""
    tables = [await (await connect(data)).open_table(name) for name in TABLES]
    return [
        "id" in {name for index in await table.list_indices() for name in index.columns} for table in tables
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("_many")
async def test_changes_and_purges_keep_each_source_once(small_desk: ModuleType, tmp_path: Path) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        for number in range(4):
            await writer.replace([small_desk.new_source(writer, f"s{number}", f"first {number}")])
        await writer.finish()
        assert await _indexed(tmp_path) == [False, False]
        items = [small_desk.new_source(writer, f"s{number}", f"first {number}") for number in range(4, 9)]
        await writer.replace(items)
        await writer.finish()
        assert await _indexed(tmp_path) == [True, True]

        late = small_desk.new_source(writer, "late", "first late")
        await writer.replace([small_desk.new_source(writer, "s4", "second 4"), late])
        await writer.remove([items[1].source.id])
        hidden = items[2].source.id
        await change_access(tmp_path, "default", [hidden], lambda _: Access("restricted"))
        await _check(tmp_path, items[0].source.id, items[1].source.id, hidden)
        await writer.purge()
        assert await _indexed(tmp_path) == [True, True]
    await _check(tmp_path, items[0].source.id, items[1].source.id, hidden)


async def _check(data: Path, changed: str, removed: str, hidden: str) -> None:
    table = await table_of(data)
    stored = await table.sources([changed, removed, hidden])
    assert stored.keys() == {changed, hidden}
    opened = await table.text(changed)
    assert opened
    assert opened[2] == "second 4"
    access = stored[hidden].access
    assert access
    assert access.visibility == "restricted"
    assert (await table.statistics()).sources == 9
    async with access_table(data, "default") as records:
        assert [record.present for record in (await records.of([removed])).values()] == [False]
        assert len(await records.records()) == 10


ROWS = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "uri": ["x", "it's", None, "x"],
        "present": pa.array([True, False, None, False], pa.bool_()),
    }
)
CONDITIONS: list[Condition] = [
    {},
    {"uri": "x"},
    {"uri": "it's"},
    {"present": True},
    {"present": False},
    {"id": ["d", "b", "d"], "present": False},
    {"id": []},
    {"id": ["z"]},
]


@pytest.fixture
async def bucket_table(bucket: Bucket) -> lancedb.AsyncTable:
    return await (await connect(bucket, writes=True)).create_table("t", ROWS)


async def _selected(table: lancedb.AsyncTable, condition: Condition | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await rows_of(table, ["id", "uri"], condition)).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.slow
async def test_a_condition_selects_the_same_rows_in_a_folder_and_in_a_bucket(
    bucket_table: lancedb.AsyncTable, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    here = await (await connect(tmp_path)).create_table("t", ROWS)
    for condition in CONDITIONS:
        assert await _selected(bucket_table, condition) == await _selected(here, condition), condition
    assert await _selected(bucket_table, {"id": ["d", "b"], "present": False}) == [
        {"id": "b", "uri": "it's"},
        {"id": "d", "uri": "x"},
    ]


@pytest.mark.slow
async def test_a_version_is_read_once_and_the_next_one_is_seen(
    bucket_table: lancedb.AsyncTable, bucket: Bucket, object_store: ObjectStore
) -> None:
    await _selected(bucket_table)
    before = object_store.requests.total()
    await _selected(bucket_table, {"uri": "x"})
    assert object_store.requests.total() == before
    await bucket_table.delete("id = 'a'")  # of which the rows that were kept know nothing
    assert [row["id"] for row in await _selected(bucket_table)] == ["b", "c", "d"]
    opened = await (await connect(bucket, writes=True)).open_table("t")
    before = object_store.requests.total()
    assert await _selected(opened) == await _selected(bucket_table)
    assert object_store.requests.total() == before


@pytest.mark.slow
async def test_rows_are_put_also_where_damage_has_left_an_id_twice(bucket_table: lancedb.AsyncTable) -> None:
    await bucket_table.add(ROWS.slice(0, 1))
    await upsert(bucket_table, pa.table({"id": ["b"], "uri": ["new"], "present": [True]}))
    assert [row["uri"] for row in await _selected(bucket_table) if row["id"] == "b"] == ["new"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [table_maintenance.SMALL_BYTES, 0])
async def test_rows_are_put_in_place_of_those_with_their_ids(
    bucket_table: lancedb.AsyncTable, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(table_maintenance, "SMALL_BYTES", limit)
    new = pa.table({"id": ["b", "e"], "uri": ["new", "newer"], "present": [True, True]})
    await upsert(bucket_table, new)
    expected = [("a", "x"), ("b", "new"), ("c", None), ("d", "x"), ("e", "newer")]
    opened = await (await connect(bucket)).open_table("t")
    for table in (bucket_table, opened):
        assert [(row["id"], row["uri"]) for row in await _selected(table)] == expected
    stored = (await opened.query().to_arrow()).to_pylist()
    assert sorted((row["id"], row["uri"]) for row in stored) == expected
    stats: Any = await opened.stats()
    assert stats["fragment_stats"]["num_fragments"] == (1 if limit else 2)
