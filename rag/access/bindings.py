"""What bindings leave of a collection and of a request: each one is a wall, and all must let a thing through.

A binding only narrows. The access rule (`rag.access.rule`) applies in addition, and a request's own filter is
a third condition, which can't undo either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.answers import MAX_LIMIT
from rag.errors import InvalidRequestError
from rag.filters.parse import parse
from rag.filters.tree import All, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import Binding, Collection
    from rag.filters.tree import Filter


def walls(bindings: Sequence[Binding], collection: Collection) -> tuple[Filter, ...] | None:
    """The conditions that the bindings set for each source of a collection; None if they admit none.

    They admit none if one of them doesn't name the collection, or has a filter that doesn't suit its declared
    fields: in doubt, nothing is shown.
    """
    conditions: list[Filter] = []
    for binding in bindings:
        of_binding = _walls(binding, collection)
        if of_binding is None:
            return None
        conditions += of_binding
    return tuple(conditions)


def _walls(binding: Binding, collection: Collection) -> tuple[Filter, ...] | None:
    if binding.collections is not None and collection.name not in binding.collections:
        return None
    own: tuple[Filter, ...] = ()
    if binding.filter is not None:
        try:
            own = (parse(binding.filter, collection.fields),)
        except InvalidRequestError:
            return None
    if binding.any_of is None:
        return own
    each = [_walls(one, collection) for one in binding.any_of]
    admitting = [one for one in each if one is not None]
    if not admitting:
        return None
    return own if () in admitting else (*own, Any(tuple(map(All, admitting))))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bindings leave of a request: its collections if these are fixed, its highest limit, its profile.

    There is at most one of `profiles`, unless the bindings contradict each other.
    """

    collections: tuple[str, ...] | None = None
    profiles: tuple[str, ...] = ()
    limit: int = MAX_LIMIT


UNBOUND = Bounds()


def bounds(bindings: Sequence[Binding]) -> Bounds:
    """What all bindings together leave: the collections that all of them name, and the lowest limit."""
    named = [frozenset(one.collections) for one in bindings if one.collections is not None]
    return Bounds(
        tuple(sorted(frozenset.intersection(*named))) if named else None,
        tuple(sorted({one.profile for one in bindings if one.profile is not None})),
        min([MAX_LIMIT, *(one.limit for one in bindings if one.limit is not None)]),
    )
