"""Small tables in a bucket are read and written as a whole; what comes out of them is the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rag.home import Bucket
from rag.store.read.connection import connect
from rag.store.write import table_maintenance
from rag.store.write.table_maintenance import Condition, rows_of, upsert
from tests.bucket import ObjectStore

if TYPE_CHECKING:
    import lancedb

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
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
async def there(bucket: Bucket) -> lancedb.AsyncTable:
    return await (await connect(bucket, writes=True)).create_table("t", ROWS)


async def rows(table: lancedb.AsyncTable, condition: Condition | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await rows_of(table, ["id", "uri"], condition)).to_pylist()
    return sorted(found, key=lambda row: row["id"])


async def test_a_condition_selects_the_same_rows_in_a_folder_and_in_a_bucket(
    there: lancedb.AsyncTable, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    here = await (await connect(tmp_path)).create_table("t", ROWS)
    for condition in CONDITIONS:
        assert await rows(there, condition) == await rows(here, condition), condition
    assert await rows(there, {"id": ["d", "b"], "present": False}) == [
        {"id": "b", "uri": "it's"},
        {"id": "d", "uri": "x"},
    ]


async def test_a_version_is_read_once_and_the_next_one_is_seen(
    there: lancedb.AsyncTable, bucket: Bucket, object_store: ObjectStore
) -> None:
    await rows(there)
    asked = object_store.requests.total()
    await rows(there, {"uri": "x"})
    assert object_store.requests.total() == asked
    await there.delete("id = 'a'")  # of which the rows that were kept know nothing
    assert [row["id"] for row in await rows(there)] == ["b", "c", "d"]
    opened = await (await connect(bucket, writes=True)).open_table("t")
    asked = object_store.requests.total()
    assert await rows(opened) == await rows(there)
    assert object_store.requests.total() == asked


async def test_rows_are_put_also_where_damage_has_left_an_id_twice(there: lancedb.AsyncTable) -> None:
    await there.add(ROWS.slice(0, 1))
    await upsert(there, pa.table({"id": ["b"], "uri": ["new"], "present": [True]}))
    assert [row["uri"] for row in await rows(there) if row["id"] == "b"] == ["new"]


@pytest.mark.parametrize("limit", [table_maintenance.SMALL_BYTES, 0])
async def test_rows_are_put_in_place_of_those_with_their_ids(
    there: lancedb.AsyncTable, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(table_maintenance, "SMALL_BYTES", limit)
    new = pa.table({"id": ["b", "e"], "uri": ["new", "newer"], "present": [True, True]})
    await upsert(there, new)
    expected = [("a", "x"), ("b", "new"), ("c", None), ("d", "x"), ("e", "newer")]
    opened = await (await connect(bucket)).open_table("t")
    for table in (there, opened):
        assert [(row["id"], row["uri"]) for row in await rows(table)] == expected
    stored = (await opened.query().to_arrow()).to_pylist()
    assert sorted((row["id"], row["uri"]) for row in stored) == expected
    stats: Any = await opened.stats()
    assert stats["fragment_stats"]["num_fragments"] == (1 if limit else 2)
