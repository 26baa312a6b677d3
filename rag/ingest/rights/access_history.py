"""The access records that could belong to the documents of a run, and what its report says of their access.

Files are renamed, moved, copied, edited, deleted, and restored from backups, often several of these between
two runs. A document is recognized by its URI or by its content, present or earlier. A new document that
neither recognizes may still be an edited version of one that is gone from its folder, or of one that had its
name. `access_decision` says which of these records count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rag.access.rule import in_words, is_narrowed, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.source_files import folder_of, name_of, path_of
from rag.report.text_and_html import counted
from rag.store.read.schema import original_id
from rag.store.write.access_claim import Claim, Policy
from rag.store.write.access_writer import folder_records
from rag.store.write.source_ids import PURGED

if TYPE_CHECKING:
    from rag.ingest.rights.requested_rights import Rights


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ids of the records that a source must not be wider than, and the reason, for the report.

    `gone` is the record of a removed document if the source may be a new version of it.
    """

    ids: frozenset[str] = frozenset()
    reason: str = ""
    gone: AccessRecord | None = None

    def __or__(self, second: Narrowing) -> Narrowing:
        """Both sets of ids, with the reason of the first that has one."""
        return Narrowing(self.ids | second.ids, self.reason or second.reason, self.gone or second.gone)


NONE = Narrowing()
FEW = 50
"""With more candidates than this, two records of each kind represent all (`_standing_for`)."""


class Recorded:
    """The access records at the start of a run, indexed. `purged` maps a URI to what a purge leaves of it.

    `_groups` caches the representatives of the records of a content, a folder or a name: a folder can have
    thousands of records, and thousands of new files can come into it.
    """

    def __init__(
        self, records: Mapping[str, AccessRecord], purged: Callable[[str], str] = lambda uri: uri
    ) -> None:
        self.by_id = records
        self._purged = purged
        self.folders = {record.uri: record.access for record in folder_records(records) if record.access}
        self._missing: dict[str, AccessRecord] = {}
        self._new: set[str] = set()
        self._missing_of_name: dict[str, list[AccessRecord]] = defaultdict(list)
        self._groups: dict[tuple[str, str], Sequence[AccessRecord]] = {}

    # Both indexes are made when a document is new, changed or moved: a run without any needs no records.

    @cached_property
    def _known_by(self) -> Mapping[str, list[AccessRecord]]:
        index: dict[str, list[AccessRecord]] = defaultdict(list)
        for record in self._of_documents():
            for known_by in (record.uri, record.content, *record.former):
                index[known_by].append(record)
        return index

    @cached_property
    def _by_folder(self) -> Mapping[str, list[AccessRecord]]:
        index: dict[str, list[AccessRecord]] = defaultdict(list)
        for record in self._of_documents():
            index[folder_of(record.uri)].append(record)
        return index

    def _of_documents(self) -> Iterator[AccessRecord]:
        """The records of documents, without those of tags, which are history."""
        records = self.by_id.values()
        return (record for record in records if not record.is_folder and not original_id(record.id))

    def same_uri(self, id_: str, uri: str, access: Access | None) -> Narrowing:
        """The other records that have or had this URI."""
        records = self._known_by[uri] + self._known_by[self._purged(uri)]
        candidates = [record for record in records if record.id != id_]
        if not candidates:
            return NONE
        ids, narrowest = frozenset(record.id for record in candidates), _narrowest(candidates, access)
        if narrowest.uri in {uri, self._purged(uri)}:
            return Narrowing(ids, f"as in the collection {narrowest.collection}")
        return Narrowing(ids, f"{document_name(narrowest)} had this path before")

    def same_content(
        self, id_: str, content: str, access: Access | None, rights_at: Callable[[str], Hashable]
    ) -> Narrowing:
        """The other records that have or had this content; the file could be any of these documents.

        `rights_at` is a key for the rights that the place of a URI gives.
        """
        group = self._group("content", content, lambda: self._known_by[content], rights_at) if content else ()
        candidates = [record for record in group if record.id != id_]
        if not candidates:
            return NONE
        name = document_name(_narrowest(candidates, access))
        return Narrowing(
            frozenset(record.id for record in candidates), f"it has or had the same content as {name}"
        )

    def note_new(self, contents: Iterable[str]) -> None:
        """Note the contents of the new files."""
        self._new = {*contents}

    def is_elsewhere(self, record: AccessRecord) -> bool:
        """Whether a new file has this record's content: then its old URI may hold another document now."""
        return record.content in self._new

    def note_missing(self, ids: Iterable[str]) -> None:
        """Note the sources whose files are gone."""
        self._groups.clear()
        self._missing = {id_: self.by_id[id_] for id_ in ids}
        for record in self._missing.values():
            self._missing_of_name[name_of(record.uri)].append(record)

    def note_moved(self, record: AccessRecord, uri: str) -> None:
        """Note a document's new URI, so that it counts among the others of its new folder."""
        self._groups.clear()
        self._by_folder[folder_of(uri)].append(replace(record, uri=uri))

    def could_be(self, uri: str, access: Access | None) -> Narrowing:
        """The records that an unrecognized document must not be wider than.

        It could be an edited version of any document that is gone from its folder, or of one with its name
        that is missing elsewhere. Without such a document, the others of its folder count, but only if all of
        them are narrower than it would be: then it is probably as confidential as they are.
        """
        folders = {folder_of(uri), folder_of(self._purged(uri))}
        gone = [record for folder in folders for record in self._gone(folder) if record.uri != uri]
        gone += self._group("name", name_of(uri), lambda: self._missing_of_name[name_of(uri)])
        if gone:
            ids, narrowest = frozenset(record.id for record in gone), _narrowest(gone, access)
            reason = f"it could be a new version of {document_name(narrowest)}, which is gone"
            return Narrowing(ids, reason, narrowest)
        here = [record for folder in folders for record in self._here(folder) if record.uri != uri]
        if here and all(is_narrowed(record.access, access) for record in here):
            return Narrowing(frozenset(record.id for record in here), "as all other files of its folder")
        return NONE

    def _here(self, folder: str) -> Sequence[AccessRecord]:
        return self._group("folder", folder, lambda: self._by_folder[folder])

    def _gone(self, folder: str) -> Sequence[AccessRecord]:
        here = self._by_folder[folder]
        return self._group(
            "gone",
            folder,
            lambda: [record for record in here if not record.present or record.id in self._missing],
        )

    def _group(
        self,
        kind: str,
        name: str,
        records: Callable[[], Sequence[AccessRecord]],
        rights_at: Callable[[str], Hashable] = lambda _uri: None,
    ) -> Sequence[AccessRecord]:
        if (kind, name) not in self._groups:
            members = records()
            self._groups[kind, name] = _standing_for(members, rights_at) if len(members) > FEW else members
        return self._groups[kind, name]


