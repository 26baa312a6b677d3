"""Tables and columns, and how values travel between them and our records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rag.records import Heading, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rag.records import Passage, Vectors

COLLECTIONS = "collections"
"""The catalog: a row per collection; a collection exists from the moment its row does."""

_MOMENT = pa.timestamp("us", tz="UTC")


def _schema(required: Mapping[str, pa.DataType], optional: Mapping[str, pa.DataType]) -> pa.Schema:
    fields: list[pa.Field[Any]] = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema(fields + [pa.field(name, kind) for name, kind in optional.items()])


COLLECTIONS_SCHEMA = _schema(
    {
        "tenant": pa.string(),
        "name": pa.string(),
        "definition": pa.string(),  # what its indexes were made by, as JSON
        "created_at": _MOMENT,
    },
    {},
)

SOURCES_SCHEMA = _schema(
    {
        "id": pa.string(),
        "uri": pa.string(),
        "title": pa.string(),
        "mime_type": pa.string(),
        "digest": pa.string(),
        "generation": pa.string(),
        "metadata": pa.string(),  # JSON, for display
        "chunk_count": pa.int32(),
        "length": pa.int64(),
        "ingested_at": _MOMENT,
        "outline": pa.string(),  # JSON: [title, level, start] per heading
        "text": pa.large_string(),
    },
    {"url": pa.string(), "date": _MOMENT},
)
SUMMARY_COLUMNS = [name for name in SOURCES_SCHEMA.names if name not in {"outline", "text"}]


def chunks_schema(dimension: int) -> pa.Schema:
    """The columns of a chunk table.

    `body` is what is embedded and indexed: the context line and the text; the text is its
    last `end - start` characters. A chunk is visible while its `generation` is its source's.
    """
    required: dict[str, pa.DataType] = {
        "id": pa.string(),
        "source_id": pa.string(),
        "generation": pa.string(),
        "seq": pa.int32(),
        "start": pa.int64(),
        "end": pa.int64(),
        "tokens": pa.int32(),
        "section": pa.list_(pa.string()),
        "body": pa.string(),
        "vector": pa.list_(pa.float32(), dimension),
    }
    return _schema(required, {"page": pa.int32()})


def chunks_table(tenant: str, collection: str) -> str:
    """Names hold no double underscore (settings.NAME_PATTERN), so two collections never share a table."""
    return f"chunks__tenant_{tenant}__src_{collection}"


def sources_table(tenant: str, collection: str) -> str:
    """The table of a collection's sources; see `chunks_table`."""
    return f"sources__tenant_{tenant}__src_{collection}"


def quoted(value: str) -> str:
    """A string literal of the engine's SQL. Nothing but the quote itself is special there."""
    return "'" + value.replace("'", "''") + "'"


def one_of(column: str, values: Iterable[str]) -> str:
    """A predicate; `column` is one of ours. No values match nothing."""
    literals = ", ".join(quoted(value) for value in values)
    return f"({column} IN ({literals}))" if literals else "(false)"


def body(context: str, text: str) -> str:
    """What of a chunk is embedded and indexed."""
    return f"{context}\n\n{text}" if context else text


def source_row(source: Source, *, generation: str, outline: Sequence[Heading], text: str) -> dict[str, Any]:
    """A row of the source table."""
    return {
        **{name: getattr(source, name) for name in SUMMARY_COLUMNS if name not in {"generation", "metadata"}},
        "generation": generation,
        "metadata": json.dumps(dict(source.metadata), ensure_ascii=False),
        "outline": json.dumps([[entry.title, entry.level, entry.start] for entry in outline]),
        "text": text,
    }


def source_record(row: dict[str, Any], collection: str) -> Source:
    """A row's summary columns as a record."""
    values = {name: row[name] for name in SUMMARY_COLUMNS if name not in {"generation", "metadata"}}
    return Source(collection=collection, metadata=json.loads(row["metadata"]), **values)


def outline_record(value: str) -> tuple[Heading, ...]:
    """The outline column of a row."""
    return tuple(Heading(title, level, start) for title, level, start in json.loads(value))


def chunk_id(source_id: str, seq: int) -> str:
    """A chunk's id, which is also how one cites it: ("a7…", 3) -> "a7…/3"."""
    return f"{source_id}/{seq}"


def split_chunk_id(id_: str) -> tuple[str, int]:
    """What `chunk_id` put together: "a7…/3" -> ("a7…", 3)."""
    source_id, _, seq = id_.partition("/")
    return source_id, int(seq)


def chunk_rows(
    source_id: str, text: str, passages: Sequence[Passage], *, generation: str, vectors: Vectors
) -> pa.Table:
    """Passages of one source with their vectors, as rows of the chunk table."""
    flat = pa.array(vectors.reshape(-1))
    columns: dict[str, Any] = {
        "id": [chunk_id(source_id, passage.seq) for passage in passages],
        "source_id": [source_id] * len(passages),
        "generation": [generation] * len(passages),
        "seq": [passage.seq for passage in passages],
        "start": [passage.start for passage in passages],
        "end": [passage.end for passage in passages],
        "tokens": [passage.tokens for passage in passages],
        "page": [passage.page for passage in passages],
        "section": [list(passage.section) for passage in passages],
        "body": [body(passage.context, text[passage.start : passage.end]) for passage in passages],
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }
    return pa.table(columns, schema=chunks_schema(vectors.shape[1]))
