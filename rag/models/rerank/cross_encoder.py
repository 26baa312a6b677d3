"""Reranking on this machine, with ONNX Runtime: a cross-encoder reads query and text together.

One pair per run, as many runs at once as there are cores. Nothing is downloaded here: refdesk-admin model
brings models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.config.model_settings import RerankerSettings
from rag.corpus import Pooling
from rag.errors import ConfigurationError
from rag.models import text_encoder
from rag.models.model_folder import check_pulled, facts_of_folder
from rag.models.rerank import logistic, no_other_model
from rag.models.text_encoder import Head, Tokens
from rag.runtime import concurrently, cores

if TYPE_CHECKING:
    import onnxruntime

POOLED: Pooling = "cls"  # of all rerankers that are published without their head in the graph
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
    facts = facts_of_folder(folder)
    graph = folder / facts.graph
    layers = tuple(text_encoder.layer(folder / path) for path in facts.dense)
    model = CrossEncoder(
        text_encoder.opened_model(graph),
        Tokens(folder / "tokenizer.json"),
        settings,
        min(MAX_PAIR_TOKENS, facts.window or MAX_PAIR_TOKENS),
        Head(facts.pooling or POOLED, layers) if layers else None,
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
