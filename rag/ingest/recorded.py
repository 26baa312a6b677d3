"""What a tenant's access records tell of the documents that a run meets.

Files are renamed, moved, copied, edited, deleted, and restored from backups, often several of these between
two runs. A document is recognized by its URI or by its content, present or earlier. A new document that
neither recognizes may still be an edited version of one that is gone from its folder, or of one that had its
name. Where several records could be a document's own, it gets only the rights that all of them allow: a wrong
guess may hide a document, but never expose one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.access.rule import is_narrowed
from rag.ingest.paths import folder_of, name_of, path_of
from rag.store.schema import original_id
from rag.store.source_ids import PURGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rag.corpus import Access, AccessRecord


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The ids of the records that a source must not be wider than, and the reason, for the report.

    `gone` is the record of a document that is gone, of which the source may be a new version.
    """

    ids: frozenset[str] = frozenset()
    reason: str = ""
    gone: AccessRecord | None = None

    def __or__(self, other: Narrowing) -> Narrowing:
        """Both; the first that has a reason gives it."""
        return Narrowing(self.ids | other.ids, self.reason or other.reason, self.gone or other.gone)


NONE = Narrowing()


class Recorded:
    """The access records at the start of a run. `purged` maps a URI to what a purge leaves of it."""

    def __init__(
        self, records: Mapping[str, AccessRecord], purged: Callable[[str], str] = lambda uri: uri
    ) -> None:
        self.by_id = records
        self._purged = purged
        self.folders: dict[str, Access] = {}
        self._known_by: dict[str, list[AccessRecord]] = defaultdict(list)
        self._by_folder: dict[str, list[AccessRecord]] = defaultdict(list)
        self._missing: dict[str, AccessRecord] = {}
        self._new: set[str] = set()
        self._missing_of_name: dict[str, list[AccessRecord]] = defaultdict(list)
        for one in records.values():
            if original_id(one.id):
                continue  # a tag's: it says how things were
            if one.is_folder:
                self.folders |= {one.uri: one.access} if one.access else {}
                continue
            self._by_folder[folder_of(one.uri)].append(one)
            for known_by in (one.uri, one.content, *one.former):
                self._known_by[known_by].append(one)

    def same_uri(self, id_: str, uri: str, access: Access | None) -> Narrowing:
        """The other records that have or had this URI."""
        records = self._known_by[uri] + self._known_by[self._purged(uri)]
        others = [one for one in records if one.id != id_]
        if not others:
            return NONE
        ids, one = frozenset(one.id for one in others), _narrowest(others, access)
        if one.uri in {uri, self._purged(uri)}:
            return Narrowing(ids, f"as in the collection {one.collection}")
        return Narrowing(ids, f"{document_name(one)} had this path before")

    def same_content(self, id_: str, content: str, access: Access | None) -> Narrowing:
        """The other records that have or had this content; the file could be any of these documents."""
        others = [one for one in self._known_by[content] if one.id != id_] if content else []
        if not others:
            return NONE
        name = document_name(_narrowest(others, access))
        return Narrowing(frozenset(one.id for one in others), f"its content is or was that of {name}")

    def note_new(self, contents: Iterable[str]) -> None:
        """Note the contents of the new files."""
        self._new = {*contents}

    def is_elsewhere(self, record: AccessRecord) -> bool:
        """Whether a new file has this record's content: what is at its old URI may be another document."""
        return record.content in self._new

    def note_missing(self, ids: Iterable[str]) -> None:
        """Note the sources whose files are gone."""
        self._missing = {id_: self.by_id[id_] for id_ in ids}
        for one in self._missing.values():
            self._missing_of_name[name_of(one.uri)].append(one)

    def note_moved(self, record: AccessRecord, uri: str) -> None:
        """Note a document's new URI, so that it counts among the others of its new folder."""
        self._by_folder[folder_of(uri)].append(replace(record, uri=uri))

    def could_be(self, uri: str, access: Access | None) -> Narrowing:
        """The records that an unrecognized document must not be wider than.

        It could be an edited version of any document that is gone from its folder, or of one that had its
        name and is missing elsewhere. If there is none, the other documents of its folder count, but only if
        all of them are narrower than it would be: then it is probably as confidential as they are.
        """
        folders = {folder_of(uri), folder_of(self._purged(uri))}
        here = [one for folder in folders for one in self._by_folder[folder] if one.uri != uri]
        gone = [one for one in here if not one.present or one.id in self._missing]
        gone += self._missing_of_name[name_of(uri)]
        if gone:
            ids, one = frozenset(one.id for one in gone), _narrowest(gone, access)
            return Narrowing(ids, f"it could be a new version of {document_name(one)}, which is gone", one)
        if here and all(is_narrowed(one.access, access) for one in here):
            return Narrowing(frozenset(one.id for one in here), "as all other files of its folder")
        return NONE


def _narrowest(records: Sequence[AccessRecord], access: Access | None) -> AccessRecord:
    """A record that keeps out somebody whom `access` lets in, if there is one: the report names it."""
    return next((one for one in records if is_narrowed(one.access, access)), records[0])


def document_name(record: AccessRecord) -> str:
    """The document of a record, as people know it."""
    return "a purged source" if record.uri.startswith(PURGED) else path_of(record.uri)
