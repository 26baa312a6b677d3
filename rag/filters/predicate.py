"""Compiles a filter to SQL for the storage engine. SQL literals are written here, too."""

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
    """The filter as SQL, in parentheses: true for the rows that satisfy it, false or null for all others.

    `declared` are the fields that the table has columns for, named by `column`; no source has any other
    field. `negated` compiles the opposite.

    A NOT around a whole expression would be wrong, because NOT null is null: it would lose the rows that lack
    a field. So negation is pushed down to single conditions (De Morgan), where null is tested explicitly.
    That form can also use the indexes.
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
    """A value as an SQL literal. In the engine's strings only the quote is special; it is doubled."""
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
    """A moment as tables store it: microseconds since 1970 in UTC. The engine's own literals end in 2262."""
    return (moment - EPOCH) // timedelta(microseconds=1)
