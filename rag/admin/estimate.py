"""`refdesk-admin ingest --estimate`: what a run would embed, cost and take. Nothing is stored or sent."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag.access.names import valid_name
from rag.access.tenants import tenant_of
from rag.admin.console import echo, print_json
from rag.admin.embedding import cache_of
from rag.admin.sources import open_reader
from rag.corpus import DEFAULT_EMBEDDER, Collection
from rag.ingest.embedding_estimate import CountingEmbedder, Estimate, estimate
from rag.ingest.ingest_run import ingest
from rag.ingest.policy.moderation import unasked
from rag.ingest.run_progress import Silent
from rag.ingest.run_steps import Instructions
from rag.models.embed import open_embedder
from rag.models.embed.cache import cache_file
from rag.report.tables import counted
from rag.store.care.rehearsal import open_rehearsal
from rag.store.write.make_collection import DEFAULT_LANGUAGE

if TYPE_CHECKING:
    from pathlib import Path

    from rag.config.settings import Settings
    from rag.corpus import EmbedderIdentity
    from rag.ingest.report import Report
    from rag.ingest.rights.requested_rights import Rights


async def run_estimate(
    settings: Settings, paths: tuple[Path, ...], collection: str, rights: Rights, *, as_json: bool
) -> Report:
    """Print what an ingestion of these paths would embed. Returns the report of the rehearsed run."""
    name, tenant = valid_name(collection), tenant_of(settings)
    made = {one.name: one for one in await open_reader(settings).collections(tenant)}.get(name)
    model = settings.embedder_named(made.embedder_name if made else DEFAULT_EMBEDDER)
    remote = model.provider == "openai"
    async with open_embedder(model, os.environ, probe=False) as embedder:
        made = made or _new(tenant, name, embedder.identity)
        there = settings.ingest.embedding_cache_bytes and cache_file(settings.data).exists()
        cache = cache_of(settings, made) if there else None
        counting = CountingEmbedder(embedder, cache)
        moderator = unasked(settings.moderation)
        instructions = Instructions.of(settings, rights, removes=True, moderator=moderator)
        began = time.monotonic()
        async with open_rehearsal(settings.data, made) as writer:
            report = await ingest(writer, counting, paths, instructions, Silent())
        reading = time.monotonic() - began
        rate = await counting.measured_rate() if not remote else cache.rate() if cache else None
        if cache:
            cache.close()
    found = estimate(report, counting, price=model.price, rate=rate, reading_seconds=reading)
    if as_json:
        print_json(asdict(found))
    else:
        _print(found, remote=remote)
    return report


def _new(tenant: str, name: str, identity: EmbedderIdentity) -> Collection:
    return Collection(tenant, name, identity, DEFAULT_LANGUAGE, "cosine", datetime.now(UTC))


def _print(found: Estimate, *, remote: bool) -> None:
    failed = f", {counted(found.failed, 'file')} can't be read" if found.failed else ""
    echo(f"{counted(found.documents, 'document')} to store, {found.unchanged} unchanged{failed}.")
    cached = f", {found.cached:,} of them in the cache or twice" if found.cached else ""
    about = "At most" if remote else "About"  # the tokens of a remote model are a high estimate
    echo(f"{counted(found.chunks, 'chunk')}{cached}. {about} {found.tokens:,} tokens to embed.")
    if found.cost is not None:
        echo(f"Cost: at most {found.cost:.4g}, by the price in the settings.")
    if found.seconds is None:
        echo("Time: not known before a first run with this model.")
    else:
        echo(f"Time: about {_duration(found.seconds)}.")
    echo("Nothing was stored or sent.")


def _duration(seconds: float) -> str:
    """Example: 5400 -> "1 h 30 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
