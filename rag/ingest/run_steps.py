"""The steps of an ingestion run, what it is told to do, and the state that the steps share.

`rag.ingest.ingest_run` puts them in order.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.corpus import AccessRecord, Chunking
from rag.errors import ParseError, ProviderError, WithheldError
from rag.ingest.chunk_vectors import EMBED_AT_ONCE, ask_again, calibrate, with_vectors
from rag.ingest.collection_languages import language_notes, note_languages, settle_languages
from rag.ingest.containers import unopened
from rag.ingest.discover import Discovery
from rag.ingest.file_digests import as_stored
from rag.ingest.local_files import LocalFile
from rag.ingest.policy.document_admission import (
    DocumentAdmission,
    KeptOut,
    NotAdmittedError,
    check_expiry,
    note_expiring,
)
from rag.ingest.policy.moderation import Moderator
from rag.ingest.prepare import Preparation, Prepared
from rag.ingest.report import Outcome, OutcomeKind, Report, field_notes
from rag.ingest.rights.access_decision import Claims
from rag.ingest.rights.access_history import Recorded
from rag.ingest.run_outcomes import Outcomes
from rag.ingest.run_progress import ByteProgress, Progress, sizes
from rag.ingest.sandbox.parser_pool import end_idle
from rag.ingest.source_paths import path_of
from rag.ingest.unchanged_sources import UnchangedSources
from rag.ingest.vanished_sources import lost, moved_sources, remove_vanished
from rag.ingest.work_limits import LARGE_CHARACTERS, BackPressure, lanes
from rag.models.embed import Embedder
from rag.report.text_and_html import counted
from rag.runtime import concurrently
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import KnownSource, NewSource

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from rag.config.settings import IngestSettings, Settings
    from rag.ingest.ray_cluster import Cluster
    from rag.ingest.rights.requested_rights import Rights


@dataclass(frozen=True, slots=True)
class Instructions:
    """Which files to read, how large chunks may be, and who may see new documents.

    `chunking` is what the settings say of how documents are cut; the collection's own goes first.

    `removes` turns off the guard against an unmounted folder: see `rag.ingest.vanished_sources`. Documents
    are prepared on the `cluster`, if there is one.
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


REMOVED_MEANWHILE = "somebody removed it while it was read"
REMOVED_NOTE = (
    "Another command removed {} during this run. The next run adds those again whose files are still there."
)
WAVE_CHUNKS = 1000  # smaller commits cost more each; larger ones hold more in memory


