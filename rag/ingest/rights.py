"""Who may see a document that comes in: what was said about it, its place and itself.

What counts for a document that has an access record already is `rag.store.writer.settle`'s.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rag.access.names import check_access, valid_entries
from rag.access.rule import narrower
from rag.corpus import Access
from rag.errors import ConfigurationError, ParseError
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.store.schema import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rag.config.settings import AccessRule, RulesCase
    from rag.corpus import Visibility


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of who may see a source; `visibility` None if only the lists were."""

    visibility: Visibility | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def record(self, usual: Visibility) -> Access:
        """A first record; without a word on the visibility, whom it allows restricts it, else it is as usual.

        Raises:
            ConfigurationError: everybody may see it and only some may, or an entry can't stand in a list.
        """
        check_access(self.visibility, self.allow, self.deny)
        visibility = self.visibility or ("restricted" if self.allow else usual)
        return Access(visibility, valid_entries(self.allow), valid_entries(self.deny), revision=1)


@dataclass(frozen=True, slots=True)
class Rights:
    """What a run was told of who may see what comes in.

    `asked` is what the command says, of everything below the paths that it names. `folders` are what folders
    were ingested with before, by URI; the deepest counts. Then `rules`, the first that matches. Where none
    of these says anything, it is the document's own word, and else `usual`, the collection's. Where several
    do, the narrower counts; but a command goes before rules, and with `set_access` before everything.
    """

    usual: Visibility
    asked: Said | None = None
    rules: tuple[AccessRule, ...] = ()
    of_documents: bool = False
    set_access: bool = False
    rules_case: RulesCase = "ignore"
    folders: Mapping[str, Access] = field(default_factory=dict)

    def claim(self, path: Path, metadata: Mapping[str, str], content: str = "") -> Claim:
        """What counts for a document at an absolute path, that says this of itself.

        Raises:
            ConfigurationError: what the command says is no access record.
            ParseError: what the document says is none.
        """
        place = self.of_place(path)
        if self.set_access and self.asked:
            return Claim(place, set_access=True, content=content)
        written = self._written(metadata)
        said = _said(written) if written else None
        asked = said.record("tenant") if said else None
        if said:
            place = narrower(place, asked) if place else said.record(self.usual)
        access = place or Access(self.usual, revision=1)
        word = json.dumps(written, sort_keys=True) if self.of_documents else ""
        return Claim(access, self.set_access, content, word, asked)

    def of_place(self, path: Path, *, asked: bool = True) -> Access | None:
        """What was said of a document at this path, whatever it says itself; None if nothing was.

        `asked` is whether the command is about this path at all.
        """
        command = self.asked.record(self.usual) if self.asked and asked else None
        if command and self.set_access:
            return command
        remembered = next((self.folders[uri] for uri in _above(path) if uri in self.folders), None)
        rule = self.rule(path)
        by_rule = Said(rule.visibility, rule.allow, rule.deny).record(self.usual) if rule else None
        said = [one for one in (command or by_rule, remembered) if one]
        return narrower(*said) if said else None

    def rule(self, path: Path) -> AccessRule | None:
        """The first rule whose pattern matches."""
        if not self.rules:
            return None
        ignore = self.rules_case == "ignore" or (self.rules_case == "file system" and _ignores_case(path))
        return next((rule for rule in self.rules if _matches(path, rule.path, ignore=ignore)), None)

    def unmatched(self, paths: Iterable[Path]) -> list[str]:
        """The patterns of rules that count for none of these files."""
        matched = {rule.path for path in paths if (rule := self.rule(path))} if self.rules else set[str]()
        return [rule.path for rule in self.rules if rule.path not in matched]

    def shown(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata without what it says of who may see the source."""
        hidden = ACCESS_KEYS if self.of_documents else ()
        return {key: value for key, value in metadata.items() if value and key.casefold() not in hidden}

    def unheard(self, word: str) -> bool:
        """Whether documents may say who sees them now, and the one with this recorded word never could."""
        return self.of_documents and not word

    def _written(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """What the document says of who may see it, where documents may."""
        heard = ACCESS_KEYS if self.of_documents else ()
        return {key.casefold(): value for key, value in metadata.items() if key.casefold() in heard}


def _above(path: Path) -> list[str]:
    """The URIs of the folders that a path is in, the deepest first."""
    return [folder.as_uri() for folder in path.parents]


def _matches(path: Path, pattern: str, *, ignore: bool) -> bool:
    """Whether a pattern fits the path, or its end from any folder on; * crosses folders."""
    whole = unicodedata.normalize("NFC", path.as_posix())
    pattern = unicodedata.normalize("NFC", pattern if pattern.startswith("/") else f"*/{pattern}")
    return fnmatchcase(whole.casefold(), pattern.casefold()) if ignore else fnmatchcase(whole, pattern)


def _ignores_case(path: Path) -> bool:
    """Whether the file system finds the file under a name in other letters, too."""
    other = path.with_name(path.name.swapcase())
    try:
        return other.name != path.name and other.samefile(path)
    except OSError:
        return False


def _said(written: Mapping[str, str]) -> Said:
    """What a document says. What can't be read refuses the document: it may have meant to be hidden."""
    for key, value in written.items():
        if not value:
            raise ParseError(f"its {key} can't be read; write it on one line, with commas")
    match written.get("visibility"):
        case None | "tenant" | "restricted" as visibility:
            pass
        case _:
            raise ParseError("its visibility is neither tenant nor restricted")
    lists = (written.get(name, "").split(",") for name in ("allow", "deny"))
    said = Said(visibility, *(tuple(one.strip() for one in entries if one.strip()) for entries in lists))
    try:
        check_access(said.visibility, said.allow, said.deny)
    except ConfigurationError as error:
        raise ParseError(str(error)) from error
    return said
