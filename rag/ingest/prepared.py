"""A document between the chunker and the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag.corpus import Heading, Source
from rag.ingest.paths import printable
from rag.store.schema import NewSource, body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.corpus import Document, Passage, Value, Vectors
    from rag.file_state import FileState
    from rag.ingest.discover import Found
    from rag.store.settle import Claim


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file read, parsed and chunked, to be stored under this id.

    `shown` is the metadata for readers, and `state` that of the file when it was read.
    """

    found: Found
    id: str
    digest: str
    document: Document
    passages: Sequence[Passage]
    claim: Claim
    fields: Mapping[str, Value]
    shown: Mapping[str, str]
    state: FileState | None = None

    def texts(self) -> list[str]:
        """What is embedded of each passage."""
        text = self.document.text
        return [body(passage.context, text[passage.start : passage.end]) for passage in self.passages]

    def new_source(self, collection: str, vectors: Vectors) -> NewSource:
        """It with a vector for each passage, ready to be written."""
        document = self.document
        source = Source(
            id=self.id,
            collection=collection,
            uri=self.found.uri,
            title=document.title,
            mime_type=document.mime_type,
            digest=self.digest,
            chunk_count=len(self.passages),
            length=len(document.text),
            ingested_at=datetime.now(UTC),
            url=document.url,
            date=document.date,
            metadata={**self.shown, "path": printable(self.found.name)},
            without_vector=int((~vectors.any(axis=1)).sum()),
            file=self.state,
        )
        outline = tuple(
            Heading(block.title, block.level, block.start)
            for block in document.blocks
            if block.kind == "heading" and block.title
        )
        return NewSource(
            source,
            document.text,
            outline,
            self.passages,
            vectors,
            claim=self.claim,
            fields=self.fields,
        )
