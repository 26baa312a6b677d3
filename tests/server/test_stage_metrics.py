"""What a server counts of stages that ask a chat model: their tokens, their cost, and their failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from tests.endpoint import Endpoint
    from tests.server.conftest import Message, Remote, World

pytestmark = pytest.mark.slow

STAGE = '{step="multi_query"}'
CANARY = "quokka4711"


def searched(remote: Remote, key: str, query: str = "pendulum") -> Message:
    params = {"name": "search", "arguments": {"query": query, "explain": True, "max_chars": 50_000}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reply: Message = remote.post(key, body).json()["result"]["structuredContent"]
    return reply


def scraped(remote: Remote) -> dict[str, float]:
    text = httpx2.get(f"http://127.0.0.1:{remote.metrics_port}/metrics").text
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def tokens(values: Message, kind: str) -> float:
    count: float = values[f'refdesk_model_tokens_total{{kind="{kind}",step="multi_query"}}']
    return count


@pytest.fixture
def remote(
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


def test_tokens_their_cost_and_failures_are_counted_by_stage(remote: Remote, world: World) -> None:
    assert not any("model" in name or "failed" in name for name in scraped(remote))
    for _ in range(2):
        searched(remote, world.ann)
    values = scraped(remote)
    assert (tokens(values, "input"), tokens(values, "output")) == (1_500, 50)
    assert values[f"refdesk_model_cost_total{STAGE}"] == pytest.approx((1_500 * 2 + 50 * 10) / 10**6)
    assert f"refdesk_failed_steps_total{STAGE}" not in values
    for _ in range(2):
        searched(remote, world.ann, CANARY)
    values = scraped(remote)
    assert (tokens(values, "input"), tokens(values, "output")) == (1_600, 57)
    assert values[f"refdesk_model_cost_total{STAGE}"] == pytest.approx((1_600 * 2 + 57 * 10) / 10**6)
    assert values[f"refdesk_failed_steps_total{STAGE}"] == 2
    assert values[f"refdesk_step_seconds_count{STAGE}"] == 4
    assert values['refdesk_call_seconds_count{call="search",outcome="answered"}'] == 4
    for said in (str(values), remote.noise.read_text()):
        assert CANARY not in said
        assert "swing" not in said


def test_a_search_goes_on_without_a_stage_that_failed_and_its_trace_tells_what_was_used(
    remote: Remote, world: World
) -> None:
    replies = [searched(remote, world.ann) for _ in range(4)]
    assert [[query["text"] for query in reply["trace"]["queries"]] for reply in replies] == [
        ["pendulum", "clock"],
        ["pendulum", "swing"],
        ["pendulum"],
        ["pendulum"],
    ]
    notes = [
        [note for note in reply["notes"] if "The stage multi_query failed (" in note] for reply in replies
    ]
    assert [len(one) for one in notes] == [0, 0, 1, 1]
    assert all({hit["title"] for hit in reply["results"]} == {"open", "secret"} for reply in replies)
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
