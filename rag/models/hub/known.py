"""The models that refdesk knows by name, from `known.toml` in this package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rag.corpus import Pooling
from rag.models.facts import ModelFacts, ModelFile, ModelKind

_FORM = ConfigDict(extra="forbid", frozen=True)
LIST = Path(__file__).with_name("known.toml")


class Figure(BaseModel):
    """A result that the publisher states; nobody here measured it."""

    model_config = _FORM
    benchmark: str
    score: float
    source: str


class KnownFile(BaseModel):
    """A file of a model. Without a checksum it was not verified; a size of 0 is not known."""

    model_config = _FORM
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")]
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    size: Annotated[int, Field(ge=0)] = 0


class KnownModel(BaseModel):
    """A model that refdesk knows: where its files are, what they are, and what it is good for."""

    model_config = _FORM
    name: str
    kind: ModelKind
    repository: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    licence: str
    licence_note: str = ""
    parameters: str
    megabytes: int
    languages: str
    good_for: str
    graph: str
    pooling: Pooling
    dense: tuple[str, ...] = ()
    dimension: int | None = None
    truncations: tuple[int, ...] = ()
    query_prefix: str | None = None
    document_prefix: str | None = None
    window: int
    multilingual: bool
    figures: tuple[Figure, ...] = ()
    files: tuple[KnownFile, ...]

    @property
    def pinned(self) -> bool:
        """Whether the checksum of every file is known."""
        return all(one.sha256 for one in self.files)

    def facts(self, files: tuple[ModelFile, ...]) -> ModelFacts:
        """What is kept beside the model's files once they are here."""
        shared = self.model_dump(
            include=set(ModelFacts.__dataclass_fields__) & set(type(self).model_fields), exclude={"files"}
        )
        return ModelFacts(**shared, files=files, normalise=True)


class _List(BaseModel):
    model_config = _FORM
    model: tuple[KnownModel, ...]


@cache
def known_models() -> dict[str, KnownModel]:
    """All of them by name, in the order of the file."""
    models = _List.model_validate(tomllib.loads(LIST.read_text(encoding="utf-8"))).model
    return {one.name: one for one in models}
