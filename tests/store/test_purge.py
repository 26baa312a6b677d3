"""A purge leaves nothing of what was removed, in no file, version or index, and all the rest as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from lancedb.table import AsyncTable

from rag.corpus import Access, Collection
from rag.errors import StoreError
from rag.filters.grammar import literal
from rag.store.care import folder_checks
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder, table_folder
from rag.store.write import access_writer, collection_tables, evaluation_runs, table_maintenance, table_rows
from rag.store.write.access_writer import access_table, change_access
from rag.store.write.change_collection import copy_labels
from tests.small_desk import access_in
from tests.tables import table_of

if TYPE_CHECKING:
    import lancedb

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CANARY = "zanzibarite"
HUGE = "x" * 100


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def _fill(small: ModuleType, data: Path, *, sources: int = 40, replaced: bool = True) -> None:
    """Sources of which one, of many, holds the canary in each of its texts; it is removed again."""
    async with await small.writing(data) as writer:
        remaining = [
            small.new_source(writer, f"kept {number}", f"pendulum {number}", HUGE)
            for number in range(sources)
        ]
        details = {"metadata": {"said": CANARY}, "url": f"https://{CANARY}"}
        canary = small.new_source(writer, CANARY, f"{CANARY} one", f"{CANARY} two", **details)
        await writer.replace([*remaining, canary])
        await writer.finish()
        if replaced:
            await writer.replace([small.new_source(writer, CANARY, f"pendulum {CANARY} three"), remaining[0]])
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
    versions = []
    for version in await _versions(table):
        await table.checkout(version)
        if word in str((await table.query().to_arrow()).to_pylist()):
            versions.append(version)
    await table.checkout_latest()  # type: ignore[no-untyped-call]  # the engine's
    return versions


async def _versions(table: lancedb.AsyncTable) -> list[int]:
    return [version["version"] for version in await table.list_versions()]  # type: ignore[no-untyped-call]  # the engine's


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
    reader = await table_of(data)
    assert len(await reader.sparse("pendulum", 99, "(true)")) == 40
    assert await reader.sparse(CANARY, 99, "(true)") == []


async def test_what_stays_is_as_it_was_and_indexed(
    small_desk: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 256)
    await _fill(small_desk, data, sources=300)
    before = [await _rows(table) for table in await _tables(data)]
    indexes = (await (await table_of(data)).statistics()).indexes
    assert len(indexes) == 6
    await _purge(small_desk, data)
    assert [await _rows(table) for table in await _tables(data)] == before
    after = await (await table_of(data)).statistics()
    assert (after.indexes, after.unindexed) == (indexes, 0)


async def _rows(table: lancedb.AsyncTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await table.query().to_arrow()).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


async def test_searches_go_on_while_it_works(small_desk: ModuleType, data: Path) -> None:
    await _fill(small_desk, data)
    reader = await table_of(data)
    (vector,) = small_desk.vectors(["pendulum"])
    answers: list[tuple[int, int]] = []

    async def ask(ended: anyio.Event) -> None:
        while not ended.is_set():
            dense = await reader.dense(vector, 99, "(true)")
            answers.append((len(dense), len(await reader.sparse("pendulum", 99, "(true)"))))

    async with anyio.create_task_group() as tasks:
        ended = anyio.Event()
        tasks.start_soon(ask, ended)
        for _ in range(5):
            await _purge(small_desk, data)
        ended.set()
    assert set(answers) == {(80, 40)}


async def test_an_empty_collection_and_one_that_was_never_changed_can_be_purged(
    small_desk: ModuleType, data: Path
) -> None:
    for _ in range(2):
        await _purge(small_desk, data)
    assert (await (await table_of(data)).statistics()).chunks == 0


async def test_the_runs_of_a_removed_tenant_are_in_no_file(data: Path) -> None:
    for tenant, word in [("acme", CANARY), ("beta", "kept")]:
        await evaluation_runs.save_runs(data, tenant, [evaluation_runs.StoredRun(f'"{word}"', "[]")])
    assert _files_with(data, CANARY)
    await evaluation_runs.drop_runs(data, "acme")
    assert _files_with(data, CANARY) == []
    assert await evaluation_runs.run_summaries(data, "acme") == {}
    assert await evaluation_runs.run_summaries(data, "beta") == {2: '"kept"'}


CHUNKS, SOURCES = schema.chunks_table("default", "documents"), schema.sources_table("default", "documents")
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))


async def _table(data: Path, name: str) -> Any:  # noqa: ANN401 the engine's own
    return await (await connect(data)).open_table(name)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What writers did that reads all chunks."""
    calls: list[str] = []
    count = table_rows.count_chunks

    async def count_chunks(chunks: Any) -> Any:  # noqa: ANN401 as it takes and returns
        calls.append("leftovers")
        return await count(chunks)

    monkeypatch.setattr(table_rows, "count_chunks", count_chunks)
    return calls


