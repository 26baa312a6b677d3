"""From a file to a chunked document: read, digest, parse, describe, admit, chunk.

The *content digest* recognizes a document under another name. The *digest* says whether the stored text is
still what a run would store: it covers everything that the text and its chunks depend on, with the chunking
of the document at its end: "a7…/254/sentence/32/0/1".

Nothing here depends on what is stored or who may see it; `rag.ingest.ingest_run` adds that.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import cast

from anyio import to_thread

from rag.config.model_settings import MULTILINGUAL_MODEL
from rag.config.settings import IngestSettings
from rag.corpus import (
    Chunking,
    Document,
    EmbedderIdentity,
    FieldType,
    FileState,
    Passage,
    Source,
    Value,
    Vectors,
)
from rag.errors import ParseError
from rag.ingest.chunk import passages
from rag.ingest.document_languages import foreign_parts, load, with_language
from rag.ingest.metadata import declared_fields, read_sidecar, undeclared_names, with_stated_metadata
from rag.ingest.parse.decode import recoded
from rag.ingest.parse.parsers import may_be_scanned
from rag.ingest.policy.document_admission import DocumentAdmission
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import LocalFile, is_local, printable, read
from rag.ingest.split_text import Reading, within
from rag.ingest.work_limits import Budget
from rag.models.embed import Embedder
from rag.originals import SCANNED, digest_of, local_path, state_of
from rag.runtime import concurrently
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import Derived, KnownSource, NewSource, body
from rag.text.flags import Flag, flags_in


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file that was read, with its sidecar, and its state just before; None if unknown."""

    file: LocalFile
    data: bytes
    sidecar: bytes
    content_digest: str
    digest: str
    state: FileState | None = None


def _content(file: LocalFile, max_bytes: int, cut: str, admission: str) -> FileContent:
    """A file and its sidecar; the digest covers `cut` and `admission`, the recipes for its text."""
    state = _state(file)
    data = read(file, max_bytes)
    sidecar = read_sidecar(file)
    digest = _digest(data + sidecar + stated_json(file) + admission.encode(), cut)
    return FileContent(file, data, sidecar, content_digest(data), digest, state)


def as_stored(file: LocalFile, source: KnownSource) -> FileContent:
    """The content of a part that is as it is stored, without its bytes."""
    return FileContent(file, b"", b"", source.record.content, source.digest, _state(file))


def _state(file: LocalFile) -> FileState | None:
    """The state of the file, or of the outermost container of a part; None for documents of an origin."""
    with suppress(OSError):
        return state_of(local_path(file.uri)) if is_local(file.uri) else None
    return None


def stated_json(file: LocalFile) -> bytes:
    """The metadata and access requests from a document's containers, for its digest."""
    if not (file.stated or file.requests):
        return b""
    return json.dumps(
        [dict(statements) for statements in (file.stated, *file.requests)], sort_keys=True
    ).encode()


def content_digest(data: bytes) -> str:
    """A digest of a document's content, whatever its name and however it is parsed.

    The encoding of a text, a byte order mark, the kind of line ends and trailing white space don't count:
    editors and archives change them.
    """
    plain = (
        (data if _is_utf8(data) else recoded(data))
        .removeprefix(codecs.BOM_UTF8)
        .replace(b"\r\n", b"\n")
        .rstrip()
    )
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data  # as UTF-16 has


def _digest(data: bytes, cut: str) -> str:
    """A digest of the bytes and the chunking: "a7…/254". A rebuild can change the latter."""
    return digest_with_cut(digest_of(data), cut)


CHUNK_TOKENS, MULTILINGUAL_CHUNK_TOKENS = 254, 320
"""The most tokens of a chunk, if nothing else is set; the latter for multilingual-e5-small, whose tokens are
shorter. Chosen by what replies show, and by their lengths (rag/evaluate/measuring.md)."""


def usual_tokens(embedder: EmbedderIdentity) -> int:
    """The most tokens of a chunk for an embedder, if nothing else is set."""
    is_multilingual = (embedder.provider, embedder.model) == ("builtin", MULTILINGUAL_MODEL)
    return MULTILINGUAL_CHUNK_TOKENS if is_multilingual else CHUNK_TOKENS


def chunking_of(name: str, chunkings: Iterable[Chunking], max_tokens: int) -> Chunking:
    """The first chunking that matches a file's path for readers or its name, completed by `max_tokens`."""
    last = name.rpartition("/")[2]
    matching = (
        chunking
        for chunking in chunkings
        if fnmatchcase(name, chunking.match) or fnmatchcase(last, chunking.match)
    )
    chosen = next(matching, Chunking())
    return replace(chosen, max_tokens=chosen.max_tokens or max_tokens, match="*")


def limit_of(chunking: Chunking, window: int) -> int:
    """The tokens that a passage has at most, for an embedder with this window."""
    return min(chunking.max_tokens or window, window)


def cut_key(chunking: Chunking, window: int) -> str:
    """All that passages depend on, as part of a digest: "254" of the usual one, or "254/sentence/32/20/1"."""
    limit = str(limit_of(chunking, window))
    if replace(chunking, max_tokens=None, match="*") == Chunking():
        return limit
    parts = (limit, chunking.strategy, chunking.min_tokens, chunking.overlap, int(chunking.headers))
    return "/".join(map(str, parts))


def digest_with_cut(digest: str, cut: str) -> str:
    """The digest of the same bytes with another chunking: ("a7/254", "99") -> "a7/99"."""
    return f"{digest.partition('/')[0]}/{cut}"


def cut_of(digest: str) -> str:
    """The chunking in a digest: "a7/254/sentence/32/0/1" -> "254/sentence/32/0/1"."""
    return digest.partition("/")[2]


OCR_TIMES = 30  # as many seconds as for parsing: a page takes some, and scans have hundreds of pages


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document as it will be stored, in passages, with what the report says about it.

    `stated` is its metadata before admission changed any: rights are computed from it. An empty `digest`
    makes the next run store the document again. `masked` counts the masked values by kind. `undeclared` are
    names in its front matter and sidecar without a declared field. `derived` is set by a worker of a cluster.
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
    derived: Derived | None = None


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
            derived=chunked.derived,
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
        return _digest((repr(cuts) + self.admission.recipe).encode(), "")

    async def read(self, file: LocalFile) -> FileContent:
        """The bytes of a file, and its digests.

        Raises:
            ParseError: the file or its sidecar can't be read.
        """
        cut = cut_key(self._chunking(file), self.embedder.window)
        scanned = SCANNED if self._ocr_seconds and may_be_scanned(file.path.name) else ""
        admission = self.admission.recipe + scanned
        max_bytes = self.settings.max_file_bytes
        return await to_thread.run_sync(_content, file, max_bytes, cut, admission)

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
