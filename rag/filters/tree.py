"""A parsed filter: a tree of conditions on declared fields and on what every document has.

Relaxing a filter drops its top-level conditions one by one, so they can be listed, left out and named in
notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rag.corpus import FieldType


Scalar: TypeAlias = str | int | float | bool | datetime

Operator = Literal[
    "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$prefix", "$contains"
]
_EQUAL: tuple[Operator, ...] = ("$eq", "$ne", "$in", "$nin", "$exists")
_ORDERED: tuple[Operator, ...] = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists")
_TEXT: tuple[Operator, ...] = (*_EQUAL, "$prefix", "$contains")
OPERATORS: dict[FieldType, tuple[Operator, ...]] = {
    "string": _TEXT,
    "integer": _ORDERED,
    "number": _ORDERED,
    "boolean": ("$eq", "$ne", "$exists"),
    "datetime": _ORDERED,
    "string list": _TEXT,
}
"""The operators of each field type.

On lists, $eq means that the list contains the value, $in any of them, $prefix and $contains that one of its
values begins with the text or contains it. $contains takes no account of letter case.
"""

ATTRIBUTES: dict[str, FieldType] = {
    "date": "datetime",
    "path": "string",
    "title": "string",
    "section": "string list",
}
"""What can be filtered by in every collection. A declared field of the same name goes before it.

`section` is of the chunk: the headings that it stands under. The others are of the source.
"""
OF_CHUNKS = "section"


def filterable(declared: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """All that can be filtered by in a collection that declares these fields, with its types."""
    return ATTRIBUTES | dict(declared)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field is one of the values, or a list that contains one of them."""

    field: str
    type: FieldType
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The field compares to the value as the operator says."""

    field: str
    type: FieldType
    operator: Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class Like:
    """The field, or one of its values if it is a list, begins with a text or contains it."""

    field: str
    type: FieldType
    operator: Literal["$prefix", "$contains"]
    text: str


@dataclass(frozen=True, slots=True)
class Present:
    """The source has the field."""

    field: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """At least one part holds."""

    parts: tuple[Filter, ...]


Leaf: TypeAlias = OneOf | Ordered | Like | Present
Filter: TypeAlias = Leaf | Not | All | Any


def conditions(filter_: Filter) -> tuple[Filter, ...]:
    """The top-level conditions, all of which must hold."""
    return filter_.parts if isinstance(filter_, All) else (filter_,)


def without(filter_: Filter, dropped: Collection[int]) -> Filter | None:
    """The filter without the top-level conditions at these indexes; None if none remains."""
    kept = tuple(one for at, one in enumerate(conditions(filter_)) if at not in dropped)
    return (kept[0] if len(kept) == 1 else All(kept)) if kept else None


def is_on_date(filter_: Filter) -> bool:
    """Whether a condition involves a date."""
    return any(leaf.type == "datetime" for leaf in leaves(filter_))


def called(filter_: Filter) -> str:
    """A condition in words, without its values: Ordered("year", "$gte", 2020) -> "year $gte"."""
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


def _operator(leaf: Leaf) -> Operator:
    match leaf:
        case OneOf(_, _, values):
            return "$eq" if len(values) == 1 else "$in"
        case Ordered() | Like():
            return leaf.operator
        case Present():
            return "$exists"


_NEGATED: dict[Operator, Operator] = {"$eq": "$ne", "$in": "$nin", "$exists": "$exists"}


def leaves(filter_: Filter) -> Iterator[Leaf]:
    """The conditions on single fields, wherever they stand."""
    match filter_:
        case Not(part):
            yield from leaves(part)
        case All(parts) | Any(parts):
            for part in parts:
                yield from leaves(part)
        case leaf:
            yield leaf
