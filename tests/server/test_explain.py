"""What a search did, in its trace and in the operator's metrics: for who may know, within every bound."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import jsonschema  # type: ignore[import-untyped]  # its types are a package of their own
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from rag.search.reply.search_reply import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from tests.endpoint import Endpoint
    from tests.server.conftest import Message, Remote, Start, Wire, World

pytestmark = pytest.mark.slow


QUESTION = "who built the first pendulum clock?"
NOT_OFFERED = "The operator has not enabled explain; leave it out."
ON = {"REFDESK_SERVER_EXPLAIN": "true"}
STAGES = ["plan", "embed", "recall", "fuse", "gate", "limit"]
CLOCK_DIGITS = 40  # characters by which two replies differ, for a stage takes 9 ms or 10


@pytest.fixture(scope="module")
def explaining(lasting_start: Start, clock_room: Path) -> Wire:
    """A server on the demo corpus that offers explain."""
    return lasting_start(clock_room, era="modern", env=ON).begun()


def reply(wire: Wire, **arguments: object) -> tuple[Message, int]:
    """The reply to the question, the same in both forms, and its characters."""
    result = wire.tool("search", {"query": QUESTION} | arguments)
    (block,) = result["content"]
    assert json.loads(block["text"]) == result["structuredContent"]
    return result["structuredContent"], len(block["text"])


def has_previews(trace: Message) -> bool:
    return any("preview" in stage for stage in trace["steps"])


def test_explain_is_no_argument_unless_the_operator_offers_it(wire: Wire) -> None:
    (search, _) = wire.result("tools/list")["tools"]
    assert "explain" not in search["inputSchema"]["properties"]
    assert "trace" not in search["outputSchema"]["properties"]
    assert wire.tool_error("search", {"query": QUESTION, "explain": True}) == NOT_OFFERED
    for plain in ({}, {"explain": False}):
        content, _ = reply(wire, **plain)
        assert content["results"]
        assert "trace" not in content


def test_where_explain_is_offered_the_schemas_say_so_and_replies_fit_them(explaining: Wire) -> None:
    (search, _) = explaining.result("tools/list")["tools"]
    assert search["inputSchema"]["properties"]["explain"] == {
        "type": "boolean",
        "description": "Also return a trace of the search.",
    }
    jsonschema.Draft202012Validator.check_schema(search["outputSchema"])
    content, _ = reply(explaining, explain=True, max_chars=50_000)
    assert "trace" in content
    jsonschema.validate(content, search["outputSchema"])
    assert (
        explaining.tool_error("search", {"query": "x", "explain": "yes"}) == "explain must be true or false."
    )


def test_nobody_gets_a_trace_who_did_not_ask_for_one(explaining: Wire) -> None:
    plain, _ = reply(explaining, limit=3)
    explained, _ = reply(explaining, limit=3, explain=True, max_chars=50_000)
    assert "trace" not in plain
    assert {key: value for key, value in explained.items() if key != "trace"} == plain


def test_a_trace_tells_the_stages_their_first_hits_and_which_lists_had_each(explaining: Wire) -> None:
    content, _ = reply(explaining, limit=3, explain=True, max_chars=50_000)
    trace, results = content["trace"], content["results"]
    assert trace["trust"] == "untrusted"
    assert trace["queries"] == [{"text": QUESTION, "weight": 1.0}]
    stages = {stage["name"]: stage for stage in trace["steps"]}
    assert list(stages) == STAGES
    assert all(stage["ms"] >= 0 for stage in stages.values())
    assert stages["recall"]["after"] == stages["fuse"]["before"] == stages["limit"]["before"] > 3
    assert [entry["id"] for entry in stages["limit"]["preview"]] == [hit["id"] for hit in results]
    assert stages["limit"]["after"] == 3
    for entry, hit in zip(stages["limit"]["preview"], results, strict=True):
        assert hit["text"].startswith(entry["text"])
        assert entry["score"] == hit["score"]
    assert list(trace["listings"]) == [hit["id"] for hit in results]
    for hit in results:
        lists = {listing["list"]: listing for listing in trace["listings"][hit["id"]]}
        assert all(listing["rank"] >= 1 for listing in lists.values())
        assert lists["dense"]["score"] == pytest.approx(hit["similarity"], abs=0.006)
    assert {1} <= {listing["rank"] for listed in trace["listings"].values() for listing in listed}


def test_previews_give_way_first_and_then_the_trace_with_a_note(explaining: Wire) -> None:
    whole, size = reply(explaining, limit=3, explain=True, max_chars=50_000)
    _, without = reply(explaining, limit=3)
    assert has_previews(whole["trace"])
    roomy, _ = reply(explaining, limit=3, explain=True, max_chars=size + CLOCK_DIGITS)
    brief, shorter = reply(explaining, limit=3, explain=True, max_chars=size - CLOCK_DIGITS)
    none, _ = reply(explaining, limit=3, explain=True, max_chars=shorter - CLOCK_DIGITS)
    assert has_previews(roomy["trace"])
    assert not has_previews(brief["trace"])
    assert [stage["name"] for stage in brief["trace"]["steps"]] == STAGES
    assert brief["trace"]["listings"] == whole["trace"]["listings"]
    assert "trace" not in none
    assert none["notes"] == [NO_ROOM]
    assert none["results"] == brief["results"] == whole["results"]
    assert shorter > without


def test_no_reply_is_longer_than_was_asked_for(explaining: Wire) -> None:
    exactly = [(limit, reply(explaining, limit=limit, max_chars=100_000)[1]) for limit in (3, 4, 5, 6)]
    for limit, max_chars in (*exactly, *((8, size) for size in range(2_000, 9_000, 331))):
        content, size = reply(explaining, explain=True, limit=limit, max_chars=max_chars)
        assert size <= max_chars
        assert content["results"]
        assert ("trace" in content) != (NO_ROOM in content["notes"]), max_chars


def test_as_many_passages_are_shown_as_without_a_trace_but_for_the_room_to_say_that_there_is_none(
    explaining: Wire,
) -> None:
    for max_chars in range(2_100, 8_000, 531):
        plain, _ = reply(explaining, max_chars=max_chars - len(NO_ROOM) - 3)
        explained, _ = reply(explaining, max_chars=max_chars, explain=True)
        assert [hit["id"] for hit in explained["results"]] == [hit["id"] for hit in plain["results"]]


def test_a_context_and_an_empty_answer_can_be_explained_too(explaining: Wire) -> None:
    in_context, _ = reply(explaining, explain=True, context=True, limit=3, max_chars=50_000)
    stages = {stage["name"]: stage for stage in in_context["trace"]["steps"]}
    assert list(stages) == [*STAGES, "context"]
    assert stages["context"]["after"] == len(in_context["results"]) == 3
    nothing = explaining.tool("search", {"query": "xyzzyplugh", "mode": "sparse", "explain": True})
    trace = nothing["structuredContent"]["trace"]
    assert [stage["name"] for stage in trace["steps"]] == [
        "plan",
        "embed",
        "recall",
        "fuse",
        "gate",
        "explain",
    ]
    assert trace["listings"] == {}


SECRET = {"title": "secret", "words": "A pendulum, secret."}


def expect_nothing_of_the_secret(content: Message) -> None:
    """What a reader of one document is told: as if there were no other."""
    text = json.dumps(content)
    assert SECRET["title"] not in text
    assert [hit["cite_as"] for hit in content["results"]] == ["open"]
    (id_,) = [hit["id"] for hit in content["results"]]
    assert content["trace"]["listings"].keys() == {id_}
    assert {listing["rank"] for listing in content["trace"]["listings"][id_]} == {1}
    stages = {stage["name"]: stage for stage in content["trace"]["steps"]}
    assert [stages[name]["after"] for name in ("recall", "fuse", "gate")] == [1, 1, 1]
    assert {entry["id"] for stage in stages.values() for entry in stage.get("preview", ())} == {id_}


def expect_all_of_the_secret(content: Message) -> None:
    """The control: who may read both documents is told of both, wherever there is something to tell."""
    assert {hit["cite_as"] for hit in content["results"]} == {"open", "secret"}
    assert len(content["trace"]["listings"]) == 2
    stages = {stage["name"]: stage for stage in content["trace"]["steps"]}
    assert [stages[name]["after"] for name in ("recall", "fuse", "gate")] == [2, 2, 2]
    assert any(SECRET["words"] in entry["text"] for entry in stages["gate"]["preview"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_trace_tells_nothing_of_what_the_principal_may_not_see(
    start: Start, world: World, era: str
) -> None:
    for user, expect in [("bob", expect_nothing_of_the_secret), ("ann", expect_all_of_the_secret)]:
        groups = {"REFDESK_PRINCIPAL_GROUPS": "hr"} if user == "ann" else {}
        who = {"REFDESK_PRINCIPAL_TENANT": "acorn", "REFDESK_PRINCIPAL_USER": user} | groups
        wire = start(world.data, era=era, env=ON | who).begun()
        expect(wire.tool("search", {"query": "pendulum", "explain": True})["structuredContent"])


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    return lasting_listen(world.data, server_explain="true")


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_each_request_is_explained_for_whoever_its_key_belongs_to(
    remote: Remote, world: World, mode: str
) -> None:
    async def explained(key: str) -> Any:  # noqa: ANN401 any JSON
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
            Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
        ):
            (search, _) = (await client.list_tools()).tools
            assert "explain" in search.input_schema["properties"]
            result = await client.call_tool("search", {"query": "pendulum", "explain": True})
            return result.structured_content

    expect_all_of_the_secret(await explained(world.ann))
    expect_nothing_of_the_secret(await explained(world.bob))
    theirs = await explained(world.eve)
    assert [hit["cite_as"] for hit in theirs["results"]] == ["theirs"]
    assert not {"open", "secret"} & {*json.dumps(theirs["trace"]).split('"')}


STAGE = '{step="multi_query"}'
CANARY = "quokka4711"


def searched(remote: Remote, key: str, query: str = "pendulum") -> Message:
    result = remote.tool(key, "search", query=query, explain=True, max_chars=50_000)
    return dict(result["structuredContent"])


def tokens(values: Message, kind: str) -> float:
    count: float = values[f'refdesk_model_tokens_total{{kind="{kind}",step="multi_query"}}']
    return count


@pytest.fixture
def chatting(
    listen: Callable[..., Remote], world: World, chat_server: Endpoint, chats: ModuleType, tmp_path: Path
) -> Remote:
    """A server with a stage that asks a chat model, which answers twice, then in another form, then not."""
    chat_server.script = [
        chats.saying({"queries": ["clock"]}, tokens=(1_000, 30)),
        chats.saying({"queries": ["swing"]}, tokens=(500, 20)),
        chats.saying({"queries": "none"}, tokens=(100, 7)),
        chat_server.failing(401),
    ]
    config = tmp_path / "config.toml"
    config.write_text(
        f"server.explain = true\n[chat]\nmodel = 'tiny'\nbase_url = '{chat_server.url}'\n"
        "input_price = 2.0\noutput_price = 10.0\n[[search.stages]]\nstage = 'multi_query'\n"
    )
    return listen(world.data, more={"REFDESK_CONFIG": str(config)})


def test_tokens_their_cost_and_failures_are_counted_by_stage(chatting: Remote, world: World) -> None:
    assert not any("model" in name or "failed" in name for name in chatting.metrics())
    for _ in range(2):
        searched(chatting, world.ann)
    values = chatting.metrics()
    assert (tokens(values, "input"), tokens(values, "output")) == (1_500, 50)
    assert values[f"refdesk_model_cost_total{STAGE}"] == pytest.approx((1_500 * 2 + 50 * 10) / 10**6)
    assert f"refdesk_failed_steps_total{STAGE}" not in values
    for _ in range(2):
        searched(chatting, world.ann, CANARY)
    values = chatting.metrics()
    assert (tokens(values, "input"), tokens(values, "output")) == (1_600, 57)
    assert values[f"refdesk_model_cost_total{STAGE}"] == pytest.approx((1_600 * 2 + 57 * 10) / 10**6)
    assert values[f"refdesk_failed_steps_total{STAGE}"] == 2
    assert values[f"refdesk_step_seconds_count{STAGE}"] == 4
    assert values['refdesk_call_seconds_count{call="search",outcome="answered"}'] == 4
    for words in (str(values), chatting.noise.read_text()):
        assert CANARY not in words
        assert "swing" not in words


def test_a_search_goes_on_without_a_stage_that_failed_and_its_trace_tells_what_was_used(
    chatting: Remote, world: World
) -> None:
    replies = [searched(chatting, world.ann) for _ in range(4)]
    assert [[query["text"] for query in reply["trace"]["queries"]] for reply in replies] == [
        ["pendulum", "clock"],
        ["pendulum", "swing"],
        ["pendulum"],
        ["pendulum"],
    ]
    notes = [
        [note for note in reply["notes"] if "The stage multi_query failed (" in note] for reply in replies
    ]
    assert [len(listing) for listing in notes] == [0, 0, 1, 1]
    assert all({hit["cite_as"] for hit in reply["results"]} == {"open", "secret"} for reply in replies)
    stages = [_stage(reply) for reply in replies]
    assert [stage.get("status") for stage in stages] == [None, None, "failed", "failed"]
    assert [stage.get("warnings", []) for stage in stages] == notes
    assert [stage["usage"] for stage in stages] == [
        {"requests": 1, "input_tokens": 1_000, "output_tokens": 30, "cost": 0.0023},
        {"requests": 1, "input_tokens": 500, "output_tokens": 20, "cost": 0.0012},
        {"requests": 1, "input_tokens": 100, "output_tokens": 7, "cost": 0.00027},
        {"requests": 1, "input_tokens": 0, "output_tokens": 0},
    ]


def _stage(reply: Message) -> Message:
    (stage,) = [stage for stage in reply["trace"]["steps"] if stage["name"] == "multi_query"]
    return dict(stage)
