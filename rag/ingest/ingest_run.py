"""One ingestion run: discover, move, then prepare, embed and write concurrently, then remove and report."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import to_thread

from rag.ingest.container_cache import ContainerCache, file_of
from rag.ingest.containers import Spool, open_containers, spooling
from rag.ingest.discover import Discovery, discover
from rag.ingest.prepare import Prepared
from rag.ingest.report import InterruptedRunError, Report
from rag.ingest.run_outcomes import check_extras
from rag.ingest.run_progress import Progress
from rag.ingest.run_steps import IngestSteps, Instructions
from rag.models.embed import Embedder
from rag.runtime import concurrently
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import KnownSource, NewSource

if TYPE_CHECKING:
    from rag.ingest.rights.requested_rights import Rights


@dataclass(frozen=True, slots=True)
class DiscoveryInput:
    """What a run passes to an origin: the spool for its documents, and the `stored` sources by URI.

    A changed `recipe` means that every document must be read again.
    """

    spool: Spool
    stored: Mapping[str, KnownSource]
    recipe: str
    rights: Rights
    opened: ContainerCache


Origin: TypeAlias = "Callable[[DiscoveryInput], Awaitable[Discovery]]"
"""Discovers the documents of an origin other than a folder; see `rag.ingest.origins`."""


async def ingest(
    writer: CollectionWriter,
    embedder: Embedder,
    paths: Iterable[Path] | Origin,
    instructions: Instructions,
    progress: Progress,
) -> Report:
    """Bring the collection to the state of the files at `paths`, or of an origin.

    A file that can't be read is skipped with its reason, and an earlier version of it stays.

    Raises:
        ConfigurationError: the settings need an extra that isn't installed.
        InterruptedRunError: the embedder failed; what it had embedded is stored.
        ProviderError, StoreError: it failed before the first file, or the storage failed; what was written
        stays.
    """
    check_extras(instructions.settings)
    with spooling(writer.spools_in, writer.collection) as spool:
        steps = IngestSteps(writer, embedder, instructions, progress, await writer.records())
        stored = await steps.look_up()
        noted, rights = file_of(writer.data, writer.collection), instructions.rights
        opened = ContainerCache.read(noted, steps.recipe, instructions.settings, rights, stored)
        if callable(paths):
            discovery = await paths(DiscoveryInput(spool, stored, steps.recipe, rights, opened))
        else:
            look = partial(discover, paths, instructions.settings, without=writer.data)
            discovery = await to_thread.run_sync(look)
        await open_containers(discovery, spool, instructions.settings, stored, opened)
        report = await _bring_to(steps, discovery)
        if writer.writes:
            opened.keep(noted, discovery, steps.outcomes)
        return report


async def _bring_to(steps: IngestSteps, discovery: Discovery) -> Report:
    """Call the steps in the only order in which they work (each reads what those before it left)."""
    await steps.begin(discovery)
    await steps.move(discovery)
    to_embed, prepared = anyio.create_memory_object_stream[Prepared](math.inf)  # back-pressure bounds both
    to_write, embedded = anyio.create_memory_object_stream[NewSource](math.inf)
    await concurrently(
        [
            partial(steps.prepare, discovery, to_embed),
            partial(steps.embed, prepared, to_write),
            partial(steps.write, embedded),
        ]
    )
    await steps.settle()
    # Only a run that has stored everything removes sources.
    notes = [] if steps.failure else await steps.remove(discovery)
    report = await steps.report(discovery, notes)
    if steps.failure:
        unfinished = len(discovery.files) + len(discovery.outcomes) - len(report.outcomes)
        raise InterruptedRunError(steps.failure, report, unfinished) from steps.failure
    return report
