"""Embedding models: the built-in one, a local ONNX folder, or an endpoint with OpenAI's API.

All stored vectors and query vectors have unit length. Then the dot product is the cosine, the metrics cosine,
dot and euclidean give the same order, and a similarity means the same in every collection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
import numpy as np
from anyio import to_thread

from rag.config.model_settings import MULTILINGUAL_MODEL, EmbedderSettings
from rag.corpus import DEFAULT_EMBEDDER, EmbedderIdentity, Vectors
from rag.errors import ConfigurationError, ProviderError
from rag.models.breaker import Breaker

if TYPE_CHECKING:
    import numpy.typing as npt


TextKind = Literal["query", "document"]
CONTROL = "refdesk"
"""A text that every model embeds: if it fails, too, the model is at fault and not a text."""
log = logging.getLogger(__name__)
E5_MEAN_QUERIES = Path(__file__).with_name("e5_mean_queries.npy")
LOADED_AGAIN_SECONDS = 30  # before another attempt to load a model, which can cost seconds of CPU


@cache
def mean_queries(model: str) -> Vectors | None:
    """The mean vectors that a built-in model has for questions, by language, English first; None without.

    They tell what its queries have in common, which is no sign of what they ask for.
    """
    return np.load(E5_MEAN_QUERIES) if model == MULTILINGUAL_MODEL else None


def mean_query(identity: EmbedderIdentity | None) -> npt.NDArray[np.float32] | None:
    """The mean of all of them, if the identity is that of such a model."""
    if identity is None or identity.provider != "builtin":
        return None
    means = mean_queries(identity.model)
    return None if means is None else means.mean(axis=0)


class Embedder(Protocol):
    """An embedding model; safe to share between tasks."""

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity that collections store: only vectors of the same identity are comparable."""

    @property
    def window(self) -> int:
        """The context window in tokens, without the model's special tokens; longer texts are truncated."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The model's tokens in `text`, in order, each as (start, end) in characters."""

    def vocabulary_share(self, text: str) -> float:
        """The share of a text, from 0 to 1, that the model knows by its vocabulary; 1 if that can't be told.

        At 0 its vectors are meaningless. A long text is judged by a sample, in a few milliseconds.
        """

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """One vector of unit length per text, in order. Texts are not blank.

        A document for which the model has no valid vector gets a row of zeros.

        Raises:
            ProviderError: a remote model failed, its reply is invalid, or a query has no valid vector.
        """


class WrappedEmbedder:
    """A base for an embedder around another one, `inner`: delegates everything but `embed`."""

    __slots__ = ()
    inner: Embedder

    @property
    def identity(self) -> EmbedderIdentity:
        """As `Embedder.identity`."""
        return self.inner.identity

    @property
    def window(self) -> int:
        """As `Embedder.window`."""
        return self.inner.window

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """As `Embedder.token_spans`."""
        return self.inner.token_spans(text)

    def vocabulary_share(self, text: str) -> float:
        """As `Embedder.vocabulary_share`."""
        return self.inner.vocabulary_share(text)


