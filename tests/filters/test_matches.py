"""The meaning of filters: two-valued logic, in which a missing field has no value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.filters.evaluators import matches
from rag.filters.grammar import OPERATORS, parse_filter

if TYPE_CHECKING:
    from rag.corpus import FieldType, Value

FIELDS: dict[str, FieldType] = {
    "status": "string",
    "year": "integer",
    "price": "number",
    "final": "boolean",
    "due": "datetime",
    "tags": "string list",
}
DAY = datetime(2024, 5, 1, tzinfo=UTC)
SAME: dict[str, tuple[object, Value]] = {
    "status": ("final", "final"),
    "year": (2001, 2001),
    "price": (1.5, 1.5),
    "final": (False, False),
    "due": ("2024-05-01", DAY),
    "tags": ("final", ("draft", "final")),
}


def _holds(condition: object, values: dict[str, Value], field: str = "status") -> bool:
    return matches(parse_filter({field: condition}, FIELDS), values)


@pytest.mark.parametrize(
    ("condition", "missing", "same", "other", "empty"),
    [
        ({"$eq": "final"}, False, True, False, False),
        ({"$ne": "final"}, True, False, True, True),
        ({"$in": ["final", "old"]}, False, True, False, False),
        ({"$nin": ["final", "old"]}, True, False, True, True),
        ({"$exists": True}, False, True, True, True),
        ({"$exists": False}, True, False, False, False),
        ({"$eq": ""}, False, False, False, True),
        ({"$ne": ""}, True, True, True, False),
        ({"$in": ["", "old"]}, False, False, False, True),
        ({"$nin": ["", "old"]}, True, True, True, False),
    ],
    ids=str,
)
def test_strings_and_lists_of_strings(
    condition: object, *, missing: bool, same: bool, other: bool, empty: bool
) -> None:
    values: list[dict[str, Value]] = [{}, {"status": "final"}, {"status": "Final"}, {"status": ""}]
    assert [_holds(condition, one) for one in values] == [missing, same, other, empty]
    lists: list[dict[str, Value]] = [{}, {"tags": ("x", "final")}, {"tags": ("Final", "y")}, {"tags": ("",)}]
    assert [_holds(condition, one, "tags") for one in lists] == [missing, same, other, empty]


@pytest.mark.parametrize(
    ("operator", "missing", "less", "same", "more"),
    [
        ("$eq", False, False, True, False),
        ("$ne", True, True, False, True),
        ("$gt", False, False, False, True),
        ("$gte", False, False, True, True),
        ("$lt", False, True, False, False),
        ("$lte", False, True, True, False),
    ],
)
@pytest.mark.parametrize(
    ("field", "bound", "values"),
    [
        ("year", 0, (-1, 0, 1)),
        ("price", 0, (-0.5, 0.0, 0.5)),
        ("due", "2024-05-01", (DAY.replace(year=1969), DAY, DAY.replace(microsecond=1))),
    ],
)
def test_numbers_and_dates(  # noqa: PLR0913 the columns of the table
    field: str,
    bound: object,
    values: tuple[Value, Value, Value],
    operator: str,
    *,
    missing: bool,
    less: bool,
    same: bool,
    more: bool,
) -> None:
    found = [_holds({operator: bound}, one, field) for one in ({}, *({field: value} for value in values))]
    assert found == [missing, less, same, more]


@pytest.mark.parametrize("wanted", [True, False])
def test_false_is_a_value_and_not_a_missing_one(*, wanted: bool) -> None:
    values: list[dict[str, Value]] = [{}, {"final": wanted}, {"final": not wanted}]
    assert [_holds(wanted, one, "final") for one in values] == [False, True, False]
    assert [_holds({"$ne": wanted}, one, "final") for one in values] == [True, False, True]
    assert [_holds({"$exists": True}, one, "final") for one in values] == [False, True, True]


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_satisfies_only_what_denies_something(field: str) -> None:
    wanted, _ = SAME[field]
    conditions = dict[str, object](dict.fromkeys(OPERATORS[FIELDS[field]], wanted))
    conditions |= {operator: [wanted] for operator in ("$in", "$nin") if operator in conditions}
    held = {
        operator
        for operator, value in conditions.items()
        if operator != "$exists" and _holds({operator: value}, {}, field)
    }
    assert held == {"$ne", "$nin"} & conditions.keys()
    assert matches(parse_filter({"$not": {field: wanted}}, FIELDS), {})


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_there_is_found(field: str) -> None:
    wanted, there = SAME[field]
    assert _holds(wanted, {field: there}, field)
    assert not _holds({"$ne": wanted}, {field: there}, field)


def test_a_group_of_all_and_a_group_of_any() -> None:
    both = [{"year": 2001}, {"final": True}]
    sources: list[dict[str, Value]] = [{}, {"year": 2001}, {"final": True}, {"year": 2001, "final": True}]
    found = {
        key: [matches(parse_filter({key: both}, FIELDS), one) for one in sources] for key in ("$and", "$or")
    }
    assert found == {"$and": [False, False, False, True], "$or": [False, True, True, True]}


_TEXTS = st.sampled_from(["", "a", "A", "b", "é"])
_SOURCES: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {}, optional={"status": _TEXTS, "tags": st.lists(_TEXTS, min_size=1, max_size=3).map(tuple)}
)


@given(
    source=_SOURCES,
    wanted=st.lists(_TEXTS, min_size=1, max_size=3),
    field=st.sampled_from(["status", "tags"]),
)
def test_negations_are_complements(source: dict[str, Value], wanted: list[str], field: str) -> None:
    among = _holds({"$in": wanted}, source, field)
    assert _holds({"$nin": wanted}, source, field) is not among
    assert _holds({"$ne": wanted[0]}, source, field) is not _holds(wanted[0], source, field)
    assert _holds({"$exists": False}, source, field) is not _holds({"$exists": True}, source, field)
    inner = {field: {"$in": wanted}}
    assert matches(parse_filter({"$not": inner}, FIELDS), source) is not among
    assert matches(parse_filter({"$not": {"$not": inner}}, FIELDS), source) is among
