"""Names and columns of the tables, and the conversion of rows to what readers return.

A chunk is visible only if it has the generation of its source. The gate checks that, and each source's own
access record. `rag.store.write.table_rows` has the other direction, which only writers need.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from rag.corpus import (
    ALIAS_KEYS,
    Access,
    AccessRecord,
    Chunk,
    FieldType,
    FileState,
    Heading,
    PassageFlags,
    Source,
    Value,
    Vectors,
    naming_entries,
)
from rag.filters.grammar import EPOCH, literal
from rag.filters.needles import Needle
from rag.originals import expiry
from rag.text.flags import rules
from rag.text.languages import LANGUAGE
from rag.text.revisions import unpacked
from rag.uris import ID_CHARS, TAG_CHARS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


FORMAT = 6
"""The version of the tables' columns and of a collection's definition.

Raise it when they change: data folders with another number are refused.
"""

FILE = "@file"
"""The key of the file's state in a source's column `fields`. Readers ignore undeclared keys there, and no
field can be declared under this name."""

FLAGS = "@flags"
"""The key of the flags of a source's passages there: [rules, digest, {seq: flags}, [crossed seqs]].

They are valid for one version of the rules, and for the passages as cut when the source had this digest. A
source with too many flags has only the rules.
"""

REVISION = "@revision"
"""The key of a source's revision there: [digest, revision].

It is the revision of the passages as cut when the source had this digest (`rag.text.revisions`).
"""

LINES = "@lines"
"""The key of the lines that a plain text's passages begin on there: [digest, lines], as `REVISION`."""

FORMER = "@former"
"""The key of the marks of former revisions' passages there: `rag.text.revisions.packed`."""

OF_PASSAGES = frozenset({FLAGS, REVISION, LINES, FORMER})
"""The keys there that are about the passages as cut."""

COLLECTIONS = "collections"
"""The catalog: one row per collection. A collection exists if its row does."""

MOMENT = pa.timestamp("us", tz="UTC")


def _schema(required: Mapping[str, pa.DataType], optional: Mapping[str, pa.DataType]) -> pa.Schema:
    fields: list[pa.Field[Any]] = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema(fields + [pa.field(name, kind) for name, kind in optional.items()])


ACCESS_COLUMNS: dict[str, pa.DataType] = {
    "visibility": pa.string(),
    "allow": pa.list_(pa.string()),
    "deny": pa.list_(pa.string()),
}
"""Who may see a source. Null without a record; empty lists are null, too."""

LABEL_COLUMNS: dict[str, pa.DataType] = {"labels": pa.list_(pa.string()), "revision": pa.int32()}
"""The labels that the engine filters by, and the revision of their access record. Chunks hold copies."""
GROUP_LABEL = "group"
"""The label of a record that names any group. It differs from the label of every entry."""

FIELD_TYPES: dict[FieldType, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "datetime": pa.int64(),  # microseconds since 1970: the engine's own literals end in 2262
    "string list": pa.list_(pa.string()),
}

COLLECTIONS_SCHEMA = _schema(
    {
        "tenant": pa.string(),
        "name": pa.string(),
        "definition": pa.string(),  # JSON: what its tables were made with
        "created_at": MOMENT,
    },
    {},
)

SOURCES_SCHEMA = _schema(
    {
        "id": pa.string(),
        "uri": pa.string(),
        "title": pa.string(),
        "mime_type": pa.string(),
        "digest": pa.string(),  # see `digest_value`
        "generation": pa.string(),
        "metadata": pa.string(),  # JSON, for display
        "chunk_count": pa.int32(),
        "length": pa.int64(),
        "ingested_at": MOMENT,
        "fields": pa.string(),  # JSON: the declared fields of the source, and ours: `FILE` and others
        "outline": pa.string(),  # JSON: [title, level, start] per heading
        "text": pa.large_string(),
    },
    {"url": pa.string(), "date": MOMENT},
)


