"""One ingestion run: discover, read, parse, chunk, embed, write, each step while the next is busy.

files -> prepare -> waves of Prepared -> embed -> waves of NewSource -> write
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

import anyio
import numpy as np
from anyio import to_thread

from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.discover import discover, printable, read
from rag.ingest.fields import declared_fields
from rag.ingest.report import Outcome, Report
from rag.ingest.sandbox import parse_safely
from rag.ingest.sidecar import described, read_sidecar
from rag.records import Heading, Source
from rag.store.schema import NewSource, body

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from rag.embed import Embedder
    from rag.ingest.discover import Discovery, Found
    from rag.ingest.report import OutcomeKind
    from rag.ingest.rights import Rights
    from rag.records import Access, Document, Passage, Value, Vectors
    from rag.settings import IngestSettings
    from rag.store.writer import CollectionWriter, KnownSource

RECIPE = 1
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
class Prepared:
    """A file read, parsed and chunked."""

    found: Found
    digest: str
    document: Document
    passages: Sequence[Passage]
    access: Access
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a run goes: which files, how long a chunk may be, and who may see what is new."""

    files: IngestSettings
    max_tokens: int
    rights: Rights


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
    run = _Run(writer, embedder, instructions, progress, await writer.known())
    progress.started(len(discovery.found) + len(discovery.outcomes))
    run.finish(discovery.outcomes)
    try:
        async with anyio.create_task_group() as tasks:
            to_embed, prepared = anyio.create_memory_object_stream[list[Prepared]](0)
            to_write, embedded = anyio.create_memory_object_stream[list[NewSource]](0)
            tasks.start_soon(run.prepare, discovery, to_embed)
            tasks.start_soon(run.embed, prepared, to_write)
            tasks.start_soon(run.write, embedded)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    await run.remove(_vanished(run.known, discovery))
    await writer.finish()
    return Report(tuple(run.outcomes))


class _Run:
    """What the steps of one run share."""

    def __init__(
        self,
        writer: CollectionWriter,
        embedder: Embedder,
        instructions: Instructions,
        progress: Progress,
        known: Mapping[str, KnownSource],
    ) -> None:
        self.known = known
        self.outcomes: list[Outcome] = []
        self._writer = writer
        self._embedder = embedder
        self._settings = instructions.files
        self._limit = min(instructions.max_tokens, embedder.window)
        self._rights = instructions.rights
        self._progress = progress
        self._first_with: dict[str, Found] = {}
        self._notes: dict[str, str] = {}

    def finish(self, outcomes: Iterable[Outcome]) -> None:
        """Account for files that are done with."""
        for outcome in outcomes:
            self.outcomes.append(outcome)
            self._progress.finished(outcome)

    async def prepare(self, discovery: Discovery, waves: MemoryObjectSendStream[list[Prepared]]) -> None:
        """Read, parse and chunk the files that are new or changed, in waves worth a commit."""
        wave: list[Prepared] = []
        async with waves:
            for found in discovery.found.values():
                try:
                    if one := await self._prepared(found):
                        wave.append(one)
                except ParseError as error:
                    kept = "; the earlier version stays" if found.uri in self.known else ""
                    self.finish([Outcome(printable(found.path), "skipped", f"{error}{kept}")])
                if sum(len(one.passages) for one in wave) >= WAVE_CHUNKS:
                    await waves.send(wave)
                    wave = []
            if wave:
                await waves.send(wave)

    async def _prepared(self, found: Found) -> Prepared | None:
        data = await to_thread.run_sync(read, found, self._settings.max_file_bytes)
        sidecar = await to_thread.run_sync(read_sidecar, found)
        digest = _digest(data + sidecar, self._limit)
        if (first := self._first_with.setdefault(digest, found)) is not found:
            self._notes[found.uri] = f"same content as {printable(first.path)}"
        known = self.known.get(found.uri)
        if known and known.digest == digest and not self._rights.set_access:
            self._finish_stored("unchanged", known.uri, known.id, known.chunk_count)
            return None
        name = printable(found.path.name)
        parsed = await parse_safely(data, name, timeout_seconds=self._settings.parse_timeout_seconds)
        document = described(parsed, sidecar)
        make = partial(passages, document, token_spans=self._embedder.token_spans, limit=self._limit)
        chunks = await to_thread.run_sync(make)
        access = self._rights.access(printable(found.name), document.metadata)
        return Prepared(found, digest, document, chunks, access, self._fields(found, document))

    def _fields(self, found: Found, document: Document) -> Mapping[str, Value]:
        metadata = {"title": document.title, **document.metadata}
        if document.date:
            metadata["date"] = document.date.isoformat()
        fields, complaints = declared_fields(metadata, self._writer.collection.fields)
        if complaints:
            before = self._notes.get(found.uri)
            self._notes[found.uri] = "; ".join([*([before] if before else []), *complaints])
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
            id=self._writer.source_id(one.found.uri),
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
            metadata={**self._rights.shown(document.metadata), "path": printable(one.found.name)},
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
            access=one.access,
            set_access=self._rights.set_access,
            fields=one.fields,
        )

    async def write(self, waves: MemoryObjectReceiveStream[list[NewSource]]) -> None:
        """Commit wave by wave."""
        async with waves:
            async for wave in waves:
                await self._writer.replace(wave)
                for source in (new.source for new in wave):
                    kind: OutcomeKind = "replaced" if source.uri in self.known else "added"
                    self._finish_stored(kind, source.uri, source.id, source.chunk_count)

    def _finish_stored(self, kind: OutcomeKind, uri: str, source_id: str, chunks: int) -> None:
        self.finish([Outcome(_path(uri), kind, self._notes.get(uri, ""), source_id, chunks)])

    async def remove(self, vanished: Sequence[KnownSource]) -> None:
        """Remove the sources whose files are gone."""
        if vanished:
            await self._writer.remove([known.id for known in vanished])
        self.finish(Outcome(_path(known.uri), "removed", "the file is gone", known.id) for known in vanished)


def _digest(data: bytes, limit: int) -> str:
    return hashlib.blake2b(data, key=f"{RECIPE}/{limit}".encode(), digest_size=16).hexdigest()


def _body(document: Document, passage: Passage) -> str:
    return body(passage.context, document.text[passage.start : passage.end])


def _path(uri: str) -> str:
    return printable(_local(uri))


def _local(uri: str) -> str:
    """The path that a file's URI was made from, whatever bytes it holds."""
    path = urlsplit(uri).path
    return url2pathname(path) if os.name == "nt" else os.fsdecode(unquote_to_bytes(path))


def _vanished(known: Mapping[str, KnownSource], discovery: Discovery) -> list[KnownSource]:
    """Stored sources from the walked folders whose files no longer exist."""
    prefixes = tuple(folder.as_uri().rstrip("/") + "/" for folder in discovery.folders)
    missing = [
        one for one in known.values() if one.uri.startswith(prefixes) and one.uri not in discovery.found
    ]
    return [one for one in missing if _is_gone(_local(one.uri))]


def _is_gone(path: str) -> bool:
    """Whether it is certain that nothing is there: a file in a folder that can't be read may be."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
