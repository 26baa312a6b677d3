"""An embedder that asks the cache before its model."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from anyio import to_thread

from rag.models.embed import WrappedEmbedder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from rag.corpus import Vectors
    from rag.models.embed import Embedder, TextKind
    from rag.models.embed.cache import EmbeddingCache


@dataclass(slots=True)
class CachedEmbedder(WrappedEmbedder):
    """An embedder with a cache of the vectors of documents.

    If it has `parts`, which has vectors as soon as an endpoint has answered, these are in the cache at once.
    `cached` counts the texts that were not embedded, `tokens` and `seconds` what the others took; without
    `parts` no tokens are counted.
    """

    inner: Embedder
    cache: EmbeddingCache
    parts: Callable[[Sequence[str], TextKind], AsyncGenerator[Vectors]] | None = None
    cached: int = 0
    seconds: float = 0.0
    tokens: int = field(default=0)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """As the embedder itself; equal texts are embedded once.

        Raises:
            ProviderError: the endpoint failed; what it had embedded until then is in the cache.
        """
        if kind == "query":
            return await self.inner.embed(texts, kind)
        dimension = self.identity.dimension
        known = await to_thread.run_sync(self.cache.known, texts)
        known = {text: vector for text, vector in known.items() if vector.shape == (dimension,)}
        used, missing = list(known), [text for text in dict.fromkeys(texts) if text not in known]
        self.cached += len(texts) - len(missing)
        await to_thread.run_sync(self.cache.keep, (), used)
        known |= await self._embedded(missing)
        return np.stack([known[text] for text in texts]) if texts else np.empty((0, dimension), np.float32)

    async def _embedded(self, texts: Sequence[str]) -> dict[str, Vectors]:
        vectors: dict[str, Vectors] = {}
        if not texts:
            return vectors
        began, done = time.monotonic(), 0
        async with aclosing(self._parts(texts)) as parts:
            async for part in parts:
                new = dict(zip(texts[done : done + len(part)], part, strict=True))
                done += len(part)
                vectors |= new
                valid = [(text, vector) for text, vector in new.items() if vector.any()]
                await to_thread.run_sync(partial(self.cache.keep, valid))
                if self.parts:  # the rate of a model on this machine is measured when somebody asks
                    self.tokens += sum(len(self.token_spans(text)) for text in new)
        self.seconds += time.monotonic() - began
        return vectors

    async def _parts(self, texts: Sequence[str]) -> AsyncGenerator[Vectors]:
        if self.parts is None:
            yield await self.inner.embed(texts, "document")
            return
        async with aclosing(self.parts(texts, "document")) as parts:
            async for part in parts:
                yield part
