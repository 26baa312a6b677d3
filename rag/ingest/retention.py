"""Until when documents are kept: what they state of it, and what has expired since it was stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag.errors import WithheldError
from rag.ingest.parse.blocks import date
from rag.ingest.paths import path_of
from rag.ingest.report import Outcome
from rag.originals import EXPIRES
from rag.report.tables import shortened
from rag.store.write.change_collection import change_collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rag.corpus import Document
    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import KnownSource, NewSource

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
    known = [moment for moment in map(date, stated) if moment]
    if len(known) < len(stated):
        wrong = next(value for value in stated if not date(value))
        raise WithheldError(
            f"its metadata has expires: {shortened(wrong, SHOWN)!r}, which is no date like 2027-03-31 or "
            "2027-03-31T18:00:00+02:00. As nobody knows how long it may be kept, it isn't stored",
            "unclear expiry",
        )
    others = {key: value for key, value in document.metadata.items() if key.casefold() != EXPIRES}
    return replace(document, metadata=others | {EXPIRES: min(known).isoformat()})


def expired_words(at: datetime) -> str:
    """Why a document is kept out."""
    return f"it expired on {at:%Y-%m-%d at %H:%M} UTC"


def has_expired(source: KnownSource) -> bool:
    """Whether a stored source has expired by now."""
    return source.expires is not None and source.expires <= datetime.now(UTC)


def expired(sources: Iterable[KnownSource]) -> dict[str, Outcome]:
    """What the report says, by id, of those of the sources that have expired and are to be removed."""
    return {
        one.id: Outcome(path_of(one.uri), "removed", expired_words(one.expires), one.id, kind="expired")
        for one in sources
        if one.expires and has_expired(one)
    }


async def note_expiring(writer: CollectionWriter, wave: Iterable[NewSource]) -> None:
    """Let searches know that there are sources that expire, before the first one is stored."""
    made = writer.collection
    if writer.writes and not made.expiring and any(EXPIRES in new.source.metadata for new in wave):
        await change_collection(writer.data, made.tenant, made.name, lambda one: replace(one, expiring=True))
        writer.collection = replace(made, expiring=True)
