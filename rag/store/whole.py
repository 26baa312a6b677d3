"""The chunks of one source as a rebuild takes them from one table and puts them into another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag.store import schema
from rag.store.schema import NewSource
from rag.store.settle import Claim

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.corpus import Access, Collection, Passage, Source, Vectors


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
        """What is embedded of each chunk."""
        return cast("list[str]", self.table["body"].to_pylist())

    @property
    def pages(self) -> list[int | None]:
        """The page of each chunk."""
        return cast("list[int | None]", self.table["page"].to_pylist())

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where each chunk begins and ends."""
        starts, ends = (cast("list[int]", self.table[name].to_pylist()) for name in ("start", "end"))
        return list(zip(starts, ends, strict=True))

    def counted(self, tokens: Sequence[int]) -> WholeSource:
        """It with these numbers of tokens of its chunks."""
        column = self.table.schema.get_field_index("tokens")
        field = self.table.schema.field("tokens")
        return replace(self, table=self.table.set_column(column, field, pa.array(tokens, pa.int32())))

    def recut(
        self, passages: Sequence[Passage], digest: str, access: Access | None, collection: Collection
    ) -> WholeSource:
        """It with these passages as chunks, and the digest that says how it was cut."""
        blank = np.zeros((len(passages), 1), np.float32)
        fields = schema.fields_record(self.row["fields"], collection.fields)
        source = self.source(collection.name)
        new = NewSource(source, self.row["text"], (), passages, blank, Claim(None), fields)
        table = schema.chunk_rows(
            new, generation=self.row["generation"], access=access, collection=collection
        )
        return WholeSource({**self.row, "chunk_count": len(passages), "digest": digest}, table)

    def with_vectors(self, vectors: Vectors) -> WholeSource:
        """It with these vectors; zeros count as none."""
        values = schema.vector_column(vectors)
        column = self.table.schema.get_field_index("vector")
        table = self.table.set_column(column, pa.field("vector", values.type, nullable=False), values)
        digest, _ = schema.split_digest(self.row["digest"])
        lacking = int((~vectors.any(axis=1)).sum())
        return WholeSource({**self.row, "digest": schema.digest_value(digest, lacking)}, table)


def whole_sources(sources: pa.Table, chunks: pa.Table) -> list[WholeSource]:
    """The sources of rows, each with its visible chunks."""
    return [WholeSource(row, _visible(chunks, row)) for row in sources.to_pylist()]


def _visible(chunks: pa.Table, row: Mapping[str, Any]) -> pa.Table:
    ours: Any = pc.and_(
        pc.equal(chunks["source_id"], row["id"]), pc.equal(chunks["generation"], row["generation"])
    )
    return chunks.filter(ours).sort_by("seq")
