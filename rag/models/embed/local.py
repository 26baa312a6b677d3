"""Embedding on this machine, with ONNX Runtime: the built-in model, or another one in a folder.

One text per run, as many runs at once as there are cores.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio import to_thread

from rag.concurrency import cores
from rag.corpus import EmbedderIdentity
from rag.errors import ConfigurationError
from rag.models.embed import check_queries, unit_rows
from rag.models.onnx import opened_model, run
from rag.models.tokens import BUILTIN_MODEL, Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt
    import onnxruntime

    from rag.config.settings import EmbedderSettings
    from rag.corpus import Vectors
    from rag.models.embed import TextKind

BUILTIN_NAME = "all-MiniLM-L6-v2"
BUILTIN_DIMENSION = 384
BUILTIN_LIMIT = 256  # tokens that the model was trained for, special ones included

TOKEN_RANK = 3  # of an output with a vector per token: (texts, tokens, dimension)


@dataclass(frozen=True, slots=True)
class Encoder:
    """A text encoder in ONNX Runtime: maps the token ids of one text to one vector, not yet of unit length.

    If the graph returns a vector per token, they are pooled: the first one if `first_token`, else the mean.
    """

    session: onnxruntime.InferenceSession
    output: str
    first_token: bool

    def vector(self, ids: list[int]) -> npt.NDArray[np.float32]:
        """Shape (1, dimension)."""
        output = run(self.session, self.output, ids, [0] * len(ids))
        if output.ndim == TOKEN_RANK:
            output = output[:, 0] if self.first_token else output.mean(axis=1)
        return output


@dataclass(frozen=True, slots=True)
class LocalEmbedder:
    """An embedder in this process. `limit` is in tokens, special ones included."""

    identity: EmbedderIdentity
    encoder: Encoder
    tokens: Tokens
    limit: int
    runs: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(cores()))

    @property
    def window(self) -> int:
        """The context window in tokens, without the special ones and the document prefix."""
        return self.tokens.window(self.limit, self.identity.document_prefix)

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The model's own tokens."""
        return self.tokens.spans(text)

    def known(self, text: str) -> float:
        """The share of whole words for the built-in model, whose vocabulary is English; otherwise 1."""
        return self.tokens.whole(text) if self.identity.model == BUILTIN_NAME else 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One vector of unit length per text; texts longer than the window are truncated."""
        prefix = self.identity.query_prefix if kind == "query" else self.identity.document_prefix
        rows = np.empty((len(texts), self.identity.dimension), np.float32)

        async def fill(row: int, text: str) -> None:
            rows[row] = await to_thread.run_sync(self._vector, prefix + text, limiter=self.runs)

        async with anyio.create_task_group() as group:
            for row, text in enumerate(texts[1:], 1):
                group.start_soon(fill, row, text)
            if texts:
                await fill(0, texts[0])  # a single text, as in most queries, needs no extra task
        vectors = unit_rows(rows)
        check_queries(vectors, kind)
        return vectors

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        return self.encoder.vector(self.tokens.ids(text, self.limit))


def builtin_embedder(settings: EmbedderSettings) -> LocalEmbedder:
    """all-MiniLM-L6-v2, from this package.

    Raises:
        ConfigurationError: the installation lacks the model.
    """
    if not BUILTIN_MODEL.is_dir():
        raise ConfigurationError(
            f"The built-in model {BUILTIN_MODEL} is missing. Reinstall refdesk with pip."
        )
    identity = _identity(settings, BUILTIN_NAME, BUILTIN_DIMENSION)
    tokens = Tokens(BUILTIN_MODEL / "tokenizer.json")
    return LocalEmbedder(identity, _encoder(BUILTIN_MODEL), tokens, BUILTIN_LIMIT)


def folder_embedder(settings: EmbedderSettings, folder: Path) -> LocalEmbedder:
    """The model in `folder`: model.onnx and tokenizer.json of a text encoder of the BERT family.

    config.json and sentence_bert_config.json, if present, lower the limit of `settings.max_tokens`;
    1_Pooling/config.json selects the first token instead of the mean.

    Raises:
        ConfigurationError: a file is missing or invalid, or the model doesn't map text to one vector.
    """
    encoder, tokens = _encoder(folder), Tokens(folder / "tokenizer.json")
    limit = _limit(settings.max_tokens, folder)
    try:
        _, dimension = encoder.vector(tokens.ids("a " * limit, limit)).shape
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        raise ConfigurationError(
            f"The model in {folder} fails on a text of {limit} tokens. If its context window is smaller, "
            "lower embedder.max_tokens. Otherwise it is not a text encoder that returns one vector per text."
        ) from error
    identity = _identity(settings, f"{folder.name}-{_digest(folder)}", dimension)
    return LocalEmbedder(identity, encoder, tokens, limit)


def _identity(settings: EmbedderSettings, model: str, dimension: int) -> EmbedderIdentity:
    return EmbedderIdentity(
        settings.provider, model, dimension, settings.query_prefix, settings.document_prefix
    )


def _encoder(folder: Path) -> Encoder:
    session = opened_model(folder / "model.onnx")
    outputs = [node.name for node in session.get_outputs()]
    output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
    pooling = _config(folder, "1_Pooling/config.json")
    return Encoder(session, output, first_token=bool(pooling.get("pooling_mode_cls_token")))


def _limit(max_tokens: int, folder: Path) -> int:
    positions = _config(folder, "config.json").get("max_position_embeddings")
    length = _config(folder, "sentence_bert_config.json").get("max_seq_length")
    return min(max_tokens, positions or max_tokens, length or max_tokens)


def _config(folder: Path, name: str) -> dict[str, Any]:
    """The content of a configuration file of the model; empty if there is no such file."""
    try:
        values: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder / name} is not valid JSON. Download the model again.") from error
    return values


def _digest(folder: Path) -> str:
    """A short hash of the files that determine the vectors, including weights beside the graph."""
    sha = hashlib.sha256()
    for path in [*sorted(folder.glob("model.onnx*")), folder / "tokenizer.json"]:
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:12]
