"""What counts for who may see each document of a run, and what people must be told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.rule import in_words, is_narrowed, narrower, same
from rag.ingest.recorded import local_path, path_of, renamed_folders
from rag.store.schema import Claim
from rag.store.writer import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rag.corpus import Access, AccessRecord
    from rag.ingest.recorded import Recorded
    from rag.ingest.rights import Rights
    from rag.store.writer import KnownSource


class Claims:
    """The claims of a run's documents, by what the run was told and by what is recorded.

    `why` says, by URI, for what reason a document may get narrower rights than it was to have.
    """

    def __init__(self, rights: Rights, recorded: Recorded) -> None:
        self.rights = rights
        self._recorded = recorded
        self._why: dict[str, str] = {}
        self._kept: list[tuple[Access | None, Access]] = []
        self._narrowed_folders: dict[str, Access] = {}

    def remember(self, folders: Iterable[Path]) -> dict[str, Access]:
        """What to record of these folders, by URI: what they are ingested with now, as far as it is new.

        Without `set_access` it can only become narrower than what they, or else the deepest folder that they
        are in, were ingested with before; and what folders in them were ingested with becomes so narrow, too.
        """
        remembered = dict(self._recorded.folders)
        if asked := self.rights.asked:
            wanted = asked.record(self.rights.usual)
            for folder in folders:
                uri, *above = (one.as_uri() for one in (folder, *folder.parents))
                before = next((remembered[one] for one in (uri, *above) if one in remembered), wanted)
                below = {one: of_it for one, of_it in remembered.items() if one.startswith(f"{uri}/")}
                for one, of_it in (below | {uri: before}).items():
                    remembered[one] = wanted if self.rights.set_access else narrower(of_it, wanted) or wanted
                if not same(remembered[uri], wanted):
                    self._narrowed_folders[uri] = remembered[uri]
        self.rights = replace(self.rights, folders=remembered)
        return {uri: one for uri, one in remembered.items() if one != self._recorded.folders.get(uri)}

    def follow(self, moved: Iterable[tuple[str, str]]) -> dict[str, Access]:
        """What to record of folders that were renamed: what they were ingested with goes along."""
        folders = dict(self.rights.folders)
        for old, new in renamed_folders(moved, folders).items():
            here = folders.get(new, folders[old])
            folders[new] = narrower(here, folders[old]) or here
            if not same(folders[new], here):
                self._narrowed_folders[new] = folders[new]
        before, self.rights = self.rights.folders, replace(self.rights, folders=folders)
        return {uri: one for uri, one in folders.items() if one != before.get(uri)}

    def of_document(
        self, path: Path, metadata: Mapping[str, str], content: str, id_: str, source: KnownSource | None
    ) -> Claim:
        """That of a document that was read; `source` is the one that it is a new version of, or moved from.

        Raises:
            ParseError: what it says of who may see it can't be understood.
        """
        claim = self.rights.claim(path, metadata, content)
        if claim.set_access:
            return claim
        if source and source.record.content == content:
            return self._moved(claim, source, path)
        if source:
            self.note_kept(source, path)
        own = self._recorded.by_id.get(id_)
        if own and own.content == content:  # it was gone, and it is clear which record is its own
            return replace(claim, moved_rules=self._said_anew(path))
        uri = path.as_uri()
        narrowing = self._recorded.same_content(id_, content, claim.access)
        known = bool(narrowing.ids)
        narrowing |= self._recorded.same_uri(id_, uri, claim.access)
        came_from = [self._recorded.by_id[one].uri for one in narrowing.ids]
        replaced = source is not None and self._recorded.is_elsewhere(source.record)
        if not known and (source is None or replaced):
            narrowing |= self._recorded.could_be(uri, claim.access)
        self._why[uri] = narrowing.why
        if replaced:  # another document may stand in its place: then what is said of new ones counts as well
            anew = self.rights.of_place(path) is not None
        else:
            anew = own is not None and source is None and self._said_anew(path)
        other_rules = any(self._other_rules(uri, path) for uri in came_from)
        return replace(claim, narrowed_by=narrowing.ids, moved_rules=anew or other_rules)

    def of_moved(self, source: KnownSource, path: Path) -> Claim:
        """That of a document that moved and need not be read: it takes its rights along."""
        place, record = self.rights.of_place(path), source.record
        return self._moved(Claim(place, content=record.content, word=record.word), source, path)

    def _moved(self, claim: Claim, source: KnownSource, path: Path) -> Claim:
        """That of a known document, which stays or moved.

        One that moved could be any of those of its content, so it is kept from whom one of them is kept; and
        where other rights were given to its new place than to its old one, also from whom these keep out.
        """
        claim = replace(claim, moved_rules=self._moved_rules(source, path))
        if source.uri == path.as_uri():
            return claim
        narrowing = self._recorded.same_content(source.id, source.record.content, source.record.access)
        self._why[path.as_uri()] = narrowing.why
        return replace(claim, narrowed_by=narrowing.ids)

    def _moved_rules(self, source: KnownSource, path: Path) -> bool:
        """Whether a source moved to a place of which something else was said than of its old one.

        One that keeps its rights though something else is said of it now is noted.
        """
        if self._other_rules(source.uri, path):
            return True
        self.note_kept(source, path)
        return False

    def _other_rules(self, uri: str, path: Path) -> bool:
        """Whether what came from a place is now at one of which something else was said."""
        if uri == path.as_uri():
            return False
        place = self.rights.of_place(path)
        if uri.startswith(HIDDEN):
            return place is not None
        before = self.rights.of_place(Path(local_path(uri)), asked=False)
        return place is not None and not same(before, place)

    def _said_anew(self, path: Path) -> bool:
        """Whether this run says something else of a place than was said of it before."""
        before = replace(self.rights, folders=self._recorded.folders).of_place(path, asked=False)
        place = self.rights.of_place(path)
        return place is not None and not same(before, place)

    def note_kept(self, source: KnownSource, path: Path) -> None:
        """Remember a source of which something else is said than its rights are, and that keeps them."""
        place, access = self.rights.of_place(path), source.record.access
        if place and ((self.rights.asked and not same(access, place)) or is_narrowed(place, access)):
            self._kept.append((access, place))

    def remarks(self, uri: str, claim: Claim, record: AccessRecord) -> Iterator[str]:
        """What is not as one would expect of the rights that a source has got."""
        before, access = self._recorded.by_id.get(record.id), record.access
        kept = before and same(before.access, access)
        if before and not before.present:
            yield "it is back, with the rights that it had" if kept else "it is back"
        if before and not kept:
            why = self._why.get(uri)
            yield f"now {in_words(access)}" + (f": {why}" if why else "")
        elif (before is None and not same(claim.access, access)) or self._narrows(claim, access):
            yield f"{in_words(access)}: {self._why.get(uri) or 'others have narrower rights'}"
        if claim.asked and not same(claim.asked, access) and (before is None or before.word != claim.word):
            yield f"it asks to be {in_words(claim.asked)}, which would let in more; it is {in_words(access)}"

    def _narrows(self, claim: Claim, access: Access | None) -> bool:
        """Whether a document that this one may be lets somebody see who doesn't now."""
        others = [self._recorded.by_id[one].access for one in claim.narrowed_by]
        return not claim.set_access and any(is_narrowed(access, other) for other in others)

    def notes(self, paths: Iterable[Path]) -> Iterator[str]:
        """What must be known of the rights of the run as a whole."""
        for uri, access in self._narrowed_folders.items():
            yield (
                f"New files in {path_of(uri)} are {in_words(access)}: it, or one around it, was ingested "
                "so before. --set-access changes that."
            )
        for pattern in self.rights.unmatched(paths):
            yield f"The access rule for {pattern} matched no file."
        if self._kept:
            wider = sum(1 for access, place in self._kept if is_narrowed(place, access))
            number = len(self._kept)
            kept = (
                "1 source that was there keeps its"
                if number == 1
                else f"{number} sources that were there keep their"
            )
            yield (
                f"{kept} rights, though this run or the rules say otherwise; {wider} of them let in more. "
                "--set-access changes them."
            )
