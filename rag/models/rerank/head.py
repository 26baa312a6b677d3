"""The head of a cross-encoder whose graph ends at the tokens: the folders beside the graph hold its layers.

Such a model is published as sentence-transformers lists its steps (modules.json): the graph, a pooling, then
dense layers and layer norms, of which the last returns the score.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rag.errors import ConfigurationError
from rag.models.embed.head import WEIGHTS, Head, dense_layers, read_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from rag.corpus import Pooling
    from rag.models.embed.head import Dense
    from rag.models.facts import ModelFacts

    Rows = npt.NDArray[np.float32]

POOLED: Pooling = "cls"  # of all rerankers of this form that are published
EPSILON = 1e-5  # of torch's LayerNorm
STEPS = ("Dense", "LayerNorm")


class Norm(NamedTuple):
    """Layer normalization of vectors, with a scale and a shift for each component.

    Source: Ba, Kiros & Hinton, 2016, arXiv:1607.06450.
    """

    weight: Rows
    bias: Rows

    def __call__(self, vectors: Rows) -> Rows:
        """The same shape: (texts, width)."""
        centred = vectors - vectors.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        normed: Rows = scaled * self.weight + self.bias
        return normed


class ScoringHead(NamedTuple):
    """From a vector per token, shape (1, tokens, width), to a score, shape (1, 1)."""

    pooling: Head
    layers: tuple[Dense | Norm, ...]

    def __call__(self, output: Rows) -> Rows:
        """The score of one pair."""
        vectors = self.pooling(output)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors


def head_beside(folder: Path, facts: ModelFacts | None) -> ScoringHead | None:
    """The head of the model in `folder`; None if no layers are beside its graph.

    Raises:
        ConfigurationError: a layer is missing or damaged.
    """
    paths = (facts.dense if facts else ()) or _listed(folder)
    if not paths:
        return None
    pooling = (facts.pooling if facts else None) or POOLED
    return ScoringHead(Head(pooling), tuple(_layer(folder, path) for path in paths))


def _listed(folder: Path) -> Sequence[str]:
    """The layers that the publisher lists."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        return [one["path"] for one in modules if one["type"].rpartition(".")[2] in STEPS]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{folder / 'modules.json'} is not a valid list of steps. Download the model again."
        ) from error


def _layer(folder: Path, path: str) -> Dense | Norm:
    try:
        tensors = read_tensors((folder / path / WEIGHTS).read_bytes())
        if "norm.weight" in tensors:
            return Norm(tensors["norm.weight"], tensors["norm.bias"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"The layer in {folder / path} is missing or damaged. Download the model again."
        ) from error
    (dense,) = dense_layers(folder, [path])
    return dense
