"""What readers return: chunks, sources and places as they are stored, rankings, and statistics.

A chunk is visible only if its generation is that of its source. The gate checks that, and each source's own
access record.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rag.corpus import Access, Chunk, FieldType, Source, Value, Vectors
from rag.store.read import schema

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

PLACE_COLUMNS = ["id", "title", "metadata", "fields"]
CHUNK_COLUMNS = [
    "id",
    "source_id",
    "generation",
    "revision",
    "seq",
    "start",
    "end",
    "tokens",
    "page",
    "section",
    "body",
]


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A row of the chunk table, visible only if its generation is that of its source.

    `revision` is that of the access record whose labels the row holds.
    """

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
        """The headings that the chunk stands under, the outermost first."""
        return tuple(self.columns["section"][self.row])

    @property
    def body(self) -> str:
        """The text that is embedded and indexed."""
        return cast("str", self.columns["body"][self.row])


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source, the visible generation of its chunks, and what the gate checks."""

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
        return schema.attributes(source.title, source.metadata.get("path"), source.date)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The place of a source, and what the gate checks. `path` is empty if it has none."""

    id: str
    path: str
    title: str
    access: Access | None
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source as it is now, and the generation and record revision when the engine listed it."""

    stored: StoredSource
    generation: str
    revision: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a collection. `unindexed` chunks are found slowly, those `without_vector` by words alone."""

    sources: int
    chunks: int
    without_vector: int
    indexes: tuple[str, ...]
    unindexed: int


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """A chunk of a ranking, and its score there."""

    stored: StoredChunk
    score: float


Ranking = list[ScoredChunk]
"""The chunks that a search of one kind found, best first."""


def places_of(
    rows: pa.Table, access: Mapping[str, Access | None], declared: Mapping[str, FieldType]
) -> list[SourcePlace]:
    """The places of those rows of the source table whose id `access` has."""
    columns = (cast("list[str]", rows[name].to_pylist()) for name in PLACE_COLUMNS)
    return [
        SourcePlace(
            id_,
            json.loads(metadata).get("path", ""),
            title,
            access[id_],
            schema.fields_record(fields, declared) if declared else {},
        )
        for id_, title, metadata, fields in zip(*columns, strict=True)
        if id_ in access
    ]


def chunk_of_row(row: Mapping[str, Any]) -> Chunk:
    """The chunk of a row with the columns `CHUNK_COLUMNS`."""
    return Chunk(
        id=row["id"],
        source_id=row["source_id"],
        seq=row["seq"],
        start=row["start"],
        end=row["end"],
        text=row["body"][len(row["body"]) - (row["end"] - row["start"]) :],
        section=tuple(row["section"]),
        page=row["page"],
        tokens=row["tokens"],
        header=header_in(row["body"], row["end"] - row["start"]),
    )


def header_in(body: str, length: int) -> str:
    """The header row of a table in a chunk's body, the second line of its context; `length` is the text's."""
    return body[: max(0, len(body) - length - 2)].partition("\n")[2]


def split_chunk_id(id_: str) -> tuple[str, int]:
    """The parts of a chunk id: "a7…/3" -> ("a7…", 3)."""
    source_id, _, seq = id_.partition("/")
    return source_id, int(seq)


def stored_chunks(rows: pa.Table, vectors: Vectors | None = None) -> list[StoredChunk]:
    """The chunks of rows with `CHUNK_COLUMNS`, in order, with these `vectors` or else the rows' own."""
    vectors = schema.vectors_of(rows) if vectors is None else vectors
    columns: dict[str, list[Any]] = {name: rows[name].to_pylist() for name in CHUNK_COLUMNS}
    rows_ = zip(columns["id"], columns["generation"], columns["revision"], vectors, strict=True)
    return [StoredChunk(*values, columns, row) for row, values in enumerate(rows_)]
