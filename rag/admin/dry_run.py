"""`--estimate` and `--dry-run` of `ingest` and `sync`: what a run would do. Nothing is stored or sent.

An estimate gives the chunks to embed, their cost and the time: its embedder counts texts instead of embedding
them. A dry run lists the documents that would change, and who would gain or lose access.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rag.access.rule import AccessChange, access_changes, valid_name
from rag.access.tenants import tenant_of
from rag.admin.ingest_output import outcome_line
from rag.admin.ingestion import ChosenEmbedder, cache_of, chosen_embedder
from rag.admin.sharing import usual_visibility
from rag.admin.terminal import echo, print_result
from rag.config.settings import Settings
from rag.corpus import Collection, EmbedderIdentity, Vectors
from rag.home import local_folder
from rag.ingest.document_admission import unasked
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.report import Progress, Report
from rag.ingest.requested_access import Rights
from rag.ingest.source_files import path_of
from rag.models.embed import Embedder, TextKind, WrappedEmbedder, open_embedder
from rag.models.embed.embedding_cache import EmbeddingCache, cache_file
from rag.report import counted, names_briefly
from rag.store.care.rehearsal import Rehearsal, open_rehearsal
from rag.store.read.catalog import check_writable
from rag.store.write.make_collection import DEFAULT_LANGUAGE

if TYPE_CHECKING:
    from rag.ingest.origins.origin_run import OriginRun


async def run_estimate(
    settings: Settings, paths: tuple[Path, ...], collection: str, rights: Rights, *, embedder_name: str = ""
) -> Report:
    """Print what an ingestion of these paths would embed. Returns the report of the rehearsed run."""
    async with _opened(settings, collection, paths, embedder_name) as (choice, embedder, stored):
        model = settings.embedder_named(choice.name)
        remote = model.provider == "openai"
        has_cache = settings.ingest.embedding_cache_bytes and cache_file(local_folder(settings.home)).exists()
        cache = cache_of(settings, stored) if has_cache else None
        counting = CountingEmbedder(embedder, cache)
        moderator = unasked(settings.moderation)
        instructions = Instructions(settings.ingest, rights, removes=True, moderator=moderator)
        began = time.monotonic()
        async with open_rehearsal(settings.home, stored) as writer:
            report = await ingest(writer, counting, paths, instructions, Progress())
        reading = time.monotonic() - began
        rate = await counting.measured_rate() if not remote else cache.rate() if cache else None
        if cache:
            cache.close()
    result = estimate(report, counting, price=model.price, rate=rate, reading_seconds=reading)
    print_result(asdict(result), *_lines(result, remote=remote))
    return report


@asynccontextmanager
async def _opened(
    settings: Settings, collection: str, paths: Sequence[Path], embedder_name: str
) -> AsyncIterator[tuple[ChosenEmbedder, Embedder, Collection]]:
    """The embedder that a run would take, and the collection, as it would be made if it is new."""
    name, tenant = valid_name(collection), tenant_of(settings)
    choice = await chosen_embedder(settings, tenant, name, paths, embedder_name)
    async with open_embedder(settings.embedder_named(choice.name), os.environ, probe=False) as embedder:
        new = Collection(tenant, name, embedder.identity, DEFAULT_LANGUAGE, "cosine", datetime.now(UTC))
        yield choice, embedder, choice.collection or new


def _lines(result: Estimate, *, remote: bool) -> Iterator[str]:
    failed = f", {counted(result.failed, 'file')} can't be read" if result.failed else ""
    yield f"{counted(result.documents, 'document')} to store, {result.unchanged} unchanged{failed}."
    cached = f", {result.cached:,} of them in the cache or twice" if result.cached else ""
    about = "At most" if remote else "About"  # the tokens of a remote model are a high estimate
    yield f"{counted(result.chunks, 'chunk')}{cached}. {about} {result.tokens:,} tokens to embed."
    if result.cost is not None:
        yield f"Cost: at most {result.cost:.4g}, by the price in the settings."
    lasts = "not known before a first run with this model"
    yield f"Time: {lasts if result.seconds is None else f'about {_duration(result.seconds)}'}."
    yield "Nothing was stored or sent."


def _duration(seconds: float) -> str:
    """Example: 5400 -> "1 h 30 min"."""
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes >= 60:  # noqa: PLR2004 of an hour
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"


NAMED = 5  # documents of a line
SHOWN = ("added", "moved", "replaced", "removed", "missing", "skipped")


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would report, and who would gain or lose which documents."""

    report: Report
    access: dict[str, AccessChange]


