"""One ingestion run: discover, move, then prepare, embed and write concurrently, then remove and report.

`IngestSteps` has the steps, and the state that they share.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
from anyio import to_thread

from rag.config.settings import IngestSettings
from rag.corpus import AccessRecord
from rag.errors import ParseError, ProviderError, WithheldError
from rag.home import local_folder
from rag.ingest import chunk_vectors, containers, document_admission
from rag.ingest.access_decision import Claims, Recorded
from rag.ingest.chunk import USUAL
from rag.ingest.discover import Discovery, discover
from rag.ingest.document_languages import language_notes, note_languages, settle_languages
from rag.ingest.known_sources import (
    UnchangedSources,
    lost_ids,
    moved_sources,
    name_below_outermost_folder,
    remove_vanished,
)
from rag.ingest.prepare import Chunked, FileContent, Preparation, as_stored, usual_tokens
from rag.ingest.report import (
    InterruptedRunError,
    Outcome,
    OutcomeKind,
    Outcomes,
    Progress,
    Report,
    check_extras,
    field_notes,
)
from rag.ingest.requested_access import Rights
from rag.ingest.sandbox.parser_pool import end_idle
from rag.ingest.source_files import Budget, LocalFile, path_of, place_of
from rag.models.embed import Embedder
from rag.report import counted
from rag.runtime import concurrently, on_battery, return_memory
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import (
    KeyedRows,
    KnownSource,
    NewSource,
    can_expire,
    no_sources,
)

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream


@dataclass(frozen=True, slots=True)
class DiscoveryInput:
    """What a run passes to an origin: the spool for its documents, and the `stored` sources by URI.

    A changed `recipe` means that every document must be read again.
    """

    spool: containers.Spool
    stored: Mapping[str, KnownSource]
    recipe: str
    rights: Rights
    opened: containers.ContainerCache


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
        ProviderError, StoreError: the embedder failed before the first file, or the storage failed. Written
            sources stay.
    """
    check_extras(instructions.settings)
    with containers.spooling(writer.spools_in, writer.collection) as spool:
        steps = IngestSteps(writer, embedder, instructions, progress, await writer.records(as_swept=True))
        if writer.writes:
            await writer.drop_old_versions(timedelta(minutes=instructions.settings.keep_versions_minutes))
        stored = await steps.look_up()
        noted, rights = containers.container_cache_file(writer.data, writer.collection), instructions.rights
        recipe = steps.preparation.recipe
        opened = containers.ContainerCache.read(noted, recipe, instructions.settings, rights, stored)
        if callable(paths):
            discovery = await paths(DiscoveryInput(spool, stored, recipe, rights, opened))
        else:
            look = partial(discover, paths, instructions.settings, without=local_folder(writer.data))
            discovery = await to_thread.run_sync(look)
            await to_thread.run_sync(name_below_outermost_folder, discovery, stored)
        # Before any file is read: parts become files of the run, which move, stay or go like others.
        await containers.open_containers(discovery, spool, instructions.settings, stored, opened)
        report = await _bring_to(steps, discovery)
        if writer.writes:
            opened.keep(noted, discovery, steps.outcomes)
        return report


async def _bring_to(steps: IngestSteps, discovery: Discovery) -> Report:
    """Call the steps in the only order that works: each uses the state that earlier ones left."""
    await steps.begin(discovery)
    await steps.move(discovery)
    to_embed, prepared = anyio.create_memory_object_stream[NewSource](math.inf)  # back-pressure bounds both
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


Chunk: TypeAlias = "Callable[[Preparation, FileContent, Budget], Awaitable[Chunked]]"


@dataclass(frozen=True, slots=True)
class Executor:
    """Who parses and chunks documents: by default this machine, one small and one large at a time.

    `workers` is the number of processors that do so. A run holds more documents in memory for each.
    `tasks_per_lane` tasks take documents from each lane (`rag.ingest.chunk_vectors.lanes`); the embedder gets
    at most `texts_at_once` texts.
    """

    workers: int = 1
    tasks_per_lane: int = 1
    texts_at_once: int = chunk_vectors.EMBED_AT_ONCE
    chunk: Chunk = Preparation.chunk


