"""Reranking by real endpoints: their order is the answer's, they fail softly, and they read what we may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag.answers import Answer, SearchRequest, Step, Usage
from rag.config.model_settings import RerankerSettings
from rag.config.settings import Settings
from rag.corpus import Access, Principal
from rag.errors import ConfigurationError
from rag.models.chat import Chat
from rag.models.rerank import RemoteReranker, Reranker, remote_reranker
from rag.search.desk import Desk
from tests.endpoint import Behaviour, Endpoint
from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANN, ME = Principal("default", "ann"), Principal("default")
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
RERANK = {"stage": "rerank"}
WORDS = {
    "cohere": ("results", "relevance_score"),
    "voyage": ("data", "relevance_score"),
    "tei": ("", "score"),
}


def _settings(server: Endpoint, provider: str) -> RerankerSettings:
    return RerankerSettings.model_validate({"provider": provider, "model": "tiny", "base_url": server.url})


@pytest.fixture(params=["cohere"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def reranker(rerank_server: Endpoint, dialect: str) -> AsyncIterator[Reranker]:
    async with remote_reranker(_settings(rerank_server, dialect), {}) as opened:
        yield opened


@pytest.fixture
async def stocked(shelf: Shelf) -> Shelf:
    """Six passages of different likeness to the pendulum."""
    await shelf.put("clocks", *(f"pendulum {'and other words ' * n}" for n in range(6)))
    return shelf


def _scoring(dialect: str, score: Callable[[int, int], float | None]) -> Behaviour:
    """An endpoint that scores a text by its place and the number of texts; best first, as such servers do."""

    def reply(request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        count = len(_texts(request))
        place, word = WORDS[dialect]
        scored = [(at, value) for at in range(count) if (value := score(at, count)) is not None]
        results = [{"index": at, word: value} for at, value in sorted(scored, key=lambda pair: -pair[1])]
        return 200, {}, json.dumps({place: results} if place else results).encode()

    return reply


def _falling(place: int, count: int) -> float:
    return 1 - place / count


def _rising(place: int, count: int) -> float:
    return (place + 1) / count


def _texts(request: dict[str, Any]) -> list[str]:
    texts: list[str] = request.get("documents") or request["texts"]
    return texts


def _ids(answer: Answer) -> list[str]:
    return [hit.chunk.id for hit in answer.hits]


def _stage(answer: Answer) -> Step:
    (stage,) = [stage for stage in answer.steps if stage.name == "rerank"]
    return stage


async def _order(shelf: Shelf) -> list[str]:
    """That of the search itself."""
    return _ids(await shelf.search("pendulum"))


async def _asked(desk: Desk, principal: Principal = ME, **request: Any) -> Answer:  # noqa: ANN401 a request's
    return await desk.search(principal, SearchRequest("pendulum", **request), trace=True)


@pytest.mark.parametrize("dialect", WORDS, indirect=True)
async def test_the_order_is_that_of_the_reranker_whatever_it_says(
    stocked: Shelf, rerank_server: Endpoint, reranker: Reranker, dialect: str
) -> None:
    desk, order = stocked.desk(reranker=reranker, stages=[RERANK]), await _order(stocked)
    assert len(order) == 6
    rerank_server.script = [_scoring(dialect, _falling), _scoring(dialect, _rising)]
    for expected in (order, order[::-1]):
        answer = await _asked(desk)
        assert _ids(answer) == expected
        assert [hit.score for hit in answer.hits] == pytest.approx([1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
        assert (_stage(answer).status, answer.notes) == ("ok", ())


async def test_equals_keep_the_order_of_the_search(
    stocked: Shelf, rerank_server: Endpoint, reranker: Reranker
) -> None:
    rerank_server.script = [_scoring("cohere", lambda _place, _count: 0.5)]
    assert _ids(await _asked(stocked.desk(reranker=reranker, stages=[RERANK]))) == await _order(stocked)


@pytest.mark.slow
async def test_of_equals_for_the_reranker_the_newer_comes_first_and_one_without_a_score_still_last(
    shelf: Shelf, rerank_server: Endpoint, reranker: Reranker
) -> None:
    dates = {f"of {year}": {"date": datetime(year, 1, 1, tzinfo=UTC)} for year in (1990, 2026, 2003)}
    await shelf.put_all(dict.fromkeys(dates, "pendulum"), details_of=dates, title="bylaws")
    desk = shelf.desk(reranker=reranker, stages=[RERANK])
    rising = _scoring("cohere", lambda place, _count: 0.004 + 0.005 * place)  # the oldest is the best
    newest_without = _scoring("cohere", lambda place, _count: 0.004 if place else None)
    rerank_server.script = [rising, newest_without]
    for expected in (["of 2026", "of 2003", "of 1990"], ["of 2003", "of 1990", "of 2026"]):
        assert [hit.source.uri for hit in (await _asked(desk)).hits] == expected


@pytest.mark.parametrize(
    ("candidates", "most", "limit", "scored", "ranks"),
    [(3, None, 2, 3, [2, 1]), (1, None, 4, 4, [3, 2, 1, 0]), (30, 2, 4, 6, [5, 4]), (3, 3, 6, 6, [5, 4, 3])],
)
async def test_the_stage_scores_its_candidates_and_leaves_as_many_as_its_limit(  # noqa: PLR0913, PLR0917 a row of the table
    stocked: Shelf,
    rerank_server: Endpoint,
    reranker: Reranker,
    candidates: int,
    most: int | None,
    limit: int,
    scored: int,
    ranks: list[int],
) -> None:
    rerank_server.script = [_scoring("cohere", _rising)]
    order = await _order(stocked)
    stage = RERANK | {"candidates": candidates, "limit": most}
    answer = await _asked(stocked.desk(reranker=reranker, stages=[stage]), limit=limit)
    assert [len(_texts(request)) for request in rerank_server.requests] == [scored]
    assert _ids(answer) == [order[place] for place in ranks]
    assert (_stage(answer).before, _stage(answer).after) == (6, most or scored)


async def test_a_text_is_scored_under_its_heading_as_it_is_shown(
    shelf: Shelf, rerank_server: Endpoint, reranker: Reranker
) -> None:
    source = await shelf.put("clocks", "Clocks", "with a pendulum", "of sand")
    rerank_server.script = [_scoring("cohere", _falling)]
    desk = shelf.desk(reranker=reranker, mode="sparse", stages=[RERANK])
    await _asked(desk)
    beside = [{"stage": "neighbors"}, RERANK]
    await _asked(shelf.desk(reranker=reranker, mode="sparse", stages=beside), sources=(source.id,))
    assert [request["query"] for request in rerank_server.requests] == ["pendulum"] * 2
    assert [_texts(request) for request in rerank_server.requests] == [
        ["Clocks\n\nwith a pendulum"],
        ["Clocks\n\nClocks\n\nwith a pendulum\n\nof sand"],
    ]


async def test_what_got_no_score_stands_last_in_its_order_with_a_note(
    stocked: Shelf, rerank_server: Endpoint, reranker: Reranker
) -> None:
    rerank_server.script = [_scoring("cohere", lambda place, _count: None if place in {0, 3} else place / 10)]
    order = await _order(stocked)
    answer = await _asked(stocked.desk(reranker=reranker, stages=[RERANK]))
    assert _ids(answer) == [order[place] for place in (5, 4, 2, 1, 0, 3)]
    assert [hit.score for hit in answer.hits] == [0.5, 0.4, 0.2, 0.1, 0, 0]
    assert answer.notes == ("The reranker gave no score to 2 of the passages; they come last.",)
    assert (_stage(answer).status, _stage(answer).warnings) == ("ok", answer.notes)


async def test_an_unscored_passage_stands_behind_one_with_a_score_of_zero(
    stocked: Shelf, rerank_server: Endpoint, reranker: Reranker
) -> None:
    rerank_server.script = [_scoring("cohere", lambda place, _count: None if place == 0 else 0.0)]
    order = await _order(stocked)
    assert _ids(await _asked(stocked.desk(reranker=reranker, stages=[RERANK]))) == [*order[1:], order[0]]


FAILURES = {
    "HTTP 500": (10.0, "model is not available just now"),
    "nonsense": (10.0, "model gave an invalid answer"),
    "silence": (0.5, "no answer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("by", ["reranker", "chat"])
async def test_where_reranking_fails_the_answer_is_that_of_the_search_itself_and_says_so(  # noqa: PLR0913, PLR0917 both models
    stocked: Shelf,
    rerank_server: Endpoint,
    reranker: Reranker,
    chat_server: Endpoint,
    chat: Chat,
    failure: str,
    by: str,
) -> None:
    seconds, cause = FAILURES[failure]
    assert isinstance(reranker, RemoteReranker)
    hasty = {"timeout_seconds": seconds}
    reranker = replace(reranker, settings=reranker.settings.model_copy(update=hasty))
    chat = replace(chat, settings=chat.settings.model_copy(update=hasty))
    for server in (rerank_server, chat_server):
        behaviours = {
            "HTTP 500": server.failing(500),
            "nonsense": server.sending(b"[]"),
            "silence": server.silent,
        }
        server.script = [behaviours[failure]]
    stage = RERANK | {"by": by, "candidates": 3, "limit": 1}
    answer = await _asked(stocked.desk(reranker=reranker, chat=chat, stages=[stage]), limit=2)
    assert answer.hits == (await stocked.search("pendulum", limit=2)).hits
    assert _stage(answer).status == "failed"
    assert _stage(answer).warnings == answer.notes
    (note,) = answer.notes
    assert note.startswith("The passages were not reranked (")
    assert note.endswith("); they keep the order of the search.")
    if by == "reranker" or failure != "nonsense":
        assert cause in note
    assert (_stage(answer).before, _stage(answer).after) == (6, 6)


@pytest.mark.slow
async def test_the_chat_model_s_score_counts_beside_likeness_and_place(
    shelf: Shelf, chats: ModuleType, chat: Chat, chat_server: Endpoint
) -> None:
    await shelf.put_all(dict.fromkeys("abcd", "pendulum"))  # a similarity of 1
    order = await _order(shelf)
    scores = [{"index": 0, "score": 4}, {"index": 1, "score": 9}, {"index": 2, "score": 5}]
    chat_server.script = [chats.saying({"scores": scores}, tokens=(100, 10))]
    stage = RERANK | {"by": "chat"}
    answer = await _asked(shelf.desk(chat=chat, stages=[stage]))
    assert _ids(answer) == [order[place] for place in (1, 0, 2, 3)]
    by_hand = [
        0.36 + 0.4 + 0.15,  # 9 of 10, second of four
        0.16 + 0.4 + 0.20,  # 4 of 10, first
        0.20 + 0.4 + 0.10,  # 5 of 10, third
        0,
    ]
    assert [hit.score for hit in answer.hits] == pytest.approx(by_hand)
    assert answer.notes == ("The reranker gave no score to 1 of the passages; they come last.",)
    assert _stage(answer).usage == Usage(1, 100, 10, 10 / 1_000_000)
    assert [passage["text"] for passage in chats.contents(chat_server)[0]["texts"]] == [
        "pendulum\n\npendulum"
    ] * 4


def _sent(servers: Sequence[Endpoint]) -> str:
    return json.dumps([request for server in servers for request in server.requests])


@pytest.mark.parametrize("sight", ["seeing", "blind"])
async def test_a_model_is_sent_only_what_the_principal_may_read(  # noqa: PLR0913, PLR0917 both models
    shelf: Shelf,
    chats: ModuleType,
    rerank_server: Endpoint,
    reranker: Reranker,
    chat_server: Endpoint,
    chat: Chat,
    blind: Callable[[], None],
    sight: str,
) -> None:
    await shelf.put("secret", "pendulum", "pendulum: confidential", access=ONLY_ANN)
    await shelf.put("open", "a pendulum among other words that everybody reads")
    if sight == "blind":
        blind()
    servers = [rerank_server, chat_server]
    rerank_server.script = [_scoring("cohere", _falling)]
    chat_server.script = [chats.saying({"scores": [{"index": 0, "score": 10}]})]
    stages = [{"stage": "neighbors"}, RERANK, RERANK | {"by": "chat"}]
    desk = shelf.desk(reranker=reranker, chat=chat, stages=stages)
    answer = await _asked(desk)
    assert [hit.source.title for hit in answer.hits] == ["open"]
    assert [len(server.requests) for server in servers] == [1, 1]
    assert "everybody" in _sent(servers)
    assert "confidential" not in _sent(servers)
    assert _sent(servers).count("words that everybody reads") == 4  # heading and text, to each
    assert (await _asked(desk, ANN)).hits[0].source.title == "secret"
    assert all("confidential" in _sent([server]) for server in servers)


@pytest.mark.parametrize("dialect", ["cohere", "tei"], indirect=True)
async def test_a_stage_can_name_another_model_of_its_endpoint_where_that_has_several(  # noqa: PLR0913, PLR0917 both models
    stocked: Shelf,
    rerank_server: Endpoint,
    reranker: Reranker,
    chats: ModuleType,
    chat: Chat,
    chat_server: Endpoint,
    dialect: str,
) -> None:
    rerank_server.script = [_scoring(dialect, _rising)]
    chat_server.script = [chats.saying({"scores": [{"index": 0, "score": 4}]})]
    by_chat = RERANK | {"by": "chat", "model": "small"}
    await _asked(stocked.desk(chat=chat, stages=[by_chat]))
    assert chat_server.requests[-1]["model"] == "small"
    desk = stocked.desk(reranker=reranker, stages=[RERANK | {"model": "large"}])
    if dialect == "tei":
        with pytest.raises(ConfigurationError):
            await _asked(desk)
    else:
        await _asked(desk)
        assert rerank_server.requests[-1]["model"] == "large"


@pytest.mark.parametrize("by", ["reranker", "chat"])
async def test_no_model_is_asked_where_nothing_is_found(
    stocked: Shelf,
    rerank_server: Endpoint,
    reranker: Reranker,
    chat_server: Endpoint,
    chat: Chat,
    by: str,
) -> None:
    desk = stocked.desk(reranker=reranker, chat=chat, mode="sparse", stages=[RERANK | {"by": by}])
    answer = await desk.search(ME, "hourglass")
    assert not answer.hits
    assert not rerank_server.requests
    assert not chat_server.requests


@pytest.mark.slow
async def test_a_desk_opens_the_models_that_its_settings_name(
    clock_room: Path, chats: ModuleType, rerank_server: Endpoint, chat_server: Endpoint
) -> None:
    settings = Settings.model_validate(
        {
            "data": clock_room,
            "chat": chats.settings(chat_server),
            "reranker": _settings(rerank_server, "tei"),
            "search": {"stages": [{"stage": "multi_query"}, RERANK]},
        }
    )
    chat_server.script = [chats.saying({"queries": ["clock with a weight on a string"]})]
    rerank_server.script = [_scoring("tei", _rising)]
    keys = {"RERANKER_API_KEY": "mine", "OPENAI_API_KEY": "another"}
    async with Desk.open(settings, keys) as desk:
        answer = await desk.search(ME, "pendulum clock")
    assert answer.hits[0].score == 1
    assert not answer.notes
    assert rerank_server.keys[0] == "Bearer mine"
    assert chat_server.keys[0] == "Bearer another"
