"""What a filter is once it is parsed: a tree of conditions on declared fields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rag.records import FieldType

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
