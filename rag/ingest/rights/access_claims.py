"""The access claim of each document of a run, and what the report says about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rag.access.rule import in_words, is_narrowed, narrower, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.rights.access_history import Recorded, document_name
from rag.ingest.source_paths import around, path_of, place_of
from rag.ingest.vanished_sources import renamed_folders
from rag.store.write.access_claim import Claim, Policy, until_stored
from rag.store.write.source_ids import PURGED

if TYPE_CHECKING:
    from rag.ingest.discover import Discovery
    from rag.ingest.local_files import LocalFile
    from rag.ingest.rights.requested_rights import Rights
    from rag.store.write.table_rows import KnownSource

MOST_NAMED = 3  # documents that are gone, in the notes of a run


class Claims:
    """The claims of a run's documents: by the rights of the run and by the tenant's records.

    `id_of` is the id of the source at a URI.
    `_reasons` tells, by URI, why a document may get a narrower access than it would have as a new one, and
    `_gone` which document it may be a new version of. `_successors` counts, by the id of such a
    document, those that got one for that.
    """

    def __init__(self, rights: Rights, recorded: Recorded, id_of: Callable[[str], str]) -> None:
        self.rights = rights
        self._recorded = recorded
        self._id_of = id_of
        self._reasons: dict[str, str] = {}
        self._gone: dict[str, AccessRecord] = {}
        self._successors: Counter[str] = Counter()
        self._kept: list[tuple[Access | None, Access]] = []
        self._narrowed_folders: dict[str, Access] = {}
        self._by_origin: Mapping[str, Access] = {}
        self._around: Callable[[LocalFile], Iterable[str]] = lambda _found: ()

    def learn(self, discovery: Discovery) -> None:
        """Note who may see documents whose origin decides that, and what contains others."""
        self._by_origin, self._around = discovery.rights, discovery.around

    def of_origin(self, uri: str, path: Path, content: str) -> Claim | None:
        """The claim of a document whose origin decides who may see it, or of a part of it; None for others.

        What the settings say of the origin, or of the path, is the most that it can get.
        """
        given = self._by_origin.get(uri.partition("#")[0])
        if given is None:
            return None
        most = self.rights.of_path(path, around=around(uri))
        access = narrower(most, given) if most else given
        policy = Policy.SYNC_ALL if self.rights.set_access else Policy.SYNC
        return Claim(access, policy, content=content)

    def narrowed_at_once(self, known: Iterable[KnownSource]) -> dict[str, tuple[str, Claim]]:
        """The claims, with URIs, by id, that only take rights away from sources whose origin decides."""
        claims = ((one, self.of_origin(one.uri, place_of(one.uri), one.record.content)) for one in known)
        return {one.id: (one.uri, until_stored(claim)) for one, claim in claims if claim}

    def remember(self, folders: Iterable[Path]) -> dict[str, Access]:
        """The changes to record of folders, by URI, now that these are ingested by this command.

        Without `set_access` the access of a folder can only become narrower than it was, or than that of the
        nearest recorded folder above it. The folders inside it are narrowed, too.
        """
        remembered = dict(self._recorded.folders)
        if command := self.rights.command:
            wanted = command.record(self.rights.usual)
            for folder in folders:
                uri, *above = (one.as_uri() for one in (folder, *folder.parents))
                before = next((remembered[one] for one in (uri, *above) if one in remembered), wanted)
                below = {one: access for one, access in remembered.items() if one.startswith(f"{uri}/")}
                for one, access in (below | {uri: before}).items():
                    remembered[one] = wanted if self.rights.set_access else narrower(access, wanted) or wanted
                if not same_access(remembered[uri], wanted):
                    self._narrowed_folders[uri] = remembered[uri]
        self.rights = replace(self.rights, folders=remembered)
        return {uri: one for uri, one in remembered.items() if one != self._recorded.folders.get(uri)}

    def follow(self, moved: Iterable[tuple[str, str]]) -> dict[str, Access]:
        """The changes to record of folders, by URI, whose files moved: a renamed folder keeps its access."""
        folders = dict(self.rights.folders)
        for old, new in renamed_folders(moved, folders).items():
            here = folders.get(new, folders[old])
            folders[new] = narrower(here, folders[old]) or here
            if not same_access(folders[new], here):
                self._narrowed_folders[new] = folders[new]
        before, self.rights = self.rights.folders, replace(self.rights, folders=folders)
        return {uri: one for uri, one in folders.items() if one != before.get(uri)}

    def of_document(
        self,
        found: LocalFile,
        metadata: Mapping[str, str],
        content: str,
        id_: str,
        source: KnownSource | None,
    ) -> Claim:
        """The claim of a parsed document. `source` is the stored source that it updates or moved from.

        Raises:
            WithheldError: the access that it requests is invalid.
        """
        uri = found.uri
        if by_origin := self.of_origin(uri, found.path, content):
            return by_origin
        claim = self.of_new(found, metadata, content)
        if claim.policy is Policy.REPLACE:
            return claim
        if source and source.record.content == content:
            return self._moved(claim, source, found)
        if source:
            self.note_kept(source, found)
        own = self._recorded.by_id.get(id_)
        if own and own.content == content:  # removed earlier, and back unchanged: the record is its own
            return _narrowing(claim, if_=self._rights_changed(found))
        narrowing = self._recorded.same_content(id_, content, claim.access, self._rights_at)
        is_known = bool(narrowing.ids)
        narrowing |= self._recorded.same_uri(id_, uri, claim.access)
        came_from = [self._recorded.by_id[one].uri for one in narrowing.ids]
        replaced = source is not None and self._recorded.is_elsewhere(source.record)
        if not is_known and (source is None or replaced):
            narrowing |= self._recorded.could_be(uri, claim.access)
        self._reasons[uri] = narrowing.reason
        if narrowing.gone:
            self._gone[uri] = narrowing.gone
        if replaced:  # another document may stand here now: the rights of new documents count as well
            changed = self._given(found) is not None
        else:
            changed = own is not None and source is None and self._rights_changed(found)
        moved = any(self._rights_differ(one, found) for one in came_from)
        return _narrowing(replace(claim, floor=narrowing.ids), if_=changed or moved)

    def of_new(self, found: LocalFile, metadata: Mapping[str, str], content: str) -> Claim:
        """The claim of a document that nothing is known of, by the rights of the run and its own request.

        Raises:
            WithheldError: the access that it requests is invalid.
        """
        inside = around(found.uri)
        return self.rights.claim(found.path, metadata, content, around=inside, requests=found.requests)

    def of_kept(self, source: KnownSource) -> Claim:
        """The claim of a source that nothing is said of anew: it keeps its record."""
        record = source.record
        return Claim(record.access, content=record.content, requested=record.requested)

    def of_part(self, claim: Claim, found: LocalFile) -> Claim:
        """The claim of a document, which is no more widely visible than what contains it, if it is a part."""
        ids = {self._id_of(outer) for outer in self._around(found)}
        if not ids:
            return claim
        self._reasons[found.uri] = self._reasons.get(found.uri) or "as what contains it"
        return replace(claim, floor=claim.floor | ids)

    def of_moved(self, source: KnownSource, found: LocalFile) -> Claim:
        """The claim of a source that moved and whose text stays: it keeps its record."""
        access, record = self._given(found), source.record
        if by_origin := self.of_origin(found.uri, found.path, record.content):
            return by_origin
        return self._moved(Claim(access, content=record.content, requested=record.requested), source, found)

    def _moved(self, claim: Claim, source: KnownSource, found: LocalFile) -> Claim:
        """The claim of a stored source with the same content, here or moved here.

        If several sources have this content, it is uncertain which one moved, so the narrowest of their
        records counts. If its new path gives other rights than its old one did, they narrow it, too: moving a
        file into a confidential folder hides it, but moving it into an open folder doesn't expose it.
        """
        differ = self._rights_differ(source.uri, found)
        if not differ:
            self.note_kept(source, found)
        claim = _narrowing(claim, if_=differ)
        if source.uri == found.uri:
            return claim
        record = source.record
        narrowing = self._recorded.same_content(source.id, record.content, record.access, self._rights_at)
        self._reasons[found.uri] = narrowing.reason
        return replace(claim, floor=narrowing.ids)

    def _rights_differ(self, before: str, found: LocalFile) -> bool:
        """Whether a document's place gives other rights than the URI where it was before."""
        if before == found.uri:
            return False
        access = self._given(found)
        if before.startswith(PURGED):  # nobody knows any more what its path gave
            return access is not None
        return access is not None and not same_access(self._given_before(before), access)

    def _given_before(self, uri: str) -> Access | None:
        return self.rights.of_path(place_of(uri), by_command=False, around=around(uri))

    def _rights_at(self, uri: str) -> Hashable:
        """What `_rights_differ` goes by, of a URI where a document was before."""
        if uri.startswith(PURGED):
            return PURGED
        given = self._given_before(uri)
        return given and (given.visibility, given.allow, given.deny)

    def _given(self, found: LocalFile) -> Access | None:
        return self.rights.of_path(found.path, around=around(found.uri))

    def _rights_changed(self, found: LocalFile) -> bool:
        """Whether this run gives a place other rights than the place had before."""
        earlier, outer = replace(self.rights, folders=self._recorded.folders), around(found.uri)
        before = earlier.of_path(found.path, by_command=False, around=outer)
        access = self._given(found)
        return access is not None and not same_access(before, access)

    def note_kept(self, source: KnownSource, found: LocalFile) -> None:
        """Note a source that keeps its record although the run or the rules give its path other rights."""
        given, access = self._given(found), source.record.access
        if given and ((self.rights.command and not same_access(access, given)) or is_narrowed(given, access)):
            self._kept.append((access, given))

    def remarks(self, uri: str, claim: Claim, record: AccessRecord) -> Iterator[str]:
        """What the report must say about the access that a source got."""
        before, access = self._recorded.by_id.get(record.id), record.access
        kept = before and same_access(before.access, access)
        if before and not before.present:
            yield "it is back, with its earlier rights" if kept else "it is back"
        if claim.policy.is_sync and is_narrowed(access, claim.access):
            yield f"its origin says {in_words(claim.access)}, but somebody narrowed it by hand"
        if before and not kept:
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
        """Whether the access is narrower than that of a document that this one may be."""
        known = (self._recorded.by_id.get(one) for one in claim.floor)
        return claim.policy is not Policy.REPLACE and any(
            is_narrowed(access, one.access) for one in known if one
        )

    def notes(self, paths: Iterable[Path]) -> Iterator[str]:
        """What the report must say about the rights of the run as a whole."""
        for uri, access in self._narrowed_folders.items():
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
        for pattern in self.rights.unmatched(paths):
            yield f"The access rule for {pattern} matched no file."
        if self._kept:
            wider = sum(1 for access, given in self._kept if is_narrowed(given, access))
            number = len(self._kept)
            kept = "1 source keeps its" if number == 1 else f"{number} sources keep their"
            yield (
                f"{kept} earlier rights, although the command or the rules give others; {wider} of them are "
                "more widely visible. Add --set-access to change them."
            )


def _narrowing(claim: Claim, *, if_: bool) -> Claim:
    return replace(claim, policy=Policy.NARROW) if if_ else claim


def _forgetting(gone: AccessRecord) -> str:
    """The command after which a document that is gone doesn't narrow others any more."""
    name = gone.id if gone.uri.startswith(PURGED) else path_of(gone.uri)
    return f"refdesk-admin remove --forget --collection {gone.collection} {quote(name)}"
