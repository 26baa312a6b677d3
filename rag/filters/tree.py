"""What a filter is once it is parsed: a tree of conditions on declared fields.

A filter's conditions one by one: what of it can be left out, and how it is called in a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rag.corpus import FieldType


Scalar: TypeAlias = str | int | float | bool | datetime

Operator = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists"]
_EQUAL: tuple[Operator, ...] = ("$eq", "$ne", "$in", "$nin", "$exists")
_ORDERED: tuple[Operator, ...] = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists")
OPERATORS: dict[FieldType, tuple[Operator, ...]] = {
    "string": _EQUAL,
    "integer": _ORDERED,
    "number": _ORDERED,
    "boolean": ("$eq", "$ne", "$exists"),
    "datetime": _ORDERED,
    "string list": _EQUAL,
}
"""What each type of field can be asked. On lists, $eq means holds it, and $in holds one of them."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is one of the values; of a list, one of its items is."""

    field: str
    type: FieldType
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The field is greater or less than the value."""

    field: str
    type: FieldType
    operator: Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class Present:
    """The source has the field."""

    field: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Not:
    """The part doesn't hold."""

    part: Filter


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """One of the parts holds."""

    parts: tuple[Filter, ...]


Filter: TypeAlias = OneOf | Ordered | Present | Not | All | Any


def conditions(filter_: Filter) -> tuple[Filter, ...]:
    """The parts that must all hold."""
    return filter_.parts if isinstance(filter_, All) else (filter_,)


def without(filter_: Filter, left_out: Collection[int]) -> Filter | None:
    """The filter without the conditions of these positions; None if none remains."""
    kept = tuple(one for at, one in enumerate(conditions(filter_)) if at not in left_out)
    return (kept[0] if len(kept) == 1 else All(kept)) if kept else None


def is_on_date(filter_: Filter) -> bool:
    """Whether a condition asks about a date, among other things or alone."""
    return any(leaf.type == "datetime" for leaf in _leaves(filter_))


def called(filter_: Filter) -> str:
    """A condition without its values: Ordered("year", "$gte", 2020) -> "year $gte"."""
    match filter_:
        case Not(OneOf() | Present() as leaf):
            return f"{leaf.field} {_NEGATED[_operator(leaf)]}"
        case Not(part):
            return f"$not ({called(part)})"
        case All(parts) | Any(parts):
            word = "$and" if isinstance(filter_, All) else "$or"
            return f"{word} ({', '.join(map(called, parts))})"
        case leaf:
            return f"{leaf.field} {_operator(leaf)}"


def _operator(leaf: OneOf | Ordered | Present) -> Operator:
    match leaf:
        case OneOf(_, _, values):
            return "$eq" if len(values) == 1 else "$in"
        case Ordered():
            return leaf.operator
        case Present():
            return "$exists"


_NEGATED: dict[Operator, Operator] = {"$eq": "$ne", "$in": "$nin", "$exists": "$exists"}


def _leaves(filter_: Filter) -> Iterator[OneOf | Ordered | Present]:
    match filter_:
        case Not(part):
            yield from _leaves(part)
        case All(parts) | Any(parts):
            for part in parts:
                yield from _leaves(part)
        case leaf:
            yield leaf
