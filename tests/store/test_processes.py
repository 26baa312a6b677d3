"""Several processes on one data folder: commits, locks, lagging readers, kills, and panics of the engine."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.answers import Part, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.errors import BusyError
from rag.home import Home
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.desk_folder import prepare
from rag.store.write.locks import held_locks, locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from rag.answers import Mode
    from tests.store.conftest import Running

    WritingProcess = Callable[..., Running]

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ME = Principal("default")
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
KILLS = 4


def begin(process: Running) -> None:
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == b"ready\n"
    process.stdin.write(b"\n")
    process.stdin.flush()


def _desk(small_desk: ModuleType, data: Path) -> Desk:
    return Desk(DeskReader(data, timeout_seconds=15), small_desk.BagOfWords(), SearchSettings())


async def test_what_another_process_commits_is_found_by_an_open_reader(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    first = writing_process("write", tmp_path, "a", "pendulum one")
    second = writing_process("write", tmp_path, "a", "pendulum two")
    desk = _desk(small_desk, tmp_path)
    for number, process in (("one", first), ("two", second)):
        begin(process)
        assert process.wait(60) == 0
        for mode in MODES:
            (hit,) = (await desk.search(ME, SearchRequest("pendulum", mode=mode))).hits
            assert hit.chunk.text == f"pendulum {number}"


async def test_a_source_that_is_replaced_again_and_again_is_always_read_in_one_version(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    replacing = writing_process("replace", tmp_path, "a", 6)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "a", *small_desk.generation(0))])
        id_ = writer.ids.of("a")
    desk = _desk(small_desk, tmp_path)
    generations = []
    begin(replacing)
    while replacing.poll() is None:
        for mode in MODES:
            request = SearchRequest("pendulum", mode=mode, limit=20, sources=(id_,))
            hits = (await desk.search(ME, request)).hits
            texts = [hit.chunk.text for hit in hits]
            (number,) = {int(re.findall(r"generation(\d+)", text)[0]) for text in texts}
            assert set(texts) <= set(small_desk.generation(number))
            assert len(set(texts)) == len(texts)
            try:
                extract = await desk.extract(ME, f"{id_}/1", max_chars=1000, part=Part(around=50))
            except BusyError:  # replaced as often as it was read, as on a busy machine
                continue
            (number,) = {int(digits) for digits in re.findall(r"generation(\d+)", extract.text)}
            assert [chunk.text for chunk in extract.chunks] == small_desk.generation(number)
            assert all(extract.text[chunk.start : chunk.end] == chunk.text for chunk in extract.chunks)
            generations.append(number)
    assert replacing.returncode == 0
    assert generations == sorted(generations)
    assert len(set(generations)) > 3


async def test_a_writer_in_another_process_turns_this_one_away(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path):
        pass  # there is a desk to search
    replacing = writing_process("replace", tmp_path, "a", 10_000)
    begin(replacing)
    desk = _desk(small_desk, tmp_path)
    while not (await desk.search(ME, SearchRequest("pendulum", mode="dense"))).hits:
        assert replacing.poll() is None
    with pytest.raises(BusyError):
        async with await small_desk.writing(tmp_path):
            pass
    assert replacing.poll() is None
    replacing.kill()
    replacing.wait(60)
    async with await small_desk.writing(tmp_path) as writer:
        assert set(await writer.known_sources()) <= {"a", *map(str, range(99))}


async def test_ingestion_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    documents, data = tmp_path / "documents", tmp_path / "data"
    documents.mkdir()
    processes = [writing_process("ingest", data, documents) for _ in range(KILLS)]
    chance = random.Random(7)  # noqa: S311 no secret
    for number, process in enumerate(processes):
        change(documents, number)
        begin(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.6))
        process.kill()
        process.wait()
        await whole(data)
    assert -signal.SIGKILL in {process.returncode for process in processes}
    await small_desk.ingested(data, documents)
    await small_desk.ingested(tmp_path / "undisturbed", documents)
    chunks_by_uri = await whole(data)
    assert chunks_by_uri == await whole(tmp_path / "undisturbed")
    assert len(chunks_by_uri) == len(_texts(KILLS - 1))
    chunks = await (await connect(data)).open_table(schema.chunks_table("default", "documents"))
    assert await chunks.count_rows() == sum(map(len, chunks_by_uri.values()))


def _texts(number: int) -> dict[str, str]:
    """What lies in the folder in a round: in each, a third of the files change, some appear, some vanish."""
    words = "\n\n".join(f"paragraph {part} " + "word " * 80 for part in range(3))
    return {f"{n}.txt": f"{n} since {(number + n) // 3}\n\n{words}" for n in range(40) if (n + number) % 9}


def change(documents: Path, number: int) -> None:
    texts = _texts(number)
    for path in set(documents.iterdir()) - {documents / name for name in texts}:
        path.unlink()
    for name, text in texts.items():
        (documents / name).write_text(text, encoding="utf-8")


async def whole(data: Home) -> dict[str, list[str]]:
    """Every source's chunks by its URI, none of which is missing or wrong."""
    reader = DeskReader(data, timeout_seconds=15)
    chunks_by_uri = {}
    for collection in await reader.collections("default"):
        table = await reader.open(collection)
        for source in await table.listing():
            stored_text = await table.text(source.id)
            assert stored_text
            stored, _, text = stored_text
            chunks = await table.chunks_between(stored, 0, 999, "(true)")
            assert [chunk.seq for chunk in chunks] == list(range(source.chunk_count))
            assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
            chunks_by_uri[source.uri] = [chunk.text for chunk in chunks]
    return chunks_by_uri