def source_columns(names: Iterable[str]) -> pa.Schema:
    """These columns of the source table."""
    return pa.schema([SOURCES_SCHEMA.field(name) for name in names])


SUMMARY_COLUMNS = [name for name in SOURCES_SCHEMA.names if name not in {"outline", "text"}]
SOURCE_COLUMNS = [
    name for name in SUMMARY_COLUMNS if name not in {"digest", "generation", "metadata", "fields"}
]
"""The columns that are fields of a `Source`."""

ACCESS_SCHEMA = _schema(
    {
        "id": pa.string(),
        "collection": pa.string(),  # empty for a folder
        "uri": pa.string(),
        "content": pa.string(),
        "word": pa.string(),  # `AccessRecord.requested`
        "present": pa.bool_(),
        "copied": pa.bool_(),
        **LABEL_COLUMNS,
    },
    {"former": pa.list_(pa.string()), **ACCESS_COLUMNS},
)
RECORD_COLUMNS = [name for name in ACCESS_SCHEMA.names if name != "labels"]
PRESENT_ACCESS = ["id", "present", "copied", "revision", *ACCESS_COLUMNS]
"""The columns that say who may see a source now (`access_record`, `is_tombstone`). Each costs a read."""
PLAIN_ACCESS_COLUMNS = ("id", "collection", "uri", "content", "present", "copied")
"""The columns that are fields of an `AccessRecord`."""
PRESENT = "(present AND (collection <> ''))"
"""Selects the records of present sources, without those of folders."""


TERMS = "terms"
"""The column of a chunk's words, which the full-text index is on; see `rag.store.read.word_analysis`."""


def chunks_schema(dimension: int, fields: Mapping[str, FieldType]) -> pa.Schema:
    """The columns of a chunk table, with one for each declared field.

    `body` is what is embedded: the context line and the text, which is its last `end - start` characters.
    `TERMS` has its words. A `vector` of zeros means that the embedder had none; the engine's cosine never
    finds it, with or without an index.
    """
    required: dict[str, pa.DataType] = {
        "id": pa.string(),
        "source_id": pa.string(),
        "generation": pa.string(),
        "seq": pa.int32(),
        "start": pa.int64(),
        "end": pa.int64(),
        "tokens": pa.int32(),
        **LABEL_COLUMNS,
        "section": pa.list_(pa.string()),  # headings that filters match: those above, then those in the text
        "depth": pa.int32(),  # how many of them are above
        "body": pa.string(),
        "vector": pa.list_(pa.float32(), dimension),
    }
    declared = {field_column(name): FIELD_TYPES[kind] for name, kind in fields.items()}
    return _schema(required, {"page": pa.int32(), "gap": pa.string(), TERMS: pa.string(), **declared})


def field_column(name: str) -> str:
    """The column of a declared field; field names were validated when they were declared."""
    return f"field_{name}"


def attributes(title: str, path: str | None, date: datetime | None) -> dict[str, Value]:
    """The undeclared values that a source can be filtered by, as far as it has them."""
    texts = {"title": title, "path": path}
    values: dict[str, Value] = {
        name: unicodedata.normalize("NFC", text) for name, text in texts.items() if text is not None
    }
    return values | ({} if date is None else {"date": date})


def field_columns(fields: Mapping[str, FieldType]) -> pa.Schema:
    """The columns of declared fields in a chunk table."""
    return _schema({}, {field_column(name): FIELD_TYPES[kind] for name, kind in fields.items()})


def chunks_table(tenant: str, collection: str, build: int = 0) -> str:
    """The chunk table of a build of a collection.

    Names have no double underscore, so no two tables share a name. The catalog says which build readers open;
    a table of another build belongs to a rebuild, or to what it can go back to.
    """
    return f"chunks__tenant_{tenant}__src_{collection}{_build(build)}"


def sources_table(tenant: str, collection: str, build: int = 0) -> str:
    """The source table of a build of a collection; see `chunks_table`."""
    return f"sources__tenant_{tenant}__src_{collection}{_build(build)}"


def _build(number: int) -> str:
    return f"__build_{number}" if number else ""


