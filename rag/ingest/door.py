"""The door of a collection: what of a document is stored, if it is stored at all.

Nothing is looked at or changed unless the collection or the settings say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from rag.errors import WithheldError
from rag.expiry import expiry
from rag.flags import spans_in
from rag.ingest.masks import NAME_STAYS, counted_values, in_numbers, masked
from rag.ingest.moderation import ModerationError
from rag.ingest.retention import expired_words, with_expiry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Collection, Document, Policy
    from rag.file_state import FileState
    from rag.flags import Flag
    from rag.ingest.budget import Budget
    from rag.ingest.discover import Found
    from rag.ingest.moderation import Moderator


MODERATION = "moderation"
"""The key of the metadata that says "flagged" of a document that the moderation flagged."""


class NotAdmittedError(Exception):
    """A document is kept out, by a policy or because it has expired. The message has nothing of its text."""

    def __init__(self, message: str, kind: Literal["policy", "expired"] = "policy") -> None:
        super().__init__(message)
        self.kind: Literal["policy", "expired"] = kind


@dataclass(frozen=True, slots=True)
class Admitted:
    """A document as it is stored, and how many values of each kind were masked in it.

    It is `unmoderated` if there was no verdict on it: the next run shall ask again.
    """

    document: Document
    masked: Mapping[Flag, int] = field(default_factory=dict)
    unmoderated: bool = False


@dataclass(frozen=True, slots=True)
class Door:
    """The policies of a collection for personal data, without those that are `allow`, and its retention."""

    personal_data: Mapping[Flag, Policy]
    keep_days: int = 0
    moderator: Moderator | None = None

    @classmethod
    def of(cls, collection: Collection, moderator: Moderator | None = None) -> Door:
        """The door of a collection."""
        return cls(collection.personal_data, collection.keep_days, moderator)

    @property
    def recipe(self) -> str:
        """What the stored text depends on, for its digest; empty if the door is open."""
        policies = json.dumps(dict(self.personal_data), sort_keys=True) if self.personal_data else ""
        return policies + (self.moderator.recipe if self.moderator else "")

    async def admitted(
        self, document: Document, found: Found, state: FileState | None, budget: Budget
    ) -> Admitted:
        """The document that was found in a file of this state, as it is to be stored.

        Looking for personal data in it is at the expense of the file's budget.

        Raises:
            NotAdmittedError: a policy keeps it out, or it has expired.
            WithheldError: it states by a word that is no date when it expires, or its moderation failed.
        """
        document, name = with_expiry(document, found.requests), found.name
        now = datetime.now(UTC)
        at = expiry(document.metadata, self.keep_days, date=document.date, file=state, ingested_at=now)
        if at and at <= now:
            raise NotAdmittedError(expired_words(at), "expired")
        admitted = Admitted(document)
        if self.personal_data:
            admitted = await budget.run(self._without_personal_data, document, name)
        return await self._moderated(admitted, name, self.moderator) if self.moderator else admitted

    async def _moderated(self, admitted: Admitted, name: str, moderator: Moderator) -> Admitted:
        document = admitted.document
        try:
            verdict = await moderator.verdict(document, name)
        except ModerationError as error:
            if moderator.settings.on_failure == "skip":
                raise WithheldError(f"its moderation failed: {error}", "moderation") from error
            remarks = (*document.remarks, f"stored without moderation, which failed: {error}")
            return replace(admitted, document=replace(document, remarks=remarks), unmoderated=True)
        if verdict == "skip":
            raise NotAdmittedError("the moderation keeps it out")
        if verdict == "flag":
            metadata = {**document.metadata, MODERATION: "flagged"}
            remarks = (*document.remarks, "flagged by the moderation")
            document = replace(document, metadata=metadata, remarks=remarks)
        return replace(admitted, document=document)

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
