"""A filter as the engine's predicate. The one place that writes filters in SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rag.filters.tree import All, Any, Not, OneOf, Ordered, Present

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from rag.filters.tree import Filter, Operator, Scalar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS: dict[Operator, str] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def predicate(filter_: Filter, declared: Container[str], column: Callable[[str], str]) -> str:
    """The filter in the engine's SQL, whole in parentheses, and true or false for every row.

    `declared` are the fields that the table has columns for, named by `column`; every source
    lacks the others.
    """
    match filter_:
        case Not(part):
            return f"(NOT {predicate(part, declared, column)})"
        case All(parts) | Any(parts):
            word = " AND " if isinstance(filter_, All) else " OR "
            return f"({word.join(predicate(part, declared, column) for part in parts)})"
        case leaf if leaf.field in declared:
            return _leaf(leaf, column(leaf.field))
        case _:
            return "(false)"


def _leaf(leaf: OneOf | Ordered | Present, column: str) -> str:
    match leaf:
        case Present():
            return f"({column} IS NOT NULL)"
        case OneOf(_, "string list", values):
            return f"coalesce(array_has_any({column}, [{_literals(values)}]), false)"
        case OneOf(_, _, values):
            return f"coalesce({column} IN ({_literals(values)}), false)"
        case Ordered(_, _, comparison, value):
            return f"coalesce({column} {_SIGNS[comparison]} {literal(value)}, false)"


def _literals(values: tuple[Scalar, ...]) -> str:
    return ", ".join(map(literal, values))


def literal(value: Scalar) -> str:
    """A value in the engine's SQL, where nothing in a string but the quote itself is special."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case int():
            return f"{value:d}"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case datetime():
            return str(microseconds(value))


def microseconds(moment: datetime) -> int:
    """A moment as tables hold it: since 1970 in UTC, exact. The engine's own literals end in 2262."""
    return (moment - EPOCH) // timedelta(microseconds=1)
