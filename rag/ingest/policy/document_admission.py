"""Whether a document is stored, what of it, and until when.

A document is kept out if it has expired, if the collection's policy or the moderator says so, or if its
container is kept out. Nothing is looked at or changed unless the collection or the settings say so. The last
part tells until when documents are kept, and which stored ones have expired since.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from rag.corpus import Collection, Document, FileState, Policy
from rag.errors import WithheldError
from rag.ingest.parse.document_parts import date
from rag.ingest.policy.masking import NAME_STAYS, counted_values, in_numbers, masked
from rag.ingest.policy.moderation import ModerationError, Moderator
from rag.ingest.report import Outcome
from rag.ingest.source_paths import path_of, prefixes, printable
from rag.originals import EXPIRES, expiry
from rag.report.text_and_html import shortened
from rag.store.write.change_collection import change_collection
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import KnownSource, NewSource
from rag.text.flags import Flag, spans_in

if TYPE_CHECKING:
    from rag.ingest.discover import Discovery
    from rag.ingest.local_files import LocalFile
    from rag.ingest.work_limits import Budget

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
class DocumentAdmission:
    """The policies of a collection for personal data, without those that are `allow`, and its retention."""

    personal_data: Mapping[Flag, Policy]
    keep_days: int = 0
    moderator: Moderator | None = None

    @classmethod
    def of(cls, collection: Collection, moderator: Moderator | None = None) -> DocumentAdmission:
        """The door of a collection."""
        return cls(collection.personal_data, collection.keep_days, moderator)

    @property
    def recipe(self) -> str:
        """What the stored text depends on, for its digest; empty if the door is open."""
        policies = json.dumps(dict(self.personal_data), sort_keys=True) if self.personal_data else ""
        return policies + (self.moderator.recipe if self.moderator else "")

    async def admitted(
        self, document: Document, file: LocalFile, state: FileState | None, budget: Budget
    ) -> Admitted:
        """The document that was found in a file of this state, as it is to be stored.

        Looking for personal data in it is at the expense of the file's budget.

        Raises:
            NotAdmittedError: a policy keeps it out, or it has expired.
            WithheldError: it states by a word that is no date when it expires, or its moderation failed.
        """
        document, name = with_expiry(document, file.requests), file.name
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
        counts = counted_values(document, name, self.personal_data.keys())
        kept_out = {flag: number for flag, number in counts.items() if self.personal_data[flag] == "skip"}
        if kept_out:
            raise NotAdmittedError(f"it contains {in_numbers(kept_out)}; the collection skips such documents")
        to_mask = [flag for flag in counts if self.personal_data[flag] == "redact"]
        masked_document = masked(document, to_mask)
        if spans_in(name, to_mask):
            masked_document = replace(masked_document, remarks=(*masked_document.remarks, NAME_STAYS))
        return Admitted(masked_document, {flag: counts[flag] for flag in to_mask})


# The documents that a run keeps out, what they contain, and the earlier versions that it removes for that.
#
# What contains a part decides for it: a mail that the collection doesn't take, that has expired, or of which
# nobody can tell who may see it brings in none of its attachments.


def check_expiry(source: KnownSource) -> None:
    """Whether a stored source whose text stays may stay.

    Raises:
        NotAdmittedError: it has expired.
    """
    if source.expires and has_expired(source):
        raise NotAdmittedError(expired_words(source.expires), "expired")


@dataclass(slots=True)
class KeptOut:
    """The outcomes, by id, of stored sources that are to be removed, and why others don't come in, by URI."""

    removed: dict[str, Outcome] = field(default_factory=dict)
    _why: dict[str, NotAdmittedError | WithheldError] = field(default_factory=dict)

    def check(self, file: LocalFile, discovery: Discovery) -> None:
        """Whether what contains a part lets it in.

        Raises:
            NotAdmittedError: what contains it was kept out, or has expired.
            WithheldError: what contains it is withheld.
        """
        why = next(
            (self._why[container] for container in discovery.around(file) if container in self._why), None
        )
        if isinstance(why, NotAdmittedError):
            raise NotAdmittedError(f"what contains it is kept out: {why}", why.kind)
        if why:
            raise WithheldError(f"what contains it is not stored: {why}", why.cause)

    def note(self, file: LocalFile, why: NotAdmittedError | WithheldError) -> None:
        """Note why a document isn't stored."""
        self._why[file.uri] = why

    def outcome(
        self, file: LocalFile, why: NotAdmittedError, earlier: KnownSource | None
    ) -> Iterable[Outcome]:
        """The outcome of a document that is kept out; that of an earlier version comes with its removal."""
        self.note(file, why)
        path = printable(file.path)
        if earlier is None:
            return [Outcome(path, "ignored", str(why), kind=why.kind)]
        self.removed[earlier.id] = Outcome(path, "removed", str(why), earlier.id, kind=why.kind)
        return []

    def with_others(self, sources: Mapping[str, KnownSource], stored: Container[str | None]) -> None:
        """Add the stored sources that have expired, except those `stored` anew, and what is in any of these.

        Parts whose container could not be opened, or was not looked at, are gone with it as well.
        """
        for id_, outcome in expired(source for source in sources.values() if source.id not in stored).items():
            self.removed.setdefault(id_, outcome)
        outer = {uri: self.removed[source.id] for uri, source in sources.items() if source.id in self.removed}
        for uri, source in sources.items():
            if "#" in uri and source.id not in self.removed:
                around = next((outer[at[:-1]] for at in prefixes(uri) if at[:-1] in outer), None)
                if around:
                    reason = f"what contains it is kept out: {around.reason}"
                    part_outcome = replace(around, path=path_of(uri), reason=reason, source_id=source.id)
                    self.removed[source.id] = part_outcome


