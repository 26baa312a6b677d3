"""Changes a collection without its files: rebuilds its tables, changes its language, declares fields.

A rebuild makes tables from the stored texts, next to the present ones. It makes new chunks and vectors, and
copies the rest: ids, URIs, metadata, declared fields, generations. Access records are the tenant's and don't
change; the copies of their labels are updated at the end. Sources that are already up to date are skipped, so
an interrupted rebuild continues.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import numpy as np
from anyio import to_thread

from rag.corpus import (
    Access,
    Block,
    BlockKind,
    Build,
    Chunking,
    Collection,
    Document,
    FieldType,
    Heading,
    Language,
    LanguageChoice,
    Passage,
    Source,
    Value,
)
from rag.errors import ConfigurationError
from rag.home import Home
from rag.ingest import document_languages, prepare
from rag.ingest.chunk import passages
from rag.ingest.chunk_vectors import calibration, vectors_of_texts
from rag.ingest.parse import markdown, source_code
from rag.ingest.parse.document_parts import block, paragraphs
from rag.ingest.split_text import Reading
from rag.models.embed import Embedder
from rag.store.read import schema
from rag.store.read.word_analysis import query_languages
from rag.store.write import collection_tables
from rag.store.write.change_collection import change_collection, open_writer, redefine
from rag.store.write.collection_tables import RebuildTarget
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import WholeSource
from rag.text.languages import LANGUAGE, analysed_in

WAVE_CHARS = 250_000  # of texts; at most this much is repeated after an interruption


async def _at_once() -> bool:
    """Approve without a check."""
    return True


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild. `kept` are the paths of sources that only an ingestion can chunk correctly.

    Unless it `switched`, searches still use the former tables, and another call continues.
    """

    sources: int = 0
    chunks: int = 0
    copied: int = 0
    recut: int = 0
    without_vector: int = 0
    kept: list[str] = field(default_factory=list)
    switched: bool = True


async def rebuild(
    writer: CollectionWriter,
    coming: Build,
    embedder: Embedder,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    around: AbstractContextManager[None] | None = None,
    approved: Callable[[], Awaitable[bool]] = _at_once,
) -> Rebuilt:
    """Make the coming build, or complete it, and switch to it in one commit.

    `progress` gets the numbers of finished and of all sources. When the build is complete, `approved` decides
    whether to switch. `around` encloses the switch.

    Raises:
        ProviderError, StoreError: the embedder or the storage failed. The present tables stay in use, and
            another call for the same build goes on.
    """
    data, tenant, name = writer.data, writer.collection.tenant, writer.collection.name
    await redefine(writer, coming=coming)  # first of all: another call finds it, and goes on
    await collection_tables.drop_others(data, writer.collection)
    rebuilt = await _complete(writer, coming, embedder, progress)
    if not await approved():
        rebuilt.switched = False
        return rebuilt
    with around or nullcontext():
        writer.collection = await change_collection(
            data, tenant, name, collection_tables.with_builds_switched
        )
    await collection_tables.drop_others(data, writer.collection)
    return rebuilt


async def _complete(
    writer: CollectionWriter,
    coming: Build,
    embedder: Embedder,
    progress: Callable[[int, int], None],
) -> Rebuilt:
    target = await collection_tables.open_target(writer.data, writer.collection, coming)
    records = await writer.records()
    access = {id_: record.access for id_, record in records.items()}
    run = _Rebuild(writer, target, embedder, coming.chunking, prepare.usual_tokens(embedder.identity), access)
    rows = {row["id"]: row for row in await writer.source_rows()}
    target_rows = await target.rows()
    # Sources may have been removed since an attempt that was interrupted.
    await target.remove([id_ for id_ in await target.ids() if id_ not in rows])
    stay = {
        id_: row
        for id_, row in rows.items()
        if id_ in target_rows and collection_tables.same_text(row, target_rows[id_])
    }
    await target.describe([_source_row(row, target_rows[id_]) for id_, row in stay.items()])
    missing = [id_ for id_ in rows if id_ not in stay]
    done = len(stay)
    progress(done, len(rows))
    for wave in _waves(missing, rows):
        await run.make(wave)
        done += len(wave)
        progress(done, len(rows))
    now = await writer.records()  # rights can change at any time
    await target.relabel({id_: record.access for id_, record in now.items()})
    await target.finish({id_: row["generation"] for id_, row in rows.items()})
    scale = await calibration(embedder, target.sample_for_everybody, coming.calibration)
    await redefine(writer, coming=replace(coming, calibration=scale))
    return await run.result(len(stay))


