"""Runs the cases of a parametrised test as one item: an item takes pytest five milliseconds of CPU in all."""

from __future__ import annotations

import inspect
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Case = dict[str, Any]
    """The values of a test's parameters by their names."""

MARKED = type(pytest.param())
"""A row that has an id, or marks of its own."""


def all_cases(test: Callable[..., None]) -> Callable[[pytest.Subtests], None] | None:
    """A test that runs all cases of this one and reports each that fails; None for one that isn't so simple.

    That is a function with nothing but its parameters: a fixture is of one case alone.
    """
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    tables = [mark for mark in marks if mark.name == "parametrize"]
    names = {name for mark in tables for name in _names(mark)}
    if (
        not tables
        or any("indirect" in mark.kwargs or MARKED in map(type, mark.args[1]) for mark in tables)
        or inspect.iscoroutinefunction(test)
        or hasattr(test, "hypothesis")
        or any(mark.name == "usefixtures" for mark in marks)
        or inspect.signature(test).parameters.keys() != names
    ):
        return None
    rows = [[*_rows(mark)] for mark in tables]
    if not all(rows):  # pytest tells of a table that is empty
        return None

    def test_all(subtests: pytest.Subtests) -> None:
        __tracebackhide__ = True
        for parts in product(*rows):
            case = {name: value for part in parts for name, value in part.items()}
            try:
                test(**case)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as failure:
                with subtests.test(**case):
                    raise failure from None

    test_all.__name__, test_all.__module__ = test.__name__, test.__module__
    vars(test_all)["pytestmark"] = [mark for mark in marks if mark not in tables]
    return test_all


def _names(table: pytest.Mark) -> list[str]:
    names: str | list[str] = table.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]


def _rows(table: pytest.Mark) -> Iterator[Case]:
    names = _names(table)
    for row in table.args[1]:
        yield dict(zip(names, row if len(names) > 1 else [row], strict=True))