def access_table(tenant: str) -> str:
    """The table of a tenant's access records."""
    return f"access__tenant_{tenant}"


def one_of(column: str, values: Iterable[str]) -> str:
    """A predicate for a column to have one of these values; without values it matches nothing."""
    literals = ", ".join(literal(value) for value in values)
    return f"({column} IN ({literals}))" if literals else "(false)"


def contains(needle: Needle) -> str:
    r"""A predicate for chunks whose text, without its context line, may have a match of a needle.

    The engine's regex takes linear time, like RE2. The needle's core is looked for first, which is faster.
    """
    text = 'right(body, "end" - start)'
    patterns = dict.fromkeys([needle.core, needle.pattern])
    return " AND ".join(f"regexp_like({text}, {literal(pattern)})" for pattern in patterns)


def digest_value(digest: str, without_vector: int) -> str:
    """A source's digest with the number of its chunks that lack a vector: ("a7", 0) -> "a7", 2 -> "a7 2".

    With a number it matches no file's digest, so the source counts as changed until it is complete.
    """
    return f"{digest} {without_vector}" if without_vector else digest


def split_digest(value: str) -> tuple[str, int]:
    """The digest of a row and the number of chunks without a vector; the inverse of `digest_value`."""
    digest, _, without_vector = value.partition(" ")
    return digest, int(without_vector or 0)


def stored_record(row: Mapping[str, Any]) -> AccessRecord:
    """The record of a row; the inverse of `access_row`."""
    plain = {name: row[name] for name in PLAIN_ACCESS_COLUMNS}
    former = tuple(row["former"] or ())
    return AccessRecord(access=access_record(row), requested=row["word"], former=former, **plain)


def is_tombstone(row: Mapping[str, Any]) -> bool:
    """As `AccessRecord.is_tombstone`, of a row."""
    return not row["present"] and not row["copied"]


def access_record(row: Mapping[str, Any]) -> Access | None:
    """Who may see a source, by its row; None, meaning nobody, without a record."""
    if row["visibility"] is None:
        return None
    allow, deny = (frozenset(row[name] or ()) for name in ("allow", "deny"))  # empty lists are null
    return Access(row["visibility"], allow, deny, row["revision"])


def fields_record(stored: str, declared: Mapping[str, FieldType]) -> dict[str, Value]:
    """The declared fields of a row."""
    values = json.loads(stored)
    return {name: _value(value, declared[name]) for name, value in values.items() if name in declared}


def _value(value: Any, kind: FieldType) -> Value:  # noqa: ANN401 what JSON holds
    match kind:
        case "datetime":
            return EPOCH + timedelta(microseconds=value)
        case "string list":
            return tuple(value)
        case _:
            return cast("Value", value)


def file_record(fields: str) -> FileState | None:
    """The state of a source's file in its column `fields`, if there is one."""
    stored = json.loads(fields).get(FILE) if FILE in fields else None
    return FileState(*stored) if stored else None


def flags_record(fields: Mapping[str, Any], digest: str) -> PassageFlags | None:
    """The flags among the parsed `fields` of a source with this digest; None unless they are up to date."""
    match fields.get(FLAGS):
        # Other rules may find more, and other passages have other numbers: these are scanned when shown.
        case [version, str(cut), dict(by_seq), list(seqs)] if version == rules() and cut == digest:
            return PassageFlags({int(seq): tuple(flags) for seq, flags in by_seq.items()}, frozenset(seqs))
    return None


def record_as_cut(fields: Mapping[str, Any], key: str, digest: str) -> Any:  # noqa: ANN401 what JSON holds
    """The revision or the lines among the parsed `fields`; None unless recorded for this digest."""
    cut, value = fields.get(key, (None, None))
    return value if cut == digest else None


def former_record(fields: str) -> dict[str, tuple[bytes, ...]]:
    """The marks of a source's passages in former revisions, latest first, in its column `fields`."""
    return unpacked(json.loads(fields).get(FORMER, "")) if FORMER in fields else {}