async def make_dry_run(  # noqa: PLR0913 the options of a run
    settings: Settings,
    paths: tuple[Path, ...],
    name: str,
    rights: Rights,
    *,
    removes: bool,
    embedder_name: str = "",
    origin: Callable[[Collection, Path], OriginRun] | None = None,
) -> DryRun:
    """What a run on these paths, or on an origin, would do to the collection.

    `origin` makes the run over an origin, from the collection and a folder for its files.
    """
    async with _opened(settings, name, paths, embedder_name) as (choice, embedder, collection):
        check_writable(collection)
        rights = replace(rights, usual=usual_visibility(settings, collection))
        moderator = unasked(settings.moderation)
        instructions = Instructions(settings.ingest, rights, removes=removes, moderator=moderator)
        async with open_rehearsal(settings.home, collection) as writer:
            run = origin(collection, writer.spools_in) if origin else paths
            report = await ingest(writer, CountingEmbedder(embedder), run, instructions, Progress())
    notes = report.notes
    if moderator:
        notes += ("The moderation was not asked. What it would keep out is counted as stored.",)
    return DryRun(replace(report, notes=notes, embedder=choice.reason), _changes(writer))


def _changes(writer: Rehearsal) -> dict[str, AccessChange]:
    pairs = ((writer.before.get(id_), after) for id_, after in writer.after.items())
    return access_changes(
        (
            path_of(after.uri),
            before.access if before and before.present else None,
            after.access if after.present else None,
        )
        for before, after in pairs
        if not after.is_folder
    )


def print_dry_run(rehearsed: DryRun) -> None:
    """Print what would happen, and who would gain or lose access."""
    report = rehearsed.report
    for outcome in report.outcomes:
        if outcome.outcome in SHOWN or (outcome.outcome == "unchanged" and outcome.reason):
            echo(outcome_line(outcome))
    counts = ", ".join(f"{count} {kind}" for kind, count in report.counts.items() if count)
    echo(f"Nothing was written. This run would end with: {counts or 'no documents'}.")
    if report.embedder:
        echo(f"Embedding model: {report.embedder}")
    for entry, change in sorted(rehearsed.access.items()):
        for documents, verb in ((change.gains, "gain"), (change.loses, "lose")):
            if documents:
                listed = names_briefly(sorted(documents), NAMED)
                echo(f"{entry} would {verb} {counted(len(documents), 'document')}: {listed}")
    for note in report.notes:
        echo(f"Note: {note}", err=True)


def dry_run_json(rehearsed: DryRun, report: dict[str, Any]) -> dict[str, Any]:
    """A dry run as JSON, with its report as JSON."""
    changes = {
        entry: {"gains": change.gains, "loses": change.loses} for entry, change in rehearsed.access.items()
    }
    return report | {"dry_run": True, "access_changes": changes}


SAMPLED = 32  # texts that a local model embeds, to measure its rate


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do. `tokens` counts only chunks that are not `cached`.

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
    report: Report, embedder: CountingEmbedder, *, price: float, rate: float | None, reading_seconds: float
) -> Estimate:
    """The estimate after a dry run. Reading and embedding overlap, so the slower one counts."""
    counts = report.counts
    embedding = embedder.tokens / rate if rate else (None if embedder.tokens else 0.0)
    return Estimate(
        documents=counts["added"] + counts["replaced"],
        unchanged=counts["unchanged"] + counts["moved"],
        failed=counts["skipped"],
        chunks=embedder.texts + embedder.cached,
        cached=embedder.cached,
        tokens=embedder.tokens,
        cost=embedder.tokens * price / 1e6 if price else None,
        seconds=None if embedding is None else max(embedding, reading_seconds),
    )
