"""An evaluation: prepare the documents and the judgements, then one run per contender.

It searches an existing data folder, or a temporary one into which the judged set's documents are ingested.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rag.access.rule import DEFAULT_TENANT
from rag.access.tenants import tenant_of
from rag.answers import Mode, SearchRequest
from rag.config.settings import DEFAULT_COLLECTION, IngestSettings, Settings, StorageSettings
from rag.corpus import Collection, LanguageChoice, Principal
from rag.errors import ConfigurationError
from rag.evaluate.ask_questions import Contender, ask_all
from rag.evaluate.compare_runs import EvaluationRun, Summary, latency, means, relevant_settings, versions
from rag.evaluate.judged_sets import JudgedDocument, JudgedSet
from rag.evaluate.judgements import ResolvedQuestion, load_catalog, resolve_question
from rag.ingest.document_languages import fitting_embedder
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Progress
from rag.ingest.requested_access import Rights
from rag.models.embed import open_embedder
from rag.search.desk import Desk
from rag.search.search_plan import make_plan, with_every_override
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection


async def ingest_documents(
    documents: Sequence[JudgedDocument],
    folder: Path,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    language: LanguageChoice | None,
    progress: Progress,
) -> frozenset[str]:
    """Ingest the documents as files below `folder`. Returns the names of those that failed.

    Raises:
        ProviderError, StoreError: the embedder or the storage failed.
    """
    by_tenant: dict[str, dict[str, str]] = defaultdict(dict)
    for document in documents:
        tenant = document.tenant or settings.principal.tenant or DEFAULT_TENANT
        file = folder / tenant / document.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document.content, encoding="utf-8", newline="")
        by_tenant[tenant][str(file.resolve())] = document.name
    failed: set[str] = set()
    name, _ = await fitting_embedder(settings, [folder])
    async with open_embedder(settings.embedder_named(name), environment) as embedder:
        for tenant, names in by_tenant.items():
            collection = await ensure_collection(
                settings.data,
                tenant,
                DEFAULT_COLLECTION,
                embedder.identity,
                language=language,
                embedder_name=name,
            )
            async with open_writer(settings.data, collection) as writer:
                report = await ingest(
                    writer,
                    embedder,
                    [folder / tenant],
                    # The operator's patterns and access rules are about the operator's files.
                    Instructions(IngestSettings(), Rights("tenant")),
                    progress,
                )
            stored = {outcome.path for outcome in report.outcomes if outcome.source_id}
            failed |= {name for path, name in names.items() if path not in stored}
    return frozenset(failed)


class ContenderProgress(Protocol):
    """An observer of an evaluation."""

    def run_started(self, contender: Contender, questions: int) -> None:
        """A run begins."""

    def question_done(self) -> None:
        """A question is done."""


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """Settings with the data folder to search, and the questions resolved to its sources.

    `absent` are documents of the set that failed to ingest: no search finds them. The questions are asked of
    the `collection`, if there is one.
    """

    settings: Settings
    questions: tuple[ResolvedQuestion, ...]
    absent: frozenset[str] = frozenset()
    collection: str | None = None


@asynccontextmanager
async def prepare_existing(
    judged: JudgedSet, settings: Settings, collection: str | None
) -> AsyncIterator[PreparedSet]:
    """The questions on the existing data folder, in one collection or all.

    Raises:
        ConfigurationError: there are no documents, or a judgement names an unknown source.
    """
    if collection:
        judged = _asked_in(collection, judged)
    yield await _prepare(judged, _with_tenant(settings), {}, collection, frozenset())


@asynccontextmanager
async def prepare_fresh(
    judged: JudgedSet,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    language: LanguageChoice | None,
    progress: Progress,
) -> AsyncIterator[PreparedSet]:
    """The questions on a temporary data folder with the set's own documents.

    Raises:
        ConfigurationError: the set has no documents, or a judgement names an unknown source.
        ProviderError, StoreError: the embedder or the storage failed.
    """
    if not judged.documents:
        raise ConfigurationError(
            f"{judged.name} has no documents. Leave out --fresh to search the existing collections."
        )
    with tempfile.TemporaryDirectory(prefix="refdesk-eval-") as scratch:
        elsewhere = {"data": Path(scratch, "data"), "storage": StorageSettings()}
        settings = _with_tenant(settings).model_copy(update=elsewhere).at(None)
        files = Path(scratch, "documents")
        absent = await ingest_documents(
            judged.documents, files, settings, environment, language=language, progress=progress
        )
        if len(absent) == len(judged.documents):
            raise ConfigurationError(f"All documents of {judged.name} failed to ingest.")
        names = {document.filename: document.name for document in judged.documents}
        yield await _prepare(judged, settings, names, None, absent)


def _asked_in(collection: str, judged: JudgedSet) -> JudgedSet:
    """The questions, asked of one collection; none may name its own."""
    for question in judged.questions:
        if question.asking.collections:
            raise ConfigurationError(
                f"Question {question.id} names its own collections. Leave out --collection."
            )
    questions = (
        replace(question, asking=replace(question.asking, collections=(collection,)))
        for question in judged.questions
    )
    return replace(judged, questions=tuple(questions))


def _with_tenant(settings: Settings) -> Settings:
    principal = settings.principal.model_copy(update={"tenant": tenant_of(settings)})
    return settings.model_copy(update={"principal": principal})


async def _prepare(
    judged: JudgedSet,
    settings: Settings,
    names: Mapping[str, str],
    collection: str | None,
    absent: frozenset[str],
) -> PreparedSet:
    reader = DeskReader.of(settings)
    usual = settings.principal.of_tenant(settings.principal.tenant or DEFAULT_TENANT)
    askers = [question.asking.principal or usual for question in judged.questions]
    catalogs = {
        tenant: await load_catalog(reader, tenant, names=names, only=collection)
        for tenant in dict.fromkeys(asker.tenant for asker in askers)
    }
    if not any(catalog.tables for catalog in catalogs.values()):
        searched = f"the collection {collection!r} of {settings.home}" if collection else settings.home
        raise ConfigurationError(
            f"There are no documents in {searched}. Add some with refdesk-admin ingest PATH, or use the "
            "set's own documents with --fresh."
        )
    pairs = zip(judged.questions, askers, strict=True)
    questions = [
        await resolve_question(question, asker, catalogs[asker.tenant], absent) for question, asker in pairs
    ]
    return PreparedSet(settings, tuple(questions), absent, collection)


def evaluation_settings(settings: Settings) -> Settings:
    """The settings for an evaluation, which sets mode and limit itself: every override is allowed.

    Degraded searches are errors: one that went by words alone would be measured as if it were hybrid.
    """
    search, strict = with_every_override(settings.search), {"degrade": False}
    overlays = {
        kind: {name: overlay.model_copy(update=strict) for name, overlay in getattr(search, kind).items()}
        for kind in ("profiles", "of_tenants")
    }
    return settings.model_copy(update={"search": search.model_copy(update=strict | overlays)})


def contenders(
    settings: Settings, profiles: Sequence[str], modes: Sequence[Mode | None]
) -> dict[Contender, int]:
    """Every profile in every mode (None: the profile's), each once, with its number of candidates.

    Raises:
        InvalidRequestError: a profile doesn't exist.
    """
    asker = Principal(settings.principal.tenant or DEFAULT_TENANT)
    plans = [
        (profile, make_plan(SearchRequest("?", profile=profile, mode=mode), settings.search, asker))
        for profile in profiles
        for mode in modes
    ]
    return {Contender(profile, plan.mode): plan.candidates for profile, plan in plans}


async def evaluate(
    judged: JudgedSet,
    prepared: PreparedSet,
    environment: Mapping[str, str],
    chosen: Mapping[Contender, int],
    progress: ContenderProgress | None = None,
    *,
    seen_as: Callable[[Collection], Collection] | None = None,
) -> list[EvaluationRun]:
    """One run per contender, on the same questions. `seen_as` is as in `DeskReader`.

    Raises:
        InvalidRequestError: a question is not a valid query.
        NotFoundError: a question names a collection that doesn't exist for its asker.
        ConfigurationError: another model than the one in the settings made the vectors of a collection.
        NotReadyError: a stage or an attached collection failed.
        ProviderError, StoreError: the embedder or the storage failed.
    """
    runs = []
    of_collection = {"collection": prepared.collection} if prepared.collection else {}
    async with Desk.open(prepared.settings, environment, seen_as=seen_as) as desk:
        # Connect now: the engine makes the folder that it connects to, and if it were interrupted in that, a
        # temporary one would stay behind.
        await desk.collections(Principal(prepared.settings.principal.tenant or DEFAULT_TENANT))
        for contender, candidates in chosen.items():
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            if progress:
                progress.run_started(contender, len(prepared.questions))
            results = await ask_all(
                desk,
                prepared.questions,
                contender,
                candidates=candidates,
                server=prepared.settings.server,
                progress=progress.question_done if progress else None,
            )
            summary = Summary(
                set=judged.name,
                profile=contender.profile,
                mode=contender.mode,
                started_at=started_at,
                queries=len(results),
                left_out=judged.left_out,
                leaks=sum(len(result.leaks) for result in results),
                metrics=means(results),
                latency_ms=latency(results),
                settings=of_collection | relevant_settings(prepared.settings),
                versions=versions(),
            )
            runs.append(EvaluationRun(summary=summary, questions=results))
    return runs
