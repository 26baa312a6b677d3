"""Converts sources to rows of the tables, and back.

Ingestion passes `NewSource` and `SourceMove`, and reads `KnownSource`. A rebuild copies `WholeSource` from
one table to another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.access.rule import FOR_EVERYBODY, labels_of
from rag.answers import Hit
from rag.corpus import (
    Access,
    AccessRecord,
    Chunk,
    Collection,
    FileState,
    Heading,
    Language,
    Passage,
    Source,
    Value,
    Vectors,
)
from rag.filters.grammar import microseconds
from rag.originals import EXPIRES
from rag.store.read import schema
from rag.store.read.connection import engine_errors
from rag.store.read.word_analysis import terms_of
from rag.store.write.access_claim import Claim
from rag.text.flags import crossed, flags_in, rules
from rag.text.languages import LANGUAGE, analysed_in
from rag.text.plain_text import lines_at
from rag.text.revisions import mark, packed, revision_of

if TYPE_CHECKING:
    import lancedb

T = TypeVar("T")
Marks: TypeAlias = Mapping[str, Sequence[bytes]]
"""The marks of a source's passages by revision, latest first; see `rag.text.revisions`."""

LONGEST_GAP = 100  # characters of white space between passages that are stored
MAX_FLAGGED = 1_000  # flagged passages of a source that are stored: a search reads them all for a hit


@dataclass(frozen=True, slots=True)
class NewSource:
    """A source with its text, passages and vectors, as the tables will hold them.

    `fields` are declared fields, with values of their types. `claim` is the access that the run wants for it.
    `former` are the marks of earlier passages by revision, latest first. `derived` is set if workers of a
    cluster computed it already.
    """

    source: Source
    text: str
    outline: tuple[Heading, ...]
    passages: Sequence[Passage]
    vectors: Vectors
    claim: Claim
    fields: Mapping[str, Value] = field(default_factory=dict)
    former: Marks = field(default_factory=dict)
    derived: Derived | None = None

    @property
    def bodies(self) -> list[str]:
        """The text of each passage that is embedded and whose words are indexed."""
        return [body(passage.context, self.text[passage.start : passage.end]) for passage in self.passages]

    def with_vectors(self, vectors: Vectors) -> NewSource:
        """The source with one row of vectors per passage; a row of zeros means no vector."""
        source = replace(self.source, without_vector=int((~vectors.any(axis=1)).sum()))
        return replace(self, source=source, vectors=vectors)


NOT_EMBEDDED: Vectors = np.empty((0, 1), np.float32)
"""The vectors of a source that waits for them."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Values of a source's rows that depend only on its text and names: the most costly part of storing it.

    `terms` are the words of each passage by the rules of a `language`, `flags` is the entry in `fields`, and
    `marks` has one mark for each passage.
    """

    language: Language
    terms: Sequence[str]
    flags: Sequence[object]
    marks: Sequence[bytes]

    @classmethod
    def of(cls, new: NewSource, collection: Collection) -> Derived:
        """Compute it for a source of a collection."""
        language = analysed_in(collection, new.source.metadata)
        chunks = [_chunk(new, passage) for passage in new.passages]
        flags = flags_entry(new.source, new.text, chunks)
        return cls(language, _terms(new, language), flags, [mark(chunk.text) for chunk in chunks])


def _terms(new: NewSource, language: Language) -> list[str]:
    return [terms_of(text, language, new.source) for text in new.bodies]


def body(context: str, text: str) -> str:
    """The text of a chunk that is embedded and whose words are indexed."""
    return f"{context}\n\n{text}" if context else text


def source_row(new: NewSource, *, generation: str) -> dict[str, Any]:
    """A row of the source table."""
    chunks = [] if new.derived else [_chunk(new, passage) for passage in new.passages]
    flags = new.derived.flags if new.derived else flags_entry(new.source, new.text, chunks)
    marks = new.derived.marks if new.derived else [mark(chunk.text) for chunk in chunks]
    file = _file_entry(new.source.file) if new.source.file else {}
    lines = {schema.LINES: [new.source.digest, new.source.lines]} if new.source.lines else {}
    entries = stored_fields(new.fields) | file | {schema.FLAGS: flags} | lines
    return {
        **{name: getattr(new.source, name) for name in schema.SOURCE_COLUMNS},
        "digest": schema.digest_value(new.source.digest, new.source.without_vector),
        "generation": generation,
        "metadata": json.dumps(dict(new.source.metadata), ensure_ascii=False),
        "fields": _with_revision(entries, new.source.digest, marks, new.former),
        "outline": json.dumps([[entry.title, entry.level, entry.start] for entry in new.outline]),
        "text": new.text,
    }