def _source_row(row: Mapping[str, Any], target_row: Mapping[str, Any]) -> dict[str, Any]:
    """The present row of a source for the target, with the target's values that depend on its passages."""
    fields, target_fields = json.loads(row["fields"]), json.loads(target_row["fields"])
    fields = {name: value for name, value in fields.items() if name not in schema.OF_PASSAGES}
    fields |= {name: value for name, value in target_fields.items() if name in schema.OF_PASSAGES}
    _, lacking = schema.split_digest(target_row["digest"])
    digest, _ = schema.split_digest(row["digest"])
    cut = prepare.cut_of(schema.split_digest(target_row["digest"])[0])
    return {
        **row,
        "fields": json.dumps(fields, ensure_ascii=False),
        "chunk_count": target_row["chunk_count"],
        "digest": schema.digest_value(prepare.digest_with_cut(digest, cut), lacking),
    }


def _waves(ids: Iterable[str], rows: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    wave: list[str] = []
    size = 0
    for id_ in ids:
        wave.append(id_)
        size += rows[id_]["length"]
        if size >= WAVE_CHARS:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


@dataclass(slots=True)
class _Rebuild:
    writer: CollectionWriter
    target: RebuildTarget
    embedder: Embedder
    chunkings: Sequence[Chunking]
    max_tokens: int
    access: Mapping[str, Access | None]
    rebuilt: Rebuilt = field(default_factory=Rebuilt)

    async def make(self, ids: Sequence[str]) -> None:
        """Store these sources in the target."""
        whole = await self.writer.whole_sources(ids)
        cut = [
            await to_thread.run_sync(self._cut, stored_source, self.target.collection)
            for stored_source in whole
        ]
        texts = [text for recut_source in cut for text in recut_source.bodies]
        vectors = await vectors_of_texts(self.embedder, texts)
        ends = np.cumsum([len(recut_source.bodies) for recut_source in cut])
        parts = zip(cut, np.split(vectors, ends[:-1]), strict=True)
        await self.target.put([recut_source.with_vectors(part) for recut_source, part in parts])

    async def result(self, stayed: int) -> Rebuilt:
        """The result, counted over all sources of the target."""
        rows = (await self.target.rows()).values()
        self.rebuilt.sources, self.rebuilt.copied = len(rows), self.rebuilt.copied + stayed
        self.rebuilt.chunks = sum(row["chunk_count"] for row in rows)
        self.rebuilt.without_vector = sum(schema.split_digest(row["digest"])[1] for row in rows)
        return self.rebuilt

    def _cut(self, stored: WholeSource, collection: Collection) -> WholeSource:
        """A source with its chunks: the present ones if they have this chunking, else new ones."""
        source, window = stored.source(collection.name), self.embedder.window
        chunking = prepare.chunking_of(source.name, self.chunkings, self.max_tokens)
        cut = prepare.cut_key(chunking, window)
        document = document_of(source, schema.outline_record(stored.row["outline"]), stored.row["text"])
        foreign = document_languages.foreign_parts(document, self.embedder.vocabulary_share)
        fits = all(
            len(self.embedder.token_spans(text)) <= window or document_languages.is_within(foreign, span)
            for text, span in zip(stored.bodies, stored.spans, strict=True)
        )
        if prepare.cut_of(source.digest) == cut and fits:
            return self._as_it_is(stored.with_words(collection))
        paged = any(page is not None for page in stored.pages)
        if paged:  # its pages are known for its present passages only
            self.rebuilt.kept.append(source.name)
            if fits:
                return self._as_it_is(stored.with_words(collection))
        limit, spans = prepare.limit_of(chunking, window), self.embedder.token_spans
        reading = Reading(foreign, window - limit)
        new_passages = passages(document, token_spans=spans, limit=limit, chunking=chunking, reading=reading)
        self.rebuilt.recut += 1
        # Its digest stays, so that the next ingestion stores it again.
        digest = source.digest if paged else prepare.digest_with_cut(source.digest, cut)
        new_passages = _with_pages(new_passages, stored) if paged else new_passages
        return stored.with_passages(new_passages, digest, self.access.get(source.id), collection)

    def _as_it_is(self, stored: WholeSource) -> WholeSource:
        self.rebuilt.copied += 1
        places = zip(stored.bodies, stored.spans, strict=True)
        spans = self.embedder.token_spans
        return stored.with_token_counts(
            [len(spans(text[len(text) - (end - start) :])) for text, (start, end) in places]
        )


def _with_pages(new_passages: Sequence[Passage], stored: WholeSource) -> list[Passage]:
    """The passages with the pages of the present passages that they begin in."""
    starts, pages = [start for start, _ in stored.spans], stored.pages
    return [replace(new, page=pages[max(0, bisect_right(starts, new.start) - 1)]) for new in new_passages]


# Documents from their stored texts.

_KINDS: tuple[tuple[BlockKind, re.Pattern[str]], ...] = (
    ("table", re.compile(r"[^\n|]*+\|[^\n]*+\n[^\S\n]*+(?:\|[^\S\n]*+)?:?-[-:| \t]*+(?:\n|$)")),
    ("list", re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])[ \t]")),
    ("code", re.compile(r"```|~~~|    \S")),
)


