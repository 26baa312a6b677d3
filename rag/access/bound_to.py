"""Bindings as operators write them, in the settings and in the key file. No mistake is ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rag.access.names import valid_name
from rag.answers import MAX_LIMIT
from rag.corpus import Binding
from rag.errors import ConfigurationError, InvalidRequestError
from rag.filters.parse import check_form

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
