"""Where there are many sources, ids of sources and of records are indexed, and that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.corpus import Access
from rag.store.read import schema
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.write import access_writer, table_maintenance
from rag.store.write.access_writer import access_table, change_access

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytestmark = pytest.mark.anyio

TABLES = (schema.sources_table("default", "documents"), schema.access_table("default"))


@pytest.fixture(autouse=True)
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_maintenance, "MANY_SOURCES", 5)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 5)
    monkeypatch.setattr(access_writer, "COMPACTED", 1)


async def _indexed(data: Path) -> list[bool]:
    """Whether the ids of sources and of records are indexed."""
    tables = [await (await connect(data)).open_table(name) for name in TABLES]
    return ["id" in {name for one in await table.list_indices() for name in one.columns} for table in tables]


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
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    table = await reader.open(collection)
    found = await table.sources([changed, removed, hidden])
    assert found.keys() == {changed, hidden}
    opened = await table.text(changed)
    assert opened
    assert opened[2] == "second 4"
    access = found[hidden].access
    assert access
    assert access.visibility == "restricted"
    assert (await table.statistics()).sources == 9
    async with access_table(data, "default") as records:
        assert [one.present for one in (await records.of([removed])).values()] == [False]
        assert len(await records.records()) == 10
