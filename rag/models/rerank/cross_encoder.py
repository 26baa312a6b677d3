"""Reranking on this machine, with ONNX Runtime: a cross-encoder reads query and text together.

One pair per run, as many runs at once as there are cores. Nothing is downloaded here: refdesk-admin model
brings models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from anyio import to_thread

from rag.config.model_settings import RerankerSettings
from rag.corpus import Pooling
from rag.errors import ConfigurationError
from rag.models import text_encoder
from rag.models.model_folder import GRAPHS, ModelFacts, check_pulled, read_facts, stated_window
from rag.models.rerank import logistic, no_other_model
from rag.models.text_encoder import Dense, Head, Tokens
from rag.runtime import concurrently, cores

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnxruntime

    Rows = npt.NDArray[np.float32]


MAX_PAIR_TOKENS = 512  # a question and the longest chunk; a longer section is judged by its beginning


@dataclass(frozen=True, slots=True)
class CrossEncoder:
    """A cross-encoder in this process. Its `window` is in tokens of a pair, special ones included."""

    session: onnxruntime.InferenceSession
    tokens: Tokens
    settings: RerankerSettings
    window: int
    head: Head | None = None
    runs: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(cores()))

    def with_model(self, name: str) -> CrossEncoder:
        """As `Reranker.with_model`."""
        if name:
            raise no_other_model(name)
        return self

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """The probability that each text answers the query; texts longer than the window are truncated."""
        return await concurrently(
            [partial(to_thread.run_sync, self.score, query, text, limiter=self.runs) for text in texts]
        )

    def score(self, query: str, text: str) -> float | None:
        """The probability for one pair; None if the model's output is not finite."""
        logit = self.logit(query, text)
        return logistic(logit) if math.isfinite(logit) else None

    def logit(self, query: str, text: str) -> float:
        """The logit of "yes" for one pair.

        If the model has a second logit for "no", it is the difference: softmax of two logits equals the
        logistic function of their difference.

        Raises:
            ConfigurationError: the model doesn't return one or two numbers per pair.
        """
        pair = self.tokens.pair(query, text, self.window)
        output = text_encoder.run(self.session, self.session.get_outputs()[0].name, pair.ids, pair.type_ids)
        if self.head and output.ndim == text_encoder.TOKEN_RANK:
            output = self.head(output)
        match output.ravel().tolist():
            case [yes]:
                return float(yes)
            case [no, yes]:
                return float(yes - no)
        headless = output.ndim == text_encoder.TOKEN_RANK
        raise ConfigurationError(
            f"The reranker returns an output of shape {output.shape} for one pair, not (1, 1) or (1, 2). "
            + (
                "Its graph returns a vector per token: the head that makes a score of them is not in it. "
                "Download the folders beside the graph, too (modules.json, 2_Dense, …), or export it with "
                "its head (optimum: --task text-classification)."
                if headless
                else "Use a cross-encoder that was trained for reranking."
            )
        )


def cross_encoder(settings: RerankerSettings) -> CrossEncoder:
    """The model in the folder of the settings.

    Raises:
        ConfigurationError: the model is missing, can't be loaded, or isn't a cross-encoder.
    """
    folder = settings.folder
    check_pulled(settings.model, folder)
    facts = read_facts(folder)
    graph = folder / facts.graph if facts else _graph(folder)
    model = CrossEncoder(
        text_encoder.opened_model(graph),
        Tokens(folder / "tokenizer.json"),
        settings,
        min(MAX_PAIR_TOKENS, (facts and facts.window) or stated_window(folder) or MAX_PAIR_TOKENS),
        head_beside(folder, facts),
    )
    try:
        model.logit("a", "a " * model.window)
    except ConfigurationError:
        raise
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        raise ConfigurationError(
            f"The model {graph} fails on a pair of {model.window} tokens. If its context window is smaller, "
            "run refdesk-admin model add FOLDER --reranker --window TOKENS, and name it in reranker.model."
        ) from error
    return model


def _graph(folder: Path) -> Path:
    for path in (folder / name for name in GRAPHS):
        if path.is_file():
            return path
    raise ConfigurationError(
        f"There is neither {' nor '.join(GRAPHS)} in {folder}. Use a reranker that is published in ONNX "
        "format, or export yours to it and set reranker.model to its folder."
    )


# The head of a cross-encoder whose graph returns token vectors: the folders beside the graph hold its layers.
#
# sentence-transformers lists the steps of such a model in modules.json: the graph, a pooling, then dense
# layers and layer norms. The last of them returns the score.

POOLED: Pooling = "cls"  # of all rerankers of this form that are published
EPSILON = 1e-5  # of torch's LayerNorm
STEPS = ("Dense", "LayerNorm")


@dataclass(frozen=True, slots=True)
class Norm:
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


def head_beside(folder: Path, facts: ModelFacts | None) -> Head | None:
    """The head of the model in `folder`, from a vector per token to a score; None if it has no layers.

    Raises:
        ConfigurationError: a layer is missing or damaged.
    """
    paths = (facts.dense if facts else ()) or _listed_modules(folder)
    if not paths:
        return None
    pooling = (facts.pooling if facts else None) or POOLED
    return Head(pooling, tuple(_layer(folder / path) for path in paths))


def _listed_modules(folder: Path) -> Sequence[str]:
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        return [module["path"] for module in modules if module["type"].rpartition(".")[2] in STEPS]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{folder / 'modules.json'} is not a valid list of steps. Download the model again."
        ) from error


def _layer(folder: Path) -> Dense | Norm:
    try:
        tensors = text_encoder.read_tensors((folder / text_encoder.WEIGHTS).read_bytes())
        if "norm.weight" in tensors:
            return Norm(tensors["norm.weight"], tensors["norm.bias"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"The layer in {folder} is missing or damaged. Download the model again."
        ) from error
    return text_encoder.dense_layer(folder)
