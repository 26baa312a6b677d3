"""Sources whose text stays: a run can change their URI, their access and the recorded state of their file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rag.corpus import AccessRecord, Document, FileState
from rag.ingest.report import OutcomeKind
from rag.ingest.source_paths import printable
from rag.ingest.vanished_sources import keeps_title
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import KnownSource, SourceMove

if TYPE_CHECKING:
    from rag.ingest.file_digests import FileContent
    from rag.ingest.rights.access_decision import Claims
    from rag.ingest.run_outcomes import Outcomes
    from rag.store.write.collection_writer import CollectionWriter


@dataclass(slots=True)
class UnchangedSources:
    """The sources of a run whose text stays.

    Moves are written by `move`, before anything else of the run. Access is written by `settle`, at its end:
    only then is it known who may see the containers. `parsed` parses the content of a file.
    """

    writer: CollectionWriter
    claims: Claims
    outcomes: Outcomes
    parsed: Callable[[FileContent], Awaitable[Document]]
    _to_move: dict[str, tuple[KnownSource, SourceMove]] = field(default_factory=dict)
    _to_claim: dict[str, tuple[OutcomeKind, KnownSource, Claim]] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)
    _files: dict[str, FileState] = field(default_factory=dict)

    def follow(self, source: KnownSource, content: FileContent) -> None:
        """Plan the move of a source to this file, if its text stays. `move` carries it out."""
        if not self._stays(source, content):
            return
        self._note_file(source, content)
        file = content.file
        metadata = {**source.metadata, "path": printable(file.name)}
        claim = self.claims.of_moved(source, file)
        self._to_move[source.id] = source, SourceMove(file.uri, metadata, claim)

    def _stays(self, source: KnownSource, content: FileContent) -> bool:
        """Whether a moved source needs no parsing: same text and title, and no access request to read."""
        requests_access = self.claims.rights.asks(source.record.requested)
        return source.digest == content.digest and keeps_title(source, content.file) and not requests_access

    async def move(self) -> list[KnownSource]:
        """Write the planned moves. Returns the sources with their new URIs.

        A part is finished by `settle`: its new container may be stored, or narrowed, later in this run.
        """
        moved = {id_: move for id_, (_, move) in self._to_move.items()}
        records = await self.writer.move(moved) if moved else {}
        sources = []
        for id_, (source, move) in self._to_move.items():
            here = replace(source, uri=move.uri)
            sources.append(here)
            if "#" in move.uri:
                self._to_claim[id_] = "moved", here, move.claim
            else:
                self._finish("moved", here, move.claim, records[id_])
        self._moved = {source.uri for source in sources}
        return sources

    def has_moved(self, uri: str) -> bool:
        """Whether `move` moved a source to this URI."""
        return uri in self._moved

    def _note_file(self, source: KnownSource, content: FileContent) -> None:
        """Plan to record the state of a file that was touched or copied, for the sign `stale` of a search."""
        if content.state and not (source.file and content.state.same_as(source.file)):
            self._files[source.id] = content.state

    async def keep(self, source: KnownSource, content: FileContent) -> None:
        """Keep an unchanged source. It is finished now, or by `settle` if its access may change.

        Raises:
            ParseError: the access that the document requests is needed, and the file can't be parsed.
        """
        self._note_file(source, content)
        if claim := await self._claim(source, content):
            self._to_claim[source.id] = "unchanged", source, claim
        else:
            self.outcomes.finish_source("unchanged", source)

    async def _claim(self, source: KnownSource, content: FileContent) -> Claim | None:
        """The claim of a source whose access may change: by the run, its own request or what contains it."""
        rights, metadata = self.claims.rights, None
        if rights.asks(source.record.requested) and not self.claims.is_synced(source.uri):
            metadata = (await self.parsed(content)).metadata if rights.of_documents else {}
        return self.claims.of_unchanged(source, content.file, content.content_digest, metadata)

    async def settle(self) -> None:
        """Write the access that is still open, and the new states of files."""
        claims = {id_: (source.uri, claim) for id_, (_, source, claim) in self._to_claim.items()}
        records = await self.writer.claim(claims) if claims else {}
        for id_, (kind, source, claim) in self._to_claim.items():
            self._finish(kind, source, claim, records[id_])
        if self._files:
            await self.writer.note_files(self._files)

    def _finish(self, kind: OutcomeKind, source: KnownSource, claim: Claim, record: AccessRecord) -> None:
        self.outcomes.finish_source(
            kind, source, self.claims.report.remarks(source.uri, claim, record), record.access
        )
