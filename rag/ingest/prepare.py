"""From a file to a chunked document: read, digest, parse, describe, admit, chunk.

The *content digest* recognizes a document under another name. The *digest* says whether a run would store the
same text: it covers everything that the text and its chunks depend on, and ends with the document's chunking:
"a7…/254/sentence/32/0/1".

Nothing here depends on what is stored or who may see it; `rag.ingest.ingest_run` adds that.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast

from anyio import to_thread

from rag.config.model_settings import MULTILINGUAL_MODEL
from rag.config.settings import IngestSettings
from rag.corpus import (
    LEFT_OUT,
    Chunking,
    Document,
    EmbedderIdentity,
    FieldType,
    FileState,
    Passage,
    Source,
    Value,
)
from rag.errors import ParseError, WithheldError
from rag.filters.grammar import MAX_CHARS, MAX_INTEGER
from rag.ingest.chunk import passages
from rag.ingest.discover import fits
from rag.ingest.document_admission import DocumentAdmission
from rag.ingest.document_languages import foreign_parts, language_identifier, with_language
from rag.ingest.parse import document_parts
from rag.ingest.parse.decode import recoded, unicode_text
from rag.ingest.parse.document_draft import HEADERS, page_headers
from rag.ingest.parse.front_matter import ACCESS_KEYS, items_of, listed
from rag.ingest.parse.markdown import MIME_TYPE as MARKDOWN
from rag.ingest.parse.parsers import may_be_scanned
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget, LocalFile, is_local, printable, read, read_if_there
from rag.ingest.split_text import Reading, within
from rag.models.embed import Embedder
from rag.originals import EXPIRES, SCANNED, SIDECAR_BYTES, SIDECAR_SUFFIX, digest_of, local_path, state_of
from rag.runtime import concurrently
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import NOT_EMBEDDED, Derived, KnownSource, NewSource
from rag.text.dates import VALIDITY, validity_in
from rag.text.flags import Flag, flags_in
from rag.text.plain_text import lines_at
from rag.uris import web_address


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of a file with its sidecar. `state` is its state just before reading, None if unknown."""

    file: LocalFile
    data: bytes
    sidecar: bytes
    content_digest: str
    digest: str
    state: FileState | None = None


def _content(file: LocalFile, max_bytes: int, cut: str, admission: str) -> FileContent:
    """The content of a file; its digest includes `cut` and `admission`, the recipes for its text."""
    # Before it is read: if it changes meanwhile, hits count as stale, and never wrongly as up to date.
    state = _state(file)
    data = read(file, max_bytes)
    sidecar = read_sidecar(file)
    digest = digest_with_cut(digest_of(data + sidecar + stated_json(file) + admission.encode()), cut)
    return FileContent(file, data, sidecar, content_digest(data), digest, state)


def as_stored(file: LocalFile, source: KnownSource) -> FileContent:
    """The content of an unchanged part, without its bytes."""
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
    """A digest of a document's content, independent of its name and of parsing.

    The encoding of a text, a byte order mark, the kind of line ends and trailing white space don't count:
    editors and archives change them.
    """
    text = data if _is_utf8(data) else recoded(data)  # nearly all texts need no look at their encoding
    plain = text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").rstrip()
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data  # as UTF-16 has


CHUNK_TOKENS, MULTILINGUAL_CHUNK_TOKENS = 254, 320
"""The default size of a chunk in tokens; the second for multilingual-e5-small, whose tokens are shorter.
Chosen by the content of replies and their lengths (rag/evaluate/measuring.md)."""


def usual_tokens(embedder: EmbedderIdentity) -> int:
    """The default size of a chunk in tokens for an embedder."""
    is_multilingual = (embedder.provider, embedder.model) == ("builtin", MULTILINGUAL_MODEL)
    return MULTILINGUAL_CHUNK_TOKENS if is_multilingual else CHUNK_TOKENS


def chunking_of(name: str, chunkings: Iterable[Chunking], max_tokens: int) -> Chunking:
    """The first chunking that matches a file's path for readers or its name, completed by `max_tokens`."""
    chosen = next((chunking for chunking in chunkings if fits(name, [chunking.match])), Chunking())
    return replace(chosen, max_tokens=chosen.max_tokens or max_tokens, match="*")


def limit_of(chunking: Chunking, window: int) -> int:
    """The maximum tokens of a passage, for an embedder with this window."""
    return min(chunking.max_tokens or window, window)