CHANGES = 6
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
        is_last = False
        while not is_last:
            is_last = stopped.is_set()  # the last search begins when nothing is changed any more
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


@pytest.mark.parametrize("keep", [timedelta(milliseconds=1), timedelta(hours=1)])
async def test_searches_and_a_walk_in_another_process_outlast_the_pruning_of_their_versions(
    small_desk: ModuleType, started: Callable[..., Running], tmp_path: Path, keep: timedelta
) -> None:
    """Within the time that versions are kept, nothing is lost; without such a time, hardly anything."""
    is_pruned, data, script = keep < timedelta(hours=1), tmp_path / "data", tmp_path / "reader.py"
    script.write_text(READER)
    async with await small_desk.writing(data) as writer:
        await writer.replace(
            [small_desk.new_source(writer, f"s{number}", "a clock", "x") for number in range(40)]
        )
        await writer.finish()
        ids = sorted(writer.ids.of(f"s{number}") for number in range(40))
    process = started(script, data)
    assert process.stdin
    assert process.stdout
    assert process.stdout.readline() == b"begun\n"
    before = _manifests(data)
    for number in range(CHANGES):
        async with await small_desk.writing(data) as writer:
            await writer.replace([small_desk.new_source(writer, f"s{number}", "a clock", f"new {number}")])
            await writer.finish(keep)
    assert bool(before & _manifests(data)) is not is_pruned  # what the other process began with
    process.stdin.write(b"\n")
    process.stdin.flush()
    output = process.stdout.read()
    assert process.wait(60) == 0
    report = json.loads(output)
    assert report["wrong"] == []
    assert report["searches"] > report["failed"]
    # A search loses only if two compactions overtake it.
    assert report["failed"] <= (CHANGES / 2 if is_pruned else 0)
    assert report["walked"] == ids


def _manifests(data: Path) -> set[str]:
    tables = [schema.chunks_table("default", "documents"), schema.sources_table("default", "documents")]
    folders = [database_folder(data) / f"{table}.lance" / "_versions" for table in tables]
    return {str(file) for folder in folders for file in folder.glob("*.manifest")}


HOLD = """
import sys
from pathlib import Path
from rag.store.write.locks import locked
sys.argv = ["/usr/bin/refdesk-admin", "ingest", "/secret/plans"]
with locked(Path(sys.stdin.readline().strip()), "default.documents", seconds=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_names_its_holder_and_a_killed_holder_frees_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"{tmp_path}\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError) as busy, locked(tmp_path, "default.documents", seconds=0):
            pass
        assert str(busy.value).startswith(f"refdesk-admin ingest (process {holder.pid}, since 20")
        assert "secret" not in str(busy.value)
        assert held_locks(tmp_path) == {"default.documents"}
        holder.kill()
    assert held_locks(tmp_path) == set()


def test_what_a_killed_holder_left_is_not_shown_for_the_next_one(tmp_path: Path) -> None:
    prepare(tmp_path)
    note = tmp_path / "locks" / "default.access.holder"
    note.write_text("refdesk-admin purge (process 1, since 2020-01-01)")
    with locked(tmp_path, "default.access", seconds=0):
        note.unlink()  # as if the disk had been too full to write it
        with (
            pytest.raises(BusyError, match=r"^Another process is writing to"),
            locked(tmp_path, "default.access", seconds=0),
        ):
            pass
    assert not note.exists()


PROGRAM = """
import resource, sys
from pathlib import Path
import anyio
from rag.errors import StoreError
from rag.store.read.connection import connect

async def main():
    few = len([*Path("/proc/self/fd").iterdir()]) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    try:
        await connect(Path(sys.argv[1]))
    except StoreError as error:
        print(error, type(error.__cause__).__name__)

anyio.run(main)
"""


def test_an_engine_that_may_open_no_files_ends_in_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.stdout.startswith("The storage engine failed while opening the tables."), ran.stderr
    assert ran.stdout.endswith(" PanicException\n")
