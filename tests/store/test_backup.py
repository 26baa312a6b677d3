"""A backup is one moment of a tenant, whatever is being written; a restore is seen by open readers."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal
from rag.errors import BusyError, StoreError
from rag.search.desk import Desk
from rag.store.care.tenant_backup import back_up, checked_archive, writing_archive
from rag.store.care.tenant_restore import restore
from rag.store.read.connection import engine_errors
from rag.store.read.desk_reader import DeskReader

if TYPE_CHECKING:
    from tests.conftest import SmallDisk

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ME = Principal("default")
BACKUPS = 3


def _desk(small_desk: ModuleType, data: Path) -> Desk:
    return Desk(DeskReader(data, timeout_seconds=15), small_desk.BagOfWords(), SearchSettings())


async def _texts(desk: Desk, *sources: str) -> list[str]:
    hits = (await desk.search(ME, SearchRequest("pendulum", limit=20, sources=sources or None))).hits
    return sorted(hit.chunk.text for hit in hits)


async def test_a_backup_made_while_a_source_is_replaced_has_one_whole_version_of_it(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    saved: list[Path] = []
    replaced = [0]
    async with await small_desk.writing(tmp_path / "data") as writer:

        async def replacing() -> None:
            while len(saved) < BACKUPS:
                number = replaced[-1] + 1
                await writer.replace([small_desk.new_source(writer, "a", *small_desk.generation(number))])
                replaced.append(number)

        await writer.replace([small_desk.new_source(writer, "a", *small_desk.generation(0))])
        id_ = writer.ids.of("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replacing)
            for number in range(BACKUPS):
                while replaced[-1] < number:
                    await anyio.lowlevel.checkpoint()
                file = tmp_path / f"{number}.tar"
                await back_up(tmp_path / "data", "default", file)
                saved.append(file)
    generations = []
    for file in saved:
        data = tmp_path / file.stem
        await restore(data, checked_archive(file), "default")
        texts = await _texts(_desk(small_desk, data), id_)
        (number,) = {int(text.partition("generation")[2].split()[0]) for text in texts}
        assert texts == sorted(small_desk.generation(number))
        generations.append(number)
    assert generations == sorted(generations)
    assert generations[-1] > 0


async def test_an_open_reader_sees_the_restored_state_and_its_rights(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    data, file = tmp_path / "data", tmp_path / "desk.tar"
    async with await small_desk.writing(data) as writer:
        await writer.replace([small_desk.new_source(writer, name, f"pendulum {name}") for name in "ab"])
        id_ = writer.ids.of("a")
    await back_up(data, "default", file)
    desk = _desk(small_desk, data)
    assert await _texts(desk) == ["pendulum a", "pendulum b"]
    await small_desk.put(data, "b", "pendulum changed")
    await small_desk.recorded(data, id_, Access("restricted"))
    assert await _texts(desk) == ["pendulum changed"]
    await restore(data, checked_archive(file), "default", overwrite=True)
    assert await _texts(desk) == ["pendulum b"]
    await restore(data, checked_archive(file), "default", overwrite=True, exact=True)
    assert await _texts(desk) == ["pendulum a", "pendulum b"]
    names = [folder.name for folder in (data / "tables").iterdir() if "src_" in folder.name]
    assert len(names) == 2, names  # the chunks and the sources of one build


async def test_a_restore_doesn_t_begin_while_somebody_writes(small_desk: ModuleType, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "desk.tar"
    async with await small_desk.writing(data) as writer:
        await writer.replace([small_desk.new_source(writer, "a", "pendulum a")])
        await back_up(data, "default", file)
        with pytest.raises(BusyError):
            await restore(data, checked_archive(file), "default", overwrite=True)
    await restore(data, checked_archive(file), "default", overwrite=True)
    assert await _texts(_desk(small_desk, data)) == ["pendulum a"]


def test_a_disk_that_fills_up_while_tables_are_read_is_told_as_the_backup_s(small_disk: SmallDisk) -> None:
    """Where in a part it fills up decides whether closing the file fails, too."""
    filling, part = small_disk.folder / "filling", bytes(1 << 16)
    for room in range(1 << 12, len(part), 1 << 12):
        small_disk.fill()
        os.truncate(filling, filling.stat().st_size - room)
        with (
            pytest.raises(StoreError, match=r"The backup .* can't be written: No space left"),
            writing_archive(small_disk.folder / "x.tar") as archive,
            engine_errors("reading chunks"),
        ):
            archive.add("chunks", part)
        assert [file.name for file in small_disk.folder.iterdir()] == ["filling"]