def access_row(record: AccessRecord) -> dict[str, Any]:
    """A row of the table of access records."""
    row = {name: getattr(record, name) for name in schema.PLAIN_ACCESS_COLUMNS} | access_values(record.access)
    row["word"] = record.requested
    row["former"] = list(record.former) or None
    # One label for any group: the index on labels finds whole labels, not their beginnings.
    entries = record.access.allow | record.access.deny if record.access else ()
    if any(entry.startswith("group:") for entry in entries):
        row["labels"] = [*row["labels"], schema.GROUP_LABEL]
    return row


def access_values(access: Access | None) -> dict[str, Any]:
    """The columns that say who may see a source."""
    if access is None:
        return {**dict.fromkeys(schema.ACCESS_COLUMNS), **label_values(access)}
    lists = {"allow": sorted(access.allow) or None, "deny": sorted(access.deny) or None}
    return {"visibility": access.visibility, **lists, **label_values(access)}


def label_values(access: Access | None) -> dict[str, Any]:
    """The columns of labels, by which the engine filters."""
    return {"labels": labels_of(access), "revision": access.revision if access else 0}


def stored_fields(fields: Mapping[str, Value]) -> dict[str, object]:
    """Values of declared fields as the tables hold them."""
    return {name: _stored(value) for name, value in fields.items()}


def _stored(value: Value) -> object:
    return microseconds(value) if isinstance(value, datetime) else value


def with_file(fields: str, file: FileState) -> str:
    """The column `fields` of a source whose file has this state."""
    return json.dumps(json.loads(fields) | _file_entry(file), ensure_ascii=False)


def _file_entry(file: FileState) -> dict[str, object]:
    return {schema.FILE: [file.modified, file.size]}


def flags_entry(source: Source, text: str, chunks: Sequence[Chunk]) -> list[object]:
    """The flags of the chunks of this text, as the column `fields` of its source has them."""
    gaps = [(before.end, after.start) for before, after in pairwise(chunks)]
    # Not strict: no gap follows the last chunk.
    crossed_seqs = [
        chunk.seq for chunk, is_crossed in zip(chunks, crossed(text, gaps), strict=False) if is_crossed
    ]
    flags_by_seq = {
        chunk.seq: flags
        for chunk in chunks
        if (flags := flags_in(Hit(chunk, source, 0.0, None).text_with_headings))
    }
    # With the rules alone, the source isn't examined again, and searches scan what they show of it.
    entry: list[object] = [rules()]
    if len(crossed_seqs) + len(flags_by_seq) <= MAX_FLAGGED:
        entry += [source.digest, flags_by_seq, crossed_seqs]
    return entry


def _with_revision(
    entries: Mapping[str, object], digest: str, passages: Sequence[bytes], former: Marks
) -> str:
    """The column `fields` of a source, with the revision of passages with these marks, and former marks."""
    revision = revision_of(passages)
    others = {name: marks for name, marks in former.items() if name != revision}
    whole = {**entries, schema.REVISION: [digest, revision], schema.FORMER: packed(others)}
    if not others:
        del whole[schema.FORMER]
    return json.dumps(whole, ensure_ascii=False)


def without_former(fields: str) -> str:
    """The column `fields` without the marks of former revisions."""
    entries = json.loads(fields)
    entries.pop(schema.FORMER, None)
    return json.dumps(entries, ensure_ascii=False)


def _chunk(new: NewSource, passage: Passage) -> Chunk:
    """The chunk of a passage, as readers get it."""
    text = new.text[passage.start : passage.end]
    header = schema.header_in(body(passage.context, text), len(text))
    return Chunk(
        id=chunk_id(new.source.id, passage.seq),
        source_id=new.source.id,
        seq=passage.seq,
        start=passage.start,
        end=passage.end,
        text=text,
        section=passage.section,
        header=header,
    )