def cut_key(chunking: Chunking, window: int) -> str:
    """The chunking as a part of a digest: "254" by default, or "254/sentence/20/1"."""
    limit = str(limit_of(chunking, window))
    if replace(chunking, max_tokens=None, match="*") == Chunking():
        return limit
    parts = (limit, chunking.strategy, chunking.overlap, int(chunking.headers))
    return "/".join(map(str, parts))


def digest_with_cut(digest: str, cut: str) -> str:
    """The digest of the same bytes with another chunking: ("a7/254", "99") -> "a7/99"."""
    return f"{digest.partition('/')[0]}/{cut}"


def cut_of(digest: str) -> str:
    """The chunking in a digest: "a7/254/sentence/0/1" -> "254/sentence/0/1"."""
    return digest.partition("/")[2]


OCR_TIMES = 30  # times the seconds for parsing: a page takes some, and scans have hundreds of pages


@dataclass(frozen=True, slots=True)
class Chunked:
    """A document as it will be stored, in passages, with values for the report.

    `stated` is its metadata before admission changed it: rights are computed from it. An empty `digest` makes
    the next run store the document again. `masked` counts the masked values by kind. `undeclared` are names
    in its front matter and sidecar without a declared field. A worker of a cluster sets `derived`.
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

    def new_source(
        self, content: FileContent, id_: str, collection: str, claim: Claim, metadata: Mapping[str, str]
    ) -> NewSource:
        """The source to write under this id, without vectors; `metadata` is the part that readers see."""
        document = self.document
        starts = (passage.start for passage in self.passages)
        source = Source(
            id=id_,
            collection=collection,
            uri=content.file.uri,
            title=document.title,
            mime_type=document.mime_type,
            digest=self.digest,
            chunk_count=len(self.passages),
            length=len(document.text),
            ingested_at=datetime.now(UTC),
            url=document.url,
            date=document.date,
            metadata={**metadata, "path": printable(content.file.name)},
            file=content.state,
            lines=tuple(lines_at(document.text, starts)) if document.has_lines else (),
        )
        text, headings = document.text, document.headings
        new = NewSource(source, text, headings, self.passages, NOT_EMBEDDED, claim, self.fields)
        return replace(new, derived=self.derived)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares the documents of a run. It holds everything that a stored text depends on besides its file.

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
        """All that digests depend on but the documents. If it changes, all documents are read again."""
        cuts = (self.chunkings, self.max_tokens, self.embedder.window)
        return digest_of((repr(cuts) + self.admission.recipe).encode())

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
        name = printable(Path(*content.file.path.parts[-2:]))  # the folder is the channel of a chat
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
        language = partial(to_thread.run_sync, language_identifier)  # loading it takes as long as parsing
        parsed = cast("Document", (await concurrently((partial(self.parse, content, budget), language)))[0])
        admitted = await self.admission.admit(parsed, content.file, content.state, budget)
        document = await budget.run(with_language, admitted.document)
        fields, complaints = declared_fields(all_metadata(document), self.declared)
        whole_text = "\n".join((document.title, *document.metadata.values(), document.text))
        flags = await budget.run(flags_in, whole_text)
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


def all_metadata(document: Document | Source) -> dict[str, str]:
    """All metadata that declared fields can get their values from."""
    stated = {"url": document.url, "date": document.date and document.date.isoformat()}
    filled = {key: value for key, value in stated.items() if value}
    return {"title": document.title, **document.metadata, **filled}


# Metadata: from a sidecar file, and as the fields that the collection declares.
#
# The sidecar `report.pdf.meta.toml` describes `report.pdf`, which can't hold metadata as Markdown does in its
# front matter. Its keys override the document's.

_EXPECTED: dict[FieldType, str] = {
    "string": f"a string of at most {MAX_CHARS} characters",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "datetime": "a date",
    "string list": f"a list of strings of at most {MAX_CHARS} characters",
}
_OF_OUR_OWN = ACCESS_KEYS | {
    EXPIRES,
    LEFT_OUT,
    VALIDITY,
    "title",
    "date",
    "url",
    "language",
    "encoding",
    "path",
}
"""Names with a built-in meaning, which need no declaration."""
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


def field_name(key: str) -> str:
    """The name of the field that an entry of metadata fills, as documents call it; "" if none can.

    Example: "python-version", "Python version" -> python_version; "versions.fpt" -> versions_fpt.
    """
    letters = unicodedata.normalize("NFD", key.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    name = re.sub(r"[\W_]+", "_", plain).strip("_")
    return name if FIELD_NAME.fullmatch(name) else ""


def declared_fields(
    metadata: Mapping[str, str], declared: Mapping[str, FieldType]
) -> tuple[dict[str, Value], list[str]]:
    """The declared fields in the metadata, and complaints about values that don't have the declared type.

    Example: {"year": "2024", "pages": "a"}, both integer -> {"year": 2024}, ["pages is not an integer"].
    """
    stated = {field_name(key): text for key, text in metadata.items()} | {**metadata}
    fields: dict[str, Value] = {}
    complaints = []
    for name, kind in declared.items():
        text = stated.get(name, "").strip()
        if not text:
            if any(key.startswith(f"{name}.") for key in metadata):
                complaints.append(f"{name} is a mapping, not {_EXPECTED[kind]}")
            continue
        value = _CONVERSIONS[kind](text)
        if value is None:
            complaints.append(f"{name} is not {_EXPECTED[kind]}")
        else:
            fields[name] = value
    return fields, complaints


def undeclared_names(
    document: Document, sidecar: bytes, declared: Mapping[str, FieldType]
) -> tuple[str, ...]:
    """The fields that front matter and sidecar would fill, but that aren't declared to filter by.

    Raises:
        ParseError: the sidecar is not valid.
    """
    names = {*(_entries(sidecar) if sidecar else ())}
    if document.mime_type == MARKDOWN:
        names |= document.metadata.keys() - document_parts.SHARED  # shared ones come with every format
    fields = {field_name(name) for name in names if name.casefold() not in _OF_OUR_OWN}
    return tuple(sorted(fields - declared.keys() - {""}))


def _string(text: str) -> str | None:
    value = unicodedata.normalize("NFC", text)
    return value if len(value) <= MAX_CHARS else None


def _integer(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return value if abs(value) <= MAX_INTEGER else None


def _number(text: str) -> float | None:
    try:
        value = float(text) + 0.0  # -0.0 is 0.0
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _boolean(text: str) -> bool | None:
    word = text.casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def _strings(text: str) -> tuple[str, ...] | None:
    items = tuple(map(_string, items_of(text)))
    return None if None in items or not items else tuple(item for item in items if item)


_CONVERSIONS: dict[FieldType, Callable[[str], Value | None]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": document_parts.date,
    "string list": _strings,
}


_NOTHING: Mapping[str, str] = MappingProxyType({})
MAX_DOTS = 1_000  # in a line of a sidecar: a key with 31,000 parts took 4 GB
MOST_STATED = 40  # characters of an entry that may be a date
_ROW = re.compile(r"[^\n:|]{1,60}: \S")
"""The beginning of a record, which is lines of names and values."""
_DATED_BY_SAVING = (
    "application/vnd.openxmlformats-officedocument",
    "application/vnd.oasis.opendocument",
    "application/vnd.ms-excel",
    "application/rtf",
)
"""Formats whose programs write when a file was saved, which says no more than the time of the file."""
NO_ADDRESS = "its url is not an http or https address"
UNCLEAR_DATE = "its date isn't clear: {}; write it like 2024-05-31"


def read_sidecar(file: LocalFile) -> bytes:
    """The content of a document's sidecar, empty if it has none.

    Raises:
        ParseError: it can't be read. It may restrict the document, so the document is skipped.
    """
    path = Path(f"{file.read_from}{SIDECAR_SUFFIX}")
    try:
        return read_if_there(path, SIDECAR_BYTES) or b""
    except ParseError as error:
        reason = f"its {file.path.name}{SIDECAR_SUFFIX}: {error}"
        raise ParseError(reason, error.cause) from error


def access_requested(file: LocalFile) -> dict[str, str]:
    """The access and expiry that a sidecar, or else the container or origin, requests for a document.

    They hold for its parts, too.

    Raises:
        ParseError: the sidecar can't be read.
    """
    sidecar = read_sidecar(file)
    stated = (_entries(sidecar) if sidecar else _NOTHING, file.stated)
    requested: dict[str, str] = {}
    for keys in (ACCESS_KEYS, {EXPIRES}):
        requests = (
            {key: text for key, text in entries.items() if key.casefold() in keys} for entries in stated
        )
        requested |= next(filter(None, requests), {})
    return requested


def with_stated_metadata(
    document: Document, sidecar: bytes, stated: Mapping[str, str] = _NOTHING
) -> Document:
    """The document with the metadata of its sidecar and container, and with the address in its `url` key.

    In order of precedence: its sidecar, its container or origin (`LocalFile.stated`), its own metadata.
    Without a date there, the validity that its text states is in its metadata.

    Raises:
        ParseError: the sidecar is not valid.
    """
    saved = document.date if document.mime_type.startswith(_DATED_BY_SAVING) else None
    for entries in (stated, _entries(sidecar) if sidecar else _NOTHING):  # the later one overrides
        document = _with_entries(document, entries) if entries else document
    stated_date = document.metadata.get("date", "")
    if stated_date and document.date is None:
        unclear = UNCLEAR_DATE.format(document_parts.title_line(stated_date))
        document = replace(document, remarks=(*document.remarks, unclear))
    return _with_address(document if document.date != saved else _with_validity(document))


def _with_validity(document: Document) -> Document:
    """The document with the validity that its first lines, page headers or entries state, as "2024-01-01/..".

    Example: "Gültig ab 01.01.2024" below the title, or `valid_from = 2024-01-01` in its sidecar.
    """
    entries = (f"{key}: {value[:MOST_STATED]}" for key, value in document.metadata.items())
    headers = page_headers(document.text) if HEADERS in document.text else ""
    stated = (_head(document), headers, "\n".join(entries))
    validity = next(filter(None, map(validity_in, stated)), "")
    return replace(document, metadata={**document.metadata, VALIDITY: validity}) if validity else document


def _head(document: Document) -> str:
    """The text, or what stands above several records: a list isn't valid from the day of its first row."""
    if document.mime_type == "application/xml":  # there, the document's own facts are such lines, too
        return document.text
    tables = (block for block in document.blocks if block.kind == "table")
    rows = [table for table in tables if _ROW.match(document.text, table.start, table.end)]
    return document.text[: rows[0].start] if rows[1:] else document.text


