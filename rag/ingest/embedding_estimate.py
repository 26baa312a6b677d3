"""Estimates what an ingestion would embed, with an embedder that counts texts instead of embedding them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rag.corpus import EmbedderIdentity, Vectors
from rag.models.embed import Embedder, TextKind, WrappedEmbedder

if TYPE_CHECKING:
    from rag.ingest.report import Report
    from rag.models.embed.embedding_cache import EmbeddingCache

SAMPLED = 32  # texts that a local model embeds, to measure its rate


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do. `tokens` excludes those of `cached` chunks.

    `cost` is in the currency of the price, None without a price; `seconds` is None without a known rate.
    """

    documents: int
    unchanged: int
    failed: int
    chunks: int
    cached: int
    tokens: int
    cost: float | None
    seconds: float | None


@dataclass(slots=True)
class CountingEmbedder(WrappedEmbedder):
    """An embedder that counts texts and their tokens, and returns the same vector for all.

    Repeated texts, and texts in the `cache`, count as `cached`.
    """

    inner: Embedder
    cache: EmbeddingCache | None = None
    texts: int = 0
    tokens: int = 0
    cached: int = 0
    sample: list[str] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)

    @property
    def identity(self) -> EmbedderIdentity:
        """The embedder's identity, with dimension 1 if its own isn't known."""
        identity = self.inner.identity
        return replace(identity, dimension=identity.dimension or 1)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 the protocol's
        """Count texts; the vectors are placeholders."""
        cached_vectors = self.cache.vectors(texts) if self.cache else {}
        for text in texts:
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if text in cached_vectors or digest in self._seen:
                self.cached += 1
                continue
            self._seen.add(digest)
            self.texts += 1
            self.tokens += min(len(self.token_spans(text)), self.window)
            if len(self.sample) < SAMPLED:
                self.sample.append(text)
        return np.full((len(texts), self.identity.dimension), 1.0, np.float32)

    async def measured_rate(self) -> float | None:
        """Tokens per second of a local model, measured on a sample of the texts."""
        if not self.sample:
            return None
        tokens = sum(min(len(self.token_spans(text)), self.window) for text in self.sample)
        began = time.monotonic()
        await self.inner.embed(self.sample, "document")
        return tokens / max(time.monotonic() - began, 1e-6)


def estimate(
    report: Report, counted: CountingEmbedder, *, price: float, rate: float | None, reading_seconds: float
) -> Estimate:
    """The estimate after a dry run. Reading and embedding overlap, so the slower one counts."""
    counts = report.counts
    embedding = counted.tokens / rate if rate else (None if counted.tokens else 0.0)
    return Estimate(
        documents=counts["added"] + counts["replaced"],
        unchanged=counts["unchanged"] + counts["moved"],
        failed=counts["skipped"],
        chunks=counted.texts + counted.cached,
        cached=counted.cached,
        tokens=counted.tokens,
        cost=counted.tokens * price / 1e6 if price else None,
        seconds=None if embedding is None else max(embedding, reading_seconds),
    )