def expiry_of(row: Mapping[str, Any], keep_days: int) -> datetime | None:
    """When the source of a row expires, None if it doesn't; see `rag.originals`."""
    return expiry(
        json.loads(row["metadata"]),
        keep_days,
        date=row["date"],
        file=file_record(row["fields"]),
        ingested_at=row["ingested_at"],
    )


def source_record(row: Mapping[str, Any], collection: str) -> Source:
    """The source of a row's summary columns."""
    values = {name: row[name] for name in SOURCE_COLUMNS}
    digest, without_vector = split_digest(row["digest"])
    fields = json.loads(row["fields"])
    return Source(
        collection=collection,
        digest=digest,
        metadata=json.loads(row["metadata"]),
        without_vector=without_vector,
        file=FileState(*fields[FILE]) if fields.get(FILE) else None,
        flags=flags_record(fields, digest),
        revision=record_as_cut(fields, REVISION, digest),
        lines=tuple(record_as_cut(fields, LINES, digest) or ()),
        **values,
    )


def begin_with(rows: pa.Table, beginning: str) -> pa.Array[Any]:
    """Which rows of summary columns have an id, title or path that starts with `beginning`, in lower case."""
    # In the JSON as it was written, because parsing it for all sources takes longer: "a" -> '"path": "a'.
    path_entry = json.dumps({"path": beginning}, ensure_ascii=False)[1:-2]
    path = pc.match_substring(pc.utf8_lower(rows["metadata"]), path_entry)
    matching: Any = path
    for name in ("id", "title"):
        matching = pc.or_(matching, pc.starts_with(pc.utf8_lower(rows[name]), beginning))
    return matching  # type: ignore[no-any-return]


def outline_record(value: str) -> tuple[Heading, ...]:
    """The outline of a row."""
    return tuple(Heading(title, level, start) for title, level, start in json.loads(value))


def original_id(source_id: str) -> str | None:
    """The id of the source that a tag's source copies; None outside of tags (`write.make_collection`)."""
    return source_id[:ID_CHARS] if len(source_id) == ID_CHARS + TAG_CHARS else None