def document_of(source: Source, outline: Sequence[Heading], text: str) -> Document:
    """The document with the blocks of its parser if the text can be parsed again, else with guessed blocks.

    Title, headings and metadata are the stored ones. Pages are unknown.
    """
    name = PurePath(source.name).name or source.title
    likely = Document(text, source.title, source.mime_type, tuple(_likely(text, outline)))
    parsed = (document for document in _parsed(text, name) if document.text == text)
    titled = tuple(heading for heading in outline if heading.title)  # earlier versions stored no others
    document = next((document for document in parsed if document.outline == titled), likely)
    return replace(document, title=source.title, metadata=source.metadata)


def _parsed(text: str, name: str) -> Iterator[Document]:
    suffix = PurePath(name.lower()).suffix
    if suffix in source_code.SUFFIXES or source_code.script_suffix(
        text[: source_code.MAX_FIRST_LINE].encode()
    ):
        yield source_code.parse(text, name)
    elif suffix in markdown.SUFFIXES:
        yield markdown.parse(text, name)


def _likely(text: str, outline: Sequence[Heading]) -> Iterator[Block]:
    """The stored headings, and between them a block for each paragraph."""
    at = 0
    for heading in outline:
        yield from _likely_blocks(text, at, heading.start)
        line = text.find("\n", heading.start)
        at = len(text) if line < 0 else line
        heading_blocks = block(text, "heading", heading.start, at, level=heading.level)
        yield from (replace(heading_block, title=heading.title) for heading_block in heading_blocks)
    yield from _likely_blocks(text, at, len(text))


def _likely_blocks(text: str, start: int, end: int) -> Iterator[Block]:
    for paragraph in paragraphs(text, start, end):
        kinds = (kind for kind, form in _KINDS if form.match(text, paragraph.start, paragraph.end))
        yield replace(paragraph, kind=next(kinds, paragraph.kind))


# The language of a collection.

READ_AT_ONCE = 50  # sources with their texts


async def change_language(writer: CollectionWriter, language: LanguageChoice) -> Collection:
    """Re-analyse the words of all stored documents. Nothing is embedded. Returns the changed collection.

    Meanwhile, searches match the earlier and the new words. After an interruption, call it again.
    """
    collection = writer.collection
    tags = (
        await _detected_tags(writer) if language == "auto" else await document_languages.stored_tags(writer)
    )
    languages = (
        document_languages.languages_by_frequency(Counter(tags.values()))
        if language == "auto"
        else (language,)
    )
    coming = replace(collection, language=language, languages=languages if language == "auto" else ())
    all_languages = dict.fromkeys((*query_languages(collection), *languages, coming.usual_language))
    # Until all words are analysed again, a query must match the old analysis as well as the new one.
    await document_languages.redefine_languages(writer, language="auto", languages=tuple(all_languages))
    by_rules: dict[Language, list[str]] = defaultdict(list)
    for id_, tag in tags.items():
        by_rules[analysed_in(coming, {LANGUAGE: tag})].append(id_)
    for rules, ids in by_rules.items():
        await writer.reanalyse(ids, rules)
    await document_languages.redefine_languages(writer, language=coming.language, languages=coming.languages)
    return writer.collection


