"""The embedder of an ingestion: behind the embedding cache, and with its costs in the report."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from anyio import to_thread

from rag.config.model_settings import EmbedderSettings
from rag.config.settings import Settings
from rag.corpus import Collection, Vectors
from rag.ingest.chunk_vectors import CONTROL
from rag.ingest.report import Bill, Report
from rag.models.embed import Embedder
from rag.models.embed.embedding_cache import CachedEmbedder, EmbeddingCache, delete, fingerprint
from rag.store.write.desk_folder import read_key


@asynccontextmanager
async def with_cache(
    settings: Settings, collection: Collection, embedder: Embedder
) -> AsyncIterator[Embedder]:
    """The embedder behind the data folder's cache, unless the settings turn that off.

    A look-up takes 20 µs a text, the built-in model 5 ms and more, so the cache serves that, too.
    """
    if not settings.ingest.embedding_cache_bytes:
        delete(settings.data)
        yield embedder
        return
    parts = None
    if settings.embedder_named(collection.embedder_name).provider == "openai":
        from rag.models.embed.remote_embedder import RemoteEmbedder  # noqa: PLC0415 takes 0.5 s and more

        parts = embedder.parts if isinstance(embedder, RemoteEmbedder) else None
    cache = cache_of(settings, collection)
    await to_thread.run_sync(cache.check_model, await _control(embedder))
    cached = CachedEmbedder(embedder, cache, parts)
    try:
        yield cached
    finally:
        if cached.tokens:
            cache.note_rate(cached.tokens, cached.seconds)
        cache.close()


async def _control(embedder: Embedder) -> Vectors:
    """The vector of a fixed text, which identifies the model to the cache; remote ones have it already."""
    vector: Vectors | None = getattr(embedder, "control", None)
    return await embedder.embed([CONTROL], "document") if vector is None else vector


def cache_of(settings: Settings, collection: Collection) -> EmbeddingCache:
    """The cache for a collection's embedder."""
    model = settings.embedder_named(collection.embedder_name)
    return EmbeddingCache(
        settings.data,
        read_key(settings.home),
        collection.tenant,
        collection.name,
        fingerprint(collection.embedder, model.max_tokens, model.dimensions or 0),
        settings.ingest.embedding_cache_bytes,
    )


def with_bill(report: Report, embedder: Embedder, model: EmbedderSettings) -> Report:
    """The report of a run with what it sent to a remote embedder, and the notes of the cache."""
    cached, notes = 0, tuple[str, ...]()
    if isinstance(embedder, CachedEmbedder):
        cached, notes, embedder = embedder.cached, tuple(embedder.cache.notes), embedder.inner
    report = replace(report, notes=(*report.notes, *notes))
    if model.provider != "openai":
        return report
    from rag.models.embed.remote_embedder import RemoteEmbedder  # noqa: PLC0415 takes 0.5 s and more

    if not isinstance(embedder, RemoteEmbedder):
        return report
    sent = embedder.model.sent
    bill = Bill(sent.texts, sent.tokens, cached, sent.unreported, model.price)
    return replace(report, bill=bill)
