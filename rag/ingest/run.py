"""One ingestion run: discover, read, parse, chunk, embed and write, each step while the next one is busy.

files -> move unchanged ones -> prepare -> Prepared -> embed -> NewSource -> write
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import to_thread

from rag.ingest.containers import open_containers
from rag.ingest.discover import discover
from rag.ingest.extras import check_extras
from rag.ingest.opened import Opened, file_of
from rag.ingest.prepare import Prepared
from rag.ingest.report import InterruptedRunError
from rag.ingest.spool import spooling
from rag.ingest.steps import Steps
from rag.runtime import concurrently
from rag.store.write.table_rows import NewSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from rag.config.settings import IngestSettings, Settings
    from rag.corpus import Chunking
    from rag.ingest.cluster import Cluster
    from rag.ingest.discover import Discovery
    from rag.ingest.moderation import Moderator
    from rag.ingest.progress import Progress
    from rag.ingest.report import Report
    from rag.ingest.rights import Rights
    from rag.ingest.spool import Spool
    from rag.models.embed import Embedder
    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import KnownSource


@dataclass(frozen=True, slots=True)
class Instructions:
    """Which files to read, how large chunks may be, and who may see new documents.

    `chunking` is what the settings say of how documents are cut; the collection's own goes first.

    `removes` turns off the guard against an unmounted folder: see `rag.ingest.removal`. Documents are
    prepared on the `cluster`, if there is one.
    """

    files: IngestSettings
    max_tokens: int
    rights: Rights
    removes: bool = False
    chunking: tuple[Chunking, ...] = ()
    moderator: Moderator | None = None
    cluster: Cluster | None = None

    @classmethod
    def of(
        cls, settings: Settings, rights: Rights, *, removes: bool = False, moderator: Moderator | None
    ) -> Instructions:
        """Those of the settings. A rehearsal needs a moderator, too: the digests depend on it."""
        chunking = settings.chunking
        return cls(settings.ingest, chunking.max_tokens, rights, removes, chunking.chunkings(), moderator)


@dataclass(frozen=True, slots=True)
class Beforehand:
    """What a run knows before it looks for documents: where copies of them go, and what is stored by URI.

    `recipe` changes when every document must be read again, and `opened` are the containers of earlier runs.
    """

    spool: Spool
    known: Mapping[str, KnownSource]
    recipe: str
    rights: Rights
    opened: Opened


Origin: TypeAlias = "Callable[[Beforehand], Awaitable[Discovery]]"
"""Looks through an origin that is no folder; see `rag.ingest.origins`."""


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
    check_extras(instructions.files)
    with spooling(writer.spools_in, writer.collection) as spool:
        steps = Steps(writer, embedder, instructions, progress, await writer.records())
        known = await steps.look_up()
        noted, rights = file_of(writer.data, writer.collection), instructions.rights
        opened = Opened.read(noted, steps.recipe, instructions.files, rights, known)
        if callable(paths):
            discovery = await paths(Beforehand(spool, known, steps.recipe, rights, opened))
        else:
            look = partial(discover, paths, instructions.files, without=writer.data)
            discovery = await to_thread.run_sync(look)
        await open_containers(discovery, spool, instructions.files, known, opened)
        report = await _bring_to(steps, discovery)
        if writer.writes:
            opened.keep(noted, discovery, steps.outcomes)
        return report


async def _bring_to(steps: Steps, discovery: Discovery) -> Report:
    await steps.begin(discovery)
    await steps.move(discovery)
    to_embed, prepared = anyio.create_memory_object_stream[Prepared](math.inf)  # `steps.ahead` bounds both
    to_write, embedded = anyio.create_memory_object_stream[NewSource](math.inf)
    await concurrently(
        [
            partial(steps.prepare, discovery, to_embed),
            partial(steps.embed, prepared, to_write),
            partial(steps.write, embedded),
        ]
    )
    await steps.settle()
    notes = [] if steps.failure else await steps.remove(discovery)
    report = await steps.report(discovery, notes)
    if steps.failure:
        left = len(discovery.found) + len(discovery.outcomes) - len(report.outcomes)
        raise InterruptedRunError(steps.failure, report, left) from steps.failure
    return report
