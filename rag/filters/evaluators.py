"""The two evaluators of a filter: in Python, and as SQL for the storage engine.

`matches` is the reference implementation that `predicate` must agree with. SQL literals are written here,
too.
"""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from rag.corpus import Value
from rag.filters.grammar import (
    ATTRIBUTES,
    AllOf,
    AnyOf,
    Filter,
    Leaf,
    Like,
    Not,
    OneOf,
    Operator,
    Ordered,
    Present,
    Scalar,
)


def matches(filter_: Filter, values: Mapping[str, Value]) -> bool:  # noqa: PLR0911 one for each kind of node
    """Whether values of fields satisfy the filter."""
    match filter_:
        case OneOf(field, _, wanted):
            value = values.get(field)
            return any(entry in wanted for entry in value) if isinstance(value, tuple) else value in wanted
        case Ordered(field, _, comparison, bound):
            value = values.get(field)
            return value is not None and _ORDER[comparison](value, bound)
        case Like(field, _, how, text):
            value = values.get(field, ())
            entries = value if isinstance(value, tuple) else (value,)
            return any(_LIKE[how](entry, text) for entry in entries)
        case Present(field, _):
            return field in values
        case Not(part):
            return not matches(part, values)
        case AllOf(parts):
            return all(matches(part, values) for part in parts)
        case AnyOf(parts):
            return any(matches(part, values) for part in parts)


_ORDER: dict[Operator, Callable[[typing.Any, typing.Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_LIKE: dict[Operator, Callable[[typing.Any, str], bool]] = {
    "$prefix": lambda value, text: value.startswith(text),
    "$contains": lambda value, text: text.lower() in value.lower(),
}


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS: dict[Operator, str] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


BETWEEN = "\x00"
"""Between the joined values of a list. No text of a filter has it, so none can match across two values."""
NONE_RESOLVED: Mapping[Leaf, str | None] = MappingProxyType({})


def predicate(
    filter_: Filter,
    declared: Container[str],
    column: Callable[[str], str],
    *,
    resolved: Mapping[Leaf, str | None] = NONE_RESOLVED,
    negated: bool = False,
) -> str:
    """The filter as SQL, in parentheses: true for the rows that satisfy it, false or null for all others.

    `declared` are the fields that the table has columns for, named by `column`. `resolved` has conditions in
    SQL that are never null, for leaves on other fields, or None for one that only the gate can decide; no
    source has any further field. `negated` compiles the opposite.

    A NOT around a whole expression would be wrong, because NOT null is null: it would lose the rows that lack
    a field. So negation is pushed down to single conditions (De Morgan), where null is tested explicitly.
    That form can also use the indexes.
    """
    match filter_:
        case Not(part):
            return predicate(part, declared, column, resolved=resolved, negated=not negated)
        case AllOf(parts) | AnyOf(parts):
            word = " OR " if isinstance(filter_, AnyOf) != negated else " AND "
            compiled = [
                predicate(part, declared, column, resolved=resolved, negated=negated) for part in parts
            ]
            return f"({word.join(compiled)})"
        case leaf if leaf.field in declared:
            condition = leaf_predicate(leaf, column(leaf.field))
            return f"({column(leaf.field)} IS NULL OR (NOT {condition}))" if negated else condition
        case leaf if leaf in resolved:
            resolution = resolved[leaf]
            return "(true)" if resolution is None else f"(NOT {resolution})" if negated else resolution
        case leaf if leaf.field in ATTRIBUTES:
            raise LookupError(leaf.field)  # every document has it, so it must be resolved
        case _:
            return "(true)" if negated else "(false)"


def leaf_predicate(leaf: Leaf, column: str) -> str:
    """A condition on a column as SQL, in parentheses; null where the column is."""
    match leaf:
        case Present():
            return f"({column} IS NOT NULL)"
        case OneOf(_, "string list", values):
            return f"(array_has_any({column}, [{_literals(values)}]))"
        case OneOf(_, _, values):
            return f"({column} IN ({_literals(values)}))"
        case Like():
            return _like(leaf, column)
        case Ordered(_, _, comparison, value):
            return f"({column} {_SIGNS[comparison]} {literal(value)})"


def _like(leaf: Like, column: str) -> str:
    if leaf.type == "string list":
        column = f"concat({literal(BETWEEN)}, array_to_string({column}, {literal(BETWEEN)}))"
    if leaf.operator == "$contains":
        return f"(contains(lower({column}), {literal(leaf.text.lower())}))"
    if leaf.type == "string list":
        return f"(contains({column}, {literal(BETWEEN + leaf.text)}))"
    return f"(starts_with({column}, {literal(leaf.text)}))"


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
