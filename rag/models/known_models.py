"""The models that refdesk knows by name, from `known_models.toml`; which files make up a model.

Of a repository or folder, a model needs the graph, its weights, and the files that describe it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rag.corpus import Pooling
from rag.errors import ConfigurationError
from rag.models.model_folder import GRAPHS, ModelFacts, ModelFile, ModelKind

_FORM = ConfigDict(extra="forbid", frozen=True)
LIST = Path(__file__).with_suffix(".toml")


class Figure(BaseModel):
    """A result that the publisher states; not measured by us."""

    model_config = _FORM
    benchmark: str
    score: float
    source: str


class KnownFile(BaseModel):
    """A file of a model. Without a checksum it wasn't verified; a size of 0 is unknown."""

    model_config = _FORM
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")]
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    size: Annotated[int, Field(ge=0)] = 0


class KnownModel(BaseModel):
    """A model that refdesk knows: the place of its files, their checksums, and its description."""

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
        return all(file.sha256 for file in self.files)

    def facts(self, files: tuple[ModelFile, ...]) -> ModelFacts:
        """The facts to store with the model's files once they are installed."""
        shared = self.model_dump(
            include=set(ModelFacts.__dataclass_fields__) & set(type(self).model_fields), exclude={"files"}
        )
        return ModelFacts(**shared, files=files)


class _List(BaseModel):
    model_config = _FORM
    model: tuple[KnownModel, ...]


@cache
def known_models() -> dict[str, KnownModel]:
    """All of them by name, in the order of the file."""
    models = _List.model_validate(tomllib.loads(LIST.read_text(encoding="utf-8"))).model
    return {model.name: model for model in models}


TOKENIZER = "tokenizer.json"
DESCRIBING = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "README.md",
)
STEP = re.compile(r"[1-9]_[A-Za-z]+/(config\.json|model\.safetensors)")
"""The files of the steps after the graph: 1_Pooling/config.json, 2_Dense/model.safetensors."""
SAFE = re.compile(r"(?!.*(^|/)\.)[\w.+-]+(/[\w.+-]+)*", re.ASCII)
LISTED = 12  # graphs in a message


def graph_among(paths: Collection[str], graph: str | None) -> str:
    """The path of the graph: the requested one, or the usual one, or the only one.

    Raises:
        ConfigurationError: no graph fits, or several do and `graph` is None.
    """
    graphs = sorted(path for path in paths if path.endswith(".onnx") and SAFE.fullmatch(path))
    if graph is None:
        usual = [path for path in GRAPHS if path in graphs]
        if usual or len(graphs) == 1:
            return (usual or graphs)[0]
    elif graph in graphs:
        return graph
    if not graphs:
        raise ConfigurationError(
            "There is no ONNX graph (a file .onnx). Use a model that is published in ONNX format, or export "
            "it yourself and add the folder with refdesk-admin model add."
        )
    listed = ", ".join(graphs[:LISTED]) + (" …" if len(graphs) > LISTED else "")
    raise ConfigurationError(f"Choose the graph with --graph. There are: {listed}.")


def files_of(paths: Collection[str], graph: str) -> Sequence[str]:
    """The paths of the files that go with a graph; those of its weights begin with its name.

    Raises:
        ConfigurationError: the tokenizer is missing.
    """
    if TOKENIZER not in paths:
        raise ConfigurationError(
            f"There is no {TOKENIZER}, which refdesk needs. Export the model's tokenizer to that file."
        )
    return sorted(
        path
        for path in paths
        if SAFE.fullmatch(path)
        and (
            path in {graph, TOKENIZER, *DESCRIBING}
            or re.fullmatch(re.escape(graph) + r"[._][\w.-]+", path, re.ASCII)
            or STEP.fullmatch(path)
        )
    )
