"""Rerankers: models that score how well a text answers a query."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from anyio import to_thread

from rag.config.model_settings import RerankerSettings
from rag.config.profiles import NO_OTHER_MODEL
from rag.errors import ConfigurationError
from rag.models.breaker import Breaker


class Reranker(Protocol):
    """A model that scores how well a text answers a query; safe to share between tasks."""

    def with_model(self, name: str) -> Reranker:
        """The reranker with another model behind the same endpoint; as it is if the name is empty.

        Raises:
            ConfigurationError: there is only one model.
        """

    async def scores(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """One score from 0 to 1 per text, in the texts' order; None where the model gave none.

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
            async with await to_thread.run_sync(_remote, settings, environment, breaker) as reranker:
                yield reranker


def _local(settings: RerankerSettings) -> Reranker:
    from rag.models.rerank.cross_encoder import cross_encoder  # noqa: PLC0415 takes 0.2 s

    return cross_encoder(settings)


def _remote(
    settings: RerankerSettings, environment: Mapping[str, str], breaker: Breaker | None
) -> AbstractAsyncContextManager[Reranker]:
    from rag.models.rerank.remote_reranker import remote_reranker  # noqa: PLC0415 takes 0.5 s and more

    return remote_reranker(settings, environment, breaker=breaker)


def no_other_model(name: str) -> ConfigurationError:
    """The error of a reranker that has only one model."""
    message = NO_OTHER_MODEL.format(name)
    return ConfigurationError(message[0].upper() + message[1:])


def logistic(logit: float) -> float:
    """The probability of a logit, from 0 to 1. Example: 0.0 -> 0.5, 2.0 -> 0.88, -2.0 -> 0.12."""
    return (1 + math.tanh(logit / 2)) / 2  # 1 / (1 + exp(-x)) overflows below -709
