"""From a file to a chunked document: read, parse, describe, admit, chunk.

Nothing here depends on what is stored or who may see it; `rag.ingest.ingest_run` adds that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import cast

from anyio import to_thread

from rag.config.settings import IngestSettings
from rag.corpus import Chunking, Document, FieldType, FileState, Passage, Source, Value, Vectors
from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.document_languages import foreign_parts, load, with_language
from rag.ingest.file_digests import FileContent, chunking_of, cut_key, limit_of, read_content, recipe_of
from rag.ingest.metadata import declared_fields, undeclared_names, with_stated_metadata
from rag.ingest.parse.parsers import may_be_scanned
from rag.ingest.policy.document_admission import DocumentAdmission
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import LocalFile, printable
from rag.ingest.split_text import Reading, within
from rag.ingest.work_limits import Budget
from rag.models.embed import Embedder
from rag.originals import SCANNED
from rag.runtime import concurrently
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import NewSource, body
from rag.text.flags import Flag, flags_in

OCR_TIMES = 30  # as many seconds as for parsing: a page takes some, and scans have hundreds of pages


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document as it will be stored, in passages, with what the report says about it.

    `stated` is its metadata before admission changed any: rights are computed from it. An empty `digest`
    makes the next run store the document again. `masked` counts the masked values by kind. `undeclared` are
    names in its front matter and sidecar without a declared field.
    """

    document: Document
    passages: Sequence[Passage]
    digest: str
    stated: Mapping[str, str]
    fields: Mapping[str, Value]
    remarks: tuple[str, ...]
    flags: tuple[Flag, ...]
    masked: Mapping[Flag, int]
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A chunked document, to be stored under this id.

    `metadata` is what readers see of its metadata. `state` is the file's state just before it was read.
    """

    file: LocalFile
    id: str
    chunked: Chunked
    claim: Claim
    metadata: Mapping[str, str]
    state: FileState | None = None

    def texts(self) -> Iterator[str]:
        """The text to embed for each passage."""
        text = self.chunked.document.text
        return (body(passage.context, text[passage.start : passage.end]) for passage in self.chunked.passages)

    def new_source(self, collection: str, vectors: Vectors) -> NewSource:
        """The source to write, with one row of `vectors` per passage; a row of zeros means no vector."""
        chunked, document = self.chunked, self.chunked.document
        source = Source(
            id=self.id,
            collection=collection,
            uri=self.file.uri,
            title=document.title,
            mime_type=document.mime_type,
            digest=chunked.digest,
            chunk_count=len(chunked.passages),
            length=len(document.text),
            ingested_at=datetime.now(UTC),
            url=document.url,
            date=document.date,
            metadata={**self.metadata, "path": printable(self.file.name)},
            without_vector=int((~vectors.any(axis=1)).sum()),
            file=self.state,
        )
        return NewSource(
            source,
            document.text,
            document.outline,
            chunked.passages,
            vectors,
            claim=self.claim,
            fields=chunked.fields,
        )


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares the documents of a run. Has everything that a stored text depends on besides its file.

    The first of `chunkings` that matches a document applies, with `max_tokens` where it has no size of its
    own. `declared` are the fields of the collection.
    """

    settings: IngestSettings
    embedder: Embedder
    admission: DocumentAdmission
    chunkings: tuple[Chunking, ...]
    max_tokens: int
    declared: Mapping[str, FieldType]

    @property
    def recipe(self) -> str:
        """What the digests depend on besides the documents: a different recipe means reading all again."""
        cuts = (self.chunkings, self.max_tokens, self.embedder.window)
        return recipe_of(repr(cuts) + self.admission.recipe)

    async def read(self, file: LocalFile) -> FileContent:
        """The bytes of a file, and its digests.

        Raises:
            ParseError: the file or its sidecar can't be read.
        """
        cut = cut_key(self._chunking(file), self.embedder.window)
        scanned = SCANNED if self._ocr_seconds and may_be_scanned(file.path.name) else ""
        admission = self.admission.recipe + scanned
        return await read_content(file, max_bytes=self.settings.max_file_bytes, cut=cut, admission=admission)

    async def read_digests(self, file: LocalFile) -> FileContent | None:
        """The digests of a file, without its bytes; None if it is unreadable, which `read` reports later."""
        try:
            return replace(await self.read(file), data=b"", sidecar=b"")
        except ParseError:
            return None

    async def parse(self, content: FileContent, budget: Budget | None = None) -> Document:
        """The document in a file, with the metadata of its sidecar and container.

        Raises:
            ParseError: the file can't be parsed.
            EmptyFileError: it has no text.
        """
        name = printable(content.file.path.name)
        budget = budget or Budget(self.settings.parse_timeout_seconds)
        parsed = await parse_safely(content.data, name, budget=budget, ocr_seconds=self._ocr_seconds)
        return with_stated_metadata(parsed, content.sidecar, content.file.stated)

    async def chunk(self, content: FileContent, budget: Budget) -> Chunked:
        """The document in a file, as admitted, in passages that fit the embedder.

        Everything except moderation is charged to the file's budget.

        Raises:
            ParseError: the file can't be parsed, or parsing or chunking takes too long.
            EmptyFileError: it has no text.
            NotAdmittedError: a policy keeps it out, or it has expired.
        """
        language = partial(to_thread.run_sync, load)  # the first time, loading takes as long as parsing
        parsed = cast("Document", (await concurrently((partial(self.parse, content, budget), language)))[0])
        admitted = await self.admission.admit(parsed, content.file, content.state, budget)
        document = await budget.run(with_language, admitted.document)
        fields, complaints = declared_fields(_all_metadata(document), self.declared)
        flags = await budget.run(flags_in, _all_text(document))
        chunking = self._chunking(content.file)
        return Chunked(
            document,
            await budget.run(self._cut, document, chunking, budget.left),
            "" if admitted.unmoderated else content.digest,  # so that the next run asks the moderator again
            parsed.metadata,
            fields,
            (*document.remarks, *complaints),
            flags,
            admitted.masked,
            undeclared_names(parsed, content.sidecar, self.declared),
        )

    def _cut(self, document: Document, chunking: Chunking, seconds: float) -> list[Passage]:
        spans = within(seconds, self.embedder.token_spans)
        window = self.embedder.window
        limit = limit_of(chunking, window)
        reading = Reading(foreign_parts(document, self.embedder.vocabulary_share), window - limit)
        return passages(document, token_spans=spans, limit=limit, chunking=chunking, reading=reading)

    def _chunking(self, file: LocalFile) -> Chunking:
        return chunking_of(file.name, self.chunkings, self.max_tokens)

    @property
    def _ocr_seconds(self) -> float:
        return OCR_TIMES * self.settings.parse_timeout_seconds if self.settings.ocr == "auto" else 0.0


def _all_metadata(document: Document) -> dict[str, str]:
    """The metadata that declared fields take their values from."""
    metadata = {"title": document.title, **document.metadata}
    if document.url:
        metadata["url"] = document.url
    if document.date:
        metadata["date"] = document.date.isoformat()
    return metadata


def _all_text(document: Document) -> str:
    """Everything of a document that a search may show."""
    return "\n".join((document.title, *document.metadata.values(), document.text))
