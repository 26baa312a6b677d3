"""How far preparing may be ahead of writing."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from rag.ingest.work_limits import LARGE_CHARACTERS, SMALL_CHARACTERS, BackPressure, lanes

pytestmark = pytest.mark.anyio
SMALL = SMALL_CHARACTERS // 5  # of these, six are more than there is room for


class Waiting:
    """Lets documents in one after another, and notes which are in."""

    def __init__(self, width: int = 1) -> None:
        self.ahead = BackPressure(width)
        self.entered: list[str] = []

    async def let_in(self, *documents: tuple[str, int]) -> None:
        for uri, size in documents:
            await self.ahead.enter(uri, size)
            self.entered.append(uri)


async def settled() -> None:
    """Let the other tasks go as far as they can."""
    for _ in range(10):
        await checkpoint()


async def test_small_documents_wait_when_together_they_are_too_many() -> None:
    waiting = Waiting()
    assert SMALL < LARGE_CHARACTERS
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, *[(str(number), SMALL) for number in range(8)])
            await settled()
            assert waiting.entered == ["0", "1", "2", "3", "4", "5"]
            waiting.ahead.leave("3")
            await settled()
            assert waiting.entered[6:] == ["6"]
            waiting.ahead.leave("0")
            await settled()
            assert waiting.entered[7:] == ["7"]


async def test_a_large_document_waits_for_the_one_before_it_and_not_for_small_ones() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                waiting.let_in, ("a", 1), ("b", 10**9), ("c", 1), ("d", LARGE_CHARACTERS), ("e", 1)
            )
            await settled()
            assert waiting.entered == ["a", "b", "c"]
            waiting.ahead.leave("b")
            await settled()
            assert waiting.entered == ["a", "b", "c", "d", "e"]


async def test_a_large_file_with_little_text_makes_room_for_another_one() -> None:
    ahead = BackPressure()
    with anyio.fail_after(30):
        await ahead.enter("scan.pdf", 10**9)
        await ahead.enter("scan.pdf", 100)
        await ahead.enter("other.pdf", 10**9)
        await ahead.enter("other.pdf", 10**8)  # as its text is, too; it doesn't wait for itself


async def test_all_that_wait_are_let_in_when_there_is_room() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, ("a", 10**9), ("b", 10**9))
            tasks.start_soon(waiting.let_in, *[(str(number), SMALL) for number in range(7)])
            await settled()
            assert waiting.entered == ["a", "0", "1", "2", "3", "4", "5"]
            waiting.ahead.leave("0")
            await settled()
            waiting.ahead.leave("a")
            await settled()
            assert waiting.entered[7:] == ["6", "b"]


def test_large_files_and_their_parts_have_a_lane_of_their_own() -> None:
    sizes = {"a": 1, "b.eml": LARGE_CHARACTERS, "b.eml#x": 1, "c.zip#y": LARGE_CHARACTERS, "d": 2}
    assert lanes(sizes, sizes) == [[["a"], ["c.zip#y"], ["d"]], [["b.eml", "b.eml#x"]]]
    assert lanes([], {}) == []


async def test_with_more_workers_more_documents_are_let_in() -> None:
    waiting = Waiting(width=3)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            large = [(str(number), LARGE_CHARACTERS) for number in range(5)]
            tasks.start_soon(waiting.let_in, *large)
            await settled()
            assert waiting.entered == ["0", "1", "2"]
            waiting.ahead.leave("1")
            await settled()
            assert waiting.entered == ["0", "1", "2", "3"]
            waiting.ahead.open()


async def test_when_nothing_is_written_any_more_nobody_waits() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, ("a", 10**9), ("b", 10**9), ("c", 10**9))
            await settled()
            assert waiting.entered == ["a"]
            waiting.ahead.open()
