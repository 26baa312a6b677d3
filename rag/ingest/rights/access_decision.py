"""Who may see a document of a run: the table that decides it, and the claims that follow from it.

Files are renamed, moved, copied, edited, deleted and restored, and a run sees only what is there now. So it
tells first what a document is to what is stored and recorded (`Situation`); the table then says what counts.
Where a file could be any of several documents, it gets only the access that all of them have (fail closed): a
wrong guess may hide a document, but never expose one.

`rag.store.write.access_claim` settles the claims under the tenant's lock, where changes of the same moment
count, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rag.access.rule import in_words, is_narrowed, narrower, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.rights.possible_access import NONE, Narrowing, Recorded, document_name
from rag.ingest.source_files import (
    LocalFile,
    container_places,
    path_of,
    place_of,
    renamed_folders,
)
from rag.report.text_and_html import counted
from rag.store.write.access_claim import Claim, Policy, until_stored
from rag.store.write.desk_folder import PURGED
from rag.store.write.table_rows import KnownSource

if TYPE_CHECKING:
    from rag.ingest.discover import Discovery
    from rag.ingest.rights.possible_access import Rights


class Situation(Enum):
    """How a document relates to the stored sources and the access records, which outlive the sources."""

    ORIGIN = "its origin decides who may see it"
    ORIGIN_SET = "its origin decides, and the run replaces what was set by hand (--set-access)"
    SET = "the run replaces records (--set-access)"
    SAME = "stored at this URI with this content"
    EDITED = "stored at this URI with other content"
    DISPLACED = "as EDITED, but what was stored here lies elsewhere now: this may be another document"
    MOVED = "stored with this content at a URI whose file is gone"
    BACK = "removed earlier, and at its URI again with its content"
    BACK_CHANGED = "removed earlier, and at its URI again with other content: this may be another document"
    NEW = "without a record at this URI"


class Place(Enum):
    """When the access that command, folders and rules give a document's place narrows its record."""

    ALWAYS = "always"
    SAYS = "if they say anything of its place"
    CHANGED = "if they give its place another access than they did before this run"
    OLD_PLACE = "if they give its place another access than the place that it moved from"
    OTHER_PLACES = "if they give its place another access than the place of a document of the floor"
    NEVER = "never"


class Floor(Enum):
    """Other documents that this one could be, so that it is never more widely visible than their records."""

    CONTENT = "those that have or had its content"
    URI = "those that have or had its URI"
    GONE = "if none has its content: those gone from its folder or with its name, or all others of its folder"


@dataclass(frozen=True, slots=True)
class Row:
    """What counts in a situation: what becomes of the document's record, and what narrows it.

    A `Policy.KEEP` becomes `NARROW` if the access of the place counts.
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
"""A record that is kept can only become narrower: so moving a file into a confidential folder hides it, but
moving it into an open one doesn't expose it. In all rows the containers of a part belong to its floor, and a
document's own request narrows its record when it changes."""


