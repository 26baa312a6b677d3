"""Reranking on this machine: a cross-encoder, which reads query and text together, by ONNX Runtime.

One pair per run, as many runs at once as there are cores.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.concurrency import cores
from rag.errors import ConfigurationError
from rag.models.onnx import opened_model, run
from rag.models.rerank import logistic
from rag.models.tokens import opened_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnxruntime
    from tokenizers import Encoding, Tokenizer

    from rag.config.settings import RerankerSettings

GRAPHS = ("model.onnx", "onnx/model.onnx")
TOKENIZER = "tokenizer.json"
NEEDED = (*(f"{graph}*" for graph in GRAPHS), TOKENIZER)
"""What is downloaded of a model; the stars take in weights beside the graph."""


@dataclass(frozen=True, slots=True)
class CrossEncoder:
    """A cross-encoder in this process. `limit` counts a pair's tokens with the special ones."""

    session: onnxruntime.InferenceSession
    tokenizer: Tokenizer
    limit: int
    runs: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(cores()))

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """How likely it is that each text answers the query, as far as the model's window reaches."""
        given: list[float | None] = [None] * len(texts)

        async def fill(place: int, text: str) -> None:
            given[place] = await to_thread.run_sync(self.score, query, text, limiter=self.runs)

        async with anyio.create_task_group() as group:
            for place, text in enumerate(texts):
                group.start_soon(fill, place, text)
        return given

    def score(self, query: str, text: str) -> float | None:
        """That of one pair; None if the model says nothing finite."""
        logit = self.logit(query, text)
        return logistic(logit) if math.isfinite(logit) else None

    def logit(self, query: str, text: str) -> float:
        """That of "yes". Where the graph has one for "no" too, the difference, so that softmax is logistic.

        Raises:
            ValueError: the graph gives neither one number per pair nor two.
        """
        pair = self._pair(query, text)
        output = run(self.session, self.session.get_outputs()[0].name, pair.ids, pair.type_ids)
        match output.ravel().tolist():
            case [yes]:
                return float(yes)
            case [no, yes]:
                return float(yes - no)
        raise ValueError(f"its output for one pair has the shape {output.shape}, not (1, 1) or (1, 2)")

    def _pair(self, query: str, text: str) -> Encoding:
        """Both between the special tokens, the text cut to what is left; the query yields above half."""
        asked = self.tokenizer.encode(query, add_special_tokens=False)
        told = self.tokenizer.encode(text, add_special_tokens=False)
        room = self.limit - self.tokenizer.num_special_tokens_to_add(is_pair=True)
        asked.truncate(max(room // 2, room - len(told)))
        told.truncate(room - len(asked))
        return self.tokenizer.post_process(asked, told)


def cross_encoder(settings: RerankerSettings) -> CrossEncoder:
    """The model in the folder `settings.path`, or `settings.model` of the hub, downloaded if need be.

    Raises:
        ConfigurationError: it can't be downloaded or loaded, is no such model, or another than was meant.
    """
    folder = settings.path or _downloaded(settings.model, settings.revision)
    graph = _graph(folder)
    if settings.sha256:
        _check(graph, settings.sha256)
    model = CrossEncoder(opened_model(graph), opened_tokenizer(folder / TOKENIZER), settings.max_tokens)
    try:
        model.logit("a", "a " * settings.max_tokens)
    except Exception as error:  # ONNX Runtime's errors have no class in common
        raise ConfigurationError(
            f"The model {graph} fails on a pair of {settings.max_tokens} tokens: {error}. "
            "If that is more than it can take, set reranker.max_tokens."
        ) from error
    return model


def _graph(folder: Path) -> Path:
    for path in (folder / name for name in GRAPHS):
        if path.is_file():
            return path
    raise ConfigurationError(
        f"There is neither {' nor '.join(GRAPHS)} in {folder}. Name a reranker that is published as ONNX, "
        "or export it to that, and set reranker.path to its folder."
    )


def _check(graph: Path, sha256: str) -> None:
    """Hold a graph, and weights that lie beside it, against the checksum in the settings."""
    digest = hashlib.sha256()
    for file in sorted(graph.parent.glob(f"{graph.name}*")):
        with file.open("rb") as opened:
            while part := opened.read(1 << 20):
                digest.update(part)
    if digest.hexdigest() != sha256:
        raise ConfigurationError(
            f"The model {graph} is not the one that reranker.sha256 names: its checksum is "
            f"{digest.hexdigest()}, not {sha256}. It is not loaded. If you changed the model or its "
            "revision, compare with what its publisher says, and set reranker.sha256."
        )


def _downloaded(model: str, revision: str) -> Path:
    """The folder that holds a commit of `model` of the hub; what was downloaded once needs no network."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 only this needs it, and it takes 0.4 s

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(NEEDED)))
    except Exception as error:  # its errors have no class in common
        raise ConfigurationError(
            f"The reranker {model} in its revision {revision} can't be downloaded ({type(error).__name__}). "
            "Download it yourself, and set reranker.path to its folder instead of reranker.model."
        ) from error
