"""Reranking by an endpoint, in the three dialects that such servers speak.

"cohere" is also that of Jina, vLLM, Infinity, LiteLLM and llama.cpp; "tei" is Text Embeddings Inference.
"""

from __future__ import annotations

import json
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rag.errors import ProviderError
from rag.models.endpoint import FIRST_DELAY, RefusedError, open_endpoint
from rag.models.rerank import logistic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.config.settings import RerankerSettings
    from rag.models.endpoint import Endpoint

TIMEOUT_SECONDS = 30.0  # of one attempt; how long a search waits in all is its stage's


@dataclass(frozen=True, slots=True)
class RemoteReranker:
    """A reranker behind HTTP."""

    endpoint: Endpoint
    settings: RerankerSettings

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """One score per text, in batches that get smaller when the endpoint refuses one.

        Raises:
            ProviderError: the endpoint failed, or its answer is none, or has no score for any text.
        """
        size, given = len(texts), list[float | None]()
        while len(given) < len(texts):
            batch = texts[len(given) : len(given) + size]
            try:
                given += await self._given(query, batch)
            except RefusedError:
                if len(batch) == 1:
                    raise
                size = len(batch) // 2
        return probabilities(given)

    async def _given(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """The scores of one reply as they are."""
        body = await self.endpoint.answer(lambda: self._request(query, texts))
        try:
            return by_place(self._results(json.loads(body)), len(texts))
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise ProviderError(
                f"{self.endpoint.name} answered {len(texts)} texts with something else than their scores."
            ) from error

    async def _request(self, query: str, texts: Sequence[str]) -> bytes:
        body = self._question(query, list(texts))
        return await self.endpoint.client.post("/rerank", cast_to=bytes, body=body)

    def _question(self, query: str, texts: list[str]) -> dict[str, Any]:
        model = self.settings.model
        match self.settings.provider:
            case "tei":
                return {"query": query, "texts": texts, "truncate": True}
            case "voyage":
                return {"model": model, "query": query, "documents": texts, "top_k": len(texts)}
            case _:
                return {"model": model, "query": query, "documents": texts, "top_n": len(texts)}

    def _results(self, reply: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 whatever the JSON held
        """Index and score of each result."""
        match self.settings.provider:
            case "tei":
                return [(result["index"], result["score"]) for result in reply]
            case "voyage":
                return [(result["index"], result["relevance_score"]) for result in reply["data"]]
            case _:
                return [(result["index"], result["relevance_score"]) for result in reply["results"]]


def by_place(results: Sequence[tuple[Any, Any]], count: int) -> list[float | None]:
    """The first finite score of each of `count` places, None where there is none; other indexes are ignored.

    Example: [(2, 0.9), (0, 0.4), (2, 0.1), (7, 0.3)] for 3 places -> [0.4, None, 0.9].

    Raises:
        TypeError: an index is no integer, or a score no number.
        OverflowError: a score is too large for a float.
        ValueError: no place has a score.
    """
    places: list[float | None] = [None] * count
    for index, score in results:
        if type(index) is not int or type(score) not in {int, float, type(None)}:
            raise TypeError("no index or no score")
        if 0 <= index < count and places[index] is None and score is not None and math.isfinite(score):
            places[index] = float(score)
    if all(score is None for score in places):
        raise ValueError("no score")
    return places


def probabilities(scores: Sequence[float | None]) -> list[float | None]:
    """`scores` as they are if all lie in [0, 1]; else all are logits, and become what they stand for.

    Example: [0.2, None, 0.9] stays; [2.0, None, 0.0] -> [0.88, None, 0.5].
    """
    if all(score is None or 0 <= score <= 1 for score in scores):
        return list(scores)
    return [None if score is None else logistic(score) for score in scores]


@asynccontextmanager
async def remote_reranker(
    settings: RerankerSettings,
    environment: Mapping[str, str],
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    first_delay: float = FIRST_DELAY,
) -> AsyncIterator[RemoteReranker]:
    """A reranker whose connection lives as long as the context; nothing is sent yet."""
    async with open_endpoint(
        "reranking", settings, environment, timeout_seconds=timeout_seconds, first_delay=first_delay
    ) as endpoint:
        yield RemoteReranker(endpoint, settings)
