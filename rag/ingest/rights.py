"""The access record that a source gets when it is first ingested."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rag.errors import ConfigurationError, ParseError
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.records import Access
from rag.settings import check_access, valid_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.records import Visibility
    from rag.settings import AccessRule


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
    """Where the records of a run come from: the first of these that says anything.

    What was asked for; the document itself, or its sidecar; the first rule that matches its path; the
    collection.
    `of_documents` is whether documents may say who sees them. `set_access` is whether sources that
    are there already get the record, too.
    """

    usual: Visibility
    asked: Said | None = None
    rules: tuple[AccessRule, ...] = ()
    of_documents: bool = False
    set_access: bool = False

    def access(self, path: str, metadata: Mapping[str, str]) -> Access:
        """The record of a source with this path below the folder and this metadata.

        Raises:
            ConfigurationError: what was asked for is no access record.
            ParseError: what the document says is none.
        """
        if self.asked:
            return self.asked.record(self.usual)
        written = {key.casefold(): value for key, value in metadata.items() if key.casefold() in ACCESS_KEYS}
        if self.of_documents and written:
            return _written(written).record(self.usual)
        for rule in self.rules:
            if fnmatchcase(path, rule.path):
                return Said(rule.visibility, rule.allow, rule.deny).record(self.usual)
        return Access(self.usual, revision=1)

    def shown(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """The metadata without what it says of who may see the source."""
        hidden = ACCESS_KEYS if self.of_documents else ()
        return {key: value for key, value in metadata.items() if value and key.casefold() not in hidden}


def _written(metadata: Mapping[str, str]) -> Said:
    """What a document says. What can't be read refuses the document: it may have meant to be hidden."""
    for key, value in metadata.items():
        if not value:
            raise ParseError(f"its {key} can't be read; write it on one line, with commas")
    match metadata.get("visibility"):
        case None | "tenant" | "restricted" as visibility:
            pass
        case _:
            raise ParseError("its visibility is neither tenant nor restricted")
    lists = (metadata.get(name, "").split(",") for name in ("allow", "deny"))
    said = Said(visibility, *(tuple(one.strip() for one in entries if one.strip()) for entries in lists))
    try:
        check_access(said.visibility, said.allow, said.deny)
    except ConfigurationError as error:
        raise ParseError(str(error)) from error
    return said
