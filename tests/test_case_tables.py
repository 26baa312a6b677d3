"""A table of plain cases is one item, in which each case runs and each that fails is told."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.case_tables import all_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

table = pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 3), (4, 5)])


class Failures:
    """What the fixture `subtests` would tell: the cases that failed, and how."""

    def __init__(self) -> None:
        self.told: list[tuple[dict[str, int], str]] = []

    @contextmanager
    def test(self, **case: int) -> Iterator[None]:
        try:
            yield
        except BaseException as failure:  # noqa: BLE001 as the fixture does
            self.told.append((case, type(failure).__name__))


def _told(test: Callable[..., None]) -> list[tuple[dict[str, int], str]]:
    failures = Failures()
    whole = all_cases(test)
    assert whole
    whole(cast("pytest.Subtests", failures))
    return failures.told


def test_each_case_runs_and_each_that_fails_is_told() -> None:
    calls = []

    @table
    @pytest.mark.parametrize("extra", [0, 1])
    def equal(left: int, right: int, extra: int) -> None:
        calls.append((left, right, extra))
        assert left + extra == right

    assert _told(equal) == [
        ({"left": 2, "right": 3, "extra": 0}, "AssertionError"),
        ({"left": 4, "right": 5, "extra": 0}, "AssertionError"),
        ({"left": 1, "right": 1, "extra": 1}, "AssertionError"),
    ]
    assert sorted(calls) == [(1, 1, 0), (1, 1, 1), (2, 3, 0), (2, 3, 1), (4, 5, 0), (4, 5, 1)]


def test_a_case_that_skips_or_fails_by_pytests_own_functions_ends_no_other() -> None:
    @table
    def outcome(left: int, right: int) -> None:
        if left == right:
            pytest.skip("equal")
        pytest.fail("unequal")

    assert [name for _, name in _told(outcome)] == ["Skipped", "Failed", "Failed"]


def _plain(left: int, right: int) -> None:
    assert left <= right


def _with_a_fixture(left: int, right: int, tmp_path: object) -> None:
    assert left <= right, tmp_path


async def _asynchronous(left: int, right: int) -> None:
    assert left <= right


def test_a_test_with_fixtures_marked_cases_or_a_loop_of_events_stays_many_items() -> None:
    marked = pytest.mark.parametrize(("left", "right"), [pytest.param(1, 1, marks=pytest.mark.skip)])
    indirect = pytest.mark.parametrize(("left", "right"), [(1, 1)], indirect=True)
    using = pytest.mark.usefixtures("tmp_path")
    many: list[Any] = [_plain, table(_with_a_fixture), table(_asynchronous)]
    for marks in ([marked], [indirect], [table, using], [pytest.mark.parametrize(("left", "right"), [])]):

        def test(left: int, right: int) -> None:
            assert left <= right

        for mark in marks:
            test = mark(test)
        many.append(test)
    assert [all_cases(test) for test in many] == [None] * 7


def test_the_other_marks_of_a_table_count() -> None:
    @table
    @pytest.mark.slow
    def test(left: int, right: int) -> None:
        assert left <= right

    whole = all_cases(test)
    assert [mark.name for mark in vars(whole)["pytestmark"]] == ["slow"]