def _standing_for(
    records: Iterable[AccessRecord], rights_at: Callable[[str], Hashable]
) -> list[AccessRecord]:
    """The first two records of each kind, so that one is left for a document whose own record is the other.

    Records of a kind have the same access, at places that give the same rights, so they are interchangeable.
    """
    by_kind: dict[Hashable, list[AccessRecord]] = defaultdict(list)
    for record in records:
        access = record.access and (record.access.visibility, record.access.allow, record.access.deny)
        kind = by_kind[access, rights_at(record.uri)]
        if len(kind) < 2 and all(earlier.uri != record.uri for earlier in kind):  # noqa: PLR2004 as it says
            kind.append(record)
    return [record for kind in by_kind.values() for record in kind]


def _narrowest(records: Sequence[AccessRecord], access: Access | None) -> AccessRecord:
    """The record to name in the report: one that is narrower than `access`, else the first."""
    return next((record for record in records if is_narrowed(record.access, access)), records[0])


def document_name(record: AccessRecord) -> str:
    """The document of a record, for people."""
    return "a purged source" if record.uri.startswith(PURGED) else path_of(record.uri)


BACK_AS_BEFORE = "it is back, with its earlier rights"
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
            yield BACK_AS_BEFORE if is_unchanged else "it is back"
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
            new, each, none, new_ones = f"{number} new documents are", "each", "none is", "the new documents"
            if number == 1:
                new, each, none, new_ones = "1 new document is", "it", "it isn't", "the new document"
            yield (
                f"{new} restricted like {document_name(gone)}, which is gone, because {each} may be a new "
                f"version of it. If {none}, run {_forgetting(gone)}, and then refdesk-admin access set for "
                f"{new_ones}."
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