def situation(
    uri: str,
    content: str,
    record: AccessRecord | None,
    stored_at: str | None,
    *,
    is_elsewhere: Callable[[AccessRecord], bool],
) -> Situation:
    """What a document is that neither an origin nor `--set-access` decides on.

    `record` is the one of its id. `stored_at` is the URI at which its source is stored, None if it isn't.
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
    """The claims of a run's documents: by the rights of the run and by the tenant's records.

    `id_of` is the id of the source at a URI. The `report` learns why a document gets less than a new one.
    """

    def __init__(self, rights: Rights, recorded: Recorded, id_of: Callable[[str], str]) -> None:
        self.rights = rights
        self.report = AccessReport(recorded)
        self._recorded = recorded
        self._id_of = id_of
        self._by_origin: Mapping[str, Access] = {}
        self._around: Callable[[LocalFile], Iterable[str]] = lambda _file: ()

    def learn(self, discovery: Discovery) -> None:
        """Note the rights that origins decide, the containers of parts, and what was named by links."""
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
        if synced := self._synced_claim(file.uri, file.path, content):
            return self._within_container(synced, file)
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
        if synced := self._synced_claim(file.uri, file.path, record.content):
            return self._within_container(synced, file)
        claim = Claim(self._run_access(file), content=record.content, requested=record.requested)
        return self._situation_claim(Situation.MOVED, claim, file, stored.id, stored)

    def of_unchanged(
        self, stored: KnownSource, file: LocalFile, content: str, metadata: Mapping[str, str] | None
    ) -> Claim | None:
        """The claim of a source whose file stays as it is; None if nothing can change its access.

        `metadata` is given if the run asks what the document requests for itself.

        Raises:
            WithheldError: the access that it requests is invalid.
        """
        if synced := self._synced_claim(stored.uri, file.path, content):
            return self._within_container(synced, file)
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
            (stored, self._synced_claim(stored.uri, place_of(stored.uri), stored.record.content))
            for stored in sources
        )
        return {stored.id: (stored.uri, until_stored(claim)) for stored, claim in claims if claim}

    def _requested_claim(self, file: LocalFile, metadata: Mapping[str, str], content: str) -> Claim:
        """What a new document gets: by command, folders and rules, and by its own request."""
        inside = container_places(file.uri)
        return self.rights.claim(file.path, metadata, content, around=inside, requests=file.requests)

    def is_synced(self, uri: str) -> bool:
        """Whether the origin of the document at a URI decides who may see it."""
        return uri.partition("#")[0] in self._by_origin

    def _synced_claim(self, uri: str, path: Path, content: str) -> Claim | None:
        """The claim of a document whose origin decides who may see it, or of its part; None for others."""
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
        if row.floor:
            self.report.note_narrowing(file.uri, floor)
        return self._within_container(replace(requested, policy=policy, floor=floor.ids), file)

    def _floor(
        self, row: Row, requested: Claim, file: LocalFile, id_: str, stored: KnownSource | None
    ) -> Narrowing:
        """The documents that this one could be, by the kinds that the row names."""
        uri, floor = file.uri, NONE
        # Only the report depends on this access: it names a document that keeps out whom this lets in.
        access = stored.record.access if stored and stored.uri != uri else requested.access
        if Floor.CONTENT in row.floor:
            floor = self._recorded.same_content(id_, requested.content, access, self._rights_at)
        is_recognized = bool(floor.ids)
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
        self.report.note_container(file.uri)
        return replace(claim, floor=claim.floor | containers)

    # What command, folders and rules give a place, now and before.

    def _run_access(self, file: LocalFile) -> Access | None:
        return self.rights.of_path(file.path, around=container_places(file.uri))

    def _earlier_access(self, uri: str) -> Access | None:
        return self.rights.of_path(place_of(uri), by_command=False, around=container_places(uri))

    def _rights_differ(self, before: str, file: LocalFile) -> bool:
        """Whether a document's place gives other rights than the URI where it was before."""
        if before == file.uri:
            return False
        access = self._run_access(file)
        if before.startswith(PURGED):  # nobody knows any more what its path gave
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

    # What folders were ingested with: it counts for what appears in them later.

    def remember(self, folders: Iterable[Path]) -> dict[str, Access]:
        """The changes to record of folders, by URI, now that these are ingested by this command.

        Without `set_access`, a folder's access can only become narrower than it was, or than the access of
        the nearest recorded folder above it. The folders inside it are narrowed, too. A folder that was named
        by a link is recorded by both names: tomorrow the link may lead elsewhere.
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
        """The changes to record of folders, by URI, whose files moved: a renamed folder keeps its access."""
        folders = dict(self.rights.folders)
        for old, new in renamed_folders(moved, folders).items():
            here = folders.get(new, folders[old])
            folders[new] = narrower(here, folders[old]) or here
            if not same_access(folders[new], here):
                self.report.narrowed_folders[new] = folders[new]
        before, self.rights = self.rights.folders, replace(self.rights, folders=folders)
        return {uri: access for uri, access in folders.items() if access != before.get(uri)}


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
