from __future__ import annotations

import os

import anyio
import pytest

from rag.errors import RefdeskError
from tests.bench.timing import BLOCK, cpu_seconds, in_blocks, interleaved, rate, rotated

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("by", "expected"), [(0, "abc"), (1, "bca"), (4, "bca"), (-1, "cab")])
def test_rotating_begins_with_another_one_each_time(by: int, expected: str) -> None:
    assert list(rotated("abc", by)) == list(expected)


@pytest.mark.anyio
async def test_calls_take_turns_after_a_first_round_that_is_not_counted() -> None:
    made: list[tuple[str, str]] = []

    async def one(query: str) -> None:
        made.append(("one", query))

    async def other(query: str) -> None:
        made.append(("other", query))

    took = await interleaved({"one": one, "other": other}, ["a", "b", "c"], 4)
    assert {name: len(times) for name, times in took.items()} == {"one": 4, "other": 4}
    assert [query for _, query in made[::2]] == [*"abc", *"abca"]
    assert [query for _, query in made[1::2]] == [*"abc", *"abca"]
    assert [name for name, _ in made[::2]] == ["other", "one", "other", "one", "other", "one", "other"]
    assert {name for name, _ in made[:2]} == {"one", "other"}


@pytest.mark.anyio
@pytest.mark.parametrize(("times", "block", "blocks"), [(2, 2, 1), (BLOCK, BLOCK, 1), (3 * BLOCK, BLOCK, 3)])
async def test_blocks_take_turns_after_a_first_one_that_is_not_counted(
    times: int, block: int, blocks: int
) -> None:
    made: list[str] = []

    async def one(query: str) -> None:
        made.append(f"one {query}")

    async def other(query: str) -> None:
        made.append(f"other {query}")

    spent = await in_blocks({"one": (one, os.getpid()), "other": (other, os.getpid())}, times, ["a", "b"])
    assert {name: (len(of.wall), len(of.cpu)) for name, of in spent.items()} == {
        "one": (times, blocks),
        "other": (times, blocks),
    }
    names = [line.partition(" ")[0] for line in made]
    starts = [names[at] for at in range(0, len(names), block)]
    assert all(names[at] == starts[at // block] for at in range(len(names)))
    assert starts == (["one", "other", "other", "one"] * (blocks + 1))[: 2 * (blocks + 1)]
    assert made[0].endswith(" a")


@pytest.mark.anyio
async def test_the_cpu_is_that_of_the_process_that_answers() -> None:
    async def busy(_query: str) -> None:
        until = cpu_seconds(os.getpid()) + 0.02
        while cpu_seconds(os.getpid()) < until:
            pass

    async def idle(_query: str) -> None:
        await anyio.sleep(0.02)

    spent = await in_blocks({"busy": (busy, os.getpid()), "idle": (idle, os.getpid())}, 4)
    assert min(spent["busy"].cpu) >= 20
    assert min(spent["idle"].wall) >= 19
    assert max(spent["idle"].cpu) < min(spent["busy"].cpu)


@pytest.mark.anyio
async def test_the_rate_is_taken_of_all_searches_and_a_failed_one_ends_it_with_its_own_error() -> None:
    made: list[str] = []

    async def search(query: str) -> None:
        made.append(query)

    assert await rate(search, 3, 10) > 0
    assert len(made) == 10

    async def fail(_query: str) -> None:
        raise RefdeskError("on purpose")

    with pytest.raises(RefdeskError, match="on purpose"):
        await rate(fail, 3, 10)
