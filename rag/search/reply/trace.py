"""Renders the trace of a search as JSON, for the tool's `explain` and for `--explain --json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from rag.search.reply.fields import SCORE_DIGITS, Reply
from rag.search.reply.untrusted import disarmed, label

if TYPE_CHECKING:
    from rag.answers import Answer, Listing, Preview, Step, SubQuery, Usage
    from rag.search.reply.search import SearchReply

COST_DIGITS = 6
NO_ROOM = "The trace did not fit; raise max_chars or lower limit."
NO_ROOM_CHARS = len(f'"{NO_ROOM}",')


class QueryRecord(Reply):
    """One of the queries of a search. `filter` is JSON as a string, truncated like a title."""

    text: str
    weight: float
    reason: str | None = None
    collections: list[str] | None = None
    filter: str | None = None


class UsageRecord(Reply):
    """Calls of models that count tokens."""

    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None = None


class PreviewRecord(Reply):
    """The beginning of a hit, as it was after a step."""

    id: str
    score: float
    text: str


class StepRecord(Reply):
    """A step of the search. `before` and `after` count queries or hits; `preview` has the first hits."""

    name: str
    ms: float
    status: Literal["failed"] | None = None
    warnings: list[str] | None = None
    usage: UsageRecord | None = None
    before: int | None = None
    after: int | None = None
    preview: list[PreviewRecord] | None = None


class ListingRecord(Reply):
    """The rank and score of a hit in one list. `query` is the query's index, if there are several."""

    query: int | None = None
    list: Literal["dense", "sparse", "exact"]
    rank: int
    score: float


class TraceRecord(Reply):
    """How a search went. `listings` maps the id of each hit to the lists that had it."""

    queries: list[QueryRecord]
    steps: list[StepRecord]
    listings: dict[str, list[ListingRecord]]
    trust: Literal["untrusted"] = "untrusted"


def trace_record(answer: Answer) -> TraceRecord:
    """The steps and the trace of an answer, without the ids of all chunks that each step left.

    Scores are rounded like those of hits. An answer without a trace has its steps only.
    """
    queries = answer.trace.queries if answer.trace else ()
    listings = answer.trace.listings if answer.trace else {}
    several = len(queries) > 1
    return TraceRecord(
        queries=[_query(query) for query in queries],
        steps=[_step(step) for step in answer.steps],
        listings={
            chunk.id: [_listing(one, several=several) for one in listings[chunk.id]]
            for hit in answer.hits
            for chunk in hit.shown_chunks
            if chunk.id in listings
        },
    )


def with_trace(reply: SearchReply, answer: Answer, max_chars: int | None) -> SearchReply:
    """A reply with the trace of its answer, within `max_chars` of JSON.

    A trace that doesn't fit loses its previews. If it still doesn't fit, a note replaces it, for which the
    reply must leave `NO_ROOM_CHARS`.
    """
    whole = trace_record(answer)
    brief = whole.model_copy(
        update={"steps": [step.model_copy(update={"preview": None}) for step in whole.steps]}
    )
    for trace in (whole, brief):
        explained = reply.model_copy(update={"trace": trace})
        if max_chars is None or len(explained.compact()) <= max_chars:
            return explained
    return reply.model_copy(update={"notes": [*reply.notes, NO_ROOM]})


def _query(query: SubQuery) -> QueryRecord:
    filter_ = None if query.filter is None else json.dumps(query.filter, ensure_ascii=False, default=str)
    return QueryRecord(
        text=label(query.text),
        weight=round(query.weight, SCORE_DIGITS),
        reason=label(query.reason) or None,
        collections=list(query.collections) or None,
        filter=label(filter_) if filter_ else None,
    )


def _step(step: Step) -> StepRecord:
    return StepRecord(
        name=step.name,
        ms=round(1000 * step.seconds, 1),
        status="failed" if step.status == "failed" else None,
        warnings=[label(warning) for warning in step.warnings] or None,
        usage=_usage(step.usage) if step.usage else None,
        before=step.before,
        after=step.after,
        preview=[_preview(one) for one in step.preview] or None,
    )


def _usage(usage: Usage) -> UsageRecord:
    return UsageRecord(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=round(usage.cost, COST_DIGITS) or None,
    )


def _preview(preview: Preview) -> PreviewRecord:
    text = disarmed(preview.text)
    return PreviewRecord(id=preview.id, score=round(preview.score, SCORE_DIGITS), text=text)


def _listing(listing: Listing, *, several: bool) -> ListingRecord:
    return ListingRecord(
        query=listing.query if several else None,
        list=listing.list,
        rank=listing.rank,
        score=round(listing.score, SCORE_DIGITS),
    )
