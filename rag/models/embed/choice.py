"""What a model's graph, its files and the settings say together of its vectors; nothing is guessed.

Where two of them contradict each other, the model isn't loaded. Only prefixes may be others than in the
files, because people try them out; that is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError
from rag.models.embed.head import Head, dense_layers

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnxruntime

    from rag.config.settings import EmbedderSettings
    from rag.corpus import Pooling
    from rag.models.facts import ModelFacts

POOLED = "sentence_embedding"
OF_TOKENS = ("last_hidden_state", "token_embeddings")
TOKEN_RANK = 3  # of an output with a vector per token: (texts, tokens, width)

log = logging.getLogger(__name__)


def output_of(session: onnxruntime.InferenceSession, pooling: Pooling | None) -> str:
    """The output to read: the text's vector if the graph has it, unless `pooling` is to be applied here.

    Raises:
        ConfigurationError: no output has a name that says what it is, and there are several.
    """
    names = [node.name for node in session.get_outputs()]
    of_tokens = [name for name in OF_TOKENS if name in names]
    if POOLED in names and (pooling in {None, "graph"} or not of_tokens):
        return POOLED
    if not of_tokens and len(names) > 1:
        raise ConfigurationError(
            f"The model's graph has the outputs {', '.join(names)}, and none is called "
            f"{', '.join([POOLED, *OF_TOKENS])}. Export it with one of these."
        )
    return (of_tokens or names)[0]


def head_of(
    folder: Path, facts: ModelFacts, settings: EmbedderSettings, output: npt.NDArray[np.float32]
) -> Head:
    """What follows the graph, whose output for one text is `output`.

    Raises:
        ConfigurationError: files and settings contradict each other or the graph, or nothing says how to
            pool.
    """
    pooling = _pooling(folder, facts, settings.pooling, output)
    width = output.shape[-1]
    dense = dense_layers(folder, facts.dense)
    if pooling == "graph" and dense and width == dense[-1].weight.shape[0]:
        dense = ()  # an export that pools has the layers behind it, too
    if dense and width != dense[0].weight.shape[1]:
        raise ConfigurationError(
            f"The graph of the model in {folder} returns {width} components, and its dense layer takes "
            f"{dense[0].weight.shape[1]}. Download all files of the model again."
        )
    whole = dense[-1].weight.shape[0] if dense else width
    if facts.dimension not in {None, whole}:
        raise ConfigurationError(
            f"The model in {folder} returns vectors with {whole} dimensions, and by its files they have "
            f"{facts.dimension}. Download all files of the model again."
        )
    return Head(pooling, dense, _cut(folder, facts, settings.dimensions, whole))


def _pooling(
    folder: Path, facts: ModelFacts, asked: Pooling | None, output: npt.NDArray[np.float32]
) -> Pooling:
    told = facts.pooling
    if output.ndim != TOKEN_RANK:
        if asked not in {None, "graph"}:
            raise ConfigurationError(
                f"embedder.pooling is {asked!r}, but the graph of the model in {folder} returns one vector "
                "per text. Remove the setting."
            )
        return "graph"
    if asked and told not in {None, "graph", asked}:
        raise ConfigurationError(
            f"embedder.pooling is {asked!r}, but by its files the model in {folder} has the pooling "
            f"{told!r}. Remove the setting. If the files are wrong, correct them."
        )
    pooling = asked or told
    if pooling == "graph":
        raise ConfigurationError(
            f"The model in {folder} is said to pool in its graph, which returns a vector per token. "
            "Set embedder.pooling to what the model's description says: cls, mean, max, last or weighted."
        )
    if pooling is None:
        raise ConfigurationError(
            f"How the model in {folder} makes one vector of the vectors of its tokens, neither its files "
            "(modules.json, 1_Pooling/config.json) nor the settings say. Download these files, too, or set "
            "embedder.pooling to what the model's description says: cls, mean, max, last or weighted. "
            "Earlier versions of refdesk took mean."
        )
    return pooling


def _cut(folder: Path, facts: ModelFacts, wanted: int | None, whole: int) -> int:
    """How many components of `whole` are kept; 0: all."""
    if wanted in {None, whole}:
        return 0
    if wanted not in facts.truncations:
        allowed = ", ".join(map(str, sorted({*facts.truncations, whole})))
        raise ConfigurationError(
            f"embedder.dimensions is {wanted}, but the vectors of the model in {folder} can have {allowed} "
            "dimensions, as far as its files say it (matryoshka_dimensions in config.json)."
        )
    return wanted or 0


def prefixes_of(settings: EmbedderSettings, facts: ModelFacts) -> tuple[str, str]:
    """The prefixes of queries and of documents: of the settings where they say it, else of the files."""
    found = []
    for kind in ("query_prefix", "document_prefix"):
        asked, published = getattr(settings, kind), getattr(facts, kind)
        if asked is not None and published and asked != published:
            log.warning(
                "embedder.%s is %r, but the files of the model %s say %r.", kind, asked, facts.name, published
            )
        found.append((published if asked is None else asked) or "")
    return found[0], found[1]
