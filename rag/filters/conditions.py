"""A filter's conditions one by one: what of it can be left out, and how it is called in a note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.filters.tree import All, Any, Not, OneOf, Ordered, Present

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rag.filters.tree import Filter, Operator


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
