"""The server starts before its engine, answers what it has read, and leaves when nobody needs it any more."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest

from server.stdio import DRAIN_SECONDS, WRITE_SECONDS
from tests.server.conftest import HANDSHAKE, call, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.endpoint import Endpoint
    from tests.server.conftest import Admin, Era, Message, Start, Wire

pytestmark = pytest.mark.slow


HEAVY = ["numpy", "pyarrow", "lancedb", "onnxruntime", "tokenizers", "openai"]

GATE = """
import os, sys

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["GATED"].split():
            sys.meta_path.remove(self)
            os.write(os.open(os.environ["GATE_REACHED"], os.O_RDWR), b".")
            os.read(os.open(os.environ["GATE_OPENED"], os.O_RDWR), 1)
        return None

sys.meta_path.insert(0, Gate())
"""

PARENT = """
import signal, subprocess, sys

subprocess.Popen(sys.argv[1:], close_fds=False)
signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds up a process where it first imports one of some modules, for as long as a test likes."""

    folder: Path
    reached: int
    opened: int

    def env(self, *modules: str) -> dict[str, str]:
        return {
            "PYTHONPATH": str(self.folder),
            "GATED": " ".join(modules),
            "GATE_REACHED": str(self.folder / "reached"),
            "GATE_OPENED": str(self.folder / "opened"),
        }

    def is_reached(self, *, within: float = 0) -> bool:
        return bool(select.select([self.reached], [], [], within)[0])

    def expect_reached(self) -> None:
        assert self.is_reached(within=20), "no gated module was imported"

    def open(self) -> None:
        os.write(self.opened, b".")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    (tmp_path / "sitecustomize.py").write_text(GATE)
    with ExitStack() as stack:
        pipes = []
        for name in ("reached", "opened"):
            os.mkfifo(tmp_path / name)
            pipes.append(os.open(tmp_path / name, os.O_RDWR))
            stack.callback(os.close, pipes[-1])
        yield Gate(tmp_path, *pipes)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_needs_no_documents_is_answered_before_the_engine_is_imported(
    cold_start: Start, clock_room: Path, gate: Gate, era: Era
) -> None:
    wire = cold_start(clock_room, era=era, env=gate.env(*HEAVY))
    for _ in range(5):
        wire.write("no message, but a sign of life")
        assert wire.read()["error"]
    assert not gate.is_reached()
    wire.begin()
    gate.expect_reached()  # nobody asked for documents: it gets ready by itself
    assert wire.result("prompts/list")["prompts"]
    assert wire.result("resources/templates/list")["resourceTemplates"]
    assert "query" in wire.tool_error("search", {"query": ""})
    ask(wire)
    assert wire.result("prompts/list")["prompts"]
    gate.open()
    assert wire.read()["result"]["structuredContent"]["results"]


def test_the_list_of_tools_waits_for_the_engine_only_where_nothing_else_says_what_documents_there_are(
    cold_start: Start, clock_room: Path, tmp_path: Path, gate: Gate
) -> None:
    env = gate.env(*HEAVY)
    empty = cold_start(tmp_path / "empty", env=env).begun()
    assert len(empty.result("tools/list")["tools"]) == 2
    wire = cold_start(clock_room, env=env).begun()
    assert "documents here" in wire.result("tools/list")["tools"][0]["description"]
    copy = shutil.copytree(clock_room, tmp_path / "copy")  # its tables are other files, so nothing is kept
    wire = cold_start(copy, env=env).begun()
    wire.send(50, "tools/list")
    assert wire.result("prompts/list")["prompts"]
    for _server in range(3):
        gate.open()
    answer = wire.read()
    assert answer["id"] == 50
    assert "documents here" in answer["result"]["tools"][0]["description"]


def test_input_that_ends_before_the_first_message_ends_the_server(start: Start, clock_room: Path) -> None:
    wire = start(clock_room)
    assert wire.leave(within=20) == 0  # it has to start before it can leave
    assert wire.stderr() == ""


@pytest.mark.parametrize(
    ("signals", "calling"), [([], False), ([], True), ([signal.SIGINT], False), ([signal.SIGTERM], True)]
)
def test_the_server_exits_in_the_middle_of_its_warm_up(
    cold_start: Start, clock_room: Path, gate: Gate, signals: list[signal.Signals], *, calling: bool
) -> None:
    wire = cold_start(clock_room, era="modern", env=gate.env(*HEAVY))
    if calling:
        ask(wire)  # as the first message: the call itself begins the warm-up
    else:
        wire.begin()
    gate.expect_reached()
    for signal_ in signals:
        wire.process.send_signal(signal_)
    if not signals and wire.process.stdin:
        wire.process.stdin.close()
    if calling:
        gate.open()
        assert wire.read()["result"]["structuredContent"]["results"]
    assert wire.exit_code() == 0
    assert wire.stderr() == ""


def test_a_second_signal_ends_the_server_at_once(cold_start: Start, clock_room: Path, gate: Gate) -> None:
    wire = cold_start(clock_room, era="modern", env=gate.env(*HEAVY))
    ask(wire)
    gate.expect_reached()
    wire.process.send_signal(signal.SIGTERM)
    assert not wire.is_gone(within=0.5)
    wire.process.send_signal(signal.SIGTERM)
    assert wire.exit_code() == 1
    assert wire.gone()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_at_a_signal_the_server_answers_all_calls_and_exits(
    start: Start, clock_room: Path, number: signal.Signals
) -> None:
    wire = start(clock_room).begun()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    for id_ in range(30):
        wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": "clock"}})
    assert wire.read()["result"]
    wire.process.send_signal(number)
    assert {wire.read()["id"] for _ in range(29)} < set(range(30))
    assert wire.exit_code() == 0
    assert wire.gone()


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_a_warm_server_exits_with_calls_under_way_and_has_no_children(
    start: Start, clock_room: Path, signals: list[signal.Signals]
) -> None:
    wire = start(clock_room).begun()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert psutil.Process(wire.process.pid).children(recursive=True) == []
    for _ in range(50):
        ask(wire)
    for signal_ in signals:
        wire.process.send_signal(signal_)
    assert (wire.exit_code(within=20) if signals else wire.leave(within=20)) == 0
    assert wire.stderr() == ""


def test_the_server_exits_when_nobody_reads_its_output(scripts: Scripts, clock_room: Path) -> None:
    pipe = subprocess.PIPE
    command = [scripts.server, "--data", str(clock_room)]
    with subprocess.Popen(command, env=scripts.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for ending in (process.stdout.readline, process.stdout.close):
            process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            process.stdin.flush()
            ending()
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.wait(timeout=2) == 0
        assert process.stderr.read() == b""


@pytest.fixture
def orphan(cold_start: Start, clock_room: Path, gate: Gate) -> Wire:
    """A server whose parent is the process of the wire; the test has the other ends of its pipes."""
    before = [sys.executable, "-c", PARENT]
    return cold_start(clock_room, before=before, env=gate.env("mcp"))


def test_the_server_exits_when_its_parent_dies_though_the_pipes_stay_open(orphan: Wire, gate: Gate) -> None:
    gate.open()
    orphan.begin()
    assert orphan.tool("search", {"query": "clock"})["structuredContent"]["results"]
    orphan.process.kill()
    assert orphan.gone()


def test_the_server_exits_when_its_parent_died_while_it_started(orphan: Wire, gate: Gate) -> None:
    gate.expect_reached()
    orphan.process.kill()
    orphan.process.wait()
    gate.open()
    assert orphan.gone(within=20)  # it has to start before it can leave


def test_an_embedder_that_cant_be_opened_is_told_to_every_call_and_costs_no_more(
    start: Start, tmp_path: Path
) -> None:
    env = {
        "REFDESK_EMBEDDER_PROVIDER": "openai",
        "REFDESK_EMBEDDER_MODEL": "some-model",
        "REFDESK_EMBEDDER_API_KEY_ENV": "NO_SUCH_KEY",
    }
    wire = start(tmp_path, env=env).begun()
    for _ in range(3):  # the first ones on both sides of the warm-up's own attempt
        assert "NO_SUCH_KEY" in wire.tool_error("search", {"query": "clock"})
        assert "NO_SUCH_KEY" in wire.error("resources/list")["message"]
        assert wire.result("tools/list")["tools"]
    assert wire.leave() == 0
    assert "NO_SUCH_KEY" in wire.stderr()  # of the calls; it may leave before the warm-up has said so, too


LATE = 20  # seconds, far more than any of this takes


def ask(wire: Wire, id_: int = 7, **arguments: object) -> None:
    wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": "clock", "limit": 1} | arguments})


def end_input(wire: Wire) -> None:
    assert wire.process.stdin
    wire.process.stdin.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_calls_under_way_are_answered_before_the_server_exits(
    start: Start, clock_room: Path, era: Era
) -> None:
    wire = start(clock_room, era=era).begun()
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
    messages: list[Message] = [
        message("initialize", **HANDSHAKE),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call("search", query="clock") | {"id": 2},
    ]
    run = subprocess.run(
        [scripts.server, "--data", clock_room],
        input="\n".join(map(json.dumps, messages)),
        env=scripts.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = [json.loads(line) for line in run.stdout.splitlines()]
    assert first["result"]["serverInfo"]["name"] == "refdesk"
    assert second["result"]["structuredContent"]["results"]


def test_a_cancelled_call_is_not_waited_for(hanging: Wire) -> None:
    hanging.send(None, "notifications/cancelled", {"requestId": 7})
    assert hanging.leave(within=DRAIN_SECONDS / 2) == 0
    assert hanging.gone()


@pytest.fixture
def hanging(start: Start, admin: Admin, provider: Endpoint, tmp_path: Path) -> Wire:
    """A session with a call on an embedder that answered while the desk was filled, and then never again."""
    settings = {"PROVIDER": "openai", "MODEL": "m", "BASE_URL": provider.url, "API_KEY_ENV": "MODEL_KEY"}
    env = {f"REFDESK_EMBEDDER_{name}": value for name, value in settings.items()} | {"MODEL_KEY": "sk-x"}
    (tmp_path / "note.md").write_text("# Note\n\nThe clock.\n")
    provider.script = [provider.embedding]
    admin("ingest", tmp_path / "note.md", "--data", tmp_path / "data", env=env)
    provider.script = [provider.silent]
    provider.asked.clear()
    patient = {"LIMITS_REQUEST_SECONDS": "600", "EMBEDDER_TIMEOUT_SECONDS": "600", "SEARCH_DEGRADE": "false"}
    env |= {f"REFDESK_{name}": value for name, value in patient.items()}
    wire = start(tmp_path / "data", env=env).begun()
    ask(wire)
    assert provider.asked.wait(LATE)
    return wire


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_a_call_that_never_ends_is_given_up(hanging: Wire, signals: list[signal.Signals]) -> None:
    end_input(hanging)
    for signal_ in signals:  # as hosts send it a little later
        hanging.process.send_signal(signal_)
    assert not hanging.is_gone(within=1)
    assert hanging.exit_code(within=DRAIN_SECONDS + WRITE_SECONDS + LATE) == 0
    assert "Requests not answered within 10 s: 1." in hanging.stderr()


def test_two_signals_after_the_end_of_input_end_the_server_at_once(hanging: Wire) -> None:
    end_input(hanging)
    hanging.process.send_signal(signal.SIGTERM)
    assert not hanging.is_gone(within=0.5)
    hanging.process.send_signal(signal.SIGTERM)
    assert hanging.exit_code() == 1


def test_the_server_exits_though_nobody_reads_the_last_replies(scripts: Scripts, clock_room: Path) -> None:
    pipe = subprocess.PIPE
    search = call("search", query="clock", limit=50, max_chars=100_000)
    lines = [json.dumps(search | {"id": id_}) for id_ in range(9)]
    command = [scripts.server, "--data", str(clock_room)]
    with subprocess.Popen(command, env=scripts.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        process.stdin.write("\n".join(lines).encode())
        process.stdin.close()  # the replies are larger than what a pipe holds
        assert process.wait(timeout=DRAIN_SECONDS + WRITE_SECONDS + LATE) == 0