async def _two_documents(small_desk: ModuleType, data: Path) -> Collection:
    """Documents a and b, from a writer that ended well."""
    async with await small_desk.writing(data) as writer:
        await writer.replace([small_desk.new_source(writer, name, "one", "two") for name in "ab"])
        await writer.finish()
        collection: Collection = writer.collection
    return collection


async def _leave_chunks(data: Path) -> None:
    """What a writer leaves that is killed before it commits the rows of sources."""
    chunks = await _table(data, CHUNKS)
    rows = (await chunks.query().to_arrow()).to_pylist()
    await chunks.add([row | {"generation": "killed"} for row in rows])


async def test_after_a_writer_that_ended_well_the_next_one_does_not_read_all_chunks(
    small_desk: ModuleType, tmp_path: Path, looked: list[str]
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    looked.clear()
    async with await small_desk.writing(tmp_path) as writer:
        assert looked == []
        await writer.replace([small_desk.new_source(writer, "a", "uno")])
        await writer.finish()
    await copy_labels(tmp_path, collection)
    async with await small_desk.writing(tmp_path) as writer:
        assert looked == []
        await writer.remove([writer.ids.of("b")])
    async with await small_desk.writing(tmp_path) as writer:
        assert looked == ["leftovers"]  # its removal was never finished
        await writer.finish()
    async with await small_desk.writing(tmp_path):
        assert looked == ["leftovers"]


@pytest.mark.parametrize("between", [True, False])
async def test_a_killed_writers_chunks_are_removed_by_the_next_one_whatever_was_noted_before(
    small_desk: ModuleType, tmp_path: Path, *, between: bool
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    assert collection_tables.is_swept(tmp_path, collection)
    await _leave_chunks(tmp_path)
    if between:  # somebody who only copies labels, and looks at nothing
        await copy_labels(tmp_path, collection)
    assert not collection_tables.is_swept(tmp_path, collection)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.finish()
    assert await (await _table(tmp_path, CHUNKS)).count_rows("generation = 'killed'") == 0
    assert await (await _table(tmp_path, CHUNKS)).count_rows() == 4
    assert collection_tables.is_swept(tmp_path, collection)


async def test_changed_labels_are_copied_though_nothing_else_is_looked_at(
    small_desk: ModuleType, tmp_path: Path, looked: list[str]
) -> None:
    await _two_documents(small_desk, tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        id_ = writer.ids.of("a")
    looked.clear()
    await change_access(tmp_path, "default", [id_], lambda _before: ONLY_ANN)  # and killed before the copies
    async with await small_desk.writing(tmp_path):
        assert looked == []
    chunks = await _table(tmp_path, CHUNKS)
    assert await chunks.count_rows(f"(source_id = {literal(id_)}) AND (revision = 2)") == 2
    assert await chunks.count_rows("revision = 2") == 2


async def test_a_source_that_lacks_chunks_is_seen_until_it_is_stored_again(
    small_desk: ModuleType, tmp_path: Path, looked: list[str]
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        id_ = writer.ids.of("a")
    await (await _table(tmp_path, CHUNKS)).delete(f"id = '{id_}/1'")
    for _ in range(2):
        looked.clear()
        async with await small_desk.writing(tmp_path) as writer:
            states = await writer.known_sources()
            assert not states["a"].digest
            assert states["b"].digest
            assert "leftovers" in looked
            await writer.finish()
        assert not collection_tables.is_swept(tmp_path, collection)
    await small_desk.put(tmp_path, "a", "one", "two", finishes=True)
    async with await small_desk.writing(tmp_path) as writer:
        assert (await writer.known_sources())["a"].digest
        await writer.finish()
    assert collection_tables.is_swept(tmp_path, collection)


@pytest.mark.parametrize("step", ["replace", "remove"])
async def test_a_writer_that_goes_on_after_a_step_failed_notes_nothing(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        id_, new = writer.ids.of("a"), small_desk.new_source(writer, "a", "uno")
        with monkeypatch.context() as patched:
            patched.setattr(AsyncTable, "delete", _fails_on_chunks(AsyncTable.delete))
            with pytest.raises(StoreError):
                await (writer.replace([new]) if step == "replace" else writer.remove([id_]))
        await writer.finish()
    assert await (await _table(tmp_path, CHUNKS)).count_rows() == {"replace": 5, "remove": 4}[step]
    assert not collection_tables.is_swept(tmp_path, collection)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.finish()
    assert await (await _table(tmp_path, CHUNKS)).count_rows() == {"replace": 3, "remove": 2}[step]
    assert collection_tables.is_swept(tmp_path, collection)


def _fails_on_chunks(delete: Any) -> Any:  # noqa: ANN401 the engine's own
    async def deletes_or_fails(table: AsyncTable, where: str) -> Any:  # noqa: ANN401 as it returns
        if table.name == CHUNKS:
            raise RuntimeError("no more")
        return await delete(table, where)

    return deletes_or_fails


async def test_a_lost_record_is_replaced_by_one_that_nobody_can_see_the_source_by(
    small_desk: ModuleType, tmp_path: Path, looked: list[str]
) -> None:
    await _two_documents(small_desk, tmp_path)
    async with await small_desk.writing(tmp_path) as writer:
        id_, other_id = writer.ids.of("a"), writer.ids.of("b")
    looked.clear()
    await (await _table(tmp_path, schema.access_table("default"))).delete(f"id = {literal(id_)}")
    async with await small_desk.writing(tmp_path) as writer:
        assert looked == []
        assert await access_in(writer, [id_, other_id]) == {id_: None, other_id: Access("tenant", revision=1)}
    async with access_table(tmp_path, "default") as records:
        assert (await records.of([id_]))[id_].copied  # to the chunks, by the same writer


async def test_records_are_compared_without_an_object_for_each_unless_one_is_wrong(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _two_documents(small_desk, tmp_path)
    compared = []

    def counted(*arguments: Any) -> bool:  # noqa: ANN401 as it takes
        compared.append(real(*arguments))
        return compared[-1]

    real = access_writer.agree
    monkeypatch.setattr(access_writer, "agree", counted)
    async with await small_desk.writing(tmp_path) as writer:
        id_ = writer.ids.of("a")
    await (await _table(tmp_path, SOURCES)).delete(f"id = {literal(id_)}")  # killed before `note_removed`
    for _ in range(2):
        async with await small_desk.writing(tmp_path) as writer:
            assert not (await writer.records())[id_].present
    assert compared == [True, False, True]


def _garbage(note: Path) -> None:
    note.write_bytes(b"{")


def _of_nothing(note: Path) -> None:
    note.write_bytes(b"{}")


def _none(note: Path) -> None:
    note.unlink()


def _of_another_file(note: Path) -> None:
    note.write_bytes(note.read_bytes().replace(b"[", b'["",', 1))


@pytest.mark.parametrize("spoil", [_garbage, _of_nothing, _none, _of_another_file])
async def test_a_doubtful_note_counts_as_none(
    small_desk: ModuleType, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    assert collection_tables.is_swept(tmp_path, collection)
    spoil(tmp_path / "locks" / "default.documents.swept")
    assert not collection_tables.is_swept(tmp_path, collection)


@pytest.mark.parametrize("name", [CHUNKS, SOURCES])
async def test_a_note_is_not_one_of_a_copied_table_or_of_another_build(
    small_desk: ModuleType, tmp_path: Path, name: str
) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    assert not collection_tables.is_swept(tmp_path, replace(collection, build=1))
    newest = min((table_folder(tmp_path, name) / "_versions").glob("*.manifest"))
    content = newest.read_bytes()
    assert collection_tables.is_swept(tmp_path, collection)
    copied = newest.with_name("copied")
    copied.write_bytes(content)
    copied.replace(newest)  # the same version, from a backup of the file system
    assert not collection_tables.is_swept(tmp_path, collection)


async def test_a_disk_without_room_for_the_note_fails_no_writer(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(collection_tables, "write_whole", full)
    collection = await _two_documents(small_desk, tmp_path)
    assert not collection_tables.is_swept(tmp_path, collection)


async def test_the_doctor_looks_whatever_is_noted(small_desk: ModuleType, tmp_path: Path) -> None:
    collection = await _two_documents(small_desk, tmp_path)
    await _leave_chunks(tmp_path)
    collection_tables.note_swept(tmp_path, collection)  # which nothing does
    async with await small_desk.writing(tmp_path):
        pass
    assert await (await _table(tmp_path, CHUNKS)).count_rows() == 8

    class Desk:
        data = tmp_path

    await folder_checks.repair_collection(Desk(), collection)  # type: ignore[arg-type]
    assert await (await _table(tmp_path, CHUNKS)).count_rows() == 4


async def test_what_a_run_wrote_is_flushed_though_the_clock_was_set_back_meanwhile(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> set[str]:
        return {str(file) for file in table_folder(tmp_path, CHUNKS).rglob("data/*")}

    await _two_documents(small_desk, tmp_path)
    flushed: list[str] = []
    monkeypatch.setattr(table_maintenance, "flush", flushed.append)
    async with await small_desk.writing(tmp_path) as writer:
        before, opened = files(), time.time()
        await writer.replace([small_desk.new_source(writer, "c", "five")])
        written = files() - before
        for file in files():
            at = opened - (3600 if file in written else 7200)
            os.utime(file, (at, at))
        monkeypatch.setattr(time, "time", lambda: opened - 3600)
        await writer.finish()
    assert written
    assert written <= {*flushed}
    assert not before & {*flushed}
