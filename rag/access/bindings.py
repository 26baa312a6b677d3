"""Bindings: their form in the settings and the key file, and what they leave of a collection and a request.

A binding only narrows, and all bindings must admit a source. They fail closed: a mistake in one is an error
or shows nothing. The access rule (`rag.access.rule`) and a request's own filter apply in addition.
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
    """What a tool is bound to. None leaves a part open; an empty list would admit nothing, and is invalid."""

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
    """What an API key or an OAuth scope is bound to; it may name tools of the server, too."""

    tools: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TOOLS)] | None = None

    @property
    def binding(self) -> Binding:
        """The binding that a principal carries."""
        return Binding(self.collections, self.filter, self.profile, self.limit, self.tools)


def walls(bindings: Sequence[Binding], collection: Collection) -> tuple[Filter, ...] | None:
    """The conditions that the bindings set on the sources of a collection; None if they admit no source.

    They admit none if a binding doesn't name the collection, or has a filter that doesn't fit its declared
    fields (fail closed).
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
        except InvalidRequestError:  # the filter doesn't fit the fields of this collection
            return None
    if binding.any_of is None:
        return conditions
    alternatives = [_walls(alternative, collection) for alternative in binding.any_of]
    admitting = [conditions for conditions in alternatives if conditions is not None]
    if not admitting:
        return None
    # An alternative without conditions admits everything, and so do all alternatives together.
    return conditions if () in admitting else (*conditions, AnyOf(tuple(map(AllOf, admitting))))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a request: its collections, if bindings name any, its highest limit, and its profile.

    More than one of `profiles` means that the bindings contradict each other.
    """

    collections: tuple[str, ...] | None = None
    profiles: tuple[str, ...] = ()
    limit: int = MAX_LIMIT


UNBOUND = Bounds()


def bounds(bindings: Sequence[Binding]) -> Bounds:
    """The bounds that all bindings together leave: the collections that all name, and the lowest limit."""
    collection_sets = [
        frozenset(binding.collections) for binding in bindings if binding.collections is not None
    ]
    return Bounds(
        tuple(sorted(frozenset.intersection(*collection_sets))) if collection_sets else None,
        tuple(sorted({binding.profile for binding in bindings if binding.profile is not None})),
        min([MAX_LIMIT, *(binding.limit for binding in bindings if binding.limit is not None)]),
    )
