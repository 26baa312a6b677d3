"""The access that is requested for a document: by the command, the folders above it, the rules, and itself.

`rag.ingest.access_decision` decides what becomes of it, by the records that exist already.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path

from rag.access.rule import check_access, is_narrowed, narrower, valid_entries
from rag.config.settings import AccessRule
from rag.corpus import Access, Visibility
from rag.errors import ConfigurationError, WithheldError
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.originals import local_path
from rag.store.write.access_claim import Claim


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
    """The sources of access for new documents in a run.

    `command` is the request of the command line, for everything below its paths. `folders` are the accesses
    that folders were ingested with before, by URI; the deepest folder counts. `rules` are from the settings;
    the first match counts. `stated` are the accesses that origins in the settings state for their folders, by
    URI; the deepest counts, also for documents of other origins. With `of_documents`, documents may request
    access themselves. If several of these apply, the narrowest access results, except that the command
    overrides rules, and with `set_access` everything but `stated`. If none applies, it is `usual`, the
    collection's visibility for new documents.

    `links` are pairs of a path without links and the same path as it was named by links. Access for either
    name counts.
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
        """The access by command, folders and rules for a path; None if none of them applies.

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
        """The access of the deepest of these folders above a path, for each name of the path."""
        for name in self._names(path) if folders else ():
            yield from islice((folders[uri] for uri in _uris(name.parent) if uri in folders), 1)

    def stated_of_folder(self, uri: str, access: Access) -> Access:
        """An access for a folder, no wider than the settings state for it."""
        path = Path(local_path(uri)) / "any file"
        return narrower(access, *self._nearest(self.stated, path)) or access

    def _by_rules(self, path: Path) -> Iterator[Access]:
        for name in self._names(path) if self.rules else ():
            if rule := self.rule(name):
                yield self._record(rule)

    def _record(self, rule: AccessRule) -> Access:
        return RequestedAccess(rule.visibility, rule.allow, rule.deny).record(self.usual)

    def _names(self, path: Path) -> Iterator[Path]:
        """A path, and its names by links in this run."""
        yield path
        for real, link in self.links:
            if path.is_relative_to(real):
                yield link / path.relative_to(real)

    def names_of_folder(self, folder: Path) -> Iterator[Path]:
        """A folder of the run, and its names by links in this run."""
        yield folder
        yield from (link for real, link in self.links if real == folder)

    def rule(self, path: Path) -> AccessRule | None:
        """The first rule whose pattern matches."""
        return next((rule for rule in self.rules if _matches(path, rule.path)), None)

    def unmatched(self, paths: Iterable[Path]) -> list[str]:
        """The patterns of the rules that apply to none of these files."""
        names = (name for path in paths for name in self._names(path)) if self.rules else ()
        matched = {rule.path for name in names if (rule := self.rule(name))}
        return [rule.path for rule in self.rules if rule.path not in matched]

    def overruled(self, paths: Iterable[Path]) -> Counter[str]:
        """How many of these files the command opens to more than a rule does, by the pattern of the rule."""
        if not (self.command and self.rules) or self.set_access:
            return Counter()
        by_command = self.command.record(self.usual)
        rules = [
            next((rule for name in self._names(path) if (rule := self.rule(name))), None) for path in paths
        ]
        return Counter(rule.path for rule in rules if rule and is_narrowed(self._record(rule), by_command))

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


@lru_cache(1024)  # called four times for each file; uncached, it was 40 % of a move of 10,000 files
def _uris(folder: Path) -> tuple[str, ...]:
    """The URIs of a folder and of those above it, the deepest first."""
    return tuple(outer.as_uri() for outer in (folder, *folder.parents))


def _matches(path: Path, pattern: str) -> bool:
    """Whether a pattern matches the path, or its end from any folder on; * matches across folders.

    Letter case doesn't count: HR/ is hidden by a rule for hr/ on every file system.
    """
    whole = unicodedata.normalize("NFC", path.as_posix())  # macOS has decomposed letters in names
    pattern = unicodedata.normalize("NFC", pattern if pattern.startswith("/") else f"*/{pattern}")
    return fnmatchcase(whole.casefold(), pattern.casefold())


def covered_rules(rules: Sequence[AccessRule]) -> dict[str, str]:
    """What to say of each rule that can apply to no file, because one before it matches all of its files."""
    notes = dict[str, str]()
    for number, rule in enumerate(rules):
        earlier = next((before.path for before in rules[:number] if _covers(before.path, rule.path)), None)
        if earlier is not None:
            notes[rule.path] = (
                f"The access rule for {rule.path} applies to no file: the rule for {earlier} stands before "
                "it and matches the same files. Put the narrower rule first."
            )
    return notes


def _covers(pattern: str, covered: str) -> bool:
    """Whether a pattern matches all that another matches, judged by examples.

    Example: "*" covers "hr/*", and "hr/*" covers "hr/pay/*"; "*.md" doesn't cover "hr/*".
    """
    examples = (covered.replace("*", text).replace("?", "q") for text in ("x", "any/file.any"))
    return all(_matches(Path("/any", example), pattern) for example in examples)


UNKNOWN_VISIBILITY = "its visibility must be tenant or restricted"


def _request_in(entries: Mapping[str, str]) -> RequestedAccess:
    """The access that a document requests.

    Raises:
        WithheldError: it can't be read (fail closed): the document may ask to be hidden.
    """
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
