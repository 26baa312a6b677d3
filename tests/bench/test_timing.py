from __future__ import annotations

import pytest

from rag.bench.timing import interleaved, rate, rotated
from rag.errors import RefdeskError


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
