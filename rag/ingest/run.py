"""One ingestion run: discover, read, parse, chunk, embed, write, each step while the next is busy.

files -> moves, which keep their text -> prepare -> waves of Prepared -> embed -> waves of NewSource -> write
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import numpy as np
from anyio import to_thread

from rag.corpus import Heading, Source
from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.claims import Claims
from rag.ingest.discover import discover, printable, read
from rag.ingest.metadata import declared_fields, described, read_sidecar
from rag.ingest.recorded import Recorded, content_digest, is_gone, local_path, moves, name_of, path_of
from rag.ingest.report import Outcome, Report
from rag.ingest.sandbox.pool import parse_safely
from rag.store.schema import NewSource, body
from rag.store.writer import Moved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from rag.config.settings import IngestSettings
    from rag.corpus import AccessRecord, Document, Passage, Value, Vectors
    from rag.ingest.discover import Discovery, Found
    from rag.ingest.report import OutcomeKind
    from rag.ingest.rights import Rights
    from rag.models.embed import Embedder
    from rag.store.schema import Claim
    from rag.store.writer import CollectionWriter, KnownSource

RECIPE = 2
"""Part of every digest: raise it when parsers or the chunker change, and sources are made anew."""
WAVE_CHUNKS = 1000  # smaller commits cost more each; larger ones hold more in memory
EMBED_AT_ONCE = 256  # texts handed to the embedder together, so that progress shows on large files


class Progress(Protocol):
    """Somebody who watches a run."""

    def started(self, files: int) -> None:
        """So many files will be finished, not counting those that turn out to be removed."""

    def embedded(self, chunks: int) -> None:
        """So many more chunks have their vectors."""

    def finished(self, outcome: Outcome) -> None:
        """A file is done with."""


@dataclass(frozen=True, slots=True)
class Read:
    """A file that was read: its bytes, its sidecar's, and what both are known by."""

    found: Found
    data: bytes
    sidecar: bytes
    content: str
    digest: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file read, parsed and chunked, to be stored under this id."""

    found: Found
    id: str
    digest: str
    document: Document
    passages: Sequence[Passage]
    claim: Claim
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a run goes: which files, how long a chunk may be, and who may see what is new.

    `removes` is whether sources are removed however many of their files are gone.
    """

    files: IngestSettings
    max_tokens: int
    rights: Rights
    removes: bool = False


async def ingest(
    writer: CollectionWriter,
    embedder: Embedder,
    paths: Iterable[Path],
    instructions: Instructions,
    progress: Progress,
) -> Report:
    """Bring the collection to the state of the files at `paths`.

    A file that can't be read is skipped with its reason, and an earlier version of it stays.

    Raises:
        ProviderError, StoreError: the embedder or the storage failed; what was written stays.
    """
    discovery = await to_thread.run_sync(partial(discover, paths, instructions.files, without=writer.data))
    run = _Run(writer, embedder, instructions, progress, await writer.records())
    await run.begin(discovery)
    await run.move(discovery)
    try:
        async with anyio.create_task_group() as tasks:
            to_embed, prepared = anyio.create_memory_object_stream[list[Prepared]](0)
            to_write, embedded = anyio.create_memory_object_stream[list[NewSource]](0)
            tasks.start_soon(run.prepare, discovery, to_embed)
            tasks.start_soon(run.embed, prepared, to_write)
            tasks.start_soon(run.write, embedded)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    await run.set_rights()
    notes = await run.remove(discovery)
    await writer.finish()
    return Report(tuple(run.outcomes), (*notes, *run.notes(discovery)))