def chunk_id(source_id: str, seq: int) -> str:
    """A chunk's id, as citations have it: ("a7…", 3) -> "a7…/3"."""
    return f"{source_id}/{seq}"


def chunk_rows(new: NewSource, *, generation: str, access: Access | None, collection: Collection) -> pa.Table:
    """The passages of a source with their vectors and words, as rows of the chunk table of a collection."""
    passages, count = new.passages, len(new.passages)
    constants = {
        "source_id": new.source.id,
        "generation": generation,
        **label_values(access),
        **{schema.field_column(name): _stored(value) for name, value in new.fields.items()},
    }
    columns: dict[str, Any] = {
        "id": [chunk_id(new.source.id, passage.seq) for passage in passages],
        "seq": [passage.seq for passage in passages],
        "start": [passage.start for passage in passages],
        "end": [passage.end for passage in passages],
        "tokens": [passage.tokens for passage in passages],
        "page": [passage.page for passage in passages],
        "gap": gaps_between(new.text, passages),
        "section": [[*passage.section, *passage.inner] for passage in passages],
        "depth": [len(passage.section) for passage in passages],
        "body": new.bodies,
        "vector": schema.vector_column(new.vectors),
    }
    language = analysed_in(collection, new.source.metadata)
    derived = new.derived
    fits = derived is not None and derived.language == language  # the language may have changed since
    columns[schema.TERMS] = derived.terms if derived and fits else _terms(new, language)
    whole = schema.chunks_schema(new.vectors.shape[1], collection.fields)
    columns |= {name: [constants.get(name)] * count for name in whole.names if name not in columns}
    return pa.table(columns, schema=whole)


def gaps_between(text: str, passages: Sequence[Passage]) -> list[str | None]:
    """The `Chunk.gap` of each passage."""
    between = [text[before.end : after.start] for before, after in pairwise(passages)]
    known = [gap if len(gap) <= LONGEST_GAP and gap.isspace() else None for gap in between]
    return [None, *known] if passages else []


FEW_ROWS = 64  # beyond, making all values at once costs less


class KeyedRows(MutableMapping[str, T]):
    """The rows of a table as values by key, each made by `value` on first access.

    A run on one document needs a few of a collection's sources and access records; making all of them took
    longer than the run itself. The rows don't change with the table. Setting and deleting changes this
    mapping only.
    """

    def __init__(self, rows: pa.Table, key: str, value: Callable[[dict[str, Any]], T]) -> None:
        self._rows = rows
        self._value = value
        self._keys = cast("list[str]", rows[key].to_pylist())
        self._row_numbers = dict(zip(self._keys, range(len(self._keys)), strict=True))
        self._values: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._values:
            row_number = self._row_numbers[key]  # raises KeyError for unknown keys, as a mapping does
            if len(self._values) < FEW_ROWS:
                (row,) = self._rows.slice(row_number, 1).to_pylist()
                self._values[key] = self._value(row)
            else:
                self._make_all()
        return self._values[key]

    def _make_all(self) -> None:
        rows = self._rows.to_pylist()
        for key, row_number in self._row_numbers.items():
            if key not in self._values:
                self._values[key] = self._value(rows[row_number])

    def __setitem__(self, key: str, value: T) -> None:
        self._row_numbers[key] = _NO_ROW  # hides the row of this key
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._row_numbers[key]
        self._values.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._row_numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._row_numbers)

    def __len__(self) -> int:
        return len(self._row_numbers)

    def matching(self, mask: Callable[[pa.Table], pa.BooleanArray]) -> list[T]:
        """The values of the rows that `mask` selects, and all values that were set."""
        row_numbers = cast("list[int]", pc.indices_nonzero(mask(self._rows)).to_pylist())
        # A row whose value was set or deleted since no longer counts: its key has another number, or none.
        keys = [key for at in row_numbers if self._row_numbers.get(key := self._keys[at]) == at]
        keys += [key for key in self._values if self._row_numbers[key] == _NO_ROW]
        return [self[key] for key in keys]


_NO_ROW = -1


@dataclass(frozen=True, slots=True)
class KnownSource:
    """The part of a stored source by which ingestion sees whether its file changed or moved."""

    id: str
    uri: str
    digest: str
    chunk_count: int
    title: str
    metadata: Mapping[str, str]
    record: AccessRecord
    without_vector: int
    file: FileState | None = None
    expires: datetime | None = None