class IngestSteps:
    """The steps of one run. `failure` is that of the embedder, after which the run ends early.

    `_known` are the stored sources by URI. `_moved` are those found at another one, by that, whose text has
    to be read anew.
    """

    def __init__(
        self,
        writer: CollectionWriter,
        embedder: Embedder,
        instructions: Instructions,
        progress: Progress,
        records: Mapping[str, AccessRecord],
    ) -> None:
        self.failure: ProviderError | None = None
        self._writer = writer
        self._embedder = embedder
        self._instructions = instructions
        self._settings = instructions.files
        self._preparation = Preparation(
            instructions.files,
            embedder,
            DocumentAdmission.of(writer.collection, instructions.moderator),
            (*writer.collection.chunking, *instructions.chunking),
            instructions.max_tokens,
            writer.collection.fields,
        )
        self._recorded = Recorded(records, writer.ids.purged)
        self._claims = Claims(instructions.rights, self._recorded, self._id_of)
        self.outcomes = Outcomes(progress)
        self._unchanged = UnchangedSources(writer, self._claims, self.outcomes, self._preparation.parsed)
        self._work = ByteProgress({}, progress)
        self._known: dict[str, KnownSource] = {}
        self._moved: dict[str, KnownSource] = {}
        self._first_with: dict[str, LocalFile] = {}
        self._kept_out = KeptOut()
        self._mended = 0
        cluster = instructions.cluster
        self._chunked = partial(cluster.chunked, self._preparation) if cluster else self._preparation.chunked
        self._lanes_each = (
            2 * cluster.width if cluster else 1
        )  # a worker that is done finds the next one there
        self._at_once = max(EMBED_AT_ONCE, cluster.texts_at_once) if cluster else EMBED_AT_ONCE
        self._ahead = BackPressure(cluster.width if cluster else 1)

    @property
    def recipe(self) -> str:
        """What the digests of this run depend on besides the documents."""
        return self._preparation.recipe

    async def look_up(self) -> Mapping[str, KnownSource]:
        """Look up what is stored."""
        self._known = await self._writer.known_sources(self._recorded.by_id)
        return self._known

    async def begin(self, discovery: Discovery) -> None:
        """Take rights away, ask for vectors that are lacking, and report files that need no reading."""
        self._claims.learn(discovery)
        if narrower := self._claims.narrowed_at_once(self._known.values()):
            await self._writer.claim(narrower)
        before = sum(source.without_vector for source in self._known.values())
        still_lacking = await ask_again(self._writer, self._embedder, self._known)
        self._mended = before - sum(still_lacking.values())
        self._known |= {uri: replace(self._known[uri], without_vector=n) for uri, n in still_lacking.items()}
        await self._start_progress(discovery)
        for uri, remark in discovery.remarks.items():
            self.outcomes.remark(uri, remark)
        self.outcomes.finish(discovery.outcomes)
        for uri in discovery.unchanged & self._known.keys():  # the others only contain documents
            self.outcomes.finish_source("unchanged", self._known[uri])
        if folders := self._claims.remember(discovery.folders):
            await self._writer.remember(folders)

    async def _start_progress(self, discovery: Discovery) -> None:
        files, progress = discovery.files.values(), self.outcomes.progress
        self._work = ByteProgress(
            await to_thread.run_sync(sizes, files, self._settings.max_file_bytes), progress
        )
        progress.started(len(files) + len(discovery.outcomes), sum(self._work.sizes.values()))

    async def move(self, discovery: Discovery) -> None:
        """Find stored sources under new URIs, and move those whose text stays the same.

        This comes before anything is stored. A file that moved and changed takes its id along, and what is
        now at its old path must not inherit that id.
        """
        new = [file for uri, file in discovery.files.items() if uri not in self._known]
        if not new or not self._known:
            return
        files = {file.uri: content for file in new if (content := await self._preparation.digests(file))}
        contents = {uri: content.content_digest for uri, content in files.items()}
        self._recorded.note_new(contents.values())
        matched = await to_thread.run_sync(moved_sources, contents, self._known, discovery)
        if folders := self._claims.follow((source.uri, uri) for uri, source in matched.items()):
            await self._writer.remember(folders)
        for uri, source in matched.items():
            del self._known[source.uri]
            self._moved[uri] = source
            self.outcomes.remark(uri, f"it was {path_of(source.uri)}")
            self._recorded.note_moved(source.record, uri)
        for uri, source in matched.items():  # when it is known for all of them which ids contain which
            self._unchanged.follow(source, files[uri])
        unmatched = [file.uri for file in new if file.uri not in matched]
        self._recorded.note_missing(await to_thread.run_sync(lost, self._known, discovery, unmatched))
        for source in await self._unchanged.move():
            del self._moved[source.uri]
            self._known[source.uri] = source

    def _earlier(self, uri: str) -> KnownSource | None:
        """The stored source that is at a URI, or moved there."""
        return self._known.get(uri) or self._moved.get(uri)

    def _id_of(self, uri: str) -> str:
        """The id of the source at a URI, stored or not."""
        source = self._earlier(uri)
        return source.id if source else self._writer.source_id(uri)

    async def prepare(self, discovery: Discovery, prepared: MemoryObjectSendStream[Prepared]) -> None:
        """Read, parse and chunk the files that are new or changed."""
        shared_lanes = [iter(lane) for lane in lanes(discovery.files, self._work.sizes)]
        async with prepared:
            await concurrently(
                [
                    partial(self._prepare, lane, discovery, prepared)
                    for lane in shared_lanes * self._lanes_each
                ]
            )
        await end_idle()

    async def _prepare(
        self, lane: Iterable[Sequence[str]], discovery: Discovery, prepared: MemoryObjectSendStream[Prepared]
    ) -> None:
        """Prepare the next file of a lane with its parts, until none is left. Several may share a lane."""
        for uri in chain.from_iterable(lane):
            await self._ahead.enter(uri, self._work.sizes[uri])
            if self.failure:
                return
            if document := await self._prepared_or_reported(discovery.files[uri], discovery):
                await self._ahead.enter(uri, len(document.chunked.document.text))
                with suppress(anyio.BrokenResourceError):  # the embedder failed
                    await prepared.send(document)
            else:
                self._ahead.leave(uri)
                self._work.pass_over(uri)

    async def _prepared_or_reported(self, file: LocalFile, discovery: Discovery) -> Prepared | None:
        """A file that is to be stored. None if it stays as it is or can't be read, which is reported."""
        try:
            self._kept_out.check(file, discovery)
            return None if self._unchanged.has_moved(file.uri) else await self._prepared(file, discovery)
        except NotAdmittedError as error:
            self.outcomes.finish(self._kept_out.outcome(file, error, self._earlier(file.uri)))
        except ParseError as error:
            discovery.note_broken(file.uri, error)
            if isinstance(error, WithheldError):
                self._kept_out.note(file, error)
            self.outcomes.fail(file, error, has_earlier=self._earlier(file.uri) is not None)
        return None

    async def _prepared(self, file: LocalFile, discovery: Discovery) -> Prepared | None:
        stored = self._known.get(file.uri)
        if stored and file.as_stored:
            content = as_stored(file, stored)
        else:
            content = await self._preparation.read(file)
        if (first := self._first_with.setdefault(content.digest, file)) is not file:
            self.outcomes.remark(file.uri, f"same content as {path_of(first.uri)}")
        if stored and stored.digest == content.digest:
            check_expiry(stored)
            await self._unchanged.keep(stored, content)
            return None
        budget = discovery.budget(file.uri, self._settings.parse_timeout_seconds)
        chunked = await self._chunked(content, budget)
        earlier, id_ = self._earlier(file.uri), self._id_of(file.uri)
        claim = self._claims.of_document(file, chunked.stated, content.content_digest, id_, earlier)
        self.outcomes.remark(file.uri, *chunked.remarks)
        self.outcomes.note_text(file.uri, chunked.flags, chunked.masked)
        self.outcomes.undeclared.update(chunked.undeclared)
        shown = self._claims.rights.shown(chunked.document.metadata)
        return Prepared(file, id_, chunked, claim, shown, content.state)

    async def embed(
        self, prepared: MemoryObjectReceiveStream[Prepared], embedded: MemoryObjectSendStream[NewSource]
    ) -> None:
        """Give every passage its vector."""
        collection = self._writer.collection.name
        async with prepared, embedded:
            async for batch in _together(prepared, self._at_once):
                whole, self.failure = await with_vectors(
                    self._embedder, batch, collection, self._work.counter(batch), at_once=self._at_once
                )
                for new in whole:
                    await embedded.send(new)
                if self.failure:
                    self._ahead.open()
                    return

    async def write(self, embedded: MemoryObjectReceiveStream[NewSource]) -> None:
        """Commit in waves."""
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
        await note_expiring(self._writer, wave)
        await note_languages(self._writer, wave)
        records = await self._writer.replace(wave)
        for new in wave:
            self._finish_new(new, records[new.source.id])
            self._ahead.leave(new.source.uri)
        await to_thread.run_sync(give_back)

    def _finish_new(self, new: NewSource, record: AccessRecord) -> None:
        uri = new.source.uri
        if not record.present:
            self.outcomes.finish([Outcome(path_of(uri), "removed", REMOVED_MEANWHILE, new.source.id)])
            return
        kind: OutcomeKind = "moved" if uri in self._moved else "added"
        if uri in self._known:
            kind = "replaced"
        remarks = self._claims.report.remarks(uri, new.claim, record)
        self.outcomes.finish_source(kind, new.source, remarks, record.access)

    async def settle(self) -> None:
        """Settle the access of sources whose text stays, and remove what is kept out now or has expired."""
        await self._unchanged.settle()
        await self._remove_kept_out()

    async def _remove_kept_out(self) -> None:
        self._kept_out.with_others(self._known, self.outcomes.ids("added", "replaced"))
        gone = self._kept_out.removed
        self._known = {uri: source for uri, source in self._known.items() if source.id not in gone}
        if gone:
            await self._writer.remove([*gone])
            self.outcomes.finish(gone.values())

    async def remove(self, discovery: Discovery) -> list[str]:
        """Remove the sources whose files are gone. Returns notes on folders that may be unmounted."""
        removed = await remove_vanished(
            self._writer, self._known, discovery, self._settings, confirmed=self._instructions.removes
        )
        self.outcomes.finish(removed.outcomes)
        return removed.notes

    async def report(self, discovery: Discovery, notes: Iterable[str]) -> Report:
        """Finish writing, and report the outcomes with these notes and those on the run as a whole."""
        await settle_languages(self._writer)
        await to_thread.run_sync(give_back)  # building indexes takes most
        removed = await self._writer.finish_removals()
        await self._writer.finish(timedelta(minutes=self._settings.keep_versions_minutes))
        if not self.failure:
            await calibrate(self._writer, self._embedder)
        files = discovery.files | discovery.containers
        all_notes = (
            *notes,
            *discovery.notes,
            *self.outcomes.notes(mended=self._mended),
            *field_notes(self.outcomes.undeclared, self._writer.collection.name),
            *language_notes(self.outcomes.finished, self._writer.collection),
            *self._claims.report.notes([file.path for file in files.values()], self._claims.rights),
            *unopened(self._known, discovery),
            *([REMOVED_NOTE.format(counted(len(removed), "document"))] if removed else []),
        )
        return Report(tuple(self.outcomes.finished), all_notes)


def _is_full(wave: Sequence[NewSource]) -> bool:
    chunks, characters = sum(len(new.passages) for new in wave), sum(len(new.text) for new in wave)
    return chunks >= WAVE_CHUNKS or characters >= LARGE_CHARACTERS


async def _together(
    prepared: MemoryObjectReceiveStream[Prepared], at_once: int
) -> AsyncIterator[list[Prepared]]:
    """What is prepared, as many documents as there are, up to what is embedded at once."""
    async for document in prepared:
        batch, texts = [document], len(document.chunked.passages)
        with suppress(anyio.WouldBlock, anyio.EndOfStream):
            while texts < at_once:
                batch.append(prepared.receive_nowait())
                texts += len(batch[-1].chunked.passages)
        yield batch


# Gives memory that nobody uses any more back to the system.


def give_back() -> None:
    """Return the free pages of all of the allocator's arenas; each thread's keeps what it once needed.

    That takes some milliseconds, and only glibc can do it.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
