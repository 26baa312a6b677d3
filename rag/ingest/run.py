"""One ingestion run: discover, read, parse, chunk, embed and write, each step while the next one is busy.

files -> move unchanged ones -> prepare -> waves of Prepared -> embed -> waves of NewSource -> write
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import anyio
import numpy as np
from anyio import to_thread

from rag.concurrency import concurrently
from rag.errors import EmptyFileError, ParseError, ProviderError
from rag.expiry import EXPIRES
from rag.flags import flags_in
from rag.ingest.chunk import passages
from rag.ingest.chunkings import chunking_of, written
from rag.ingest.claims import Claims
from rag.ingest.containers import open_containers
from rag.ingest.content import read_content, recipe_of
from rag.ingest.discover import discover
from rag.ingest.door import Door, NotAdmittedError, expired_words
from rag.ingest.extras import check_extras, extra_notes
from rag.ingest.metadata import declared_fields, described
from rag.ingest.moves import keeps_title, moved_sources
from rag.ingest.parse import may_be_scanned
from rag.ingest.paths import path_of, prefixes, printable
from rag.ingest.prepared import Prepared
from rag.ingest.progress import Work, sizes
from rag.ingest.recorded import Recorded
from rag.ingest.removal import lost, remove_vanished
from rag.ingest.report import InterruptedRunError, Outcome, Report, door_notes, flag_notes
from rag.ingest.sandbox.pool import parse_safely
from rag.ingest.split import until
from rag.ingest.spool import spooling
from rag.ingest.vectors import ask_again, vector_notes, vectors_of_texts
from rag.report.tables import counted
from rag.store.collections import change_collection
from rag.store.schema import NewSource
from rag.store.writer import Moved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from rag.config.settings import IngestSettings
    from rag.corpus import Access, AccessRecord, Chunking, Document, Source, Value, Vectors
    from rag.file_state import FileState
    from rag.flags import Flag
    from rag.ingest.content import FileContent
    from rag.ingest.discover import Discovery, Found
    from rag.ingest.moderation import Moderator
    from rag.ingest.progress import Progress
    from rag.ingest.report import OutcomeKind
    from rag.ingest.rights import Rights
    from rag.ingest.spool import Spool
    from rag.models.embed import Embedder
    from rag.store.settle import Claim
    from rag.store.writer import CollectionWriter, KnownSource

STORED_ANEW = frozenset({"added", "replaced"})
WAVE_CHUNKS = 1000  # smaller commits cost more each; larger ones hold more in memory


@dataclass(frozen=True, slots=True)
class Instructions:
    """Which files to read, how large chunks may be, and who may see new documents.

    `chunking` is what the settings say of how documents are cut; the collection's own goes first.

    `removes` turns off the guard against an unmounted folder: see `rag.ingest.removal`.
    """

    files: IngestSettings
    max_tokens: int
    rights: Rights
    removes: bool = False
    chunking: tuple[Chunking, ...] = ()
    moderator: Moderator | None = None


@dataclass(frozen=True, slots=True)
class Beforehand:
    """What a run knows before it looks for documents: where copies of them go, and what is stored by URI.

    `recipe` changes when every document must be read again.
    """

    spool: Spool
    known: Mapping[str, KnownSource]
    recipe: str
    rights: Rights


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
        run = _Run(writer, embedder, instructions, progress, await writer.records())
        known = await run.look_up()
        if callable(paths):
            discovery = await paths(Beforehand(spool, known, run.recipe, instructions.rights))
        else:
            look = partial(discover, paths, instructions.files, without=writer.data)
            discovery = await to_thread.run_sync(look)
        await open_containers(discovery, spool, instructions.files, known)
        return await _bring_to(run, discovery)


async def _bring_to(run: _Run, discovery: Discovery) -> Report:
    await run.begin(discovery)
    await run.move(discovery)
    to_embed, prepared = anyio.create_memory_object_stream[list[Prepared]](0)
    to_write, embedded = anyio.create_memory_object_stream[list[NewSource]](0)
    await concurrently(
        [
            partial(run.prepare, discovery, to_embed),
            partial(run.embed, prepared, to_write),
            partial(run.write, embedded),
        ]
    )
    await run.set_rights()
    await run.note_files()
    await run.keep_out()
    notes = [] if run.failure else await run.remove(discovery)
    report = await run.report(discovery, notes)
    if run.failure:
        left = len(discovery.found) + len(discovery.outcomes) - len(run.outcomes)
        raise InterruptedRunError(run.failure, report, left) from run.failure
    return report


class _Run:
    """The state that the steps of one run share."""

    def __init__(
        self,
        writer: CollectionWriter,
        embedder: Embedder,
        instructions: Instructions,
        progress: Progress,
        records: Mapping[str, AccessRecord],
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.failure: ProviderError | None = None
        self._writer = writer
        self._embedder = embedder
        self._instructions = instructions
        self._settings = instructions.files
        self._ocr_seconds = self._settings.ocr_timeout_seconds if self._settings.ocr == "auto" else 0.0
        self._chunkings = (*writer.collection.chunking, *instructions.chunking)
        self._progress = progress
        self._recorded = Recorded(records, writer.ids.purged)
        self._claims = Claims(instructions.rights, self._recorded)
        self._known: dict[str, KnownSource] = {}
        self._moved: dict[str, KnownSource] = {}
        self._first_with: dict[str, Found] = {}
        self._remarks: dict[str, list[str]] = defaultdict(list)
        self._to_claim: dict[str, tuple[KnownSource, Claim]] = {}
        self._files: dict[str, FileState] = {}
        self._flags: dict[str, tuple[Flag, ...]] = {}
        self._door = Door.of(writer.collection, instructions.moderator)
        self._masked: dict[str, Mapping[Flag, int]] = {}
        self._kept_out: dict[str, Outcome] = {}
        self._mended = 0
        self._containers: Mapping[str, Found] = {}
        self._work = Work({}, progress)

    @property
    def recipe(self) -> str:
        """What the digests of this run depend on besides the documents."""
        cuts = (self._chunkings, self._instructions.max_tokens, self._embedder.window)
        return recipe_of(repr(cuts) + self._door.recipe)

    async def look_up(self) -> Mapping[str, KnownSource]:
        """Look up what is stored."""
        self._known = await self._writer.known(self._recorded.by_id)
        return self._known

    async def begin(self, discovery: Discovery) -> None:
        """Take rights away, ask for vectors that are lacking, and report files that need no reading."""
        self._claims.learn(discovery.rights)
        if narrower := self._claims.narrowed_at_once(self._known.values()):
            await self._writer.claim(narrower)
        before = sum(one.without_vector for one in self._known.values())
        left = await ask_again(self._writer, self._embedder, self._known)
        self._mended = before - sum(left.values())
        self._known |= {uri: replace(self._known[uri], without_vector=n) for uri, n in left.items()}
        self._containers = discovery.containers
        for uri, remark in discovery.remarks.items():
            self._remarks[uri].append(remark)
        found, most = discovery.found.values(), self._settings.max_file_bytes
        self._work = Work(await to_thread.run_sync(sizes, found, most), self._progress)
        files = len(found) + len(discovery.outcomes)
        self._progress.started(files, sum(self._work.sizes.values()))
        self.finish(discovery.outcomes)
        for uri in discovery.unchanged:
            self._finish("unchanged", self._known[uri], ())
        if folders := self._claims.remember(discovery.folders):
            await self._writer.remember(folders)

    def finish(self, outcomes: Iterable[Outcome]) -> None:
        """Report files that are finished."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            self._progress.finished(outcome)

    async def move(self, discovery: Discovery) -> None:
        """Find stored sources under new URIs, and move those whose text stays the same.

        This comes before anything is stored. A file that moved and changed takes its id along, and what is
        now at its old path must not inherit that id.
        """
        new = [found for uri, found in discovery.found.items() if uri not in self._known]
        if not new or not self._known:
            return
        read = {found.uri: one for found in new if (one := await self._read_if_possible(found))}
        contents = {uri: one.content for uri, one in read.items()}
        self._recorded.note_new(contents.values())
        matched = await to_thread.run_sync(moved_sources, contents, self._known, discovery)
        if folders := self._claims.follow((source.uri, uri) for uri, source in matched.items()):
            await self._writer.remember(folders)
        unchanged: dict[str, Moved] = {}
        for uri, source in matched.items():
            del self._known[source.uri]
            self._remarks[uri].append(f"it was {path_of(source.uri)}")
            self._moved[uri] = source
            self._recorded.note_moved(source.record, uri)
            if self._text_stays(source, read[uri]):
                self._note_file(source, read[uri])
                found = read[uri].found
                metadata = {**source.metadata, "path": printable(found.name)}
                claim = self._of_part(found, self._claims.of_moved(source, found))
                unchanged[source.id] = Moved(uri, metadata, claim)
        others = [found.uri for found in new if found.uri not in matched]
        self._recorded.note_missing(await to_thread.run_sync(lost, self._known, discovery, others))
        await self._finish_moved(unchanged)

    def _text_stays(self, source: KnownSource, one: FileContent) -> bool:
        """Whether a moved source needs no parsing, neither for its text nor for the access it requests."""
        rights = self._claims.rights
        parsed = rights.set_access or rights.never_asked(source.record.requested)
        return source.digest == one.digest and keeps_title(source, one.found) and not parsed

    async def _finish_moved(self, unchanged: Mapping[str, Moved]) -> None:
        records = await self._writer.move(unchanged) if unchanged else {}
        for id_, one in unchanged.items():
            source = replace(self._moved.pop(one.uri), uri=one.uri)
            self._known[one.uri] = source
            self._finish_stored("moved", source, one.claim, records[id_])

    async def _read_if_possible(self, found: Found) -> FileContent | None:
        """A file's digests, without its bytes. An unreadable file is reported later, by `prepare`."""
        try:
            return replace(await self._read(found), data=b"", sidecar=b"")
        except ParseError:
            return None

    async def _read(self, found: Found) -> FileContent:
        most, cut = self._settings.max_file_bytes, written(self._chunking(found), self._embedder.window)
        scanned = "ocr" if self._ocr_seconds and may_be_scanned(found.path.name) else ""
        return await read_content(found, max_bytes=most, cut=cut, door=self._door.recipe + scanned)

    def _chunking(self, found: Found) -> Chunking:
        return chunking_of(found.name, self._chunkings, self._instructions.max_tokens)

    async def prepare(self, discovery: Discovery, waves: MemoryObjectSendStream[list[Prepared]]) -> None:
        """Read, parse and chunk the files that are new or changed, in waves worth a commit."""
        done = {one.source_id for one in self.outcomes if one.outcome == "moved"}
        wave: list[Prepared] = []
        async with waves:
            for uri, found in discovery.found.items():
                is_done = uri in self._known and self._known[uri].id in done
                if one := None if is_done else await self._prepared_or_reported(found):
                    wave.append(one)
                else:
                    self._work.pass_over(uri)
                if sum(len(one.passages) for one in wave) >= WAVE_CHUNKS:
                    with suppress(anyio.BrokenResourceError):  # the embedder failed
                        await waves.send(wave)
                    wave = []
                if self.failure:
                    return
            if wave:
                with suppress(anyio.BrokenResourceError):
                    await waves.send(wave)

    async def _prepared_or_reported(self, found: Found) -> Prepared | None:
        """A file that is to be stored. None if it stays as it is or can't be read, which is reported."""
        path, has_earlier = path_of(found.uri), found.uri in self._known or found.uri in self._moved
        try:
            return await self._prepared(found)
        except EmptyFileError as error:
            if not has_earlier:
                self.finish([Outcome(path, "ignored", str(error), kind="empty")])
                return None
            reason = f"{error} any more; the earlier version stays"
            self.finish([Outcome(path, "skipped", reason, cause="no text")])
        except NotAdmittedError as error:
            self._keep_out(found, error)
        except ParseError as error:
            kept = "; the earlier version stays" if has_earlier else ""
            self.finish([Outcome(path, "skipped", f"{error}{kept}", cause=error.cause)])
        return None

    def _keep_out(self, found: Found, why: NotAdmittedError) -> None:
        """Report a document that isn't to be stored; an earlier version of it is removed at the end."""
        path = printable(found.path)
        if earlier := self._known.get(found.uri) or self._moved.get(found.uri):
            self._kept_out[earlier.id] = Outcome(path, "removed", str(why), earlier.id, kind=why.kind)
        else:
            self.finish([Outcome(path, "ignored", str(why), kind=why.kind)])

    async def keep_out(self) -> None:
        """Remove the earlier versions of documents that are kept out now, and what has expired."""
        stored = {one.source_id for one in self.outcomes if one.outcome in STORED_ANEW}
        now = datetime.now(UTC)
        for one in self._known.values():
            if one.expires and one.expires <= now and one.id not in stored:
                path, reason = path_of(one.uri), expired_words(one.expires)
                self._kept_out.setdefault(one.id, Outcome(path, "removed", reason, one.id, kind="expired"))
        self._known = {uri: one for uri, one in self._known.items() if one.id not in self._kept_out}
        if self._kept_out:
            await self._writer.remove([*self._kept_out])
            self.finish(self._kept_out.values())

    async def _prepared(self, found: Found) -> Prepared | None:
        one = await self._read(found)
        if (first := self._first_with.setdefault(one.digest, found)) is not found:
            self._remarks[found.uri].append(f"same content as {path_of(first.uri)}")
        known = self._known.get(found.uri)
        if known and known.digest == one.digest:
            if known.expires and known.expires <= datetime.now(UTC):
                return None  # it is removed in the end
            await self._unchanged(known, one)
            return None
        deadline = monotonic() + self._settings.parse_timeout_seconds
        parsed = await self._parsed(one)
        admitted = await self._door.admitted(parsed, found, one.state)
        document, self._masked[found.uri] = admitted.document, admitted.masked
        chunking = self._chunking(found)
        limit = min(chunking.max_tokens or self._embedder.window, self._embedder.window)
        spans = until(deadline, self._embedder.token_spans)
        make = partial(passages, document, token_spans=spans, limit=limit, chunking=chunking)
        chunks = await to_thread.run_sync(make)
        self._flags[found.uri] = await to_thread.run_sync(flags_in, _all_text(document))
        source = known or self._moved.get(found.uri)
        id_ = source.id if source else self._writer.source_id(found.uri)
        claim = self._claims.of_document(found, parsed.metadata, one.content, id_, source)
        claim = self._of_part(found, claim)
        fields, shown = self._fields(found, document), self._claims.rights.shown(document.metadata)
        digest = "" if admitted.unmoderated else one.digest  # without one, the next run stores it again
        return Prepared(found, id_, digest, document, chunks, claim, fields, shown, one.state)

    async def _parsed(self, one: FileContent) -> Document:
        name = printable(one.found.path.name)
        seconds = self._settings.parse_timeout_seconds
        parsed = await parse_safely(one.data, name, timeout_seconds=seconds, ocr_seconds=self._ocr_seconds)
        return described(parsed, one.sidecar, one.found.stated)

    async def _unchanged(self, known: KnownSource, one: FileContent) -> None:
        """A file whose text stays. Only its access may change, if the run sets it or first asks documents."""
        self._note_file(known, one)
        rights = self._claims.rights
        if by_origin := self._claims.of_origin(known.uri, one.found.path, one.content):
            self._to_claim[known.id] = known, by_origin
            return
        if not rights.set_access:
            self._claims.note_kept(known, one.found)
        if rights.set_access or rights.never_asked(known.record.requested):
            metadata = (await self._parsed(one)).metadata if rights.of_documents else {}
            claim = self._claims.of_new(one.found, metadata, one.content)
            self._to_claim[known.id] = known, self._of_part(one.found, claim)
            return
        if (claim := self._of_part(one.found, self._claims.of_kept(known))).narrowed_by:
            self._to_claim[known.id] = known, claim
            return
        self._finish("unchanged", known, ())

    def _of_part(self, found: Found, claim: Claim) -> Claim:
        """The claim of a document, which is no more widely visible than what contains it, if it is a part."""
        ids, outer = set(), found.container
        while outer:
            source = self._known.get(outer) or self._moved.get(outer)
            ids.add(source.id if source else self._writer.source_id(outer))
            outer = self._containers[outer].container
        return self._claims.of_part(claim, found.uri, frozenset(ids)) if ids else claim

    def _fields(self, found: Found, document: Document) -> Mapping[str, Value]:
        metadata = {"title": document.title, **document.metadata}
        if document.url:
            metadata["url"] = document.url
        if document.date:
            metadata["date"] = document.date.isoformat()
        fields, complaints = declared_fields(metadata, self._writer.collection.fields)
        self._remarks[found.uri] += [*document.remarks, *complaints]
        return fields

    async def embed(
        self,
        waves: MemoryObjectReceiveStream[list[Prepared]],
        embedded: MemoryObjectSendStream[list[NewSource]],
    ) -> None:
        """Give every passage its vector."""
        async with waves, embedded:
            async for wave in waves:
                texts = [text for one in wave for text in one.texts()]
                done: list[Vectors] = []
                try:
                    await vectors_of_texts(self._embedder, texts, self._work.counter(wave), done)
                except ProviderError as error:
                    self.failure = error
                vectors = np.concatenate(done)
                ends = np.cumsum([len(one.passages) for one in wave])
                parts = zip(wave, np.split(vectors, ends[:-1]), ends, strict=True)
                name = self._writer.collection.name
                whole = [one.new_source(name, part) for one, part, end in parts if end <= len(vectors)]
                if whole:
                    await embedded.send(whole)
                if self.failure:
                    return

    async def write(self, waves: MemoryObjectReceiveStream[list[NewSource]]) -> None:
        """Commit wave by wave."""
        async with waves:
            async for wave in waves:
                await self._note_expiring(wave)
                records = await self._writer.replace(wave)
                for new in wave:
                    self._finish_stored(self._kind(new), new.source, new.claim, records[new.source.id])

    async def _note_expiring(self, wave: list[NewSource]) -> None:
        """Let searches know that there are sources that expire, before the first one is stored."""
        made = self._writer.collection
        if self._writer.writes and not made.expiring and any(EXPIRES in new.source.metadata for new in wave):
            await change_collection(
                self._writer.data, made.tenant, made.name, lambda one: replace(one, expiring=True)
            )
            self._writer.collection = replace(made, expiring=True)

    def _kind(self, new: NewSource) -> OutcomeKind:
        if new.source.uri in self._known:
            return "replaced"
        return "moved" if new.source.uri in self._moved else "added"

    def _note_file(self, known: KnownSource, one: FileContent) -> None:
        """Note the state of a file whose text stays, if it is new: somebody touched or copied it."""
        if one.state and not (known.file and one.state.same_as(known.file)):
            self._files[known.id] = one.state

    async def note_files(self) -> None:
        """Record the new states of files whose text stays."""
        if self._files:
            await self._writer.note_files(self._files)

    async def set_rights(self) -> None:
        """Settle the access of sources whose text stays."""
        claims = {id_: (known.uri, claim) for id_, (known, claim) in self._to_claim.items()}
        records = await self._writer.claim(claims) if claims else {}
        for id_, (known, claim) in self._to_claim.items():
            self._finish_stored("unchanged", known, claim, records[id_])

    def _finish_stored(
        self, kind: OutcomeKind, source: Source | KnownSource, claim: Claim, record: AccessRecord
    ) -> None:
        self._finish(kind, source, self._claims.remarks(source.uri, claim, record), record.access)

    def _finish(
        self,
        kind: OutcomeKind,
        source: Source | KnownSource,
        remarks: Iterable[str],
        access: Access | None = None,
    ) -> None:
        lacking, chunks = source.without_vector, source.chunk_count
        about_vectors = [f"{lacking} of {chunks} chunks without a vector"] if lacking else []
        reason = "; ".join([*self._remarks[source.uri], *remarks, *about_vectors])
        flags = self._flags.get(source.uri, ())
        outcome = Outcome(path_of(source.uri), kind, reason, source.id, chunks, access, lacking, flags)
        self.finish([replace(outcome, masked=self._masked.get(source.uri, {}))])

    async def remove(self, discovery: Discovery) -> list[str]:
        """Remove the sources whose files are gone. Returns notes on folders that may be unmounted."""
        removed = await remove_vanished(
            self._writer, self._known, discovery, self._settings, confirmed=self._instructions.removes
        )
        self.finish(removed.outcomes)
        return removed.notes

    async def report(self, discovery: Discovery, notes: Iterable[str]) -> Report:
        """Finish writing, and report the outcomes with these notes and those on the run as a whole."""
        await self._writer.finish()
        return Report(tuple(self.outcomes), (*notes, *self._notes(discovery)))

    def _notes(self, discovery: Discovery) -> list[str]:
        about_vectors = vector_notes(self.outcomes, mended=self._mended)
        return [
            *discovery.notes,
            *about_vectors,
            *flag_notes(self.outcomes),
            *extra_notes(self.outcomes),
            *door_notes(self.outcomes),
            *self._claims.notes([one.path for one in (discovery.found | discovery.containers).values()]),
            *_unopened(self._known, discovery),
        ]


def _unopened(known: Iterable[str], discovery: Discovery) -> Iterator[str]:
    """A note on sources that stay because what contains them was not opened, although it is there."""
    parts = [uri for uri in known if "#" in uri and not discovery.is_gone(uri)]
    outer = {uri.partition("#")[0] for uri in parts if any(one in discovery.whole for one in prefixes(uri))}
    if left := outer - {uri.partition("#")[0] for uri in discovery.containers}:
        yield (
            f"{counted(len(left), 'archive')} with stored documents not opened; the documents stay. Add "
            "--archives to bring them up to date, or remove them with refdesk-admin remove."
        )


def _all_text(document: Document) -> str:
    """All that a search may show of a document."""
    return "\n".join((document.title, *document.metadata.values(), document.text))
