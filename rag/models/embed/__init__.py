"""Text to vectors: the built-in model, a local ONNX folder, or an OpenAI-compatible endpoint.

From settings to a ready embedder.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from rag.config.settings import EmbedderSettings
    from rag.corpus import EmbedderIdentity, Vectors


TextKind = Literal["query", "document"]


class Embedder(Protocol):
    """A model that turns text into vectors; safe to share between tasks."""

    @property
    def identity(self) -> EmbedderIdentity:
        """What makes its vectors comparable; collections remember it."""

    @property
    def window(self) -> int:
        """How many tokens of text the model sees at most, its own special tokens not counted."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The model's tokens in `text`, each as (start, end) in characters, in order."""

    def known(self, text: str) -> float:
        """The share of a text, from 0 to 1, that the model has words for; 1 where that can't be told."""

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One unit vector per text, in order. Texts are not blank.

        Raises:
            ProviderError: a remote model failed, or answered with something that is no vector.
        """


@asynccontextmanager
async def open_embedder(
    settings: EmbedderSettings, environment: Mapping[str, str]
) -> AsyncIterator[Embedder]:
    """The embedder that the settings name, for as long as the context lasts.

    `environment` is where a remote one finds its key. Libraries are imported and models
    loaded here and in worker threads, so the event loop goes on meanwhile.

    Raises:
        ConfigurationError: the model can't be loaded, or a key is missing.
        ProviderError: a remote endpoint doesn't answer as it should.
    """
    if settings.provider == "openai":
        async with await to_thread.run_sync(_remote, settings, environment) as embedder:
            yield embedder
    else:
        yield await to_thread.run_sync(_local, settings)


def _local(settings: EmbedderSettings) -> Embedder:
    from rag.models.embed.local import builtin_embedder, folder_embedder  # noqa: PLC0415 takes 0.2 s

    if settings.path and settings.provider == "onnx":
        return folder_embedder(settings, settings.path)
    return builtin_embedder(settings)


def _remote(
    settings: EmbedderSettings, environment: Mapping[str, str]
) -> AbstractAsyncContextManager[Embedder]:
    from rag.models.embed.remote import remote_embedder  # noqa: PLC0415 takes 0.5 s and more

    return remote_embedder(settings, environment)
