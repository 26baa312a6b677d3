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


def predicate(
    filter_: Filter, declared: Container[str], column: Callable[[str], str], *, negated: bool = False
) -> str:
    """The filter in the engine's SQL, whole in parentheses, true for the rows that satisfy it.

    For the others it is false or null, which leave a row out alike, since nothing but conditions is
    negated, and those in a way that indexes can serve. `declared` are the fields that the table has
    columns for, named by `column`; every source lacks the others. `negated` gives the contrary.
    """
    match filter_:
        case Not(part):
            return predicate(part, declared, column, negated=not negated)
        case All(parts) | Any(parts):
            word = " OR " if isinstance(filter_, Any) != negated else " AND "
            return f"({word.join(predicate(part, declared, column, negated=negated) for part in parts)})"
        case leaf if leaf.field in declared:
            condition = _leaf(leaf, column(leaf.field))
            return f"({column(leaf.field)} IS NULL OR (NOT {condition}))" if negated else condition
        case _:
            return "(true)" if negated else "(false)"


def _leaf(leaf: OneOf | Ordered | Present, column: str) -> str:
    match leaf:
        case Present():
            return f"({column} IS NOT NULL)"
        case OneOf(_, "string list", values):
            return f"(array_has_any({column}, [{_literals(values)}]))"
        case OneOf(_, _, values):
            return f"({column} IN ({_literals(values)}))"
        case Ordered(_, _, comparison, value):
            return f"({column} {_SIGNS[comparison]} {literal(value)})"


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
