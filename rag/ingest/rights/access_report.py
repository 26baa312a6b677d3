"""The remarks and notes of a run's report on who may see its documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rag.access.rule import in_words, is_narrowed, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.rights.access_history import Narrowing, Recorded, document_name
from rag.ingest.source_paths import path_of
from rag.report.text_and_html import counted
from rag.store.write.access_claim import Claim, Policy
from rag.store.write.source_ids import PURGED

if TYPE_CHECKING:
    from rag.ingest.rights.requested_rights import Rights

MOST_NAMED = 3  # documents that are gone, in the notes of a run


class AccessReport:
    """Collects, while claims are made and settled, what the report says about access.

    `_reasons` are, by URI, why a document may get a narrower access than a new one, and `_gone` the removed
    document that it may be a new version of. `_successors` counts the documents that were narrowed because of
    a removed one, by its id. `_kept` are pairs of a source's access and what the run would give it.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.narrowed_folders: dict[str, Access] = {}
        self._recorded = recorded
        self._reasons: dict[str, str] = {}
        self._gone: dict[str, AccessRecord] = {}
        self._successors: Counter[str] = Counter()
        self._kept: list[tuple[Access | None, Access]] = []

    def note_narrowing(self, uri: str, floor: Narrowing) -> None:
        """Note why a document may get a narrower access than a new one."""
        self._reasons[uri] = floor.reason
        if floor.gone:
            self._gone[uri] = floor.gone

    def note_container(self, uri: str) -> None:
        """Note that a part's container may narrow its access, unless there is a nearer reason."""
        self._reasons[uri] = self._reasons.get(uri) or "as what contains it"

    def note_kept(self, access: Access | None, run_access: Access | None, *, by_command: bool) -> None:
        """Note a source that keeps its record although the run or the rules give its path other rights."""
        if run_access and (
            (by_command and not same_access(access, run_access)) or is_narrowed(run_access, access)
        ):
            self._kept.append((access, run_access))

    def remarks(self, uri: str, claim: Claim, record: AccessRecord) -> Iterator[str]:
        """The remarks on the access that a source got."""
        before, access = self._recorded.by_id.get(record.id), record.access
        is_unchanged = before and same_access(before.access, access)
        if before and not before.present:
            yield "it is back, with its earlier rights" if is_unchanged else "it is back"
        if claim.policy.is_sync and is_narrowed(access, claim.access):
            yield f"its origin says {in_words(claim.access)}, but somebody narrowed it by hand"
        if before and not is_unchanged:
            reason = self._reasons.get(uri)
            yield f"now {in_words(access)}" + (f": {reason}" if reason else "")
        elif claim.policy.is_sync:
            return
        elif (before is None and not same_access(claim.access, access)) or self._narrows(claim, access):
            yield f"{in_words(access)}: {self._reasons.get(uri) or 'others have narrower rights'}"
            if gone := self._gone.get(uri):
                self._successors[gone.id] += 1
        requested = claim.requested_access
        new_request = before is None or before.requested != claim.requested
        if requested and not same_access(requested, access) and new_request:
            yield f"it requests to be {in_words(requested)}, which is wider; it is {in_words(access)}"

    def _narrows(self, claim: Claim, access: Access | None) -> bool:
        """Whether a document of the floor is wider than the access that resulted."""
        floor_records = (self._recorded.by_id.get(id_) for id_ in claim.floor)
        return claim.policy is not Policy.REPLACE and any(
            is_narrowed(access, record.access) for record in floor_records if record
        )

    def notes(self, paths: Iterable[Path], rights: Rights) -> Iterator[str]:
        """Notes on the access of the run's documents as a whole."""
        for uri, access in self.narrowed_folders.items():
            yield (
                f"New files in {path_of(uri)} are {in_words(access)}, because it or a folder above it was "
                "ingested that way before. Add --set-access to change that."
            )
        for id_, number in self._successors.most_common(MOST_NAMED):
            gone = self._recorded.by_id[id_]
            new, each, none = f"{number} new documents are", "each", "none is"
            if number == 1:
                new, each, none = "1 new document is", "this one", "it isn't"
            yield (
                f"{new} no more widely visible than {document_name(gone)} was. That is gone, and {each} "
                f"could be a new version of it. If {none}, run {_forgetting(gone)}, and refdesk-admin access "
                "set for what is new."
            )
        for pattern in rights.unmatched(paths):
            yield f"The access rule for {pattern} matched no file."
        if self._kept:
            wider = sum(1 for access, run_access in self._kept if is_narrowed(run_access, access))
            sources = counted(len(self._kept), "source")
            keep = "keeps its" if len(self._kept) == 1 else "keep their"
            yield (
                f"{sources} {keep} earlier rights, although the command or the rules give others. "
                f"{counted(wider, 'source')} would be less widely visible. Add --set-access to change them."
            )


def _forgetting(gone: AccessRecord) -> str:
    """The command that stops a removed document from narrowing others."""
    name = gone.id if gone.uri.startswith(PURGED) else path_of(gone.uri)
    return f"refdesk-admin remove --forget --collection {gone.collection} {quote(name)}"
