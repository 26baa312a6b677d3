"""The door of a collection: what of a document is stored, if it is stored at all.

Nothing is looked at or changed unless the collection or the settings say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.flags import spans_in
from rag.ingest.masks import NAME_STAYS, counted_values, in_numbers, masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Collection, Document, Policy
    from rag.flags import Flag


class NotAdmittedError(Exception):
    """A policy keeps the document out; the message says which, without anything of the document."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A document as it is stored, and how many values of each kind were masked in it."""

    document: Document
    masked: Mapping[Flag, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Door:
    """The policies of a collection for personal data; those that are `allow` are left out."""

    personal_data: Mapping[Flag, Policy]

    @classmethod
    def of(cls, collection: Collection) -> Door:
        """The door of a collection."""
        return cls(collection.personal_data)

    @property
    def recipe(self) -> str:
        """What the stored text depends on, for its digest; empty if the door is open."""
        return json.dumps(dict(self.personal_data), sort_keys=True) if self.personal_data else ""

    async def admitted(self, document: Document, name: str) -> Admitted:
        """The document of a file of this name as it is to be stored.

        Raises:
            NotAdmittedError: a policy keeps it out.
        """
        if not self.personal_data:
            return Admitted(document)
        return await to_thread.run_sync(self._without_personal_data, document, name)

    def _without_personal_data(self, document: Document, name: str) -> Admitted:
        found = counted_values(document, name, self.personal_data.keys())
        kept_out = {flag: number for flag, number in found.items() if self.personal_data[flag] == "skip"}
        if kept_out:
            raise NotAdmittedError(f"it contains {in_numbers(kept_out)}; the collection skips such documents")
        wanted = [flag for flag in found if self.personal_data[flag] == "redact"]
        made = masked(document, wanted)
        if spans_in(name, wanted):
            made = replace(made, remarks=(*made.remarks, NAME_STAYS))
        return Admitted(made, {flag: found[flag] for flag in wanted})
