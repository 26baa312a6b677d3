from __future__ import annotations

import pytest

from rag.bench.measure import interleaved, measured, p95, rotated


def test_a_measure_is_the_median_its_limit_the_limit_s_and_its_ratio_what_the_two_make() -> None:
    measure = measured("x", [3, 1, 2], "ms", [5, 4, 1])
    assert (measure.value, measure.min, measure.p95) == (2, 1, 3)
    assert (measure.limit, measure.ratio) == (4, 0.5)


@pytest.mark.parametrize("limits", [[], [0.0]])
def test_without_a_limit_there_is_no_ratio(limits: list[float]) -> None:
    assert measured("x", [3], "ms", limits).ratio is None


def test_of_an_even_number_of_values_the_median_lies_between_two() -> None:
    assert measured("x", [4, 1, 2, 9], "ms").value == 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [(range(1, 101), 95), (range(100, 0, -1), 95), (range(1, 21), 19), (range(1, 20), 19), ([7], 7)],
)
def test_ninety_five_in_a_hundred_values_do_not_exceed_p95(values: range | list[int], expected: int) -> None:
    assert p95(values) == expected


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
