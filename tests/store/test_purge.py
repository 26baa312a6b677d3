"""A purge leaves nothing of what was removed, in no file, version or index, and all the rest as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from rag.store.read import schema
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import evaluation_runs, table_maintenance

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import lancedb

    from rag.store.read.collection_reader import CollectionReader

pytestmark = pytest.mark.anyio

CANARY = "zanzibarite"
HUGE = "x" * 100


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def _fill(small: ModuleType, data: Path, *, sources: int = 40, replaced: bool = True) -> None:
    """Sources of which one, of many, holds the canary in each of its texts; it is removed again."""
    async with await small.writing(data) as writer:
        kept = [
            small.new_source(writer, f"kept {number}", f"pendulum {number}", HUGE)
            for number in range(sources)
        ]
        said = {"metadata": {"said": CANARY}, "url": f"https://{CANARY}"}
        canary = small.new_source(writer, CANARY, f"{CANARY} one", f"{CANARY} two", **said)
        await writer.replace([*kept, canary])
        await writer.finish()
        if replaced:
            await writer.replace([small.new_source(writer, CANARY, f"pendulum {CANARY} three"), kept[0]])
            await writer.finish()
        await writer.remove([canary.source.id])
        await writer.finish()


async def _purge(small: ModuleType, data: Path) -> None:
    async with await small.writing(data) as writer:
        await writer.purge()


async def _tables(data: Path) -> list[lancedb.AsyncTable]:
    database = await connect(data)
    return [
        await database.open_table(name("default", "documents"))
        for name in (schema.chunks_table, schema.sources_table)
    ]


def _files_with(data: Path, word: str) -> list[str]:
    files = (file for file in data.rglob("*") if file.is_file())
    return [str(file.relative_to(data)) for file in files if word.encode() in file.read_bytes()]


async def _versions_with(table: lancedb.AsyncTable, word: str) -> list[int]:
    """The versions in which a row holds the word, decoded."""
    found = []
    for version in await _versions(table):
        await table.checkout(version)
        if word in str((await table.query().to_arrow()).to_pylist()):
            found.append(version)
    await table.checkout_latest()  # type: ignore[no-untyped-call]  # the engine's
    return found


async def _versions(table: lancedb.AsyncTable) -> list[int]:
    return [one["version"] for one in await table.list_versions()]  # type: ignore[no-untyped-call]  # the engine's


async def _reader(data: Path) -> CollectionReader:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    return await reader.open(collection)


@pytest.mark.parametrize("replaced", [False, True])
async def test_what_was_removed_is_in_no_file_no_version_and_no_index(
    small_desk: ModuleType, data: Path, *, replaced: bool
) -> None:
    await _fill(small_desk, data, replaced=replaced)
    assert _files_with(data, CANARY)
    for table in await _tables(data):
        assert await _versions_with(table, CANARY)

    await _purge(small_desk, data)
    assert _files_with(data, CANARY) == []
    for table in await _tables(data):
        assert len(await _versions(table)) == 1
        assert await _versions_with(table, CANARY) == []
        folder = database_folder(data) / f"{table.name}.lance"
        stats: Any = await table.stats()
        assert len(list((folder / "data").iterdir())) == stats["fragment_stats"]["num_fragments"]
        assert len(list((folder / "_indices").glob("*"))) == len(list(await table.list_indices()))
    reader = await _reader(data)
    assert len(await reader.sparse("pendulum", 99, "(true)")) == 40
    assert await reader.sparse(CANARY, 99, "(true)") == []


@pytest.mark.slow
async def test_what_stays_is_as_it_was_and_indexed(
    small_desk: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 256)
    await _fill(small_desk, data, sources=300)
    before = [await _rows(table) for table in await _tables(data)]
    indexes = (await (await _reader(data)).statistics()).indexes
    assert len(indexes) == 6
    await _purge(small_desk, data)
    assert [await _rows(table) for table in await _tables(data)] == before
    after = await (await _reader(data)).statistics()
    assert (after.indexes, after.unindexed) == (indexes, 0)


async def _rows(table: lancedb.AsyncTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await table.query().to_arrow()).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.slow
async def test_searches_go_on_while_it_works(small_desk: ModuleType, data: Path) -> None:
    await _fill(small_desk, data)
    reader = await _reader(data)
    (vector,) = small_desk.vectors(["pendulum"])
    answers: list[tuple[int, int]] = []

    async def ask(done: anyio.Event) -> None:
        while not done.is_set():
            dense = await reader.dense(vector, 99, "(true)")
            answers.append((len(dense), len(await reader.sparse("pendulum", 99, "(true)"))))

    async with anyio.create_task_group() as tasks:
        done = anyio.Event()
        tasks.start_soon(ask, done)
        for _ in range(5):
            await _purge(small_desk, data)
        done.set()
    assert set(answers) == {(80, 40)}


async def test_an_empty_collection_and_one_that_was_never_changed_can_be_purged(
    small_desk: ModuleType, data: Path
) -> None:
    for _ in range(2):
        await _purge(small_desk, data)
    assert (await (await _reader(data)).statistics()).chunks == 0


async def test_the_runs_of_a_removed_tenant_are_in_no_file(data: Path) -> None:
    for tenant, word in [("acme", CANARY), ("beta", "kept")]:
        await evaluation_runs.save_runs(data, tenant, [evaluation_runs.StoredRun(f'"{word}"', "[]")])
    assert _files_with(data, CANARY)
    await evaluation_runs.drop_runs(data, "acme")
    assert _files_with(data, CANARY) == []
    assert await evaluation_runs.run_summaries(data, "acme") == {}
    assert await evaluation_runs.run_summaries(data, "beta") == {2: '"kept"'}
