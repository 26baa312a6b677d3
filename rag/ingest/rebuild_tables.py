"""Rebuilds a collection's tables from the stored texts, next to the present tables.

Everything but cutting and vectors is copied: ids, URIs, metadata, declared fields, generations. Access
records are the tenant's and don't change; the copies of their labels are brought up to date at the end. A
source that is already there as it must be is skipped, so a rebuild goes on where it stopped.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from anyio import to_thread

from rag.corpus import Access, Build, Chunking, Collection, Passage
from rag.ingest.chunk import passages
from rag.ingest.chunk_vectors import calibration, vectors_of_texts
from rag.ingest.document_languages import foreign_parts, is_within
from rag.ingest.prepare import chunking_of, cut_key, cut_of, digest_with_cut, limit_of, usual_tokens
from rag.ingest.split_text import Reading
from rag.ingest.stored_document import document_of
from rag.models.embed import Embedder
from rag.store.read import schema
from rag.store.write import collection_tables
from rag.store.write.change_collection import change_collection, redefine
from rag.store.write.collection_tables import RebuildTarget
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import WholeSource

WAVE_CHARS = 250_000  # of texts; at most this much is repeated after an interruption


def _nothing(_done: int, _total: int) -> None:
    """Show no progress."""


async def _at_once() -> bool:
    """Approve without a check."""
    return True


@dataclass(slots=True)
class Rebuilt:
    """What a rebuild did. `kept` are the paths of sources that only an ingestion can cut as it should be.

    Where it wasn't `switched`, searches use the former tables still, and the new ones wait for another call.
    """

    sources: int = 0
    chunks: int = 0
    copied: int = 0
    recut: int = 0
    without_vector: int = 0
    kept: list[str] = field(default_factory=list)
    switched: bool = True


async def rebuild(  # noqa: PLR0913 what an ingestion needs, too
    writer: CollectionWriter,
    coming: Build,
    embedder: Embedder,
    chunkings: Sequence[Chunking],
    max_tokens: int | None,
    *,
    progress: Callable[[int, int], None] = _nothing,
    around: AbstractContextManager[None] | None = None,
    approved: Callable[[], Awaitable[bool]] = _at_once,
) -> Rebuilt:
    """Make the coming build, or complete it, and switch to it in one commit.

    `chunkings` and `max_tokens` come from the settings. `progress` gets the number of finished sources and of
    all. When the build is complete, and the catalog names it as the coming one, `approved` decides whether to
    switch. `around` encloses the switch.

    Raises:
        ProviderError, StoreError: the embedder or the storage failed. The present tables stay in use, and
            another call for the same build goes on.
    """
    data, tenant, name = writer.data, writer.collection.tenant, writer.collection.name
    await redefine(writer, coming=coming)
    await collection_tables.drop_others(data, writer.collection)
    rebuilt = await _complete(writer, coming, embedder, (*coming.chunking, *chunkings), max_tokens, progress)
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
    chunkings: Sequence[Chunking],
    max_tokens: int | None,
    progress: Callable[[int, int], None],
) -> Rebuilt:
    target = await collection_tables.open_target(writer.data, writer.collection, coming)
    records = await writer.records()
    access = {id_: record.access for id_, record in records.items()}
    tokens = max_tokens or usual_tokens(embedder.identity)
    run = _Rebuild(writer, target, embedder, chunkings, tokens, access)
    rows = {row["id"]: row for row in await writer.source_rows()}
    target_rows = await target.rows()
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
    scale = await calibration(embedder, target, coming.calibration)
    await redefine(writer, coming=replace(coming, calibration=scale))
    return await run.result(len(stay))


def _source_row(row: Mapping[str, Any], target_row: Mapping[str, Any]) -> dict[str, Any]:
    """The present row of a source, as the target has it, with what is known of the target's passages."""
    fields, target_fields = json.loads(row["fields"]), json.loads(target_row["fields"])
    fields = {name: value for name, value in fields.items() if name not in schema.OF_PASSAGES}
    fields |= {name: value for name, value in target_fields.items() if name in schema.OF_PASSAGES}
    _, lacking = schema.split_digest(target_row["digest"])
    digest, _ = schema.split_digest(row["digest"])
    cut = cut_of(schema.split_digest(target_row["digest"])[0])
    return {
        **row,
        "fields": json.dumps(fields, ensure_ascii=False),
        "chunk_count": target_row["chunk_count"],
        "digest": schema.digest_value(digest_with_cut(digest, cut), lacking),
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
    """Makes the sources of one rebuild."""

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
        """What was done, all sources of the target counted."""
        rows = (await self.target.rows()).values()
        self.rebuilt.sources, self.rebuilt.copied = len(rows), self.rebuilt.copied + stayed
        self.rebuilt.chunks = sum(row["chunk_count"] for row in rows)
        self.rebuilt.without_vector = sum(schema.split_digest(row["digest"])[1] for row in rows)
        return self.rebuilt

    def _cut(self, stored: WholeSource, collection: Collection) -> WholeSource:
        """A source with its chunks: as they are, if they are cut so already; else from its text."""
        source, window = stored.source(collection.name), self.embedder.window
        chunking = chunking_of(source.name, self.chunkings, self.max_tokens)
        cut = cut_key(chunking, window)
        document = document_of(source, schema.outline_record(stored.row["outline"]), stored.row["text"])
        foreign = foreign_parts(document, self.embedder.vocabulary_share)
        fits = all(
            len(self.embedder.token_spans(text)) <= window or is_within(foreign, span)
            for text, span in zip(stored.bodies, stored.spans, strict=True)
        )
        if cut_of(source.digest) == cut and fits:
            return self._as_it_is(stored.with_words(collection))
        paged = any(page is not None for page in stored.pages)
        if paged:  # where its pages begin is known for its present passages only
            self.rebuilt.kept.append(source.name)
            if fits:
                return self._as_it_is(stored.with_words(collection))
        limit, spans = limit_of(chunking, window), self.embedder.token_spans
        reading = Reading(foreign, window - limit)
        new_passages = passages(document, token_spans=spans, limit=limit, chunking=chunking, reading=reading)
        self.rebuilt.recut += 1
        # Its digest stays as it was, so that the next ingestion stores it again.
        digest = source.digest if paged else digest_with_cut(source.digest, cut)
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
