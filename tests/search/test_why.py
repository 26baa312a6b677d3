"""Why a source is not among the hits, and why a filter leaves nothing; access is never explained."""

from __future__ import annotations

from datetime import UTC, datetime
from types import ModuleType
from typing import Any, get_args

import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.corpus import Access, FieldType, Principal
from rag.errors import NotFoundError
from rag.models.chat import Chat
from rag.search.desk import Desk
from rag.search.stages.thresholds import UNGROUNDED
from rag.search.why import SourceTrace
from tests.endpoint import Endpoint
from tests.search.conftest import ME, Shelf, title_set

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANN = Principal("default", "ann")


ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
QUERY = "pendulum clock"
BEST, GOOD, POOR = "pendulum clock", "pendulum clock tower", "a clock of sand"


@pytest.fixture
async def ids(shelf: Shelf) -> dict[str, str]:
    """Four sources from the best to the poorest, one of which repeats a newer one, and one without a word."""
    await shelf.declare("documents", year="integer")
    texts = {
        "best": (BEST,),
        "good": (GOOD,),
        "same": (GOOD,),
        "poor": ("sand", POOR),
        "other": ("hourglass",),
    }
    details = {
        name: {"fields": {"year": 2000 + at}, "date": datetime(2020 - at, 1, 1, tzinfo=UTC)}
        for at, name in enumerate(texts)
    }
    return {source.title: source.id for source in await shelf.put_all(texts, details_of=details)}


async def _why_not(
    shelf: Shelf,
    id_: str,
    *,
    settings: dict[str, Any] | None = None,
    principal: Principal = ME,
    **request: Any,  # noqa: ANN401 a request's
) -> tuple[Answer, SourceTrace]:
    desk = shelf.desk(**{"mode": "sparse"} | (settings or {}))
    answer, fate = await desk.why_not(principal, SearchRequest(QUERY, **request), id_)
    assert answer == await desk.search(principal, SearchRequest(QUERY, **request))
    assert (fate.step is None) == any(hit.source.id == fate.source.id for hit in answer.hits)
    return answer, fate


async def test_of_a_hit_its_rank_after_each_stage_is_told(shelf: Shelf, ids: dict[str, str]) -> None:
    settings = {"stages": [{"stage": "dedupe"}]}
    answer, fate = await _why_not(shelf, ids["poor"], settings=settings)
    assert (fate.step, fate.reason) == (None, "It is among the hits.")
    assert fate.source == answer.hits[2].source
    assert fate.chunk_id == f"{ids['poor']}/1" == answer.hits[2].chunk.id
    assert fate.ranks == (("fuse", 4), ("gate", 4), ("dedupe", 3))


@pytest.mark.parametrize("seq", ["1", "0", "99", "0-1"])
async def test_a_chunk_stands_for_its_source(shelf: Shelf, ids: dict[str, str], seq: str) -> None:
    assert (await _why_not(shelf, f"{ids['poor']}/{seq}"))[1] == (await _why_not(shelf, ids["poor"]))[1]


async def test_a_hit_beyond_the_context_is_still_a_hit(shelf: Shelf, ids: dict[str, str]) -> None:
    await shelf.put("long", "pendulum clock " * 99)
    answer, fate = await _why_not(shelf, ids["poor"], settings={"context_tokens": 100}, context=True)
    assert answer.context
    assert fate.step is None
    assert ("context", None) in fate.ranks


async def test_another_collection_is_not_looked_at(shelf: Shelf, ids: dict[str, str]) -> None:
    letter = await shelf.put("letter", BEST, collection="letters")
    _, fate = await _why_not(shelf, letter.id, collections=("documents",))
    assert (fate.step, fate.reason) == ("plan", "The search doesn't cover its collection, letters.")
    assert (fate.source, fate.chunk_id, fate.ranks) == (letter, "", ())
    assert (await _why_not(shelf, letter.id))[1].step is None
    assert (await _why_not(shelf, ids["best"], collections=("documents",)))[1].step is None


async def test_a_source_that_the_request_leaves_out_is_told_so(shelf: Shelf, ids: dict[str, str]) -> None:
    for request in ({"exclude_sources": (ids["best"],)}, {"sources": (ids["good"], ids["poor"])}):
        _, fate = await _why_not(shelf, ids["best"], **request)
        assert (fate.step, fate.reason) == ("sources", "The request excludes this source.")
    assert (await _why_not(shelf, ids["best"], sources=(ids["best"],)))[1].step is None