@dataclass(slots=True)
class Embedders:
    """The embedders of the settings by name. The default is open; others are opened on first use.

    So an unused model takes no memory. `opened` are the open ones.
    """

    opened: dict[str, Embedder]
    settings: Mapping[str, EmbedderSettings] = field(default_factory=dict)
    open: Callable[[str], AbstractAsyncContextManager[Embedder]] | None = None
    _kept: AsyncExitStack = field(default_factory=AsyncExitStack)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _failed: dict[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def default(self) -> Embedder:
        """The embedder in [embedder]."""
        return self.opened[DEFAULT_EMBEDDER]

    def baseline(self, name: str) -> float | None:
        """The cosine of unrelated texts for this embedder, if the settings have one."""
        return self.settings[name].baseline if name in self.settings else None

    async def embedder(self, name: str) -> Embedder:
        """The embedder of this name.

        Raises:
            ConfigurationError: the settings lack it, or it can't be loaded.
        """
        return self.opened.get(name) or await self._newly_opened(name)

    async def _newly_opened(self, name: str) -> Embedder:
        if self.open is None:
            raise ConfigurationError(f"The settings have no embedder {name!r}.")
        async with self._lock:
            if name in self.opened:
                return self.opened[name]
            until, why = self._failed.get(name, (-inf, ""))
            if anyio.current_time() < until:
                raise ConfigurationError(why)
            try:
                self.opened[name] = await self._kept.enter_async_context(self.open(name))
            except ConfigurationError as error:
                self._failed[name] = anyio.current_time() + LOADED_AGAIN_SECONDS, str(error)
                log.warning("The embedder %r can't be used: %s", name, error)
                raise
            return self.opened[name]

    async def close(self) -> None:
        """Close the embedders that were opened by name."""
        await self._kept.aclose()


@asynccontextmanager
async def open_embedders(
    settings: Mapping[str, EmbedderSettings],
    environment: Mapping[str, str],
    breakers: Mapping[str, Breaker],
    installed: Callable[[str], EmbedderSettings | None],
) -> AsyncIterator[Embedders]:
    """The embedders of the settings, for as long as the context lasts. Nothing is sent to an endpoint.

    `breakers` are those of the endpoints, by the names of the embedders. A name that the settings lack is
    looked for among the `installed` models.

    Raises:
        ConfigurationError: the default can't be loaded, or its key is missing.
    """

    def opening(name: str) -> AbstractAsyncContextManager[Embedder]:
        folder = settings.get(name) or installed(name)
        if folder is None:
            raise ConfigurationError(f"The settings have no embedder {name!r}.")
        return open_embedder(folder, environment, probe=False, breaker=breakers.get(name))

    async with opening(DEFAULT_EMBEDDER) as default:
        embedders = Embedders({DEFAULT_EMBEDDER: default}, settings, opening)
        try:
            yield embedders
        finally:
            await embedders.close()


@asynccontextmanager
async def open_embedder(
    settings: EmbedderSettings,
    environment: Mapping[str, str],
    *,
    probe: bool = True,
    breaker: Breaker | None = None,
) -> AsyncIterator[Embedder]:
    """The embedder in the settings, for as long as the context lasts.

    The API key of a remote one is read from `environment`. With `probe`, its endpoint is asked for a vector;
    without one, its identity may lack the dimension. Libraries are imported and models loaded in worker
    threads, so the event loop stays responsive.

    Raises:
        ConfigurationError: the model can't be loaded, or a key is missing.
        ProviderError: a remote endpoint that is probed fails, or its reply holds no valid vectors.
    """
    if settings.provider == "openai":
        remote = partial(_remote, settings, environment, probe=probe, breaker=breaker)
        async with await to_thread.run_sync(remote) as embedder:
            yield embedder
    else:
        yield await to_thread.run_sync(_local, settings)


def _local(settings: EmbedderSettings) -> Embedder:
    from rag.models.embed.local_embedder import builtin_embedder, folder_embedder  # noqa: PLC0415 takes 0.2 s

    if settings.provider == "onnx":
        return folder_embedder(settings, settings.folder)
    return builtin_embedder(settings)


def _remote(
    settings: EmbedderSettings, environment: Mapping[str, str], *, probe: bool, breaker: Breaker | None
) -> AbstractAsyncContextManager[Embedder]:
    from rag.models.embed.remote_embedder import remote_embedder  # noqa: PLC0415 takes 0.5 s and more

    return remote_embedder(settings, environment, probe=probe, breaker=breaker)


def unit_rows(rows: npt.NDArray[np.float32] | npt.NDArray[np.float64]) -> Vectors:
    """Every row scaled to unit length; a row that is not finite becomes zero.

    Example: [[3, 4], [inf, 0]] -> [[0.6, 0.8], [0, 0]].
    """
    with np.errstate(over="ignore", invalid="ignore"):  # such rows become zero
        norms = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
    valid = np.isfinite(norms) & (norms > 0)
    zeros = np.zeros(rows.shape, np.float64)
    unit: Vectors = np.divide(rows, norms, out=zeros, where=valid).astype(np.float32)
    return unit


def check_queries(vectors: Vectors, kind: TextKind) -> None:
    """Raise ProviderError if a query has no vector; documents may lack one."""
    if kind == "query" and not vectors.any(axis=1).all():
        raise ProviderError("The embedding model returned a vector that is zero or not finite.")
