"""Several processes on one data folder: what one commits another sees at once, and a kill tears nothing."""

from __future__ import annotations

import random
import re
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from rag.answers import Part, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.errors import BusyError
from rag.search.desk import Desk
from rag.store.read import schema
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from rag.answers import Mode

    WritingProcess = Callable[..., subprocess.Popen[str]]

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ME = Principal("default")
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
KILLS = 4


def _begin(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
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
        _begin(process)
        assert process.wait(60) == 0
        for mode in MODES:
            (hit,) = (await desk.search(ME, SearchRequest("pendulum", mode=mode))).hits
            assert hit.chunk.text == f"pendulum {number}"


async def test_a_source_that_is_replaced_again_and_again_is_always_read_in_one_version(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    replacing = writing_process("replace", tmp_path, "a", 40)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "a", *small_desk.generation(0))])
        id_ = writer.source_id("a")
    desk = _desk(small_desk, tmp_path)
    seen = []
    _begin(replacing)
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
            (number,) = {int(found) for found in re.findall(r"generation(\d+)", extract.text)}
            assert [one.text for one in extract.chunks] == small_desk.generation(number)
            assert all(extract.text[one.start : one.end] == one.text for one in extract.chunks)
            seen.append(number)
    assert replacing.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


async def test_a_writer_in_another_process_turns_this_one_away(
    small_desk: ModuleType, writing_process: WritingProcess, tmp_path: Path
) -> None:
    async with await small_desk.writing(tmp_path):
        pass  # there is a desk to search
    replacing = writing_process("replace", tmp_path, "a", 10_000)
    _begin(replacing)
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
        _change(documents, number)
        _begin(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.6))
        process.kill()
        process.wait()
        await _whole(data)
    assert -signal.SIGKILL in {process.returncode for process in processes}
    await small_desk.ingested(data, documents)
    await small_desk.ingested(tmp_path / "undisturbed", documents)
    found = await _whole(data)
    assert found == await _whole(tmp_path / "undisturbed")
    assert len(found) == len(_texts(KILLS - 1))
    chunks = await (await connect(data)).open_table(schema.chunks_table("default", "documents"))
    assert await chunks.count_rows() == sum(map(len, found.values()))


def _texts(number: int) -> dict[str, str]:
    """What lies in the folder in a round: in each, a third of the files change, some appear, some vanish."""
    words = "\n\n".join(f"paragraph {part} " + "word " * 80 for part in range(3))
    return {f"{n}.txt": f"{n} since {(number + n) // 3}\n\n{words}" for n in range(40) if (n + number) % 9}


def _change(documents: Path, number: int) -> None:
    texts = _texts(number)
    for path in set(documents.iterdir()) - {documents / name for name in texts}:
        path.unlink()
    for name, text in texts.items():
        (documents / name).write_text(text, encoding="utf-8")


async def _whole(data: Path) -> dict[str, list[str]]:
    """Every source's chunks by its URI, none of which is missing or wrong."""
    reader = DeskReader(data, timeout_seconds=15)
    found = {}
    for collection in await reader.collections("default"):
        table = await reader.open(collection)
        for source in await table.listing():
            read = await table.text(source.id)
            assert read
            stored, _, text = read
            chunks = await table.chunks_between(stored, 0, 999, "(true)")
            assert [chunk.seq for chunk in chunks] == list(range(source.chunk_count))
            assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
            found[source.uri] = [chunk.text for chunk in chunks]
    return found
