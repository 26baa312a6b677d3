"""What must be known of a local model beside its weights; the file that keeps it in the model's folder.

`refdesk-admin model` writes the file: from the list of known models, or from what the administrator says of
an own one. A folder without the file says what it can in the files of its publisher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rag.corpus import Pooling  # noqa: TC001 pydantic reads the annotations
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

FACTS_FILE = "refdesk-model.json"

ModelKind = Literal["embedder", "reranker"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: its path below the model's folder, with /, its bytes, and their SHA-256 in hex."""

    path: str
    size: int
    sha256: str

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The facts of a model. What is None or empty is not known, and the folder's own files may say it.

    `repository` and `revision`, a commit, say where the files on a hub came from; an own model has neither.
    `graph` is the path of the ONNX graph below the folder. `dense` are the folders of the dense layers that
    follow the pooling, in order. `normalise` says whether the model was trained for vectors of unit length.
    `dimension` is that of a whole vector, and `truncations` are the smaller ones that it may be cut to.
    `window` is in tokens, special ones included. `baseline` is the cosine of unrelated texts, as measured
    when the model was installed; what a collection goes by is measured when it is built.
    """

    name: str
    kind: ModelKind = "embedder"
    repository: str = ""
    revision: str = ""
    licence: str = ""
    files: tuple[ModelFile, ...] = ()
    graph: str = "model.onnx"
    pooling: Pooling | None = None
    dense: tuple[str, ...] = ()
    normalise: bool | None = None
    dimension: int | None = None
    truncations: tuple[int, ...] = ()
    query_prefix: str | None = None
    document_prefix: str | None = None
    window: int | None = None
    multilingual: bool | None = None
    baseline: float | None = None

    __pydantic_config__ = ConfigDict(extra="forbid")


_FORM = TypeAdapter(ModelFacts)


def read_facts(folder: Path) -> ModelFacts | None:
    """The facts that refdesk keeps in a model's folder; None if it has put none there.

    Raises:
        ConfigurationError: they can't be read.
    """
    path = folder / FACTS_FILE
    try:
        return _FORM.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise ConfigurationError(
            f"The facts of the model in {path} can't be read. Remove the model, and pull or add it again "
            "with refdesk-admin model."
        ) from error


def facts_as_json(facts: ModelFacts) -> bytes:
    """The content of the file that `read_facts` reads."""
    return _FORM.dump_json(facts, indent=2) + b"\n"


def check_pulled(model: str, folder: Path) -> None:
    """Check that a model that the settings name is in its folder.

    Raises:
        ConfigurationError: it is not; the message has the command that brings it.
    """
    if model and not folder.is_dir():
        raise ConfigurationError(
            f"The model {model} is not on this machine: there is no folder {folder}. Run refdesk-admin model "
            f"pull {model}, or refdesk-admin model list to see which models there are."
        )
