"""Fields that a collection with documents declares later: filled without embedding, and as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Collection, Principal
from rag.errors import BusyError, ConfigurationError, InvalidRequestError
from rag.ingest.rework_stored import declare
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from rag.store.write import table_maintenance
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ME = Principal("default")
METADATA = {
    "leave": {"year": "2024", "tags": "hr, law", "path": "leave.md"},
    "pay": {"year": "last year", "path": "pay.md"},
    "desk": {"path": "desk.md"},
}


async def _filled_collection(small: ModuleType, data: Path) -> Collection:
    collection = await ensure_collection(data, "default", "documents", small.BagOfWords().identity)
    async with open_writer(data, collection) as writer:
        items = [
            small.new_source(writer, name, name.title(), "pendulum", metadata=metadata)
            for name, metadata in METADATA.items()
        ]
        await writer.replace(items)
        await writer.finish()
    return collection


def _desk(small: ModuleType, data: Path) -> Desk:
    return Desk(DeskReader(data, timeout_seconds=15), small.BagOfWords(), SearchSettings())


async def _uris_found_by(desk: Desk, filter_: dict[str, Any]) -> set[str]:
    answer = await desk.search(ME, SearchRequest("pendulum", filter=filter_))
    return {hit.source.uri for hit in answer.hits}


async def test_a_running_desk_filters_by_a_field_from_its_next_search_on(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    collection = await _filled_collection(small_desk, tmp_path)
    desk = _desk(small_desk, tmp_path)
    with pytest.raises(InvalidRequestError, match="no field 'year'"):
        await _uris_found_by(desk, {"year": 2024})
    declared = await declare(
        tmp_path, collection, {"year": "integer", "tags": "string list", "title": "string"}
    )
    assert declared.filled == {"year": 1, "tags": 1, "title": 3}
    ((path, complaint),) = declared.complaints
    assert (path, complaint.partition(" ")[0]) == ("pay.md", "year")
    assert await _uris_found_by(desk, {"year": {"$gte": 2000}}) == {"leave"}
    assert await _uris_found_by(desk, {"year": {"$exists": False}}) == {"pay", "desk"}
    assert await _uris_found_by(desk, {"tags": "law"}) == {"leave"}
    assert await _uris_found_by(desk, {"title": "pay"}) == {"pay"}
    assert desk.alarms == 0
    declared = await declare(tmp_path, declared.collection, {"year": "string"}, ["year", "tags"])
    assert dict(declared.collection.fields) == {"title": "string", "year": "string"}
    assert await _uris_found_by(desk, {"year": {"$prefix": "last"}}) == {"pay"}
    with pytest.raises(InvalidRequestError, match="no field 'tags'"):
        await _uris_found_by(desk, {"tags": "law"})


async def test_no_text_and_no_vector_is_written_anew_and_a_large_table_gets_an_index(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _filled_collection(small_desk, tmp_path)
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 3)
    reader = DeskReader(tmp_path, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    table = await reader.open(collection)
    before = await table.chunks([f"{source.id}/1" for source in await table.listing()], "(true)")
    declared = await declare(tmp_path, collection, {"year": "integer"})
    table = await reader.open(declared.collection)
    after = await table.chunks([chunk.id for chunk in before], "(true)")
    assert {(chunk.id, chunk.generation, chunk.body) for chunk in after} == {
        (chunk.id, chunk.generation, chunk.body) for chunk in before
    }
    assert "field_year (BTree)" in (await table.statistics()).indexes


async def test_what_an_ingestion_writes_after_it_has_the_field_whenever_it_began(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    before = await _filled_collection(small_desk, tmp_path)
    await declare(tmp_path, before, {"year": "integer"})
    async with open_writer(tmp_path, before) as writer:
        assert dict(writer.collection.fields) == {"year": "integer"}
        await writer.replace([small_desk.new_source(writer, "new", "New", "pendulum", fields={"year": 2030})])
    assert await _uris_found_by(_desk(small_desk, tmp_path), {"year": {"$gt": 2024}}) == {"new"}


async def test_a_field_that_somebody_else_declared_meanwhile_stays_as_it_is(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    collection = await _filled_collection(small_desk, tmp_path)
    await declare(tmp_path, collection, {"year": "integer"})
    with pytest.raises(ConfigurationError, match="declares year already, as integer"):
        await declare(tmp_path, collection, {"year": "string"})
    assert await _uris_found_by(_desk(small_desk, tmp_path), {"year": {"$gte": 2000}}) == {"leave"}


async def test_a_declaration_during_an_ingestion_fails_at_once_and_changes_nothing(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = await _filled_collection(small_desk, tmp_path)
    monkeypatch.setattr("rag.store.write.change_collection.WRITER_WAIT_SECONDS", 0)
    async with open_writer(tmp_path, collection):
        with pytest.raises(BusyError):
            await declare(tmp_path, collection, {"year": "integer"})
    assert (await DeskReader(tmp_path, timeout_seconds=15).collections("default"))[0].fields == {}


KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from rag.ingest.rework_stored import declare
from rag.store.write import collection_tables as columns
from rag.store.read.desk_reader import DeskReader

async def main(data, step):
    (collection,) = await DeskReader(data, timeout_seconds=15).collections("default")
    real, steps = columns.update_rows, []
    async def update(*arguments):
        if len(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.append(1)
        await real(*arguments)
    columns.update_rows = update
    if step == 2:
        import rag.ingest.rework_stored as module
        change = module._changed
        async def changed(data, collection, fields):
            if "year" in fields:
                os.kill(os.getpid(), signal.SIGKILL)
            return await change(data, collection, fields)
        module._changed = changed
    await declare(data, collection, {"year": "integer"})

for step, data in enumerate(sys.argv[1:]):
    child = os.fork()
    if not child:
        anyio.run(main, Path(data), step)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""
"""Declares a field in each of these data folders, and is killed at a later step each time.

Each of them is a fork, for the imports take longer than all else. The process itself touches no engine.
"""


@pytest.fixture(scope="module")
def killed(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The data folders in which a declaration was killed, by the step at which it was."""
    folders = [tmp_path_factory.mktemp("killed") for _ in range(3)]
    for folder in folders:
        anyio.run(_filled_collection, small_desk, folder)
    subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED, *folders], check=True)
    return folders


@pytest.mark.parametrize("step", [0, 1, 2], ids=["before sources", "before chunks", "before the catalog"])
async def test_a_killed_declaration_has_declared_nothing_and_can_be_run_again(
    small_desk: ModuleType, killed: list[Path], step: int
) -> None:
    data = killed[step]
    desk = _desk(small_desk, data)
    (collection,) = await DeskReader(data, timeout_seconds=15).collections("default")
    with pytest.raises(InvalidRequestError, match="no field 'year'"):
        await _uris_found_by(desk, {"year": 2024})
    async with open_writer(data, collection) as writer:  # an ingestion between the two
        await writer.replace(
            [small_desk.new_source(writer, "new", "New", "pendulum", metadata={"year": "2030"})]
        )
        await writer.finish()
    assert await _uris_found_by(desk, {"title": {"$exists": True}}) == {*METADATA, "new"}
    declared = await declare(data, collection, {"year": "integer"})
    assert declared.filled == {"year": 2}
    assert await _uris_found_by(desk, {"year": {"$gte": 2000}}) == {"leave", "new"}
