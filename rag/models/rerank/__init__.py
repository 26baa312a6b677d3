"""Rerankers: models that score how well a text answers a query.

One on this machine is a cross-encoder. An endpoint has one of three APIs: "cohere" is also that of Jina,
vLLM, Infinity, LiteLLM and llama.cpp; "tei" is Text Embeddings Inference.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread

from rag.config.model_settings import RerankerSettings
from rag.config.profiles import NO_OTHER_MODEL
from rag.errors import ConfigurationError
from rag.models.breaker import Breaker, RefusedError

if TYPE_CHECKING:
    from rag.models.endpoint import Endpoint

HIGHEST_LOGIT = 30.0  # from 37 on, a probability is 1 in floating point
TIMEOUT_SECONDS = 30.0  # of one attempt; reranker.timeout_seconds limits all attempts together


class Reranker(Protocol):
    """A model that scores how well a text answers a query; safe to share between tasks."""

    @property
    def settings(self) -> RerankerSettings:
        """Its settings."""

    def with_model(self, name: str) -> Reranker:
        """The reranker with another model behind the same endpoint; as it is if the name is empty.

        Raises:
            ConfigurationError: there is only one model.
        """

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """One score from 0 to 1 per text, in the texts' order; None without a score.

        Raises:
            ProviderError: a remote model failed, or its reply holds no scores.
        """


@asynccontextmanager
async def open_reranker(
    settings: RerankerSettings, environment: Mapping[str, str], *, breaker: Breaker | None = None
) -> AsyncIterator[Reranker | None]:
    """The reranker in the settings, for as long as the context lasts; None if they name none.

    The API key of a remote one is read from `environment`; opening it sends no request. Libraries are
    imported and models loaded in worker threads, so the event loop stays responsive.

    Raises:
        ConfigurationError: the model isn't there or can't be loaded, or a key is missing.
    """
    match settings.provider:
        case "none":
            yield None
        case "onnx":
            yield await to_thread.run_sync(_local, settings)
        case _:
            async with remote_reranker(settings, environment, breaker=breaker) as reranker:
                yield reranker


def _local(settings: RerankerSettings) -> Reranker:
    from rag.models.rerank.cross_encoder import cross_encoder  # noqa: PLC0415 takes 0.2 s

    return cross_encoder(settings)


def no_other_model(name: str) -> ConfigurationError:
    """The error of a reranker that has only one model."""
    message = NO_OTHER_MODEL.format(name)
    return ConfigurationError(message[0].upper() + message[1:])


def logistic(logit: float) -> float:
    """The probability of a logit, from 0 to 1. Example: 0.0 -> 0.5, 2.0 -> 0.88, -2.0 -> 0.12."""
    return (1 + math.tanh(logit / 2)) / 2  # 1 / (1 + exp(-x)) overflows below -709


@dataclass(frozen=True, slots=True)
class RemoteReranker:
    """A reranker behind HTTP."""

    endpoint: Endpoint
    settings: RerankerSettings

    def with_model(self, name: str) -> RemoteReranker:
        """As `Reranker.with_model`."""
        if name and self.settings.provider == "tei":
            raise no_other_model(name)
        return replace(self, settings=self.settings.model_copy(update={"model": name})) if name else self

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """One score per text. If the endpoint refuses a batch, the batch size is halved.

        Raises:
            ProviderError: the endpoint failed, or its reply is invalid or has no score at all.
        """
        size, scores = len(texts), list[float | None]()
        while len(scores) < len(texts):
            batch = texts[len(scores) : len(scores) + size]
            try:
                scores += await self._raw_scores(query, batch)
            except RefusedError:
                if len(batch) == 1:
                    raise
                size = len(batch) // 2
        return probabilities(scores)

    async def _raw_scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """The scores of one reply, as the endpoint scales them."""
        body = await self.endpoint.answer(lambda: self._request(query, texts))
        try:
            return by_index(self._results(self.endpoint.json_of(body)), len(texts))
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise self.endpoint.invalid(f"did not return valid scores for {len(texts)} texts") from error

    async def _request(self, query: str, texts: Sequence[str]) -> bytes:
        body = {**self._payload(query, list(texts)), **self.settings.options.body}
        return await self.endpoint.client.post("/rerank", cast_to=bytes, body=body)

    def _payload(self, query: str, texts: list[str]) -> dict[str, Any]:
        model = self.settings.model
        match self.settings.provider:
            case "tei":
                return {"query": query, "texts": texts, "truncate": True}
            case "voyage":
                return {"model": model, "query": query, "documents": texts, "top_k": len(texts)}
            case _:
                return {"model": model, "query": query, "documents": texts, "top_n": len(texts)}

    def _results(self, reply: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 any JSON
        """The index and score of each result."""
        match self.settings.provider:
            case "tei":
                return [(result["index"], result["score"]) for result in reply]
            case "voyage":
                return [(result["index"], result["relevance_score"]) for result in reply["data"]]
            case _:
                return [(result["index"], result["relevance_score"]) for result in reply["results"]]


def by_index(results: Sequence[tuple[Any, Any]], count: int) -> list[float | None]:
    """The first finite score of each index below `count`, or None; other indexes are ignored.

    Example: [(2, 0.9), (0, 0.4), (2, 0.1), (7, 0.3)] with count 3 -> [0.4, None, 0.9].

    Raises:
        TypeError: an index is not an integer, or a score is not a number.
        OverflowError: a score is too large for a float.
        ValueError: the reply has no score.
    """
    scores: list[float | None] = [None] * count
    for index, score in results:
        if type(index) is not int or type(score) not in {int, float, type(None)}:
            raise TypeError("an index or a score of the wrong type")
        if 0 <= index < count and scores[index] is None and score is not None and math.isfinite(score):
            scores[index] = float(score)
    if all(score is None for score in scores):
        raise ValueError("no score")
    return scores


def probabilities(scores: Sequence[float | None]) -> list[float | None]:
    """`scores`, unchanged if all lie in [0, 1]; otherwise they are logits and become probabilities.

    Some models return percentages or points, whose probabilities would all be 1; these become shares of the
    highest.
    Example: [0.2, None, 0.9] stays; [2.0, None, 0.0] -> [0.88, None, 0.5]; [100.0, 50.0] -> [1.0, 0.5].
    """
    highest = max((score for score in scores if score is not None), default=0.0)
    if all(score is None or 0 <= score <= 1 for score in scores):
        return list(scores)
    if highest > HIGHEST_LOGIT:
        return [None if score is None else max(score, 0.0) / highest for score in scores]
    return [None if score is None else logistic(score) for score in scores]


@asynccontextmanager
async def remote_reranker(
    settings: RerankerSettings, environment: Mapping[str, str], *, breaker: Breaker | None = None
) -> AsyncIterator[RemoteReranker]:
    """The reranker behind an endpoint, for as long as the context lasts."""
    endpoints = await to_thread.run_sync(import_module, "rag.models.endpoint")  # takes 0.5 s and more
    opening = endpoints.open_endpoint("reranking", settings, environment, TIMEOUT_SECONDS, breaker)
    async with opening as endpoint:
        yield RemoteReranker(endpoint, settings)
