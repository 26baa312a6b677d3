"""Evaluates a filter in Python: the reference implementation that `predicate` must agree with."""

from __future__ import annotations

import operator
import typing
from typing import TYPE_CHECKING

from rag.filters.tree import All, Any, Like, Not, OneOf, Ordered, Present

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.corpus import Value
    from rag.filters.tree import Filter, Operator


def matches(filter_: Filter, values: Mapping[str, Value]) -> bool:  # noqa: PLR0911 one for each kind of node
    """Whether values of fields satisfy the filter."""
    match filter_:
        case OneOf(field, _, wanted):
            value = values.get(field)
            return any(one in wanted for one in value) if isinstance(value, tuple) else value in wanted
        case Ordered(field, _, comparison, bound):
            value = values.get(field)
            return value is not None and _ORDER[comparison](value, bound)
        case Like(field, _, how, text):
            value = values.get(field, ())
            return any(_LIKE[how](one, text) for one in (value if isinstance(value, tuple) else (value,)))
        case Present(field, _):
            return field in values
        case Not(part):
            return not matches(part, values)
        case All(parts):
            return all(matches(part, values) for part in parts)
        case Any(parts):
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
