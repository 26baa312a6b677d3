"""A trace as a record: compact, bounded, and nothing in it that a reader may not have."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rag.answers import Answer, Hit, Listing, Preview, Step, SubQuery, Trace, Usage
from rag.corpus import Chunk, Source
from rag.search.reply.search_reply import trace_record
from rag.search.reply.untrusted import MAX_LABEL_CHARS
from rag.search.search_state import PREVIEW_CHARS, PREVIEWS

SOURCE = Source(
    "mfzq", "documents", "file:///a", "T", "text/plain", "d", 9, 99, datetime(2026, 1, 2, tzinfo=UTC)
)


def _hit(seq: int) -> Hit:
    return Hit(Chunk(f"mfzq/{seq}", "mfzq", seq, 0, 1, "x"), SOURCE, 0.5, 0.5)


def _told(answer: Answer) -> Any:  # noqa: ANN401 any JSON
    return json.loads(trace_record(answer).compact())


def test_a_trace_says_what_was_asked_done_and_found() -> None:
    stages = (
        Step("plan", 0.00042),
        Step("multi_query", 0.5, usage=Usage(1, 412, 96, 0.0012), before=1, after=2),
        Step(
            "fuse",
            0.001,
            after=2,
            preview=(Preview("mfzq/3", 0.98765, "text"),),
            hit_ids=("mfzq/3", "mfzq/4"),
        ),
        Step("rerank", 0.01234, "failed", ("It took too long.",), Usage(2, 10, 0), 2, 2),
    )
    queries = (
        SubQuery("who built it?"),
        SubQuery("builder", 2 / 3, "in other words", ("documents",), {"year": 1656}),
    )
    listings = {"mfzq/3": (Listing(0, "dense", 2, 0.61234), Listing(1, "sparse", 1, 1.0)), "mfzq/4": ()}
    assert _told(Answer((_hit(3),), (), None, stages, Trace(queries, listings))) == {
        "queries": [
            {"text": "who built it?", "weight": 1.0},
            {
                "text": "builder",
                "weight": 0.67,
                "reason": "in other words",
                "collections": ["documents"],
                "filter": '{"year": 1656}',
            },
        ],
        "steps": [
            {"name": "plan", "ms": 0.4},
            {
                "name": "multi_query",
                "ms": 500.0,
                "usage": {"requests": 1, "input_tokens": 412, "output_tokens": 96, "cost": 0.0012},
                "before": 1,
                "after": 2,
            },
            {
                "name": "fuse",
                "ms": 1.0,
                "after": 2,
                "preview": [{"id": "mfzq/3", "score": 0.99, "text": "text"}],
            },
            {
                "name": "rerank",
                "ms": 12.3,
                "status": "failed",
                "warnings": ["It took too long."],
                "usage": {"requests": 2, "input_tokens": 10, "output_tokens": 0},
                "before": 2,
                "after": 2,
            },
        ],
        "listings": {
            "mfzq/3": [
                {"query": 0, "list": "dense", "rank": 2, "score": 0.61},
                {"query": 1, "list": "sparse", "rank": 1, "score": 1.0},
            ]
        },
        "trust": "untrusted",
    }


def test_the_only_query_is_not_numbered() -> None:
    trace = Trace((SubQuery("who?"),), {"mfzq/3": (Listing(0, "dense", 1, 0.5),)})
    told = _told(Answer((_hit(3),), trace=trace))
    assert told["listings"] == {"mfzq/3": [{"list": "dense", "rank": 1, "score": 0.5}]}


def test_an_empty_filter_is_none_at_all_and_no_filter_is_absent() -> None:
    trace = Trace((SubQuery("who?", filter={}), SubQuery("what?")), {})
    assert [one.get("filter") for one in _told(Answer((), trace=trace))["queries"]] == ["{}", None]


def test_of_passages_that_are_no_hits_the_lists_are_not_told() -> None:
    listings = {f"mfzq/{seq}": (Listing(0, "dense", seq, 0.5),) for seq in (1, 2, 3)}
    told = _told(Answer((_hit(2), _hit(3)), trace=Trace((SubQuery("who?"),), listings)))
    assert list(told["listings"]) == ["mfzq/2", "mfzq/3"]


def test_an_answer_without_a_trace_has_its_stages_only() -> None:
    told = _told(Answer((_hit(1),), steps=(Step("plan", 0.001),)))
    assert told == {
        "queries": [],
        "steps": [{"name": "plan", "ms": 1.0}],
        "listings": {},
        "trust": "untrusted",
    }


def test_images_in_texts_are_spoiled_and_labels_are_of_one_line() -> None:
    preview = Preview("mfzq/1", 0.5, "see ![a](http://x/y)")
    stage = Step("fuse", 0.1, "failed", ("a\nb \u202ec",), preview=(preview,))
    query = SubQuery("who\nis \x1b[1mthat?", reason="![a](http://x/y)")
    told = _told(Answer((), steps=(stage,), trace=Trace((query,), {})))
    assert told["steps"][0]["preview"][0]["text"] == "see ! [a](http://x/y)"
    assert told["steps"][0]["warnings"] == ["a b c"]
    assert told["queries"][0] == {"text": "who is [1mthat?", "weight": 1.0, "reason": "! [a](http://x/y)"}


def test_the_size_does_not_depend_on_how_much_a_search_left_or_was_told() -> None:
    def size(much: int) -> int:
        stage = Step("fuse", 0.1, "failed", ("a" * much,), hit_ids=tuple(map(str, range(much))))
        query = SubQuery("a" * much, 0.5, "b" * much, filter={"c": "d" * much})
        return len(trace_record(Answer((), steps=(stage,), trace=Trace((query,), {}))).compact())

    assert size(100_000) == size(MAX_LABEL_CHARS + 1)


def test_a_search_of_many_stages_and_hits_stays_within_bounds() -> None:
    preview = tuple(Preview(f"mfzq/{at}", 0.55, "x" * PREVIEW_CHARS) for at in range(PREVIEWS))
    stage = Step("diversify", 0.123, before=1000, after=1000, preview=preview, hit_ids=("mfzq/1",) * 1000)
    hits = tuple(map(_hit, range(100)))
    listings = {hit.chunk.id: (Listing(0, "dense", 1, 0.5), Listing(0, "sparse", 1, 0.5)) for hit in hits}
    answer = Answer(hits, steps=(stage,) * 12, trace=Trace((SubQuery("who?"),), listings))
    without_hits = replace(answer, hits=())
    assert len(trace_record(without_hits).compact()) < 12 * 5 * (PREVIEW_CHARS + 60)
    assert len(trace_record(answer).compact()) < 32_000
