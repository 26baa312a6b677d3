"""Writes the sources and chunks of one collection. A file lock admits one writer at a time.

A source is visible in exactly one version at any moment. Its chunks carry the *generation* in which they were
written, and the source's row names the visible generation. A replacement takes three steps:

1. add the new chunks under a new generation, which no row names yet: readers ignore them;
2. commit the source's row with the new generation: from now on readers see only the new version;
3. delete the chunks of older generations.

A crash between two steps leaves orphaned chunks, never a mixture. The next writer deletes them (`sweep`),
unless the last writer noted that it left none (`swept`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.corpus import Access, AccessRecord, Collection, FieldType, FileState, Language, Source
from rag.errors import StoreError
from rag.filters.grammar import literal
from rag.home import Home, local_folder
from rag.runtime import grouped
from rag.store.read import schema
from rag.store.read.connection import engine_errors
from rag.store.read.word_analysis import terms_of
from rag.store.write import collection_tables, table_maintenance, table_rows
from rag.store.write.access_claim import Claim, until_stored
from rag.store.write.access_writer import Around, CollectionAccess, Pending, nothing_around
from rag.store.write.collection_tables import Values, note_swept
from rag.store.write.desk_folder import SourceIds, forget_origins, is_full
from rag.store.write.locks import Lease
from rag.store.write.table_maintenance import is_small, rows_of, update_rows, upsert
from rag.store.write.table_rows import (
    KeyedRows,
    KnownSource,
    Marks,
    NewSource,
    SourceMove,
    WholeSource,
    known_source,
    language_counts,
    sample_for_everybody,
    whole_sources,
)
from rag.text.flags import rules
from rag.text.languages import analysed_in

if TYPE_CHECKING:
    import lancedb

CHUNK_KEY = ("id", "generation")  # a killed run can leave two chunks of one id
_WORDS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in CHUNK_KEY),
        pa.field(schema.TERMS, pa.string()),
    ]
)
ANALYSED_AT_ONCE = 50  # sources
FLAGGED_AT_ONCE = 500  # sources, with their chunks
DELETED_BY_ADDRESS = 1000  # chunks; with more, evaluating the condition takes longer than a read
ROWS_AT_ONCE = 2000  # chunks that are converted to rows and added together; each takes 10 KB meanwhile


class CollectionWriter:
    """The tables of one collection, opened for writing. A rehearsal overrides it and `writes` nothing.

    `swept` means that the tables hold no leftovers.
    """

    writes = True

    def __init__(  # noqa: PLR0913 the tables and their desk
        self,
        collection: Collection,
        chunks: lancedb.AsyncTable,
        sources: lancedb.AsyncTable,
        *,
        key: bytes,
        data: Home,
        around: Around = nothing_around,
        swept: bool = False,
        lease: Lease | None = None,
    ) -> None:
        self.collection = collection
        self.data = data
        self.spools_in = local_folder(data)
        self._lease = lease
        self.ids = SourceIds(collection, key)
        self._chunks = chunks
        self._sources = sources
        self.sample_for_everybody = partial(sample_for_everybody, chunks)
        self._access = CollectionAccess(data, collection, self.ids, around)
        self._noted = self._swept = swept
        self._opened = time.time(), time.monotonic()
        self._changed = False
        self._incomplete: frozenset[str] = frozenset()

    async def known_sources(
        self, records: Mapping[str, AccessRecord] | None = None
    ) -> KeyedRows[KnownSource]:
        """The stored sources by URI. One with missing chunks or vectors has no digest, so it is stored again.

        `records` are the tenant's access records, if the caller has read them already.
        """
        records = await self.records() if records is None else records
        self.ids.learn(records)
        with engine_errors("reading sources"):
            columns = ["id", "uri", "digest", "chunk_count", "title", "metadata", "fields"]
            columns += ["date", "ingested_at"]
            rows = await rows_of(self._sources, columns)
        source_of_row = partial(
            known_source, collection=self.collection, records=records, incomplete=self._incomplete
        )
        return KeyedRows(rows, "uri", source_of_row)

    async def replace(self, items: Sequence[NewSource]) -> dict[str, AccessRecord]:
        """Store sources, each in place of its earlier version. Returns their access records by id.

        A source that was removed since this writer was opened is skipped; its record isn't `present`.
        """
        generation = secrets.token_hex(8)  # random, so that no crashed run can have left chunks of it
        claims = {item.source.id: (item.source.uri, item.claim) for item in items}
        with engine_errors("writing"), self._steps():
            self._changed = True
            # Records before texts: after a crash at any point, a text is visible only to principals that its
            # record admits. A claim that widens access is held back (`until_stored`): it would expose the
            # earlier text, which is still visible.
            records, behind = await self._access.settle(
                {id_: (uri, until_stored(claim)) for id_, (uri, claim) in claims.items()}
            )
            items = [item for item in items if records[item.source.id].present]
            claims = {item.source.id: claims[item.source.id] for item in items}
            if items:
                await self._store(items, generation, records)
        await self._access.note_copied(behind)  # the new chunks were written with these labels
        # The earlier text is gone, so access may widen.
        if wider := {id_: claimed for id_, claimed in claims.items() if claimed[1].policy.widens}:
            records |= (await self._access.settle(wider))[0]
        await self._copy_labels()
        return records

    async def _store(
        self, items: Sequence[NewSource], generation: str, records: Mapping[str, AccessRecord]
    ) -> None:
        """Replace the sources in the three steps of the module's docstring."""
        ids = [item.source.id for item in items]
        former = await self._former_chunks(ids)
        marks = await self._marks(ids, former)
        items = [replace(item, former=marks.get(item.source.id, {})) for item in items]
        for part in _slices(items):
            rows = await to_thread.run_sync(partial(self._chunk_rows, part, generation, records))
            await table_maintenance.create_chunk_indexes(self._chunks, coming=len(rows))
            if self._lease:
                self._lease.check()  # the engine may accept rows appended by a former holder (`locks`)
            await self._chunks.add(rows)
        # This one commit switches all these sources to their new generation. A crash before it leaves the new
        # chunks as orphans, a crash after it the old ones.
        sources = [
            await to_thread.run_sync(partial(table_rows.source_row, item, generation=generation))
            for item in items
        ]
        await upsert(self._sources, pa.Table.from_pylist(sources, schema=schema.SOURCES_SCHEMA))
        if 0 < former.num_rows <= DELETED_BY_ADDRESS:  # which reads nothing, and the lock keeps them in place
            addresses = ", ".join(map(str, former["_rowid"].to_pylist()))
            await self._chunks.delete(f"_rowid IN ({addresses})")
        elif former.num_rows:
            await self._chunks.delete(
                f"{schema.one_of('source_id', ids)} AND (generation <> {literal(generation)})"
            )

    async def _former_chunks(self, ids: Sequence[str]) -> pa.Table:
        """The stored chunks of these sources with their addresses, including those that a killed run left."""
        query = self._chunks.query().select(["source_id", "generation", "seq", "start", "end"]).with_row_id()
        if await is_small(self._chunks):  # a condition would take another request for each file
            rows = await query.to_arrow()
            return rows.filter(pc.is_in(rows["source_id"], pa.array(ids, pa.string())))
        return await query.where(schema.one_of("source_id", ids)).to_arrow()

    async def _marks(self, ids: Sequence[str], chunks: pa.Table) -> dict[str, Marks]:
        """The marks of these sources' passages, present (`chunks`) and former, by id."""
        columns = ["id", "generation", "digest", "fields", "text"]
        sources = await rows_of(self._sources, columns, {"id": ids})
        return await to_thread.run_sync(
            lambda: {stored.row["id"]: stored.marks for stored in whole_sources(sources, chunks)}
        )

    async def claim(self, claims: Mapping[str, tuple[str, Claim]]) -> dict[str, AccessRecord]:
        """Settle the access of sources whose text stays, by URI and claim. Returns the records by id."""
        records, _ = await self._access.settle(claims)
        await self._copy_labels()
        return records

    async def move(self, moved: Mapping[str, SourceMove]) -> dict[str, AccessRecord]:
        """Give sources, by id, new URIs and metadata; texts and vectors stay. Returns the records by id."""
        # Records first: a source must not be at its new URI with the access of its old one.
        records, _ = await self._access.settle({id_: (move.uri, move.claim) for id_, move in moved.items()})
        rows = [
            {"id": id_, "uri": move.uri, "metadata": json.dumps(dict(move.metadata), ensure_ascii=False)}
            for id_, move in moved.items()
        ]
        with engine_errors("moving sources"):
            self._changed = True
            await self._analyse_names({id_: move.metadata for id_, move in moved.items()})
            await self._update(rows, ("id", "uri", "metadata"))
        await self._copy_labels()
        return records

    async def rename(self, metadata: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the metadata of sources, by id, with their paths. URIs and texts stay."""
        with engine_errors("renaming sources"):
            await self._analyse_names(metadata)
        await self.describe(metadata)

    async def _analyse_names(self, metadata: Mapping[str, Mapping[str, str]]) -> None:
        """Write the words of the sources whose names this metadata changes.

        Call it before storing the metadata: otherwise an interruption would leave the words out for good.
        """
        ids = [*metadata]
        for at in range(0, len(ids), ANALYSED_AT_ONCE):
            renamed: dict[Language, list[Source]] = defaultdict(list)
            for source in await self._summaries(ids[at : at + ANALYSED_AT_ONCE]):
                coming = replace(source, metadata=metadata[source.id])
                if coming.names != source.names:
                    renamed[analysed_in(self.collection, coming.metadata)].append(coming)
            for language, sources in renamed.items():
                await self._analyse(sources, language)

    async def _summaries(self, ids: Sequence[str]) -> list[Source]:
        """These sources, without their texts."""
        rows = await rows_of(self._sources, schema.SUMMARY_COLUMNS, {"id": ids})
        return [schema.source_record(row, self.collection.name) for row in rows.to_pylist()]

    async def source_rows(self) -> list[dict[str, Any]]:
        """The summaries of all sources, as stored."""
        with engine_errors("reading sources"):
            return (await rows_of(self._sources, schema.SUMMARY_COLUMNS)).to_pylist()

    async def language_counts(self) -> Counter[str]:
        """The number of sources by language tag; "" for sources without one."""
        with engine_errors("reading sources"):
            return language_counts(await rows_of(self._sources, ["metadata"]))

    async def whole_sources(self, ids: Sequence[str]) -> list[WholeSource]:
        """These sources, with their texts and chunks."""
        with engine_errors("reading sources"):
            sources = await rows_of(self._sources, schema.SOURCES_SCHEMA.names, {"id": ids})
            chunks = await self._chunks.query().where(schema.one_of("source_id", ids)).to_arrow()
        return whole_sources(sources, chunks)

    async def describe(self, metadata: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the metadata of sources, by id. Declared fields and texts stay."""
        rows = [
            {"id": id_, "metadata": json.dumps(dict(entries), ensure_ascii=False)}
            for id_, entries in metadata.items()
        ]
        with engine_errors("describing sources"):
            await self._update(rows, ("id", "metadata"))

    async def reanalyse(self, ids: Sequence[str], language: Language) -> None:
        """Analyse the words of these sources' chunks and names again, by the rules of this language."""
        with engine_errors("analysing words"):
            self._changed = True
            for at in range(0, len(ids), ANALYSED_AT_ONCE):
                await self._analyse(await self._summaries(ids[at : at + ANALYSED_AT_ONCE]), language)

    async def _analyse(self, sources: Iterable[Source], language: Language) -> None:
        """Write the words of these sources' chunks in one commit; texts and vectors stay."""
        by_id = {source.id: source for source in sources}
        of_sources = self._chunks.query().where(schema.one_of("source_id", by_id))
        rows = await of_sources.select([*CHUNK_KEY, "source_id", "body"]).to_arrow()
        columns = [cast("list[str]", rows[name].to_pylist()) for name in ("source_id", "body")]
        pairs = zip(*columns, strict=True)
        terms = pa.array([terms_of(body, language, by_id[id_]) for id_, body in pairs], pa.string())
        update = self._chunks.merge_insert([*CHUNK_KEY]).when_matched_update_all()
        await update.execute(pa.table([rows["id"], rows["generation"], terms], schema=_WORDS))

    async def note_files(self, files: Mapping[str, FileState]) -> None:
        """Record the file states of sources whose text stays, by id."""
        with engine_errors("recording the state of files"):
            rows = (await rows_of(self._sources, ["id", "fields"], {"id": files})).to_pylist()
            for row in rows:
                row["fields"] = table_rows.with_file(row["fields"], files[row["id"]])
            await self._update(rows, ("id", "fields"))

    async def examine_again(self) -> None:
        """Flag the passages of sources that have no flags, or flags by other rules than the present ones.

        Until then, searches look for flags in what they show. A source without a revision gets one.
        """
        ids = await self._unexamined()
        for at in range(0, len(ids), FLAGGED_AT_ONCE):
            rows = []
            for stored in await self.whole_sources(ids[at : at + FLAGGED_AT_ONCE]):
                former = schema.former_record(stored.row["fields"])
                flag = partial(stored.with_flags_and_revision, self.collection.name, former)
                source = await to_thread.run_sync(flag)
                rows.append({"id": source.row["id"], "fields": source.row["fields"]})
            with engine_errors("storing flags"):
                await self._update(rows, ("id", "fields"))

    async def _unexamined(self) -> list[str]:
        """The ids of the sources without flags by the present rules, or without a revision."""
        flags, revision = (f'"{name}": ["' for name in (schema.FLAGS, schema.REVISION))
        with engine_errors("looking for flags"):
            if await is_small(self._sources):
                rows = (await rows_of(self._sources, ["id", "digest", "fields"])).to_pylist()
                return [
                    row["id"]
                    for row in rows
                    for digest, _ in [schema.split_digest(row["digest"])]
                    if f"{flags}{rules()}" not in row["fields"] or f'{revision}{digest}"' not in row["fields"]
                ]
            is_examined = (
                f"contains(fields, {literal(flags + rules())})"
                f" AND contains(fields, concat({literal(revision)}, split_part(digest, ' ', 1), '\"'))"
            )
            outdated = self._sources.query().where(f"NOT ({is_examined})").select(["id"])
            return cast("list[str]", (await outdated.to_arrow())["id"].to_pylist())

    async def _update(self, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
        """Update these columns of sources, by id."""
        self._changed |= bool(rows)
        await update_rows(self._sources, rows, schema.source_columns(columns))

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove sources; they are invisible from the first commit on. Their access records stay."""
        with engine_errors("removing"), self._steps():
            self._changed = True
            # Without its row a source is invisible, so a crash in between leaves only orphaned chunks.
            await self._sources.delete(schema.one_of("id", ids))
            await self._chunks.delete(schema.one_of("source_id", ids))
        await self._access.note_removed(ids)

    async def follow_others(self) -> list[str]:
        """Finish removals and changes of access that other processes began without waiting for this writer.

        Returns the ids of the removed sources; see `mark_removed` and `change_collection.copy_labels`.
        """
        await self._access.look()
        pending = await self._finish_removals()
        await self._copy_labels(pending.stale)
        return [*pending.removed]

    async def _finish_removals(self) -> Pending:
        """Delete the rows of sources with a tombstone. Returns what the rows lacked before."""
        pending = await self._access.pending()
        if pending.removed:
            await self.remove(pending.removed)
        return pending

    @contextmanager
    def _steps(self) -> Iterator[None]:
        """A context for commits that leave orphans unless all succeed: the tables aren't swept meanwhile."""
        swept, self._swept = self._swept, False  # the next writer must look if this one is killed in between
        yield
        self._swept = swept  # not reached after an exception

    async def records(self, *, as_swept: bool = False) -> Mapping[str, AccessRecord]:
        """All access records of the tenant by id; `as_swept`, as of `sweep` (`CollectionAccess.read`)."""
        return await self._access.read(as_looked=as_swept)

    async def mend_access(self, copies: Mapping[str, Access | None]) -> None:
        """Narrow access records and their differing `copies` to what both allow (`care.folder_checks`)."""
        await self._access.mend(copies)
        await self._copy_labels()

    async def remember(self, folders: Mapping[str, Access]) -> None:
        """Record the access of folders, by URI, for later files in them."""
        await self._access.remember_folders(folders)

    async def forget(self, ids: Iterable[str]) -> None:
        """Delete the access records of removed sources and of folders."""
        await self._access.forget(ids)

    async def copy_labels(self) -> None:
        """Bring the chunks' copies of labels up to date with the access records."""
        await self._access.look()
        await self._copy_labels()

    async def _copy_labels(self, stale: Iterable[Sequence[AccessRecord]] | None = None) -> None:
        """The same, of records that are known to be `stale`, or as this writer last read or changed them."""
        # The copies make searches fast and never decide: until a record is marked as copied, readers take its
        # labels from the record itself. So a crash in this loop changes no answer.
        for records in (await self._access.pending()).stale if stale is None else stale:
            ids = [record.id for record in records]
            with engine_errors("copying access records"):
                self._changed = True
                values = table_rows.label_values(records[0].access)
                await self._chunks.update(values, where=schema.one_of("source_id", ids))
            await self._access.note_copied(records)

    async def sweep(self) -> None:
        """Finish removals, delete orphaned chunks, repair access records, and note incomplete sources.

        A killed run leaves chunks of a generation that no source names, and records of sources that were
        never stored. An interrupted change of access leaves stale labels. A power failure can leave sources
        that lack chunks: `known_sources` gives these no digest, so the next run stores them again.
        """
        await self._access.look()
        states = await self._access.states()
        all_copied = pc.all(states["copied"], min_count=0).as_py()  # as after most runs: nothing is pending
        pending = Pending() if all_copied else await self._finish_removals()
        with engine_errors("looking for leftovers"):
            if not self._swept:  # the search for leftovers reads all chunks
                await self._remove_leftovers()
            sources = await rows_of(self._sources, ["id", "uri"])
        repaired = await self._access.repair(sources, states)
        try:
            await self._copy_labels(None if repaired else pending.stale)
        except StoreError as error:
            if not is_full(error):  # on a full disk labels may stay stale: that only slows searches down
                raise

    async def _remove_leftovers(self) -> None:
        rows = await rows_of(self._sources, ["id", "generation", "chunk_count"])
        expected = {(row["id"], row["generation"]): row["chunk_count"] for row in rows.to_pylist()}
        stored = await table_rows.count_chunks(self._chunks)
        leftovers = grouped((generation, id_) for id_, generation in stored.keys() - expected.keys())
        for generation, ids in leftovers.items():
            self._changed = True
            orphaned = schema.one_of("source_id", ids)
            await self._chunks.delete(f"{orphaned} AND (generation = {literal(generation)})")
        self._incomplete = frozenset(key[0] for key, chunks in expected.items() if stored[key] != chunks)
        self._swept = not self._incomplete  # a note would hide the incomplete ones from the next writer

    async def add_fields(self, fields: Mapping[str, FieldType], values: Values) -> None:
        """Add columns for these fields, filled with the `values` of each source.

        Nothing uses them until the catalog declares them; see `rag.store.write.collection_tables`.
        """
        with engine_errors("declaring fields"):
            self._changed = True
            await collection_tables.add_fields(
                self._chunks, self._sources, self.collection.name, fields, values
            )
        self.collection = replace(self.collection, fields={**self.collection.fields, **fields})

    async def drop_fields(self, names: Iterable[str]) -> None:
        """Drop the columns of these fields, which the catalog no longer declares."""
        remaining = {name: kind for name, kind in self.collection.fields.items() if name not in names}
        with engine_errors("dropping fields"):
            self._changed = True
            await collection_tables.drop_fields(self._chunks, names)
        self.collection = replace(self.collection, fields=remaining)

    async def finish(self, keep: timedelta | None = None) -> None:
        """Update the indexes, compact the tables, and flush to disk what this writer wrote.

        Compaction drops table versions older than `keep`, by default `KEPT_VERSIONS`.
        """
        with engine_errors("indexing"):
            works = (
                self._changed
                or await table_maintenance.is_behind(self._chunks)
                or await table_maintenance.needs_vector_index(self._chunks)
            )
            if works:
                tables = self._chunks, self._sources
                try:
                    await table_maintenance.compact(*tables, self.collection, swept=self._swept, keep=keep)
                except Exception:
                    self._flush()  # what is committed stands, compacted or not
                    raise
                await self._access.compact()
        if works or self._swept > self._noted:
            self._flush()
            if self._swept:  # noted only after the flush: a power failure must not keep the note alone
                note_swept(self.data, self.collection, self._lease)
                self._noted = True

    async def drop_old_versions(self, keep: timedelta) -> None:
        """Drop versions older than `keep` of those tables that are up to date."""
        with engine_errors("dropping old versions"):
            await table_maintenance.drop_old_versions(self.data, keep, self._chunks, self._sources)

    async def rebuild_indexes(self) -> None:
        """Rebuild all indexes, unreadable ones included, and compact the tables."""
        with engine_errors("indexing"):
            await table_maintenance.rebuild_indexes(self._chunks, self._sources, self.collection)
        self._flush()

    async def purge(self) -> None:
        """Rewrite all tables, so that no file, old version or index holds removed content.

        Former revisions are forgotten, so citations of them are not found again. The access records of
        removed sources stay, without the names of their files. A running server keeps deleted files open, so
        their contents stay on disk until it ends.
        """
        with engine_errors("purging"):
            await self._forget_former()
            await table_maintenance.purge_rows(self.data, self._chunks, "seq")
            await table_maintenance.purge_rows(self.data, self._sources, "length")
        await self._access.purge()
        forget_origins(self.data, self.collection.tenant, self.collection.name)
        self._flush()

    async def _forget_former(self) -> None:
        """Forget the marks of former revisions: a short text could be guessed from them."""
        query = self._sources.query().where(f"contains(fields, {literal(schema.FORMER)})")
        rows = (await query.select(["id", "fields"]).to_arrow()).to_pylist()
        for row in rows:
            row["fields"] = table_rows.without_former(row["fields"])
        await update_rows(self._sources, rows, schema.source_columns(("id", "fields")))

    def _flush(self) -> None:
        since = 0.0  # a killed writer flushed nothing
        if self._noted:
            opened, began = self._opened
            since = min(opened, time.time() - (time.monotonic() - began))  # the clock may have been set back
        for name in collection_tables.table_names(self.collection):
            table_maintenance.sync_table(self.data, name, since)

    def _chunk_rows(
        self, items: Sequence[NewSource], generation: str, records: Mapping[str, AccessRecord]
    ) -> pa.Table:
        parts = [
            table_rows.chunk_rows(
                item,
                generation=generation,
                access=records[item.source.id].access,
                collection=self.collection,
            )
            for item in items
        ]
        return pa.concat_tables(parts)


def _slices(items: Sequence[NewSource]) -> Iterator[list[NewSource]]:
    """The sources in batches of at most `ROWS_AT_ONCE` chunks; a long source is spread over several."""
    batch: list[NewSource] = []
    room = ROWS_AT_ONCE
    for item in items:
        for at in range(0, len(item.passages), ROWS_AT_ONCE):
            part = slice(at, at + ROWS_AT_ONCE)
            derived = item.derived and replace(item.derived, terms=item.derived.terms[part])
            piece = replace(item, passages=item.passages[part], vectors=item.vectors[part], derived=derived)
            if len(piece.passages) > room:
                yield batch
                batch, room = [], ROWS_AT_ONCE
            batch.append(piece)
            room -= len(piece.passages)
    if batch:
        yield batch