async def test_a_source_that_does_not_fit_the_filter_is_told_so(shelf: Shelf, ids: dict[str, str]) -> None:
    _, fate = await _why_not(shelf, ids["best"], filter={"year": {"$gt": 2000}})
    assert (fate.step, fate.reason) == ("filter", "Its fields don't match the filter.")
    assert (await _why_not(shelf, ids["best"], filter={"year": 2000}))[1].step is None


async def test_what_a_relaxed_filter_brings_is_traced_through_the_search_without_it(
    shelf: Shelf, ids: dict[str, str]
) -> None:
    settings, nowhere = {"relax": True}, {"year": 1900}
    _, fate = await _why_not(shelf, ids["best"], settings=settings, filter=nowhere)
    assert fate.step is None
    assert fate.ranks == (("fuse", 1), ("gate", 1))
    _, fate = await _why_not(shelf, ids["poor"], settings=settings, filter=nowhere, limit=2)
    assert (fate.step, fate.reason) == ("limit", "Its best passage has rank 4, and the limit is 2.")
    _, fate = await _why_not(shelf, ids["best"], filter=nowhere)
    assert fate.step == "filter"


async def test_of_a_source_in_no_list_the_best_passage_is_told(shelf: Shelf, ids: dict[str, str]) -> None:
    _, fate = await _why_not(shelf, ids["other"])
    assert (fate.step, fate.chunk_id, fate.ranks) == ("recall", "", ())
    assert fate.reason == (
        "None of its passages is among the first 50 of a list. It contains no word of the query."
    )
    await shelf.put("many", *(f"pendulum clock number{number}" for number in range(30)))
    dense = (await shelf.search(QUERY, mode="dense", limit=100)).hits
    similarity = next(hit.similarity for hit in dense if hit.source.id == ids["poor"])
    reason = f"By meaning, its best passage is {ids['poor']}/1, with a similarity of {similarity:.2f}."
    first = "None of its passages is among the first 10 of a list."
    for mode, expected in [
        ("dense", f"{first} {reason}"),
        ("sparse", f"{first} By words, its best passage is {ids['poor']}/1."),
        ("hybrid", f"{first} {reason} By words, its best passage is {ids['poor']}/1."),
    ]:
        settings = {"mode": mode, "candidates": 10}
        _, fate = await _why_not(shelf, ids["poor"], settings=settings)
        assert (fate.step, fate.reason) == ("recall", expected)


async def test_what_the_limit_cuts_is_told_its_rank(shelf: Shelf, ids: dict[str, str]) -> None:
    _, fate = await _why_not(shelf, ids["poor"], limit=3)
    assert (fate.step, fate.reason) == ("limit", "Its best passage has rank 4, and the limit is 3.")
    assert fate.ranks == (("fuse", 4), ("gate", 4), ("limit", None))
    assert (await _why_not(shelf, ids["poor"], limit=4))[1].step is None


async def test_where_no_passages_were_asked_for_the_limit_is_the_reason(
    shelf: Shelf, ids: dict[str, str]
) -> None:
    _, fate = await _why_not(shelf, ids["best"], limit=0)
    assert (fate.step, fate.reason) == ("limit", "The limit is 0.")
    _, fate = await _why_not(shelf, ids["best"], limit=0, exclude_sources=(ids["best"],))
    assert fate.step == "sources"


LEFT_OUT: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "thresholds": (
        "poor",
        {"thresholds": {"min_similarity": 0.7}},
        "thresholds",
        "It is less similar to the query than the thresholds require.",
    ),
    "all by thresholds": (
        "poor",
        {"mode": "dense", "thresholds": {"max_distance": 0.0, "percentage_distance": 0.0}},
        "thresholds",
        "It is less similar to the query than the thresholds require.",
    ),
    "dedupe": ("same", {"stages": [{"stage": "dedupe"}]}, "dedupe", "It nearly repeats a better passage."),
    "compress": (
        "other",
        {"mode": "dense", "stages": [{"stage": "compress"}]},
        "compress",
        "It contains no sentence that answers the query.",
    ),
    "the limit before compress": (
        "other",
        {"mode": "dense", "limit": 2, "stages": [{"stage": "dedupe"}, {"stage": "compress"}]},
        "limit",
        "Its best passage has rank 4, and the limit is 2.",
    ),
}


