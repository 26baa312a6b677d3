"""What bindings leave of a collection: each narrows, none widens, and in doubt nothing is left."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rag.access.bindings import UNBOUND, Bounds, bounds, walls
from rag.corpus import Binding, Collection, EmbedderIdentity
from rag.errors import ConfigurationError
from rag.filters.evaluators import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Value

FINAL, HR = Binding(filter={"status": "final"}), Binding(filter={"team": {"$in": ["hr"]}})
HANDBOOK = Collection(
    "default",
    "handbook",
    EmbedderIdentity("tests", "model", 2),
    "English",
    "cosine",
    datetime(2026, 1, 1, tzinfo=UTC),
    {"status": "string", "team": "string list", "year": "integer"},
)


def _admits(values: Mapping[str, Value], *bindings: Binding) -> bool:
    conditions = walls(bindings, HANDBOOK)
    return conditions is not None and all(matches(one, values) for one in conditions)


def test_without_bindings_everything_is_left() -> None:
    assert walls((), HANDBOOK) == ()
    assert walls((Binding(profile="precise", limit=3, tools=("search",)),), HANDBOOK) == ()


def test_each_binding_must_admit_a_source() -> None:
    assert _admits({"status": "final", "team": ("hr", "it")}, FINAL, HR)
    assert not _admits({"status": "final"}, FINAL, HR)
    assert not _admits({"team": ("hr",)}, FINAL, HR)


@pytest.mark.parametrize("part", ["collections", "tools"])
def test_one_string_is_no_list_of_names(part: str) -> None:
    with pytest.raises(ConfigurationError, match="tuples of names"):
        Binding(**{part: "handbook"})  # type: ignore[arg-type]
    assert getattr(Binding(**{part: ("handbook",)}), part) == ("handbook",)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [(), ("notes",), ("Handbook",), ("handbook ",), ("*",)])
def test_a_collection_that_a_binding_does_not_name_shows_nothing(names: tuple[str, ...]) -> None:
    assert walls((Binding(collections=("notes", "handbook")),), HANDBOOK) == ()
    assert walls((Binding(collections=names),), HANDBOOK) is None
    assert walls((Binding(collections=("handbook",)), Binding(collections=names)), HANDBOOK) is None


@pytest.mark.parametrize(
    "filter_",
    [
        {"owner": "ann"},  # isn't declared
        {"owner": {"$ne": "ann"}},  # every source would match it
        {"$not": {"owner": "ann"}},
        {"$or": [{"status": "final"}, {"owner": "ann"}]},
        {"year": "2020"},  # of another type
        {"status": {"$gt": "a"}},
        {"$nor": [{"status": "final"}]},
        {},
        {"$and": []},
    ],
)
def test_a_filter_that_does_not_suit_the_declared_fields_admits_nothing(filter_: dict[str, object]) -> None:
    assert walls((Binding(filter=filter_),), HANDBOOK) is None


def test_one_of_several_bindings_is_enough_where_the_operator_offers_several() -> None:
    either = Binding(any_of=(FINAL, HR, Binding(filter={"owner": "ann"}), Binding(collections=("notes",))))
    assert _admits({"status": "final"}, either)
    assert _admits({"team": ("hr",)}, either)
    assert not _admits({"status": "draft", "team": ("it",)}, either)
    assert not _admits({"team": ("hr",)}, either, FINAL)
    assert walls((Binding(any_of=(FINAL, Binding())),), HANDBOOK) == ()


@pytest.mark.parametrize("bindings", [(), (Binding(collections=("notes",)),), (Binding(filter={}),)])
def test_several_bindings_of_which_none_admits_anything_leave_nothing(bindings: tuple[Binding, ...]) -> None:
    assert walls((Binding(any_of=bindings),), HANDBOOK) is None


def test_limits_and_collections_are_those_that_all_bindings_allow() -> None:
    bindings = (Binding(limit=5, collections=("b", "a")), Binding(limit=3), Binding(collections=("c", "b")))
    assert bounds(bindings) == Bounds(("b",), (), 3)
    assert bounds(()) == UNBOUND


def test_a_profile_that_several_bindings_name_is_one() -> None:
    strict, fast = Binding(profile="strict"), Binding(profile="fast")
    assert bounds((strict, Binding(), strict)).profiles == ("strict",)
    assert bounds((strict, fast)).profiles == ("fast", "strict")


def test_bindings_that_python_takes_for_equal_are_not() -> None:
    assert Binding(filter={"year": 1}) == Binding(filter={"year": 1})
    assert len({Binding(filter={"year": value}) for value in (1, 1.0, True, "1")}) == 4
