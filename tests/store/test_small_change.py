"""One changed document in a large collection costs what it weighs, and what it leaves behind is bounded."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import table_maintenance

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

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
    before = _files(data)
    async with await small_desk.writing(data) as writer:
        await writer.replace([small_desk.new_source(writer, f"s{number}", *_texts(word))])
        await writer.finish()
    return sum(size for path, size in _files(data).items() if path not in before)


def _texts(word: str) -> list[str]:
    return [f"{word} passage {number} {PAD}" for number in range(PASSAGES)]


def _files(data: Path) -> dict[str, int]:
    walked = os.walk(database_folder(data))
    paths = [os.path.join(parent, name) for parent, _, names in walked for name in names]  # noqa: PTH118 a walk
    return {path: os.stat(path).st_size for path in paths}  # noqa: PTH116 the same


async def _unindexed(data: Path) -> int:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    return (await (await reader.open(collection)).statistics()).unindexed


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_a_changed_document_is_found_at_once_and_costs_what_it_weighs_until_there_are_many(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace(
            [small_desk.new_source(writer, f"s{one}", *_texts(f"first{one}")) for one in range(SOURCES)]
        )
        await writer.finish()
    assert await _unindexed(tmp_path) == 0
    whole = sum(_files(tmp_path).values())

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
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace(
            [small_desk.new_source(writer, f"s{one}", *_texts(f"first{one}")) for one in range(SOURCES)]
        )
        await writer.finish()
    indexed: list[object] = []
    monkeypatch.setattr(table_maintenance, "_index_vectors", indexed.append)
    for number in range(6):
        await _changed(small_desk, tmp_path, number, f"word{number}")
    assert await _unindexed(tmp_path) == 0
    chunks: Any = await (await connect(tmp_path)).open_table(schema.chunks_table("default", "documents"))
    (index,) = [one for one in await chunks.list_indices() if one.columns == ["vector"]]
    assert index.num_segments == 2
    assert (await chunks.stats())["fragment_stats"]["num_fragments"] == 2
    assert indexed == []
    ids = (await chunks.query().select(["id"]).to_arrow())["id"].to_pylist()
    assert len({*ids}) == len(ids) == SOURCES * PASSAGES


@pytest.mark.slow
@pytest.mark.usefixtures("large")
async def test_old_versions_and_small_files_don_t_build_up(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "MAX_OLD_VERSIONS", 6)
    monkeypatch.setattr(table_maintenance, "KEPT_VERSIONS", timedelta(milliseconds=1))
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace(
            [small_desk.new_source(writer, f"s{one}", *_texts("first")) for one in range(SOURCES)]
        )
        await writer.finish()
    folders = [one for one in database_folder(tmp_path).iterdir() if one.name[:6] in {"chunks", "source"}]
    for _ in range(10):
        await _changed(small_desk, tmp_path, 1, "astrolabe")
        assert all(
            table_maintenance.old_versions(folder) <= 6 + 1 for folder in folders
        )  # and the present one
