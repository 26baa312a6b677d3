"""Readers in another process that lag behind while versions of the tables are pruned."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from rag.store.read import schema
from rag.store.read.connection import database_folder

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CHANGES = 12
READER = """
import json, sys
from pathlib import Path

import anyio

import rag.store
from rag.errors import StoreError
from rag.store.read.desk_reader import DeskReader

ALL = "(true)"


async def main():
    reader = DeskReader(Path(sys.argv[1]), timeout_seconds=60)
    (collection,) = await reader.collections("default")
    table = await reader.open(collection)
    walk = table.source_batches(ALL, ["id"], 5)
    walked = {id_ for id_ in (await anext(walk))["id"].to_pylist()}
    print("begun", flush=True)
    count, failed, wrong = 0, 0, []
    async with anyio.create_task_group() as tasks:
        stopped = anyio.Event()

        async def until_told():
            await anyio.to_thread.run_sync(sys.stdin.readline)
            stopped.set()

        tasks.start_soon(until_told)
        while not stopped.is_set():
            count += 1
            try:
                found = await table.sparse("clock", 5, ALL)
            except StoreError:  # its second version was pruned, too
                failed += 1
                continue
            if len(found) != 5:
                wrong.append(len(found))
    async for batch in walk:
        walked |= {*batch["id"].to_pylist()}
    found = {"searches": count, "failed": failed, "wrong": wrong, "walked": sorted(walked)}
    print(json.dumps(found), flush=True)


anyio.run(main)
"""


@pytest.mark.parametrize("keep", [timedelta(milliseconds=1), timedelta(minutes=1)])
async def test_searches_and_a_walk_in_another_process_outlast_the_pruning_of_their_versions(
    small_desk: ModuleType, tmp_path: Path, keep: timedelta
) -> None:
    """With the shortest time that can be set, nothing is lost; without any, hardly anything."""
    is_pruned = keep < timedelta(minutes=1)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, f"s{one}", "a clock", "x") for one in range(40)])
        await writer.finish()
        ids = sorted(writer.source_id(f"s{one}") for one in range(40))
    arguments = [sys.executable, "-c", READER, str(tmp_path)]
    with subprocess.Popen(  # noqa: ASYNC220 nothing else runs here meanwhile
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        before = _manifests(tmp_path)
        for one in range(CHANGES):
            async with await small_desk.writing(tmp_path) as writer:
                await writer.replace([small_desk.new_source(writer, f"s{one}", "a clock", f"new {one}")])
                await writer.finish(keep)
        assert bool(before & _manifests(tmp_path)) is not is_pruned  # what the other process began with
        output, _ = process.communicate("\n")
    assert process.returncode == 0
    found = json.loads(output)
    assert found["wrong"] == []
    assert found["searches"] > found["failed"]
    # A search loses only if two compactions overtake it.
    assert found["failed"] <= (CHANGES / 2 if is_pruned else 0)
    assert found["walked"] == ids


def _manifests(data: Path) -> set[str]:
    tables = [schema.chunks_table("default", "documents"), schema.sources_table("default", "documents")]
    folders = [database_folder(data) / f"{table}.lance" / "_versions" for table in tables]
    return {str(file) for folder in folders for file in folder.glob("*.manifest")}
