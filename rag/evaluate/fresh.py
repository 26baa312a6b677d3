"""A judged set's documents, ingested into a temporary data folder."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rag.access.names import DEFAULT_TENANT
from rag.config.settings import DEFAULT_COLLECTION, IngestSettings
from rag.ingest.ingest_run import ingest
from rag.ingest.rights.requested_rights import Rights
from rag.ingest.run_steps import Instructions
from rag.models.embed import open_embedder
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rag.config.settings import Settings
    from rag.corpus import LanguageChoice
    from rag.evaluate.sets.judged import JudgedDocument
    from rag.ingest.report import Report
    from rag.ingest.run_progress import Progress


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
    async with open_embedder(settings.embedder, environment) as embedder:
        for tenant, names in by_tenant.items():
            made = await ensure_collection(
                settings.data, tenant, DEFAULT_COLLECTION, embedder.identity, language=language
            )
            async with open_writer(settings.data, made) as writer:
                report = await ingest(
                    writer,
                    embedder,
                    [folder / tenant],
                    # The operator's patterns and access rules are about the operator's files.
                    Instructions(
                        IngestSettings(),
                        settings.chunking.max_tokens,
                        Rights("tenant"),
                        chunking=settings.chunking.chunkings(),
                    ),
                    progress,
                )
            failed |= _failed(report, names)
    return frozenset(failed)


def _failed(report: Report, names: Mapping[str, str]) -> set[str]:
    stored = {one.path for one in report.outcomes if one.source_id}
    return {name for path, name in names.items() if path not in stored}