async def _detected_tags(writer: CollectionWriter) -> dict[str, str]:
    """As `stored_tags`, but detected again from the stored texts, and stored with the sources."""
    ids = [row["id"] for row in await writer.source_rows()]
    tags = {}
    for at in range(0, len(ids), READ_AT_ONCE):
        changed: dict[str, Mapping[str, str]] = {}
        for whole in await writer.whole_sources(ids[at : at + READ_AT_ONCE]):
            source = whole.source(writer.collection.name)
            outline = schema.outline_record(whole.row["outline"])
            document = document_of(source, outline, whole.row["text"])
            metadata = (await to_thread.run_sync(document_languages.with_language, document)).metadata
            tags[source.id] = metadata.get(LANGUAGE, "")
            if metadata != source.metadata:
                changed[source.id] = metadata
        await writer.describe(changed)
    return tags


# Fields that are declared later.

MAX_FIELDS = 32  # of a collection


@dataclass(frozen=True, slots=True)
class Declared:
    """A collection with new fields. `filled` counts the sources with a value, by field.

    `complaints` are pairs of a source's path and a value that doesn't have the declared type.
    """

    collection: Collection
    filled: Mapping[str, int]
    complaints: tuple[tuple[str, str], ...]


async def declare(
    data: Home, collection: Collection, fields: Mapping[str, FieldType], removed: Names[str] = ()
) -> Declared:
    """Declare new fields of a collection, and drop the `removed` ones.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: a new field is already declared, or a removed one is not.
        StoreError: the storage failed. The fields declared before are still declared.
    """
    filled = dict.fromkeys(fields, 0)
    complaints: list[tuple[str, str]] = []

    def values(source: Source) -> Mapping[str, Value]:
        metadata = prepare.all_metadata(source)
        path = metadata.pop("path", source.uri)  # added by refdesk
        values, wrong = prepare.declared_fields(metadata, fields)
        for name in values:
            filled[name] += 1
        complaints.extend((path, complaint) for complaint in wrong)
        return values

    async with open_writer(data, collection) as writer:
        check_fields(writer.collection, fields, removed)  # again: another command may have declared one
        remaining_fields = {
            name: kind for name, kind in writer.collection.fields.items() if name not in removed
        }
        # Filters use declared fields alone, so a field is dropped before its column and declared after it.
        changed_collection = await _changed(data, collection, remaining_fields)
        await writer.drop_fields(removed)
        if fields:
            await writer.add_fields(fields, values)
        await writer.finish()
        if fields:
            changed_collection = await _changed(data, collection, remaining_fields | dict(fields))
    return Declared(changed_collection, filled, tuple(sorted(complaints)))


def check_fields(collection: Collection, fields: Mapping[str, FieldType], removed: Names[str]) -> None:
    """Check a change of declared fields.

    Raises:
        ConfigurationError: the collection declares a new field, lacks a removed one, or has too many.
    """
    unknown = next((name for name in removed if name not in collection.fields), None)
    if unknown is not None:
        declared = ", ".join(collection.fields) or "none"
        raise ConfigurationError(
            f"The collection {collection.name!r} declares no field {unknown!r}; it declares: {declared}."
        )
    for name in fields:
        if name in collection.fields and name not in removed:
            raise ConfigurationError(
                f"The collection {collection.name!r} declares {name} already, as {collection.fields[name]}. "
                f"To change its type, add --no-field {name}."
            )
    if len(collection.fields) - len({*removed}) + len(fields) > MAX_FIELDS:
        raise ConfigurationError(f"A collection has at most {MAX_FIELDS} fields.")


async def _changed(data: Home, collection: Collection, fields: Mapping[str, FieldType]) -> Collection:
    def changed(current: Collection) -> Collection:
        return replace(current, fields=dict(fields))

    return await change_collection(data, collection.tenant, collection.name, changed)
