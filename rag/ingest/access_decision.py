"""Decides who may see a document of a run, by a table of situations, and claims that access.

Files are renamed, moved, copied, edited, deleted, and restored from backups, often several of these between
two runs, and a run sees only their result. So it first finds the document's `Situation`: its relation to the
stored sources and the access records. The `TABLE` then says what counts, and `Claims` applies it.

A document is recognized by its URI or by its content, present or earlier (`Recorded`). An unrecognized one
may still be an edited version of a document that is gone from its folder, or had its name. If a file could be
any of several documents, it gets only the access that all of them have (fail closed): a wrong guess may hide
a document, but never expose one.

`rag.store.write.access_claim` settles the claims under the tenant's lock, so that concurrent changes count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.rule import is_narrowed, narrower, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.report import AccessReport
from rag.ingest.source_files import (
    LocalFile,
    container_places,
    document_name,
    folder_of,
    name_of,
    place_of,
    renamed_folders,
)
from rag.store.read.schema import original_id
from rag.store.write.access_claim import Claim, Policy, until_stored
from rag.store.write.access_writer import folder_records
from rag.store.write.desk_folder import PURGED
from rag.store.write.table_rows import KnownSource

if TYPE_CHECKING:
    from rag.ingest.discover import Discovery
    from rag.ingest.requested_access import Rights


class Situation(Enum):
    """How a document relates to the stored sources and the access records, which outlive the sources."""

    ORIGIN = "its origin decides who may see it"
    ORIGIN_SET = "its origin decides, and the run replaces what was set by hand (--set-access)"
    SET = "the run replaces records (--set-access)"
    SAME = "stored at this URI with this content"
    EDITED = "stored at this URI with other content"
    DISPLACED = "as EDITED, but the stored content is now at another URI: this may be another document"
    MOVED = "stored with this content at a URI whose file is gone"
    BACK = "removed earlier, and at its URI again with its content"
    BACK_CHANGED = "removed earlier, and at its URI again with other content: this may be another document"
    NEW = "without a record at this URI"


class Place(Enum):
    """When the access of a document's place, by command, folders and rules, narrows its record."""

    ALWAYS = "always"
    SAYS = "if any of them applies to its place"
    CHANGED = "if it differs from the access of its place before this run"
    OLD_PLACE = "if it differs from the access of the place that it moved from"
    OTHER_PLACES = "if it differs from the access of the place of a document of the floor"
    NEVER = "never"


