"""The embedder of an ingestion: the collection's own, or the one that a new collection gets.

It works behind the embedding cache, and with its costs in the report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from rag.admin.sources_command import open_reader
from rag.admin.terminal import arguments
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, EmbedderSettings, model_name
from rag.config.settings import Settings
from rag.corpus import Collection, Vectors
from rag.errors import ConfigurationError
from rag.home import local_folder
from rag.ingest.chunk_vectors import CONTROL
from rag.ingest.document_languages import LanguageSample, fitting_embedder
from rag.ingest.report import Bill, Report
from rag.models.embed import Embedder
from rag.models.embed.embedding_cache import CachedEmbedder, EmbeddingCache, delete, fingerprint
from rag.report.text_and_html import counted
from rag.run_history import runs_of
from rag.store.read.catalog import check_embedder
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import judged_folder, read_key


@dataclass(frozen=True, slots=True)
class ChosenEmbedder:
    """The name of an embedder, and if nobody named it for this new collection, the model and why it fits.

    `collection` is None for a new one.
    """

    name: str
    reason: str = ""
    collection: Collection | None = None


async def chosen_embedder(
    settings: Settings, tenant: str, name: str, paths: Sequence[Path], requested: str = ""
) -> ChosenEmbedder:
    """The embedder for documents at these paths that go to a collection; `requested` if it is new.

    Raises:
        ConfigurationError: the settings lack the embedder, or the collection has another one than requested.
    """
    if requested:
        settings.embedder_named(requested)
    collections = await open_reader(settings, once=True).collections(tenant)
    stored = next((collection for collection in collections if collection.name == name), None)
    if stored:
        _check(settings, stored, requested)
        return ChosenEmbedder(stored.embedder_name, collection=stored)
    if requested:
        return ChosenEmbedder(requested)
    fitting, sample = await fitting_embedder(settings, paths)
    if sample is None or not sample.known:
        return ChosenEmbedder(fitting)
    alternative = model_name(ENGLISH_MODEL if sample.model == MULTILINGUAL_MODEL else MULTILINGUAL_MODEL)
    return ChosenEmbedder(
        fitting, f"{sample.model}, because {sample.reason} (--embedder {alternative} chooses the other one)"
    )


async def foreign_documents_notes(
    settings: Settings, writer: CollectionWriter, report: Report
) -> tuple[str, ...]:
    """What the multilingual model would bring to the writer's collection, at the end of a run.

    Nothing if it has another model than the English one, if too few documents are in other languages, or none
    of this run, or if an earlier run has told it.
    """
    collection = writer.collection
    is_english = (collection.embedder.provider, collection.embedder.model) == ("builtin", ENGLISH_MODEL)
    if not is_english or not LanguageSample(report.languages).foreign:
        return ()
    sample = LanguageSample(await writer.language_counts())
    if sample.model == ENGLISH_MODEL:
        return ()
    command = f"refdesk-admin collection rebuild {collection.name} --model {model_name(MULTILINGUAL_MODEL)}"
    earlier = runs_of(settings.home, collection.tenant).values()
    if any(command in note for run in earlier if run.collection == collection.name for note in run.notes):
        return ()
    note = (
        f"{sample.foreign} of {counted(sample.known, 'document')} are not in English, the only language that "
        f"the model of this collection knows. To find them by meaning, and by questions in other languages, "
        f"run {command}. It embeds all documents again, and --undo goes back."
    )
    judged = sorted(judged_folder(settings.data, collection.tenant).glob("*.jsonl"))
    if judged:
        note += (
            f" With{arguments('--questions', str(judged[0]))} it measures both models on your judged "
            "questions, and with --if-better it keeps the better one."
        )
    return (note,)


def _check(settings: Settings, collection: Collection, requested: str) -> None:
    if not settings.has_embedder(collection.embedder_name):
        check_embedder(collection, None)
    stored = collection.embedder_name
    if requested and settings.embedder_named(requested) != settings.embedder_named(stored):
        raise ConfigurationError(
            f"The collection {collection.name!r} has the embedder {stored!r}, not {requested!r}. Leave out "
            f"--embedder, or run refdesk-admin collection rebuild {collection.name} --model {requested}."
        )


@asynccontextmanager
async def with_cache(
    settings: Settings, collection: Collection, embedder: Embedder
) -> AsyncIterator[Embedder]:
    """The embedder behind the data folder's cache, unless the settings turn that off.

    A look-up takes 20 µs a text, the built-in model 5 ms and more, so the cache serves that, too.
    """
    if not settings.ingest.embedding_cache_bytes:
        delete(local_folder(settings.home))
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
        local_folder(settings.home),
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