def known_source(
    row: dict[str, Any],
    *,
    collection: Collection,
    records: Mapping[str, AccessRecord],
    incomplete: Container[str] = (),
) -> KnownSource:
    """The known source of a row, without a digest if its id is `incomplete` or chunks lack vectors.

    A lost record admits nobody.
    """
    digest, without_vector = schema.split_digest(row["digest"])
    lost = AccessRecord(row["id"], collection.name, row["uri"], None)
    return KnownSource(
        id=row["id"],
        uri=row["uri"],
        # Without one it differs from any, so the source is stored again.
        digest="" if without_vector or row["id"] in incomplete else digest,
        chunk_count=row["chunk_count"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        record=records.get(row["id"]) or lost,
        without_vector=without_vector,
        file=schema.file_record(row["fields"]),
        expires=schema.expiry_of(row, collection.keep_days),
    )


def no_sources(collection: Collection) -> KeyedRows[KnownSource]:
    """The known sources of a collection that doesn't exist."""
    source_of_row = partial(known_source, collection=collection, records={})
    return KeyedRows(schema.SOURCES_SCHEMA.empty_table(), "uri", source_of_row)


def can_expire(rows: pa.Table, *, keep_days: int) -> pa.BooleanArray:
    """Which rows of sources can expire: all in a collection with `keep_days`, else those that state when."""
    return pc.match_substring(rows["metadata"], "" if keep_days else json.dumps(EXPIRES))


_TAG = rf'[{{ ]"{LANGUAGE}": "(?P<tag>[^"\\]*)"'
"""In metadata as `source_row` writes it; a quote within a key or a value has a backslash before it."""


def language_counts(rows: pa.Table) -> Counter[str]:
    """The number of sources by language tag; "" for sources without one."""
    # By a pattern in Arrow: parsing the JSON of each source would make a run on one document slow.
    tags = pc.struct_field(pc.extract_regex(rows["metadata"], _TAG), "tag")
    return Counter({pair["values"] or "": pair["counts"] for pair in pc.value_counts(tags).to_pylist()})


@dataclass(frozen=True, slots=True)
class SourceMove:
    """A source's new URI and metadata, and the access claimed for it there."""

    uri: str
    metadata: Mapping[str, str]
    claim: Claim


@dataclass(frozen=True, slots=True)
class WholeSource:
    """The row of a source with its text, and the rows of its visible chunks, in order."""

    row: Mapping[str, Any]
    table: pa.Table

    def source(self, collection: str) -> Source:
        """The source, without its text."""
        return schema.source_record(self.row, collection)

    @property
    def bodies(self) -> list[str]:
        """The embedded text of each chunk."""
        return cast("list[str]", self.table["body"].to_pylist())

    @property
    def texts(self) -> list[str]:
        """The text of each chunk."""
        return [self.row["text"][start:end] for start, end in self.spans]

    @property
    def marks(self) -> Marks:
        """The marks of its chunks, if its revision was recorded, and those of former revisions."""
        digest, _ = schema.split_digest(self.row["digest"])
        revision = schema.record_as_cut(json.loads(self.row["fields"]), schema.REVISION, digest)
        former = schema.former_record(self.row["fields"])
        return former if revision is None else {revision: tuple(map(mark, self.texts)), **former}

    @property
    def pages(self) -> list[int | None]:
        """The page of each chunk."""
        return cast("list[int | None]", self.table["page"].to_pylist())

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The start and end of each chunk."""
        starts, ends = (cast("list[int]", self.table[name].to_pylist()) for name in ("start", "end"))
        return list(zip(starts, ends, strict=True))

    def with_token_counts(self, tokens: Sequence[int]) -> WholeSource:
        """The source with these numbers of tokens in its chunks."""
        return replace(self, table=_with_column(self.table, "tokens", pa.array(tokens, pa.int32())))

    def with_words(self, collection: Collection) -> WholeSource:
        """The source with its chunks' words and its names analysed by the present rules."""
        source = self.source(collection.name)
        language = analysed_in(collection, source.metadata)
        terms = pa.array([terms_of(text, language, source) for text in self.bodies], pa.string())
        return replace(self, table=_with_column(self.table, schema.TERMS, terms))

    def with_passages(
        self, passages: Sequence[Passage], digest: str, access: Access | None, collection: Collection
    ) -> WholeSource:
        """The source with these passages as chunks, and a digest that depends on the chunking."""
        blank = np.zeros((len(passages), 1), np.float32)  # `with_vectors` replaces them
        fields = schema.fields_record(self.row["fields"], collection.fields)
        source = self.source(collection.name)
        new = NewSource(source, self.row["text"], (), passages, blank, Claim(None), fields)
        table = chunk_rows(new, generation=self.row["generation"], access=access, collection=collection)
        row = {**self.row, "chunk_count": len(passages), "digest": digest}
        return WholeSource(row, table).with_flags_and_revision(collection.name, self.marks)

    def with_flags_and_revision(self, collection: str, former: Marks) -> WholeSource:
        """The source with its chunks flagged by the present rules, and with its revision."""
        source = self.source(collection)
        chunks = [schema.chunk_of_row(row) for row in self.table.select(schema.CHUNK_COLUMNS).to_pylist()]
        flags = flags_entry(source, self.row["text"], chunks)
        entries = json.loads(self.row["fields"]) | {schema.FLAGS: flags}
        if schema.LINES in entries:
            starts = (start for start, _ in self.spans)
            entries[schema.LINES] = [source.digest, [*lines_at(self.row["text"], starts)]]
        fields = _with_revision(entries, source.digest, [mark(text) for text in self.texts], former)
        return replace(self, row={**self.row, "fields": fields})

    def with_vectors(self, vectors: Vectors) -> WholeSource:
        """The source with these vectors; zeros count as missing."""
        values = schema.vector_column(vectors)
        column = self.table.schema.get_field_index("vector")
        table = self.table.set_column(column, pa.field("vector", values.type, nullable=False), values)
        digest, _ = schema.split_digest(self.row["digest"])
        lacking = int((~vectors.any(axis=1)).sum())
        return WholeSource({**self.row, "digest": schema.digest_value(digest, lacking)}, table)


def whole_sources(sources: pa.Table, chunks: pa.Table) -> list[WholeSource]:
    """The sources of these rows, each with its visible chunks."""
    return [WholeSource(row, _visible(chunks, row)) for row in sources.to_pylist()]


def _with_column(rows: pa.Table, name: str, values: pa.Array[Any]) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)