class Floor(Enum):
    """Documents that this one could be. It is never more widely visible than their records (the floor)."""

    CONTENT = "documents that have or had its content"
    URI = "documents that have or had its URI"
    GONE = "if none had its content: documents gone from its folder or with its name, or all of its folder"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: the policy for the document's record, and what narrows it.

    `Policy.KEEP` becomes `NARROW` if the access of the place counts.
    """

    policy: Policy
    place_counts: Place
    floor: tuple[Floor, ...] = ()


_COULD_BE = (Floor.CONTENT, Floor.URI, Floor.GONE)

# fmt: off
TABLE: Mapping[Situation, Row] = {
    #                           its own record   the access of its place  never wider than the records of
    Situation.NEW:          Row(Policy.KEEP,     Place.ALWAYS,            _COULD_BE),
    Situation.SAME:         Row(Policy.KEEP,     Place.NEVER),
    Situation.EDITED:       Row(Policy.KEEP,     Place.OTHER_PLACES,      (Floor.CONTENT, Floor.URI)),
    Situation.DISPLACED:    Row(Policy.KEEP,     Place.SAYS,              _COULD_BE),
    Situation.MOVED:        Row(Policy.KEEP,     Place.OLD_PLACE,         (Floor.CONTENT,)),
    Situation.BACK:         Row(Policy.KEEP,     Place.CHANGED),
    Situation.BACK_CHANGED: Row(Policy.KEEP,     Place.ALWAYS,            _COULD_BE),
    Situation.SET:          Row(Policy.REPLACE,  Place.ALWAYS),
    Situation.ORIGIN:       Row(Policy.SYNC,     Place.ALWAYS),
    Situation.ORIGIN_SET:   Row(Policy.SYNC_ALL, Place.ALWAYS),
}
# fmt: on
"""A kept record can only become narrower: moving a file into a confidential folder hides it, but moving it
into an open one doesn't expose it. In all rows the containers of a part belong to its floor, and a document's
own request narrows its record when the request changes."""


def situation(
    uri: str,
    content: str,
    record: AccessRecord | None,
    stored_at: str | None,
    *,
    is_elsewhere: Callable[[AccessRecord], bool],
) -> Situation:
    """The situation of a document if neither its origin nor `--set-access` decides.

    `record` is the record of its id. `stored_at` is the URI at which its source is stored, None if it isn't.
    `is_elsewhere` says whether a new file has the content of a record.
    """
    if record is None:
        return Situation.NEW
    if stored_at is None or not record.present:  # rows of a removed source can still be stored for a while
        return Situation.BACK if record.content == content else Situation.BACK_CHANGED
    if record.content != content:
        return Situation.DISPLACED if is_elsewhere(record) else Situation.EDITED
    return Situation.SAME if stored_at == uri else Situation.MOVED


class Claims:
    """Makes the claims of a run's documents, from the rights of the run and the tenant's records.

    `id_of` returns the id of the source at a URI. The `report` collects the reasons for narrower access.
    """

    def __init__(self, rights: Rights, recorded: Recorded, id_of: Callable[[str], str]) -> None:
        self.rights = rights
        self.report = AccessReport(recorded.by_id)
        self._recorded = recorded
        self._id_of = id_of
        self._by_origin: Mapping[str, Access] = {}
        self._around: Callable[[LocalFile], Iterable[str]] = lambda _file: ()

    def learn(self, discovery: Discovery) -> None:
        """Note the rights that origins decide, the containers of parts, and the paths named by links."""
        self._by_origin, self._around = discovery.rights, discovery.around
        self.rights = replace(self.rights, links=tuple(discovery.links))

    # The claims, by the row of a document.

    def of_document(
        self, file: LocalFile, metadata: Mapping[str, str], content: str, id_: str, stored: KnownSource | None
    ) -> Claim:
        """The claim of a parsed document. `stored` is the source that it updates or moved from.

        Raises:
            WithheldError: the access that it requests is invalid.
        """
        if synced := self._synced_claim(file, content):
            return synced
        # Even where only a record counts: an invalid request of the document itself withholds it.
        claim = self._requested_claim(file, metadata, content)
        if self.rights.set_access:
            return self._situation_claim(Situation.SET, claim, file)
        record = stored.record if stored else self._recorded.by_id.get(id_)
        stored_at = stored.uri if stored else None
        here = situation(file.uri, content, record, stored_at, is_elsewhere=self._recorded.is_elsewhere)
        return self._situation_claim(here, claim, file, id_, stored)

    def of_moved(self, stored: KnownSource, file: LocalFile) -> Claim:
        """The claim of a source that moved and whose text stays."""
        record = stored.record
        if synced := self._synced_claim(file, record.content):
            return synced
        claim = Claim(self._run_access(file), content=record.content, requested=record.requested)
        return self._situation_claim(Situation.MOVED, claim, file, stored.id, stored)

    def of_unchanged(
        self, stored: KnownSource, file: LocalFile, content: str, metadata: Mapping[str, str] | None
    ) -> Claim | None:
        """The claim of a source whose file stays as it is; None if nothing can change its access.

        `metadata` is given if the run must read the document's own request.

        Raises:
            WithheldError: the access that it requests is invalid.
        """
        if synced := self._synced_claim(file, content):
            return synced
        if metadata is not None:
            requested = self._requested_claim(file, metadata, content)
        else:
            record = stored.record
            requested = Claim(record.access, content=record.content, requested=record.requested)
        here = Situation.SET if self.rights.set_access else Situation.SAME
        claim = self._situation_claim(here, requested, file, stored.id, stored)
        return claim if metadata is not None or claim.floor else None

    def narrowed_at_once(self, sources: Iterable[KnownSource]) -> dict[str, tuple[str, Claim]]:
        """Claims that only narrow sources whose origin decides, with their URIs, by id."""
        if not self._by_origin:
            return {}
        claims = (
            (stored, self._origin_claim(stored.uri, place_of(stored.uri), stored.record.content))
            for stored in sources
        )
        return {stored.id: (stored.uri, until_stored(claim)) for stored, claim in claims if claim}

    def _requested_claim(self, file: LocalFile, metadata: Mapping[str, str], content: str) -> Claim:
        """The claim of a new document, by command, folders and rules, and by its own request."""
        inside = container_places(file.uri)
        return self.rights.claim(file.path, metadata, content, around=inside, requests=file.requests)

    def is_synced(self, uri: str) -> bool:
        """Whether the origin of the document at a URI decides who may see it."""
        return uri.partition("#")[0] in self._by_origin

    def _synced_claim(self, file: LocalFile, content: str) -> Claim | None:
        """The claim of a document whose origin decides who may see it, or of its part; None for others."""
        claim = self._origin_claim(file.uri, file.path, content)
        return claim and self._within_container(claim, file)

    def _origin_claim(self, uri: str, path: Path, content: str) -> Claim | None:
        """As `_synced_claim`, without the containers of a part."""
        by_origin = self._by_origin.get(uri.partition("#")[0])
        if by_origin is None:
            return None
        # The settings of the origin or its path are an upper limit.
        limit = self.rights.of_path(path, around=container_places(uri))
        access = narrower(limit, by_origin) if limit else by_origin
        here = Situation.ORIGIN_SET if self.rights.set_access else Situation.ORIGIN
        return Claim(access, TABLE[here].policy, content=content)

    def _situation_claim(
        self,
        here: Situation,
        requested: Claim,
        file: LocalFile,
        id_: str = "",
        stored: KnownSource | None = None,
    ) -> Claim:
        """The claim of a document in this situation, by its row of the table."""
        row = TABLE[here]
        floor = self._floor(row, requested, file, id_, stored)
        narrows = row.policy is Policy.KEEP and self._counts(row.place_counts, file, stored, floor)
        policy = Policy.NARROW if narrows else row.policy
        if stored and row.policy is Policy.KEEP and not (narrows and here is Situation.MOVED):
            by_command = self.rights.command is not None
            self.report.note_kept(stored.record.access, self._run_access(file), by_command=by_command)
        claim = replace(requested, policy=policy, floor=floor.ids, reason=floor.reason, gone=floor.gone)
        return self._within_container(claim, file)

    def _floor(
        self, row: Row, requested: Claim, file: LocalFile, id_: str, stored: KnownSource | None
    ) -> Narrowing:
        """The documents that this one could be, by the kinds that the row names."""
        uri, floor = file.uri, NONE
        # Only the report depends on this access: it names a document whose record is narrower.
        access = stored.record.access if stored and stored.uri != uri else requested.access
        if Floor.CONTENT in row.floor:
            floor = self._recorded.same_content(id_, requested.content, access, self._rights_at)
        is_recognized = bool(floor.ids)  # then nothing else is to be guessed
        if Floor.URI in row.floor:
            floor |= self._recorded.same_uri(id_, uri, access)
        if Floor.GONE in row.floor and not is_recognized:
            floor |= self._recorded.could_be(uri, access)
        return floor

    def _counts(
        self, place_counts: Place, file: LocalFile, stored: KnownSource | None, floor: Narrowing
    ) -> bool:
        """Whether the access that the run gives a document's place narrows its record."""
        match place_counts:
            case Place.ALWAYS:
                return True
            case Place.SAYS:
                return self._run_access(file) is not None
            case Place.CHANGED:
                return self._rights_changed(file)
            case Place.OLD_PLACE:
                return stored is not None and self._rights_differ(stored.uri, file)
            case Place.OTHER_PLACES:
                return any(self._rights_differ(self._recorded.by_id[id_].uri, file) for id_ in floor.ids)
            case Place.NEVER:
                return False

    def _within_container(self, claim: Claim, file: LocalFile) -> Claim:
        """The claim with the containers of a part in its floor: a part can't be more visible than these."""
        containers = {self._id_of(container) for container in self._around(file)}
        if not containers:
            return claim
        return replace(claim, floor=claim.floor | containers, reason=claim.reason or "as what contains it")

    # The access of a place by command, folders and rules, now and before.

    def _run_access(self, file: LocalFile) -> Access | None:
        return self.rights.of_path(file.path, around=container_places(file.uri))

    def _earlier_access(self, uri: str) -> Access | None:
        return self.rights.of_path(place_of(uri), by_command=False, around=container_places(uri))

    def _rights_differ(self, before: str, file: LocalFile) -> bool:
        """Whether a document's place gives other rights than its former URI."""
        if before == file.uri:
            return False
        access = self._run_access(file)
        if before.startswith(PURGED):  # the rights of its path are unknown
            return access is not None
        return access is not None and not same_access(self._earlier_access(before), access)

    def _rights_at(self, uri: str) -> Hashable:
        """A key for `_rights_differ`: URIs with equal keys gave the same rights."""
        if uri.startswith(PURGED):
            return PURGED
        access_before = self._earlier_access(uri)
        return access_before and (access_before.visibility, access_before.allow, access_before.deny)

    def _rights_changed(self, file: LocalFile) -> bool:
        """Whether this run gives a place other rights than the place had before."""
        earlier = replace(self.rights, folders=self._recorded.folders, stated={})
        outer = container_places(file.uri)
        before = earlier.of_path(file.path, by_command=False, around=outer)
        access = self._run_access(file)
        return access is not None and not same_access(before, access)

    # The access that folders were ingested with; it counts for files that appear in them later.

    def remember(self, folders: Iterable[Path]) -> dict[str, Access]:
        """The access to record for folders that this command ingests, by URI; changes only.

        Without `set_access`, a folder's access can only become narrower than it was, or than the access of
        the nearest recorded folder above it. The folders inside it are narrowed, too. A folder that was named
        by a link is recorded under both names: later the link may lead elsewhere.
        """
        remembered = dict(self._recorded.folders)
        if command := self.rights.command:
            new_access = command.record(self.rights.usual)
            for folder in (name for real in folders for name in self.rights.names_of_folder(real)):
                uri, *above = (path.as_uri() for path in (folder, *folder.parents))
                before = next(
                    (remembered[outer] for outer in (uri, *above) if outer in remembered), new_access
                )
                below = {inner: access for inner, access in remembered.items() if inner.startswith(f"{uri}/")}
                for inner, access in (below | {uri: before}).items():
                    remembered[inner] = (
                        self.rights.stated_of_folder(inner, new_access)
                        if self.rights.set_access
                        else narrower(access, new_access) or new_access
                    )
                if not same_access(remembered[uri], new_access):
                    self.report.narrowed_folders[uri] = remembered[uri]
        self.rights = replace(self.rights, folders=remembered)
        earlier = self._recorded.folders
        return {uri: access for uri, access in remembered.items() if access != earlier.get(uri)}

    def follow(self, moved: Iterable[tuple[str, str]]) -> dict[str, Access]:
        """The access to record for folders whose files moved, by URI: a renamed folder keeps its access."""
        folders = dict(self.rights.folders)
        for old, new in renamed_folders(moved, folders).items():
            here = folders.get(new, folders[old])
            folders[new] = narrower(here, folders[old]) or here
            if not same_access(folders[new], here):
                self.report.narrowed_folders[new] = folders[new]
        before, self.rights = self.rights.folders, replace(self.rights, folders=folders)
        return {uri: access for uri, access in folders.items() if access != before.get(uri)}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ids of the records that limit a source's access, and the reason, for the report.

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
    """The access records at the start of a run, indexed. `purged` maps a URI to its pseudonym after a purge.

    `_groups` caches the representatives of the records of a content, a folder or a name: a folder can have
    thousands of records, and get thousands of new files.
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

    # Both indexes are made on first use: a run without new, changed or moved documents needs no records.

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
        """The records of documents, except those in tags."""
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
        """Note a document's new URI, so that it counts as a document of its new folder."""
        self._groups.clear()
        self._by_folder[folder_of(uri)].append(replace(record, uri=uri))

    def could_be(self, uri: str, access: Access | None) -> Narrowing:
        """The records that limit an unrecognized document.

        It could be an edited version of any document that is gone from its folder, or of one with its name
        that is missing elsewhere. Without such a document, the other documents of its folder count, but only
        if all are narrower than it would be: then it is probably as confidential. For a new folder, all
        documents below the nearest folder above that has documents of its own count.
        """
        folders = {folder_of(uri), folder_of(self._purged(uri))}
        gone = [record for folder in folders for record in self._gone(folder) if record.uri != uri]
        gone += self._group("name", name_of(uri), lambda: self._missing_of_name[name_of(uri)])
        if gone:
            ids, narrowest = frozenset(record.id for record in gone), _narrowest(gone, access)
            reason = f"it could be a new version of {document_name(narrowest)}, which is gone"
            return Narrowing(ids, reason, narrowest)
        here = [record for folder in folders for record in self._here(folder) if record.uri != uri]
        nearby = here or self._around(folder_of(uri))
        if nearby and all(is_narrowed(record.access, access) for record in nearby):
            files, where = ("other files", "of its folder") if here else ("files", "around its new folder")
            are_alike = all(same_access(record.access, nearby[0].access) for record in nearby)
            reason = f"as all {files} {where}"
            if not are_alike:
                reason = f"no wider than any of the {files} {where}, which are all narrower"
            return Narrowing(frozenset(record.id for record in nearby), reason)
        return NONE

    def _around(self, folder: str) -> Sequence[AccessRecord]:
        """The records below the nearest folder above this one that has documents of its own."""
        while folder := folder.rpartition("/")[0]:
            if self._by_folder.get(folder):
                return self._group("around", folder, partial(self._below, folder))
        return ()

    def _below(self, folder: str) -> list[AccessRecord]:
        inside = (records for path, records in self._by_folder.items() if f"{path}/".startswith(f"{folder}/"))
        return [record for records in inside for record in records]

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
    """The first two records of each kind: a document may have one of them itself, and then the other counts.

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
    """The record to name in the report: the first one narrower than `access`, else the first."""
    return next((record for record in records if is_narrowed(record.access, access)), records[0])