class _Run:
    """What the steps of one run share."""

    def __init__(
        self,
        writer: CollectionWriter,
        embedder: Embedder,
        instructions: Instructions,
        progress: Progress,
        records: Mapping[str, AccessRecord],
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._writer = writer
        self._embedder = embedder
        self._instructions = instructions
        self._settings = instructions.files
        self._limit = min(instructions.max_tokens, embedder.window)
        self._progress = progress
        self._recorded = Recorded(records, writer.hidden)
        self._claims = Claims(instructions.rights, self._recorded)
        self._known: dict[str, KnownSource] = {}
        self._moved: dict[str, KnownSource] = {}
        self._first_with: dict[str, Found] = {}
        self._remarks: dict[str, list[str]] = defaultdict(list)
        self._to_claim: dict[str, tuple[KnownSource, Claim]] = {}

    async def begin(self, discovery: Discovery) -> None:
        """Look at what is stored, and account for what needs no reading."""
        self._known = await self._writer.known(self._recorded.by_id)
        self._progress.started(len(discovery.found) + len(discovery.outcomes))
        self.finish(discovery.outcomes)
        if folders := self._claims.remember(discovery.folders):
            await self._writer.remember(folders)

    def finish(self, outcomes: Iterable[Outcome]) -> None:
        """Account for files that are done with."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            self._progress.finished(outcome)

    async def move(self, discovery: Discovery) -> None:
        """Find the files that are known ones under other names; move those whose text stays as it is."""
        new = [found for uri, found in discovery.found.items() if uri not in self._known]
        if not new or not self._known:
            return
        reads = {one.found.uri: one for found in new if (one := await self._tried(found))}
        contents = {uri: one.content for uri, one in reads.items()}
        self._recorded.note_new(contents.values())
        matched = await to_thread.run_sync(moves, contents, self._known, discovery.found)
        if folders := self._claims.follow((source.uri, uri) for uri, source in matched.items()):
            await self._writer.remember(folders)
        light: dict[str, Moved] = {}
        rights = self._claims.rights
        for uri, source in matched.items():
            one = reads[uri]
            del self._known[source.uri]
            self._remarks[uri].append(f"it was {path_of(source.uri)}")
            self._moved[uri] = source
            self._recorded.moved(source.record, uri)
            parsed = rights.set_access or rights.unheard(source.record.word)  # for what the document says
            if source.digest == one.digest and _keeps_title(source, one.found) and not parsed:
                metadata = {**source.metadata, "path": printable(one.found.name)}
                light[source.id] = Moved(uri, metadata, self._claims.of_moved(source, one.found.path))
        left = [found.uri for found in new if found.uri not in matched]
        self._recorded.note_missing(await to_thread.run_sync(_lost, self._known, discovery, left))
        await self._finish_moved(light)

    async def _finish_moved(self, light: Mapping[str, Moved]) -> None:
        records = await self._writer.move(light) if light else {}
        for id_, one in light.items():
            source = replace(self._moved.pop(one.uri), uri=one.uri)
            self._known[one.uri] = source
            self._finish_stored("moved", source, one.claim, records[id_])

    async def _tried(self, found: Found) -> Read | None:
        """What a file is known by; one that can't be read is told of when it is its turn."""
        try:
            return replace(await self._read(found), data=b"", sidecar=b"")
        except ParseError:
            return None

    async def _read(self, found: Found) -> Read:
        data = await to_thread.run_sync(read, found, self._settings.max_file_bytes)
        sidecar = await to_thread.run_sync(read_sidecar, found)
        return Read(found, data, sidecar, content_digest(data), _digest(data + sidecar, self._limit))

    async def prepare(self, discovery: Discovery, waves: MemoryObjectSendStream[list[Prepared]]) -> None:
        """Read, parse and chunk the files that are new or changed, in waves worth a commit."""
        done = {one.source_id for one in self.outcomes if one.outcome == "moved"}
        wave: list[Prepared] = []
        async with waves:
            for uri, found in discovery.found.items():
                if uri in self._known and self._known[uri].id in done:
                    continue
                try:
                    if one := await self._prepared(found):
                        wave.append(one)
                except ParseError as error:
                    kept = "; the earlier version stays" if uri in self._known or uri in self._moved else ""
                    self.finish([Outcome(printable(found.path), "skipped", f"{error}{kept}")])
                if sum(len(one.passages) for one in wave) >= WAVE_CHUNKS:
                    await waves.send(wave)
                    wave = []
            if wave:
                await waves.send(wave)

    async def _prepared(self, found: Found) -> Prepared | None:
        one = await self._read(found)
        if (first := self._first_with.setdefault(one.digest, found)) is not found:
            self._remarks[found.uri].append(f"same content as {printable(first.path)}")
        known = self._known.get(found.uri)
        if known and known.digest == one.digest:
            await self._unchanged(known, one)
            return None
        document = await self._parsed(one)
        make = partial(passages, document, token_spans=self._embedder.token_spans, limit=self._limit)
        chunks = await to_thread.run_sync(make)
        source = known or self._moved.get(found.uri)
        id_ = source.id if source else self._writer.source_id(found.uri)
        claim = self._claims.of_document(found.path, document.metadata, one.content, id_, source)
        return Prepared(found, id_, one.digest, document, chunks, claim, self._fields(found, document))

    async def _parsed(self, one: Read) -> Document:
        name = printable(one.found.path.name)
        parsed = await parse_safely(one.data, name, timeout_seconds=self._settings.parse_timeout_seconds)
        return described(parsed, one.sidecar)

    async def _unchanged(self, known: KnownSource, one: Read) -> None:
        """A file whose text is stored. Its rights change if the run sets them, or is the first to hear it."""
        rights = self._claims.rights
        if not rights.set_access:
            self._claims.note_kept(known, one.found.path)
        if rights.set_access or rights.unheard(known.record.word):
            metadata = (await self._parsed(one)).metadata if rights.of_documents else {}
            self._to_claim[known.id] = known, rights.claim(one.found.path, metadata, one.content)
            return
        reason = "; ".join(self._remarks[known.uri])
        self.finish([Outcome(path_of(known.uri), "unchanged", reason, known.id, known.chunk_count)])

    def _fields(self, found: Found, document: Document) -> Mapping[str, Value]:
        metadata = {"title": document.title, **document.metadata}
        if document.date:
            metadata["date"] = document.date.isoformat()
        fields, complaints = declared_fields(metadata, self._writer.collection.fields)
        self._remarks[found.uri] += complaints
        return fields

    async def embed(
        self,
        waves: MemoryObjectReceiveStream[list[Prepared]],
        embedded: MemoryObjectSendStream[list[NewSource]],
    ) -> None:
        """Give every passage its vector."""
        async with waves, embedded:
            async for wave in waves:
                texts = [_body(one.document, passage) for one in wave for passage in one.passages]
                vectors = await self._vectors(texts)
                ends = np.cumsum([len(one.passages) for one in wave])
                parts = np.split(vectors, ends[:-1])
                await embedded.send([self._new(one, part) for one, part in zip(wave, parts, strict=True)])

    async def _vectors(self, texts: Sequence[str]) -> Vectors:
        parts = []
        for start in range(0, len(texts), EMBED_AT_ONCE):
            part = texts[start : start + EMBED_AT_ONCE]
            parts.append(await self._embedder.embed(part, "document"))
            self._progress.embedded(len(part))
        return np.concatenate(parts)

    def _new(self, one: Prepared, vectors: Vectors) -> NewSource:
        document = one.document
        source = Source(
            id=one.id,
            collection=self._writer.collection.name,
            uri=one.found.uri,
            title=document.title,
            mime_type=document.mime_type,
            digest=one.digest,
            chunk_count=len(one.passages),
            length=len(document.text),
            ingested_at=datetime.now(UTC),
            url=document.url,
            date=document.date,
            metadata={**self._claims.rights.shown(document.metadata), "path": printable(one.found.name)},
        )
        outline = tuple(
            Heading(block.title, block.level, block.start)
            for block in document.blocks
            if block.kind == "heading"
        )
        return NewSource(
            source,
            document.text,
            outline,
            one.passages,
            vectors,
            claim=one.claim,
            fields=one.fields,
        )

    async def write(self, waves: MemoryObjectReceiveStream[list[NewSource]]) -> None:
        """Commit wave by wave."""
        async with waves:
            async for wave in waves:
                records = await self._writer.replace(wave)
                for new in wave:
                    self._finish_stored(self._kind(new), new.source, new.claim, records[new.source.id])

    def _kind(self, new: NewSource) -> OutcomeKind:
        if new.source.uri in self._known:
            return "replaced"
        return "moved" if new.source.uri in self._moved else "added"

    async def set_rights(self) -> None:
        """Give the sources whose text stays the rights that they are to have now."""
        claims = {id_: (known.uri, claim) for id_, (known, claim) in self._to_claim.items()}
        records = await self._writer.claim(claims) if claims else {}
        for id_, (known, claim) in self._to_claim.items():
            self._finish_stored("unchanged", known, claim, records[id_])

    def _finish_stored(
        self, kind: OutcomeKind, source: Source | KnownSource, claim: Claim, record: AccessRecord
    ) -> None:
        remarks = [*self._remarks[source.uri], *self._claims.remarks(source.uri, claim, record)]
        chunks = source.chunk_count
        self.finish(
            [Outcome(path_of(source.uri), kind, "; ".join(remarks), source.id, chunks, record.access)]
        )

    async def remove(self, discovery: Discovery) -> list[str]:
        """Remove the sources whose files are gone, but not where a folder may not be whole; that is told."""
        vanished = await to_thread.run_sync(_missing, self._known, discovery)
        doubtful = {} if self._instructions.removes else self._doubtful(vanished, discovery)
        kept = {id_ for ids in doubtful.values() for id_ in ids}
        if gone := [one for one in vanished if one.id not in kept]:
            await self._writer.remove([one.id for one in gone])
        self.finish(Outcome(path_of(one.uri), "removed", "the file is gone", one.id) for one in gone)
        left = [one for one in vanished if one.id in kept]
        reason = "the file is gone, and so are many others: nothing was removed"
        self.finish(Outcome(path_of(one.uri), "missing", reason, one.id) for one in left)
        return [
            f"{len(ids)} files of {printable(folder)} are gone. Nothing of it was removed, since it may just "
            "not be mounted. If they are to go, say so with --yes."
            for folder, ids in doubtful.items()
        ]

    def _doubtful(self, vanished: Sequence[KnownSource], discovery: Discovery) -> dict[Path, set[str]]:
        """The ids of vanished sources by folders of which so much is gone that they may not be mounted."""
        doubtful = {}
        for folder in discovery.folders:
            prefix = _prefix(folder)
            ids = {one.id for one in vanished if one.uri.startswith(prefix)}
            there = sum(1 for uri in self._known if uri.startswith(prefix))
            settings = self._settings
            if len(ids) > settings.max_removed and len(ids) > settings.max_removed_share * there:
                doubtful[folder] = ids
        return doubtful

    def notes(self, discovery: Discovery) -> list[str]:
        """What must be known of the run as a whole."""
        return list(self._claims.notes([found.path for found in discovery.found.values()]))


def _keeps_title(source: KnownSource, found: Found) -> bool:
    """Whether a document that moved is called as before; one without a title has its file's name."""
    before = path_of(source.uri).rpartition("/")[2]
    return source.title != before or printable(found.path.name) == before


def _digest(data: bytes, limit: int) -> str:
    return hashlib.blake2b(data, key=f"{RECIPE}/{limit}".encode(), digest_size=16).hexdigest()


def _body(document: Document, passage: Passage) -> str:
    return body(passage.context, document.text[passage.start : passage.end])


def _missing(known: Mapping[str, KnownSource], discovery: Discovery) -> list[KnownSource]:
    """Stored sources from the walked folders whose files no longer exist."""
    prefixes = tuple(map(_prefix, discovery.folders))
    absent = [
        one for one in known.values() if one.uri.startswith(prefixes) and one.uri not in discovery.found
    ]
    return [one for one in absent if is_gone(local_path(one.uri))]


def _lost(known: Mapping[str, KnownSource], discovery: Discovery, new: Iterable[str]) -> set[str]:
    """The ids of sources whose files are gone: from the walked folders, or of the name of a new file."""
    names = {*map(name_of, new)}
    alike = [one for uri, one in known.items() if uri not in discovery.found and name_of(uri) in names]
    elsewhere = {one.id for one in alike if is_gone(local_path(one.uri))} if names else set[str]()
    return elsewhere | {one.id for one in _missing(known, discovery)}


def _prefix(folder: Path) -> str:
    return folder.as_uri().rstrip("/") + "/"