@pytest.mark.parametrize(("name", "settings", "step", "reason"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
async def test_each_stage_that_leaves_a_source_out_is_told(
    shelf: Shelf, ids: dict[str, str], name: str, settings: dict[str, Any], step: str, reason: str
) -> None:
    _, fate = await _why_not(shelf, ids[name], settings=settings)
    assert (fate.step, fate.reason) == (step, reason)
    after = [rank for stage, rank in fate.ranks if stage == step]
    assert after in ([], [None])
    assert fate.chunk_id.startswith(ids[name])
    assert fate.ranks[0][1] is not None


async def test_the_first_of_a_document_s_passages_is_never_too_many(
    shelf: Shelf, ids: dict[str, str]
) -> None:
    crowd = await shelf.put("crowd", *(f"pendulum clock number{number}" for number in range(9)))
    settings = {"stages": [{"stage": "diversify", "per_source": 1}]}
    answer, fate = await _why_not(shelf, crowd.id, settings=settings)
    assert [hit.source.id for hit in answer.hits].count(crowd.id) == 1
    assert fate.step is None
    _, fate = await _why_not(shelf, crowd.id, settings=settings, limit=1)
    assert (fate.step, fate.ranks[-1]) == ("limit", ("limit", None))
    assert (await _why_not(shelf, ids["best"], settings=settings, limit=1))[1].step is None


@pytest.mark.parametrize(
    ("stage", "step"), [({"limit": 2}, "rerank"), ({"candidates": 2}, "rerank"), ({}, None)]
)
async def test_what_a_reranker_does_not_leave_is_told_so(  # noqa: PLR0913, PLR0917 a model that answers
    shelf: Shelf,
    chats: ModuleType,
    chat: Chat,
    chat_server: Endpoint,
    ids: dict[str, str],
    stage: dict[str, object],
    step: str | None,
) -> None:
    scores = [{"index": place, "score": 9 - place} for place in range(4)]
    chat_server.script = [chats.saying({"scores": scores})]
    stages = [{"stage": "rerank", "by": "chat"} | stage]
    desk = shelf.desk(chat=chat, mode="sparse", limit=2, stages=stages)
    _, fate = await desk.why_not(ME, SearchRequest(QUERY, limit=2 if step else 8), ids["poor"])
    assert fate.step == step
    if step:
        assert (
            fate.reason
            == "It was not among the passages that were reranked, or not among those that the stage keeps."
        )
        assert fate.ranks == (("fuse", 4), ("gate", 4), ("rerank", None))


async def test_what_is_not_there_not_readable_or_gone_is_one_and_the_same(
    shelf: Shelf, ids: dict[str, str]
) -> None:
    hidden = await shelf.put("hidden", BEST, access=ONLY_ANN)
    diary = await shelf.put("diary", BEST, collection="diaries", access=ONLY_ANN)
    gone = await shelf.put("gone", BEST)
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.remove([gone.id])
    async with await shelf.small.writing(shelf.data, "elsewhere") as writer:
        foreign = shelf.small.new_source(writer, "foreign", BEST)
        await writer.replace([foreign])
    assert (await _why_not(shelf, hidden.id, principal=ANN))[1].step is None
    assert (await _why_not(shelf, foreign.source.id, principal=Principal("elsewhere")))[1].step is None
    reasons = set()
    for id_ in (
        hidden.id,
        f"{hidden.id}/0",
        diary.id,
        gone.id,
        foreign.source.id,
        "unknown",
        "",
        "/",
        "x" * 9999,
    ):
        with pytest.raises(NotFoundError) as error:
            await _why_not(shelf, id_)
        reasons.add((type(error.value), error.value.args, str(error.value)))
    assert len(reasons) == 1
    assert (await _why_not(shelf, ids["best"]))[1].step is None


async def test_ranks_count_only_what_the_principal_may_see(shelf: Shelf, ids: dict[str, str]) -> None:
    _, before = await _why_not(shelf, ids["poor"], limit=1)
    await shelf.put("hidden", *[BEST] * 5, access=ONLY_ANN)
    assert (await _why_not(shelf, ids["poor"], limit=1))[1] == before
    _, fate = await _why_not(shelf, ids["poor"], limit=1, principal=ANN)
    assert fate.ranks[0] == ("fuse", 9)


async def test_of_evidence_that_is_too_weak_that_is_told(shelf: Shelf, ids: dict[str, str]) -> None:
    settings = {"thresholds": {"min_evidence": 0.9, "weak_evidence": "no hits"}}
    _, fate = await _why_not(shelf, ids["poor"], settings=settings, sources=(ids["poor"],))
    assert (fate.step, fate.reason) == ("evidence", UNGROUNDED)
    _, fate = await _why_not(shelf, ids["poor"], settings=settings)  # now a better hit is evidence
    assert fate.step is None


BOB = Principal("default", "bob")
FIELDS: dict[str, FieldType] = {
    "year": "integer",
    "status": "string",
    "due": "datetime",
    "tags": "string list",
}
MODES: tuple[Mode, ...] = get_args(Mode)
DRAFT_2001: dict[str, object] = {"year": 2001, "status": "draft", "due": datetime(2024, 5, 1, tzinfo=UTC)}
FINAL_1999: dict[str, object] = {"year": 1999, "status": "final", "tags": ("old",)}


@pytest.fixture
async def filed(shelf: Shelf) -> Shelf:
    """A draft and a final paper that everybody reads, and a secret one of Ann's."""
    await shelf.declare("papers", **FIELDS)
    for name, fields, access in [
        ("draft", DRAFT_2001, Access("tenant")),
        ("final", FINAL_1999, Access("tenant")),
        ("secret", {"status": "secret", "year": 2050}, Access("restricted", frozenset({"user:ann"}))),
    ]:
        await shelf.put(name, "pendulum", collection="papers", fields=fields, access=access)
    return shelf


def _desk(shelf: Shelf) -> Desk:
    """A desk with a profile that relaxes."""
    return shelf.desk(profiles={"easy": {"relax": True}})


async def _asked(
    desk: Desk,
    filter_: dict[str, object],
    *,
    relax: bool = False,
    mode: Mode = "hybrid",
    principal: Principal = BOB,
    query: str = "pendulum",
) -> Answer:
    request = SearchRequest(query, filter=filter_, mode=mode, profile="easy" if relax else None)
    answer = await desk.search(principal, request)
    assert desk.alarms == 0
    return answer


async def test_a_filter_whose_results_are_too_unlike_is_not_said_to_leave_nothing(filed: Shelf) -> None:
    strict = {"thresholds": {"min_similarity": 0.99}}
    desk = filed.desk(relax=True, profiles={"strict": strict})
    for query, titles in [("sand", set()), ("pendulum", {"draft"})]:
        request = SearchRequest(query, filter={"year": 2001}, profile="strict")
        answer = await desk.search(BOB, request)
        assert title_set(answer) == titles
        assert not any("filter" in note for note in answer.notes)


EMPTY: list[tuple[dict[str, object], str, str, list[str]]] = [
    ({"year": 1980}, "year $eq", "", ["draft", "final"]),
    (
        {"status": "final", "year": 2001},
        "year $eq",
        " Each of these conditions alone leaves results: status $eq, year $eq.",
        ["final"],
    ),
    (
        {"status": "lost", "year": {"$gte": 2000}},
        "status $eq",
        " Each of these conditions alone leaves results: year $gte.",
        ["draft"],
    ),
    (
        {"status": "lost", "year": {"$lt": 1000}},
        "status $eq, year $lt",
        " Each of these conditions alone leaves results: none.",
        ["draft", "final"],
    ),
    (
        {"due": {"$gt": "2024-01-01"}, "status": "final"},
        "status $eq",
        " Each of these conditions alone leaves results: due $gt, status $eq.",
        ["draft"],
    ),
    (
        {"due": {"$gt": "2030-01-01"}, "status": "final"},
        "due $gt",
        " Each of these conditions alone leaves results: status $eq.",
        ["final"],
    ),
    ({"tags": {"$in": ["a", "b"]}}, "tags $in", "", ["draft", "final"]),
    ({"$or": [{"year": 1}, {"year": 2}]}, "$or (year $eq, year $eq)", "", ["draft", "final"]),
    ({"$not": {"year": {"$gt": 0}}}, "$not (year $gt)", "", ["draft", "final"]),
    ({"year": {"$nin": [1999, 2001]}}, "year $nin", "", ["draft", "final"]),
    ({"status": {"$exists": False}}, "status $exists", "", ["draft", "final"]),
]
"""Filters that exclude all, what is to be left out of each, what alone leaves results, and titles without."""


@pytest.mark.parametrize("mode", MODES)
async def test_the_note_says_which_conditions_are_to_be_left_out_and_a_profile_that_relaxes_drops_them(
    filed: Shelf, mode: Mode
) -> None:
    desk = _desk(filed)
    for filter_, dropped, alone, titles in EMPTY:
        answer = await _asked(desk, filter_, mode=mode)
        assert answer.hits == (), filter_
        note = f"The filter excludes all results; without {dropped} there are results.{alone}"
        assert answer.notes == (note,), filter_
        answer = await _asked(desk, filter_, mode=mode, relax=True)
        assert title_set(answer) == set(titles), filter_
        assert answer.notes == (f"The filter excludes all results. Conditions dropped: {dropped}.",), filter_


@pytest.mark.parametrize("relax", [False, True])
async def test_a_filter_that_leaves_something_is_kept_and_needs_no_word(filed: Shelf, *, relax: bool) -> None:
    answer = await _asked(_desk(filed), {"year": 2001, "status": "draft"}, relax=relax)
    assert (title_set(answer), answer.notes) == ({"draft"}, ())


@pytest.mark.parametrize("relax", [False, True])
async def test_neither_words_nor_relaxation_reach_what_the_principal_may_not_see(
    filed: Shelf, *, relax: bool
) -> None:
    only_secret: dict[str, object] = {"status": "secret", "year": 2050}
    assert title_set(await _asked(_desk(filed), only_secret, relax=relax, principal=ANN)) == {"secret"}
    answer = await _asked(_desk(filed), only_secret, relax=relax)
    assert "secret" not in title_set(answer)
    (note,) = answer.notes
    assert "status $eq, year $eq" in note
    if not relax:
        assert note.endswith("alone leaves results: none.")


async def test_where_the_words_are_nowhere_the_filter_is_not_blamed(filed: Shelf) -> None:
    answer = await _asked(_desk(filed), {"year": 1980}, mode="sparse", relax=True, query="zebra")
    assert answer.hits == ()
    assert answer.notes == (
        "No passage contains a word of the query. Use other words, or mode hybrid to search by meaning, too.",
    )


async def test_by_words_too_the_filter_is_blamed_if_without_it_any_passage_is_near_enough(
    shelf: Shelf,
) -> None:
    await shelf.declare("documents", year="integer")
    texts = {"rare": "a zebra in the high grass of the far plain"}
    await shelf.put_all(texts | dict.fromkeys("abcdef", "pendulum clock tower bell"), fields={"year": 2001})
    query = "zebra pendulum clock tower bell"
    assert title_set(await shelf.search(query, mode="sparse", limit=1)) == {"rare"}
    desk = shelf.desk(mode="sparse", thresholds={"min_similarity": 0.7})
    answer = await desk.search(BOB, SearchRequest(query, filter={"year": 1980}))
    assert answer.notes == ("The filter excludes all results; without year $eq there are results.",)
    unlike = await desk.search(BOB, SearchRequest("zebra", filter={"year": 1980}))
    assert unlike.notes[0].startswith("No passage that meets the thresholds contains a word of the query.")


async def test_a_list_of_sources_is_not_relaxed(filed: Shelf) -> None:
    desk = filed.desk(relax=True)
    request = SearchRequest("pendulum", filter={"year": 2001}, sources=("none",))
    assert (await desk.search(BOB, request)).hits == ()
    assert title_set(await desk.search(BOB, SearchRequest("pendulum", filter={"year": 1980}))) == {
        "draft",
        "final",
    }


async def test_types_that_differ_between_collections_are_said_where_a_value_fits_only_one(
    filed: Shelf,
) -> None:
    await filed.declare("songs", year="string")
    await filed.put("song", "pendulum", collection="songs", fields={"year": "MMI"})
    desk = filed.desk()
    hint = r"different types: year; name one collection"
    for value in (2001, "MMI"):
        with pytest.raises(Exception, match=hint):
            await desk.search(BOB, SearchRequest("pendulum", filter={"year": value}))
    for collection, year, titles in [("papers", 2001, {"draft"}), ("songs", "MMI", {"song"})]:
        request = SearchRequest("pendulum", filter={"year": year}, collections=(collection,))
        assert title_set(await desk.search(BOB, request)) == titles
    request = SearchRequest("pendulum", filter={"year": {"$exists": True}})
    assert title_set(await desk.search(BOB, request)) == {"draft", "final", "song"}