def gentle_executor(
    tell: Callable[[Literal["paused", "resumed"]], None],
    on_battery: Callable[[], bool] = on_battery,
    look_seconds: float = 30,
) -> Executor:
    """This machine, but it begins no document while it runs on battery.

    `tell` is called when it begins to wait, and when it continues.
    """
    looking = anyio.Lock()

    async def chunk(preparation: Preparation, content: FileContent, budget: Budget) -> Chunked:
        async with looking:  # so that two lanes tell it once
            if on_battery():
                tell("paused")
                while on_battery():  # noqa: ASYNC110 there is no event to wait for
                    await anyio.sleep(look_seconds)
                tell("resumed")
        return await preparation.chunk(content, budget)

    return Executor(chunk=chunk)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What to ingest and how, and who may see new documents.

    `removes` confirms the removal of sources although many files are missing (`rag.ingest.known_sources`). So
    does `held_for_long`, but only of the sources that it stands for (`Report.held`), and not from an empty
    folder. `executor` prepares documents.
    """

    settings: IngestSettings
    rights: Rights
    removes: bool = False
    moderator: document_admission.Moderator | None = None
    executor: Executor = Executor()
    held_for_long: str = ""


REMOVED_NOTE = (
    "Another command removed {} during this run. The next run adds those again whose files are still there."
)
READ_AGAIN_NOTE = (
    "{} with the same content as before read again: this refdesk reads them differently, or the settings, "
    "fields or sidecars have changed."
)
WAVE_CHUNKS = 1000  # smaller commits cost more each; larger ones hold more in memory


class IngestSteps:
    """The steps of one run, and the state that they share.

    `rag.ingest.ingest_run` calls them in this order, and each relies on those before it: `look_up`, `begin`,
    `move`, then `prepare`, `embed` and `write` at the same time, then `settle`, `remove` and `report`.

    `_stored` are the stored sources by URI. `_moved` are stored sources that `move` found at a new URI with a
    changed text, by the new URI: the new text gets the old id.
    """

    def __init__(
        self,
        writer: CollectionWriter,
        embedder: Embedder,
        instructions: Instructions,
        progress: Progress,
        records: Mapping[str, AccessRecord],
    ) -> None:
        # Only `embed` sets it, and nothing resets it. `prepare` reads it concurrently; reading it late only
        # prepares a document in vain. After all three have ended, `_bring_to` reads it.
        self.failure: ProviderError | None = None
        self._writer = writer
        self._embedder = embedder
        self._instructions = instructions
        self._settings = instructions.settings
        self._executor = instructions.executor
        collection, moderator = writer.collection, instructions.moderator
        self.preparation = Preparation(
            instructions.settings,
            embedder,
            document_admission.DocumentAdmission(collection.personal_data, collection.keep_days, moderator),
            (*collection.chunking, USUAL),
            usual_tokens(embedder.identity),
            collection.fields,
        )
        self._recorded = Recorded(records, writer.ids.purged)
        self._claims = Claims(instructions.rights, self._recorded, self._id_of)
        self.outcomes = Outcomes(progress)
        self._unchanged = UnchangedSources(writer, self._claims, self.outcomes, self.preparation.parse)
        self._bytes = chunk_vectors.ByteProgress({}, progress)
        self._back_pressure = chunk_vectors.BackPressure(self._executor.workers)
        self._stored: KeyedRows[KnownSource] = no_sources(writer.collection)
        self._moved: dict[str, KnownSource] = {}
        self._first_with: dict[str, LocalFile] = {}  # by digest, to report copies
        self._kept_out = document_admission.KeptOut()
        self._read_again = 0

    async def look_up(self) -> Mapping[str, KnownSource]:
        """Read the stored sources, and return them by URI."""
        self._stored = await self._writer.known_sources(self._recorded.by_id)
        return self._stored

    async def begin(self, discovery: Discovery) -> None:
        """Narrow access, and report files that need no reading."""
        self._claims.learn(discovery)
        self._kept_out.withheld = discovery.withheld
        # First of all, so that an interrupted run never leaves a source more visible than it should be.
        if narrower := self._claims.narrowed_at_once(self._stored.values()):
            await self._writer.claim(narrower)
        await self._start_progress(discovery)
        for uri, remark in discovery.remarks.items():
            self.outcomes.remark(uri, remark)
        self.outcomes.finish(discovery.outcomes)
        for uri in discovery.unchanged & self._stored.keys():  # others are mere containers
            self.outcomes.finish_source("unchanged", self._stored[uri])
        if folders := self._claims.remember(discovery.folders):
            await self._writer.remember(folders)

    async def _start_progress(self, discovery: Discovery) -> None:
        files, progress = discovery.files.values(), self.outcomes.progress
        byte_counts = await to_thread.run_sync(chunk_vectors.sizes, files, self._settings.max_file_bytes)
        self._bytes = chunk_vectors.ByteProgress(byte_counts, progress)
        progress.started(len(files) + len(discovery.outcomes), sum(byte_counts.values()))

    async def move(self, discovery: Discovery) -> None:
        """Find stored sources under new URIs, and move those whose text stays the same.

        It comes before anything is stored: a file that moved and changed keeps its id, and a new file at its
        old path must not inherit that id.
        """
        new_files = [file for uri, file in discovery.files.items() if uri not in self._stored]
        if not new_files or not self._stored:  # nothing can have moved
            return
        contents = {
            file.uri: content for file in new_files if (content := await self.preparation.read_digests(file))
        }
        digests = {uri: content.content_digest for uri, content in contents.items()}
        self._recorded.note_new(digests.values())
        matched = await to_thread.run_sync(moved_sources, digests, self._stored, discovery)
        if folders := self._claims.follow((source.uri, uri) for uri, source in matched.items()):
            await self._writer.remember(folders)
        for uri, source in matched.items():
            del self._stored[source.uri]
            self._moved[uri] = source
            self.outcomes.remark(uri, f"it was {path_of(source.uri)}")
            self._recorded.note_moved(source.record, uri)
        for uri, source in matched.items():  # a second loop: a part needs the new id of its moved container
            self._unchanged.follow(source, contents[uri])
        unmatched = [file.uri for file in new_files if file.uri not in matched]
        self._recorded.note_missing(await to_thread.run_sync(lost_ids, self._stored, discovery, unmatched))
        for source in await self._unchanged.move():
            del self._moved[source.uri]
            self._stored[source.uri] = source

    def _earlier(self, uri: str) -> KnownSource | None:
        """The source that is stored at a URI, or moved there."""
        return self._stored.get(uri) or self._moved.get(uri)

    def _id_of(self, uri: str) -> str:
        """The id of the source at a URI, stored or not."""
        source = self._earlier(uri)
        return source.id if source else self._writer.ids.of(uri)

    async def prepare(self, discovery: Discovery, to_embed: MemoryObjectSendStream[NewSource]) -> None:
        """Read, parse and chunk the files that are new or changed."""
        shared_lanes = [iter(lane) for lane in chunk_vectors.lanes(discovery.files, self._bytes.sizes)]
        async with to_embed:
            await concurrently(
                [
                    partial(self._prepare_lane, lane, discovery, to_embed)
                    for lane in shared_lanes * self._executor.tasks_per_lane
                ]
            )
        await end_idle()  # their memory is of no use while the rest is embedded

    async def _prepare_lane(
        self, lane: Iterable[Sequence[str]], discovery: Discovery, to_embed: MemoryObjectSendStream[NewSource]
    ) -> None:
        """Prepare one file of a lane after the other, with its parts. Several tasks may share a lane."""
        for uri in chain.from_iterable(lane):
            await self._back_pressure.enter(uri, self._bytes.sizes[uri])
            if self.failure:
                return
            if document := await self._prepared_or_reported(discovery.files[uri], discovery):
                # From here on, the size of its text counts, not of its file.
                await self._back_pressure.enter(uri, len(document.text))
                with suppress(anyio.BrokenResourceError):  # the embedder failed
                    await to_embed.send(document)
            else:
                self._back_pressure.leave(uri)
                self._bytes.pass_over(uri)

    async def _prepared_or_reported(self, file: LocalFile, discovery: Discovery) -> NewSource | None:
        """The document to store; None, with a reported outcome, if it is unchanged or can't be stored."""
        try:
            self._kept_out.check(file, discovery)  # a part follows its container in `files`, so that is known
            return None if self._unchanged.has_moved(file.uri) else await self._prepare(file, discovery)
        except document_admission.NotAdmittedError as error:
            self.outcomes.finish(self._kept_out.outcome(file, error, self._earlier(file.uri)))
        except ParseError as error:
            discovery.note_broken(file.uri, error)
            earlier, hears = self._earlier(file.uri), self._claims.rights.of_documents
            if isinstance(error, WithheldError):
                self._kept_out.note(file, error)
                earlier = self._kept_out.withhold(file, error, earlier) if hears else earlier
            self.outcomes.fail(file, error, has_earlier=earlier is not None)
        return None

    async def _prepare(self, file: LocalFile, discovery: Discovery) -> NewSource | None:
        stored = self._stored.get(file.uri)
        if stored and file.as_stored:
            content = as_stored(file, stored)
        else:
            content = await self.preparation.read(file)
        if (first := self._first_with.setdefault(content.digest, file)) is not file:
            self.outcomes.remark(file.uri, f"same content as {path_of(first.uri)}")
        if stored and stored.digest == content.digest:
            document_admission.check_expiry(stored)
            await self._unchanged.keep(stored, content)
            return None
        budget = discovery.budget(file.uri, self._settings.parse_timeout_seconds)
        chunked = await self._executor.chunk(self.preparation, content, budget)
        earlier, id_ = self._earlier(file.uri), self._id_of(file.uri)
        claim = self._claims.of_document(file, chunked.stated, content.content_digest, id_, earlier)
        self.outcomes.remark(file.uri, *chunked.remarks)
        self.outcomes.note_text(file.uri, chunked.flags, chunked.masked)
        self.outcomes.undeclared.update(chunked.undeclared)
        metadata = self._claims.rights.shown(chunked.document.metadata)
        return chunked.new_source(content, id_, self._writer.collection.name, claim, metadata)

    async def embed(
        self, prepared: MemoryObjectReceiveStream[NewSource], to_write: MemoryObjectSendStream[NewSource]
    ) -> None:
        """Give every passage its vector."""
        at_once = self._executor.texts_at_once
        async with prepared, to_write:
            async for batch in _batches(prepared, at_once):
                sources, self.failure = await chunk_vectors.with_vectors(
                    self._embedder, batch, self._bytes.counter(batch), at_once=at_once
                )
                for source in sources:  # sources embedded before a failure are stored
                    await to_write.send(source)
                if self.failure:
                    self._back_pressure.open()  # wakes tasks of `prepare`, which then see the failure
                    return

    async def write(self, embedded: MemoryObjectReceiveStream[NewSource]) -> None:
        """Commit the sources in waves."""
        wave: list[NewSource] = []
        async with embedded:
            async for new in embedded:
                wave.append(new)
                if _is_full(wave):
                    await self._commit(wave)
                    wave = []
        if wave:
            await self._commit(wave)

    async def _commit(self, wave: Sequence[NewSource]) -> None:
        # Before the rows, so that searches know these languages and expiries.
        await document_admission.note_expiring(self._writer, wave)
        await note_languages(self._writer, wave)
        records = await self._writer.replace(wave)
        for new in wave:
            self._finish_new(new, records[new.source.id])
            self._back_pressure.leave(new.source.uri)  # only here: its text was in memory until it was stored
        await to_thread.run_sync(return_memory)

    def _finish_new(self, new: NewSource, record: AccessRecord) -> None:
        uri = new.source.uri
        if not record.present:
            reason = "somebody removed it while it was read"
            self.outcomes.finish([Outcome(path_of(uri), "removed", reason, new.source.id)])
            return
        kind: OutcomeKind = "moved" if uri in self._moved else "added"
        access = record.access
        if before := self._stored.get(uri):
            kind, is_same = "replaced", before.record.content == record.content
            facts, before_facts = ((of.title, of.metadata) for of in (new.source, before))
            if is_same and facts == before_facts and 0 < before.without_vector == new.source.without_vector:
                kind = "unchanged"  # the embedder was asked again in vain
                access = None if access == before.record.access else access
            self._read_again += bool(before.digest) and is_same
        remarks = self._claims.report.remarks(new.claim, record)
        self.outcomes.finish_source(kind, new.source, remarks, access)

    async def settle(self) -> None:
        """Write the access of sources whose text stays; remove sources that are kept out or have expired.

        It comes after `write`: only then is it known which containers were stored and who may see them.
        """
        await self._unchanged.settle()
        may_expire = self._stored.matching(partial(can_expire, keep_days=self._writer.collection.keep_days))
        self._kept_out.with_others(self._stored, may_expire, self.outcomes.ids("added", "replaced"))
        if gone := self._kept_out.removed:
            for uri in [uri for uri, source in self._stored.items() if source.id in gone]:
                del self._stored[uri]
            await self._writer.remove([*gone])
            self.outcomes.finish(gone.values())

    async def remove(self, discovery: Discovery) -> list[str]:
        """Remove the sources whose files are gone. Returns notes on folders that may be unmounted."""
        instructions = self._instructions
        outcomes, notes = await remove_vanished(
            self._writer,
            self._stored,
            discovery,
            confirmed=instructions.removes,
            held_for_long=instructions.held_for_long,
        )
        self.outcomes.finish(outcomes)
        return notes

    async def report(self, discovery: Discovery, notes: Iterable[str]) -> Report:
        """Finish writing. Returns the outcomes, with these notes and notes on the run as a whole."""
        await settle_languages(self._writer)
        await to_thread.run_sync(return_memory)  # building indexes takes most
        removed = await self._writer.follow_others()
        await self._writer.examine_again()
        await self._writer.finish(timedelta(minutes=self._settings.keep_versions_minutes))
        if not self.failure:
            await chunk_vectors.calibrate(self._writer, self._embedder)
        files, added = discovery.files | discovery.containers, self.outcomes.ids("added")
        all_notes = (
            *notes,
            *discovery.notes,
            *self.outcomes.notes(),
            *field_notes(self.outcomes.undeclared, self._writer.collection.name),
            *language_notes(self.outcomes.finished, self._writer.collection),
            *self._claims.report.notes(
                self._claims.rights.overruled(
                    file.path for uri, file in files.items() if self._id_of(uri) in added
                ),
            ),
            *containers.unopened_notes(self._stored, discovery),
            *([REMOVED_NOTE.format(counted(len(removed), "document"))] if removed else []),
            *([READ_AGAIN_NOTE.format(counted(self._read_again, "file"))] if self._read_again else []),
        )
        unread = discovery.unchanged | discovery.retained
        places = chain(
            (file.path for file in files.values()),
            (place_of(uri) for uri in self._stored if unread & {uri, uri.partition("#")[0]}),
        )
        unmatched = self._claims.rights.unmatched(places)
        return Report(tuple(self.outcomes.finished), all_notes, unmatched_rules=tuple(unmatched))


def _is_full(wave: Sequence[NewSource]) -> bool:
    chunks, characters = sum(len(new.passages) for new in wave), sum(len(new.text) for new in wave)
    return chunks >= WAVE_CHUNKS or characters >= chunk_vectors.LARGE_CHARACTERS


async def _batches(
    prepared: MemoryObjectReceiveStream[NewSource], at_once: int
) -> AsyncIterator[list[NewSource]]:
    """The documents that are ready, in batches of about `at_once` passages; never waits to fill one."""
    async for document in prepared:
        batch, texts = [document], len(document.passages)
        with suppress(anyio.WouldBlock, anyio.EndOfStream):
            while texts < at_once:
                batch.append(prepared.receive_nowait())
                texts += len(batch[-1].passages)
        yield batch
