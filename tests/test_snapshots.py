"""Folders that tests fill alike: what is copied is what would be made, and each test has its own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from rag.corpus import Access, Principal
from rag.store.write.desk_folder import RESERVE_BYTES, reserve_file
from tests.search.conftest import Shelf

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tests.conftest import Scripts
    from tests.snapshots import Snapshots

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ONLY_ANN = Access("restricted", frozenset({"user:ann"}))


@pytest.fixture
def shelves(small_desk: ModuleType, snapshots: Snapshots, tmp_path: Path) -> list[Shelf]:
    fresh = type(snapshots)(tmp_path)  # nothing was made here by other tests
    return [Shelf(small_desk, tmp_path / f"shelf {number}", fresh) for number in range(3)]


async def _titles(shelf: Shelf, principal: Principal | None = None) -> list[str]:
    listed = await shelf.desk().sources(principal or Principal("default"), after=("", ""), limit=9)
    return sorted(source.title for source in listed)


async def test_the_same_change_of_the_same_files_is_made_once(shelves: list[Shelf]) -> None:
    numbers: list[int] = []

    async def fill(shelf: Shelf, number: int) -> int:
        async def store() -> int:
            await shelf.small.put(shelf.data, "a", "pendulum")
            numbers.append(number)
            return number

        return await shelf.snapshots.changed(shelf.data, "a", store)

    assert [await fill(shelf, number) for number, shelf in enumerate(shelves)] == [0, 0, 0]
    assert numbers == [0]
    assert [await _titles(shelf) for shelf in shelves] == [["a"]] * 3


async def test_what_is_put_later_into_one_folder_is_not_in_another(shelves: list[Shelf]) -> None:
    first, second, _ = shelves
    for shelf in (first, second):
        await shelf.put("a", "pendulum")
    await first.put("b", "clock")
    assert (await _titles(first), await _titles(second)) == (["a", "b"], ["a"])
    await second.put("b", "clock", access=ONLY_ANN)
    assert await _titles(second) == ["a"]
    assert await _titles(second, Principal("default", "ann")) == ["a", "b"]


async def test_what_others_wrote_meanwhile_stays(shelves: list[Shelf]) -> None:
    first, second, _ = shelves
    for shelf in (first, second):
        await shelf.put("a", "pendulum")
    await second.small.put(second.data, "meanwhile", "clock")
    for shelf in (first, second):
        await shelf.put("b", "clock")
    assert await _titles(first) == ["a", "b"]
    assert await _titles(second) == ["a", "b", "meanwhile"]


async def test_a_copy_has_a_whole_reserve_and_can_be_written(shelves: list[Shelf]) -> None:
    for shelf in shelves[:2]:
        await shelf.put("a", "pendulum")
        assert reserve_file(shelf.data).stat().st_blocks * 512 >= RESERVE_BYTES
    async with await shelves[1].small.writing(shelves[1].data) as writer:
        await writer.remove([writer.ids.of("a")])
    assert [await _titles(shelf) for shelf in shelves[:2]] == [["a"], []]


async def test_commands_are_forked_although_this_process_has_loaded_a_model(scripts: Scripts) -> None:
    importlib.import_module("rag.models.text_encoder")
    assert scripts.forks.can_run(scripts.environment)
    assert scripts.forks.can_run(
        scripts.environment | {"REFDESK_LIMIT": "3", "AWS_ENDPOINT": "http://127.0.0.1"}
    )
    of_a_server_here = {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # it stays in the environment of this process
    assert scripts.forks.can_run(scripts.environment | of_a_server_here)
    assert not scripts.forks.can_run(scripts.environment | {"LD_PRELOAD": "clock.so"})