def vector_column(vectors: Vectors) -> pa.FixedSizeListArray[Any]:
    """Vectors as a column; the inverse of `vectors_of`."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def vectors_of(rows: pa.Table) -> Vectors:
    """The vectors of rows of the chunk table, in order."""
    column = cast("Any", rows["vector"].combine_chunks())
    flat = column.flatten().to_numpy(zero_copy_only=False)
    vectors: Vectors = flat.reshape(rows.num_rows, column.type.list_size)
    return vectors


PLACE_COLUMNS = ["id", "title", "metadata", "fields"]
CHUNK_COLUMNS = [name for name in chunks_schema(1, {}).names if name not in {"labels", "vector", TERMS}]


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A row of the chunk table. `revision` is that of the access record whose labels it holds."""

    id: str
    generation: str
    revision: int
    vector: npt.NDArray[np.float32]
    columns: Mapping[str, Sequence[Any]]
    row: int

    @property
    def chunk(self) -> Chunk:
        """The chunk; made lazily, because most chunks of a ranking are never shown."""
        return chunk_of_row({name: column[self.row] for name, column in self.columns.items()})

    @property
    def section(self) -> tuple[str, ...]:
        """The headings that a filter matches: those that the chunk begins under, then those in it."""
        return tuple(self.columns["section"][self.row])

    @property
    def body(self) -> str:
        """The text that is embedded and indexed."""
        return cast("str", self.columns["body"][self.row])


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source, the visible generation of its chunks, and the access record that the gate checks."""

    source: Source
    generation: str
    access: Access | None
    fields: Mapping[str, Value]

    @property
    def id(self) -> str:
        """The id of the source."""
        return self.source.id

    def values(self, declared: Container[str]) -> Mapping[str, Value]:
        """The values that a filter can use: declared fields, and the attributes that every source has."""
        undeclared = {name: value for name, value in self.attributes.items() if name not in declared}
        return {**undeclared, **self.fields}

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The values that a filter can use undeclared: title, path and date."""
        source = self.source
        return attributes(source.title, source.metadata.get("path"), source.date)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The place of a source, and the values that the gate checks. `path` is empty if it has none.

    `aliases` are other names of a note, as its front matter states them, and `language` is a tag. The `date`
    is set only if it was read.
    """

    id: str
    path: str
    title: str
    access: Access | None
    fields: Mapping[str, Value]
    aliases: tuple[str, ...] = ()
    language: str = ""
    date: datetime | None = None


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source as it is now; `generation` and `revision` are as the engine listed it."""

    stored: StoredSource
    generation: str
    revision: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a collection. `unindexed` chunks are found slowly, chunks `without_vector` by words alone."""

    sources: int
    chunks: int
    without_vector: int
    indexes: tuple[str, ...]
    unindexed: int


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """A chunk of a ranking, and its score there.

    In a ranking by words, `words` are the query's words that it has in any form; None if the index doesn't
    tell (attached tables, retrievers).
    """

    stored: StoredChunk
    score: float
    words: frozenset[str] | None = None


Ranking = list[ScoredChunk]
"""The chunks that a search of one kind found, best first."""


def places_of(
    rows: pa.Table, access: Mapping[str, Access | None], declared: Mapping[str, FieldType]
) -> list[SourcePlace]:
    """The places of the rows of the source table whose ids are in `access`."""
    columns = [cast("list[Any]", rows[name].to_pylist()) for name in PLACE_COLUMNS]
    dates = rows["date"].to_pylist() if "date" in rows.column_names else [None] * len(rows)
    return [
        SourcePlace(
            id_,
            entries.get("path", ""),
            title,
            access[id_],
            fields_record(fields, declared) if declared else {},
            _aliases(entries),
            entries.get(LANGUAGE, ""),
            date,
        )
        for id_, title, metadata, fields, date in zip(*columns, dates, strict=True)
        if id_ in access
        for entries in (json.loads(metadata),)
    ]


def _aliases(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Example: {"aliases": "k8s, Steuermann"} -> ("k8s", "Steuermann")."""
    stated = naming_entries(metadata, ALIAS_KEYS)
    return tuple(name.strip() for text in stated for name in text.split(","))


def chunk_of_row(row: Mapping[str, Any]) -> Chunk:
    """The chunk of a row with the columns `CHUNK_COLUMNS`."""
    return Chunk(
        id=row["id"],
        source_id=row["source_id"],
        seq=row["seq"],
        start=row["start"],
        end=row["end"],
        text=row["body"][len(row["body"]) - (row["end"] - row["start"]) :],
        section=section_of_row(row),
        page=row["page"],
        tokens=row["tokens"],
        header=header_in(row["body"], row["end"] - row["start"]),
        gap=row["gap"],
    )


def section_of_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The headings that a chunk begins under, the outermost first."""
    return tuple(row["section"][: row["depth"]])


def header_in(body: str, length: int) -> str:
    """The header row of a table in a chunk's body, the second line of its context; `length` is the text's."""
    return body[: max(0, len(body) - length - 2)].partition("\n")[2]


def split_chunk_id(id_: str) -> tuple[str, int]:
    """The parts of a chunk id: "a7…/3" -> ("a7…", 3)."""
    source_id, _, seq = id_.partition("/")
    return source_id, int(seq)


def stored_chunks(rows: pa.Table, vectors: Vectors | None = None) -> list[StoredChunk]:
    """The chunks of rows with `CHUNK_COLUMNS`, in order, with these `vectors` or else the rows' own."""
    vectors = vectors_of(rows) if vectors is None else vectors
    columns: dict[str, list[Any]] = {name: rows[name].to_pylist() for name in CHUNK_COLUMNS}
    rows_ = zip(columns["id"], columns["generation"], columns["revision"], vectors, strict=True)
    return [StoredChunk(*values, columns, row) for row, values in enumerate(rows_)]