def _with_address(document: Document) -> Document:
    address = document.metadata.get("url", "")
    if not address:
        return document
    if (url := web_address(address)) is None:
        return replace(document, remarks=(*document.remarks, NO_ADDRESS))
    return replace(
        document, url=url, metadata={key: value for key, value in document.metadata.items() if key != "url"}
    )


def _with_entries(document: Document, entries: Mapping[str, str]) -> Document:
    day = document_parts.date(entries.get("date", ""))
    built_in = {"title", "date"} if day else {"title"}
    # The whole access comes from one of both: two halves could add up to more than either.
    replaced = ACCESS_KEYS if not ACCESS_KEYS.isdisjoint(map(str.casefold, entries)) else frozenset[str]()
    before = {key: value for key, value in document.metadata.items() if key.casefold() not in replaced}
    return replace(
        document,
        title=document_parts.title_line(entries.get("title", "")) or document.title,
        date=day or document.date,
        metadata=before | {key: value for key, value in entries.items() if key not in built_in},
    )


def _entries(sidecar: bytes) -> Mapping[str, str]:
    try:
        return _read_entries(sidecar)
    except ParseError as error:  # whom it lets see the document can't be told
        raise WithheldError(str(error), error.cause) from error


def _read_entries(sidecar: bytes) -> Mapping[str, str]:
    try:
        text = unicode_text(sidecar)
    except ParseError as error:
        raise ParseError(f"its {SIDECAR_SUFFIX} file: {error}", error.cause) from error
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ParseError(f"its {SIDECAR_SUFFIX} file has over {MAX_DOTS} dots in a line")
    try:
        parsed = tomllib.loads(text)
        texts = {key: plain_text(value) for key, value in parsed.items()}
    except (ValueError, RecursionError) as error:  # ValueError also for a number with thousands of digits
        raise ParseError(f"its {SIDECAR_SUFFIX} file is not valid TOML: {error}") from error
    for key, value in texts.items():
        if value is None:
            reason = f"{key} must be a plain value, or a list of plain values"
            raise ParseError(f"its {SIDECAR_SUFFIX} file: {reason}")
    entries = {document_parts.clean(key): document_parts.clean(value or "") for key, value in texts.items()}
    if len(entries) < len(parsed):
        raise ParseError(f"its {SIDECAR_SUFFIX} file: two of its keys look the same")
    return entries


def plain_text(value: object) -> str | None:
    """A value of TOML or JSON as front matter writes it; None for a mapping or a nested list."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value).strip()
        case date() | time():
            return value.isoformat()
        case list() if not any(isinstance(member, list | dict) for member in value):
            return listed(plain_text(member) or "" for member in value)
    return None
