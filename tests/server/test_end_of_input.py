"""At the end of its input a server answers what it has read and leaves, in bounded time."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from server.stdio import DRAIN_SECONDS, WRITE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.endpoint import Endpoint
    from tests.server.conftest import Era, Message, Start, Wire

pytestmark = pytest.mark.slow

LATE = 20  # seconds, far more than any of this takes


def ask(wire: Wire, id_: int = 7, **arguments: object) -> None:
    wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": "clock", "limit": 1} | arguments})


def end_input(wire: Wire) -> None:
    assert wire.process.stdin
    wire.process.stdin.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_calls_under_way_are_answered_before_it_leaves(start: Start, clock_room: Path, era: Era) -> None:
    wire = start(clock_room, era=era)
    wire.begin()
    for number in range(20):
        ask(wire, number)
    end_input(wire)
    answers = [wire.read() for _ in range(20)]
    assert {answer["id"] for answer in answers} == set(range(20))
    assert all(answer["result"]["structuredContent"]["results"] for answer in answers)
    assert wire.exit_code(within=LATE) == 0
    assert wire.stderr() == ""


def test_a_whole_conversation_can_come_through_a_pipe_at_once(scripts: Scripts, clock_room: Path) -> None:
    """As from a shell script: everything is written and the input ended before the server has started."""
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    }
    call = {"name": "search", "arguments": {"query": "clock"}}
    said: list[Message] = [
        {"id": 1, "method": "initialize", "params": greeting},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    done = subprocess.run(
        [scripts.server, "--data", clock_room],
        input="\n".join(json.dumps({"jsonrpc": "2.0"} | message) for message in said),
        env=scripts.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["result"]["serverInfo"]["name"] == "refdesk"
    assert second["result"]["structuredContent"]["results"]


def test_a_cancelled_call_is_not_waited_for(
    start: Start, hanging: dict[str, str], provider: Endpoint, tmp_path: Path
) -> None:
    wire = start(tmp_path / "data", env=hanging)
    wire.begin()
    ask(wire)
    assert provider.asked.wait(LATE)
    wire.send(None, "notifications/cancelled", {"requestId": 7})
    assert wire.leave(within=DRAIN_SECONDS / 2) == 0
    assert wire.gone()


@pytest.fixture
def hanging(scripts: Scripts, provider: Endpoint, tmp_path: Path) -> dict[str, str]:
    """The settings of a desk whose embedder answered while it was filled, and then never again."""
    settings = {"PROVIDER": "openai", "MODEL": "m", "BASE_URL": provider.url, "API_KEY_ENV": "K"}
    env = {f"REFDESK_EMBEDDER_{name}": value for name, value in settings.items()} | {"K": "sk-x"}
    (tmp_path / "note.md").write_text("# Note\n\nThe clock.\n")

    def vectors(request: Message) -> tuple[int, dict[str, str], bytes]:
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        data = [{"object": "embedding", "index": at, "embedding": [1.0, 0.5]} for at in range(len(texts))]
        body = {
            "object": "list",
            "model": "m",
            "data": data,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    provider.script = [vectors]
    run = scripts.admin("ingest", tmp_path / "note.md", "--data", tmp_path / "data", env=env)
    assert run.returncode == 0, run.stderr
    provider.script = [provider.silent]
    provider.asked.clear()
    patient = {"LIMITS_REQUEST_SECONDS": "600", "EMBEDDER_TIMEOUT_SECONDS": "600", "SEARCH_DEGRADE": "false"}
    return env | {f"REFDESK_{name}": value for name, value in patient.items()}


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_a_call_that_never_ends_is_given_up(
    start: Start, hanging: dict[str, str], provider: Endpoint, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    wire = start(tmp_path / "data", env=hanging)
    wire.begin()
    ask(wire)
    assert provider.asked.wait(LATE)
    end_input(wire)
    for each in signals:  # as hosts send it a little later
        wire.process.send_signal(each)
    assert not wire.is_gone(within=1)
    assert wire.exit_code(within=DRAIN_SECONDS + WRITE_SECONDS + LATE) == 0
    assert "Requests not answered within 10 s: 1." in wire.stderr()


def test_two_signals_after_the_end_of_input_end_it_at_once(
    start: Start, hanging: dict[str, str], provider: Endpoint, tmp_path: Path
) -> None:
    wire = start(tmp_path / "data", env=hanging)
    wire.begin()
    ask(wire)
    assert provider.asked.wait(LATE)
    end_input(wire)
    wire.process.send_signal(signal.SIGTERM)
    assert not wire.is_gone(within=0.5)
    wire.process.send_signal(signal.SIGTERM)
    assert wire.exit_code() == 1


def test_it_leaves_though_nobody_reads_the_last_replies(scripts: Scripts, clock_room: Path) -> None:
    pipe = subprocess.PIPE
    call = {"name": "search", "arguments": {"query": "clock", "limit": 50, "max_chars": 100_000}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": call}) for id_ in range(9)
    ]
    command = [scripts.server, "--data", str(clock_room)]
    with subprocess.Popen(command, env=scripts.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        process.stdin.write("\n".join(lines).encode())
        process.stdin.close()  # the replies are larger than what a pipe holds
        assert process.wait(timeout=DRAIN_SECONDS + WRITE_SECONDS + LATE) == 0