SHOWN = 40  # characters of what is no date


def with_expiry(document: Document, around: Iterable[Mapping[str, str]] = ()) -> Document:
    """The document with the date in UTC under `EXPIRES` at which it expires by what it states, if it does.

    `around` is what the files state that it is a part of: it expires with the first of them.

    Raises:
        WithheldError: it is no date. Nobody knows then how long the document may be kept.
    """
    stated = [
        value
        for entries in (document.metadata, *around)
        for key, value in entries.items()
        if key.casefold() == EXPIRES
    ]
    if not stated:
        return document
    moments = [moment for moment in map(date, stated) if moment]
    if len(moments) < len(stated):
        wrong = next(value for value in stated if not date(value))
        raise WithheldError(
            f"its metadata has expires: {shortened(wrong, SHOWN)!r}, which is no date like 2027-03-31 or "
            "2027-03-31T18:00:00+02:00. As nobody knows how long it may be kept, it isn't stored",
            "unclear expiry",
        )
    metadata = {key: value for key, value in document.metadata.items() if key.casefold() != EXPIRES}
    return replace(document, metadata=metadata | {EXPIRES: min(moments).isoformat()})


def expired_words(at: datetime) -> str:
    """Why a document is kept out."""
    return f"it expired on {at:%Y-%m-%d at %H:%M} UTC"


def has_expired(source: KnownSource) -> bool:
    """Whether a stored source has expired by now."""
    return source.expires is not None and source.expires <= datetime.now(UTC)


def expired(sources: Iterable[KnownSource]) -> dict[str, Outcome]:
    """What the report says, by id, of those of the sources that have expired and are to be removed."""
    return {
        source.id: Outcome(
            path_of(source.uri), "removed", expired_words(source.expires), source.id, kind="expired"
        )
        for source in sources
        if source.expires and has_expired(source)
    }


async def note_expiring(writer: CollectionWriter, wave: Iterable[NewSource]) -> None:
    """Let searches know that there are sources that expire, before the first one is stored."""
    collection = writer.collection
    if writer.writes and not collection.expiring and any(EXPIRES in new.source.metadata for new in wave):
        await change_collection(
            writer.data, collection.tenant, collection.name, lambda current: replace(current, expiring=True)
        )
        writer.collection = replace(collection, expiring=True)
