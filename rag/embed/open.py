"""From settings to a ready embedder."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from rag.embed import Embedder
    from rag.settings import EmbedderSettings


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
    from rag.embed.local import builtin_embedder, folder_embedder  # noqa: PLC0415 takes 0.2 s

    if settings.path and settings.provider == "onnx":
        return folder_embedder(settings, settings.path)
    return builtin_embedder(settings)


def _remote(
    settings: EmbedderSettings, environment: Mapping[str, str]
) -> AbstractAsyncContextManager[Embedder]:
    from rag.embed.remote import remote_embedder  # noqa: PLC0415 takes 0.5 s and more

    return remote_embedder(settings, environment)
