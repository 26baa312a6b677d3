"""What may decide the access of a document: what is requested for it, and the records that could be its own.

Requested is access by the command, the folders above the document, the rules, and the document itself.

Files are renamed, moved, copied, edited, deleted, and restored from backups, often several of these between
two runs. A document is recognized by its URI or by its content, present or earlier. A new document that
neither recognizes may still be an edited version of one that is gone from its folder, or of one that had its
name. `access_decision` says which of these records count; a document that has one keeps it.
"""

from __future__ import annotations

import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path

from rag.access.rule import check_access, is_narrowed, narrower, valid_entries
from rag.config.settings import AccessRule
from rag.corpus import Access, AccessRecord, Visibility
from rag.errors import ConfigurationError, WithheldError
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.ingest.source_files import folder_of, name_of, path_of
from rag.originals import local_path
from rag.store.read.schema import original_id
from rag.store.write.access_claim import Claim
from rag.store.write.access_writer import folder_records
from rag.store.write.desk_folder import PURGED


@dataclass(frozen=True, slots=True)
class RequestedAccess:
    """The access that a command, a rule or a document requests. `visibility` None: only lists were given."""

    visibility: Visibility | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def record(self, usual: Visibility) -> Access:
        """The access of a first record. Without a visibility, an allow list means restricted, else `usual`.

        Raises:
            ConfigurationError: visibility and lists contradict each other, or an entry is malformed.
        """
        check_access(self.visibility, self.allow, self.deny)
        visibility = self.visibility or ("restricted" if self.allow else usual)
        return Access(visibility, valid_entries(self.allow), valid_entries(self.deny), revision=1)


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides the access of new documents in a run.

    `command` is the request of the command line, for everything below its paths. `folders` are the accesses
    that folders, by URI, were ingested with before; the deepest folder counts. `rules` are from the settings;
    the first match counts. `stated` are the accesses that origins in the settings state for their folders, by
    URI; here, too, the deepest counts, whichever origin brings a document in. With `of_documents`, documents
    may request access themselves. If several of these apply, the narrowest access results, except that the
    command overrides rules, and with `set_access` everything but `stated`. If none applies, it is `usual`,
    the collection's visibility for new documents.

    `links` are what this run reads by other names than it has, as pairs: where a path without links leads,
    and the path as it was named. What is said of either place counts for what is there.
    """

    usual: Visibility
    command: RequestedAccess | None = None
    rules: tuple[AccessRule, ...] = ()
    of_documents: bool = False
    set_access: bool = False
    folders: Mapping[str, Access] = field(default_factory=dict)
    stated: Mapping[str, Access] = field(default_factory=dict)
    links: tuple[tuple[Path, Path], ...] = ()

    def claim(
        self,
        path: Path,
        metadata: Mapping[str, str],
        content: str = "",
        *,
        around: Sequence[Path] = (),
        requests: Sequence[Mapping[str, str]] = (),
    ) -> Claim:
        """The claim for a document at an absolute path, with this metadata and content digest.

        `around` are the places of its containers, outermost first, and `requests` their own requests. A part
        is never more widely visible than its containers.

        Raises:
            ConfigurationError: the command's request is invalid.
            WithheldError: the document's own request is invalid.
        """
        access = self.of_path(path, around=around)
        if self.set_access and self.command:
            return Claim(access, content=content)
        outer = [entries for request in requests if (entries := self._access_entries(request))]
        own_entries = self._access_entries(metadata)
        usual, requested_access = Access(self.usual, revision=1), None
        if around and not (access or outer):
            access = usual  # like its container
        for request in [*map(_request_in, outer), *([_request_in(own_entries)] if own_entries else [])]:
            record = request.record("tenant")
            requested_access = narrower(requested_access, record) if requested_access else record
            access = narrower(access, record) if access else request.record(self.usual)
        all_entries = [own_entries, *outer] if outer else own_entries
        requested = json.dumps(all_entries, sort_keys=True) if self.of_documents else ""
        return Claim(
            access or usual,
            content=content,
            requested=requested,
            requested_access=requested_access,
        )

    def of_path(self, path: Path, *, by_command: bool = True, around: Sequence[Path]) -> Access | None:
        """The access from command, folders and rules for a path; None if none of them applies.

        `by_command` says whether the command applies to this path at all. For a part, each step inwards can
        only narrow the access of its containers, at the places `around` it.
        """
        access, is_inside = None, False
        for inner in (*around, path):
            inner_access = self._of_place(inner, by_command=by_command)
            if inner_access:
                outer = access or (Access(self.usual, revision=1) if is_inside else None)
                access = narrower(outer, inner_access) if outer else inner_access
            is_inside = True
        return access

    def _of_place(self, path: Path, *, by_command: bool) -> Access | None:
        command = self.command.record(self.usual) if self.command and by_command else None
        applying = [command] if command else []
        applying += self._nearest(self.stated, path)
        if not (command and self.set_access):
            applying += self._nearest(self.folders, path)
            applying += () if command else self._by_rules(path)
        return narrower(*applying) if applying else None

    def _nearest(self, folders: Mapping[str, Access], path: Path) -> Iterator[Access]:
        """The accesses of the deepest of these folders above a path, for each of its names."""
        for place in self._names(path) if folders else ():
            yield from islice((folders[uri] for uri in _above(place) if uri in folders), 1)

    def stated_of_folder(self, uri: str, access: Access) -> Access:
        """An access for a folder, no wider than what the settings state for it."""
        path = Path(local_path(uri)) / "any file"
        return narrower(access, *self._nearest(self.stated, path)) or access

    def _by_rules(self, path: Path) -> Iterator[Access]:
        for place in self._names(path) if self.rules else ():
            if rule := self.rule(place):
                yield RequestedAccess(rule.visibility, rule.allow, rule.deny).record(self.usual)

    def _names(self, path: Path) -> Iterator[Path]:
        """A path, and the names by which this run was told to read it."""
        yield path
        for real, named in self.links:
            if path.is_relative_to(real):
                yield named / path.relative_to(real)

    def names_of_folder(self, folder: Path) -> Iterator[Path]:
        """A folder of the run, and the names by which this run was told to read it."""
        yield folder
        yield from (named for real, named in self.links if real == folder)

    def rule(self, path: Path) -> AccessRule | None:
        """The first rule whose pattern matches."""
        return next((rule for rule in self.rules if _matches(path, rule.path)), None)

    def unmatched(self, paths: Iterable[Path]) -> list[str]:
        """The patterns of the rules that apply to none of these files."""
        named = (name for path in paths for name in self._names(path)) if self.rules else ()
        matched = {rule.path for path in named if (rule := self.rule(path))}
        return [rule.path for rule in self.rules if rule.path not in matched]

    def shown(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata that readers may see: without the access that the document requests."""
        hidden = ACCESS_KEYS if self.of_documents else ()
        return {key: value for key, value in metadata.items() if value and key.casefold() not in hidden}

    def asks(self, requested: str) -> bool:
        """Whether a run must read the request of a document with this stored request."""
        return self.set_access or (self.of_documents and not requested)

    def _access_entries(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata that requests access; empty if documents may not request any."""
        keys = ACCESS_KEYS if self.of_documents else ()
        return {key.casefold(): value for key, value in metadata.items() if key.casefold() in keys}


def _above(path: Path) -> tuple[str, ...]:
    """The URIs of the folders above a path, the deepest first."""
    return _uris(path.parent)


@lru_cache(1024)  # a run asks four times for each file, and these were 40 % of a move of 10,000
def _uris(folder: Path) -> tuple[str, ...]:
    """The URIs of a folder and of those above it."""
    return tuple(outer.as_uri() for outer in (folder, *folder.parents))


def _matches(path: Path, pattern: str) -> bool:
    """Whether a pattern matches the path, or its end from any folder on; * matches across folders.

    Letter case doesn't count: HR/ is hidden by a rule for hr/ on every file system.
    """
    whole = unicodedata.normalize("NFC", path.as_posix())
    pattern = unicodedata.normalize("NFC", pattern if pattern.startswith("/") else f"*/{pattern}")
    return fnmatchcase(whole.casefold(), pattern.casefold())


UNKNOWN_VISIBILITY = "its visibility must be tenant or restricted"


def _request_in(entries: Mapping[str, str]) -> RequestedAccess:
    """The access that a document requests. Raises if unreadable (fail closed): it may ask to be hidden."""
    for key, value in entries.items():
        if not value:
            raise WithheldError(f"its {key} can't be read; write a list of plain values", "access")
    match entries.get("visibility"):
        case None | "tenant" | "restricted" as visibility:
            pass
        case _:
            raise WithheldError(UNKNOWN_VISIBILITY, "access")
    lists = (entries.get(name, "").split(",") for name in ("allow", "deny"))
    requested = RequestedAccess(
        visibility, *(tuple(name.strip() for name in names if name.strip()) for names in lists)
    )
    try:
        check_access(requested.visibility, requested.allow, requested.deny)
    except ConfigurationError as error:
        raise WithheldError(str(error), "access") from error
    return requested


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
        them are narrower than it would be: then it is probably as confidential as they are. A new folder
        counts as the nearest folder above it with documents of its own, and those in its other folders.
        """
        folders = {folder_of(uri), folder_of(self._purged(uri))}
        gone = [record for folder in folders for record in self._gone(folder) if record.uri != uri]
        gone += self._group("name", name_of(uri), lambda: self._missing_of_name[name_of(uri)])
        if gone:
            ids, narrowest = frozenset(record.id for record in gone), _narrowest(gone, access)
            reason = f"it could be a new version of {document_name(narrowest)}, which is gone"
            return Narrowing(ids, reason, narrowest)
        here = [record for folder in folders for record in self._here(folder) if record.uri != uri]
        others = here or self._around(folder_of(uri))
        if others and all(is_narrowed(record.access, access) for record in others):
            reason = "as all other files of its folder" if here else "as all files around its new folder"
            return Narrowing(frozenset(record.id for record in others), reason)
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
