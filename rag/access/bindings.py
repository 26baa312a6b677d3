"""Bindings: as operators write them, and what they leave of a collection and of a request.

They stand in the settings and in the key file, and no mistake in them is ignored. Each one is a wall, and all
must let a thing through. A binding only narrows. The access rule (`rag.access.rule`) applies in addition, and
a request's own filter is a third condition, which can't undo either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rag.access.names import valid_name
from rag.answers import MAX_LIMIT
from rag.corpus import Binding, Collection
from rag.errors import ConfigurationError, InvalidRequestError
from rag.filters.grammar import AllOf, AnyOf, Filter, check_form, parse_filter

MAX_COLLECTIONS = 50  # as many as a request may name
MAX_TOOLS = 20


def _name(name: str) -> str:
    try:
        return valid_name(name)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _filter(value: dict[str, Any]) -> dict[str, Any]:
    try:
        check_form(value)
    except InvalidRequestError as error:
        raise ValueError(str(error).rstrip(".")) from error
    return value


Name = Annotated[str, AfterValidator(_name)]
"""The name of a tenant, a collection or a profile."""
BoundFilter = Annotated[dict[str, Any], AfterValidator(_filter)]


class BoundTo(BaseModel):
    """What a tool is bound to. None leaves a part open. An empty list would leave nothing: it is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collections: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_COLLECTIONS)] | None = None
    filter: BoundFilter | None = None
    profile: Name | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] | None = None

    @property
    def binding(self) -> Binding:
        """The binding that a principal carries."""
        return Binding(self.collections, self.filter, self.profile, self.limit)


class CredentialBoundTo(BoundTo):
    """What an API key or an OAuth scope is bound to: also to some of the server's tools."""

    tools: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TOOLS)] | None = None

    @property
    def binding(self) -> Binding:
        """The binding that a principal carries."""
        return Binding(self.collections, self.filter, self.profile, self.limit, self.tools)


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
    conditions: tuple[Filter, ...] = ()
    if binding.filter is not None:
        try:
            conditions = (parse_filter(binding.filter, collection.fields),)
        except InvalidRequestError:
            return None
    if binding.any_of is None:
        return conditions
    alternatives = [_walls(alternative, collection) for alternative in binding.any_of]
    admitting = [walls_of_one for walls_of_one in alternatives if walls_of_one is not None]
    if not admitting:
        return None
    return conditions if () in admitting else (*conditions, AnyOf(tuple(map(AllOf, admitting))))


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
    collection_sets = [
        frozenset(binding.collections) for binding in bindings if binding.collections is not None
    ]
    return Bounds(
        tuple(sorted(frozenset.intersection(*collection_sets))) if collection_sets else None,
        tuple(sorted({binding.profile for binding in bindings if binding.profile is not None})),
        min([MAX_LIMIT, *(binding.limit for binding in bindings if binding.limit is not None)]),
    )
