"""Who may see a new document: by the command, by the folders above it, by the rules, and by itself.

A document that has an access record already keeps it; `rag.store.settle` decides that.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rag.access.names import check_access, valid_entries
from rag.access.rule import narrower
from rag.corpus import Access, Visibility
from rag.errors import ConfigurationError, WithheldError
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.store.write.access_claim import Claim

if TYPE_CHECKING:
    from rag.config.settings import AccessRule


@dataclass(frozen=True, slots=True)
class RequestedAccess:
    """The access that a command, a rule or a document requests. `visibility` None: only lists were given."""

    visibility: Visibility | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def record(self, usual: Visibility) -> Access:
        """It as a first record. Without a visibility, an allow list means restricted, no allow list `usual`.

        Raises:
            ConfigurationError: it contradicts itself, or an entry is malformed.
        """
        check_access(self.visibility, self.allow, self.deny)
        visibility = self.visibility or ("restricted" if self.allow else usual)
        return Access(visibility, valid_entries(self.allow), valid_entries(self.deny), revision=1)


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides the access of new documents in a run.

    `command` is what the command line requests for everything below its paths. `folders` is what folders, by
    URI, were ingested with before; the deepest one counts. `rules` are those of the settings; the first match
    counts. What documents request themselves counts if `of_documents`. If several of these apply, the
    narrowest access results, except that the command goes before rules, and with `set_access` before
    everything. If none applies, it is `usual`, that of new documents of the collection.
    """

    usual: Visibility
    command: RequestedAccess | None = None
    rules: tuple[AccessRule, ...] = ()
    of_documents: bool = False
    set_access: bool = False
    folders: Mapping[str, Access] = field(default_factory=dict)

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

        `around` are the places of what contains it, the outermost first, and `requests` is what these request
        for themselves. A part is never more widely visible than what contains it.

        Raises:
            ConfigurationError: the command's request is invalid.
            WithheldError: the document's own request is invalid.
        """
        access = self.of_path(path, around=around)
        if self.set_access and self.command:
            return Claim(access, content=content)
        outer = [entries for one in requests if (entries := self._access_entries(one))]
        own = self._access_entries(metadata)
        usual, requested_access = Access(self.usual, revision=1), None
        if around and not (access or outer):
            access = usual  # as what contains it
        for one in [*map(_parsed, outer), *([_parsed(own)] if own else [])]:
            record = one.record("tenant")
            requested_access = narrower(requested_access, record) if requested_access else record
            access = narrower(access, record) if access else one.record(self.usual)
        written = [own, *outer] if outer else own
        requested = json.dumps(written, sort_keys=True) if self.of_documents else ""
        return Claim(
            access or usual,
            content=content,
            requested=requested,
            requested_access=requested_access,
        )

    def of_path(self, path: Path, *, by_command: bool = True, around: Sequence[Path] = ()) -> Access | None:
        """What command, folders and rules give a document at this path; None if they give nothing.

        `by_command` is whether the command applies to this path at all. What they give a part can only
        narrow what they give to what contains it, at the places `around` it.
        """
        access, is_inside = None, False
        for place in (*around, path):
            given = self._of_place(place, by_command=by_command)
            if given:
                outer = access or (Access(self.usual, revision=1) if is_inside else None)
                access = narrower(outer, given) if outer else given
            is_inside = True
        return access

    def _of_place(self, path: Path, *, by_command: bool) -> Access | None:
        command = self.command.record(self.usual) if self.command and by_command else None
        if command and self.set_access:
            return command
        remembered = next((self.folders[uri] for uri in _above(path) if uri in self.folders), None)
        rule = self.rule(path)
        by_rule = RequestedAccess(rule.visibility, rule.allow, rule.deny).record(self.usual) if rule else None
        applying = [one for one in (command or by_rule, remembered) if one]
        return narrower(*applying) if applying else None

    def rule(self, path: Path) -> AccessRule | None:
        """The first rule whose pattern matches."""
        return next((rule for rule in self.rules if _matches(path, rule.path)), None)

    def unmatched(self, paths: Iterable[Path]) -> list[str]:
        """The patterns of the rules that apply to none of these files."""
        matched = {rule.path for path in paths if (rule := self.rule(path))} if self.rules else set[str]()
        return [rule.path for rule in self.rules if rule.path not in matched]

    def shown(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata that readers may see: without the access that the document requests."""
        hidden = ACCESS_KEYS if self.of_documents else ()
        return {key: value for key, value in metadata.items() if value and key.casefold() not in hidden}

    def never_asked(self, requested: str) -> bool:
        """Whether documents may request access now, but the one with this stored request was never asked."""
        return self.of_documents and not requested

    def asks(self, requested: str) -> bool:
        """Whether a run asks a stored document, of which only this request is known, for its access."""
        return self.set_access or self.never_asked(requested)

    def _access_entries(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata in which the document requests access, if documents may."""
        keys = ACCESS_KEYS if self.of_documents else ()
        return {key.casefold(): value for key, value in metadata.items() if key.casefold() in keys}


def _above(path: Path) -> tuple[str, ...]:
    """The URIs of the folders above a path, the deepest first."""
    return _uris(path.parent)


@lru_cache(1024)  # a run asks four times for each file, and these were 40 % of a move of 10,000
def _uris(folder: Path) -> tuple[str, ...]:
    """The URIs of a folder and of those above it."""
    return tuple(one.as_uri() for one in (folder, *folder.parents))


def _matches(path: Path, pattern: str) -> bool:
    """Whether a pattern matches the path, or its end from any folder on; * matches across folders.

    Letter case doesn't count: HR/ is hidden by a rule for hr/ on every file system.
    """
    whole = unicodedata.normalize("NFC", path.as_posix())
    pattern = unicodedata.normalize("NFC", pattern if pattern.startswith("/") else f"*/{pattern}")
    return fnmatchcase(whole.casefold(), pattern.casefold())


def _parsed(entries: Mapping[str, str]) -> RequestedAccess:
    """The access that a document requests. An unreadable request rejects it: it may have meant to hide it."""
    for key, value in entries.items():
        if not value:
            raise WithheldError(f"its {key} can't be read; write a list of plain values", "access")
    match entries.get("visibility"):
        case None | "tenant" | "restricted" as visibility:
            pass
        case _:
            raise WithheldError("its visibility must be tenant or restricted", "access")
    lists = (entries.get(name, "").split(",") for name in ("allow", "deny"))
    requested = RequestedAccess(
        visibility, *(tuple(one.strip() for one in names if one.strip()) for names in lists)
    )
    try:
        check_access(requested.visibility, requested.allow, requested.deny)
    except ConfigurationError as error:
        raise WithheldError(str(error), "access") from error
    return requested
