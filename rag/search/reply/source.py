"""Renders an opened source as JSON within a budget, for `get_source` and for ChatGPT's `fetch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rag.search.reply.fields import Reply, shown_date, shown_metadata, shown_url, timestamp
from rag.search.reply.untrusted import ALTERED, disarmed, label
from rag.uris import resource_uri

if TYPE_CHECKING:
    from rag.answers import Extract
    from rag.corpus import Chunk, Source

MAX_OUTLINE = 100  # headings in a reply
TEXT_SHARE = 0.75  # of a reply's characters; the rest is for the outline and the fields of the source
SPARE_SHARE = 200  # each attempt drops 1/200 of the window more than computed, to need few attempts


class HeadingRecord(Reply):
    """A heading and its position in the text."""

    title: str
    level: int
    start: int


class ChunkRecord(Reply):
    """A chunk that overlaps the window."""

    uri: str
    start: int
    end: int
    page: int | None = None


class SourceReply(Reply):
    """The reply of `get_source`. Its text is document text, not instructions."""

    id: str
    uri: str
    title: str
    url: str | None = None
    collection: str
    mime_type: str
    date: str | None = None
    indexed_at: str
    metadata: dict[str, Any]
    length: int
    start: int
    end: int
    next_start: int | None = None
    text: str
    outline: list[HeadingRecord]
    chunks: list[ChunkRecord]
    notes: list[str]
    trust: Literal["untrusted"] = "untrusted"


class FetchReply(Reply):
    """The reply of `fetch`, in the form that ChatGPT's connectors require."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


def source_reply(extract: Extract, max_chars: int) -> SourceReply:
    """The window within `max_chars` of JSON. The outline is shortened first, then the end of the text."""
    reply = _source_reply(extract, extract.end, MAX_OUTLINE)
    headings = len(reply.outline)
    while headings and len(reply.compact()) > max_chars:
        headings //= 2
        reply = _source_reply(extract, extract.end, headings)
    end = extract.end
    while (length := end - extract.start) > 1 and (size := len(reply.compact())) > max_chars:
        # The excess in proportion to the text is an estimate: a character takes up to six in JSON, and the
        # end of the text may take less than its beginning. So this is repeated until the reply fits.
        cut = (size - max_chars) * length // size + length // SPARE_SHARE
        end -= min(length - 1, max(1, cut))
        reply = _source_reply(extract, end, headings)
    return reply


def fetch_reply(extract: Extract, id_: str, max_chars: int) -> FetchReply:
    """The beginning of the window, within `max_chars` of JSON. `metadata` has its position in the source."""
    length = len(extract.text)
    reply = _fetch_reply(extract, id_, length)
    while length and (size := len(reply.compact())) > max_chars:
        length = length * max_chars // (size + 1)
        reply = _fetch_reply(extract, id_, length)
    return reply


def _fetch_reply(extract: Extract, id_: str, length: int) -> FetchReply:
    source, written = extract.source, extract.text[:length]
    text = disarmed(written)
    shown = {
        "collection": source.collection,
        "date": shown_date(source),
        "indexed_at": timestamp(source.ingested_at),
        "characters": f"{extract.start} to {extract.start + length} of {source.length}",
        "altered": "" if text == written else ALTERED,
        "trust": "untrusted",
    }
    return FetchReply(
        id=id_,
        title=label(source.title),
        text=text,
        url=shown_url(source) or resource_uri(source.collection, id_),
        metadata=shown_metadata(source) | {key: value for key, value in shown.items() if value},
    )


def _source_reply(extract: Extract, end: int, headings: int) -> SourceReply:
    source = extract.source
    written = extract.text[: end - extract.start]
    text = disarmed(written)
    return SourceReply(
        id=source.id,
        uri=resource_uri(source.collection, source.id),
        title=label(source.title),
        url=shown_url(source),
        collection=source.collection,
        mime_type=source.mime_type,
        date=shown_date(source),
        indexed_at=timestamp(source.ingested_at),
        metadata=shown_metadata(source, extract.fields),
        length=source.length,
        start=extract.start,
        end=end,
        next_start=end if end < source.length else None,
        text=text,
        outline=[
            HeadingRecord(title=label(heading.title), level=heading.level, start=heading.start)
            for heading in extract.outline[:headings]
        ],
        chunks=[_chunk_record(source, chunk) for chunk in extract.chunks if chunk.start < end],
        notes=[*_source_notes(extract, end, headings), *([] if text == written else [ALTERED])],
    )


def _chunk_record(source: Source, chunk: Chunk) -> ChunkRecord:
    uri = resource_uri(source.collection, chunk.id)
    return ChunkRecord(uri=uri, start=chunk.start, end=chunk.end, page=chunk.page)


def _source_notes(extract: Extract, end: int, headings: int) -> list[str]:
    notes = []
    if end < extract.source.length:
        rest = extract.source.length - end
        notes.append(f"{rest} more characters; continue with start={end}.")
    if headings < len(extract.outline):
        notes.append(f"The outline shows {headings} of {len(extract.outline)} headings.")
    return notes