def _visible(chunks: pa.Table, row: Mapping[str, Any]) -> pa.Table:
    # Chunks of another generation are of a run that was killed, or that is replacing the source now.
    ours: Any = pc.and_(
        pc.equal(chunks["source_id"], row["id"]), pc.equal(chunks["generation"], row["generation"])
    )
    return chunks.filter(ours).sort_by("seq")


async def count_chunks(chunks: lancedb.AsyncTable) -> Counter[tuple[str, str]]:
    """The number of stored chunks by source id and generation."""
    columns = ["source_id", "generation"]
    rows = (await chunks.query().select(columns).to_arrow()).group_by(columns)
    counts = rows.aggregate([([], "count_all")]).to_pylist()
    return Counter({(row["source_id"], row["generation"]): row["count_all"] for row in counts})


async def sample_for_everybody(
    chunks: lancedb.AsyncTable, limit: int, least: int
) -> tuple[list[str], Vectors, list[str]] | None:
    """The source ids, vectors and texts of at most `limit` chunks that everybody in the tenant may read.

    They are evenly spaced in the table; one without a vector has zeros. None if the table has fewer than
    `least` chunks; empty if everybody may read fewer.
    """
    with engine_errors("reading vectors"):
        if await chunks.count_rows() < least:
            return None
        readable = await chunks.query().where(FOR_EVERYBODY).with_row_id().select(["source_id"]).to_arrow()
        count = readable.num_rows
        if count < max(1, least):
            return [], np.empty((0, 1), np.float32), []
        places = np.unique(np.linspace(0, count - 1, min(limit, count)).astype(int))
        ids = cast("list[int]", readable["_rowid"].take(pa.array(places)).to_pylist())
        rows = await chunks.take_row_ids(ids).select(["source_id", "vector", "body"]).to_arrow()
    sources, texts = (cast("list[str]", rows[name].to_pylist()) for name in ("source_id", "body"))
    return sources, schema.vectors_of(rows), texts
