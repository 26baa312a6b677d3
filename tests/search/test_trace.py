"""What a trace tells of a search, and its record: bounded, and nothing in it that a reader may not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from rag.answers import Answer, Hit, Listing, Mode, Preview, SearchRequest, Step, SubQuery, Trace, Usage
from rag.corpus import Access, Chunk, Principal, Source
from rag.models.chat import Chat
from rag.search.desk import Desk
from rag.search.reply.search_reply import search_reply, with_trace
from rag.search.reply.untrusted import MAX_LABEL_CHARS
from rag.search.search_state import PREVIEW_CHARS, PREVIEWS
from tests.endpoint import Endpoint
from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANN, ME = Principal("default", "ann"), Principal("default")
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
STAGED = [
    {"stage": "dedupe"},
    {"stage": "diversify", "lambda": 1, "per_source": 4},  # by order alone: scores go by all documents
    {"stage": "neighbors"},
    {"stage": "compress"},
]
PROFILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "staged": {"stages": STAGED},
    "near": {"thresholds": {"min_similarity": 0.2}},
    "nothing": {"thresholds": {"min_similarity": 1.0}},
    "weak": {"thresholds": {"min_evidence": 1.0, "weak_evidence": "no hits"}},
    "easy": {"relax": True, "stages": [{"stage": "dedupe"}, {"stage": "neighbors"}]},
}
REQUESTS: list[dict[str, Any]] = [
    {"context": True},
    {"limit": 2, "context": True},
    {"limit": 0},
    {"filter": {"year": 1999}},
]


@pytest.fixture
async def stocked(shelf: Shelf) -> Shelf:
    """Ten passages of different likeness to the pendulum, in two sources, one of which repeats one."""
    await shelf.declare("documents", year="integer")
    longer = [f"A pendulum of iron {' '.join(f'x{n}y{m}' for m in range(n))} swings." for n in range(1, 8)]
    await shelf.put("a", *longer, fields={"year": 2001})
    await shelf.put("b", longer[1], "The clock stands still.", "Of what is a pendulum made?")
    return shelf


def _desk(shelf: Shelf, **settings: Any) -> Desk:  # noqa: ANN401 a settings file's
    return shelf.desk(profiles=PROFILES, **settings)


async def _asked(desk: Desk, principal: Principal = ME, **request: Any) -> Answer:  # noqa: ANN401 a request's
    request = {"query": "the pendulum of iron"} | request
    return await desk.search(principal, SearchRequest(**request), trace=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_is_the_same_with_and_without_a_trace(stocked: Shelf, mode: Mode) -> None:
    desk = _desk(stocked)
    for profile, request in product(PROFILES, REQUESTS):
        request_ = SearchRequest("the pendulum of iron", mode=mode, profile=profile, **request)
        plain, traced = [await desk.search(ME, request_, trace=trace) for trace in (False, True)]
        assert plain == traced
        names = [stage.name for stage in traced.steps if stage.name != "limit"]
        assert [stage.name for stage in plain.steps] == names
        assert plain.trace is None
        for stage in plain.steps:
            assert (stage.before, stage.after, stage.preview, stage.hit_ids) == (None, None, (), ())


@pytest.mark.parametrize("mode", MODES)
async def test_each_stage_tells_what_it_was_given_and_what_it_left(stocked: Shelf, mode: Mode) -> None:
    thresholds = {"min_similarity": 0.1}
    desk = stocked.desk(thresholds=thresholds, stages=STAGED)
    answer = await _asked(desk, mode=mode, limit=3, context=True)
    stages = {stage.name: stage for stage in answer.steps}
    path = ["fuse", "gate", "thresholds", "dedupe", "diversify", "limit", "neighbors", "compress", "context"]
    assert [*stages] == ["plan", "embed", "recall", *path]
    assert stages["plan"].after is stages["embed"].after is None
    assert stages["recall"].after == stages["fuse"].before == stages["fuse"].after
    steps = [stages[name] for name in path]
    for stage in steps:
        assert stage.after == len(stage.hit_ids) == len(set(stage.hit_ids))
        assert [preview.id for preview in stage.preview] == list(stage.hit_ids[: min(5, len(stage.hit_ids))])
    assert [stage.before for stage in steps[2:]] == [stage.after for stage in steps[1:-1]]
    assert set(stages["fuse"].hit_ids) == set(stages["gate"].hit_ids)
    assert stages["dedupe"].after == (stages["thresholds"].after or 0) - 1
    assert stages["limit"].after == 3
    assert stages["compress"].hit_ids == tuple(hit.chunk.id for hit in answer.hits)
    assert answer.context
    assert stages["context"].hit_ids == answer.context.chunk_ids


async def test_only_a_limit_that_cuts_is_a_stage(stocked: Shelf) -> None:
    for limit, cuts in [(7, True), (10, False), (11, False)]:
        answer = await _asked(stocked.desk(), limit=limit, mode="dense")
        assert [stage.name for stage in answer.steps if stage.name == "limit"] == ["limit"] * cuts
        assert len(answer.hits) == min(limit, 10)


async def test_where_thresholds_leave_nothing_there_is_nothing_for_the_limit(stocked: Shelf) -> None:
    answer = await _asked(_desk(stocked), profile="nothing", limit=2)
    assert [stage.name for stage in answer.steps][-2:] == ["thresholds", "explain"]
    assert (answer.steps[-2].before, answer.steps[-2].after) == (10, 0)


@pytest.mark.parametrize("limit", [1, 8])
async def test_a_search_without_a_part_of_its_filter_is_traced_like_the_first(
    stocked: Shelf, limit: int
) -> None:
    answer = await _asked(_desk(stocked), profile="easy", filter={"year": 1999}, limit=limit)
    names = [stage.name for stage in answer.steps if stage.name != "limit"]
    near = ["recall", "fuse", "gate"]
    assert names == ["plan", "embed", *near, "explain", *near, "dedupe", "neighbors"]
    assert answer.hits
    assert all(hit.excerpts for hit in answer.hits)
    gates = [stage.after for stage in answer.steps if stage.name == "gate"]
    assert gates == [0, 10]
    assert answer.trace
    assert set(answer.trace.listings) >= {hit.chunk.id for hit in answer.hits}


async def test_listings_have_the_ranks_and_scores_of_the_lists_themselves(stocked: Shelf) -> None:
    lists: dict[str, dict[str, tuple[int, float]]] = {}
    for mode in ("dense", "sparse"):
        hits = (await stocked.search("the pendulum of iron", mode=mode, limit=100)).hits
        lists[mode] = {hit.chunk.id: (rank, hit.score) for rank, hit in enumerate(hits, 1)}
    assert len(lists["dense"]) > len(lists["sparse"]) > 5
    answer = await _asked(_desk(stocked))
    assert answer.trace
    assert answer.trace.queries == (SubQuery("the pendulum of iron"),)
    listings = answer.trace.listings
    for name, expected in lists.items():
        listed = {id_: listing for id_, all_ in listings.items() for listing in all_ if listing.list == name}
        scores = {id_: listing.score for id_, listing in listed.items()}
        assert scores == pytest.approx({id_: score for id_, (_, score) in expected.items()})
        by_rank = sorted(listed, key=lambda id_: listed[id_].rank)
        assert [listed[id_].rank for id_ in by_rank] == list(range(1, len(expected) + 1))
        assert [scores[id_] for id_ in by_rank] == sorted(scores.values(), reverse=True)
    assert all(
        isinstance(listing, Listing) and listing.query == 0 for all_ in listings.values() for listing in all_
    )


async def test_previews_are_at_most_five_and_of_at_most_200_characters(shelf: Shelf) -> None:
    long = ["pendulum " * 60 + str(n) for n in range(9)]
    await shelf.put("a", *long)
    answer = await _asked(shelf.desk(), limit=7)
    previewing = [stage for stage in answer.steps if stage.hit_ids]
    assert [len(stage.preview) for stage in previewing] == [5] * len(previewing)
    for stage in previewing:
        for preview in stage.preview:
            assert preview.text == long[int(preview.id.partition("/")[2])][:200]


async def test_a_preview_is_of_what_a_stage_shows(stocked: Shelf) -> None:
    answer = await _asked(_desk(stocked), profile="staged", limit=3)
    assert [(preview.id, preview.score, preview.text) for preview in answer.steps[-1].preview] == [
        (hit.chunk.id, hit.score, hit.text[:200]) for hit in answer.hits
    ]


SECRET = ("the pendulum of iron: confidential", "confidential", "pendulum of iron", "pendulum")


async def _put_secret(shelf: Shelf) -> str:
    source = await shelf.put("secret", *SECRET, access=ONLY_ANN, fields={"year": 1999})
    await shelf.put("diary", "my pendulum of iron is confidential", collection="diaries", access=ONLY_ANN)
    return source.id


def _told(answer: Answer) -> Mapping[str, object]:
    """All that a trace tells but times, and scores, which go by how common words are everywhere."""
    assert answer.trace
    stages = [
        (replace(stage, seconds=0, preview=()), [(preview.id, preview.text) for preview in stage.preview])
        for stage in answer.steps
    ]
    listings = {
        id_: [(listing.query, listing.list, listing.rank) for listing in all_]
        for id_, all_ in answer.trace.listings.items()
    }
    return {"stages": stages, "queries": answer.trace.queries, "listings": listings, "notes": answer.notes}


@pytest.mark.slow
@pytest.mark.parametrize("sight", ["seeing", "blind"])
@pytest.mark.parametrize("profile", ["plain", "staged", "near", "easy"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_trace_is_as_if_there_were_nothing_else_than_the_principal_may_see(
    stocked: Shelf, mode: Mode, profile: str, sight: str, blind: Callable[[], None]
) -> None:
    desk = _desk(stocked, mode=mode)
    requests: list[dict[str, Any]] = [{"profile": profile, "limit": 3}, {"profile": profile, "limit": 20}]
    if sight == "seeing":  # what is hidden leaves something where the predicate is blind
        requests.append({"profile": profile, "filter": {"year": 1999}})
    before = [_told(await _asked(desk, **request)) for request in requests]
    secret = await _put_secret(stocked)
    desk = _desk(stocked, mode=mode)
    trace = str(asdict(await _asked(desk, ANN, profile="plain")))
    assert all(hidden in trace for hidden in (secret, "confidential", "diaries"))
    if sight == "blind":
        blind()
    for request, former in zip(requests, before, strict=True):
        answer = await _asked(desk, **request)
        if sight == "seeing" or mode != "hybrid":  # there the order goes by scores of words, too
            assert _told(answer) == former
        for hidden in (secret, "confidential", "diaries"):
            assert hidden not in str(asdict(answer))
    assert (desk.alarms > 0) == (sight == "blind")


@pytest.mark.slow
async def test_a_trace_of_query_stages_tells_of_no_hidden_collection(
    stocked: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    part = {"query": "clock", "conditions": [], "weight": 1.0, "reason": "why"}
    plan = {"queries": [part | {"collections": ["diaries"]}]}
    chat_server.script = [chats.saying(plan)]
    desk = stocked.desk(chat=chat, stages=[{"stage": "planner"}])
    before = _told(await _asked(desk))
    await _put_secret(stocked)
    assert _told(await _asked(desk)) == before
    answer = await _asked(desk, ANN)
    assert answer.trace
    assert [query.collections for query in answer.trace.queries] == [(), ("diaries",)]


async def test_what_stages_left_was_in_a_list(stocked: Shelf) -> None:
    answer = await _asked(_desk(stocked), profile="staged", limit=2)
    assert answer.trace
    for stage in answer.steps:
        assert set(stage.hit_ids) <= answer.trace.listings.keys()


SOURCE = Source(
    "mfzq", "documents", "file:///a", "T", "text/plain", "d", 9, 99, datetime(2026, 1, 2, tzinfo=UTC)
)


def _hit(seq: int) -> Hit:
    return Hit(Chunk(f"mfzq/{seq}", "mfzq", seq, 0, 1, "x"), SOURCE, 0.5, 0.5)


def _record(answer: Answer) -> Any:  # noqa: ANN401 any JSON
    return json.loads(_as_json(answer))


def _as_json(answer: Answer) -> str:
    reply = with_trace(search_reply(Answer(()), None), answer, None).compact()
    return json.dumps(json.loads(reply)["trace"], ensure_ascii=False, separators=(",", ":"))


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
    assert _record(Answer((_hit(3),), (), None, stages, Trace(queries, listings))) == {
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
    record = _record(Answer((_hit(3),), trace=trace))
    assert record["listings"] == {"mfzq/3": [{"list": "dense", "rank": 1, "score": 0.5}]}


def test_an_empty_filter_is_none_at_all_and_no_filter_is_absent() -> None:
    trace = Trace((SubQuery("who?", filter={}), SubQuery("what?")), {})
    assert [query.get("filter") for query in _record(Answer((), trace=trace))["queries"]] == ["{}", None]


def test_of_passages_that_are_no_hits_the_lists_are_not_told() -> None:
    listings = {f"mfzq/{seq}": (Listing(0, "dense", seq, 0.5),) for seq in (1, 2, 3)}
    record = _record(Answer((_hit(2), _hit(3)), trace=Trace((SubQuery("who?"),), listings)))
    assert list(record["listings"]) == ["mfzq/2", "mfzq/3"]


def test_an_answer_without_a_trace_has_its_stages_only() -> None:
    record = _record(Answer((_hit(1),), steps=(Step("plan", 0.001),)))
    assert record == {
        "queries": [],
        "steps": [{"name": "plan", "ms": 1.0}],
        "listings": {},
        "trust": "untrusted",
    }


def test_images_in_texts_are_spoiled_and_labels_are_of_one_line() -> None:
    preview = Preview("mfzq/1", 0.5, "see ![a](http://x/y)")
    stage = Step("fuse", 0.1, "failed", ("a\nb \u202ec",), preview=(preview,))
    query = SubQuery("who\nis \x1b[1mthat?", reason="![a](http://x/y)")
    record = _record(Answer((), steps=(stage,), trace=Trace((query,), {})))
    assert record["steps"][0]["preview"][0]["text"] == "see ! [a](http://x/y)"
    assert record["steps"][0]["warnings"] == ["a b c"]
    assert record["queries"][0] == {"text": "who is [1mthat?", "weight": 1.0, "reason": "! [a](http://x/y)"}


def test_the_size_does_not_depend_on_how_much_a_search_left_or_was_told() -> None:
    def size(much: int) -> int:
        stage = Step("fuse", 0.1, "failed", ("a" * much,), hit_ids=tuple(map(str, range(much))))
        query = SubQuery("a" * much, 0.5, "b" * much, filter={"c": "d" * much})
        return len(_as_json(Answer((), steps=(stage,), trace=Trace((query,), {}))))

    assert size(100_000) == size(MAX_LABEL_CHARS + 1)


def test_a_search_of_many_stages_and_hits_stays_within_bounds() -> None:
    preview = tuple(Preview(f"mfzq/{at}", 0.55, "x" * PREVIEW_CHARS) for at in range(PREVIEWS))
    stage = Step("diversify", 0.123, before=1000, after=1000, preview=preview, hit_ids=("mfzq/1",) * 1000)
    hits = tuple(map(_hit, range(100)))
    listings = {hit.chunk.id: (Listing(0, "dense", 1, 0.5), Listing(0, "sparse", 1, 0.5)) for hit in hits}
    answer = Answer(hits, steps=(stage,) * 12, trace=Trace((SubQuery("who?"),), listings))
    without_hits = replace(answer, hits=())
    assert len(_as_json(without_hits)) < 12 * 5 * (PREVIEW_CHARS + 60)
    assert len(_as_json(answer)) < 32_000
